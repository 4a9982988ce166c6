"""Files belong to users, also where tools make them on their behalf: each is kept once per owner and content, in the
database or a folder."""

from drsai_backend.files.store import Files

__all__ = ["Files"]
