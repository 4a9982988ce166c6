"""The run that everything measures: two agents of an instant model answer a user's message, one after the other.

A run is a user message and two turns, ended by `MaxMessageTermination(3)`; every message has 200 characters. Streamed,
an answer comes in 12 chunks. The model costs nothing, so what is measured is the framework.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage

import drsai_backend

LENGTH = 200
CHUNK = 17
"""200 characters in pieces of 17: 12 chunks."""
USAGE = RequestUsage(prompt_tokens=100, completion_tokens=40)

_WORDS = ("state", "turn", "agent", "journal", "reader", "model", "thread", "answer", "message", "writer", "table")


def _texts(count: int) -> list[str]:
    chance = random.Random(7)
    return [" ".join(chance.choices(_WORDS, k=60))[: LENGTH - 8] for _ in range(count)]


_POOL = _texts(997)


class Texts:
    """Texts of 200 characters, none like another."""

    def __init__(self) -> None:
        self._count = 0

    def next(self) -> str:
        self._count += 1
        return f"{self._count:08d}{_POOL[self._count % len(_POOL)]}"


class InstantClient(ChatCompletionClient):
    """A model client that answers at once with a new text, whatever it is asked."""

    component_type = "model"

    def __init__(self, *, vision: bool = True) -> None:
        self._texts = Texts()
        self._info = ModelInfo(
            vision=vision, function_calling=True, json_output=True, family="unknown", structured_output=True
        )

    def _result(self) -> CreateResult:
        return CreateResult(finish_reason="stop", content=self._texts.next(), usage=USAGE, cached=False)

    async def create(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] = (),
        tool_choice: Any = "auto",
        json_output: Any = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        return self._result()

    async def create_stream(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] = (),
        tool_choice: Any = "auto",
        json_output: Any = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> AsyncGenerator[str | CreateResult, None]:
        result = self._result()
        assert isinstance(result.content, str)
        for start in range(0, LENGTH, CHUNK):
            yield result.content[start : start + CHUNK]
        yield result

    async def close(self) -> None:
        pass

    def actual_usage(self) -> RequestUsage:
        return USAGE

    def total_usage(self) -> RequestUsage:
        return USAGE

    def count_tokens(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
        return 0

    def remaining_tokens(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
        return 1 << 20

    @property
    def capabilities(self) -> Any:
        return self._info

    @property
    def model_info(self) -> ModelInfo:
        return self._info


def stock_team(client: ChatCompletionClient, *, stream: bool) -> BaseGroupChat:
    """AutoGen's own classes, on AutoGen's own runtime."""
    agents: list[Any] = [AssistantAgent(name, client, model_client_stream=stream) for name in ("ada", "bob")]
    return RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(3))


def our_team(client: ChatCompletionClient, *, stream: bool) -> BaseGroupChat:
    """The same team of this package's classes."""
    agents: list[Any] = [
        drsai_backend.AssistantAgent(name, client, model_client_stream=stream) for name in ("ada", "bob")
    ]
    return drsai_backend.RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(3))


def user_message(texts: Texts) -> TextMessage:
    return TextMessage(content=texts.next(), source="user")


async def run_stock(team: BaseGroupChat, texts: Texts) -> None:
    """One run, its stream read to the end."""
    async for _ in team.run_stream(task=[user_message(texts)]):
        pass
