"""Stored definitions are put, listed, rolled back and deleted; `drsai_backend.definitions.stored` serves them."""
