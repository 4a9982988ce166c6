"""An execution is a run under way: its team works, turn by turn, and however it ends, that is stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from uuid import uuid4

from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, ModelClientStreamingChunkEvent
from autogen_agentchat.teams import BaseGroupChat

from drsai_backend.database.runs.values import EndWrite
from drsai_backend.datamodel import RunStatus, utcnow
from drsai_backend.errors import DatabaseError, DatabaseUnavailable, LeaseLost
from drsai_backend.json_types import JsonObject
from drsai_backend.models.endpoints.thoughts import ThoughtSplitter
from drsai_backend.runs.events import TextDelta, ThoughtDelta
from drsai_backend.runs.execution.steering import Steering
from drsai_backend.runs.execution.writer import RunWriter
from drsai_backend.runs.failures import HandedOver, PauseRequested, RunInterrupted, failure_text
from drsai_backend.runs.feed.live_run import LiveRun
from drsai_backend.runs.gate import Gate
from drsai_backend.runs.threads.rights import may_answer, told_to_asker
from drsai_backend.state import ResumeRecord
from drsai_backend.teams.client_tools.definitions import new_call_id
from drsai_backend.teams.limits import LimitReached
from drsai_backend.teams.messages import ASIDE, ThoughtChunkEvent
from drsai_backend.teams.recording.recorder import Message, Turn
from drsai_backend.teams.session import TeamSession, Watcher
from drsai_backend.teams.suspension import InputRequired, RunPaused, StopRequested

log = logging.getLogger("drsai.run")


class Execution:
    """One run that holds its lease.

    Args:
        task: the task's messages, or None to resume at the boundary where `pending` were held.
    """

    def __init__(
        self,
        writer: RunWriter,
        session: TeamSession,
        *,
        task: Sequence[BaseChatMessage] | None,
        pending: Sequence[str] | None,
    ) -> None:
        self.writer = writer
        self.live: LiveRun = writer.live
        """The run as others see it."""
        self.session = session
        self.steering = Steering(writer, session)
        self._task = task
        self._pending = pending
        self._chooses_first = session.report_first_boundary and pending is None
        # By speaker: the message that it is producing.
        self._splitters: dict[str, tuple[str | None, ThoughtSplitter]] = {}

    async def run(self, ends: Gate) -> ResumeRecord | None:
        """Run the team, and store the end when `ends` lets it. Returns the last resume record when the team came to an
        end by itself, so that its objects are the stored state; None otherwise.

        Raises:
            Exception: the end cannot be stored, although the database is there.
        """
        writer = self.writer
        try:
            writer.steps.start(writer.store_steps, lambda: writer.lease.turn)
            writer.bounds.start(self._time_is_over)
            try:
                end, last = await self._run_team()
            finally:
                writer.bounds.stop()
            await ends.through(self.live.name.owner, partial(writer.end, end, last))
        except LeaseLost as error:
            # Somebody else runs it by now, and shows what becomes of it.
            log.warning("run lost: %s", error.message, extra=writer.fields)
            writer.show_moved(error.code, error.message)
            return None
        except HandedOver as handed:
            await writer.hand_over()
            log.info("run handed over", extra=writer.fields)
            writer.show_moved(handed.code, str(handed))
            return None
        except DatabaseError as error:
            # Nobody may be told that the run is over: it is not. Whoever takes the lease resumes it.
            log.error("run not ended: %s", error.message, extra=writer.fields)
            writer.show_moved(error.code, error.message)
            if not isinstance(error, DatabaseUnavailable):
                raise  # A database that refuses will do so again.
            return None
        return None if last is None else last.entry.resume

    def close(self) -> None:
        """Let go of the team, and of what it was given. Each of these refers to the others: left as they are, the
        collector would have to find them among all that other runs hold, and nothing else happens meanwhile."""
        self.session.close()
        self.writer.steps.close()
        meter = self.writer.bounds.meter
        meter.check = meter.each = meter.failed = meter.reserve = meter.is_made_again = None

    async def _run_team(self) -> tuple[EndWrite, Turn | None]:
        """Run the team; however it ends, say what is to be stored.

        Raises:
            LeaseLost, HandedOver: there is nothing to be stored here.
        """
        writer = self.writer
        try:
            try:
                result, last = await self.session.run(
                    self._task,
                    pending=self._pending,
                    token=self.live.token,
                    watcher=Watcher(self._on_turn, self._on_chunk, self.steering.at_boundary, self._on_nested_turn),
                )
            finally:
                writer.bounds.meter.cut_off()
                if writer.steps.writing is not None:  # Who asked for it was cancelled; it is a part of the turn.
                    await asyncio.wait((writer.steps.writing,))
        except LeaseLost:
            raise
        except (InputRequired, PauseRequested, StopRequested, asyncio.CancelledError) as cut:
            return self._cut_off(cut), None
        except Exception as error:  # noqa: BLE001 - the boundary at which whatever a team raises ends its run
            return self._failed(error), None
        writer.messages += [message.message for message in last.messages]
        handoff = _outward_handoff(self.session.team, writer.messages)
        if handoff is None:
            return self._end(RunStatus.COMPLETED, last, stop_reason=result.stop_reason), last
        end = self._end(RunStatus.AWAITING_INPUT, last, stop_reason=result.stop_reason)
        return self._asking(end, InputRequired(handoff.source, handoff.content, kind="handoff")), last

    # --- while the team runs ------------------------------------------------------------------------------------

    async def _on_turn(self, turn: Turn) -> None:
        # Between the task and the first speaker nobody has spoken.
        is_choice, self._chooses_first = self._chooses_first, False
        await self.writer.append(turn, counts=not is_choice)
        self.live.leaving |= self.live.is_suspect
        await self.steering.at_boundary()

    async def _on_nested_turn(self) -> None:
        try:
            self.writer.bounds.inner_turn()
        except LimitReached as reached:
            raise self.writer.broker.end(reached) from None
        await self.writer.steps.flush()

    def _on_chunk(self, chunk: ModelClientStreamingChunkEvent) -> None:
        """Show a piece of text at once; it is not stored."""
        source, message_id, shown = chunk.source, chunk.full_message_id, ASIDE not in chunk.metadata
        if type(chunk) is ThoughtChunkEvent:
            self.live.emit(ThoughtDelta(source, chunk.content, message_id, shown))
            return
        splitter = self._splitters.get(source)
        # AutoGen streams the answers of several model calls under one id; an empty piece begins one.
        if splitter is None or not chunk.content or splitter[0] != message_id:
            splitter = self._splitters[source] = message_id, ThoughtSplitter()
        if not chunk.content:
            return
        if splitter[1].is_text:
            self.live.emit(TextDelta(source, chunk.content, message_id, shown))
            return
        for is_thought, text in splitter[1].feed(chunk.content):
            kind = ThoughtDelta if is_thought else TextDelta
            self.live.emit(kind(source, text, message_id, shown))

    def _time_is_over(self, reached: LimitReached) -> None:
        self.live.limit = reached
        self.live.token.cancel()

    # --- how it ends --------------------------------------------------------------------------------------------

    @property
    def _stop(self) -> StopRequested | None:
        """Why the run was cancelled, where somebody wants it to stop or its time is over."""
        return StopRequested("The run was stopped.") if self.live.stop_requested else self.live.limit

    def _cut_off(self, cut: BaseException) -> EndWrite:
        """Say what is to be stored of a run that somebody has stopped, that waits, or that is cancelled.

        Raises:
            LeaseLost, HandedOver: there is nothing to be stored here.
        """
        live, stop = self.live, cut if isinstance(cut, StopRequested) else self._stop
        if stop is not None:
            return self._stopped(stop)
        if isinstance(cut, InputRequired):
            # What was done in the turn so far is not done again when the answer is there.
            steps, progress = self.writer.steps.unstored(), self.writer.progress()
            if isinstance(cut, RunPaused):
                end = EndWrite(status=RunStatus.PAUSED, progress=progress, steps=steps, stop_reason=cut.prompt)
                end.stop_code, end.turns_away = cut.code, True
                return end
            return self._asking(EndWrite(status=RunStatus.AWAITING_INPUT, progress=progress, steps=steps), cut)
        if isinstance(cut, PauseRequested):
            return self._paused()
        if isinstance(live.failure, LeaseLost):
            raise live.failure from None
        if live.leaving:
            raise HandedOver from None
        return self._failed(live.failure or RunInterrupted())

    def _asking(self, end: EndWrite, question: InputRequired) -> EndWrite:
        """Return an end with a question, as it is stored with the thread and with the run."""
        now = utcnow()
        deadline = question.deadline
        if isinstance(deadline, timedelta):
            deadline = now + deadline
        stored: JsonObject = {
            "id": str(uuid4()),
            "type": question.type,
            "kind": question.kind,
            "source": question.source,
            "prompt": question.prompt,
            "choices": None if question.choices is None else list(question.choices),
            "asked_at": now.isoformat(),
            "deadline": None if deadline is None else deadline.isoformat(),
            "tool": question.tool,
            **{name: value for name in ("key", "place") if (value := getattr(question, name)) is not None},
        }
        if question.tool_calls is not None:
            asked, turn, run_id = len(self.writer.broker.results), self.writer.lease.turn, self.live.run_id
            calls = enumerate(question.tool_calls, asked)
            stored["tool_calls"] = [{"id": new_call_id(run_id, turn, number), **call} for number, call in calls]
            stored["content"] = question.content
            stored |= {} if question.thought is None else {"thought": question.thought}
        whom = {"by": question.by, "not_by": question.not_by}
        asker = self.writer.broker.asker
        if any(whom.values()) and asker is not None:
            whom["asker"] = asker.user_id
            stored |= {key: value for key, value in whom.items() if value is not None}
            if not may_answer(asker, stored):
                stored |= {"prompt": f"{question.prompt}\n\n{told_to_asker(stored)}", "for_others": True}
        if question.type == "approval":
            stored["number"] = stored["id"][:6]
        waits_for = question.by or f"user:{self.live.name.user_id}"
        end.input_request, end.deadline, end.waits_for = stored, deadline, waits_for
        return end

    def _paused(self) -> EndWrite:
        # What is recorded of a turn that was cut stays for its repetition.
        progress = self.writer.progress()
        return EndWrite(status=RunStatus.PAUSED, progress=progress, stop_reason="The run was paused.")

    def _stopped(self, stop: StopRequested) -> EndWrite:
        code = stop.code if isinstance(stop, LimitReached) else None
        return self._end(RunStatus.STOPPED, stop_reason=str(stop), stop_code=code)

    def _failed(self, error: BaseException) -> EndWrite:
        live = self.live
        live.failure, live.failed_agent = error, self.session.blamed(error)
        return self._end(RunStatus.ERROR, error_message=failure_text(error, live.team, live.failed_agent))

    def _end(
        self,
        status: RunStatus,
        last: Turn | None = None,
        *,
        stop_reason: str | None = None,
        stop_code: str | None = None,
        error_message: str | None = None,
    ) -> EndWrite:
        """The end of a turn, and of what was recorded in it."""
        writer = self.writer
        turn = None if last is None else writer.write_of(last)
        progress = writer.progress() if turn is None else turn.progress
        steps = writer.steps.unstored() if turn is None else ()
        clear = writer.steps.turn_done()
        return EndWrite(
            status=status,
            progress=progress,
            turn=turn,
            steps=steps,
            clear_steps=clear,
            stop_reason=stop_reason,
            stop_code=stop_code,
            error_message=error_message,
        )


def _outward_handoff(team: BaseGroupChat, messages: Sequence[Message]) -> HandoffMessage | None:
    """The handoff to somebody outside the team that a run ended with."""
    for message in reversed(messages):
        if isinstance(message, HandoffMessage) and message.target not in team._participant_names:  # pyright: ignore[reportPrivateUsage]
            return message
        if isinstance(message, BaseChatMessage):
            return None
    return None
