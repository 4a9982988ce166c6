"""Runs storage functions on SQLite and PostgreSQL (`Database`) and keeps the schema up to date (`migrations`)."""

from drsai_backend.database.engine import Database

__all__ = ["Database"]
