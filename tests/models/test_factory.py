"""Which client a name means."""

from __future__ import annotations

import pytest
from autogen_core.models import UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import SecretStr

from drsai_backend.config import Settings
from drsai_backend.models import DemoChatCompletionClient, ModelClientFactory
from drsai_backend.models.openai import MAX_CLIENTS
from tests.models.conftest import MakeFactory
from tests.support.model_server import Failure, ModelServer

HELLO = [UserMessage(content="Hello", source="user")]


def test_without_an_endpoint_it_is_the_demo_model() -> None:
    factory = ModelClientFactory(Settings())
    assert factory.is_demo
    assert factory.describe() == "offline demo model"
    assert isinstance(factory.create("gpt-4o", SecretStr("sk-request")), DemoChatCompletionClient)


def test_a_key_alone_means_openai() -> None:
    factory = ModelClientFactory(Settings(openai_api_key="sk-planted"))
    assert factory.describe() == "gpt-4o-mini at https://api.openai.com/v1"
    assert factory.create().model_info["vision"] is True


async def test_a_base_url_needs_no_key(server: ModelServer, factory: MakeFactory) -> None:
    made = factory()
    await made.create().create(HELLO)
    assert made.describe() == f"gpt-4o-mini at {server.base_url}"
    assert server.requests[0].model == "gpt-4o-mini"
    assert server.requests[0].api_key == "none"


async def test_the_requests_key_wins_over_the_settings(server: ModelServer, factory: MakeFactory) -> None:
    made = factory(openai_api_key="sk-settings", model="default-model")
    await made.create().create(HELLO)
    await made.create("other", SecretStr("sk-request")).create(HELLO)
    assert [(request.model, request.api_key) for request in server.requests] == [
        ("default-model", "sk-settings"),
        ("other", "sk-request"),
    ]


async def test_a_gateway_may_answer_with_any_name(server: ModelServer, factory: MakeFactory) -> None:
    """AutoGen's own client warns then, and warnings are errors here."""
    from tests.support.model_server import Reply

    server.script(None, [Reply("hi", model="gateway/mini")])
    assert (await factory().create("gpt-4o-mini").create(HELLO)).content == "hi"


def test_an_unknown_model_gets_sensible_abilities(factory: MakeFactory) -> None:
    assert factory().create("llama-17").model_info == {
        "vision": False,
        "function_calling": True,
        "json_output": True,
        "structured_output": False,
        "family": "unknown",
        "multiple_system_messages": True,
    }


def test_settings_win_over_what_is_known(factory: MakeFactory) -> None:
    made = factory(
        model_vision=False,
        model_function_calling=False,
        model_json_output=False,
        model_structured_output=False,
        model_multiple_system_messages=False,
        model_family="mine",
    )
    assert made.create("gpt-4o").model_info == {
        "vision": False,
        "function_calling": False,
        "json_output": False,
        "structured_output": False,
        "family": "mine",
        "multiple_system_messages": False,
    }
    assert (
        ModelClientFactory(Settings(openai_api_key="k")).create("gpt-4o").model_info["vision"] is True
    )  # table untouched


def test_clients_are_made_once_and_bounded(factory: MakeFactory) -> None:
    made = factory()
    first = made.create("m0")
    assert made.create("m0") is first
    assert made.create("m0", SecretStr("k")) is not first
    for number in range(MAX_CLIENTS):
        made.create(f"m{number}", SecretStr("k"))
    assert made.create("m0") is not first


async def test_dropping_or_closing_a_client_disturbs_no_other(factory: MakeFactory) -> None:
    made = factory()
    client, other = made.create("a"), made.create("b")
    await client.close()
    assert (await client.create(HELLO)).content == "ok"
    assert (await other.create(HELLO)).content == "ok"
    await made.close()
    with pytest.raises(Exception, match=r"closed|Connection"):
        await other.create(HELLO)
    assert (await made.create("a").create(HELLO)).content == "ok"


async def test_retries_are_those_of_the_settings(server: ModelServer, factory: MakeFactory) -> None:
    server.script(None, [Failure(500, headers={"retry-after-ms": "1"}), "second"])
    assert (await factory(model_max_retries=1).create().create(HELLO)).content == "second"


async def test_the_time_limit_is_that_of_the_settings(server: ModelServer, factory: MakeFactory) -> None:
    server.script(None, [Failure(500, delay=5)])
    with pytest.raises(Exception, match="timed out"):
        await factory(model_timeout=0.1).create().create(HELLO)


async def test_a_dumped_client_can_be_loaded_by_autogen(server: ModelServer, factory: MakeFactory) -> None:
    dumped = factory(openai_api_key="sk-planted").create("my-model").dump_component()
    dumped.config["api_key"] = "k"
    client = OpenAIChatCompletionClient.load_component(dumped)
    assert (await client.create(HELLO)).content == "ok"
    await client.close()
    assert server.requests[0].api_key == "k"
