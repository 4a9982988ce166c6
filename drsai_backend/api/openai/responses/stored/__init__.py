"""Responses and conversations are found in the database here, read again, and stored along with a run's request."""
