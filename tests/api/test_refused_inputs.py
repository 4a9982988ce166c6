"""What a request may not say, and how its client is told."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest

from tests.api.bodies import ANSWER, HELLO, JSON, TEXT, TOOL, URL, asked, chat, form, image, png, tool
from tests.api.fakes import FakeEngine

OFFERED = tool()

REFUSED: list[tuple[str, Any, int, str | None, str]] = [
    # body, status, param, part of the message
    ("not json", b"{", 400, None, "not valid JSON"),
    ("empty", b"", 400, None, "empty"),
    ("no object", b"[]", 400, None, "must be a JSON object"),
    ("a string", b'"' + b"[" * 100 + b'"', 400, None, "must be a JSON object"),
    ("not utf-8", b'{"model": "\xff"}', 400, None, "not valid JSON"),
    ("raw nul", b'{"model": "a\x00b"}', 400, None, "not valid JSON"),
    ("too deep to parse", b"[" * 3000, 400, None, "not valid JSON"),
    ("deep", b'{"model":"a","messages":[],"more":' + b"[" * 200 + b"]" * 200 + b"}", 400, "more", "nested deeper"),
    ("nul", chat(messages=[{"role": "user", "content": "a\0b"}]), 400, "messages[0].content", "NUL"),
    ("nul in an extra field", chat(extra={"deep": ["x\0"]}), 400, "extra.deep[0]", "NUL"),
    ("nul in a key", chat(extra={"a\0": 1}), 400, "extra", "NUL"),
    (
        "surrogate",
        b'{"model":"assistant","messages":[{"role":"user","content":"\\ud800"}]}',
        400,
        "messages[0].content",
        "surrogate",
    ),
    ("surrogate in a key", b'{"\\udc00": 1}', 400, None, "surrogate"),
    ("nan", b'{"model":"assistant","messages":[],"temperature":NaN}', 400, "temperature", "finite"),
    ("infinity", b'{"model":"assistant","messages":[],"temperature":1e999}', 400, "temperature", "finite"),
    ("no model", {"messages": HELLO}, 400, "model", "required"),
    ("empty model", chat(model=""), 400, "model", "empty"),
    ("model is a number", chat(model=3), 400, "model", "string"),
    ("long model", chat(model="m" * 256), 400, "model", "255"),
    ("unknown model", chat(model="nobody"), 404, "model", "nobody"),
    ("a slip", chat(threadid="t"), 400, "threadid", "did you mean `thread_id`?"),
    ("another slip", chat(max_run_token=5), 400, "max_run_token", "did you mean `max_run_tokens`?"),
    ("a slip of case", chat(onBusy="reject"), 400, "onBusy", "did you mean `on_busy`?"),
    ("no messages", {"model": "assistant"}, 400, "messages", "required"),
    ("empty messages", chat(messages=[]), 400, "messages", "at least one"),
    ("messages is a string", chat(messages="hi"), 400, "messages", "list"),
    ("message is a string", chat(messages=["hi"]), 400, "messages[0]", "object"),
    ("no role", chat(messages=[{"content": "a"}]), 400, "messages[0].role", "required"),
    ("unknown role", chat(messages=[{"role": "wizard", "content": "a"}]), 400, "messages[0].role", "one of"),
    ("role is a list", chat(messages=[{"role": [], "content": "a"}]), 400, "messages[0].role", "one of"),
    ("no content", chat(messages=[{"role": "user"}]), 400, "messages[0].content", "required"),
    ("content is a number", chat(messages=[{"role": "user", "content": 1}]), 400, "messages[0].content", "string"),
    ("nothing said", chat(messages=[{"role": "user", "content": "  "}]), 400, "messages[0].content", "empty"),
    ("no parts", asked(), 400, "messages[0].content", "empty"),
    ("last is the assistant's", chat(messages=[*HELLO, ANSWER, ANSWER]), 400, "messages[2].role", "user's"),
    ("only a system message", chat(messages=[{"role": "system", "content": "a"}]), 400, "messages[0].role", "user's"),
    (
        "a tool result",
        chat(messages=[*HELLO, ANSWER, TOOL, *HELLO]),
        400,
        "messages[2].tool_call_id",
        "no call 'c1'",
    ),
    ("part is a string", asked("a"), 400, "messages[0].content[0]", "object"),
    ("part without a type", asked({"text": "a"}), 400, "messages[0].content[0].type", "must be"),
    ("text is a number", asked({"type": "text", "text": 1}), 400, "messages[0].content[0].text", "string"),
    (
        "audio",
        asked({"type": "input_audio", "input_audio": {}}),
        400,
        "messages[0].content[0].input_audio",
        "needs `data`",
    ),
    ("file", asked(TEXT, {"type": "file", "file": {}}), 400, "messages[0].content[1].file", "needs `file_data`"),
    (
        "remote image",
        asked(TEXT, image("https://localhost/y.png")),
        400,
        "messages[0].content[1].image_url",
        "fetches no",
    ),
    ("image without url", asked(TEXT, {"type": "image_url"}), 400, "messages[0].content[1].image_url", "string"),
    ("image of no form", asked(image("data:text/plain,hi")), 400, "messages[0].content[0].image_url", "data:image"),
    ("not base64", asked(image("data:image/png;base64,@@")), 400, "messages[0].content[0].image_url", "base64"),
    ("no image", asked(image("data:image/png;base64,aGVsbG8=")), 400, "messages[0].content[0].image_url", "readable"),
    (
        "cut image",
        asked(TEXT, image(f"data:image/png;base64,{png()[:64]}")),
        400,
        "messages[0].content[1].image_url",
        "readable",
    ),
    (
        "system image",
        chat(messages=[{"role": "system", "content": [image(f"data:image/png;base64,{png()}")]}, *HELLO]),
        400,
        "messages[0].content[0]",
        "only user",
    ),
    ("hot", chat(temperature=2.1), 400, "temperature", "at most 2"),
    ("cold", chat(temperature=-0.1), 400, "temperature", "at least 0"),
    ("temperature is a string", chat(temperature="1"), 400, "temperature", "number"),
    ("temperature is a flag", chat(temperature=True), 400, "temperature", "number"),
    ("top_p", chat(top_p=1.1), 400, "top_p", "at most 1"),
    ("max_tokens", chat(max_tokens=0), 400, "max_tokens", "at least 1"),
    ("max_tokens is a fraction", chat(max_tokens=1.5), 400, "max_tokens", "integer"),
    ("max_completion_tokens", chat(max_completion_tokens=2**31), 400, "max_completion_tokens", "at most"),
    ("seed", chat(seed=2**63), 400, "seed", ""),
    ("seed is a string", chat(seed="1"), 400, "seed", "integer"),
    ("two answers", chat(n=2), 400, "n", "must be 1"),
    ("stream is a string", chat(stream="yes"), 400, "stream", "true or false"),
    ("stream_options is a list", chat(stream_options=[]), 400, "stream_options", "object"),
    (
        "include_usage is a number",
        chat(stream_options={"include_usage": 1}),
        400,
        "stream_options.include_usage",
        "true or false",
    ),
    ("a tool that must be called", chat(tools=[], tool_choice="required"), 400, "tool_choice", "has none"),
    (
        "a named tool",
        chat(tools=[], tool_choice={"type": "function", "function": {"name": "f"}}),
        400,
        "tool_choice",
        "'f'",
    ),
    ("a named function", chat(functions=[{"name": "g"}], function_call={"name": "f"}), 400, "function_call", "'f'"),
    ("tool_choice is a number", chat(tool_choice=1), 400, "tool_choice", "'auto', 'none', 'required'"),
    ("two tools of a name", chat(tools=[OFFERED, OFFERED]), 400, "tools", "two tools"),
    ("a name of ours", chat(**{"drsai:client_tools": {}}), 400, "drsai:client_tools", "own"),
    ("tools is an object", chat(tools={}), 400, "tools", "list"),
    ("a tool is a string", chat(tools=[OFFERED, "f"]), 400, "tools[1]", "object"),
    ("a tool without a type", chat(tools=[{"function": {"name": "f"}}]), 400, "tools[0].type", "'function'"),
    ("a tool without its function", chat(tools=[{"type": "function"}]), 400, "tools[0].function", "object"),
    ("a tool without a name", chat(tools=[tool(name="")]), 400, "tools[0].function.name", "1 to 128"),
    ("parameters are a list", chat(tools=[tool(parameters=[])]), 400, "tools[0].function.parameters", "object"),
    ("description is a list", chat(functions=[{"name": "f", "description": []}]), 400, "functions[0].description", ""),
    ("too many tools", chat(tools=[OFFERED] * 129), 400, "tools", "at most 128"),
    ("too much of tools", chat(tools=[tool(description="d" * 300_000)]), 400, "tools", "at most 262144 bytes"),
    ("parallel_tool_calls", chat(parallel_tool_calls="yes"), 400, "parallel_tool_calls", "true or false"),
    ("a form unknown", chat(response_format={"type": "grammar"}), 400, "response_format.type", "'json_schema'"),
    ("a form without", chat(response_format={"type": "json_schema"}), 400, "response_format.json_schema", "required"),
    ("a form unnamed", form({"schema": {}}), 400, "response_format.json_schema.name", "required"),
    ("a form misnamed", form({"name": "a b"}), 400, "response_format.json_schema.name", "not valid"),
    ("a form's size", form({"name": "a", "description": "d" * 300_000}), 400, "response_format", "262144 bytes"),
    ("stop is a number", chat(stop=1), 400, "stop", "string"),
    ("stop is empty", chat(stop=["x", ""]), 400, "stop[1]", "empty"),
    ("penalty", chat(presence_penalty=2.5), 400, "presence_penalty", "at most 2"),
    ("bias", chat(logit_bias={"50256": 101}), 400, "logit_bias.50256", "at most 100"),
    ("effort", chat(reasoning_effort=3), 400, "reasoning_effort", "string"),
    ("prediction", chat(prediction={"type": "image"}), 400, "prediction.type", "'content'"),
    ("modalities", chat(modalities=["text", "audio"]), 400, "modalities", "['text']"),
    ("audio", chat(audio={"voice": "alloy", "format": "wav"}), 400, "audio", "not supported"),
    ("logprobs", chat(logprobs=True), 400, "logprobs", "not supported"),
    ("top_logprobs", chat(top_logprobs=3), 400, "top_logprobs", "not supported"),
    ("web search", chat(web_search_options={}), 400, "web_search_options", "not supported"),
    ("moderation", chat(moderation={"model": "omni-moderation-latest"}), 400, "moderation", "not supported"),
    ("store", chat(store="yes"), 400, "store", "true or false"),
    ("metadata is a string", chat(metadata="x"), 400, "metadata", "object"),
    ("user is a number", chat(user=1), 400, "user", "string or an object"),
    ("user is empty", chat(user=""), 400, "user", "1 to 255"),
    ("user of nothing", chat(user={}), 400, "user", "email"),
    ("user with a list", chat(user={"email": ["a"]}), 400, "user.email", "string"),
    ("long user", chat(user="u" * 256), 400, "user", "1 to 255"),
    ("thread_id is a number", chat(thread_id=1), 400, "thread_id", "string"),
    ("thread_id is empty", chat(thread_id=""), 400, "thread_id", "1 to 255"),
    ("thread_id is long", chat(thread_id="t" * 256), 400, "thread_id", "1 to 255"),
    ("thread_id has a newline", chat(thread_id="a\r\nX-Evil: 1"), 400, "thread_id", "printable"),
    ("thread_id ends with a space", chat(thread_id="a "), 400, "thread_id", "space"),
    ("two threads", chat(thread_id="a", chat_id="b"), 400, "chat_id", "different threads"),
    ("metadata's thread is a list", chat(metadata={"thread_id": []}), 400, "metadata.thread_id", "string"),
    ("metadata's thread differs", chat(chat_id="a", metadata={"thread_id": "b"}), 400, "metadata.thread_id", "differ"),
    ("key is a number", chat(api_key=7), 400, "api_key", "string"),
]


@pytest.mark.parametrize(
    ("body", "status", "param", "text"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
async def test_bad_input_is_named(
    http: httpx.AsyncClient, engine: FakeEngine, body: Any, status: int, param: str | None, text: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = await http.post(URL, content=content, headers=JSON)
    assert response.status_code == status
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert text in error["message"]
    assert "pydantic" not in response.text
    assert "Traceback" not in response.text
    assert response.headers["x-request-id"]
    assert engine.requests == []
    assert (await http.post(URL, json=chat())).status_code == 200


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"])
async def test_only_json_is_read(http: httpx.AsyncClient, content_type: str) -> None:
    headers = {"content-type": content_type} if content_type else {}
    response = await http.post(URL, content=json.dumps(chat()).encode(), headers=headers)
    assert response.status_code == 415
    assert response.json()["error"]["code"] == "unsupported_media_type"


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_long(http: httpx.AsyncClient, engine: FakeEngine, chunked: bool) -> None:
    body = json.dumps(chat(padding="x" * 1_500_000)).encode()

    async def parts() -> Any:
        for start in range(0, len(body), 100_000):
            yield body[start : start + 100_000]

    response = await http.post(URL, content=parts() if chunked else body, headers=JSON)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"
    assert "1000000" in response.json()["error"]["message"]
    assert engine.requests == []


async def test_the_openai_client_understands_refusals(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="assistant", messages=HELLO, temperature=9)
    assert (caught.value.param, caught.value.code) == ("temperature", "invalid_request")
    assert caught.value.request_id is not None
    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(model="nobody", messages=HELLO)
    assert missing.value.code == "model_not_found"


async def test_headers_that_cannot_be_used(http: httpx.AsyncClient) -> None:
    for headers, param in [
        ({"X-Thread-Id": b"\xff"}, "X-Thread-Id"),
        ({"X-Thread-Id": b""}, "X-Thread-Id"),
        ({"Idempotency-Key": b"k" * 256}, "Idempotency-Key"),
    ]:
        response = await http.post(URL, json=chat(), headers=headers)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == param
    response = await http.post(URL, json=chat(thread_id="a"), headers={"X-Thread-Id": "b"})
    assert response.json()["error"]["param"] == "X-Thread-Id"
