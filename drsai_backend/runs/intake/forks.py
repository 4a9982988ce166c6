"""Forks are threads that begin as others were at a place: they are made for a request before its run, and deleted where
it is refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drsai_backend.database import Database
from drsai_backend.database.locks import lock_thread
from drsai_backend.database.retention import delete_thread
from drsai_backend.database.runs.reads import head_of, read_head
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import Conflict, DrSaiError, IdempotencyMismatch, InvalidRequest, NotFound, StateError
from drsai_backend.runs.requests import Admitted
from drsai_backend.runs.threads.queries import read_detail
from drsai_backend.runs.threads.travel import Travel
from drsai_backend.runs.threads.views import ThreadDetail

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


@dataclass(eq=False)
class Forks:
    """The forks that the requests of one engine begin with."""

    _database: Database
    _travel: Travel

    async def make(self, request: Admitted) -> tuple[Admitted, bool]:
        """Fork what a request says, under the id of its thread. Returns the request on that thread, and whether it was
        made now: an earlier try with the same idempotency key may have left it. A fork of a known history whose turns
        were not kept is none: then the texts of the request are all there is.

        Raises:
            IdempotencyMismatch: the thread of the key is another one.
            NotFound, Forbidden: the source is not there for who asks.
            InvalidRequest, StateError: the place is none to begin at.
        """
        fork = request.where.fork_of
        assert fork is not None
        placed = request.at(fork_of=None)
        try:
            await self._travel.fork(
                request.who, fork.source, fork.place, thread_id=request.where.thread_id, to_user=None
            )
        except Conflict:
            found = (await self._database.read(lambda session: _detail(session, request.name))).forked_from or {}
            source = (found.get("user_id"), found.get("thread_id"), found.get("seq"))
            if source != (fork.source.user_id, fork.source.thread_id, fork.place.at):
                text = "this Idempotency-Key was used with another request"
                raise IdempotencyMismatch(text, param="Idempotency-Key") from None
            return placed, False
        except (InvalidRequest, NotFound, StateError):
            if request.where.known is None:
                raise
            return placed.at(known=None), False
        return placed, True

    async def undo(self, request: Admitted) -> None:
        """Delete the fork that was made for a request which is refused, unless somebody has begun a run on it."""
        name, actor = request.name, request.who.actor

        def drop(session: Session) -> None:
            lock_thread(session, name)
            head = read_head(session, name)
            if head is not None and head.run_id is None and not head.queued:
                delete_thread(session, name, actor)

        with suppress(DrSaiError):
            await self._database.write(drop)


def _detail(session: Session, name: ThreadName) -> ThreadDetail:
    head_of(session, name)  # Raises NotFound: it may have been deleted meanwhile.
    return read_detail(session, name)
