"""Events are what a run tells: the contract between the engine and everything that shows runs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage

from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.models import CallRecord, Finish, FinishReason
from drsai_backend.teams.client_tools.definitions import calls_of
from drsai_backend.teams.replay.steps import ToolEvent

STARTED: Final = 1
ENDED: Final = 2**31 - 1
PATTERN: Final = rf"^[0-9]{{1,9}}-[0-9]{{1,9}}-([0-9]{{1,9}}|{ENDED - 1}|{ENDED})$"
"""What an event's id looks like. Its numbers fit into the databases' integers. Just before the end of a run comes what
it ended with, a question or an error."""


class Position(NamedTuple):
    """A place in the log of a thread. Positions are compared as they stand and never change their order.

    `seq` is the newest message of the thread that was stored then, `epoch` that of the lease under which it happened.
    `n` is 0 for the message `seq` itself, 1 for the start of a run (or of its next attempt), then counts what is not
    stored: pieces of text and tool calls. The end of a run has the largest `n`.
    """

    seq: int = 0
    epoch: int = 0
    n: int = 0

    def __str__(self) -> str:
        return f"{self.seq}-{self.epoch}-{self.n}"

    @classmethod
    def parse(cls, text: str, param: str = "after") -> Position:
        """The position that an event's id names.

        Raises:
            InvalidRequest: it is no such id.
        """
        if re.fullmatch(PATTERN, text):
            return cls(*map(int, text.split("-")))
        raise InvalidRequest(f"`{param}` is not the id of an event", param=param)


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A worker has taken the run up: to begin it (attempt 1), to resume it after an answer or a pause, or after the
    worker before it was lost (attempt 2, 3, …). What was stored stays; deltas since the last stored message are void.
    `team` is the name that it is served under."""

    run_id: str
    team: str
    attempt: int


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text that a speaker (`source`) is producing. Not stored yet: its turn may still be repeated.

    Speakers of one turn may run at once, so deltas of several sources can interleave. `message_id` is the id of the
    message it belongs to, where the agent says so. `shown` is False for what is no part of the answer, as far as that
    is known yet.
    """

    source: str
    text: str
    message_id: str | None = None
    shown: bool = True


@dataclass(frozen=True, slots=True)
class ThoughtDelta:
    """A piece of what a speaker's model thinks before it answers. As a `TextDelta`; no part of what the speaker says.
    Stored, it is an AutoGen `ThoughtEvent`."""

    source: str
    text: str
    message_id: str | None = None
    shown: bool = True


@dataclass(frozen=True, slots=True)
class MessageDone:
    """A message that is stored. `shown` is False for what a plain chat window should not repeat or reveal: the user's
    own words, tool calls and their results, thoughts, internal handoffs, and what is no part of the answer."""

    seq: int
    message: BaseChatMessage | BaseAgentEvent
    shown: bool


@dataclass(frozen=True, slots=True)
class MessageRead:
    """A message as the database has it; `config` is AutoGen's dump. `shown` is None where it is not known."""

    seq: int
    config: JsonObject
    shown: bool | None = None


@dataclass(frozen=True, slots=True)
class QueuedBehind:
    """Of a run whose input waits in the queue: run `run_id` in front of it asks a person, and nothing happens until
    `input_request` is answered. Not a part of the log: it is told to whoever follows the queued run, once a question.
    """

    run_id: str
    input_request: JsonObject


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The last event of every run, or of its part in this process; its status is stored.

    `status` is COMPLETED, STOPPED, ERROR, AWAITING_INPUT or PAUSED; RUNNING when this process does not run it any more
    but another one continues it (`error_code` says why). `stop_reason` is the termination condition's, or says what
    stopped it. `input_request` is `Thread.input_request` (keys `id`, `type` "text_input", `prompt`, `source`,
    `choices`, `asked_at`) when the run waits for a person; of kind "client_tool" it has `tool_calls`, for the client to
    make. `error_code` and `error_message` are safe to show.
    `stop_code` names the bound that the run has reached (`RunLimits`). `usage` has prompt_tokens, completion_tokens,
    total_tokens, `usage_before` what of it was used before the question or the pause after which the run was resumed;
    `duration` is seconds. `usage` and `usage_before` also have those details that are not 0
    (`drsai_backend.models.DETAILS`). `finish_reason` is that of the model call which gave the last message shown, where
    one did: `stop`, `length`, `content_filter`; `service_tier` and `system_fingerprint` are what its endpoint has said.
    `shown` is the number of a message that is the answer, where that was not known when it was told.

    With `queued_behind` the run has not even begun: its input keeps its place in the queue, behind the run of that id,
    which waits for a person (AWAITING_INPUT, `input_request`).
    """

    status: RunStatus
    stop_reason: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    duration: float = 0.0
    input_request: JsonObject | None = None
    error_code: str | None = None
    error_message: str | None = None
    stop_code: str | None = None
    queued_behind: str | None = None
    usage_before: dict[str, int] = field(default_factory=dict)
    finish_reason: FinishReason = "stop"
    service_tier: str | None = None
    system_fingerprint: str | None = None
    shown: int | None = None

    @property
    def finish(self) -> Finish:
        """How the answering call finished: by `tool_calls` where the run waits for its client's tools."""
        waits = self.queued_behind is None and bool(calls_of(self.input_request))
        return Finish("tool_calls" if waits else self.finish_reason, self.service_tier, self.system_fingerprint)

    @property
    def used(self) -> dict[str, int]:
        """What of `usage` belongs to the part of the run that has ended, so that the answers of a run add up to it."""
        return {name: count - self.usage_before.get(name, 0) for name, count in self.usage.items()}


RunEvent: TypeAlias = (
    RunStarted | TextDelta | ThoughtDelta | ToolEvent | MessageDone | MessageRead | QueuedBehind | RunEnded
)
"""What a run tells. Handles never give a `MessageRead`, a message that was not made in this process: it becomes a
`MessageDone`."""


@dataclass(frozen=True, slots=True)
class TurnsStored:
    """Turns are stored: one, and those of nested teams in it. Told to who watches the run, and no part of its log."""

    turns: int


@dataclass(frozen=True, slots=True)
class Spoke:
    """The first text of an answer is shown. Told to who watches the run, and no part of its log."""


@dataclass(frozen=True, slots=True)
class ModelAsked:
    """A model is about to be asked: told in the context in which its request is made, to who watches the run, and no
    part of its log. In the same context comes what becomes of it: `ModelAnswered`, `ModelFailed`, or nothing where the
    call is cancelled."""


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """A model call was answered. Told to who watches the run, and no part of its log."""

    record: CallRecord


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """A model call has failed; `code` as in `RunEnded`. Told to who watches the run, and no part of its log."""

    model: str
    code: str


WatchedEvent: TypeAlias = RunEvent | TurnsStored | Spoke | ModelAsked | ModelAnswered | ModelFailed
"""What a run tells those who watch all runs of their process; pieces of texts and of results are passed over."""


class Logged(NamedTuple):
    """An event of a thread's log: where it stands, and which run it belongs to."""

    position: Position
    run_id: str
    event: RunEvent
