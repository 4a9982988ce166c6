"""The object mapper: rows of any table as objects, read, written and deleted with what they relate to."""

from drsai_backend.database._thread_io import StateStore
from drsai_backend.database.manager.manager import DatabaseManager, SyncDatabaseManager
from drsai_backend.database.manager.secrets import SecretBox

__all__ = ["DatabaseManager", "SecretBox", "StateStore", "SyncDatabaseManager"]
