"""The intake leads a request that was let in: to the run that it has already, to the thread that its history is of, to
the queue, or to a start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from drsai_backend.access.switchboard import Switchboard
from drsai_backend.database import Database
from drsai_backend.database.backends.prepared import Charge
from drsai_backend.database.hooks import Asked, Hooks
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import Conflict, InvalidRequest, StaleAnswer, ThreadBusy, UnknownModel
from drsai_backend.runs.commands.commands import Commands, Queued
from drsai_backend.runs.events import Position
from drsai_backend.runs.feed.feed import Feeds
from drsai_backend.runs.feed.handle import Handle, StoredRun
from drsai_backend.runs.feed.live_run import LiveRuns
from drsai_backend.runs.feed.replay import StoredRequest, find_request, replay
from drsai_backend.runs.history.recognise import Recogniser
from drsai_backend.runs.intake.forks import Forks
from drsai_backend.runs.recovery.recovery import Recovery
from drsai_backend.runs.requests import Admitted, Placed, estimate, new_thread_id, thread_of_key
from drsai_backend.runs.running import Running
from drsai_backend.runs.start.parameters import ExpectedRun
from drsai_backend.runs.start.plan import fingerprint
from drsai_backend.runs.start.results import check_shown, stale_results, waiting_for
from drsai_backend.runs.start.starter import Busy, Moved, RunStarter

_ATTEMPTS: Final = 20
_TRIES: Final = 3
"""Times that an input may find its thread busy, and free again a moment later, until it is queued all the same."""


@dataclass(eq=False)
class Intake:
    """The requests of one engine. Without `_recogniser` no history is recognised."""

    _database: Database
    _feeds: Feeds
    _starter: RunStarter
    _here: LiveRuns
    _running: Running
    _recovery: Recovery
    _commands: Commands
    _forks: Forks
    _recogniser: Recogniser | None
    _hooks: Hooks
    _switches: Switchboard

    async def begin(self, request: Admitted) -> Handle:
        """Begin the run of a request that joins no other try of it. Raises as `Engine.start`."""
        asked, is_waited_for = request, True
        if asked.ask.tool_results:
            request, is_waited_for = await waiting_for(self._database, asked)
            if request.ask.tool_results and request.ask.origin.webhook_url is not None:
                text = "`webhook_url` is for requests that begin a run: results of tools resume one, with its webhooks"
                raise InvalidRequest(text, param="webhook_url")
        # Before anything is forked or rewound: what is repeated changes nothing.
        if request.ask.origin.key is not None and (earlier := await self._earlier(request)) is not None:
            return earlier
        # What waits for an answer, or for results, is under way: it is left alone.
        is_new = request.ask.answer is None and not (asked.ask.tool_results and is_waited_for)
        if self._switches.off and is_new:
            self._check_switches(request)
        if self._hooks.charged:
            charges = self._charges(request)
            asked, request = replace(asked, charges=charges), replace(request, charges=charges)
        fork = request.where.fork_of
        if fork is not None and fork.problem is not None:
            raise fork.problem
        if asked.ask.tool_results and not request.ask.tool_results:
            check_shown(asked)
        if not is_waited_for:
            return await self._begin_with_history(asked)
        is_placed = fork is not None or request.ask.answer is not None or bool(asked.ask.tool_results)
        if self._recogniser is None or is_placed:
            return await self._begin_on(request)
        return await self._begin_placed(request, self._recogniser.place)

    def _check_switches(self, request: Admitted) -> None:
        """Raise where what is switched off lets a request begin nothing."""
        self._switches.check(request.who.tenant, "team", request.ask.team)
        if (refusal := self._recovery.drained) is not None:
            raise refusal

    def _charges(self, request: Admitted) -> Sequence[Charge]:
        """Return what features charge a request. Raises what one does that refuses it."""
        where = request.where
        thread = None if where.thread_id is None else where.name_of(request.who)
        who = request.who
        return self._hooks.charges(Asked(who.owner, who.key_id, partial(estimate, request.ask), thread))

    async def _begin_with_history(self, request: Admitted) -> Handle:
        """Begin the run of a request that brings results which its thread does not wait for: they are history.

        Raises:
            StaleAnswer: its history does not show their calls, or fits nowhere on the thread.
        """
        history, results, origin = request.but(tool_results=()), request.ask.tool_results, request.ask.origin
        if request.where.thread_id is None:
            return await self._earlier(history) or await self._begin_on(history)
        if origin.key is not None:
            history = history.but(origin=replace(origin, fingerprint=fingerprint(request.ask, request.name)))

        async def place(request: Admitted) -> Admitted:
            placed = None if self._recogniser is None else await self._recogniser.with_results(request)
            if placed is None:
                raise stale_results(results)
            return placed

        return await self._begin_placed(history, place)

    async def _begin_placed(self, request: Admitted, place: Callable[[Admitted], Awaitable[Admitted]]) -> Handle:
        for _ in range(_ATTEMPTS):
            try:
                placed = await place(request)
                is_other = placed.where.thread_id != request.where.thread_id
                if is_other and (earlier := await self._earlier(placed)) is not None:
                    return earlier
                return await self._begin_on(placed)
            except Moved:
                await asyncio.sleep(0)  # Somebody was faster: now its history ends elsewhere.
        raise ThreadBusy("the conversation is continued by others all the time; try again", param="messages")

    async def _begin_on(self, request: Admitted) -> Handle:
        is_new, is_made = False, False
        if request.where.thread_id is None:
            is_new, request = request.ask.origin.key is None, _on_new(request)
        if request.where.fork_of is not None:
            # What its team refuses is found out before.
            await self._starter.outlook(request)
            is_new, (request, is_made) = False, await self._forks.make(request)
        given = Placed(
            request.ask,
            request.who,
            request.recipe,
            request.name,
            request.where.known,
            request.on_question,
            request.digest,
            is_new,
            charges=request.charges,
        )
        try:
            handle = await self._start(given)
        except Exception as error:
            # The same request may have come twice at the same moment.
            if isinstance(error, Conflict) and (earlier := await self._earlier(request)) is not None:
                return earlier
            if is_made:
                await self._forks.undo(request)
            raise
        handle.imported = request.where.imported
        return handle

    async def earlier(self, request: Admitted) -> Handle | None:
        """The run that the idempotency key of a request stands for, whether its team is there or not; None: none."""
        if request.ask.tool_results:
            request, _ = await waiting_for(self._database, request)
        return await self._earlier(request)

    async def _earlier(self, request: Admitted) -> Handle | None:
        """The run that the request's idempotency key stands for, if it has one."""
        key = request.ask.origin.key
        if key is None:
            return None
        name = _on_new(request).name
        found = await self._database.read(
            lambda session: find_request(session, name, key, fingerprint(request.ask, name))
        )
        return None if found is None else await self.again(request, found)

    async def again(self, request: Admitted, found: StoredRequest) -> Handle:
        """A request that was served before, read once more."""
        if found.is_over:
            return Handle(replay(found))
        if found.row["status"] is RunStatus.CREATED:
            # Who stored it may not have learnt so, and nobody have been told.
            await self._recovery.wake(found.head.key)
        try:
            outlook = await self._starter.outlook(request.at(thread_id=found.head.thread_id))
        except UnknownModel:
            outlook = ExpectedRun(speakers=1)
        return self._followed((found.run_id, outlook, found.created), found.head.name, request.ask.team, found.start)

    async def _start(self, given: Placed) -> Handle:
        name, ask = given.name, given.ask
        if ask.how.background and not ask.tool_results:
            return self._followed(await self._commands.enqueue(given), name, ask.team)
        for attempt in range(1, _ATTEMPTS + 1):
            while isinstance(live := self._here.get(name), asyncio.Future):  # It begins.
                await asyncio.wait([live])
            head = None
            if live is None:
                try:
                    live = await self._running.launch(name, partial(self._starter.start, given), self._recovery.freed)
                    return Handle(live, partial(self._feeds.run, name.owner, is_stored=True))
                except Busy as busy:
                    head = busy.head
                except Conflict as error:
                    # Others are faster all the time, unless it says more than that.
                    is_placed = ask.answer is not None or bool(ask.tool_results)
                    if type(error) is not Conflict or is_placed or await self._is_served(given):
                        raise
            _refuse_wait(given, is_live=live is not None)
            queued = await self._commands.take(given, head, anyway=attempt >= _TRIES)
            if queued is not None:
                return self._followed(queued, name, ask.team)
            if ask.how.on_busy == "rollback":
                # It is done; what others begin meanwhile is theirs.
                done = replace(ask, how=replace(ask.how, on_busy="enqueue"))
                return await self._start(replace(given, ask=done))
        raise ThreadBusy(f"thread {name.thread_id!r} is too busy; try again", param="thread_id")

    async def _is_served(self, given: Placed) -> bool:
        """Whether another try of a request with an idempotency key has stored it meanwhile."""
        key = given.ask.origin.key
        if key is None:
            return False
        digest = fingerprint(given.ask, given.name)
        return await self._database.read(lambda session: find_request(session, given.name, key, digest)) is not None

    def _followed(self, queued: Queued, name: ThreadName, team: str, after: Position | None = None) -> Handle:
        run_id, outlook, created = queued
        run = StoredRun(run_id, name, team, created, outlook.speakers, outlook.ignored, after)
        return Handle(run, partial(self._feeds.run, name.owner, is_stored=True))


def _refuse_wait(given: Placed, *, is_live: bool) -> None:
    """Raise where an input cannot wait for the end of what its thread does. `is_live`: this process runs it."""
    ask = given.ask
    if is_live and given.known is not None and given.known.seen is not None:
        raise Moved
    if is_live and ask.answer is not None:
        raise StaleAnswer("the thread waits for no answer", param="id")
    if is_live and ask.tool_results:
        raise stale_results(ask.tool_results)
    if ask.continues is not None:
        # When its turn came, the answer would not be the last one any more.
        raise ThreadBusy(f"a run is live on thread {given.name.thread_id!r}; try again when it has ended")


def _on_new(request: Admitted) -> Admitted:
    """A request on its thread: where it names none, a new one, which is the same for each try with its key."""
    if request.where.thread_id is not None:
        return request
    key = request.ask.origin.key
    return request.at(thread_id=new_thread_id() if key is None else thread_of_key(request.who.owner, key))
