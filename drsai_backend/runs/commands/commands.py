"""Commands cancel, pause and resume threads from any process, whichever one runs them, and do what `on_busy` says with
a user input whose thread is busy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from drsai_backend import log_context
from drsai_backend.access.principal import Principal
from drsai_backend.database import DatabaseManager
from drsai_backend.database.audit import was_deleted
from drsai_backend.database.hooks import EndedRun, Hooks
from drsai_backend.database.locks import lock_thread
from drsai_backend.database.runs.commands import NewInput, ask, drop_queued, enqueue, keep_paused, revive, withdraw
from drsai_backend.database.runs.loaded import append_messages
from drsai_backend.database.runs.log import thread_of_run
from drsai_backend.database.runs.reads import (
    ThreadHead,
    find_run,
    head_of,
    read_head,
    read_head_of,
    read_run,
    read_run_messages,
    users_joined,
)
from drsai_backend.database.runs.values import StoredInput
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.lifecycle import BUSY, IDLE, SUSPENDED
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import Conflict, Forbidden, IllegalTransition, InvalidRequest, NotFound, ThreadBusy
from drsai_backend.runs.audited import started_as
from drsai_backend.runs.commands.stored_request import STORED, to_json
from drsai_backend.runs.recovery.recovery import Recovery
from drsai_backend.runs.requests import Admitted, InputMessage, Placed, ResumeOptions, new_run_id
from drsai_backend.runs.running import Running
from drsai_backend.runs.start.parameters import ExpectedRun
from drsai_backend.runs.start.plan import fingerprint, last_messages
from drsai_backend.runs.start.starter import RunStarter
from drsai_backend.runs.threads.loading import Load, Loading
from drsai_backend.runs.threads.rights import may_answer, told_to_asker
from drsai_backend.runs.threads.travel import Travel
from drsai_backend.runs.threads.views import ThreadDetail
from drsai_backend.runs.warm import WarmThreads
from drsai_backend.state import travel
from drsai_backend.state.travel import Place
from drsai_backend.teams.client_tools.definitions import calls_of
from drsai_backend.teams.kept_calls import taken_back
from drsai_backend.teams.suspension import is_decision
from drsai_backend.webhooks.webhooks import Webhooks

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Queued = tuple[str, ExpectedRun, int]
"""The run_id of a queued input, what is known of its run, and when it came (Unix time in seconds)."""

_STOPPED: Final = "The run was stopped."
_WITHDRAWN: Final = "The client continued without the results of its tools."
_CONTROLS: Final = {"interrupt": "cancel", "steer": "steer"}
_PATIENCE: Final = 5.0
"""Seconds that a cancel waits for the run to have ended."""
_LOOK: Final = 0.1
_ATTEMPTS: Final = 5


@dataclass(eq=False)
class Commands:
    """What people ask, for one engine."""

    _db: DatabaseManager
    _starter: RunStarter
    _running: Running
    _recovery: Recovery
    _warm: WarmThreads
    _webhooks: Webhooks
    _hooks: Hooks
    _travel: Travel
    _loading: Loading

    async def head(self, name: ThreadName) -> ThreadHead:
        """The thread. Raises NotFound for an unknown or foreign one."""
        return await self._db.database.read(lambda session: head_of(session, name))

    async def _head_of(self, name: ThreadName, run_id: str | None) -> ThreadHead:
        """The thread, whose newest run must be `run_id`, if that is given. Raises IllegalTransition: another one is."""
        head = await self.head(name)
        if run_id not in (None, head.run_id):
            raise IllegalTransition(f"run {run_id!r} is over, or waits in the queue", param="run_id")
        return head

    async def cancel(self, name: ThreadName, *, by: str, run_id: str | None = None) -> None:
        """End what the thread does, or waits for, as STOPPED: a live run at once, in whatever process; its finished
        turns stay. Returns when it has ended, or after some seconds when another process has not done it yet. `by`: the
        user who wants it.

        Raises:
            NotFound: there is no such thread.
            IllegalTransition: nothing is under way (a run that was stopped already is no error); or not `run_id`.
        """
        for _ in range(_ATTEMPTS):
            live = self._running.live(name)
            if live is not None and run_id in (None, live.run_id):
                self._running.stop(live)
                if not await self._waits(live.run_id):
                    return
                continue
            head = await self._head_of(name, run_id)
            if head.status is RunStatus.STOPPED:
                return
            if head.status is RunStatus.RUNNING and not self._recovery.is_orphan(head):
                if await self._has_ended_elsewhere(head):
                    return
            elif head.status in IDLE:
                raise IllegalTransition(f"thread {name.thread_id!r} is {head.status.value}: there is nothing to stop")
            else:
                self._warm.take(name)
                if await self._recovery.end(head, RunStatus.STOPPED, reason=_STOPPED, by=by):
                    return
        raise Conflict(f"thread {name.thread_id!r} was changed again and again; try again", param="thread_id")

    async def _has_ended_elsewhere(self, head: ThreadHead) -> bool:
        """Have the process that runs the thread cancel its run. False: the run waits now, or another head is there."""
        if not await self._db.database.write(lambda session: ask(session, head, "cancel")):
            return False
        await self._recovery.tell(head.key)
        return not await self._waits(head.run_id or "")

    async def _waits(self, run_id: str) -> bool:
        """Once the run is not live any more, or some seconds later: whether it waits now instead of having ended."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while True:
                    run = await self._db.database.read(lambda session: read_run(session, run_id))
                    status = None if run is None else RunStatus(run["status"])
                    if status is not RunStatus.RUNNING:
                        return status in SUSPENDED
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            return False

    async def cancel_run(self, owner: Owner, run_id: str, *, by: str) -> None:
        """End one run: one that waits in the queue, or what its thread does now.

        Raises:
            NotFound: no such run of this owner.
            IllegalTransition: it is over.
        """
        live = self._running.live_run(run_id)
        if live is not None and live.name.owner == owner:
            self._running.stop(live)  # Whether the database can be reached now or not.
        found = await self._db.database.read(lambda session: thread_of_run(session, owner, run_id))
        if found is None:
            raise NotFound(f"no run {run_id!r}", param="run_id")
        key, thread_id = found
        ended = EndedRun(owner.thread(thread_id), key, run_id, 0, RunStatus.STOPPED)
        if not await self._db.database.write(partial(drop_queued, ended=ended, reason=_STOPPED, hooks=self._hooks)):
            await self.cancel(ended.name, by=by, run_id=run_id)

    async def pause(self, name: ThreadName, run_id: str | None = None) -> None:
        """Ask the live run to pause at its next turn boundary. One that is paused already, for whatever, stays so until
        somebody resumes it. `run_id`: which run it must be.

        Raises:
            NotFound: there is no such thread.
            IllegalTransition: no run is live, or another one.
        """
        for _ in range(_ATTEMPTS):
            head = await self._head_of(name, run_id)
            if head.status not in BUSY:
                text = f"thread {name.thread_id!r} is {head.status.value}: only a live run can be paused"
                raise IllegalTransition(text)
            pause = keep_paused if head.status is RunStatus.PAUSED else partial(ask, control="pause")
            if await self._db.database.write(partial(pause, head=head)):
                return
        raise Conflict(f"thread {name.thread_id!r} was changed again and again; try again", param="thread_id")

    async def resume(self, name: ThreadName, run_id: str | None = None) -> None:
        """Resume a paused run, or take a pause back that has not come yet. `run_id`: which run it must be.

        Raises:
            NotFound: there is no such thread.
            IllegalTransition: it is not paused, or another one is.
        """
        for _ in range(_ATTEMPTS):
            head = await self._head_of(name, run_id)
            if head.status is RunStatus.PAUSED:
                control = "steer" if head.queued else None
                if not await self._is_known(head):
                    with self._recovery.looking_after(head.key):
                        unpaused = await self._db.database.write(lambda session, head=head: revive(session, head))
                    if unpaused:
                        return  # Some worker that serves the team resumes it.
                elif await self._recovery.resume(head, ResumeOptions(control=control)) is not None:
                    return
                await asyncio.sleep(_LOOK)
            elif head.status is RunStatus.RUNNING and head.control == "pause":
                if await self._db.database.write(lambda session, head=head: withdraw(session, head, "pause")):
                    return
            elif head.status is RunStatus.RUNNING:
                return
            else:
                raise IllegalTransition(f"thread {name.thread_id!r} is {head.status.value} and not paused")
        raise Conflict(f"thread {name.thread_id!r} could not be resumed; try again", param="thread_id")

    async def retry(self, name: ThreadName, run_id: str | None = None) -> None:
        """Run a run that has failed again, from the turn that failed, with its speaker: what was done in that turn is
        not done again, as after a crash. `run_id`: which run it must be.

        Raises:
            NotFound: there is no such thread.
            IllegalTransition: nothing has failed there, other things have happened on the thread since, or the user who
                began the run was deleted.
        """
        head = await self.head(name)
        retried = head.status is RunStatus.ERROR and run_id in (None, head.run_id)
        is_known = not self._recovery.is_full() and await self._is_known(head)
        again = partial(self._revive, head=head, is_known=is_known)
        with self._recovery.looking_after(head.key):
            if not retried or not await self._db.database.write(again):
                what = f"thread {name.thread_id!r} is {head.status.value}" if run_id is None else f"run {run_id!r}"
                text = f"{what}: there is nothing to retry; only the last run of a thread can be, where it has failed"
                raise IllegalTransition(text)
        await self._begin(name, is_known, ResumeOptions(attempt=1))

    async def _is_known(self, head: ThreadHead) -> bool:
        """Whether this process resumes the thread's run; else some worker that serves its team does."""
        return self._recovery.drained is None and await self._recovery.announcements.serves(head)

    def _revive(self, session: Session, head: ThreadHead, is_known: bool) -> bool:
        begun = read_run(session, head.run_id or "")
        by = None if begun is None else (begun["principal"] or {}).get("user_id")
        if begun is not None and by is not None and was_deleted(session, Owner(head.tenant, by), begun["created_at"]):
            text = f"the user who began run {head.run_id!r} was deleted since: nothing goes on as them"
            raise IllegalTransition(text)
        return revive(session, head) and (not is_known or self._recovery.hold_revived(session, head.key))

    async def _begin(self, name: ThreadName, is_known: bool, options: ResumeOptions) -> None:
        """Have a run resumed that was made one that nobody runs."""
        self._warm.take(name)
        head = await self.head(name)
        if not is_known or await self._recovery.resume(head, options) is None:
            await self._recovery.wake(head.key)

    # --- where a thread stands ---------------------------------------------------------------------------------------

    async def rewind(self, who: Principal, name: ThreadName, place: Place) -> ThreadDetail:
        """Have a thread go back to a place; see `Engine.rewind`."""
        return await self._changed(name, partial(self._travel.rewind, who, name, place))

    async def load(self, who: Principal, name: ThreadName, messages: Sequence[InputMessage], how: Load) -> ThreadDetail:
        """Put a conversation into a thread; see `Loading.load`."""
        return await self._changed(name, partial(self._loading.load, who, name, messages, how))

    async def _changed(self, name: ThreadName, change: Callable[[], Awaitable[ThreadDetail]]) -> ThreadDetail:
        """Change a thread on which nothing runs. Raises ThreadBusy where something does."""
        if self._running.is_taken(name):
            raise ThreadBusy(f"a run is live on thread {name.thread_id!r}: stop it first, or wait for its end")
        made = await change()
        # Whoever begins a run meanwhile is refused by its guard, and reads anew.
        self._warm.take(name)
        self._running.changed(name)
        return made

    async def outlook(self, request: Admitted) -> ExpectedRun:
        """Return what can be told of a request's run before it begins; see `RunStarter.outlook`. Raises what its team
        does."""
        return await self._starter.outlook(request)

    # --- inputs whose thread is busy -----------------------------------------------------------------------------

    async def take(self, given: Placed, head: ThreadHead | None, *, anyway: bool = False) -> Queued | None:
        """Do with an input what its policy says, on a thread that was busy a moment ago. `head=None`: this process runs
        it. `anyway`: queue it even if the thread is free. None: nothing was done, as the thread is free now, or its run
        was paused meanwhile.

        Raises:
            ThreadBusy: the policy is to refuse it, or the queue is full.
            Forbidden: it is a decision about an approval, of somebody who may not decide.
            InvalidRequest: it is to steer a run of another team.
            TeamBuildError: the team's factory failed.
        """
        name = given.name
        policy = given.ask.how.on_busy
        # It waits for somebody else than who sends this, or this would be the answer.
        behind = head is not None and head.status is RunStatus.AWAITING_INPUT
        head = head or await self._db.database.read(lambda session: read_head(session, name))
        if head is None:
            return None
        await self._refuse_decision(given, head)
        if policy == "reject":
            raise ThreadBusy(f"a run is live on thread {name.thread_id!r}; try again when it has ended")
        if policy == "rollback":
            await self._roll_back(given, head)
            return None
        if await self._withdraw_calls(given, head):
            return None
        if policy == "interrupt" and (behind or head.status is RunStatus.PAUSED or self._is_orphan(head)):
            await self._recovery.end(head, RunStatus.STOPPED, reason=_STOPPED, by=given.who.user_id)
            return None
        if head.status is RunStatus.PAUSED:
            policy = "steer"  # A message to a paused run is handed to everybody, and the run is resumed.
        if policy == "steer" and head.team not in (None, given.ask.team):
            raise InvalidRequest(
                f"the run on thread {name.thread_id!r} is one of model {head.team!r}: it takes no message to "
                f"{given.ask.team!r}",
                param="model",
            )
        return await self._queue(given, head, policy, behind=behind, anyway=anyway and not behind)

    async def _queue(
        self, given: Placed, head: ThreadHead, policy: str, *, behind: bool, anyway: bool
    ) -> Queued | None:
        """Queue an input, and have it taken up. None: as `take`."""
        is_known, is_revived = await self._is_known(head), False

        def unpause(session: Session, key: int) -> None:
            nonlocal is_revived
            now, is_revived = read_head_of(session, key), False
            if now is not None and now.status is RunStatus.PAUSED:
                is_revived = self._revive(session, now, is_known)

        with self._recovery.looking_after(head.key):
            # A process that died between the two would leave a message that waits for a run that waits.
            then, control = unpause if policy == "steer" else None, _CONTROLS.get(policy)
            queued, key = await self._store(given, policy, control, behind=behind, anyway=anyway, then=then)
        if key is None:
            return None
        if is_revived:
            await self._begin(given.name, is_known, ResumeOptions(control="steer"))
        else:
            await self._hurry(given, head, key, policy, anyway=anyway)
        return queued

    async def _hurry(self, given: Placed, head: ThreadHead, key: int, policy: str, *, anyway: bool) -> None:
        """Have an input that was queued taken up as soon as its policy allows; `anyway`: the thread may be free."""
        if anyway:
            await self._recovery.wake(key)
        if head.status is RunStatus.PAUSED:
            try:
                await self.resume(given.name)
            except Conflict:
                # The run was ended meanwhile, or is run elsewhere. The input is in the queue, and its turn will come.
                await self._recovery.wake(key)
        elif head.status.is_final or self._is_orphan(head):
            await self._recovery.wake(key)
        elif policy == "interrupt":
            live = self._running.live(given.name)
            if live is not None:
                self._running.stop(live)
            else:
                await self._recovery.tell(key)
        elif given.on_question == "answer":
            await self._recovery.wake(key)  # The run may have asked meanwhile.

    async def _roll_back(self, given: Placed, head: ThreadHead) -> None:
        """End the thread's run, and have the thread go back to where it was before its input, unless the thread was
        continued meanwhile. The calls of tools that the run has made, which are not undone, are told there.

        Raises:
            ThreadBusy: inputs wait in the queue, or the run did not end in time.
            Conflict: another try of the request has begun a run there.
        """
        name, who, key = given.name, given.who, given.ask.origin.key
        run_id, actor = head.run_id or "", who.actor

        def go_back(session: Session) -> None:
            lock_thread(session, name)
            now = read_head(session, name)
            if now is None or now.run_id != run_id:
                return  # Another input has taken its place already.
            run = read_run(session, run_id)
            said = [] if run is None else read_run_messages(session, head.key, run["first_seq"], run["last_seq"])
            if run is not None and said:
                place = Place(at=run["first_seq"])
                travel.rewind(session, name, place, actor, withdrawn=withdrawn, hooks=self._hooks)
                now, made = read_head(session, name), taken_back(config for _, config, _ in said)
                if now is not None and made:
                    append_messages(session, now, made, team=run["team"], title=None)

        withdrawn = partial(last_messages, "withdrawn", who.user_id)
        if head.queued:
            text = f"inputs wait in the queue of thread {name.thread_id!r}: cancel their runs first, or wait for their"
            raise ThreadBusy(f"{text} end")
        if key is not None and await self._db.database.read(lambda session: find_run(session, head.key, key)):
            # It would take its own message back.
            raise Conflict("another try of the request was faster")
        with contextlib.suppress(IllegalTransition):  # It is over already.
            await self.cancel(name, by=who.user_id, run_id=run_id)
        await self._db.database.write(go_back)
        self._warm.take(name)

    async def _refuse_decision(self, given: Placed, head: ThreadHead) -> None:
        """Refuse an "approve" of somebody who may not decide: in the queue, it would reach the model once others have
        decided."""
        question = head.input_request or {}
        waits = head.status is RunStatus.AWAITING_INPUT and given.ask.messages
        if not waits or not is_decision(given.ask.messages[-1].text, question):
            return
        joined = await self._db.database.read(lambda session: users_joined(session, head))
        if not may_answer(given.who, question, joined):
            text = f"{told_to_asker(question)} This message is a decision: it was not taken."
            raise Forbidden(text, param="messages")

    async def _withdraw_calls(self, given: Placed, head: ThreadHead) -> bool:
        """End a run that waits for its client's tools: with a message instead of the results, nobody will bring these
        any more. False: it waits for none."""
        waits = head.status is RunStatus.AWAITING_INPUT and bool(calls_of(head.input_request))
        if waits:
            await self._recovery.end(head, RunStatus.STOPPED, reason=_WITHDRAWN, by=given.who.user_id)
        return waits

    async def enqueue(self, given: Placed) -> Queued:
        """Queue an input in any case, for whichever process has time.

        Raises:
            TeamBuildError: the team's factory failed.
            ThreadBusy: the queue is full.
            Forbidden: it is a decision about an approval, of somebody who may not decide.
        """
        head = await self._db.database.read(lambda session: read_head(session, given.name))
        if head is not None:
            await self._refuse_decision(given, head)
            await self._withdraw_calls(given, head)
        queued, key = await self._store(given, "enqueue", None, anyway=True)
        if key is None:  # A thread that was shared, and is deleted just now.
            raise NotFound(f"no thread {given.name.thread_id!r}", param="thread_id")
        await self._recovery.wake(key)
        return queued

    def _is_orphan(self, head: ThreadHead) -> bool:
        return head.status is RunStatus.RUNNING and self._recovery.is_orphan(head)

    async def _store(
        self,
        given: Placed,
        policy: str,
        control: str | None,
        *,
        behind: bool = False,
        anyway: bool = False,
        then: Callable[[Session, int], None] | None = None,
    ) -> tuple[Queued, int | None]:
        # A team that cannot be built is refused now, not when nobody listens any more.
        outlook = await self._starter.outlook(given)
        ask, origin, who, run_id = given.ask, given.ask.origin, given.who, new_run_id()
        wanted = self._webhooks.wanted(who, origin.webhook_url, origin.webhook_kind)
        stored = StoredInput(given.name.tenant, 0, None, run_id, run_id, is_queued=True, speakers=outlook.speakers)
        new = NewInput(
            run_id=run_id,
            team=ask.team,
            policy=policy,
            request=to_json(given) | ({STORED: True} if given.recipe.version is not None else {}),
            api_key=None if ask.api_key is None else self._db.secrets.encrypt(ask.api_key.get_secret_value()),
            background=ask.how.background,
            idempotency_key=origin.key or origin.own_key,
            fingerprint=fingerprint(ask, given.name) if origin.key else given.digest,
            request_id=log_context.current_request(),
            on_question=given.on_question,
            principal=who.dump(given.name.owner),
            audit=started_as(given, run_id),
            wanted=wanted if ask.how.background else None,
            also=None if origin.also is None else (origin.also, stored),
            charges=given.charges,
        )

        def store(session: Session) -> int | None:
            key = enqueue(session, given.name, new, control=control, behind_question=behind, anyway=anyway)
            if key is not None and then is not None:
                then(session, key)
            return key

        for attempt in range(1, _ATTEMPTS + 1):
            try:
                key = await self._db.database.write(store)
            except Conflict as error:
                # Two made the thread at the same moment, or PostgreSQL has broken up a deadlock: this locks the thread
                # and then what its request is charged to, which a request that begins a run locks before its thread.
                if type(error) is not Conflict or attempt == _ATTEMPTS:
                    raise
            else:
                if origin.also is not None and key is not None:
                    origin.also.row_id = run_id
                return (new.run_id, outlook, int(new.at.timestamp())), key
        raise AssertionError("the last attempt returns or raises")
