"""The engine has teams work on threads, and stores what they do before anybody is shown it.

A run's life, step by step, and where to look:

1. A request becomes an `Ask` (`runs.requests`); `Engine.start` takes it, and lets it in (`runs.intake.admission`). From
   here on the run is a task of the engine (`runs.running`), never of the request. Where the thread is busy, `on_busy`
   decides (`runs.commands`).
2. Read the thread, warm in memory (`runs.warm`) or stored (`database.runs.reads`), and plan what of the request is new
   and whether it answers a question (`runs.start.read`, `runs.start.plan`, `runs.messages`).
3. Build the team with its factory, bind it to the run, put it on the turn runtime (`runs.start.build`), and load its
   state (`runs.start.load`). Up to here nothing is stored: whatever fails leaves the thread as it was.
4. Store: the lease (epoch + 1), the user input, the input's messages, status RUNNING (`runs.start.starter`).
5. The team runs. At every turn boundary one write, guarded by epoch and turn, appends messages and journal entry; then
   the turn's messages are shown, then the next speakers start (`runs.execution`). Inside a turn, answers that call
   tools and results of tools are recorded (`teams.replay.steps`). A write waits for a database that is away.
6. Last write: the last turn, the final status, usage, stop reason; the lease is given back. A question to a person ends
   the process's part of the run as AWAITING_INPUT (`teams.suspension`), a pause as PAUSED (`runs.commands`).
7. The state stays warm for the next run; the journal is folded into a snapshot when that is due (`state.store`). The
   next input of the queue is begun.

Leases are renewed by a heartbeat in a thread of its own (`runs.recovery.leases`); a run that lost its own ends without
writing. A sweep finds orphaned runs and resumes them after their last stored turn (`runs.recovery.recovery`). What
happens can be followed from any process (`runs.feed`); webhooks are told of ends (`webhooks.sender`). Who may do what
with which thread, and what of it is read, is in `runs.threads`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from drsai_backend.access.principal import Principal
from drsai_backend.catalog import Catalog, ListedTeam, Recipe
from drsai_backend.config import Settings
from drsai_backend.database import DatabaseManager
from drsai_backend.database.calls import Calls
from drsai_backend.database.hooks import NO_HOOKS, Hooks
from drsai_backend.database.retention import delete_thread, prune, rules
from drsai_backend.database.runs.steps import drop_left
from drsai_backend.database.users import delete_left, left_of_deleted
from drsai_backend.datamodel import Right
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.definitions.policy import DefinitionPolicy
from drsai_backend.definitions.stored.store import StoredDefinitions
from drsai_backend.documents.excerpts import Excerpts
from drsai_backend.errors import InvalidRequest, NotFound, ShuttingDown, ThreadBusy, UnknownModel
from drsai_backend.files import Files
from drsai_backend.lazily import imported
from drsai_backend.models import ModelClientFactory
from drsai_backend.runs.commands.commands import Commands
from drsai_backend.runs.commands.stored_request import ask_of_thread
from drsai_backend.runs.feed.feed import Feeds
from drsai_backend.runs.feed.handle import Handle
from drsai_backend.runs.feed.live_run import LiveRuns, Watcher
from drsai_backend.runs.history.recognise import Recogniser
from drsai_backend.runs.intake.admission import Admission
from drsai_backend.runs.intake.forks import Forks
from drsai_backend.runs.intake.intake import Intake
from drsai_backend.runs.intake.repeats import Repeats
from drsai_backend.runs.recovery.leases import Heartbeat, new_worker_id
from drsai_backend.runs.recovery.recovery import Recovery, WorkerNotifier
from drsai_backend.runs.recovery.suspects import Isolate
from drsai_backend.runs.recovery.sweeper import Sweeper
from drsai_backend.runs.requests import Admitted, Answer, Ask, InputMessage, Origin, Where
from drsai_backend.runs.running import Running
from drsai_backend.runs.side_calls.side_calls import SideCalls
from drsai_backend.runs.start.build import try_configs
from drsai_backend.runs.start.read import Services
from drsai_backend.runs.start.starter import RunStarter
from drsai_backend.runs.threads.loading import Load, Loading
from drsai_backend.runs.threads.rights import Named
from drsai_backend.runs.threads.stored import StoredThreads
from drsai_backend.runs.threads.views import RunView, ThreadDetail
from drsai_backend.runs.warm import WarmThreads
from drsai_backend.state.travel import Place
from drsai_backend.teams.recall import RecallSource
from drsai_backend.teams.registry import TeamRegistry
from drsai_backend.teams.resources import Resources
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.mcp.host import McpHost
from drsai_backend.tools.registered.registry import ToolRegistry
from drsai_backend.webhooks.sender import Sender
from drsai_backend.webhooks.webhooks import Webhooks

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from drsai_backend.runs.start.trial import Trial

log = logging.getLogger("drsai.engine")

NO_TOOLS: Final[Mapping[str, ToolBase]] = MappingProxyType({})
NO_SOURCES: Final[Mapping[str, RecallSource]] = MappingProxyType({})
_LONGEST_NAME: Final = 255
"""Of a team, in a request."""


class Engine(StoredThreads):
    """Runs the teams of a registry on the threads of a database. One per process and event loop.

    Args:
        teams: what can be asked.
        db: the database manager, injected into every agent and group chat. Not closed by the engine.
        models: makes the model clients of `RunContext.model_client()`. Not closed by the engine.
        settings: leases, recovery, and the size of the warm cache.
        hooks: what features do in the transactions of runs and users.
        own_tools: tools of extensions, by name.
        sources: what extensions recall for agents, by their names.
        watchers: are told what runs of this process tell.
        mcp: the operator's MCP servers and the connections to all. Not closed by the engine.
        calls: stores model calls beside runs.
        is_worker: False: it takes up nothing that is stored; what is resumed or waits, workers run.

    Attributes:
        calls: stores model calls that are made beside runs, for features that count them.
        webhooks: the deliveries and secrets of webhooks.
        files: the files of users.
        excerpts: what is shown of the documents that a request brings.
        tools: the tools that tenants have registered.
        mcp: the operator's MCP servers, and the connections to all.
        agents: the definitions of agents and teams that users, tenants and the operator have stored.
        catalog: what can be asked: the registry's teams and the stored definitions.
    """

    def __init__(  # noqa: PLR0913 - what a `DrSai` hands over
        self,
        teams: TeamRegistry,
        db: DatabaseManager,
        models: ModelClientFactory,
        settings: Settings,
        *,
        hooks: Hooks = NO_HOOKS,
        own_tools: Mapping[str, ToolBase] = NO_TOOLS,
        sources: Mapping[str, RecallSource] = NO_SOURCES,
        watchers: Sequence[Watcher] = (),
        mcp: McpHost | None = None,
        calls: Calls | None = None,
        is_worker: bool = True,
    ) -> None:
        database = db.database
        self._here = here = LiveRuns()
        feeds = Feeds(database, here.live, here.is_closing)
        super().__init__(db, feeds, hooks)
        self.teams = teams
        self.models = models
        self.calls = calls or Calls(database)
        self.side_calls = SideCalls(models, settings, self.calls)
        """Plain model calls beside the threads; they need no lease and no database."""
        self.worker_id = worker_id = new_worker_id()
        self._settings = settings
        self._warm = warm = WarmThreads(settings.warm_threads, settings.warm_bytes - models.forms.most)
        lease = timedelta(seconds=settings.lease_seconds)
        self.webhooks = Webhooks(db, settings)
        self.files = Files(database, settings, hooks)
        self.excerpts = Excerpts(settings.max_file_tokens)
        self.mcp = mcp = mcp or McpHost()
        allowed, means = tuple(settings.allowed_addresses), DefinitionPolicy.of(settings, own_tools)
        # What was stored may be read where a function or a server that it names is not.
        self.catalog = catalog = Catalog(teams, db, replace(means, tries=False), settings)
        there = replace(means, mcp=lambda: [each.name for each in mcp.servers])
        self.agents = StoredDefinitions(db, there, teams.__contains__, catalog.changed, hooks)
        self.tools = ToolRegistry(
            db,
            {
                "http": lambda: imported("drsai_backend.tools.registered.http:HttpKind")(allowed),
                "mcp": lambda: imported("drsai_backend.tools.registered.mcp:McpKind")(allowed, mcp),
            },
        )
        self._sender = Sender(db, settings)
        self._running = running = Running(database, warm, here, feeds.changed)
        self._resources = Resources(running.spawn)
        self._services = services = Services(
            db=db,
            models=models,
            settings=settings,
            catalog=catalog,
            warm=warm,
            worker_id=worker_id,
            lease=lease,
            resources=self._resources,
            files=self.files,
            tools=self.tools,
            own_tools=own_tools,
            sources=sources,
            mcp=mcp,
            hooks=hooks,
            watchers=watchers,
            on_events=self._sender.wake,
            may_move=settings.other_model == "continue",
            is_worker=is_worker,
        )
        self._starter = starter = RunStarter(services)
        self._loading = Loading(database, starter, catalog, hooks)
        does = (running, worker_id, settings, hooks, models.switches, is_worker)
        self._recovery = recovery = Recovery(db, catalog, starter, *does)
        self._commands = commands = Commands(
            db, starter, running, recovery, warm, self.webhooks, hooks, self._travel, self._loading
        )
        self._recogniser = recogniser = None
        if settings.resume_by_history:
            self._recogniser = recogniser = Recogniser(database, warm, commands, services.may_move)
        self._admission = Admission(catalog, self.webhooks, settings)
        forks = Forks(database, self._travel)
        parts = (database, feeds, starter, here, running, recovery, commands, forks, recogniser)
        self._intake = Intake(*parts, hooks, models.switches)
        self.repeats = Repeats(database, settings.join_repeats, self._intake, here.live)
        """What chat clients that repeat their requests by themselves are answered."""
        self._heartbeat = Heartbeat(
            database,
            worker_id,
            interval=settings.heartbeat_seconds,
            lease=lease,
            announce=recovery.announcements.announce,
            max_stall=settings.max_stall_seconds,
            holds=running.held,
            lost=running.lost,
            asked=running.asked,
        )
        self._sweeper = Sweeper(recovery, self.prune, settings.sweep_seconds)

    async def open(self) -> None:
        """Start the heartbeat, and look for runs that nobody runs: now and every few seconds. Once only, in the event
        loop that has claimed the `lifecycle`, and with the schema as it should be.

        Raises:
            ConfigurationError: a team that a component config describes cannot be built.
        """
        await try_configs(self._services)
        await self.db.database.write(self._recovery.announcements.announce)
        self._heartbeat.start()
        await self._sweeper.start()
        self._sender.start()
        self.lifecycle.opened()

    def woken_by(self, waker: WorkerNotifier) -> None:
        """Have `waker` tell other processes which threads want a look, and sweep. Without one, this process does."""
        self._recovery.waker = waker

    def isolated_by(self, isolate: Isolate | None) -> None:
        """Have `isolate` resume the runs that may kill their process, in others (`runs.recovery.suspects`). None: this
        process resumes them itself, one at a time."""
        self._recovery.suspects.isolate = isolate

    async def resume_apart(self, keys: Iterable[int]) -> None:
        """Resume, in place of `open`, in such a process; see `Recovery.resume_apart`."""
        self._heartbeat.start()
        self.lifecycle.opened()
        await self._recovery.resume_apart(keys)

    async def close(self) -> None:
        """Take nothing new. Runs under way are handed over at their next turn boundary, and after
        `shutdown_grace_seconds` inside their turn, which is then repeated by whoever resumes them."""
        await self._sweeper.stop()
        await asyncio.gather(
            self._recovery.suspects.close(), self._running.close(self._settings.shutdown_grace_seconds)
        )
        await self._sender.stop()
        await self._resources.close()
        await self.tools.close()
        await self._heartbeat.stop()
        self._warm.clear()

    def try_threads(self) -> AsyncGenerator[Trial]:
        """Load the state of each stored thread into its team as it is now, one after the other, and run nothing. What
        cannot be loaded is told, and not raised; DatabaseError is."""
        from drsai_backend.runs.start.trial import try_threads

        return try_threads(self._services)

    def stops_on_disconnect(self, team: str) -> bool:
        """Whether a run of that team ends when its client leaves."""
        own = self.teams.get(team).options.stop_on_disconnect if team in self.teams else None
        return self._settings.on_disconnect == "cancel" if own is None else own

    async def check_name(self, who: Principal, body: Mapping[str, object], *, later: bool = False) -> None:
        """Raise UnknownModel where the `model` of a request's body is one that who asks cannot ask. It is cheap, and
        looked at before the rest, which may be long. What cannot be a name is left to who reads the rest, to say so.
        Whether there is a team of the name is left to `start` on the thread of another user, who may share one of
        theirs, and where the request may have been served before (`later`)."""
        model: object = body.get("model")
        if isinstance(model, str) and 0 < len(model) <= _LONGEST_NAME:
            later = later or body.get("thread_owner") not in (None, who.user_id)
            await self.catalog.check_name(who, model, later=later)

    def count_runs(self, but: ThreadName | None = None) -> int:
        """Return how many runs this process has under way, but for one on that thread."""
        return len(self._here) - (but in self._here)

    async def check_team(self, who: Principal, team: str, where: Where | None = None) -> None:
        """Raise UnknownModel unless who asks may ask a team of that name, on that thread; or InsufficientScope or
        Forbidden, which say what they lack. With an idempotency key, `start` does: the request may have been served
        already; and NotFound or Forbidden of another user's thread."""
        if where is not None:
            await self._check_owner(who, where)
        await self.catalog.find(who, team, None if where is None or where.thread_id is None else where.name_of(who))

    async def _check_owner(self, who: Principal, where: Where) -> None:
        """Check that who asks may write to the thread, where that is another user's."""
        if where.owner is not None:
            if where.thread_id is None:
                raise InvalidRequest("a new thread is one's own: name the thread of that owner", param="thread_id")
            await self._rights.thread(who, where.name_of(who), Right.WRITE)

    async def offers(self, who: Principal) -> list[ListedTeam]:
        """The teams that somebody may ask."""
        return await self.catalog.all(who)

    # --- runs ---------------------------------------------------------------------------------------------------

    async def start(self, ask: Ask, who: Principal) -> Handle:
        """Start a run, or resume the one that waits for this answer. Returns when its input is stored.

        A repeated request with the same idempotency key gets the run that the first one started; so does one that its
        client repeats by itself (`runs.intake.repeats`).

        Args:
            who: who asks, and as whom it runs.

        Raises:
            UnknownModel, InvalidRequest: the request cannot be served.
            InsufficientScope: who asks may not name a `webhook_url`.
            NotFound, Forbidden: the thread is another user's, who does not let this one write to it.
            ThreadBusy: a run is live on the thread, and the request says `on_busy="reject"`.
            TooManyRequests: a limit is reached.
            SwitchedOff: an operator has switched off the team, the tenant or all.
            IdempotencyMismatch: the key was used with another request.
            StateError: the thread's stored state cannot be used.
            TeamBuildError: the team's factory failed.
            ShuttingDown: this process takes nothing new.
            DatabaseError: the database refused or cannot be reached.
            NotOpened: it is not open here.
        In all cases nothing of the request was stored. A thread that was rewound for its history stays so; its branch
        is there to go back to.
        """
        self.lifecycle.check()
        await self._check_owner(who, ask.where)
        return await self._begin(ask, who)

    @property
    def drained(self) -> ShuttingDown | None:
        """What refuses requests that would begin a run, where an operator has switched off this process; None: it takes
        them."""
        return self._recovery.drained

    async def _begin(self, ask: Ask, who: Principal) -> Handle:
        """`start`, of who was found to have the right."""
        if self._here.closing:
            raise ShuttingDown("this server is shut down; another one takes the request")
        try:
            request = await self._admission.admit(ask, who)
        except UnknownModel as error:
            # One that comes again gets the answer of its run, whatever has become of the team since.
            earlier = None
            if ask.origin.key is not None:
                gone = Admitted(ask, who, Recipe.gone(ask.team, error), ask.where, "wait")
                earlier = await self._intake.earlier(gone)
            if earlier is None:
                raise
            return earlier
        return await self.repeats.begin(request)

    async def answer(
        self,
        who: Principal,
        thread_id: Named,
        answer: Answer,
        *,
        origin: Origin = Origin(),  # noqa: B008 - it is frozen
    ) -> Handle:
        """Answer what the thread's run waits for, by the id of the question, and resume it. An answer with an
        idempotency key is a request of its own, as in `start`.

        Raises:
            NotFound: no such thread of this user, or shared with them, and its question is not for them.
            Forbidden: they may not answer it.
            StaleAnswer: the thread does not wait for this answer (any more).
            InvalidRequest: it does not fit the question.
            StateError, TeamBuildError, ShuttingDown, DatabaseError: as `start`; nothing was stored.
        """
        self.check_open()
        name = await self._rights.thread(who, thread_id, Right.ANSWER)
        head = await self._commands.head(name)
        ask = await ask_of_thread(self.db, head.team or "", name)
        tools = ask.client_tools
        if answer.results is not None and tools is not None:
            tools = tools.without_demand()  # What its request demanded was for its first answer.
        return await self._begin(replace(ask, answer=answer, client_tools=tools, origin=origin), who)

    # --- controls -----------------------------------------------------------------------------------------------

    async def cancel(self, who: Principal, thread_id: Named) -> ThreadDetail:
        """End what the thread does, or waits for, as STOPPED; see `Commands.cancel`. Raises Forbidden for who
        may not write."""
        return await self._ask(who, thread_id, lambda name: self._commands.cancel(name, by=who.user_id))

    async def pause(self, who: Principal, thread_id: Named, run_id: str | None = None) -> ThreadDetail:
        """Pause the thread's live run at its next turn boundary; see `Commands.pause`. Raises Forbidden for who
        may not write."""
        return await self._ask(who, thread_id, lambda name: self._commands.pause(name, run_id))

    async def resume(self, who: Principal, thread_id: Named, run_id: str | None = None) -> ThreadDetail:
        """Resume the thread's paused run; see `Commands.resume`. Raises Forbidden for who may not write."""
        return await self._ask(who, thread_id, lambda name: self._commands.resume(name, run_id))

    async def retry(self, who: Principal, thread_id: Named, run_id: str | None = None) -> ThreadDetail:
        """Run a thread's run that has failed again; see `Commands.retry`. Raises Forbidden for who may not write."""
        return await self._ask(who, thread_id, lambda name: self._commands.retry(name, run_id))

    async def _ask(
        self, who: Principal, thread_id: Named, verb: Callable[[ThreadName], Awaitable[None]]
    ) -> ThreadDetail:
        """Ask something of a thread; it, after that."""
        self.check_open()
        name = await self._rights.thread(who, thread_id, Right.WRITE)
        await verb(name)
        return await self._detail(name)

    async def rewind(self, who: Principal, thread_id: Named, place: Place) -> ThreadDetail:
        """Have a thread go back to a place of its own, also on a branch that it has left: the next input continues from
        there, on a new branch. What is left behind stays stored, and can be gone back to. A run that is paused, or
        waits for a person, ends as STOPPED. Returns the thread without its `team_result`, which takes its messages.

        Raises:
            NotFound, Forbidden: no such thread of the user, or one that they may not write to.
            ThreadBusy: a run is live on it, or inputs wait in its queue.
            InvalidRequest: there is no such place, or its turns were not kept; `param` is the field of the place.
            StateError: what is stored of it is damaged, or of a later version.
        """
        self.check_open()
        place.require()
        return await self._commands.rewind(who, await self._rights.thread(who, thread_id, Right.WRITE), place)

    async def load_history(
        self, who: Principal, thread_id: Named, messages: Sequence[InputMessage], how: Load
    ) -> ThreadDetail:
        """Put a conversation that was had elsewhere into a thread, without a run; see `Loading.load`. Returns the
        thread without its `team_result`. Raises NotFound, Forbidden for who may not write."""
        self.check_open()
        name = await self._rights.thread(who, thread_id, Right.WRITE)
        return await self._commands.load(who, name, messages, how)

    async def cancel_run(self, who: Principal, run_id: str, *, by: str | None = None) -> RunView:
        """End one run, queued or live; see `Commands.cancel_run`. `by`: the user who wants it, where that is not who
        asks. Raises Forbidden for who may not write."""
        self.check_open()
        by = by or who.user_id
        try:
            owner = who.owner
            await self._commands.cancel_run(owner, run_id, by=by)
        except NotFound:
            owner = await self._rights.run(who, run_id, Right.WRITE)
            await self._commands.cancel_run(owner, run_id, by=by)
        return await self._run_of(owner, run_id)

    async def controls_changed(self, thread_key: int) -> None:
        """Another process has asked something of the thread's run: look what, before the next heartbeat would."""
        if any(key == thread_key for key, _, _ in self._running.held()):
            self._heartbeat.beat_now()

    # --- runs that nobody runs ----------------------------------------------------------------------------------

    async def sweep(self) -> list[int]:
        """The keys of threads that want a look: their worker is gone, inputs wait, or a question was not answered in
        time."""
        return await self._recovery.sweep()

    def is_full(self, besides: int = 0) -> bool:
        """Whether this process takes up nothing now. `besides`: how many threads it is looking at, each of which may
        take up one."""
        return self._recovery.is_full(besides)

    async def look_at(self, thread_key: int) -> None:
        """Do what there is to do on a thread; see `Recovery.try_recover`."""
        await self._recovery.try_recover(thread_key)

    async def prune(self) -> int:
        """Delete the threads whose retention is over, old events of webhooks, files whose time is over, uploads
        that nobody continues, steps that turns have left behind, and what an earlier release has left of users whom it
        has deleted. Returns how many threads. Where one of these fails, the others are done, and its error is raised
        then."""
        failed: list[Exception] = []
        threads = 0
        for part in (self.webhooks.prune, self.files.sweep, self._prune_left, self._prune_threads):
            try:
                threads = await part()
            except Exception as error:  # noqa: BLE001 - features may raise anything
                failed.append(error)
        for error in failed[1:]:
            log.error("more than one kind of what is over stays", exc_info=error)
        if failed:
            raise failed[0]
        return threads

    async def _prune_left(self) -> int:
        if (left := await self.db.database.write(drop_left)) > 0:
            log.warning("%d steps were left behind by turns that are over, and are deleted", left)
        for owner, gone_at in await self.db.database.read(partial(left_of_deleted, hooks=self.hooks)):
            log.warning("a user was deleted by an earlier release, which has left rows: they are deleted")
            while await self.db.database.write(partial(delete_left, owner=owner, gone_at=gone_at, hooks=self.hooks)):
                pass
        return left

    async def _prune_threads(self) -> int:
        total = 0
        for rule in rules(self._settings.retention_days, self._settings.retention):
            after: int | None = 0
            while after is not None:
                deleted, after = await self.db.database.write(partial(prune, after=after, **rule._asdict()))
                total += deleted
        return total

    # --- the end of a thread -------------------------------------------------------------------------------------

    async def delete_thread(
        self, who: Principal, thread_id: str, *, only_if: Callable[[Session], bool] | None = None
    ) -> None:
        """Delete a thread and all that belongs to it; with `only_if` not, where that says no in the same transaction.

        Raises:
            NotFound: an unknown or foreign thread.
            Conflict: a run is live on it.
        """
        name = who.owner.thread(thread_id)
        if self._running.is_taken(name):
            raise ThreadBusy(f"a run is live on thread {thread_id!r}; stop it first")
        self._warm.take(name)
        actor = who.actor

        def delete(session: Session) -> bool:
            if only_if is not None and not only_if(session):
                return True
            return delete_thread(session, name, actor)

        if not await self._open_database.write(delete):
            raise NotFound(f"no thread {thread_id!r}", param="thread_id")
        self.forget([name], name.owner)

    def forget(self, names: Iterable[ThreadName], owner: Owner) -> None:
        """Drop what this process remembers of an owner's threads that were deleted."""
        for name in names:
            self._warm.take(name)
        if self._recogniser is not None:
            self._recogniser.forget(owner, self.teams.names())
