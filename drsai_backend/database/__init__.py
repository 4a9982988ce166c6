"""The database has two objects: `Database` executes storage functions on SQLite and PostgreSQL, `DatabaseManager` reads
and writes rows with it.

`backends` are those two (`base` says what one is), `manager` is the object mapper, `runs` has the statements of a run;
`migrations` keeps the schema.
"""

from drsai_backend.database.engine import DEFAULT_URL, Database, patiently
from drsai_backend.database.manager.manager import DatabaseManager, SyncDatabaseManager
from drsai_backend.database.manager.secrets import SecretBox
from drsai_backend.database.manager.thread_parts import is_live
from drsai_backend.database.manager.threads import StateStore
from drsai_backend.database.values import clean_json, clean_text

__all__ = [
    "DEFAULT_URL",
    "Database",
    "DatabaseManager",
    "SecretBox",
    "StateStore",
    "SyncDatabaseManager",
    "clean_json",
    "clean_text",
    "is_live",
    "patiently",
]
