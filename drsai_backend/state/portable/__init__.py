"""Portable threads are files: taken out of one database, put into another, and continued there exactly where they
stood.

`threads` exports and imports one, `file` is the bytes of it, `rows` says which columns travel and checks those that
come; `archive` is all that is a user's.
"""

from drsai_backend.state.portable.file import FORMAT_VERSION, MAX_FILE_BYTES
from drsai_backend.state.portable.rows import TABLES
from drsai_backend.state.portable.threads import export_thread, import_thread

__all__ = ["FORMAT_VERSION", "MAX_FILE_BYTES", "TABLES", "export_thread", "import_thread"]
