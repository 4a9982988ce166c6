"""Stored threads and runs are read for who asks, as far as they may see them; so is with whom a thread is shared."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.database import Database, DatabaseManager
from drsai_backend.database.audit import audit
from drsai_backend.database.hooks import Hooks
from drsai_backend.database.locks import lock_thread
from drsai_backend.database.manager.thread_fields import write_fields
from drsai_backend.database.runs.reads import head_of
from drsai_backend.database.shares import Grantee, add_share, list_shares, remove_share
from drsai_backend.database.values import clean_json, dump_json
from drsai_backend.datamodel import Right, RunStatus, Thread
from drsai_backend.datamodel.audit import Action
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.datamodel.sharing import read_right
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page
from drsai_backend.runs.events import Logged, Position
from drsai_backend.runs.feed.feed import Feeds
from drsai_backend.runs.feed.handle import Handle
from drsai_backend.runs.opening import Lifecycle
from drsai_backend.runs.steps.events import LoggedStep, Mark
from drsai_backend.runs.steps.follow import follow_steps
from drsai_backend.runs.steps.queries import Order, list_steps
from drsai_backend.runs.steps.views import Cursor, RunStep
from drsai_backend.runs.threads import queries
from drsai_backend.runs.threads.queries import RunCount, RunFilter
from drsai_backend.runs.threads.rights import Named, Rights
from drsai_backend.runs.threads.travel import BranchView, Travel, TurnView
from drsai_backend.runs.threads.views import (
    InputRequestView,
    RunView,
    SharedThread,
    ShareView,
    StoredMessage,
    ThreadDetail,
    ThreadSummary,
    detail_of,
)
from drsai_backend.state.travel import Place

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

MAX_META_BYTES: Final = 64 * 1024


class StoredThreads:
    """The half of an `Engine` that runs nothing."""

    def __init__(self, db: DatabaseManager, feeds: Feeds, hooks: Hooks) -> None:
        self.db = db
        self.hooks = hooks
        self.lifecycle = Lifecycle()
        self._rights = Rights(db.database)
        self._feeds = feeds
        self._travel = Travel(db.database, self._rights, hooks)

    def check_open(self) -> None:
        """Raise NotOpened unless it is open, in this event loop. All that is asked of it below begins with this."""
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
            return await self._run_of(owner, run_id, sees_log=who.may(Scope.ADMIN)), owner
        except NotFound:
            owner = await self._rights.run(who, run_id, Right.READ)
            return await self._run_of(owner, run_id, sees_log=who.may(Scope.ADMIN)), owner

    async def run_answered(self, handle: Handle) -> RunView:
        """The run that an answer has resumed, for who answered it: they need not have the right to read its thread."""
        return await self._run_of(handle.name.owner, handle.run_id)

    async def _run_of(self, owner: Owner, run_id: str, *, sees_log: bool = False) -> RunView:
        found = await self._open_database.read(
            lambda session: queries.get_run(session, owner, run_id, sees_log=sees_log)
        )
        if found is None:
            raise NotFound(f"no run {run_id!r}", param="run_id")
        return found

    async def list_runs(
        self,
        who: Principal,
        thread_id: Named | None,
        *,
        after: str | None,
        limit: int,
        status: RunStatus | None = None,
        only: RunFilter | None = None,
    ) -> Page[RunView]:
        """A page of a thread's runs, or of all of the user's, newest first; `after` is the `next` of the page
        before. `only`: those that are wanted."""
        owner, of_thread = who.owner, None
        if thread_id is not None:
            name = await self._rights.thread(who, thread_id, Right.READ)
            owner, of_thread = name.owner, name.thread_id
        only = (only or RunFilter())._replace(status=status)
        return await self._open_database.read(
            lambda session: queries.list_runs(session, owner, of_thread, after, limit, only)
        )

    async def statistics_of_runs(self, who: Principal, only: RunFilter) -> list[RunCount]:
        """Return how many of the user's runs there are by team and status, and how long they ran."""
        return await self._open_database.read(lambda session: queries.count_runs(session, who.owner, only))

    async def first_texts(self, owner: Owner, run_ids: Collection[str]) -> dict[str, str]:
        """Return, by run of the owner's, the text that it began with, of those that were found for who asks."""
        return await self._open_database.read(lambda session: queries.first_texts(session, owner, run_ids))

    async def last_text(self, who: Principal, run_id: str) -> str | None:
        """The last text of a run that its client is shown; None: there is none yet. Raises as `get_run`."""
        _, owner = await self.find_run(who, run_id)
        return await self._open_database.read(lambda session: queries.last_text(session, owner, run_id))

    async def list_input_requests(self, who: Principal, *, after: str | None, limit: int) -> Page[InputRequestView]:
        """A page of the questions that wait for the user or one of their roles, in all threads of the tenant, newest
        first."""
        return await self._open_database.read(lambda session: queries.list_input_requests(session, who, after, limit))

    def follow_run(self, who: Principal, run_id: str, after: Position | None = None) -> AsyncGenerator[Logged]:
        """The log of a run from a position on; see `Feeds.run`."""
        self.check_open()
        return self._feeds.run(who.owner, run_id, after, shared=lambda: self._rights.run(who, run_id, Right.READ))

    async def follow_thread(
        self, who: Principal, thread_id: Named, after: Position | None = None
    ) -> AsyncGenerator[Logged]:
        """The log of a thread from a position on; see `Feeds.thread`."""
        self.check_open()
        name = await self._rights.thread(who, thread_id, Right.READ)
        async with aclosing(self._feeds.thread(name, after)) as log:
            async for logged in log:
                yield logged

    async def check_readable(self, who: Principal, thread_id: Named) -> None:
        """Raise NotFound for a thread that is not shared with the user any more. For one's own it asks nothing, and
        does not find out whether it is there."""
        await self._rights.thread(who, thread_id, Right.READ)

    async def check_thread(self, who: Principal, thread_id: Named, right: Right = Right.READ) -> None:
        """Raise NotFound for an unknown or foreign thread, Forbidden for one where the user has less than `right`."""
        await self._head(await self._rights.thread(who, thread_id, right))

    async def list_threads(
        self, who: Principal, *, after: str | None, limit: int, status: RunStatus | None = None
    ) -> Page[ThreadSummary]:
        """A page of the user's threads, newest first; `after` is the `next` of the page before."""
        return await self._open_database.read(
            lambda session: queries.list_threads(session, who.owner, after, limit, status)
        )

    async def list_shared_threads(
        self, who: Principal, *, after: str | None, limit: int, status: RunStatus | None = None
    ) -> Page[SharedThread]:
        """A page of the threads that others of the tenant share with the user or one of their roles, newest first."""
        return await self._open_database.read(
            lambda session: queries.list_shared_threads(session, who, after, limit, status)
        )

    async def get_thread(self, who: Principal, thread_id: Named) -> ThreadDetail:
        """One thread, without its messages and state. Raises NotFound for an unknown or foreign one."""
        self.check_open()
        name = await self._rights.thread(who, thread_id, Right.READ)
        return (await self._detail(name)).model_copy(update={"right": await self._rights.granted(who, name)})

    async def _detail(self, name: ThreadName) -> ThreadDetail:
        rows = await self.db.get(Thread, filters=name._asdict(), load_state=False)
        if not rows:
            raise NotFound(f"no thread {name.thread_id!r}", param="thread_id")
        return detail_of(rows[0])

    async def list_messages(
        self, who: Principal, thread_id: Named, *, after: int, limit: int, branch: int | None = None
    ) -> list[StoredMessage]:
        """Messages with `seq > after`, in order: those of the current branch, or of `branch`, with what it took from
        branches before it. Raises NotFound for an unknown or foreign thread, InvalidRequest for an unknown branch."""
        name = await self._rights.thread(who, thread_id, Right.READ)
        return await self._open_database.read(
            lambda session: queries.list_messages(session, name, after, limit, branch)
        )

    async def page_of_messages(
        self, who: Principal, thread_id: Named, *, after: int, limit: int, branch: int | None = None
    ) -> Page[StoredMessage, int]:
        """A page of what `list_messages` has, which ends before `limit` where messages are long. Raises as it does."""
        name = await self._rights.thread(who, thread_id, Right.READ)
        return await self._open_database.read(
            lambda session: queries.page_of_messages(session, name, after, limit, branch)
        )

    async def newest_messages(self, who: Principal, thread_id: Named, limit: int) -> list[StoredMessage]:
        """The newest messages of a thread that its client has sent or is shown, oldest first. Raises as
        `list_messages`."""
        name = await self._rights.thread(who, thread_id, Right.READ)
        return await self._open_database.read(lambda session: queries.newest_messages(session, name, limit))

    async def list_steps(
        self, who: Principal, run_id: str, *, after: str | None = None, limit: int = 20, order: Order = "asc"
    ) -> Page[RunStep]:
        """A page of a run's steps, those of the turn in flight included; `order`: the oldest first, or the newest.
        `after` is the `next` of the page before.

        Raises:
            NotFound: an unknown run, or one of a thread that is not shared with the user.
            InvalidRequest: `after` is no `next`.
        """
        cursor = None if after is None else Cursor.parse(after)
        run, owner = await self.find_run(who, run_id)
        return await self._open_database.read(
            lambda session: list_steps(session, owner, run.run_id, cursor, limit, order)
        )

    async def follow_steps(self, who: Principal, run_id: str, after: Mark | None = None) -> AsyncGenerator[LoggedStep]:
        """The events of a run's steps from a place on; see `runs.steps.follow`. Raises as `find_run`."""
        run, owner = await self.find_run(who, run_id)
        async with aclosing(follow_steps(self._feeds, owner, run, after)) as log:
            async for logged in log:
                yield logged

    # --- time travel --------------------------------------------------------------------------------------------

    async def turns(
        self, who: Principal, thread_id: Named, *, after: int = 0, limit: int = 100, branch: int | None = None
    ) -> Page[TurnView, int]:
        """A page of the turns to which a thread can go back, oldest first: those of its current branch, or of `branch`.
        `after` is the `next` of the page before. Raises as `list_messages`."""
        self.check_open()
        return await self._travel.turns(who, thread_id, after=after, limit=limit, branch=branch)

    async def branches(
        self, who: Principal, thread_id: Named, *, after: int = -1, limit: int = 100
    ) -> Page[BranchView, int]:
        """A page of a thread's branches, oldest first; one that was never rewound has one. `after` is the `next` of the
        page before. Raises NotFound for an unknown or foreign thread."""
        self.check_open()
        return await self._travel.branches(who, thread_id, after=after, limit=limit)

    async def state(self, who: Principal, thread_id: str, place: Place) -> JsonObject | None:
        """Return what the agents of a thread of the user's own remembered at a place, as `team.save_state()` did there.
        None: nothing yet. With whom the thread is shared sees that of a fork of theirs, which has it too.

        Raises:
            NotFound: no such thread of the user.
            InvalidRequest: there is no such place, or its turns were not kept; `param` is the field of the place.
            StateError: what is stored of it is damaged, or of a later version.
        """
        self.check_open()
        return await self._travel.state(who.owner.thread(thread_id), place)

    async def fork(
        self,
        who: Principal,
        thread_id: Named,
        place: Place | None = None,
        *,
        new_thread_id: str | None = None,
        to_user: str | None = None,
    ) -> ThreadDetail:
        """A new thread that begins as another one was at a place (default: where it is, as far as its turns are
        stored). It has copies of the messages, the state of that place, and no runs. Its source may be live.

        Args:
            new_thread_id: its id; default: one that is made up.
            to_user: the user of the tenant whose it shall be; default: who asks.

        Raises:
            NotFound: an unknown or foreign thread.
            InsufficientScope: another user's, without the scope `act-as` or `admin`.
            Conflict: that user has a thread of that id; `param` is `thread_id`.
            InvalidRequest: there is no such place, or its turns were not kept; `param` is the field of the place.
            StateError: what is stored of it is damaged, or of a later version.
        """
        self.check_open()
        place = place or Place()
        return await self._travel.fork(who, thread_id, place, thread_id=new_thread_id, to_user=to_user)

    async def set_meta(self, who: Principal, thread_id: Named, meta: JsonObject | None) -> ThreadDetail:
        """Replace what programs keep of a thread (`Thread.meta`); None: nothing. Also while a run is live.

        Raises:
            NotFound, Forbidden: an unknown thread, or one that the user may not write to.
            InvalidRequest: it is no object of JSON that can be stored, or longer than `MAX_META_BYTES`.
        """
        self.check_open()
        name = await self._rights.thread(who, thread_id, Right.WRITE)
        value: JsonObject = clean_json(meta or {}, "meta")
        if len(dump_json(value)) > MAX_META_BYTES:
            raise InvalidRequest(f"`meta` has at most {MAX_META_BYTES} bytes as JSON", param="meta")

        def write(session: Session) -> None:
            lock_thread(session, name)
            write_fields(session, head_of(session, name).key, name.tenant, None, {"meta": value or None}, {})

        await self.db.database.write(write)
        return await self.get_thread(who, thread_id)

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
        detail, actor = {**grantee._asdict(), "right": right.value}, who.actor

        def share(session: Session) -> ShareView:
            row = add_share(session, name, grantee, right, who.user_id)
            audit(session, actor, Action.THREAD_SHARED, name.thread_id, name, detail)
            return ShareView.model_validate(row)

        return await self.db.database.act(share)

    async def unshare_thread(self, who: Principal, thread_id: Named, grantee: Grantee) -> None:
        """Take a share back. Raises as `share_thread`, and NotFound where there is none."""
        self.check_open()
        name = await self._rights.thread(who, thread_id, Right.SHARE)
        grantee.check_one()
        actor = who.actor

        def unshare(session: Session) -> bool:
            if not remove_share(session, name, grantee):
                return False
            audit(session, actor, Action.THREAD_UNSHARED, name.thread_id, name, grantee._asdict())
            return True

        if not await self.db.database.write(unshare):
            raise NotFound(f"thread {name.thread_id!r} is not shared with {grantee}", param="thread_id")

    async def list_shares(self, who: Principal, thread_id: Named) -> list[ShareView]:
        """Return with whom a thread is shared, oldest first. Raises as `share_thread`."""
        name = await self._rights.thread(who, thread_id, Right.SHARE)
        await self._head(name)
        return await self._shares(name)

    async def _shares(self, name: ThreadName) -> list[ShareView]:
        rows = await self._open_database.read(lambda session: list_shares(session, name))
        return [ShareView.model_validate(row) for row in rows]

    async def _head(self, name: ThreadName) -> None:
        """Raise NotFound where there is no such thread."""
        await self._open_database.read(lambda session: head_of(session, name))
