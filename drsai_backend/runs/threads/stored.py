"""What is stored of threads and runs, for who asks and as far as they may see it; and with whom a thread is shared."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from drsai_backend.access.principal import Principal
from drsai_backend.database import Database, DatabaseManager
from drsai_backend.database.audit import audit
from drsai_backend.database.runs.reads import read_head
from drsai_backend.database.shares import Grantee, add_share, list_shares, remove_share
from drsai_backend.datamodel import Right, RunStatus, Thread
from drsai_backend.datamodel.audit import Action
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.datamodel.sharing import read_right
from drsai_backend.errors import NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.events import Logged, Position
from drsai_backend.runs.feed.feed import Feeds, FollowedRun
from drsai_backend.runs.feed.live_run import RunHandle
from drsai_backend.runs.opening import Lifecycle
from drsai_backend.runs.threads import queries
from drsai_backend.runs.threads.rights import Named, Rights
from drsai_backend.runs.views import (
    InputRequestPage,
    RunPage,
    RunView,
    SharedThreadPage,
    ShareView,
    StoredMessage,
    ThreadDetail,
    ThreadPage,
    detail_of,
)

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class StoredThreads:
    """The half of an `Engine` that runs nothing."""

    def __init__(self, db: DatabaseManager, feeds: Feeds) -> None:
        self.db = db
        self.lifecycle = Lifecycle()
        self._rights = Rights(db.database)
        self._feeds = feeds

    def check_open(self) -> None:
        """Raises NotOpened unless it is open, in this event loop. All that is asked of it below begins with this."""
        self.lifecycle.check()

    @property
    def _open_database(self) -> Database:
        self.check_open()
        return self.db.database

    async def get_run(self, who: Principal, run_id: str) -> RunView:
        """One run. Raises NotFound for an unknown one, or one of a thread that is not shared with the user."""
        return (await self.find_run(who, run_id))[0]

    async def find_run(self, who: Principal, run_id: str) -> tuple[RunView, Owner]:
        """One run, as `get_run`, and the owner of its thread."""
        owner = who.owner
        try:
            return await self._run_of(owner, run_id), owner
        except NotFound:
            owner = await self._rights.run(who, run_id, Right.READ)
            return await self._run_of(owner, run_id), owner

    async def run_answered(self, handle: RunHandle | FollowedRun) -> RunView:
        """The run that an answer has resumed, for who answered it: they need not have the right to read its thread."""
        return await self._run_of(handle.name.owner, handle.run_id)

    async def _run_of(self, owner: Owner, run_id: str) -> RunView:
        found = await self._open_database.read(lambda session: queries.get_run(session, owner, run_id))
        if found is None:
            raise NotFound(f"no run {run_id!r}", param="run_id")
        return found

    async def list_runs(
        self, who: Principal, thread_id: Named | None, *, after: str | None, limit: int, status: RunStatus | None = None
    ) -> RunPage:
        """A page of a thread's runs, or of all of the user's, newest first; `after` is the `next` of the page
        before."""
        owner, of_thread = who.owner, None
        if thread_id is not None:
            name = await self._rights.thread(who, thread_id, Right.READ)
            owner, of_thread = name.owner, name.thread_id
        return await self._open_database.read(
            lambda session: queries.list_runs(session, owner, of_thread, after, limit, status)
        )

    async def list_input_requests(self, who: Principal, *, after: str | None, limit: int) -> InputRequestPage:
        """A page of the questions that wait for the user or one of their roles, in all threads of the tenant, newest
        first."""
        return await self._open_database.read(lambda session: queries.list_input_requests(session, who, after, limit))

    def follow_run(self, who: Principal, run_id: str, after: Position | None = None) -> AsyncIterator[Logged]:
        """The log of a run from a position on; see `Feeds.run`."""
        self.check_open()
        return self._feeds.run(who.owner, run_id, after, shared=lambda: self._rights.run(who, run_id, Right.READ))

    async def follow_thread(
        self, who: Principal, thread_id: Named, after: Position | None = None
    ) -> AsyncIterator[Logged]:
        """The log of a thread from a position on; see `Feeds.thread`."""
        self.check_open()
        name = await self._rights.thread(who, thread_id, Right.READ)
        async for logged in self._feeds.thread(name, after):
            yield logged

    async def check_readable(self, who: Principal, thread_id: Named) -> None:
        """Raises NotFound for a thread that is not shared with the user any more. For one's own it asks nothing, and
        does not find out whether it is there."""
        await self._rights.thread(who, thread_id, Right.READ)

    async def check_thread(self, who: Principal, thread_id: Named, right: Right = Right.READ) -> None:
        """Raises NotFound for an unknown or foreign thread, Forbidden for one where the user has less than `right`."""
        await self._head(await self._rights.thread(who, thread_id, right))

    async def list_threads(
        self, who: Principal, *, after: str | None, limit: int, status: RunStatus | None = None
    ) -> ThreadPage:
        """A page of the user's threads, newest first; `after` is the `next` of the page before."""
        return await self._open_database.read(
            lambda session: queries.list_threads(session, who.owner, after, limit, status)
        )

    async def list_shared_threads(
        self, who: Principal, *, after: str | None, limit: int, status: RunStatus | None = None
    ) -> SharedThreadPage:
        """A page of the threads that others of the tenant share with the user or one of their roles, newest first."""
        return await self._open_database.read(
            lambda session: queries.list_shared_threads(session, who, after, limit, status)
        )

    async def get_thread(self, who: Principal, thread_id: Named) -> ThreadDetail:
        """One thread, without its messages and state. Raises NotFound for an unknown or foreign one."""
        self.check_open()
        return await self._detail(await self._rights.thread(who, thread_id, Right.READ))

    async def _detail(self, name: ThreadName) -> ThreadDetail:
        rows = await self.db.get(Thread, filters=name._asdict(), load_messages=True, load_state=False)
        if not rows:
            raise NotFound(f"no thread {name.thread_id!r}", param="thread_id")
        return detail_of(rows[0])

    async def list_messages(self, who: Principal, thread_id: Named, *, after: int, limit: int) -> list[StoredMessage]:
        """Messages with `seq > after`, in order. Raises NotFound for an unknown or foreign thread."""
        name = await self._rights.thread(who, thread_id, Right.READ)
        return await self._open_database.read(lambda session: queries.list_messages(session, name, after, limit))

    # --- with whom it is shared ---------------------------------------------------------------------------------

    async def share_thread(self, who: Principal, thread_id: Named, grantee: Grantee, right: Right) -> ShareView:
        """Share a thread with a user or a role of its tenant, or change the right that they have.

        Raises:
            NotFound: an unknown thread, or one that the user may not even read.
            Forbidden: the user is neither its owner nor an admin of its tenant.
            InvalidRequest: the grantee is the owner, or the right is none that can be given.
        """
        self.check_open()
        name = await self._rights.thread(who, thread_id, Right.SHARE)
        grantee.check(name)
        right = read_right(right)
        detail: JsonObject = {**grantee._asdict(), "right": right.value}

        def share(session: Session) -> bool:
            if not add_share(session, name, grantee, right, who.user_id):
                return False
            _audited(session, who, Action.THREAD_SHARED, name, detail)
            return True

        if not await self.db.database.write(share):
            raise NotFound(f"no thread {name.thread_id!r}", param="thread_id")
        shares = await self._shares(name)
        return next(each for each in shares if (each.with_user, each.with_role) == tuple(grantee))

    async def unshare_thread(self, who: Principal, thread_id: Named, grantee: Grantee) -> None:
        """Take a share back. Raises as `share_thread`, and NotFound where there is none."""
        self.check_open()
        name = await self._rights.thread(who, thread_id, Right.SHARE)
        grantee.check_one()

        def unshare(session: Session) -> bool:
            if not remove_share(session, name, grantee):
                return False
            _audited(session, who, Action.THREAD_UNSHARED, name, grantee._asdict())
            return True

        if not await self.db.database.write(unshare):
            raise NotFound(f"thread {name.thread_id!r} is not shared with {grantee}", param="thread_id")

    async def list_shares(self, who: Principal, thread_id: Named) -> list[ShareView]:
        """With whom a thread is shared, oldest first. Raises as `share_thread`."""
        name = await self._rights.thread(who, thread_id, Right.SHARE)
        await self._head(name)
        return await self._shares(name)

    async def _shares(self, name: ThreadName) -> list[ShareView]:
        rows = await self._open_database.read(lambda session: list_shares(session, name))
        return [ShareView.model_validate(row) for row in rows]

    async def _head(self, name: ThreadName) -> None:
        """Raises NotFound where there is no such thread."""
        if await self._open_database.read(lambda session: read_head(session, name)) is None:
            raise NotFound(f"no thread {name.thread_id!r}", param="thread_id")


def _audited(session: Session, who: Principal, action: Action, name: ThreadName, detail: JsonObject) -> None:
    audit(session, who.actor, action, name.thread_id, owner=name.owner, thread_id=name.thread_id, detail=detail)
