"""Users are deleted here: their keys, then their runs, then all that is theirs, part by part.

1. The keys are deleted. They stop working at once here, and in all other processes once `ApiKeys.stale_seconds` are
   over, for which the deletion waits: from then on nobody adds anything as this user, except programs, and those whom a
   token or an application of one's own still lets in.
2. Live runs are stopped, in whatever process, and what waits in their queues is dropped; on threads of others all runs
   that they have begun, those that are paused or wait included.
3. Threads and rows are deleted in parts, each a transaction with an entry of the audit log: the sum of the entries is
   what was deleted, whoever was killed in between. Nothing is remembered of how far it went: to repeat it deletes the
   rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from drsai_backend.access.key_store import ApiKeys
from drsai_backend.access.principal import Principal
from drsai_backend.config import Settings
from drsai_backend.database.hooks import EndedRun
from drsai_backend.database.runs.commands import drop_queued
from drsai_backend.database.users import (
    UserSummary,
    busy_threads,
    delete_part,
    list_users,
    owns_anything,
    runs_elsewhere,
)
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.audit import PROGRAM, Actor
from drsai_backend.datamodel.owner import Owner
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import Conflict, DatabaseUnavailable, DrSaiError, NotFound, ThreadBusy
from drsai_backend.page import Page
from drsai_backend.runs.engine import Engine

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_PATIENCE: Final = 60.0
"""Seconds that a deletion waits for live runs to end, of which none ends."""
_LOOK: Final = 0.1
_STOPPED: Final = "The user was deleted."


class Users:
    """The users of a database: whoever something belongs to.

    Args:
        engine: stops runs, and forgets what it keeps warm.
        keys: the keys of users.
        settings: whether a key is needed where there is none.
    """

    def __init__(self, engine: Engine, keys: ApiKeys, settings: Settings) -> None:
        self._engine = engine
        self._keys = keys
        self._may_be_last = settings.auth == "required"

    async def list(self, tenant: str, after: str | None = None, limit: int = 20) -> Page[UserSummary]:
        """A page of the users of a tenant to whom anything belongs, by their ids. `after` is the `next` of the page
        before."""
        self._engine.check_open()
        read = partial(list_users, tenant=tenant, after=after, limit=limit, hooks=self._engine.hooks)
        return await self._engine.db.database.read(read)

    async def delete(
        self, owner: Owner, *, actor: Actor = PROGRAM, export: Callable[[], Awaitable[object]] | None = None
    ) -> dict[str, int]:
        """Delete a user: their keys, their runs, and all that is theirs. The audit log keeps what it has of them.

        Args:
            owner: the user.
            actor: who deletes them, for the audit log.
            export: called when the keys are gone and nothing runs any more, before anything else is deleted.

        Returns:
            How many of which kind: `threads`, `messages`, `runs`, `api_keys`, `agent_configs` …; those of which there
            were any. After a call that was cut off it is what that one had left.

        Raises:
            NotFound: nothing belongs to such a user.
            Conflict: they have the last keys, and without one this server would ask nobody for a key.
            DatabaseUnavailable: the response cache cannot be reached; all else is deleted. Call it again.
            ThreadBusy: for a minute none of their live runs has ended. What was deleted by then stays so; call it
                again, as after whatever `export` raises.
            InvalidRequest: no name of a user or tenant.
        """
        self._engine.check_open()
        check_name(owner.tenant, "tenant")
        check_name(owner.user_id, "user_id")
        database, hooks = self._engine.db.database, self._engine.hooks
        nobody = NotFound(f"nothing belongs to a user {owner.user_id!r} here", param="user_id")
        is_known = await database.read(partial(owns_anything, owner=owner, hooks=hooks))
        # A feature may have something of theirs elsewhere, also after a deletion that was cut off.
        if not (is_known or hooks.user_deleted):
            raise nobody
        keys = await self._keys.delete_of(owner, actor=actor, may_be_last=self._may_be_last)
        if keys:
            await asyncio.sleep(self._keys.stale_seconds)
        await self._stop_all(owner)
        if export is not None:
            await export()
        deleted: Counter[str] = Counter(api_keys=keys)
        while True:
            counts, names = await database.write(partial(delete_part, owner=owner, actor=actor, hooks=hooks))
            self._engine.forget(names, owner)
            deleted.update(counts)
            if not counts and not await self._stop_all(owner):
                deleted["stored_answers"] += await self._forget_answers(owner)
                await self._engine.files.sweep()  # what a folder has of theirs
                if not (is_known or deleted.total()):
                    raise nobody
                return {kind: count for kind, count in deleted.items() if count}

    async def _forget_answers(self, owner: Owner) -> int:
        """Delete what the response cache keeps of the user's outside of the database."""
        try:
            return await self._engine.models.forget(owner)
        except DrSaiError:
            raise
        except Exception as error:
            raise DatabaseUnavailable("the response cache cannot be reached; try again") from error

    async def _stop_all(self, owner: Owner) -> bool:
        """Stop the user's live runs, and drop what waits behind them; and their runs on threads of others, those that
        wait too. False: there were none.

        Raises:
            ThreadBusy: for a minute none of them has ended.
        """
        database, who = self._engine.db.database, Principal(owner.user_id, owner.tenant)
        before: set[str] = set()
        until, any_live = time.monotonic() + _PATIENCE, False
        while found := await database.read(partial(_found, owner=owner)):
            busy, elsewhere = found
            names = {f"on thread {name!r}" for name in busy} | {f"{run_id!r}" for run_id in elsewhere}
            if before - names:
                until = time.monotonic() + _PATIENCE
            elif any_live and time.monotonic() > until:
                raise ThreadBusy(f"a run of theirs {min(names)} does not end; try again", param="user_id")
            any_live, before = True, names
            for thread_id, key, run_id in ((name, *each) for name, queued in busy.items() for each in queued):
                ended = EndedRun(owner.thread(thread_id), key, run_id, 0, RunStatus.STOPPED)
                await database.write(partial(drop_queued, ended=ended, reason=_STOPPED, hooks=self._engine.hooks))
            await asyncio.gather(
                *(self._cancel(self._engine.cancel(who, thread_id)) for thread_id in busy),
                # Their threads' owners may do it, whatever becomes of the shares.
                *(
                    self._cancel(self._engine.cancel_run(Principal(user, tenant), run_id, by=owner.user_id))
                    for run_id, (tenant, user) in elsewhere.items()
                ),
            )
            await asyncio.sleep(_LOOK)
        return any_live

    async def _cancel(self, cancelling: Awaitable[object]) -> None:
        with contextlib.suppress(NotFound, Conflict):  # It has ended, or is about to.
            await cancelling


def _found(session: Session, owner: Owner) -> tuple[dict[str, list[tuple[int, str]]], dict[str, Owner]] | None:
    """Return what `busy_threads` and `runs_elsewhere` find; None: nothing."""
    found = busy_threads(session, owner), runs_elsewhere(session, owner)
    return found if any(found) else None
