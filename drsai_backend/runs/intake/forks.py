"""Threads that begin as others were at a place: made for a request before its run, and deleted where it is refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from drsai_backend.access.principal import Principal
from drsai_backend.database import Database
from drsai_backend.database.locks import lock_thread
from drsai_backend.database.retention import delete_thread
from drsai_backend.database.runs.reads import read_head
from drsai_backend.errors import Conflict, DrSaiError, IdempotencyMismatch, InvalidRequest, NotFound, StateError
from drsai_backend.runs.requests import RunRequest
from drsai_backend.runs.threads.rights import Named
from drsai_backend.runs.threads.views import ThreadDetail
from drsai_backend.state.travel import Place

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class Travels(Protocol):
    """Forks threads, and says what they are forks of: the engine."""

    async def fork(
        self, who: Principal, thread_id: Named, place: Place | None = None, *, new_thread_id: str | None = None
    ) -> object: ...

    async def get_thread(self, who: Principal, thread_id: Named) -> ThreadDetail: ...


@dataclass(eq=False)
class Forks:
    """The forks that the requests of one engine begin with."""

    _database: Database
    _travels: Travels

    async def make(self, request: RunRequest) -> tuple[RunRequest, bool]:
        """Fork what a request says, under the id of its thread. Returns the request on that thread, and whether it was
        made now: an earlier try with the same idempotency key may have left it. A fork of a known history whose turns
        were not kept is none: then the texts of the request are all there is.

        Raises:
            IdempotencyMismatch: the thread of the key is another one.
            NotFound, Forbidden: the source is not there for who asks.
            InvalidRequest, StateError: the place is none to begin at.
        """
        fork = request.fork_of
        assert fork is not None
        placed = replace(request, fork_of=None)
        try:
            await self._travels.fork(request.principal, fork.source, fork.place, new_thread_id=request.thread_id)
        except Conflict:
            found = (await self._travels.get_thread(request.principal, request.name)).forked_from or {}
            source = (found.get("user_id"), found.get("thread_id"), found.get("seq"))
            if source != (fork.source.user_id, fork.source.thread_id, fork.place.at):
                text = "this Idempotency-Key was used with another request"
                raise IdempotencyMismatch(text, param="Idempotency-Key") from None
            return placed, False
        except (InvalidRequest, NotFound, StateError):
            if request.known is None:
                raise
            return replace(placed, known=None), False
        return placed, True

    async def undo(self, request: RunRequest) -> None:
        """Delete the fork that was made for a request which is refused, unless somebody has begun a run on it."""
        name, actor = request.name, request.principal.actor

        def drop(session: Session) -> None:
            lock_thread(session, name)
            head = read_head(session, name)
            if head is not None and head.run_id is None and not head.queued:
                delete_thread(session, name, actor)

        with suppress(DrSaiError):
            await self._database.write(drop)
