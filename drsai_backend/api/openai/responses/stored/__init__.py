"""Responses and conversations in the database: found, read again, and stored along with a run's request."""
