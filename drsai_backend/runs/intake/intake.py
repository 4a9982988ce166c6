"""The way of a request that was let in: to the run that it has already, to the thread that its history is of, to the
queue, or to a start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from drsai_backend.database import Database
from drsai_backend.datamodel import RunStatus
from drsai_backend.definitions.stored.serving import ServedTeams
from drsai_backend.errors import Conflict, InvalidRequest, StaleAnswer, ThreadBusy, UnknownModel
from drsai_backend.runs.commands.commands import Commands, Queued
from drsai_backend.runs.events import Position
from drsai_backend.runs.feed.feed import Feeds
from drsai_backend.runs.feed.handle import Handle, StoredRun
from drsai_backend.runs.feed.replay import StoredRequest, find_request, replay
from drsai_backend.runs.history.recognise import Recogniser
from drsai_backend.runs.intake.forks import Forks
from drsai_backend.runs.requests import RunRequest, new_thread_id, thread_of_key
from drsai_backend.runs.running import Running
from drsai_backend.runs.start.parameters import Outlook
from drsai_backend.runs.start.plan import fingerprint
from drsai_backend.runs.start.results import stale_results, waiting_for
from drsai_backend.runs.start.starter import Busy, Moved, RunStarter
from drsai_backend.teams.context import TeamFactory

_ATTEMPTS: Final = 20
_TRIES: Final = 3
"""Times that an input may find its thread busy, and free again a moment later, until it is queued all the same."""


@dataclass(eq=False)
class Intake:
    """The requests of one engine. Without `_recogniser` no history is recognised."""

    _database: Database
    _teams: ServedTeams
    _feeds: Feeds
    _starter: RunStarter
    _running: Running
    _commands: Commands
    _forks: Forks
    _recogniser: Recogniser | None

    async def begin(self, request: RunRequest) -> Handle:
        """Begin the run of a request that is allowed and joins no other try of it. Raises as `Engine.start`."""
        if request.continues is not None and request.background:
            text = "an answer is not continued in the background: leave `background` out"
            raise InvalidRequest(text, param="background")
        placed = request.name if request.thread_id else None
        factory = (await self._teams.find_for(request.principal, request.team, placed)).factory
        asked, is_waited_for = request, True
        if asked.tool_results:
            request, is_waited_for = await waiting_for(self._database, asked)
            if request.tool_results and request.webhook_url is not None:
                text = "`webhook_url` is for requests that begin a run: results of tools resume one, with its webhooks"
                raise InvalidRequest(text, param="webhook_url")
        # Before anything is forked or rewound: what is repeated changes nothing.
        if (earlier := await self._earlier(request)) is not None:
            return earlier
        if request.fork_of is not None and request.fork_of.problem is not None:
            raise request.fork_of.problem
        if not is_waited_for:
            return await self._begin_with_history(asked, factory)
        is_placed = request.fork_of is not None or request.answer is not None or bool(asked.tool_results)
        if self._recogniser is None or is_placed:
            return await self._begin_on(request, factory)
        return await self._begin_placed(request, factory, self._recogniser.place)

    async def _begin_with_history(self, request: RunRequest, factory: TeamFactory) -> Handle:
        """Begin the run of a request that brings results which its thread does not wait for: they are history.

        Raises:
            StaleAnswer: its history does not show their calls, or fits nowhere on the thread.
        """
        history, results = replace(request, tool_results=()), request.tool_results
        if request.thread_id is None:
            return await self._earlier(history) or await self._begin_on(history, factory)
        if request.idempotency_key is not None:
            history = replace(history, fingerprint=fingerprint(request))

        async def place(request: RunRequest) -> RunRequest:
            placed = None if self._recogniser is None else await self._recogniser.with_results(request)
            if placed is None:
                raise stale_results(results)
            return placed

        return await self._begin_placed(history, factory, place)

    async def _begin_placed(
        self, request: RunRequest, factory: TeamFactory, place: Callable[[RunRequest], Awaitable[RunRequest]]
    ) -> Handle:
        for _ in range(_ATTEMPTS):
            try:
                placed = await place(request)
                if placed.thread_id != request.thread_id and (earlier := await self._earlier(placed)) is not None:
                    return earlier
                return await self._begin_on(placed, factory)
            except Moved:
                await asyncio.sleep(0)  # Somebody was faster: now its history ends elsewhere.
        raise ThreadBusy("the conversation is continued by others all the time; try again", param="messages")

    async def _begin_on(self, request: RunRequest, factory: TeamFactory) -> Handle:
        is_new = request.thread_id is None and request.idempotency_key is None
        if request.thread_id is None:
            request = replace(request, thread_id=_id_of_new(request))
        is_made = False
        if request.fork_of is not None:
            # What its team refuses is found out before.
            await self._starter.outlook(request, factory)
            is_new, (request, is_made) = False, await self._forks.make(request)
        try:
            handle = await self._start(request, factory, is_new=is_new)
        except Exception as error:
            # The same request may have come twice at the same moment.
            if isinstance(error, Conflict) and (earlier := await self._earlier(request)) is not None:
                return earlier
            if is_made:
                await self._forks.undo(request)
            raise
        handle.imported = request.imported
        return handle

    async def earlier(self, request: RunRequest) -> Handle | None:
        """The run that the idempotency key of a request stands for, whether its team is there or not; None: none."""
        if request.tool_results:
            request, _ = await waiting_for(self._database, request)
        return await self._earlier(request)

    async def _earlier(self, request: RunRequest) -> Handle | None:
        """The run that the request's idempotency key stands for, if it has one."""
        key = request.idempotency_key
        if key is None:
            return None
        if request.thread_id is None:
            request = replace(request, thread_id=_id_of_new(request))
        found = await self._database.read(
            lambda session: find_request(session, request.name, key, fingerprint(request))
        )
        return None if found is None else await self.again(request, found)

    async def again(self, request: RunRequest, found: StoredRequest) -> Handle:
        """A request that was served before, read once more."""
        if found.is_over:
            return Handle(replay(found))
        if found.row["status"] is RunStatus.CREATED:
            # Who stored it may not have learnt so, and nobody have been told.
            await self._commands.wake(found.head.key)
        try:
            team = await self._teams.find_for(request.principal, request.team, request.name)
            outlook = await self._starter.outlook(request, team.factory)
        except UnknownModel:
            outlook = Outlook(speakers=1)
        return self._followed((found.run_id, outlook, found.created), request, found.start)

    async def _start(self, request: RunRequest, factory: TeamFactory, *, is_new: bool) -> Handle:
        name = request.name
        if request.background and not request.tool_results:
            return self._followed(await self._commands.enqueue(request, factory), request)
        for attempt in range(1, _ATTEMPTS + 1):
            while (beginning := self._running.beginning(name)) is not None:
                await asyncio.wait([beginning])
            head = None
            if not self._running.is_taken(name):
                try:
                    live = await self._running.launch(
                        name, lambda: self._starter.start(request, factory, is_new=is_new)
                    )
                    return Handle(live, partial(self._feeds.run, name.owner, is_stored=True))
                except Busy as busy:
                    head = busy.head
                except Conflict as error:
                    # Others are faster all the time, unless it says more than that.
                    is_placed = request.answer is not None or bool(request.tool_results)
                    if type(error) is not Conflict or is_placed or await self._earlier(request) is not None:
                        raise
            elif request.known is not None and request.known.seen is not None:
                raise Moved
            elif request.answer is not None:
                raise StaleAnswer("the thread waits for no answer", param="id")
            elif request.tool_results:
                raise stale_results(request.tool_results)
            if request.continues is not None:
                # When its turn came, the answer would not be the last one any more.
                raise ThreadBusy(f"a run is live on thread {name.thread_id!r}; try again when it has ended")
            queued = await self._commands.take(request, factory, head, anyway=attempt >= _TRIES)
            if queued is not None:
                return self._followed(queued, request)
            if request.on_busy == "rollback":
                # It is done; what others begin meanwhile is theirs.
                return await self._start(replace(request, on_busy="enqueue"), factory, is_new=is_new)
        raise ThreadBusy(f"thread {name.thread_id!r} is too busy; try again", param="thread_id")

    def _followed(self, queued: Queued, request: RunRequest, after: Position | None = None) -> Handle:
        run_id, outlook, created = queued
        run = StoredRun(run_id, request.name, request.team, created, outlook.speakers, outlook.ignored, after)
        return Handle(run, partial(self._feeds.run, request.name.owner, is_stored=True))


def _id_of_new(request: RunRequest) -> str:
    """The id of the new thread that a request begins on."""
    key = request.idempotency_key
    return new_thread_id() if key is None else thread_of_key(request.principal.owner, key)
