"""`/v1/notes`. Each route says which scope it needs, and gets who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Request
from pydantic import Field
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import Body, allowed, described, read_fields
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.http.json import answers, json_response, page_of, page_response
from drsai_backend.api.http.parameters import new_router
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page

from .rows import Note

if TYPE_CHECKING:
    from .extension import Notes

Reader = Annotated[Principal, allowed(Scope.MEMORY_READ)]
Writer = Annotated[Principal, allowed(Scope.MEMORY_WRITE)]
Deleter = Annotated[Principal, allowed(Scope.MEMORY_DELETE)]
Number = Annotated[int, Path(ge=1, lt=2**63)]

_NOTE: JsonObject = {
    "type": "object",
    "required": ["id", "object", "text"],
    "properties": {"id": {"type": "integer"}, "object": {"const": "note"}, "text": {"type": "string"}},
}


class NoteBody(Body):
    """A new note."""

    text: str = Field(min_length=1, max_length=1000)


def note_routes(notes: Notes, bodies: Bodies) -> APIRouter:
    """Whoever asks here sees and changes notes of their own only."""
    router = new_router("/v1/notes", tags=["notes"])

    @router.post("", status_code=201, responses=answers(201, _NOTE), openapi_extra=described(NoteBody))
    async def add_note(request: Request, who: Writer) -> Response:
        """Keep a note."""
        body = await read_fields(bodies, request, NoteBody)
        return json_response(_shown(await notes.add(who.owner, body.text)), 201)

    @router.get("", responses=answers(200, page_of(_NOTE)))
    async def list_notes(who: Reader) -> Response:
        """The user's notes, oldest first."""
        return page_response(Page(items=await notes.list(who.owner)), _shown)

    @router.delete("/{number}", responses=answers(200, _NOTE))
    async def delete_note(number: Number, who: Deleter) -> Response:
        """Delete a note."""
        await notes.delete(who.owner, number)
        return json_response({"id": number, "object": "note", "deleted": True})

    return router


def _shown(note: Note) -> JsonObject:
    return {"id": note.id, "object": "note", "text": note.text}
