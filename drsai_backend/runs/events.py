"""What a run is asked to do, and what it tells: the contract between the engine and everything that shows runs."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Self, TypeAlias

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, MultiModalMessage
from autogen_core import Image
from pydantic import SecretStr

from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.models import ModelParams
from drsai_backend.teams.limits import NO_LIMITS, RunLimits
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


_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, https://www.crockford.com/base32.html


def _base32(number: int, length: int) -> str:
    digits: list[str] = []
    for _ in range(length):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


def new_run_id() -> str:
    """`run_` and 18 characters: 9 of the time in milliseconds, so that ids sort by age, and 45 random bits.

    Short, because every message row carries it.
    """
    return f"run_{_base32(int(time.time() * 1000), 9)}{_base32(secrets.randbits(45), 9)}"


def new_thread_id() -> str:
    """`thread_` and 26 characters: 50 bits of time and 80 random ones. Knowing one tells nothing of others."""
    return f"thread_{_base32(int(time.time() * 1000), 10)}{_base32(secrets.randbits(80), 16)}"


OnBusy: TypeAlias = Literal["enqueue", "reject", "interrupt", "steer"]
"""What becomes of a user input whose thread has a live run: it waits for the end, is refused, ends the run at once and
is run then, or is handed to all agents of the run at its next turn boundary."""


OnQuestion: TypeAlias = Literal["wait", "answer"]
"""What a user input that waits in the queue is to a question that a run asks meanwhile: it was written before the
question, so it waits on; or it is the answer."""

Task: TypeAlias = str | BaseChatMessage | Sequence[BaseChatMessage]
"""The user's new message: text, or chat messages of any type."""


@dataclass(frozen=True, slots=True)
class InputMessage:
    """One message of a request. `role` is OpenAI's; `content` is text, or text parts and images in order.

    `message`: it is this AutoGen message, which the team is given as it is, and `content` only says what is in it. Such
    messages are all new to the thread, whatever it knows.
    """

    role: Literal["system", "user", "assistant"]
    content: str | list[str | Image]
    message: BaseChatMessage | None = None

    @classmethod
    def of(cls, message: BaseChatMessage) -> Self:
        """The input that is an AutoGen message."""
        content = message.content if isinstance(message, MultiModalMessage) else message.to_text()
        return cls("user", content, message)

    @classmethod
    def of_task(cls, task: Task) -> list[Self]:
        """The inputs that a task of `DrSai.run` is. They hold copies, which do not change with the caller's objects.

        Raises:
            InvalidRequest: it is empty, or something else.
        """
        if isinstance(task, str):
            return [cls("user", task)]
        messages = [task] if isinstance(task, BaseChatMessage) else list(task)
        if not messages:
            raise InvalidRequest("the task is empty", param="task")
        for message in messages:
            if not isinstance(message, BaseChatMessage):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidRequest(f"a task is text or chat messages, not {type(message).__name__}", param="task")
        return [cls.of(message.model_copy()) for message in messages]

    @property
    def text(self) -> str:
        """The text parts, joined by a blank line."""
        if isinstance(self.content, str):
            return self.content
        return "\n\n".join(part for part in self.content if isinstance(part, str))

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing, as an answer that only called tools."""
        return self.message is None and isinstance(self.content, str) and not self.content.strip()


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer to an input request, by its id.

    `content` answers a question. An approval is answered by a `decision` ("approve", "deny" with a `reason`, "edit"
    with the `arguments` to call the tool with), a tool call that may have happened by "run", "result" with the result
    as `content`, or "stop".
    """

    request_id: str
    content: str | None = None
    decision: str | None = None
    reason: str | None = None
    arguments: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class NoAnswer(Answer):
    """What an approval gets that nobody has answered in time: the call is denied."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A user input for a thread of `principal`, as whom it runs.

    `messages` is the conversation as the client sent it, oldest first, history included; the engine takes what follows
    the last message that the thread knows. `thread_id=None` starts a new thread with a generated id.
    `raw_messages` are the same messages in OpenAI's shape, stored in `UserInput.user_messages` from the same point on.
    With `background` the input is queued, and some worker runs it. `answer` answers a question by its id; then there
    are no messages. `limits` may only lower what the team is allowed. `owner` is the user whose thread it is, of
    the same tenant; None: it is the principal's own.
    """

    team: str
    messages: Sequence[InputMessage]
    principal: Principal = field(default_factory=Principal)
    thread_id: str | None = None
    params: ModelParams = field(default_factory=ModelParams)
    api_key: SecretStr | None = None
    stream: bool = False
    n: int | None = None
    extra: JsonObject = field(default_factory=dict)
    raw_messages: Sequence[JsonObject] = ()
    idempotency_key: str | None = None
    on_busy: OnBusy = "enqueue"
    on_question: OnQuestion = "wait"
    background: bool = False
    answer: Answer | None = None
    limits: RunLimits = NO_LIMITS
    owner: str | None = None

    @property
    def name(self) -> ThreadName:
        """What finds the thread, which has an id by now."""
        assert self.thread_id is not None
        whose = self.principal.owner if self.owner is None else Owner(self.principal.tenant, self.owner)
        return whose.thread(self.thread_id)

    @property
    def author(self) -> str | None:
        """Who sends it, where the thread is another user's; kept in the metadata of its messages."""
        return None if self.owner in (None, self.principal.user_id) else self.principal.user_id


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
    message it belongs to, where the agent says so.
    """

    source: str
    text: str
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class MessageDone:
    """A message that is stored. `shown` is False for what a plain chat window should not repeat or reveal: the user's
    own words, tool calls and their results, thoughts, internal handoffs."""

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
    `choices`, `asked_at`) when the run waits for a person. `error_code` and `error_message` are safe to show.
    `stop_code` names the bound that the run has reached (`RunLimits`). `usage` has prompt_tokens, completion_tokens,
    total_tokens, `usage_before` what of it was used before the question or the pause after which the run was resumed;
    `duration` is seconds.

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

    @property
    def used(self) -> dict[str, int]:
        """What of `usage` belongs to the part of the run that has ended, so that the answers of a run add up to it."""
        return {name: count - self.usage_before.get(name, 0) for name, count in self.usage.items()}


RunEvent: TypeAlias = RunStarted | TextDelta | ToolEvent | MessageDone | MessageRead | QueuedBehind | RunEnded
"""What a run tells. Handles never give a `MessageRead`, a message that was not made in this process: it becomes a
`MessageDone`."""


class Logged(NamedTuple):
    """An event of a thread's log: where it stands, and which run it belongs to."""

    position: Position
    run_id: str
    event: RunEvent
