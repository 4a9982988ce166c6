"""What clients are told has the fields of the official clients' own types, in every event, item and error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types import ErrorResponse, Message, ModelInfo, RawMessageStreamEvent
from autogen_agentchat.agents import UserProxyAgent
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.conversations import ConversationItem
from openai.types.responses import Response, ResponseItem, ResponseStreamEvent

from drsai_backend import AssistantAgent, RoundRobinGroupChat, RunContext
from drsai_backend.agents import requires_approval
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import Answer, Failure, ModelServer, Reply, ToolCall
from tests.support.official import strictly
from tests.support.open_responses import check_events
from tests.support.threads import until

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "name": "weather", "parameters": CITY, "strict": True}
PATCH = {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}}
FORM = {"format": {"type": "json_schema", "name": "place", "schema": CITY, "strict": True}, "verbosity": "low"}
TOLD_AGAIN = {
    "instructions": "Be brief.", "metadata": {"a": "b"}, "reasoning": {"effort": "low", "summary": "auto"},
    "service_tier": "flex", "prompt_cache_key": "p", "safety_identifier": "s", "truncation": "auto",
    "temperature": 0.1, "top_p": 0.2, "parallel_tool_calls": False, "max_output_tokens": 50,
}  # fmt: skip
CALLS = Reply(
    "Let me look.",
    reasoning="hm",
    tool_calls=[ToolCall("weather", {"city": "Bonn"}), ToolCall("patch", {"input": "a"})],
)
THOUGHT = Reply("Hello you.", reasoning="I think.", details={"prompt_tokens_details": {"cached_tokens": 3}})


def plain(context: RunContext) -> AssistantAgent:
    return AssistantAgent("assistant", context.model_client(), model_client_stream=True)


def team(context: RunContext) -> RoundRobinGroupChat:
    two = [AssistantAgent(name, context.model_client(), model_client_stream=True) for name in ("ann", "bob")]
    return RoundRobinGroupChat(two, max_turns=2)


def asking(context: RunContext) -> RoundRobinGroupChat:
    return RoundRobinGroupChat([AssistantAgent("ann", context.model_client()), UserProxyAgent("boss")], max_turns=2)


@requires_approval
async def pay(euros: int) -> str:
    """Pays."""
    return f"paid {euros}"


def clerk(context: RunContext) -> AssistantAgent:
    return AssistantAgent("clerk", context.model_client(), tools=[pay])


TEAMS = {"assistant": plain, "team": team, "asking": asking, "clerk": clerk}
RESPONSES: dict[str, tuple[dict[str, Any], list[Answer]]] = {
    "a thought": ({}, [THOUGHT]),
    "what is told again": (TOLD_AGAIN, [Reply("ok", service_tier="priority")]),
    "calls": ({"tools": [WEATHER, PATCH]}, [CALLS]),
    "a form": ({"text": FORM}, [Reply({"city": "Bonn"})]),
    "cut": ({}, [Reply("Hel", finish_reason="length")]),
    "filtered": ({}, [Reply("Hel", finish_reason="content_filter")]),
    "a failure": ({}, [Failure(500)]),
    "a limit": ({}, [Failure(429)]),
    "a group": ({"model": "team"}, ["One.", "Two."]),
    "a question": ({"model": "asking"}, ["One."]),
    "an approval": ({"model": "clerk"}, [Reply(tool_calls=[ToolCall("pay", {"euros": 5})])]),
}


async def frames(service: Service, method: str, path: str, body: Any = None) -> list[Any]:
    """The data of a stream's events, but for `[DONE]`."""
    answer = await service.http.request(method, path, json=body)
    assert answer.status_code == 200, answer.text
    told = [line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data: ")]
    return [json.loads(each) for each in told if each != "[DONE]"]


async def got(service: Service, path: str) -> Any:
    answer = await service.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("name", RESPONSES)
async def test_responses(serve: Serve, model: ModelServer, name: str) -> None:
    """Streamed, asked for afterwards, and streamed again from any event on."""
    service = await serve(TEAMS)
    more, script = RESPONSES[name]
    model.script(None, script)
    events = await frames(
        service, "POST", "/v1/responses", {"model": "assistant", "input": "Hi.", "stream": True, **more}
    )
    for event in events:
        strictly(ResponseStreamEvent, event)
    path = f"/v1/responses/{events[0]['response']['id']}"
    whole = strictly(Response, await got(service, path))
    assert whole["output"] == events[-1]["response"]["output"]
    assert whole["service_tier"] == {"what is told again": "priority"}.get(name, "default")
    if (error := whole["error"]) is not None:
        told = {"a failure": ("server_error", "model_error"), "a limit": ("rate_limit_exceeded", "model_rate_limit")}
        assert (error["code"], whole["drsai"]["error_code"]) == told[name]
    for start in (events[0], events[len(events) // 2], events[-2]):
        number = start["sequence_number"]
        for event in await frames(service, "GET", f"{path}?stream=true&starting_after={number}"):
            strictly(ResponseStreamEvent, event)
    for item in (await got(service, f"{path}/input_items"))["data"]:
        strictly(ResponseItem, item)
    for item in (await got(service, f"/v1/conversations/{whole['drsai']['thread_id']}/items"))["data"]:
        strictly(ConversationItem, item)


HISTORY: list[dict[str, Any]] = [
    {"type": "message", "role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Bonn?"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I look."}]},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Bonn"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "cold"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Cold.", "annotations": []}]},
    {"role": "user", "content": [{"type": "input_file", "filename": "a", "file_data": "data:text/plain;base64,aGk="}]},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    {"type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": "a"},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "done"},
    {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "clerk", "name": "pay", "arguments": "{}"},
    {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
    {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["a"]},
    {"role": "user", "content": "Thanks."},
]  # fmt: skip


async def test_items_of_a_history(serve: Serve, model: ModelServer) -> None:
    """As they wait in a conversation, once they were taken up, and as the input of a response."""
    service = await serve(TEAMS)
    made = (await service.http.post("/v1/conversations", json={"items": HISTORY})).json()
    path = f"/v1/conversations/{made['id']}/items"
    await said(service, path)
    for body in ({"input": HISTORY}, {"input": "Bye.", "conversation": made["id"]}):
        answer = await service.http.post("/v1/responses", json={"model": "assistant", **body})
        assert answer.status_code == 200, answer.text
        listed = (await got(service, f"/v1/responses/{answer.json()['id']}/input_items?order=asc&limit=50"))["data"]
        calls = [strictly(ResponseItem, item) for item in listed if "call_id" in item]
        assert [(item["type"], item["call_id"]) for item in calls] == [
            ("function_call", "call_1"),
            ("function_call_output", "call_1"),
            ("function_call", "call_2"),
            ("function_call_output", "call_2"),
        ]
        named = [{"type": "item_reference", "id": item["id"]} for item in listed]
        again = {"model": "assistant", "input": [*named, {"role": "user", "content": "And now?"}]}
        assert (await service.http.post("/v1/responses", json=again)).status_code == 200
        assert [each["content"] for each in model.requests[-1].messages if each["role"] == "tool"] == ["cold", "done"]
    assert {item["type"] for item in await said(service, path)} == {"message", "function_call", "function_call_output"}


async def said(service: Service, path: str) -> list[Any]:
    """The items of a conversation, read one at a time."""
    found: list[Any] = []
    more = True
    while more:
        after = f"&after={found[-1]['id']}" if found else ""
        page = await got(service, f"{path}?order=asc&limit=1{after}")
        found += [strictly(ConversationItem, item) for item in page["data"]]
        assert found[-1] == await got(service, f"{path}/{found[-1]['id']}")
        more = page["has_more"]
    return found


async def test_items_of_an_approval(serve: Serve, model: ModelServer) -> None:
    """A page of a conversation may end with the answer, and the next one begins after it."""
    service = await serve(TEAMS)
    model.script(None, [Reply("I pay.", reasoning="hm", tool_calls=[ToolCall("pay", {"euros": 5})])])
    asked = (await service.http.post("/v1/responses", json={"model": "clerk", "input": "Pay five."})).json()
    question = asked["output"][-1]["id"]
    answer = {"type": "mcp_approval_response", "approval_request_id": question, "approve": True}
    done = (await service.http.post("/v1/responses", json={"model": "clerk", "input": [answer]})).json()
    [given] = (await got(service, f"/v1/responses/{done['id']}/input_items"))["data"]
    assert strictly(ResponseItem, given)["approval_request_id"] == question
    items = await said(service, f"/v1/conversations/{done['drsai']['thread_id']}/items")
    kinds = [(item["type"], item["id"].partition("_")[0]) for item in items]
    assert kinds == [
        ("message", "msg"),
        ("mcp_approval_response", "mcpa"),
        ("reasoning", "rs"),
        ("reasoning", "rs"),
        ("message", "msg"),
    ]


async def test_a_response_in_the_background_that_is_cancelled(serve: Serve, model: ModelServer) -> None:
    service = await serve(TEAMS)
    model.script(None, lambda _: Reply("One two three", chunk_delay=0.1, hang=True))
    asked = {"model": "assistant", "input": "Count.", "background": True}
    made = strictly(Response, (await service.http.post("/v1/responses", json=asked)).json())
    path = f"/v1/responses/{made['id']}"

    async def is_asked() -> bool:
        return bool(model.requests)

    await until(is_asked)
    assert strictly(Response, await got(service, path))["status"] == "in_progress"
    as_json = {"content-type": "application/json"}
    cancelled = strictly(Response, (await service.http.post(f"{path}/cancel", headers=as_json)).json())
    assert cancelled["status"] == "cancelled"
    events = [strictly(ResponseStreamEvent, each) for each in await frames(service, "GET", f"{path}?stream=true")]
    assert check_events(events)["status"] == "cancelled"


CHATS: dict[str, tuple[dict[str, Any], list[Answer]]] = {
    "a thought": ({}, [Reply(THOUGHT.content, reasoning="I think.", service_tier="priority", system_fingerprint="fp")]),
    "calls": ({"tools": [{"type": "function", "function": {"name": "weather", "parameters": CITY}}]}, [CALLS]),
    "a call of before": ({"functions": [{"name": "weather"}]}, [Reply(tool_calls=[ToolCall("weather")])]),
    "a form": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": CITY, "strict": True}}},
        [Reply({"city": "Bonn"})],
    ),
    "cut": ({}, [Reply("Hel", finish_reason="length")]),
    "filtered": ({}, [Reply("Hel", finish_reason="content_filter")]),
    "a group": ({"model": "team"}, ["One.", "Two."]),
    "a question": ({"model": "asking"}, ["One."]),
    "an approval": ({"model": "clerk"}, [Reply(tool_calls=[ToolCall("pay", {"euros": 5})])]),
    "about a chat": ({"housekeeping": True}, ["A title"]),
}


@pytest.mark.parametrize("name", CHATS)
async def test_chats(serve: Serve, model: ModelServer, name: str) -> None:
    service = await serve(TEAMS)
    more, script = CHATS[name]
    asked = {"model": "assistant", "messages": [{"role": "user", "content": "Hi, JSON."}], **more}
    streaming = {"stream": True, "stream_options": {"include_usage": True}}
    for path, whole, chunk in (
        ("chat/completions", ChatCompletion, ChatCompletionChunk),
        ("completions", Completion, None),
    ):
        if chunk is None:
            if more.keys() - {"model"}:
                continue
            asked = {"prompt": "Hi.", **asked}
            del asked["messages"]
        model.script(None, script)
        answer = strictly(whole, (await service.http.post(f"/v1/{path}", json=asked)).json())
        model.script(None, script)
        *chunks, last, usage = await frames(service, "POST", f"/v1/{path}", {**asked, **streaming})
        assert (usage["choices"], usage["usage"]) == ([], answer["usage"])
        assert {each["usage"] for each in (*chunks, last)} == {None}
        assert {each["choices"][0]["finish_reason"] for each in chunks} <= {None}
        assert last["choices"][0]["finish_reason"] == answer["choices"][0]["finish_reason"]
        for each in (*chunks, last, usage) if chunk else (last, usage):  # OpenAI's own pieces have a null, too.
            strictly(chunk or whole, each)


MESSAGES: dict[str, tuple[dict[str, Any], list[Answer]]] = {
    "a thought": ({"thinking": {"type": "adaptive"}}, [THOUGHT]),
    "calls": ({"tools": [{"name": "weather", "input_schema": CITY}], "thinking": {"type": "adaptive"}}, [CALLS]),
    "a form": ({"output_config": {"format": {"type": "json_schema", "schema": CITY}}}, [Reply({"city": "Bonn"})]),
    **{name: CHATS[name] for name in ("cut", "filtered", "a group", "a question", "an approval", "about a chat")},
}


@pytest.mark.parametrize("name", MESSAGES)
async def test_messages(serve: Serve, model: ModelServer, name: str) -> None:
    service = await serve(TEAMS)
    more, script = MESSAGES[name]
    said = [{"role": "user", "content": "Hi."}]
    asked = {"model": "assistant", "max_tokens": 100, "messages": said, **more}
    model.script(None, script)
    answer = strictly(Message, (await service.http.post("/v1/messages", json=asked)).json())
    model.script(None, script)
    events = await frames(service, "POST", "/v1/messages", {**asked, "stream": True})
    for event in events:
        strictly(RawMessageStreamEvent, event)
    start, *blocks, delta, stop = events
    assert (start["type"], delta["type"], stop["type"]) == ("message_start", "message_delta", "message_stop")
    assert (delta["delta"]["stop_reason"], delta["usage"]) == (answer["stop_reason"], answer["usage"])
    begun = [each for each in blocks if each["type"] == "content_block_start"]
    assert [each["index"] for each in begun] == [*range(len(answer["content"]))]
    assert [each["content_block"]["type"] for each in begun] == [each["type"] for each in answer["content"]]
    assert [each["index"] for each in blocks] == sorted(each["index"] for each in blocks)


async def test_models_and_errors(serve: Serve, model: ModelServer) -> None:
    service = await serve(TEAMS)
    for listed in (await got(service, "/v1/models"))["data"]:
        assert strictly(ModelInfo, strictly(Model, listed))["lifecycle"] == "active"
    hi = [{"role": "user", "content": "Hi."}]
    model.script(None, lambda _: Failure(500))
    for wrong in ({"model": "nobody"}, {"temperature": 9}, {"stream": 3}, {"messages": []}, {}):
        asked = {"model": "assistant", "max_tokens": 100, "messages": hi, **wrong}
        refused = await service.http.post("/v1/messages", json=asked)
        assert refused.status_code >= 400
        assert strictly(ErrorResponse, refused.json())["request_id"] == refused.headers["request-id"]
        refused = await service.http.post("/v1/chat/completions", json=asked)
        assert refused.status_code >= 400
        assert refused.json()["error"].keys() == {"message", "type", "param", "code"}
    *_, last = await frames(service, "POST", "/v1/messages", {**asked, "stream": True})
    assert strictly(ErrorResponse, last)["error"]["code"] == "model_error"
