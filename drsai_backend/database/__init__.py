"""Storage: `Database` runs storage functions on SQLite and PostgreSQL, `DatabaseManager` reads and writes rows with it.

The schema is kept by `migrations`; `threads` holds the statements of a run.
"""

from drsai_backend.database._secrets import SecretBox
from drsai_backend.database._thread_io import StateStore
from drsai_backend.database._values import clean_json, clean_text
from drsai_backend.database.engine import DEFAULT_URL, Database
from drsai_backend.database.manager import DatabaseManager, SyncDatabaseManager

__all__ = [
    "DEFAULT_URL",
    "Database",
    "DatabaseManager",
    "SecretBox",
    "StateStore",
    "SyncDatabaseManager",
    "clean_json",
    "clean_text",
]
