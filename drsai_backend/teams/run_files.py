"""Files that the tools of a run keep and read, for the owner of its thread, and the images among them."""

from __future__ import annotations

import hashlib

from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import FileTooLarge, NotFound
from drsai_backend.files import Files
from drsai_backend.files.store import OF_TOOLS
from drsai_backend.models.calls.seen_images import MAX_BYTES, ReadImage
from drsai_backend.tools.running import FileRef


class RunFiles:
    """Keeps the files of one tool call. A call that is repeated after its process died keeps the same files again.

    Args:
        files: those of the database.
        owner: whose thread it is, and whose the files are.
        call: names the call in all of the database: run, agent and call id.
    """

    def __init__(self, files: Files, owner: Owner, call: str) -> None:
        self._files = files
        self._owner = owner
        self._call = hashlib.sha256(call.encode()).hexdigest()
        self._count = 0

    async def save(self, name: str, data: bytes, media_type: str) -> FileRef:
        """Keep a file. The n-th one of a repeated call is the n-th that was kept before."""
        origin, self._count = f"{self._call}/{self._count}", self._count + 1
        kept = await self._files.create(self._owner, name, data, purpose=OF_TOOLS, media_type=media_type, origin=origin)
        return FileRef(kept.file_id, kept.filename, kept.bytes, kept.media_type)

    async def read(self, file_id: str) -> bytes:
        """The content of a file of the owner. Raises NotFound."""
        return await self._files.read(self._owner, file_id)


def images_of(files: Files, owner: Owner) -> ReadImage:
    """Reads images that tools have kept for an owner; of nobody else's, and of no upload: the text of a web page may
    look like a reference."""

    async def read(file_id: str) -> bytes | None:
        try:
            info = await files.get(owner, file_id)
            if info.purpose != OF_TOOLS or not info.media_type.startswith("image/"):
                return None
            return await files.read(owner, file_id, limit=MAX_BYTES)
        except (NotFound, FileTooLarge):
            return None

    return read
