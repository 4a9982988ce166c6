"""Files that users, and tools on their behalf, keep: stored once per owner and content, in the database or a folder."""

from drsai_backend.files.store import Files

__all__ = ["Files"]
