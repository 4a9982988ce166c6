"""User inputs whose thread is busy: what `on_busy` makes of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from drsai_backend import log_context
from drsai_backend.database import DatabaseManager
from drsai_backend.database.runs.commands import NewInput, enqueue
from drsai_backend.database.runs.reads import ThreadHead, read_head
from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import Conflict, InvalidRequest, ThreadBusy
from drsai_backend.runs.commands.controls import STOPPED, Controls
from drsai_backend.runs.events import RunRequest
from drsai_backend.runs.ids import new_run_id
from drsai_backend.runs.recovery.recovery import Recovery
from drsai_backend.runs.running import Running
from drsai_backend.runs.start.plan import fingerprint
from drsai_backend.runs.start.starter import RunStarter
from drsai_backend.runs.stored_request import to_json
from drsai_backend.teams.context import TeamFactory

Queued = tuple[str, int, int]
"""The run_id of a queued input, how many agents its team has, and when it came (Unix time in seconds)."""

_CONTROLS = {"interrupt": "cancel", "steer": "steer"}
_ATTEMPTS = 3


class BusyThreads:
    """Queues inputs for one engine.

    Args:
        wake: called with the key of a thread that is free and has something in its queue.
    """

    def __init__(
        self,
        db: DatabaseManager,
        starter: RunStarter,
        running: Running,
        recovery: Recovery,
        controls: Controls,
        wake: Callable[[int], Awaitable[None]],
    ) -> None:
        self._db = db
        self._starter = starter
        self._running = running
        self._recovery = recovery
        self._controls = controls
        self._wake = wake

    async def take(self, request: RunRequest, factory: TeamFactory, head: ThreadHead | None) -> Queued | None:
        """Do with an input what its policy says, on a thread that was busy a moment ago. `head=None`: this process runs
        it. None: the thread is free now.

        Raises:
            ThreadBusy: the policy is to refuse it.
            InvalidRequest: it is to steer a run of another team.
            TeamBuildError: the team's factory failed.
        """
        user_id, thread_id = request.user_id, request.thread_id
        assert thread_id is not None
        policy = request.on_busy
        if head is None:
            head = await self._db.database.read(lambda session: read_head(session, user_id, thread_id))
            if head is None:
                return None
        if policy == "reject":
            raise ThreadBusy(f"a run is live on thread {thread_id!r}; try again when it has ended")
        if policy == "interrupt" and (head.status is RunStatus.PAUSED or self._is_orphan(head)):
            await self._recovery.end(head, RunStatus.STOPPED, reason=STOPPED)
            return None
        if head.status is RunStatus.PAUSED:
            policy = "steer"  # A message to a paused run is handed to everybody, and the run is resumed.
        if policy == "steer" and head.team not in (None, request.team):
            raise InvalidRequest(
                f"the run on thread {thread_id!r} is one of model {head.team!r}: it takes no message to "
                f"{request.team!r}",
                param="model",
            )
        queued, key = await self._store(request, factory, policy, _CONTROLS.get(policy))
        if key is None:
            return None
        if head.status is RunStatus.PAUSED:
            try:
                await self._controls.resume(user_id, thread_id)
            except Conflict:
                # The run was ended meanwhile, or is run elsewhere. The input is in the queue, and its turn will come.
                await self._wake(key)
        elif head.status.is_final or self._is_orphan(head):
            await self._wake(key)
        elif policy == "interrupt":
            live = self._running.live((user_id, thread_id))
            if live is not None:
                self._running.stop(live)
            else:
                await self._controls.tell(key)
        elif request.on_question == "answer":
            await self._wake(key)  # The run may have asked meanwhile.
        return queued

    async def enqueue(self, request: RunRequest, factory: TeamFactory) -> Queued:
        """Queue an input in any case, for whichever process has time.

        Raises:
            TeamBuildError: the team's factory failed.
        """
        for attempt in range(_ATTEMPTS):
            try:
                queued, key = await self._store(request, factory, "enqueue", None)
            except Conflict:
                # Two made the thread at the same moment.
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            assert key is not None
            await self._wake(key)
            return queued
        raise AssertionError("the last attempt returns or raises")

    def _is_orphan(self, head: ThreadHead) -> bool:
        return head.status is RunStatus.RUNNING and self._recovery.is_orphan(head)

    async def _store(
        self, request: RunRequest, factory: TeamFactory, policy: str, control: str | None
    ) -> tuple[Queued, int | None]:
        # A team that cannot be built is refused now, not when nobody listens any more.
        speakers = await self._starter.speakers(request, factory)
        api_key = request.api_key
        new = NewInput(
            run_id=new_run_id(),
            team=request.team,
            policy=policy,
            request=to_json(request),
            api_key=None if api_key is None else self._db.secrets.encrypt(api_key.get_secret_value()),
            background=request.background,
            idempotency_key=request.idempotency_key,
            fingerprint=fingerprint(request) if request.idempotency_key else None,
            request_id=log_context.current_request(),
            on_question=request.on_question,
        )
        thread_id = request.thread_id
        assert thread_id is not None
        key = await self._db.database.write(
            lambda session: enqueue(session, request.user_id, thread_id, new, control=control)
        )
        return (new.run_id, speakers, int(new.at.timestamp())), key
