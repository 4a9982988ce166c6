"""Which models continue an answer, and what is sent for it."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_core.models import CreateResult, RequestUsage, UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient

from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError
from drsai_backend.models import ContinueRules, ContinuingClient
from tests.support.model_server import ModelServer, Reply

INFO: Any = {
    **dict.fromkeys(("vision", "function_calling", "json_output", "structured_output"), True),
    "family": "unknown",
}


def client(url: str, model: str = "m", **values: Any) -> OpenAIChatCompletionClient:
    return OpenAIChatCompletionClient(model=model, api_key="k", base_url=url, model_info=INFO, **values)


@pytest.mark.parametrize(
    ("url", "model", "how"),
    [
        ("https://api.mistral.ai/v1", "mistral-large-latest", "prefix"),
        ("https://api.deepseek.com/beta", "deepseek-chat", "prefix"),
        # Only its beta takes it.
        ("https://api.deepseek.com", "deepseek-chat", "no"),
        ("https://api.deepseek.com/v1", "deepseek-chat", "no"),
        ("https://api.openai.com/v1", "gpt-4o-mini", "no"),
        ("https://api.mistral.ai.example.org/v1", "mistral-large-latest", "no"),
        ("http://localhost:8000/v1", "mistral-7b", "no"),
        # Not its own API.
        ("https://api.anthropic.com/v1/", "claude-3-5-haiku-latest", "no"),
    ],
)
def test_what_is_known_of_endpoints(url: str, model: str, how: str) -> None:
    assert ContinueRules().of(client(url, model)) == how
    assert ContinueRules({"nothing": "vllm"}).of(client(url, model)) == how
    # What is set wins.
    assert ContinueRules({model[:3] + "*": "plain", "*": "no"}).of(client(url, model)) == "plain"
    assert ContinueRules({"*": "no"}).of(client(url, model)) == "no"


class Claude(ReplayChatCompletionClient):
    """As AutoGen's client of Anthropic, as far as it is looked at."""

    def __init__(self, model: str) -> None:
        super().__init__([])
        self._create_args = {"model": model}
        self._client = type("Client", (), {"base_url": "https://api.anthropic.com"})()


@pytest.mark.parametrize(
    ("model", "how"),
    [
        ("claude-3-haiku-20240307", "plain"),
        ("claude-3-7-sonnet-latest", "plain"),
        ("claude-sonnet-4-20250514", "plain"),
        ("claude-opus-4-1", "plain"),
        ("claude-sonnet-4-5-20250929", "plain"),
        ("claude-opus-4-6", "no"),
        ("claude-sonnet-4-6-20260101", "no"),
        ("claude-opus-4-10", "no"),
        ("claude-sonnet-5", "no"),
    ],
)
def test_anthropics_models_up_to_4_5(model: str, how: str) -> None:
    assert ContinueRules().of(Claude(model)) == how
    # It has no place for fields.
    assert ContinueRules({"*": "vllm"}).of(Claude(model)) == "no"
    assert ContinueRules({"*": "plain"}).of(Claude(model)) == "plain"


def test_the_setting() -> None:
    assert Settings(_env_file=None, model_continues="vllm").model_continues == {"*": "vllm"}
    assert Settings(_env_file=None, model_continues='{"a*": "no"}').model_continues == {"a*": "no"}
    for bad in ("yes", '{"a": "yes"}', '{"a"'):
        with pytest.raises(ConfigurationError, match="DRSAI_MODEL_CONTINUES"):
            Settings(_env_file=None, model_continues=bad)


ASKED = [UserMessage(content="A story", source="user")]


@pytest.mark.parametrize("how", ["plain", "prefix", "vllm"])
async def test_one_call_continues_and_the_next_does_not(how: Any) -> None:
    """Without tools; what the client was made with, and what the call adds, is sent all the same."""
    with ModelServer(strict=False) as server:
        server.script(None, [" a time.", "The end."])
        inner = client(server.base_url, extra_body={"made": 1, "both": 1})
        continuing = ContinuingClient(inner, how, "Once upon")
        tool: Any = {"name": "t", "description": "", "parameters": {"type": "object", "properties": {}}}
        args = {"temperature": 0.5, "parallel_tool_calls": False}
        options: dict[str, Any] = {"tools": [tool], "tool_choice": "auto", "extra_create_args": args}
        assert (await continuing.create(ASKED, **options)).content == "Once upon a time."
        assert (await continuing.create(ASKED, **options)).content == "The end."
        await inner.close()
        first, second = (request.body for request in server.requests)
        assert (first["messages"][-1]["role"], first["messages"][-1]["content"]) == ("assistant", "Once upon")
        assert first["messages"][-1].get("prefix") is (True if how == "prefix" else None)
        assert first.get("continue_final_message") is (True if how == "vllm" else None)
        assert first.get("add_generation_prompt") is (False if how == "vllm" else None)
        assert first["temperature"] == 0.5
        assert (first["made"], first["both"]) == (1, 1)
        assert "tools" not in first
        assert second["tools"]
        assert len(second["messages"]) == 1


@pytest.mark.parametrize(
    ("how", "pieces", "given"),
    [
        ("prefix", ["Once", " upon", " a time"], [" a time"]),
        ("prefix", ["Once upon a", " time"], [" a", " time"]),
        # It begins otherwise, or is shorter.
        ("prefix", ["Once", " more"], ["Once more"]),
        ("prefix", ["On"], ["On"]),
        ("prefix", ["Once upon"], []),
        ("vllm", ["Once", " upon", "!"], ["Once", " upon", "!"]),
        ("plain", ["<think>", "Hm.", "</think>", " a"], ["<think>", "Hm.", "</think>", " a"]),
    ],
)
async def test_a_stream_begins_after_what_is_there(how: Any, pieces: list[str], given: list[str]) -> None:
    with ModelServer(strict=False) as server:
        server.script(None, [Reply("".join(pieces), chunks=pieces)])
        inner = client(server.base_url)
        continuing = ContinuingClient(inner, how, "Once upon")
        *deltas, last = [item async for item in continuing.create_stream(ASKED)]
        await inner.close()
    assert deltas == given
    assert isinstance(last, CreateResult)
    spoken = "".join(given).partition("</think>")
    assert last.content == "Once upon" + (spoken[2] or spoken[0]).lstrip(" " if spoken[1] else "")
    assert last.thought == ("Hm." if spoken[1] else None)


async def test_a_call_that_fails_may_be_made_again() -> None:
    class Failing(ReplayChatCompletionClient):
        async def create(self, *_: Any, **__: Any) -> CreateResult:
            raise ValueError("down")

    failing = ContinuingClient(Failing([]), "plain", "Once upon")
    for _ in range(2):
        with pytest.raises(ValueError, match="down"):
            await failing.create(ASKED)
    failing._inner = ReplayChatCompletionClient(  # pyright: ignore[reportPrivateUsage]
        [CreateResult(finish_reason="stop", content="!", usage=RequestUsage(1, 1), cached=False)]
    )
    assert (await failing.create(ASKED)).content == "Once upon!"
