"""What an agent sees of its own model client while a run meters, parametrises and records the calls."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, UserMessage
from autogen_ext.models.openai import BaseOpenAIChatCompletionClient, OpenAIChatCompletionClient

from drsai_backend import DrSai
from drsai_backend.config import Settings
from drsai_backend.models import ModelParams, RunModelClient, facade, run_client_of
from tests.models.test_run_client import HELLO, INFO
from tests.support.model_server import ModelServer, Reply


class OwnClient(OpenAIChatCompletionClient):
    """A client with a method, a property, a class attribute and a context of its own."""

    flavour = "own"
    entered = 0

    async def ask(self, text: str) -> str:
        self.asked = text
        result = await self.create([UserMessage(content=text, source="user")])
        assert isinstance(result.content, str)
        return result.content

    @property
    def shout(self) -> str:
        return self.flavour.upper()

    @staticmethod
    def double(number: int) -> int:
        return 2 * number

    async def __aenter__(self) -> OwnClient:
        self.entered += 1
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def __len__(self) -> int:
        return 3


@pytest.fixture
async def own(server: ModelServer) -> AsyncIterator[OwnClient]:
    server.script(None, lambda _: Reply("a b", prompt_tokens=100, completion_tokens=3))
    client = OwnClient(model="m", api_key="k", base_url=server.base_url, model_info=INFO, max_retries=0)
    yield client
    await client.close()


async def test_it_is_of_the_wrapped_class(own: OwnClient) -> None:
    seen: Any = facade(RunModelClient(own))
    for kind in (OwnClient, OpenAIChatCompletionClient, BaseOpenAIChatCompletionClient, ChatCompletionClient):
        assert isinstance(seen, kind)
    assert not isinstance(seen, RunModelClient)
    assert (seen.flavour, seen.shout, seen.double(4), len(seen)) == ("own", "OWN", 8, 3)
    assert seen._create_args is own._create_args
    assert "flavour" in dir(seen)
    with pytest.raises(AttributeError, match="nothing"):
        _ = seen.nothing
    assert seen.dump_component() == own.dump_component()
    assert run_client_of(copy.copy(seen)) is run_client_of(seen)


async def test_attributes_are_set_on_the_wrapped_client(own: OwnClient) -> None:
    seen: Any = facade(RunModelClient(own))
    seen.flavour = "new"
    assert own.flavour == "new"
    del seen.flavour
    assert own.flavour == "own"


async def test_its_own_methods_call_through_the_run(own: OwnClient, server: ModelServer) -> None:
    run = RunModelClient(own, params=ModelParams(temperature=0.2))
    seen: Any = facade(run)
    assert await seen.ask("x") == "a b"
    assert own.asked == "x"
    assert server.requests[0].body["temperature"] == 0.2
    assert run.meter.prompt_tokens == 100
    async with seen as inside:
        assert inside is seen
    assert own.entered == 1


@pytest.mark.parametrize("asked", [None, True])
async def test_keywords_of_the_wrapped_client_reach_it(own: OwnClient, server: ModelServer, asked: bool | None) -> None:
    run = RunModelClient(own)
    seen: Any = facade(run)
    more: dict[str, Any] = {} if asked is None else {"include_usage": asked}
    items = [item async for item in seen.create_stream(HELLO, **more)]
    assert isinstance(items[-1], CreateResult)
    assert server.requests[0].body["stream_options"] == {"include_usage": True}
    assert run.meter.prompt_tokens == 100
    with pytest.raises(TypeError, match="unheard_of"):
        await seen.create(HELLO, unheard_of=1)


class Asker(BaseChatAgent):
    """An agent that does with its client what only that client can do."""

    def __init__(self, client: OwnClient) -> None:
        super().__init__("asker", "asks")
        self._model_client = client

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        assert isinstance(self._model_client, OwnClient)
        said = await self._model_client.ask(messages[-1].to_model_text())
        async for item in self._model_client.create_stream(HELLO, include_usage=True):
            said += item if isinstance(item, str) else "."
        return Response(chat_message=TextMessage(content=said + self._model_client.shout, source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None: ...


async def test_in_a_run(own: OwnClient, tmp_path: Any) -> None:
    settings = Settings(_env_file=None)
    async with DrSai({"asker": lambda: Asker(own)}, f"sqlite:///{tmp_path}/db", settings=settings) as drsai:
        result = await drsai.run("asker", "x")
    assert result.text == "a ba b.OWN"
    assert result.usage["total_tokens"] == 206
