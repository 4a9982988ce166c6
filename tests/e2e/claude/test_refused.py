"""What Claude-speaking clients are refused, and in which words; and what becomes of each parameter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anthropic
import pytest

from drsai_backend.api.anthropic.body import FATES, HEADERS
from drsai_backend.datamodel import Run
from drsai_backend.datamodel.owner import Owner
from tests.e2e.claude.conftest import WEATHER, Claude, ask
from tests.support.model_server import Failure, ModelServer

SEARCH: Any = {"type": "web_search_20250305", "name": "web_search"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"extra_body": {"top_k": 5}}, "top_k"),
    ({"container": "c"}, "container"),
    ({"extra_body": {"thread": {"type": "continue", "previous_message_id": "msg_1"}}}, "thread"),
    ({"extra_body": {"compaction": {"type": "summarize"}}}, "compaction"),
    ({"extra_body": {"mcp_servers": [{}]}}, "mcp_servers"),
    ({"extra_body": {"temperature": 1.5}}, "temperature"),
    ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "thinking"),
    ({"tools": [{"type": "web search", "name": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"name": "look"}]}, "tools[0].input_schema"),
    ({"tools": [WEATHER, SEARCH], "tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": [WEATHER, SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}}, "tool_choice"),
    ({"tools": [{**WEATHER, "name": "a b"}]}, "tools[0].name"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": " "}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}]},
        "messages[0].content[0].type",
    ),
    (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image", "source": {"type": "url", "url": "https://localhost/y.png"}}],
                }
            ]
        },
        "messages[0].content[0].source",
    ),
    (
        {
            "messages": [
                {"role": "user", "content": "x"},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "see"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
                    ],
                },
            ]
        },
        "messages[1].content[1].source",
    ),
    (
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "The answer is"}]},
        "messages",
    ),
    (
        {
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b", "content": "x"}]},
            ]
        },
        "messages[1].content[0].tool_use_id",
    ),
    ({"extra_headers": {"X-Thread-Id": "a"}, "extra_body": {"thread_id": "b"}}, "X-Thread-Id"),
    ({"extra_body": {"stop": "x"}}, "stop"),
]


async def test_what_cannot_be_is_refused_by_name(claude: Claude, model: ModelServer) -> None:
    client, service = await claude()
    hello = {"model": "assistant", "max_tokens": 10, "messages": [{"role": "user", "content": "Hello"}]}
    for values, param in REFUSED:
        with pytest.raises(anthropic.BadRequestError) as caught:
            await client.messages.create(**{**hello, **values})
        body: Any = caught.value.body
        told = (body["type"], body["error"]["type"], body["error"]["param"])
        assert told == ("error", "invalid_request_error", param)
        assert param.partition("[")[0] in body["error"]["message"]
        assert body["request_id"] == caught.value.response.headers["request-id"]
    assert model.requests == []
    assert await service.drsai.db.get(Run) == []


async def test_errors(claude: Claude, model: ModelServer) -> None:
    client, service = await claude()
    with pytest.raises(anthropic.NotFoundError) as missing:
        await ask(client, "Hello", model="nobody")
    assert missing.value.type == "not_found_error"
    model.script(None, lambda _: Failure(500))
    with pytest.raises(anthropic.APIStatusError) as failed:
        await ask(client, "Hello")
    assert (failed.value.status_code, failed.value.type) == (424, "api_error")
    assert failed.value.response.headers["x-should-retry"] == "false"
    with pytest.raises(anthropic.APIStatusError, match="api_error"):
        async with client.messages.stream(
            model="assistant", max_tokens=5, messages=[{"role": "user", "content": "Hello"}]
        ) as stream:
            await stream.get_final_message()
    response = await service.http.post("/v1/messages", content=b"{", headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["type"]) == (400, "error")


async def test_keys(claude: Claude, model: ModelServer) -> None:
    client, service = await claude()
    made = await service.drsai.keys.create(Owner("acme", "ann"), ["chat"])
    with pytest.raises(anthropic.AuthenticationError) as refused:
        await ask(client, "Hello")
    assert refused.value.type == "authentication_error"
    key = made.key.get_secret_value()
    body = {"model": "assistant", "max_tokens": 5, "messages": [{"role": "user", "content": "Hello"}]}
    for headers in ({"x-api-key": key}, {"Authorization": f"Bearer {key}"}):
        answer = await service.http.post("/v1/messages?beta=true", json=body, headers=headers)
        assert answer.json()["content"] == [{"type": "text", "text": "ok"}]
    assert len((await service.drsai.user("ann", tenant="acme").list_threads()).items) == 2


def test_every_parameter_of_the_package_has_its_fate() -> None:
    from anthropic.types.message_create_params import MessageCreateParamsBase

    assert set(MessageCreateParamsBase.__annotations__) - HEADERS <= set(FATES)
    document = (Path(__file__).parents[3] / "docs" / "claude.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", document, re.MULTILINE)
    told = {name for names in rows for name in re.findall(r"`(\w+)", names)}
    assert set(FATES) - told == set(), "docs/claude.md says what becomes of each"
