"""The writer keeps in the database what a run does, and shows it then. A write waits for a database that is away."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from autogen_agentchat.messages import BaseChatMessage, TextMessage, ThoughtEvent

from drsai_backend.database import Database, patiently
from drsai_backend.database.backends.prepared import Step as Statement
from drsai_backend.database.hooks import NO_HOOKS, CallsOf, Hooks
from drsai_backend.database.runs.commands import release
from drsai_backend.database.runs.steps import read_steps, steps_are_stored, store_steps
from drsai_backend.database.runs.values import LEAST_DEBT, EndWrite, Lease, NewMessage, Progress, TurnWrite
from drsai_backend.database.runs.writes import append_turn, confirm_end, confirm_turn, end_run
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.base import JsonText
from drsai_backend.errors import DatabaseError, EndpointFailed, LeaseLost
from drsai_backend.json_types import JsonObject, storable_text, storable_value
from drsai_backend.models import Finish
from drsai_backend.runs.events import MessageDone, RunEnded, TurnsStored
from drsai_backend.runs.execution.bounds import Bounds
from drsai_backend.runs.failures import raised_text, safe_message
from drsai_backend.runs.feed.live_run import LiveRun
from drsai_backend.runs.feed.replay import told
from drsai_backend.runs.history.digest import Conversation, flat
from drsai_backend.runs.requests import InputMessage
from drsai_backend.runs.transcript import SAID_BEFORE, Transcript, asked_after, notice_of
from drsai_backend.teams.imported import is_unfinished
from drsai_backend.teams.kept_calls import kept_calls
from drsai_backend.teams.messages import REASONING
from drsai_backend.teams.recording.recorder import Message, Turn, dump_message, storable
from drsai_backend.teams.replay.steps import Step, TurnSteps
from drsai_backend.teams.suspension import InputBroker

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

log = logging.getLogger("drsai.run")
_USUAL: Final = Finish()
T = TypeVar("T")


@dataclass(eq=False)
class RunWriter:
    """Writes one run under its lease.

    Attributes:
        lease: the right to write, as the last write has left it.
        outage: seconds that a write waits for a database that cannot be reached.
        keyed: whether a request that brought the run about may have an idempotency key.
        conversation: what its client has of the conversation, with all that was stored of this run.
        streams: whether its client is shown what models say beside their tool calls, as it comes.
        on_events: to be called when events for webhooks may have been stored; None: nobody can have asked for any.
        hooks: are told of model calls and of the end, in the transactions that store them.
        whose: says in log lines whose thread it is.
        usage_before: what the run had used before it was resumed after a question or a pause.
        paused_by: for which bound the run was paused that is resumed here, which webhooks were told; None: for none.
        messages: what the team has said in this run so far, in order.
        journal_debt: what its journal entries add to `Thread.journal_debt`.
    """

    database: Database
    lease: Lease
    live: LiveRun
    outage: float
    bounds: Bounds
    broker: InputBroker
    steps: TurnSteps
    transcript: Transcript
    conversation: Conversation
    keyed: bool
    usage_before: dict[str, int]
    streams: bool = False
    on_events: Callable[[], None] | None = None
    hooks: Hooks = NO_HOOKS
    whose: Mapping[str, str] = field(default_factory=dict[str, str])
    paused_by: str | None = None
    messages: list[Message] = field(default_factory=list[Message])
    journal_debt: int = 0
    _said: str | None = None
    """The last text that was shown."""
    _in_doubt: tuple[Turn, TurnWrite] | None = None

    @property
    def names(self) -> dict[str, str]:
        """For log lines, also where nothing adds them (`log_context`)."""
        return {"thread_id": self.live.name.thread_id, "run_id": self.live.run_id}

    @property
    def fields(self) -> dict[str, str]:
        """For log lines about the run itself."""
        return {**self.names, **self.whose, "team": self.live.team}

    async def append(self, turn: Turn, *, counts: bool, also: Sequence[Statement] = ()) -> None:
        """Store a turn, then show its messages. `counts`: somebody has spoken in it; `also` is stored with it."""
        if self.steps.writing is not None:  # of an agent that was cancelled: it is a part of this turn
            await asyncio.wait((self.steps.writing,))
        write = self.write_of(turn, counts=counts, also=also)
        self._in_doubt = turn, write
        self.lease = await self._patiently(
            lambda session, lease=self.lease: append_turn(session, lease, write),
            lambda session, lease=self.lease: confirm_turn(session, lease, write),
            short=write.is_short,
        )
        self._stored(turn, write)

    def write_of(self, turn: Turn, *, counts: bool = True, also: Sequence[Statement] = ()) -> TurnWrite:
        """Return what is to be stored of a turn; what was recorded inside of it is over."""
        store = self.transcript.store
        payload = turn.entry.encode(short=self.bounds.short_forms)
        debt = size if (size := len(payload)) > LEAST_DEBT else LEAST_DEBT
        self.journal_debt += debt
        return TurnWrite(
            payload=payload,
            debt=debt,
            messages=[
                NewMessage(each.seq, JsonText(each.config), store(each.seq, each.message)) for each in turn.messages
            ],
            progress=self.progress(turn=counts),
            clear_answers=bool(self.broker.answers),
            clear_steps=self.steps.turn_done(),
            also=also,
        )

    def progress(self, *, turn: bool = False) -> Progress:
        """Return how far the run has come, with what stores its new model calls for features. `turn`: with the turn
        that is about to be stored."""
        if not self.bounds.unstored:
            return self.bounds.progress(turn=turn)
        live, asker = self.live, self.broker.asker
        owner = live.name.owner if asker is None else asker.owner
        of = CallsOf(
            owner,
            "run",
            live.team,
            live.name.thread_id,
            live.run_id,
            self.lease.epoch,
            self.lease.turn + 1,
            None if asker is None else asker.key_id,
            live.name,
        )
        return self.bounds.progress(turn=turn, also=self.hooks.of_calls(of, [*self.bounds.unstored]))

    async def store_steps(self, steps: Sequence[Step]) -> None:
        """Store what agents have done in the turn in flight."""
        lease, progress = self.lease, self.progress()

        def write(session: Session) -> bool:
            store_steps(session, lease, steps, progress)
            return True

        await self._patiently(write, lambda session: steps_are_stored(session, lease, steps) or None)
        self.bounds.stored(progress)
        self.live.steps_done()

    async def end(self, end: EndWrite, last: Turn | None) -> None:
        """Store the end, and the last turn with it, then show both."""
        heard = [] if last is None else [each.message for each in last.messages]
        told_late = None
        said = None if end.status in (RunStatus.ERROR, RunStatus.PAUSED) else self.transcript.reveal()
        if said is not None:
            end.shown = said[0]
            if said[0] <= self.lease.last_seq:  # It was told, as none that is shown.
                told_late, heard = said[0], [said[1], *heard]
        failure, finish = self.live.failure, self._finish(end.status)
        ending = None if told_late is None else {"shown": told_late}
        ending = ending if failure is None else {"raised": storable_text(raised_text(failure))}
        # The words of models, tools, endpoints and exceptions, of any characters.
        asked = storable_value(self._asked(end.input_request, last))
        end.finish, end.ending, end.input_request = finish.stored(), ending, asked
        end.stop_reason = storable_value(end.stop_reason)
        if end.error_message is not None:
            end.error_message = storable_text(end.error_message)
        ended = RunEnded(
            end.status,
            end.stop_reason,
            end.progress.usage,
            time.perf_counter() - self.live.started,
            end.input_request,
            None if failure is None else safe_message(failure)[0],
            end.error_message,
            end.stop_code,
            usage_before=self.usage_before,
            finish_reason=finish.reason,
            service_tier=finish.service_tier,
            system_fingerprint=finish.system_fingerprint,
            shown=told_late,
        )
        cut = await self._cut(end)
        # One that is paused again for the same bound, before it has done anything, was told already.
        is_as_before = end.stop_code == self.paused_by and not (self.journal_debt or self.bounds.meter.calls)
        is_told = end.status is RunStatus.PAUSED and self.paused_by is not None and is_as_before
        end.raises_events = self.on_events is not None and not is_told
        try:
            self._complete(end, ended, cut)
            self.lease = await self._end_run(end, [*heard, *cut])
        except LeaseLost:
            if not await self._resolve_doubt():
                raise
            cut.clear()  # It was stored as a whole, with its calls.
            end.progress = self.progress()
            self._complete(end, ended, cut)
            self.lease = await self._end_run(end, heard)
        if self.on_events is not None:
            self.on_events()
        if self.live.watchers:
            self._tell_turns(end.progress.turns)
        if last is not None:
            self._show(last)
        for seq, message in enumerate(cut, self.lease.last_seq - len(cut) + 1):
            self.live.emit(MessageDone(seq, message, shown=is_unfinished(message)))
        self._log_end(end, failure)
        self.live.emit(ended)

    def _asked(self, question: JsonObject | None, last: Turn | None) -> JsonObject | None:
        """The question that the run ends with, and with it what its client has read of the turn in flight: that is
        repeated, and what was read stays in the window."""
        if question is None or not self.streams or last is not None:
            return question
        asked = asked_after(question, None).strip()
        words = [each.content.rstrip().removesuffix(asked) for each in self.live.unfinished()]
        before = "\n\n".join(each for each in words if each.strip())
        return {**question, SAID_BEFORE: before} if before else question

    async def _cut(self, end: EndWrite) -> list[Message]:
        """Return what is kept of a turn that came to no end: the calls that were made in it, and of a run that was
        stopped what was shown of messages that were cut off. What is recorded of one that has failed stays for its
        retry, which the end is told."""
        cut: list[TextMessage] = self.live.unfinished() if end.status is RunStatus.STOPPED else []
        was_stored = end.clear_steps or (self._in_doubt is not None and self._in_doubt[1].clear_steps)
        if end.turn is not None or not end.status.is_final or not (was_stored or end.steps):
            return [*cut]
        key, stays = self.lease.key, end.status is RunStatus.ERROR
        recorded = [*(await self.read(lambda session: read_steps(session, key)) if was_stored else ()), *end.steps]
        kept = kept_calls(recorded, [each.content for each in cut])
        end.clear_steps, end.steps = not stays, end.steps if stays else ()
        return [*kept, *cut]

    def _complete(self, end: EndWrite, ended: RunEnded, cut: Sequence[Message]) -> None:
        """Give the end what is kept of the turn that it has cut, and what clients are told."""
        last_seq = end.turn.messages[-1].seq if end.turn and end.turn.messages else self.lease.last_seq
        end.messages = [
            NewMessage(seq, JsonText(storable(dump_message(message))), shown=is_unfinished(message))
            for seq, message in enumerate(cut, last_seq + 1)
        ]
        if self.keyed:
            live = self.live
            end.told = told(ended, speakers=live.speakers, ignored=live.ignored, last_seq=last_seq + len(cut))

    def _finish(self, status: RunStatus) -> Finish:
        """Return how the model call that gave the last message shown finished."""
        if status in (RunStatus.COMPLETED, RunStatus.STOPPED):
            shows = self.transcript.shows
            source = next((each.source for each in reversed(self.messages) if shows(each)), None)
            finish = self.bounds.meter.finishes.get(source or "", _USUAL)
            return finish if finish == _USUAL else Finish(*map(storable_value, finish))
        return _USUAL

    async def hand_over(self) -> None:
        """Give the lease back although the run is not over."""
        try:
            try:
                # A turn that was cut is repeated: what is known of it is kept. One that may be stored has none.
                await self._release(() if self._in_doubt else self.steps.unstored())
            except LeaseLost:
                if await self._resolve_doubt():  # It was stored, with its calls.
                    await self._release(())
        except LeaseLost:
            return
        except DatabaseError as error:
            log.warning("a lease was not handed over and will run out: %s", error.message, extra=self.fields)

    async def _release(self, steps: Sequence[Step]) -> None:
        lease, progress = self.lease, self.progress()
        await self.database.write(lambda session: release(session, lease, progress, steps))

    def show_moved(self, code: str, text: str) -> None:
        """The run is not over, but it is not here any more."""
        self.live.emit(RunEnded(RunStatus.RUNNING, error_code=code, error_message=text))

    async def _end_run(self, end: EndWrite, heard: Sequence[Message]) -> Lease:
        """Store the end; `heard`: the messages that come with it."""
        lease, hooks, conversation = self.lease, self.hooks, self.conversation.copy()
        said = self._hear(conversation, heard)
        conversation.answer(asked_after(end.input_request, said or self._said))
        shown = conversation
        if notice := notice_of(end.stop_code, end.stop_reason):
            shown = conversation.copy()  # It is no part of the answer that follows when the run is resumed.
            shown.answer(notice)
        end.point = shown.point if shown.answered else None
        ended = await self._patiently(
            lambda session: end_run(session, lease, end, hooks),
            lambda session: confirm_end(session, lease),
            short=not (end.messages or hooks.run_ended or end.turns_away) and (end.turn is None or end.turn.is_short),
        )
        self.conversation = conversation
        return ended

    def _hear(self, conversation: Conversation, messages: Sequence[Message]) -> str | None:
        """Add to a conversation what its client is shown of messages, and what came in from clients meanwhile. Returns
        the last text that is shown, if there is one."""
        said: str | None = None
        for message in messages:
            if self.transcript.shows(message) or is_unfinished(message):
                said = message.to_text()
                conversation.answer(said)
            elif isinstance(message, ThoughtEvent) and self.streams and self._was_streamed(message):
                conversation.answer(message.content)
            elif self.transcript.is_given(message) and isinstance(message, BaseChatMessage):
                conversation.user(flat(InputMessage.of(message).content))
        return said

    def _was_streamed(self, thought: ThoughtEvent) -> bool:
        """Whether what a model has said beside tool calls of the turn in flight was shown as it came."""
        streamed = (each.content for each in self.live.unfinished() if each.source == thought.source)
        return REASONING not in thought.metadata and any(thought.content in text for text in streamed)

    async def _resolve_doubt(self) -> bool:
        """Whether a turn was stored although the run was cancelled before it heard of that: a write that has begun is
        committed all the same. Then it counts, and is shown."""
        if self._in_doubt is None:
            return False
        (turn, write), self._in_doubt = self._in_doubt, None
        confirmed = await self.read(lambda session: confirm_turn(session, self.lease, write))
        if confirmed is None:
            return False
        self.lease = confirmed
        self._stored(turn, write)
        return True

    def _stored(self, turn: Turn, write: TurnWrite) -> None:
        self._in_doubt = None
        if self.live.watchers:
            self._tell_turns(write.progress.turns)
        self.bounds.turn_stored(write.progress)
        self.broker.turn_done()
        messages = [message.message for message in turn.messages]
        self.messages += messages
        self.live.continued = None
        self._said = self._hear(self.conversation, messages) or self._said
        self._show(turn)

    def _tell_turns(self, stored: int) -> None:
        """Tell who watches the run of the turns that are stored by now and were not before."""
        if (turns := stored - self.bounds.turns) > 0:
            self.live.tell(TurnsStored(turns))

    def _show(self, turn: Turn) -> None:
        shows = self.transcript.shows
        for message in turn.messages:
            self.live.emit(MessageDone(message.seq, message.message, shows(message.message)))

    async def read(self, fn: Callable[[Session], T]) -> T:
        """Read, and wait for a database that cannot be reached, as writes do.

        Raises:
            DatabaseUnavailable: it did not come back in time.
        """
        return await patiently(lambda _: self.database.read(fn), self.outage, self.names)

    async def _patiently(
        self, write: Callable[[Session], T], confirm: Callable[[Session], T | None], *, short: bool = False
    ) -> T:
        """Write, and wait for a database that cannot be reached. Once it is back, `confirm` tells whether a write whose
        COMMIT was cut off went through all the same.

        Raises:
            DatabaseUnavailable: it did not come back in time.
            LeaseLost: somebody else has taken the thread meanwhile.
        """

        async def attempt(is_first: bool) -> T:
            confirmed = None if is_first else await self.database.read(confirm)
            return await self.database.write(write, short=short) if confirmed is None else confirmed

        return await patiently(attempt, self.outage, self.names)

    def _log_end(self, end: EndWrite, failure: BaseException | None) -> None:
        level = logging.ERROR if end.status is RunStatus.ERROR else logging.INFO
        if not log.isEnabledFor(level):
            return
        models = {each["model"]: None for each in self.bounds.meter.records if "model" in each}
        used = {
            "status": end.status.value,
            "model": ", ".join(models) or None,
            "turns": end.progress.turns,
            "tokens": end.progress.usage["total_tokens"],
            "seconds": end.progress.seconds,
            "reason": end.stop_code or end.error_message or end.stop_reason,
        }
        # What an endpoint has answered instead of an answer says nothing of where that was found.
        said = isinstance(failure, EndpointFailed) and failure.__cause__ is None
        log.log(level, "run ended", extra={**self.fields, **used}, exc_info=None if said else failure)
