"""The routes of `/v1/files` are those that OpenAI has."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from typing import Annotated, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import allowed
from drsai_backend.api.http.json import answers, deleted, deletion, json_response, page_of, page_response
from drsai_backend.api.http.once import Once, plain
from drsai_backend.api.http.parameters import FileId, new_router
from drsai_backend.api.joining import Web
from drsai_backend.database.files import FileInfo
from drsai_backend.datamodel.thread import NAME_SCHEMA
from drsai_backend.errors import InvalidRequest
from drsai_backend.features.files.form import Form
from drsai_backend.files.store import OF_TOOLS, PURPOSES, new_file
from drsai_backend.json_types import JsonObject

Reader = Annotated[Principal, allowed(Scope.FILES_READ)]
Writer = Annotated[Principal, allowed(Scope.FILES_WRITE)]

_FORM_BYTES: Final = 128 * 1024
"""What a form may have besides its file."""
_EXPIRES: Final = ("expires_after[anchor]", "expires_after[seconds]")
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_FILE: Final = {
    "type": "object",
    "required": ["id", "object", "bytes", "created_at", "filename", "purpose", "status"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "file"},
        "bytes": {"type": "integer", "minimum": 0},
        "created_at": {"type": "integer", "description": "Unix time in seconds."},
        "expires_at": {"type": ["integer", "null"], "description": "When it is deleted; null: it is kept."},
        "filename": {"type": "string"},
        "purpose": {"enum": [*PURPOSES, OF_TOOLS]},
        "status": {"const": "processed"},
        "status_details": {"type": "null"},
    },
}
_UPLOAD: Final = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "purpose"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "purpose": {"enum": [*PURPOSES]},
                        "expires_after[anchor]": {"const": "created_at"},
                        "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2592000},
                    },
                }
            }
        },
    }
}
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
_BYTES: Final = {"application/octet-stream": _BINARY, "*/*": _BINARY}
_CONTENT: Final[dict[int | str, JsonObject]] = {
    200: {"description": "The bytes, with the media type of the file.", "content": _BYTES},
    206: {"description": "Those that `Range` asks for.", "content": _BYTES},
    416: {"description": "The file has no such bytes."},
}


def file_object(info: FileInfo) -> JsonObject:
    """A file, as OpenAI shows it."""
    expires = info.expires_at
    return {
        "id": info.file_id,
        "object": "file",
        "bytes": info.bytes,
        "created_at": int(info.created_at.timestamp()),
        "expires_at": None if expires is None else int(expires.timestamp()),
        "filename": info.filename,
        "purpose": info.purpose,
        "status": "processed",
        "status_details": None,
    }


def routes(web: Web) -> APIRouter:
    """Return the routes. Whoever asks here sees their own files only; a share of a thread gives no right to files."""
    engine, bodies = web.engine, web.bodies
    router = new_router("/v1/files", tags=["files"])

    @router.post("", responses=answers(200, _FILE), openapi_extra=_UPLOAD)
    async def create_file(request: Request, who: Writer, once: Once) -> Response:
        """Upload a file. It is stored while it arrives, and is there when all of it has."""
        files, form = engine.files, Form(request.headers.get("content-type", ""))
        limit = files.largest + _FORM_BYTES
        async with (
            bodies.stream(request.scope, request.receive, limit, who.owner) as parts,
            files.arriving(who.owner) as arriving,
        ):
            async for part in form.file(parts):
                await arriving.add(part)
            purpose, expires = _fields(form.fields)
            new = new_file(form.filename or "", purpose, form.media_type, expires)
            said = {**form.fields, "name": form.filename, "sha256": arriving.sha256}
            return await once(who, said, lambda: arriving.finish(new), plain(_stored))

    @router.get("", responses=answers(200, page_of(_FILE)))
    async def list_files(
        who: Reader,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
        order: Annotated[Literal["asc", "desc"], Query(description="By when they were made.")] = "desc",
        after: Annotated[
            str | None,
            Query(
                description="The id of the last file of the page before.", json_schema_extra={"anyOf": [NAME_SCHEMA]}
            ),
        ] = None,
        purpose: Annotated[str | None, Query(description="Only those for this.", max_length=32)] = None,
    ) -> Response:
        """Your files, newest first."""
        page = await engine.files.list(who.owner, after=after, limit=limit, order=order, purpose=purpose)
        return page_response(page, file_object)

    @router.get("/{file_id}", responses=answers(200, _FILE))
    async def get_file(file_id: FileId, who: Reader) -> Response:
        """What a file is."""
        return json_response(file_object(await engine.files.get(who.owner, file_id)))

    @router.get("/{file_id}/content", responses=_CONTENT, response_class=Response)
    async def get_file_content(request: Request, file_id: FileId, who: Reader) -> Response:
        """The bytes of a file, or, with the header `Range`, some of them."""
        info, place = await engine.files.open(who.owner, file_id)
        headers = {
            "accept-ranges": "bytes",
            "content-disposition": f"attachment; filename*=UTF-8''{quote(info.filename, safe='')}",
        }
        asked = _range(request.headers.get("range"), info.bytes)
        if asked is None:
            return Response(status_code=416, headers={**headers, "content-range": f"bytes */{info.bytes}"})
        start, stop, status = asked
        headers["content-length"] = str(stop - start)
        if status == 206:
            headers["content-range"] = f"bytes {start}-{stop - 1}/{info.bytes}"
        parts = _closed_after(engine.files.stream(place, start, stop))
        return StreamingResponse(parts, status, headers, info.media_type)

    @router.delete("/{file_id}", responses=answers(200, deletion("file"), "It is gone."))
    async def delete_file(file_id: FileId, who: Writer) -> Response:
        """Delete a file. Messages keep what they have shown of it."""
        await engine.files.delete(who.owner, file_id, actor=who.actor)
        return deleted(file_id, "file")

    return router


def _stored(made: tuple[FileInfo, bool]) -> JsonObject:
    return file_object(made[0])


async def _closed_after(parts: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Parts of a file, which are closed with the answer that has them."""
    async with aclosing(parts):
        async for part in parts:
            yield part


