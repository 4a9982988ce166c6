"""The run's client by name."""

from __future__ import annotations

import pytest
from autogen_core.models import ChatCompletionClient, UserMessage

from drsai_backend.errors import ConfigurationError
from drsai_backend.models import (
    DefaultModelClient,
    DemoChatCompletionClient,
    MessageForm,
    ModelParams,
    RunModelClient,
    UsageMeter,
    run_model_clients,
)


async def test_it_is_the_client_of_the_run_that_is_being_built() -> None:
    meter, asked = UsageMeter(), []

    def maker(model: str | None, messages: MessageForm | None) -> RunModelClient:
        asked.append((model, messages))
        return RunModelClient(DemoChatCompletionClient(delay=0), params=ModelParams(max_tokens=3), meter=meter)

    config = {"provider": "drsai_backend.models.DefaultModelClient", "config": {"model": "big"}}
    with run_model_clients(maker):
        loaded = ChatCompletionClient.load_component(config)
        made = DefaultModelClient()
    assert asked == [("big", None), (None, None)]
    for client in (loaded, made):
        result = await client.create([UserMessage(content="Hello there", source="user")])
        assert result.finish_reason == "length"
    assert meter.calls == 2
    dumped = loaded.dump_component()
    assert (dumped.provider, dumped.config) == (config["provider"], config["config"])


def test_outside_of_a_team_factory_it_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="team factory"):
        DefaultModelClient()
