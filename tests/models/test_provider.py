"""A model provider of one's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import httpx
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import SecretStr

from drsai_backend import DrSai, RunContext
from drsai_backend.agents import AssistantAgent
from drsai_backend.config import Settings
from drsai_backend.models import ModelProvider
from drsai_backend.runs import ModelParams


class Noting(ReplayChatCompletionClient):
    """Keeps the arguments of its calls."""

    takes_params = True

    def __init__(self) -> None:
        super().__init__(["one", "two words"])
        self.given: list[Any] = []

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:
        self.given.append(options["extra_create_args"])
        return await super().create(messages)

    async def create_stream(
        self, messages: Sequence[LLMMessage], **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        self.given.append(options["extra_create_args"])
        async for item in super().create_stream(messages):
            yield item


class Prepared(ModelProvider):
    def __init__(self) -> None:
        self.noting = Noting()
        self.asked: list[tuple[str | None, SecretStr | None]] = []
        self.closed = False

    def client(self, model: str | None, api_key: SecretStr | None) -> ChatCompletionClient:
        self.asked.append((model, api_key))
        return self.noting

    async def close(self) -> None:
        self.closed = True


def agent(context: RunContext) -> AssistantAgent:
    return AssistantAgent("agent", context.model_client("big"), model_client_stream=context.thread_id == "streamed")


async def test_it_makes_the_clients_of_all_runs_and_is_closed_at_the_end(tmp_path: Path) -> None:
    provider = Prepared()
    settings = Settings(_env_file=None, require_model=True)  # type: ignore[call-arg]
    async with DrSai({"agent": agent}, f"sqlite:///{tmp_path}/db", settings=settings, model_provider=provider) as drsai:
        assert not drsai.models.is_demo
        assert drsai.models.describe() == "Prepared"
        first = await drsai.run("agent", "x", thread_id="whole", params=ModelParams(temperature=0.5))
        second = await drsai.run("agent", "x", thread_id="streamed", params=ModelParams(max_tokens=7))
        assert (first.text, second.text) == ("one", "two words")
        assert second.usage["completion_tokens"] == 2
        transport = httpx.ASGITransport(app=drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as http:
            assert (await http.get("/readyz")).json() == {"status": "ready"}
        assert not provider.closed
    assert provider.closed
    assert provider.asked == [("big", None)] * 2
    assert provider.noting.given == [{"temperature": 0.5}, {"max_tokens": 7}]
