"""What a run is asked to do, and what it tells: the contract between the engine and everything that shows runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core import Image
from pydantic import SecretStr

from drsai_backend.datamodel import RunStatus
from drsai_backend.models.params import ModelParams

__all__ = [
    "InputMessage",
    "MessageDone",
    "ModelParams",
    "RunEnded",
    "RunEvent",
    "RunRequest",
    "TextDelta",
]


@dataclass(frozen=True, slots=True)
class InputMessage:
    """One message of a request. `content` is text, or text parts and images in order."""

    role: Literal["system", "user", "assistant"]
    content: str | list[str | Image]

    @property
    def text(self) -> str:
        """The text parts, joined by a blank line."""
        if isinstance(self.content, str):
            return self.content
        return "\n\n".join(part for part in self.content if isinstance(part, str))


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A user input for a thread.

    `messages` is the conversation as the client sent it, oldest first, history included; the engine takes what follows
    the last message that the thread knows. `thread_id=None` starts a new thread with a generated id.
    `raw_messages` are the same messages in OpenAI's shape, stored in `UserInput.user_messages` from the same point on.
    """

    team: str
    messages: Sequence[InputMessage]
    user_id: str = "anonymous"
    thread_id: str | None = None
    params: ModelParams = field(default_factory=ModelParams)
    api_key: SecretStr | None = None
    stream: bool = False
    n: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    raw_messages: Sequence[dict[str, Any]] = ()
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text that a speaker is producing. Not stored yet: its turn may still be repeated.

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
class RunEnded:
    """The last event of every run; its final status is stored.

    `status` is COMPLETED, STOPPED, ERROR or AWAITING_INPUT. `input_request` is `Thread.input_request` (keys `id`,
    `type` "text_input", `prompt`, `source`, `choices`, `asked_at`) when the run waits for a person. `error_code` and
    `error_message` are safe to show. `usage` has prompt_tokens, completion_tokens, total_tokens; `duration` is seconds.
    """

    status: RunStatus
    stop_reason: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    duration: float = 0.0
    input_request: dict[str, Any] | None = None
    error_code: str | None = None
    error_message: str | None = None


RunEvent: TypeAlias = TextDelta | MessageDone | RunEnded
