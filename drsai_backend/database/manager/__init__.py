"""The object mapper: rows of any table as objects, read, written and deleted with what they relate to."""

from drsai_backend.database.manager.manager import DatabaseManager, SyncDatabaseManager
from drsai_backend.database.manager.secrets import SecretBox
from drsai_backend.database.manager.threads import StateStore

__all__ = ["DatabaseManager", "SecretBox", "StateStore", "SyncDatabaseManager"]
