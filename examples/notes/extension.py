"""The feature: its verbs, and where its other parts are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import sqlalchemy as sa

from drsai_backend import ToolOptions
from drsai_backend.access.principal import Principal
from drsai_backend.database.upserts import insert_into
from drsai_backend.datamodel import table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import NotFound
from drsai_backend.features.base import Extension

from .rows import EndedRuns, Note

if TYPE_CHECKING:
    from fastapi import APIRouter
    from sqlalchemy.orm import Session

    from drsai_backend.api.joining import Web
    from drsai_backend.database.hooks import EndedRun

_ended = table_of(EndedRuns)


class Notes(Extension):
    """Notes of users."""

    name = "notes"
    tables = (Note, EndedRuns)
    commands = "notes.commands:app"
    tools = {"note_down": ToolOptions(), "read_notes": ToolOptions(idempotent=True)}

    # --- verbs: `drsai.extension(Notes).add(…)` ---

    async def add(self, owner: Owner, text: str) -> Note:
        """Keep a note."""
        return await self.host.db.upsert(Note(**owner._asdict(), text=text))

    async def list(self, owner: Owner) -> list[Note]:
        """All notes of a user, oldest first."""
        return await self.host.db.get(Note, owner._asdict(), order="id")

    async def delete(self, owner: Owner, number: int) -> None:
        """Delete a note. Raises NotFound: the user has none of that number."""
        if not await self.host.db.delete(Note, {**owner._asdict(), "id": number}):
            raise NotFound(f"no note {number}", param="number")

    async def ended_runs(self, owner: Owner) -> int:
        """How many runs of a user have ended."""
        return sum(row.count for row in await self.host.db.get(EndedRuns, owner._asdict()))

    # --- tools: methods, too; who asks is filled in, and no model sees that parameter ---

    async def note_down(self, text: str, who: Principal) -> str:
        """Keep a note for the user.

        Args:
            text: the note
        """
        return f"Noted as number {(await self.add(who.owner, text)).id}."

    async def read_notes(self, who: Principal) -> str:
        """Read all notes of the user."""
        return "\n".join(note.text for note in await self.list(who.owner)) or "There are none."

    # --- routes ---

    def routes(self, web: Web) -> APIRouter:
        from .routes import note_routes

        return note_routes(self, web.bodies)

    # --- hooks, in transactions of the package ---

    def run_ended(self, session: Session, run: EndedRun) -> None:
        """Count it. Two runs of a user may end at once: nothing is read before it is written."""
        if not run.status.is_final:
            return  # It waits for a person, or is paused.
        connection = session.connection()
        insert = insert_into(_ended, connection.dialect.name).values(**run.name.owner._asdict(), count=1)
        more = {"count": _ended.c.count + 1}
        connection.execute(insert.on_conflict_do_update(index_elements=["tenant", "user_id"], set_=more))

    def export_user(self, session: Session, owner: Owner) -> Iterator[tuple[str, bytes]]:
        """The rows are in the archive anyway; this is for people to read."""
        mine = (Note.tenant == owner.tenant, Note.user_id == owner.user_id)
        texts = session.scalars(sa.select(Note.text).where(*mine).order_by(Note.id))  # pyright: ignore
        yield "notes.json", json.dumps([*texts]).encode()
