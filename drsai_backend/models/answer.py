"""A model call is one value, and its answer a stream of items. A whole answer is a stream of one: who stands between an
agent and an endpoint is written once for both.

`ReasonedResult` and `ModelAnswer` tell more than AutoGen's results.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import NamedTuple, Protocol, Self, TypeAlias

from autogen_core.models import CreateResult, FinishReasons, LLMMessage, RequestUsage
from pydantic import Field

from drsai_backend.json_types import JsonObject

Items: TypeAlias = AsyncGenerator[str | CreateResult, None]
"""An answer: pieces of text where it streams, then the result."""


class ModelCall(NamedTuple):
    """A call that is to be made. `options` are those of AutoGen's `create`."""

    messages: Sequence[LLMMessage]
    options: JsonObject
    streams: bool


class Asked(Protocol):
    """What a call is made of: AutoGen's `ChatCompletionClient`, or what stands for one."""

    async def create(self, messages: Sequence[LLMMessage]) -> CreateResult: ...
    def create_stream(self, messages: Sequence[LLMMessage]) -> Items: ...


def asked(client: Asked, call: ModelCall) -> Items:
    """Make a call of a client."""
    if call.streams:
        return client.create_stream(call.messages, **call.options)
    return _whole(client, call)


async def _whole(client: Asked, call: ModelCall) -> Items:
    yield await client.create(call.messages, **call.options)


async def result_of(items: Items) -> CreateResult:
    """Return the result of an answer, and close it."""
    try:
        async for item in items:
            if isinstance(item, CreateResult):
                return item
    finally:
        await items.aclose()
    raise AssertionError("a call ends with a result or an error")


class ReasonedResult(CreateResult):
    """AutoGen's result of a call, told apart: an answer that calls tools has what the model thinks in `reasoning`, and
    what it says beside the calls in `thought`, which agents keep and endpoints are sent as content.

    Attributes:
        reasoning: what it thinks beside its calls; None: nothing, or it calls none.
        signed: the same as Anthropic's blocks, which its endpoints want back with the calls; None: there are none.
    """

    reasoning: str | None = None
    signed: list[JsonObject] | None = Field(default=None, exclude_if=lambda signed: signed is None)

    @classmethod
    def of(cls, result: CreateResult, reasoning: str | None, said: str | None) -> ReasonedResult:
        """The result of an answer that calls tools, with what was thought and what was said beside them."""
        kind = type(result) if isinstance(result, ReasonedResult) else ReasonedResult
        return kind.model_validate({**dict(result), "reasoning": reasoning, "thought": said or None})

    @classmethod
    def of_signed(cls, result: CreateResult, signed: list[JsonObject]) -> ReasonedResult:
        """The result of an answer that calls tools, with its thinking blocks."""
        kind = type(result) if isinstance(result, ReasonedResult) else ReasonedResult
        return kind.model_validate({**dict(result), "signed": signed})


class ToolAnswer(CreateResult):
    """An answer that a tool has given in the model's place, as its call has completed the task."""

    finish_reason: FinishReasons = "stop"
    usage: RequestUsage = RequestUsage(prompt_tokens=0, completion_tokens=0)
    cached: bool = False


class ModelAnswer(ReasonedResult):
    """AutoGen's result of a call by a profile.

    Attributes:
        profile: the profile whose model answered.
        model: that model's name at its endpoint.
        attempts: how many calls it took, those that failed included; 0 for one out of the cache.
    """

    profile: str
    model: str
    attempts: int = 1

    def from_cache(self) -> Self:
        """Return the answer as it is given again: nothing was used, and calls of tools have ids of their own, as ids
        are unique in a conversation."""
        content = self.content
        if not isinstance(content, str):
            content = [type(call)(f"call_{secrets.token_hex(12)}", call.arguments, call.name) for call in content]
        usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
        return self.model_copy(update={"content": content, "cached": True, "usage": usage, "attempts": 0})

    def pieces(self) -> Iterator[str]:
        """The text as a stream has it, word by word, with the thought in front; none where it calls tools."""
        if not isinstance(self.content, str):
            return
        if self.thought:
            yield f"<think>{self.thought}</think>\n"
        yield from re.findall(r"\s*\S+\s*$|\s*\S+|\s+", self.content)

    def by(self) -> dict[str, str]:
        """Return who gave it, as the message that is made of it keeps it."""
        return {"model": self.model, "profile": self.profile, **({"cached": "true"} if self.cached else {})}
