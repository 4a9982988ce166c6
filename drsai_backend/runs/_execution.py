"""A run from its first write to its last: turns are stored, then shown; the end is stored, whatever it is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from autogen_agentchat.messages import BaseChatMessage, ModelClientStreamingChunkEvent

from drsai_backend.database import Database
from drsai_backend.database.runs.commands import join_writes, queued_inputs, release
from drsai_backend.database.runs.steps import steps_are_stored, store_steps
from drsai_backend.database.runs.writes import (
    EndWrite,
    Lease,
    NewMessage,
    TurnWrite,
    append_turn,
    confirm_end,
    confirm_turn,
    end_run,
)
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.base import JsonText
from drsai_backend.errors import Conflict, DatabaseError, DatabaseUnavailable, LeaseLost
from drsai_backend.runs._bounds import Bounds
from drsai_backend.runs._failures import HandedOver, PauseRequested, RunInterrupted, failure_text, safe_message
from drsai_backend.runs._live import LiveRun
from drsai_backend.runs._replay import told
from drsai_backend.runs._stored_request import messages_from
from drsai_backend.runs._task import check_types, input_request, outward_handoff, spoken
from drsai_backend.runs.events import MessageDone, RunEnded, TextDelta
from drsai_backend.runs.transcript import Cast, cast_of, is_shown
from drsai_backend.state import ResumeRecord
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.limits import LimitReached
from drsai_backend.teams.recording.recorder import Message, Turn
from drsai_backend.teams.replay.steps import Step, TurnSteps
from drsai_backend.teams.session import TeamSession
from drsai_backend.teams.suspension import InputBroker, InputRequired, StopRequested

log = logging.getLogger("drsai.run")
T = TypeVar("T")

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0


class Execution:
    """One run under way. `session` and `lease` are set before `run`.

    Args:
        bounds: counts what the run uses, and ends it when that is too much.
        outage: seconds that a write waits for a database that cannot be reached.
        recorded: what is recorded of the turn in flight, where the run goes on.

    Attributes:
        steps: records and replays what agents do inside a turn.
        imported: what a client brought along of a conversation had elsewhere, known to the agents before the task.
        task: the task's messages, or None to go on at the boundary where `pending` were held.
        messages: what the team has said in this run so far, in order.
        journal_chars: size of its journal entries.
        steered: texts of the user's that came while the team ran.
        keyed: whether a request that brought the run about may have an idempotency key.
        usage_before: what the run had used before it was resumed after a question or a pause.
    """

    def __init__(
        self,
        database: Database,
        context: RunContext,
        broker: InputBroker,
        live: LiveRun,
        outage: float,
        bounds: Bounds,
        recorded: Iterable[Any] = (),
    ) -> None:
        self._database = database
        self._broker = broker
        self._outage = outage
        self._started = time.perf_counter()
        self._cast: Cast
        self._given: set[str] = set()
        """Ids of messages that came from the client while the run lived."""
        self.context = context
        self.live = live
        self.bounds = bounds
        context.meter.check = self._may_ask
        given = (Step(each.agent, each.step, each.digest, each.value) for each in recorded)
        self.steps = TurnSteps(given, self._store_steps, live.emit)
        self.session: TeamSession
        self.lease: Lease
        self.imported: list[BaseChatMessage] = []
        self.task: list[BaseChatMessage] | None = None
        self.pending: list[str] | None = None
        self.messages: list[Message] = []
        self._chooses_first = False
        self._in_doubt: tuple[Turn, TurnWrite] | None = None
        self.journal_chars = 0
        self.steered: list[str] = []
        self.keyed = False
        self.usage_before: dict[str, int] = {}

    @property
    def names(self) -> dict[str, str]:
        """For log lines, also where nothing adds them (`log_context`)."""
        return {"thread_id": self.live.thread_id, "run_id": self.live.run_id}

    async def run(self) -> ResumeRecord | None:
        """Run the team and store the end. Returns the last resume record when the team came to an end by itself, so
        that its objects are the stored state; None otherwise."""
        self._chooses_first = self.session.report_first_boundary and self.pending is None
        self._cast = cast_of(self.session.team)
        try:
            self.bounds.start(self._time_is_over)
            try:
                end, last = await self._team()
            finally:
                self.bounds.stop()
            await self._store_end(end, last)
        except LeaseLost as error:
            # Somebody else runs it by now, and shows what becomes of it.
            log.warning("run lost: %s", error.message, extra=self.names)
            self._show_moved(error.code, error.message)
            return None
        except HandedOver as handed:
            await self._hand_over()
            log.info("run handed over", extra=self.names)
            self._show_moved(handed.code, str(handed))
            return None
        except DatabaseError as error:
            # Nobody may be told that the run is over: it is not. Whoever takes the lease goes on with it.
            log.error("run not ended: %s", error.message, extra=self.names)
            self._show_moved(error.code, error.message)
            return None
        return None if last is None else last.entry.resume

    # --- the team's part ----------------------------------------------------------------------------------------

    async def _team(self) -> tuple[EndWrite, Turn | None]:
        """Run the team; however it ends, say what is to be stored.

        Raises:
            LeaseLost, HandedOver: there is nothing to be stored here.
        """
        live = self.live
        try:
            result, last = await self.session.run(self.task, pending=self.pending, token=live.token)
        except (LeaseLost, HandedOver):
            raise
        except (InputRequired, PauseRequested) as waits:
            if self._stop is not None:
                return self._stopped(self._stop), None
            return (self._ask(waits) if isinstance(waits, InputRequired) else self._pause()), None
        except StopRequested as stop:
            return self._stopped(stop), None
        except asyncio.CancelledError:
            if self._stop is not None:
                return self._stopped(self._stop), None
            if isinstance(live.failure, LeaseLost):
                raise live.failure from None
            if live.leaving:
                raise HandedOver from None
            return self._failed(live.failure or RunInterrupted()), None
        except Exception as error:  # noqa: BLE001 - the boundary at which whatever a team raises ends its run
            return self._failed(error), None
        self.messages += [message.message for message in last.messages]
        handoff = outward_handoff(self.session.team, self.messages)
        if handoff is not None:
            request = input_request(InputRequired(handoff.source, handoff.content, kind="handoff"))
            return self._end(RunStatus.AWAITING_INPUT, reason=result.stop_reason, request=request, turn=last), last
        return self._end(RunStatus.COMPLETED, reason=result.stop_reason, turn=last), last

    @property
    def _stop(self) -> StopRequested | None:
        """Why the run was cancelled, where somebody wants it to stop or its time is over."""
        return StopRequested("The run was stopped.") if self.live.stop_requested else self.live.limit

    def _ask(self, question: InputRequired) -> EndWrite:
        progress, request = self.bounds.progress(), input_request(question)
        # What was done in the turn so far is not done again when the answer is there.
        steps, deadline = self.steps.unstored(), question.deadline
        return EndWrite(RunStatus.AWAITING_INPUT, None, None, None, request, progress, deadline=deadline, steps=steps)

    def _pause(self) -> EndWrite:
        # What is recorded of a turn that was cut stays for its repetition.
        return EndWrite(RunStatus.PAUSED, None, "The run was paused.", None, None, self.bounds.progress())

    def _stopped(self, stop: StopRequested) -> EndWrite:
        end = self._end(RunStatus.STOPPED, reason=str(stop))
        end.stop_code = stop.code if isinstance(stop, LimitReached) else None
        return end

    def _end(
        self,
        status: RunStatus,
        *,
        reason: str | None = None,
        request: dict[str, Any] | None = None,
        turn: Turn | None = None,
    ) -> EndWrite:
        write = None if turn is None else self._write(turn)
        progress = self.bounds.progress() if write is None else write.progress
        return self._end_write(EndWrite(status, write, reason, None, request, progress))

    def _failed(self, error: BaseException) -> EndWrite:
        self.live.failure, self.live.failed_agent = error, self.session.blamed(error)
        text = failure_text(error, self.live.team, self.live.failed_agent)
        return self._end_write(EndWrite(RunStatus.ERROR, None, None, text, None, self.bounds.progress()))

    def _end_write(self, end: EndWrite) -> EndWrite:
        end.clear_steps = self.steps.turn_done()
        return end

    def on_chunk(self, chunk: ModelClientStreamingChunkEvent) -> None:
        """Show a piece of text at once; it is not stored."""
        self.live.emit(TextDelta(chunk.source, chunk.content, chunk.full_message_id))

    async def on_turn(self, turn: Turn) -> None:
        """Store a turn, then show its messages, then do what others ask of the run. What it raises ends the run."""
        # Between the task and the first speaker nobody has spoken.
        is_choice = self._chooses_first
        self._chooses_first = False
        await self._append(turn, counts=not is_choice)
        await self.at_boundary()

    async def on_nested_turn(self) -> None:
        """A turn of a nested team starts. What it raises ends the run."""
        try:
            self.bounds.inner_turn()
        except LimitReached as reached:
            raise self._broker.end(reached) from None
        await self.steps.flush()

    def _may_ask(self) -> None:
        """A model is about to be asked."""
        try:
            self.bounds.check_tokens()
        except LimitReached as reached:
            raise self._broker.end(reached) from None

    def _time_is_over(self, reached: LimitReached) -> None:
        self.live.limit = reached
        self.live.token.cancel()

    async def at_boundary(self) -> None:
        """Between two turns: leave, stop, pause, or take up what the user has said meanwhile.

        Raises:
            HandedOver, StopRequested, PauseRequested: the run does not go on here.
        """
        if self.lease.control == "cancel":
            raise StopRequested("The run was stopped.")
        if self.live.leaving:
            raise HandedOver
        repeats = self.steps.repeats or self._broker.answers
        if self.lease.control == "pause":
            # Before a turn that is repeated, nobody has spoken since the team was loaded.
            paused = None if repeats else await self.session.pause()
            if paused is not None:
                await self._append(paused, counts=False)
            raise PauseRequested
        self.bounds.check()
        # A turn that is repeated must see what it saw: then new messages wait for its end.
        if self.lease.control == "steer" and not repeats:
            await self._steer()

    async def _steer(self) -> None:
        """Hand the user's new messages to everybody, as a turn of their own."""
        key = self.lease.key
        waiting = await self._database.read(lambda session: queued_inputs(session, key, "steer"))
        messages: list[BaseChatMessage] = []
        taken: list[tuple[str, int]] = []
        for row in waiting:
            # Clients send the whole conversation; what the user said last is new.
            new = messages_from(row["request"])
            if all(message.message is None for message in new):
                new = new[-1:]
            messages += spoken(check_types(self.session.team, new))
            self.steered += [message.text for message in new]
            taken.append((row["run_id"], self.lease.last_seq + len(messages)))
        self._given.update(message.id for message in messages)
        self.keyed = True
        await self.session.steer(messages)
        await self._append(await self.session.capture_turn(), counts=False, also=join_writes(self.lease, taken))

    async def _append(self, turn: Turn, *, counts: bool, also: Sequence[Any] = ()) -> None:
        write = self._write(turn, counts=counts)
        write.also = also
        self._in_doubt = turn, write
        self.lease = await self._patiently(
            lambda session, lease=self.lease: append_turn(session, lease, write),
            lambda session, lease=self.lease: confirm_turn(session, lease, write),
            short=write.is_short,
        )
        self._stored(turn, write)

    async def _resolve_doubt(self) -> bool:
        """Whether a turn was stored although the run was cancelled before it heard of that: a write that has begun is
        committed all the same. Then it counts, and is shown."""
        if self._in_doubt is None:
            return False
        (turn, write), self._in_doubt = self._in_doubt, None
        confirmed = await self._database.read(lambda session: confirm_turn(session, self.lease, write))
        if confirmed is None:
            return False
        self.lease = confirmed
        self._stored(turn, write)
        return True

    def _stored(self, turn: Turn, write: TurnWrite) -> None:
        self._in_doubt = None
        self.bounds.turn_stored(write.progress)
        self._broker.turn_done()
        self.messages += [message.message for message in turn.messages]
        self._show(turn)

    def _write(self, turn: Turn, *, counts: bool = True) -> TurnWrite:
        rows = [NewMessage(each.seq, JsonText(each.config), self._is_shown(each.message)) for each in turn.messages]
        payload = turn.entry.encode()
        self.journal_chars += len(payload)
        answered, recorded = bool(self._broker.answers), self.steps.turn_done()
        progress = self.bounds.progress(turn=counts)
        return TurnWrite(payload, rows, progress, clear_answers=answered, clear_steps=recorded)

    async def _store_steps(self, steps: Sequence[Step]) -> None:
        lease, progress = self.lease, self.bounds.progress()

        def write(session: Any) -> bool:
            store_steps(session, lease, steps, progress)
            return True

        await self._patiently(write, lambda session: steps_are_stored(session, lease, steps) or None)

    async def _patiently(
        self, write: Callable[[Any], T], confirm: Callable[[Any], T | None], *, short: bool = False
    ) -> T:
        """Write, and wait for a database that cannot be reached. Once it is back, `confirm` tells whether a write whose
        COMMIT was cut off went through all the same.

        Raises:
            DatabaseUnavailable: it did not come back in time.
            LeaseLost: somebody else has taken the thread meanwhile.
        """
        pause, waited, again = _FIRST_PAUSE, 0.0, False
        while True:
            try:
                if again:
                    confirmed = await self._database.read(confirm)
                    if confirmed is not None:
                        return confirmed
                return await self._database.write(write, short=short)
            except LeaseLost:
                raise
            except (DatabaseUnavailable, Conflict) as error:
                # A conflict here is a deadlock that the database has broken up.
                if waited >= (self._outage if isinstance(error, DatabaseUnavailable) else _LONGEST_PAUSE):
                    raise
                log.warning("a run waits for the database: %s", error.message, extra=self.names)
                await asyncio.sleep(pause)
                waited += pause
                pause, again = min(2 * pause, _LONGEST_PAUSE), True

    # --- the end ------------------------------------------------------------------------------------------------

    async def _store_end(self, end: EndWrite, last: Turn | None) -> None:
        """Store the end, patiently, and show it."""
        ended = self._ended(end)
        if self.keyed:
            last_seq = end.turn.messages[-1].seq if end.turn and end.turn.messages else self.lease.last_seq
            end.told = told(ended, speakers=self.live.speakers, last_seq=last_seq)
        try:
            self.lease = await self._end_run(end)
        except LeaseLost:
            if not await self._resolve_doubt():
                raise
            self.lease = await self._end_run(end)
        if last is not None:
            self._show(last)
        self._log_end(end, self.live.failure)
        self.live.emit(ended)

    async def _end_run(self, end: EndWrite) -> Lease:
        lease = self.lease
        return await self._patiently(
            lambda session: end_run(session, lease, end),
            lambda session: confirm_end(session, lease),
            short=end.turn is None or end.turn.is_short,
        )

    async def _hand_over(self) -> None:
        # A turn that was cut is repeated: what is known of it is kept. One that may be stored has none.
        lease, steps = self.lease, () if self._in_doubt else self.steps.unstored()
        progress = self.bounds.progress()
        try:
            await self._database.write(lambda session: release(session, lease, progress, steps))
        except LeaseLost:
            return
        except DatabaseError as error:
            log.warning("a lease was not handed over and will run out: %s", error.message, extra=self.names)

    def _show_moved(self, code: str, text: str) -> None:
        """The run is not over, but it is not here any more."""
        self.live.emit(RunEnded(RunStatus.RUNNING, error_code=code, error_message=text))

    def _show(self, turn: Turn) -> None:
        for message in turn.messages:
            self.live.emit(MessageDone(message.seq, message.message, self._is_shown(message.message)))

    def _is_shown(self, message: Message) -> bool:
        return message.id not in self._given and is_shown(message, self._cast)

    def _ended(self, end: EndWrite) -> RunEnded:
        failure = self.live.failure
        return RunEnded(
            end.status,
            end.stop_reason,
            end.progress.usage,
            time.perf_counter() - self._started,
            end.input_request,
            None if failure is None else safe_message(failure)[0],
            end.error_message,
            end.stop_code,
            usage_before=self.usage_before,
        )

    def _log_end(self, end: EndWrite, failure: BaseException | None) -> None:
        level = logging.ERROR if end.status is RunStatus.ERROR else logging.INFO
        if not log.isEnabledFor(level):
            return
        used = {
            "status": end.status.value,
            "team": self.live.team,
            "turns": end.progress.turns,
            "tokens": end.progress.usage["total_tokens"],
            "duration": end.progress.seconds,
            "reason": end.stop_code or end.error_message or end.stop_reason,
        }
        log.log(level, "run ended", extra={**self.names, **used}, exc_info=failure)
