"""What a request may say, and what of it reaches the engine."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import openai
import orjson
import pytest
from pydantic import SecretStr

from drsai_backend.runs.requests import ModelParams
from drsai_backend.teams.client_tools.definitions import ClientTools
from tests.api.bodies import ANSWER, HELLO, TEXT, TOOL, URL, asked, chat, tool
from tests.api.fakes import FakeEngine


async def test_parameters_reach_the_engine(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    await client.chat.completions.create(
        model="assistant",
        messages=[{"role": "developer", "content": "be brief"}, *HELLO],
        temperature=1,
        top_p=0.5,
        max_tokens=10,
        seed=-3,
        n=1,
        tools=[],
        response_format={"type": "text"},
        presence_penalty=0.1,
        user="ann",
        metadata={"color": "blue"},
        extra_headers={"Idempotency-Key": "key-1"},
        extra_body={"api_key": "sk-secret", "chat_id": "c1", "plan": {"steps": [1]}},
    )
    (request,) = engine.requests
    assert request.params == ModelParams(1.0, 10, 0.5, -3, presence_penalty=0.1)
    assert [(message.role, message.text) for message in request.messages] == [("system", "be brief"), ("user", "hello")]
    assert request.raw_messages == [{"role": "developer", "content": "be brief"}, *HELLO]
    assert (request.team, engine.askers[0].user_id, request.where.thread_id, request.n) == ("assistant", "ann", "c1", 1)
    assert request.origin.key == "key-1"
    assert request.api_key is not None
    assert request.api_key.get_secret_value() == "sk-secret"
    assert request.extra == {"plan": {"steps": [1]}, "metadata": {"color": "blue"}}


async def test_nulls_are_as_good_as_nothing(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    names = "thread_id chat_id metadata user stream stream_options temperature top_p max_tokens seed n api_key tools"
    response = await http.post(URL, json=chat(**dict.fromkeys(names.split())))
    assert response.status_code == 200
    request = engine.requests[0]
    assert (engine.askers[0].user_id, request.where.thread_id, request.params, request.extra) == (
        "anonymous",
        None,
        ModelParams(),
        {},
    )


@pytest.mark.parametrize(
    ("choice", "means"),
    [
        (None, ("auto", None)),
        ("none", ("none", None)),
        ("required", ("required", None)),
        ({"type": "function", "function": {"name": "tool_3"}}, ("required", ("tool_3",))),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool(name="tool_3")]}},
            ("auto", ("tool_3",)),
        ),
    ],
    ids=["absent", "none", "required", "named", "allowed"],
)
async def test_tools_of_the_client_reach_the_engine(
    client: openai.AsyncOpenAI, engine: FakeEngine, choice: Any, means: Any
) -> None:
    """Open WebUI sends its own with every chat."""
    tools = [tool(name=f"tool_{n}", description="Does.", parameters={"type": "object"}) for n in range(36)]
    given: dict[str, Any] = {"tools": tools} if choice is None else {"tools": tools, "tool_choice": choice}
    raw = await client.chat.completions.with_raw_response.create(model="assistant", messages=HELLO, **given)
    assert raw.headers["x-ignored-fields"] == ", ".join(given)  # no agent behind the fake engine takes any
    offered = engine.requests[0].client_tools
    assert offered is not None
    assert [each.name for each in offered.tools] == [f"tool_{n}" for n in range(36)]
    assert (offered.choice, offered.only) == means
    assert ClientTools.from_json(orjson.loads(orjson.dumps(offered.to_json()))).to_json() == offered.to_json()
    assert engine.requests[0].extra == {}


async def test_functions_of_the_client_are_tools(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    given = {"functions": [{"name": "f", "parameters": {}}], "function_call": "auto"}
    response = await http.post(URL, json=chat(**given))
    assert (response.status_code, response.headers["x-ignored-fields"]) == (200, "functions, function_call")
    offered = engine.requests[0].client_tools
    assert offered is not None
    assert [(each.name, each.kind) for each in offered.tools] == [("f", "legacy")]
    plain = await http.post(URL, json=chat(tools=[], functions=[]))
    assert "x-ignored-fields" not in plain.headers
    assert engine.requests[1].client_tools is None


async def test_max_completion_tokens_wins(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    await http.post(URL, json=chat(max_tokens=5, max_completion_tokens=9))
    assert engine.requests[0].params.max_tokens == 9


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("ann", "ann"),
        ({"email": "a@b.c", "name": "Ann", "id": "1"}, "a@b.c"),
        ({"email": None, "name": "Ann", "id": "1"}, "Ann"),
        ({"email": "", "id": 17}, "17"),
    ],
)
async def test_who_the_user_is(http: httpx.AsyncClient, engine: FakeEngine, user: Any, expected: str) -> None:
    assert (await http.post(URL, json=chat(user=user))).status_code == 200
    assert engine.askers[0].user_id == expected


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({"thread_id": "t-é"}, {}),
        ({"chat_id": "t-é"}, {}),
        ({"metadata": {"thread_id": "t-é"}}, {}),
        ({}, {"X-Thread-Id": "t-é".encode()}),
        ({}, {"X-OpenWebUI-Chat-Id": "t-é".encode()}),
        ({"thread_id": "t-é", "chat_id": "t-é"}, {"X-Thread-Id": "t-é".encode()}),
    ],
)
async def test_how_a_thread_is_named(
    http: httpx.AsyncClient, engine: FakeEngine, fields: dict[str, Any], headers: dict[str, Any]
) -> None:
    response = await http.post(URL, json=chat(**fields), headers=headers)
    assert response.json()["thread_id"] == "t-é"
    assert engine.requests[0].where.thread_id == "t-é"


async def test_text_parts_become_one_text(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    await http.post(URL, json=asked(TEXT, {"type": "text", "text": "well?"}))
    assert engine.requests[0].messages[0].content == "look\n\nwell?"


async def test_a_history_with_tool_calls_of_another_service(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    called = {"name": "f", "arguments": "{}"}
    calls = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": called}]}
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    response = await http.post(URL, json=chat(messages=[*HELLO, calls, TOOL, refusal, ANSWER, *HELLO]))
    assert response.status_code == 200
    request = engine.requests[0]
    assert [(message.role, message.text) for message in request.messages] == [
        ("user", "hello"),
        ("assistant", ""),
        ("tool", "42"),
        ("assistant", "no"),
        ("assistant", "hi"),
        ("user", "hello"),
    ]
    assert len(request.raw_messages) == len(request.messages)


@pytest.mark.parametrize("fields", [{}, {"api_key": "sk-mine"}, {"api_key": " "}, {"api_key": None}])
@pytest.mark.parametrize("header", ["sk-mine", "  sk-mine "])
async def test_the_models_key_in_a_header(
    http: httpx.AsyncClient, engine: FakeEngine, fields: dict[str, Any], header: str
) -> None:
    response = await http.post(URL, json=chat(**fields), headers={"X-Model-Api-Key": header})
    assert response.status_code == 200
    key = engine.requests[0].api_key
    assert key is not None
    assert key.get_secret_value() == "sk-mine"


async def test_an_empty_header_is_no_key(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    for fields in ({}, {"api_key": "sk-mine"}):
        await http.post(URL, json=chat(**fields), headers={"X-Model-Api-Key": " "})
    assert [request.api_key for request in engine.requests] == [None, SecretStr("sk-mine")]


@pytest.mark.parametrize(
    ("header", "fields", "complaint"),
    [
        (b"sk-planted", {"api_key": "sk-other"}, "`X-Model-Api-Key` and `api_key` are different keys: send one"),
        (b"sk-planted two", {}, "`X-Model-Api-Key` must be an API key: letters, digits and signs of ASCII"),
        ("sk-planted-ключ".encode(), {}, "`X-Model-Api-Key` must be an API key"),
        (b"sk-planted\xff", {}, "the header `X-Model-Api-Key` must be UTF-8"),
    ],
)
async def test_a_models_key_in_a_header_that_is_refused(
    http: httpx.AsyncClient, engine: FakeEngine, header: bytes, fields: dict[str, Any], complaint: str
) -> None:
    response = await http.post(URL, json=chat(**fields), headers={b"X-Model-Api-Key": header})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "X-Model-Api-Key"
    assert error["message"].startswith(complaint)
    assert "planted" not in response.text
    assert not engine.requests


async def test_a_key_is_never_repeated(
    http: httpx.AsyncClient, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="drsai_backend")
    secret = "sk-planted-secret"
    said = [
        await http.post(URL, json=chat(api_key=secret)),
        await http.post(URL, json=chat(api_key=secret, stream=True)),
        await http.post(URL, json=chat(api_key=secret, temperature=9)),
        await http.post(URL, json=chat(api_key=[secret])),
        await http.post(URL, json=chat(api_key={"key": secret})),
    ]
    engine.refusal = RuntimeError("broken")
    said.append(await http.post(URL, json=chat(api_key=secret)))
    assert [response.status_code for response in said] == [200, 200, 400, 400, 400, 500]
    shown = "".join(f"{response.text}{response.headers}" for response in said)
    assert secret not in shown + caplog.text + repr(engine.requests)
