"""What a profile's models do not take of a request is refused, or named, and never left out in silence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drsai_backend import AssistantAgent, RunContext
from tests.e2e.conftest import Serve
from tests.support.model_server import ModelServer
from tests.support.other_endpoints import AnthropicServer

URL = "/v1/chat/completions"
ASKED = [{"role": "user", "content": "Hi"}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
FORMS: list[dict[str, Any]] = [{"type": "json_object"}, SCHEMA]


def lone(context: RunContext) -> AssistantAgent:
    return AssistantAgent("lone", context.model_client(), model_client_stream=True)


@pytest.fixture
def claude() -> Iterator[Any]:
    with AnthropicServer(strict=False) as server:
        yield server


def settings(path: Path, claude: AnthropicServer, default: str = "claude", **more: Any) -> dict[str, Any]:
    """Settings with a profile of Claude's, one of OpenAI's, and one of both."""
    own = {"provider": "anthropic", "model": "claude-test", "endpoint": claude.base_url.removesuffix("/v1"), **more}
    profiles = {"claude": own, "gpt": {"model": "gpt-4o"}, "both": {**own, "fallback": ["gpt"]}}
    profiles["rules"] = {"model": "gpt-4o", "routes": [{"use": "claude", "language": "ru"}]}
    # AutoGen knows nothing of this one, and so not what it can do.
    profiles |= {"qwen": {"model": "qwen-own"}, "claude, qwen": {**own, "fallback": ["qwen"]}}
    profiles["qwen, gpt"] = {"model": "qwen-own", "fallback": ["gpt"]}
    unable = {"model": "qwen-own", "can": {"structured_output": False}}
    profiles |= {"unable": unable, "unable, gpt": {**unable, "fallback": ["gpt"]}}
    profiles["claude, unable"] = {**own, "fallback": ["unable"]}
    file = path / "models.json"
    file.write_text(json.dumps({"default": default, "profiles": profiles}))
    return {"models": file, "model": None}


async def test_parameters_that_claude_does_not_take_are_named(
    serve: Serve, claude: AnthropicServer, tmp_path: Path
) -> None:
    service = await serve({"lone": lone}, **settings(tmp_path, claude))
    given = {"seed": 7, "temperature": 0.5, "presence_penalty": 0.1, "stop": "END", "logit_bias": {"1": 1}}
    answer = await service.http.post(URL, json={"model": "lone", "messages": ASKED, **given})
    assert answer.headers["X-Ignored-Fields"] == "seed, presence_penalty, logit_bias"
    [request] = claude.requests
    assert (request.body["temperature"], request.body["stop_sequences"]) == (0.5, ["END"])


async def test_what_the_next_model_takes_is_not_ignored(
    serve: Serve, claude: AnthropicServer, model: ModelServer, tmp_path: Path
) -> None:
    service = await serve({"lone": lone}, **settings(tmp_path, claude, "both"))
    answer = await service.http.post(URL, json={"model": "lone", "messages": ASKED, "seed": 7})
    assert "X-Ignored-Fields" not in answer.headers


@pytest.mark.parametrize("form", FORMS, ids=["json_object", "json_schema"])
async def test_a_form_is_asked_of_a_model_that_takes_one(
    serve: Serve, claude: AnthropicServer, model: ModelServer, tmp_path: Path, form: dict[str, Any]
) -> None:
    service = await serve({"lone": lone}, **settings(tmp_path, claude, "both"))
    given = {"model": "lone", "messages": ASKED}
    assert (await service.http.post(URL, json={**given, "response_format": form})).status_code == 200
    assert (len(claude.requests), [each.body["response_format"] for each in model.requests]) == (0, [form])
    await service.http.post(URL, json={**given, "response_format": {"type": "text"}})
    assert (len(claude.requests), len(model.requests)) == (1, 1)


@pytest.mark.parametrize("form", FORMS, ids=["json_object", "json_schema"])
async def test_a_form_is_asked_of_models_of_which_nothing_is_known(
    serve: Serve, claude: AnthropicServer, model: ModelServer, tmp_path: Path, form: dict[str, Any]
) -> None:
    for default in ("claude, qwen", "qwen, gpt"):
        service = await serve({"lone": lone}, **settings(tmp_path, claude, default))
        answer = await service.http.post(URL, json={"model": "lone", "messages": ASKED, "response_format": form})
        assert (answer.status_code, len(claude.requests)) == (200, 0)
        assert (model.requests[-1].model, model.requests[-1].body["response_format"]) == ("qwen-own", form)


@pytest.mark.parametrize("default", ["unable, gpt", "claude, unable"])
async def test_a_form_is_asked_of_who_is_said_to_be_unable_where_there_is_nobody_else(
    serve: Serve, claude: AnthropicServer, model: ModelServer, tmp_path: Path, default: str
) -> None:
    service = await serve({"lone": lone}, **settings(tmp_path, claude, default))
    given = {"model": "lone", "messages": ASKED, "response_format": SCHEMA}
    assert (await service.http.post(URL, json=given)).status_code == 200
    asked = "gpt-4o" if default == "unable, gpt" else "qwen-own"
    assert (claude.requests, [(each.model, each.body["response_format"]) for each in model.requests]) == (
        [],
        [(asked, SCHEMA)],
    )


@pytest.mark.parametrize("form", FORMS, ids=["json_object", "json_schema"])
async def test_a_form_that_no_model_takes_is_refused(
    serve: Serve, claude: AnthropicServer, model: ModelServer, tmp_path: Path, form: dict[str, Any]
) -> None:
    """At once; or where a rule leads to models that do not take it, when they would be asked."""
    service = await serve({"lone": lone}, **settings(tmp_path, claude))
    answer = await service.http.post(URL, json={"model": "lone", "messages": ASKED, "response_format": form})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "response_format")
    service = await serve({"lone": lone}, **settings(tmp_path, claude, "rules"))
    for text, status in (("Hi", 200), ("Привет", 400)):
        messages = [{"role": "user", "content": text}]
        answer = await service.http.post(URL, json={"model": "lone", "messages": messages, "response_format": form})
        assert answer.status_code == status, answer.text
    assert (answer.json()["error"]["param"], answer.json()["error"]["code"]) == ("response_format", "parameter_refused")
    assert claude.requests == []


async def test_what_anthropic_alone_knows_is_sent_as_it_is(
    serve: Serve, claude: AnthropicServer, tmp_path: Path
) -> None:
    own = {"top_k": 5, "output_config": {}, "extra_headers": {"anthropic-beta": "b"}, "extra_body": {"metadata": {}}}
    service = await serve({"lone": lone}, **settings(tmp_path, claude, parameters=own))
    answer = await service.http.post(URL, json={"model": "lone", "messages": ASKED})
    assert answer.status_code == 200, answer.text
    [request] = claude.requests
    assert request.headers["anthropic-beta"] == "b"
    assert (request.body["top_k"], request.body["output_config"], request.body["metadata"]) == (5, {}, {})


async def test_what_a_profile_says_in_vain_is_told(
    serve: Serve, claude: AnthropicServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "drsai.model")
    own = {"temperature": 0.5, "frequency_penalty": 0.1, "top_k": 5, "response_format": {"type": "json_object"}}
    service = await serve({"lone": lone}, **settings(tmp_path, claude, parameters=own))
    for _ in range(2):
        assert (await service.http.post(URL, json={"model": "lone", "messages": ASKED})).status_code == 200
    told = [each.getMessage() for each in caplog.records if "left out" in each.getMessage()]
    text = "profile claude: parameters that its model does not take are left out: frequency_penalty, response_format"
    assert [each for each in told if "claude" in each] == [text]
    assert {"frequency_penalty", "response_format"}.isdisjoint(claude.requests[-1].body)