def _fields(fields: dict[str, str]) -> tuple[str, timedelta | None]:
    """Return what a form says of its file."""
    for name in fields:
        if name not in ("purpose", *_EXPIRES):
            raise InvalidRequest(f"`{name}` is not known here", param=name)
    purpose = fields.get("purpose")
    if purpose not in PURPOSES:
        what = "is required, and" if purpose is None else ""
        text = f"`purpose` {what} must be one of {', '.join(PURPOSES)}".replace("  ", " ")
        raise InvalidRequest(text, param="purpose")
    anchor, seconds = (fields.get(name) for name in _EXPIRES)
    if anchor is None and seconds is None:
        return purpose, None
    if anchor != "created_at":
        raise InvalidRequest("`expires_after[anchor]` must be `created_at`", param=_EXPIRES[0])
    if seconds is None or re.fullmatch("[0-9]{1,9}", seconds) is None:
        raise InvalidRequest("`expires_after[seconds]` must be a number of seconds", param=_EXPIRES[1])
    return purpose, timedelta(seconds=int(seconds))


def _range(header: str | None, size: int) -> tuple[int, int, int] | None:
    """Return from where to where, and the status of the answer. Several ranges, and what is none, are answered by all.
    None: there are no such bytes."""
    found = None if header is None else _RANGE.fullmatch(header.strip().replace(" ", ""))
    if found is None or found.groups() == ("", ""):
        return 0, size, 200
    first, last = found.groups()
    if first == "":
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), size if last == "" else min(size, int(last) + 1)
        if last != "" and int(last) < int(first):
            return 0, size, 200
    return (start, stop, 206) if start < stop else None
