"""A run from its first write to its last: turns are stored, then shown; the end is stored, whatever it is."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any
from uuid import uuid4

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, ModelClientStreamingChunkEvent

from drsai_backend.database import Database
from drsai_backend.database.threads import EndWrite, Lease, NewMessage, TurnWrite, append_turn, end_run
from drsai_backend.datamodel import RunStatus, utcnow
from drsai_backend.datamodel.types import JsonText
from drsai_backend.errors import DatabaseError, LeaseLost
from drsai_backend.runs._failures import RunInterrupted, safe_message
from drsai_backend.runs._live import LiveRun
from drsai_backend.runs._task import outward_handoff
from drsai_backend.runs.events import MessageDone, RunEnded, TextDelta
from drsai_backend.state import ResumeRecord
from drsai_backend.teams._recorder import Message, Turn
from drsai_backend.teams._session import TeamSession
from drsai_backend.teams._wiring import leaf_agents
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.suspension import InputBroker, InputRequired

log = logging.getLogger("drsai.run")

_END_ATTEMPTS = 6
_FIRST_PAUSE = 0.1


class Execution:
    """One run under way. `session` and `lease` are set before `run`.

    Attributes:
        task: the task's messages, or None to go on at the boundary where `pending` were held.
        messages: what the team has said in this run so far, in order.
        stored_chars: size of the message dumps this run has stored.
        journal_chars: size of its journal entries.
    """

    def __init__(self, database: Database, context: RunContext, broker: InputBroker, live: LiveRun) -> None:
        self._database = database
        self._broker = broker
        self._started = time.perf_counter()
        self._hidden: frozenset[str] = frozenset()
        self.context = context
        self.live = live
        self.session: TeamSession
        self.lease: Lease
        self.task: list[BaseChatMessage] | None = None
        self.pending: list[str] | None = None
        self.messages: list[Message] = []
        self.stored_chars = 0
        self.journal_chars = 0

    @property
    def _names(self) -> dict[str, str]:
        return {"thread_id": self.live.thread_id, "run_id": self.live.run_id}

    async def run(self) -> ResumeRecord | None:
        """Run the team and store the end. Returns the last resume record when the team came to an end by itself, so
        that its objects are the stored state; None otherwise."""
        team = self.session.team
        self._hidden = frozenset(agent.name for agent in leaf_agents(team) if isinstance(agent, UserProxyAgent))
        end, last = await self._team()
        try:
            await self._store_end(end, last)
        except (LeaseLost, DatabaseError) as error:
            # Nobody else may be told that the run is over: it is not. Whoever holds or takes the lease ends it.
            log.error("run not ended: %s", error.message, extra=self._names)
            self._show_end(EndWrite(RunStatus.ERROR, None, None, error.message, None, {}), error)
            return None
        return None if last is None else last.entry.resume

    # --- the team's part ----------------------------------------------------------------------------------------

    async def _team(self) -> tuple[EndWrite, Turn | None]:
        """Run the team; however it ends, say what is to be stored."""
        live = self.live
        try:
            result, last = await self.session.run(self.task, pending=self.pending, token=live.token)
        except InputRequired as question:
            request = _input_request("agent", question.source, question.prompt)
            return self._end(RunStatus.AWAITING_INPUT, request=request), None
        except asyncio.CancelledError:
            if live.stop_requested:
                return self._end(RunStatus.STOPPED, reason="The run was stopped."), None
            return self._failed(live.failure or RunInterrupted()), None
        except Exception as error:  # noqa: BLE001 - the boundary at which whatever a team raises ends its run
            return self._failed(error), None
        self.messages += [message.message for message in last.messages]
        handoff = outward_handoff(self.session.team, self.messages)
        if handoff is not None:
            request = _input_request("handoff", handoff.source, handoff.content)
            return self._end(RunStatus.AWAITING_INPUT, reason=result.stop_reason, request=request, turn=last), last
        return self._end(RunStatus.COMPLETED, reason=result.stop_reason, turn=last), last

    def _end(
        self,
        status: RunStatus,
        *,
        reason: str | None = None,
        request: dict[str, Any] | None = None,
        turn: Turn | None = None,
    ) -> EndWrite:
        write = None if turn is None else self._write(turn)
        return EndWrite(status, write, reason, None, request, self.context.meter.as_dict())

    def _failed(self, error: BaseException) -> EndWrite:
        code, text = safe_message(error)
        self.live.failure = error
        log.error("run failed: %s", code, extra=self._names, exc_info=error)
        return EndWrite(RunStatus.ERROR, None, None, text, None, self.context.meter.as_dict())

    def on_chunk(self, chunk: ModelClientStreamingChunkEvent) -> None:
        """Show a piece of text at once; it is not stored."""
        self.live.emit(TextDelta(chunk.source, chunk.content, chunk.full_message_id))

    async def on_turn(self, turn: Turn) -> None:
        """Store a turn, then show its messages. What it raises ends the run."""
        lease, write = self.lease, self._write(turn)
        self.lease = await self._database.write(lambda session: append_turn(session, lease, write))
        self._broker.turn_done()
        self.messages += [message.message for message in turn.messages]
        self._show(turn)

    def _write(self, turn: Turn) -> TurnWrite:
        rows = [NewMessage(message.seq, JsonText(message.config)) for message in turn.messages]
        self.stored_chars += sum(len(message.config) for message in turn.messages)
        payload = turn.entry.encode()
        self.journal_chars += len(payload)
        return TurnWrite(payload, rows, clear_answers=bool(self._broker.answers))

    # --- the end ------------------------------------------------------------------------------------------------

    async def _store_end(self, end: EndWrite, last: Turn | None) -> None:
        """Store the end, patiently: a run left RUNNING would have to be recovered."""
        lease = self.lease
        pause = _FIRST_PAUSE
        for attempt in range(_END_ATTEMPTS):
            try:
                self.lease = await self._database.write(lambda session: end_run(session, lease, end))
                break
            except DatabaseError as error:
                if attempt == _END_ATTEMPTS - 1:
                    raise
                log.warning("the end of a run waits for the database: %s", error.message, extra=self._names)
                await asyncio.sleep(pause)
                pause *= 2
        if last is not None:
            self._show(last)
        self._show_end(end, self.live.failure)

    def _show(self, turn: Turn) -> None:
        for message in turn.messages:
            self.live.emit(MessageDone(message.seq, message.message, self._is_shown(message.message)))

    def _is_shown(self, message: Message) -> bool:
        if not isinstance(message, BaseChatMessage) or message.source in self._hidden:
            return False
        if isinstance(message, HandoffMessage):
            return message.target not in self.session.team._participant_names
        return True

    def _show_end(self, end: EndWrite, failure: BaseException | None) -> None:
        duration = time.perf_counter() - self._started
        code = None if failure is None else safe_message(failure)[0]
        self.live.emit(
            RunEnded(end.status, end.stop_reason, end.usage, duration, end.input_request, code, end.error_message)
        )


def _input_request(kind: str, source: str, prompt: str) -> dict[str, Any]:
    return {
        "id": str(uuid4()),
        "type": "text_input",
        "kind": kind,
        "source": source,
        "prompt": prompt,
        "choices": None,
        "asked_at": utcnow().isoformat(),
    }
