"""Token counts without a network."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import tiktoken
from autogen_core import FunctionCall
from autogen_core.model_context import TokenLimitedChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient

from drsai_backend.errors import ConfigurationError
from drsai_backend.models import RunModelClient, tokens
from drsai_backend.models.tokens import Vocabularies, estimate_tokens
from tests.models.conftest import MakeFactory


def test_every_part_of_a_request_counts() -> None:
    def add(a: int) -> int:
        return a

    messages = [
        SystemMessage(content="x" * 40),
        UserMessage(content="é" * 20, source="user"),
        AssistantMessage(content=[FunctionCall(id="1", name="add" * 4, arguments="{}" * 4)], source="a"),
        FunctionExecutionResultMessage(content=[FunctionExecutionResult(content="y" * 8, name="add", call_id="1")]),
    ]
    assert estimate_tokens([]) == 3
    assert estimate_tokens(messages) == 3 + 4 * 3 + 10 + 10 + (3 + 2) + 2
    assert estimate_tokens(messages, tools=[FunctionTool(add, description="Add")]) > estimate_tokens(messages) + 20


def test_a_vocabulary_that_cannot_be_had_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(name: str) -> Any:
        asked.append(name)
        raise OSError("no network")

    monkeypatch.setattr(tiktoken, "get_encoding", refuse)
    vocabularies = Vocabularies()
    assert [vocabularies.ready(model) for model in ("gpt-4o", "gpt-4o-mini", "llama", "gpt-4")] == [False] * 4
    assert asked == ["o200k_base", "cl100k_base"]


def test_a_network_that_hangs_costs_one_short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: release.wait(60))
    monkeypatch.setattr(tokens, "FIRST_WAIT_SECONDS", 0.05)
    vocabularies = Vocabularies()
    started = time.monotonic()
    assert not vocabularies.ready("gpt-4o")
    assert not vocabularies.ready("gpt-4o")
    assert time.monotonic() - started < 30
    release.set()
    deadline = time.monotonic() + 30
    while not vocabularies.ready("gpt-4o"):  # it came after all
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def test_autogens_counter_is_used_once_the_vocabulary_is_there(
    factory: MakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Words:
        def encode(self, text: str) -> list[str]:
            return text.split()

    monkeypatch.setattr(tokens.VOCABULARIES, "ready", lambda model: True)
    monkeypatch.setattr(tiktoken, "encoding_for_model", lambda model: Words())
    messages = [UserMessage(content="one two three", source="user")]
    stock = OpenAIChatCompletionClient(model="gpt-4o", api_key="k")
    for client in (factory().create("gpt-4o"), RunModelClient(factory().create("gpt-4o")), RunModelClient(stock)):
        assert client.count_tokens(messages) == 3 + 3 + 3 + 1 + 1 + 1  # content, message, reply, name, role
        assert client.remaining_tokens(messages) == 128_000 - 12
    broken = {"name": "t", "parameters": {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#/x"}]}}}}
    assert RunModelClient(stock).count_tokens(messages, tools=[broken]) == estimate_tokens(messages, tools=[broken])
    await stock.close()


async def test_remaining_tokens_of_an_unknown_model(factory: MakeFactory) -> None:
    messages = [UserMessage(content="x" * 40, source="user")]
    assert RunModelClient(factory(model_context=100).create("llama")).remaining_tokens(messages) == 100 - 16
    with pytest.raises(ConfigurationError, match="DRSAI_MODEL_CONTEXT"):
        RunModelClient(factory().create("llama")).remaining_tokens(messages)


async def test_a_token_limited_context_works_offline(factory: MakeFactory) -> None:
    client = RunModelClient(factory().create("gpt-4o"))
    context = TokenLimitedChatCompletionContext(client, token_limit=60)
    for number in range(10):
        await context.add_message(UserMessage(content=f"{number} " + "x" * 38, source="user"))
    assert 0 < len(await context.get_messages()) < 5
