"""A model thinks, calls a tool, thinks again and answers: its thoughts are no content, however they are streamed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drsai_backend import AssistantAgent, RunContext
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall
from tests.support.other_endpoints import AnthropicServer

FIRST, SECOND = "I need the sum.", "It came back."


async def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


def team(context: RunContext) -> AssistantAgent:
    return AssistantAgent("adder", context.model_client(), tools=[add], model_client_stream=True, max_tool_iterations=4)


def thinks(size: int, apart: bool) -> Callable[[ModelRequest], Reply]:
    """Twice. What it thinks first is in the text, or `apart`: then AutoGen drops it beside the call, and goes on under
    the same id. The second thought is in the text, in pieces of that size."""

    def answer(request: ModelRequest) -> Reply:
        if request.messages[-1]["role"] != "tool":
            calls = [ToolCall("add", {"a": 1, "b": 2})]
            return Reply("", calls, reasoning=FIRST) if apart else Reply(f"<think>{FIRST}</think>", calls)
        text = f"<think>{SECOND}</think>It is 3."
        return Reply(text, chunks=[text[at : at + size] for at in range(0, len(text), size)])

    return answer


def _chat(events: list[dict[str, Any]]) -> tuple[str, str]:
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    return "".join(each.get("content") or "" for each in deltas), "".join(
        each.get("reasoning_content") or "" for each in deltas
    )


def _messages(events: list[dict[str, Any]]) -> tuple[str, str]:
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    return "".join(each.get("text", "") for each in deltas), "".join(each.get("thinking", "") for each in deltas)


def _responses(events: list[dict[str, Any]]) -> tuple[str, str]:
    said = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    return "".join(said), json.dumps(events[-1]["response"]["output"])


ASKED = [{"role": "user", "content": "1 + 2?"}]
WAYS: dict[str, tuple[dict[str, Any], Callable[[list[dict[str, Any]]], tuple[str, str]]]] = {
    "chat/completions": ({"messages": ASKED}, _chat),
    "messages": (
        {"messages": ASKED, "max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 2000}},
        _messages,
    ),
    "responses": ({"input": "1 + 2?"}, _responses),
}


@pytest.mark.parametrize("way", WAYS)
async def test_thoughts_of_several_calls_are_no_content(serve: Serve, model: ModelServer, way: str) -> None:
    service = await serve({"assistant": team})
    body, read = WAYS[way]
    for size in (*range(1, 10), 99):
        for apart in (True, False):
            model.script(None, thinks(size, apart))
            answer = await service.http.post(f"/v1/{way}", json={"model": "assistant", "stream": True, **body})
            assert answer.status_code == 200, answer.text
            lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
            content, thought = read([json.loads(line) for line in lines])
            assert "think" not in content, (size, content)
            assert FIRST not in content, (size, content)
            assert SECOND not in content, (size, content)
            assert content.endswith("It is 3."), (size, content)
            if way != "responses":
                assert FIRST in thought, (size, thought)
                assert SECOND in thought, (size, thought)


# --- what is thought beside calls -------------------------------------------------------------------------------------


def whole(context: RunContext) -> AssistantAgent:
    return AssistantAgent("adder", context.model_client(), tools=[add], max_tool_iterations=4)


BESIDE = "I add them."
FORMS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "reasoning_content": lambda text, thought: {"content": text, "reasoning": thought},
    "reasoning": lambda text, thought: {"content": text, "reasoning": thought, "reasoned": "reasoning"},
    "think": lambda text, thought: {"content": f"<think>{thought}</think>{text}"},
}
"""How endpoints tell what a model thinks: apart, by two names, or in front of the text."""


def reasons(form: str, beside: str = "") -> Callable[[ModelRequest], Reply]:
    """Thinks, calls a tool, thinks, and answers. `beside`: what it says along with the call."""

    def answer(request: ModelRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply(**FORMS[form]("It is 3.", SECOND))
        return Reply(**FORMS[form](beside, FIRST), tool_calls=[ToolCall("add", {"a": 1, "b": 2})])

    return answer


def _told(way: str, body: dict[str, Any]) -> tuple[str, str]:
    """The text of a whole answer, and what its dialect tells of thoughts."""
    if way == "chat/completions":
        message = body["choices"][0]["message"]
        return message["content"], message["reasoning_content"]
    if way == "messages":
        blocks = body["content"]
        return "".join(each.get("text", "") for each in blocks), "".join(each.get("thinking", "") for each in blocks)
    texts = [part["text"] for each in body["output"] if each["type"] == "message" for part in each["content"]]
    summaries = [part["text"] for each in body["output"] if each["type"] == "reasoning" for part in each["summary"]]
    return "".join(texts), "\n\n".join(summaries)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", WAYS)
async def test_thoughts_beside_calls_are_told_and_are_no_content(
    serve: Serve, model: ModelServer, way: str, form: str
) -> None:
    """Whether the model is asked for a stream or not, and the client too."""
    service = await serve({"streams": team, "whole": whole})
    body, read = WAYS[way]
    for agent in ("streams", "whole"):
        for stream in (True, False):
            model.clear()
            model.script(None, reasons(form))
            given = {"model": agent, "stream": stream, **body}
            answer = await service.http.post(f"/v1/{way}", json=given)
            assert answer.status_code == 200, answer.text
            if stream:
                lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
                events = [json.loads(line) for line in lines]
                content, thought = read(events)
                if way == "responses":
                    content, thought = _told(way, events[-1]["response"])
            else:
                content, thought = _told(way, answer.json())
            assert (content, thought) == ("It is 3.", f"{FIRST}\n\n{SECOND}"), (agent, stream)
            assert FIRST not in json.dumps(model.requests[-1].body), "no thought goes back to the model"
            run = (await service.http.get("/v1/runs", params={"limit": 1})).json()["data"][0]["run_id"]
            steps = (await service.http.get(f"/v1/runs/{run}/steps")).json()["data"]
            assert [step["thought"] for step in steps] == [FIRST, SECOND]


@pytest.mark.parametrize("form", FORMS)
async def test_what_is_said_beside_calls_is_content_as_ever(serve: Serve, model: ModelServer, form: str) -> None:
    service = await serve({"streams": team, "whole": whole})
    for agent in ("streams", "whole"):
        model.clear()
        model.script(None, reasons(form, BESIDE))
        given = {"model": agent, "messages": ASKED, "stream": True}
        answer = await service.http.post("/v1/chat/completions", json=given)
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
        content, thought = _chat([json.loads(line) for line in lines])
        if agent == "streams":
            assert (content, thought) == (f"{BESIDE}\n\nIt is 3.", f"{FIRST}\n\n{SECOND}")
        else:
            assert (content, thought) == ("It is 3.", f"{FIRST}\n\n{BESIDE}\n\n{SECOND}")
        called = next(each for each in model.requests[-1].messages if each.get("tool_calls"))
        assert called["content"] == BESIDE
        assert FIRST not in json.dumps(model.requests[-1].body)
        run = (await service.http.get("/v1/runs", params={"limit": 1})).json()["data"][0]["run_id"]
        steps = (await service.http.get(f"/v1/runs/{run}/steps")).json()["data"]
        assert [step["thought"] for step in steps] == [f"{FIRST}\n{BESIDE}", SECOND]


async def test_an_endpoint_that_wants_thoughts_back_gets_them(serve: Serve, model: ModelServer) -> None:
    """It says so by refusing a request once. Of an earlier run they are blank: they are not known any more."""
    model.reasons = True
    service = await serve({"streams": team, "whole": whole})
    for agent in ("streams", "whole", "streams"):
        model.script(None, reasons("reasoning_content", BESIDE))
        given = {"model": agent, "messages": ASKED, "thread_id": agent}
        answer = await service.http.post("/v1/chat/completions", json=given)
        assert answer.json()["choices"][0]["message"]["content"] == "It is 3."
        called = [each for each in model.requests[-1].messages if each.get("tool_calls")]
        assert (called[-1]["content"], called[-1]["reasoning_content"]) == (BESIDE, FIRST)
    assert [each["reasoning_content"] for each in called] == [" ", FIRST]
    assert sum(any(each.get("tool_calls") for each in request.messages) for request in model.refused) == 1


# --- Claude -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def claude() -> Iterator[AnthropicServer]:
    with AnthropicServer(strict=False) as server:
        yield server


def profile_of(claude: AnthropicServer, path: Path, kind: str = "enabled") -> dict[str, Any]:
    """Settings that make Claude the default model, which thinks."""
    thinking = {"type": kind, "budget_tokens": 1024} if kind == "enabled" else {"type": kind}
    profile = {
        "provider": "anthropic",
        "model": "claude-test",
        "endpoint": claude.base_url.removesuffix("/v1"),
        "parameters": {"max_tokens": 4000, "thinking": thinking},
        "retries": 0,
    }
    file = path / "models.json"
    file.write_text(json.dumps({"default": "claude", "profiles": {"claude": profile}}))
    return {"models": file, "model": None}


def _called(request: ModelRequest) -> list[list[dict[str, Any]]]:
    """The blocks of each message of a request that calls tools."""
    contents = [each["content"] for each in request.messages if not isinstance(each["content"], str)]
    return [blocks for blocks in contents if any(each["type"] == "tool_use" for each in blocks)]


@pytest.mark.parametrize("beside", ["", BESIDE])
@pytest.mark.parametrize("way", WAYS)
async def test_claudes_thoughts_are_told_and_sent_back_as_they_were(
    serve: Serve, claude: AnthropicServer, tmp_path: Path, way: str, beside: str
) -> None:
    service = await serve({"streams": team, "whole": whole}, **profile_of(claude, tmp_path))
    body, read = WAYS[way]
    for agent in ("streams", "whole"):

        def answer(request: ModelRequest) -> Reply:
            if _called(request):
                return Reply("It is 3.", reasoning=SECOND)
            return Reply(beside, [ToolCall("add", {"a": 1, "b": 2}, id="c1")], reasoning=FIRST)

        claude.script(None, answer)
        given = await service.http.post(f"/v1/{way}", json={"model": agent, "stream": True, **body})
        assert given.status_code == 200, given.text
        lines = [line.removeprefix("data: ") for line in given.text.splitlines() if line.startswith("data: {")]
        events = [json.loads(line) for line in lines]
        content, thought = read(events)
        if way == "responses":
            content, thought = _told(way, events[-1]["response"])
        assert content in ("It is 3.", f"{beside}\n\nIt is 3.", f"{beside}It is 3."), agent
        assert FIRST in thought
        assert SECOND in thought
        [called] = _called(claude.requests[-1])
        assert [each["type"] for each in called] == ["thinking", *(["text"] if beside else []), "tool_use"]
        assert called[0]["thinking"] == FIRST
        assert not beside or called[1]["text"] == BESIDE
        run = (await service.http.get("/v1/runs", params={"limit": 1})).json()["data"][0]["run_id"]
        steps = (await service.http.get(f"/v1/runs/{run}/steps")).json()["data"]
        assert [step["thought"] for step in steps] == [f"{FIRST}\n{beside}".strip(), SECOND]
    assert not claude.refused


async def test_what_claude_says_beside_calls_is_kept_where_its_thoughts_are_left_out(
    serve: Serve, claude: AnthropicServer, tmp_path: Path
) -> None:
    """Of what it thinks there is the signature alone (`display: omitted`)."""
    service = await serve({"streams": team, "whole": whole}, **profile_of(claude, tmp_path))
    for agent in ("streams", "whole"):
        claude.script(None, [Reply(BESIDE, [ToolCall("add", {"a": 1, "b": 2}, id="c1")], reasoning=""), "It is 3."])
        given = await service.http.post("/v1/chat/completions", json={"model": agent, "messages": ASKED})
        assert given.status_code == 200, given.text
        [called] = _called(claude.requests[-1])
        assert [each["type"] for each in called] == ["thinking", "text", "tool_use"], agent
        assert (called[0]["signature"], called[1]["text"]) == ("signed:0", BESIDE)
        run = (await service.http.get("/v1/runs", params={"limit": 1})).json()["data"][0]["run_id"]
        steps = (await service.http.get(f"/v1/runs/{run}/steps")).json()["data"]
        assert steps[0]["thought"] == BESIDE
    assert not claude.refused


@pytest.mark.parametrize("kind", ["enabled", "adaptive"])
async def test_claude_goes_on_where_its_thoughts_are_not_known(
    serve: Serve, claude: AnthropicServer, tmp_path: Path, kind: str
) -> None:
    """With a result of the client's tool its thoughts are sent back, as they are known. Of calls in a history they are
    not: a request that demands thoughts would be refused."""
    service = await serve({"plain": plain}, **profile_of(claude, tmp_path, kind))
    claude.script(None, [Reply("", [ToolCall("add", {"a": 1, "b": 2}, id="c1")], reasoning=FIRST), "It is 3.", "3."])
    tools = [{"type": "function", "function": {"name": "add", "parameters": CLIENT_TOOL}}]
    given: dict[str, Any] = {"model": "plain", "tools": tools}
    answer = await service.http.post("/v1/chat/completions", json={**given, "messages": ASKED, "thread_id": "t"})
    calls = answer.json()["choices"][0]["message"]["tool_calls"]
    result = {"role": "tool", "tool_call_id": calls[0]["id"], "content": "3"}
    history = [*ASKED, {"role": "assistant", "content": None, "tool_calls": calls}, result]
    for thread, messages in (("t", [result]), ("other", history)):
        answer = await service.http.post(
            "/v1/chat/completions", json={**given, "messages": messages, "thread_id": thread}
        )
        assert "3." in answer.json()["choices"][0]["message"]["content"], answer.text
    known, unknown = claude.requests[1:]
    assert [_called(known)[0][0]["type"], _called(unknown)[0][0]["type"]] == ["thinking", "tool_use"]
    assert known.body["thinking"]["type"] == kind
    assert ("thinking" in unknown.body) is (kind == "adaptive")
    assert not claude.refused


# --- tools that the client has ----------------------------------------------------------------------------------------

CLIENT_TOOL: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


def plain(context: RunContext) -> AssistantAgent:
    return AssistantAgent("adder", context.model_client(), model_client_stream=True)


async def _posted(service: Service, way: str, body: dict[str, Any], *, stream: bool) -> tuple[Any, str, str]:
    """What an answer is, whole, with its text and its thoughts."""
    answer = await service.http.post(f"/v1/{way}", json={"model": "plain", "stream": stream, **body})
    assert answer.status_code == 200, answer.text
    if not stream:
        return answer.json(), *_told_or_not(way, answer.json())
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    events = [json.loads(line) for line in lines]
    if way == "responses":
        return events[-1]["response"], *_told_or_not(way, events[-1]["response"])
    return events, *(_chat if way == "chat/completions" else _messages)(events)


def _told_or_not(way: str, body: dict[str, Any]) -> tuple[str, str]:
    if way == "chat/completions":
        body["choices"][0]["message"].setdefault("reasoning_content", "")
        body["choices"][0]["message"]["content"] = body["choices"][0]["message"]["content"] or ""
    return _told(way, body)


def _answered(call: str) -> dict[str, dict[str, Any]]:
    """By dialect, a history that ends with the result of a call, with what was thought beside that."""
    return {
        "chat/completions": {
            "messages": [
                *ASKED,
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": FIRST,
                    "tool_calls": [
                        {"id": call, "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
                    ],
                },
                {"role": "tool", "tool_call_id": call, "content": "3"},
            ]
        },
        "messages": {
            "messages": [
                *ASKED,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": FIRST, "signature": ""},
                        {"type": "tool_use", "id": call, "name": "add", "input": {"a": 1, "b": 2}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "3"}]},
            ]
        },
        "responses": {
            "input": [
                {"role": "user", "content": "1 + 2?"},
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": FIRST}]},
                {"type": "function_call", "call_id": call, "name": "add", "arguments": '{"a": 1, "b": 2}'},
                {"type": "function_call_output", "call_id": call, "output": "3"},
            ]
        },
    }


@pytest.mark.parametrize("beside", ["", BESIDE])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("way", WAYS)
async def test_calls_of_the_clients_tools_come_with_what_was_thought_and_said(
    serve: Serve, model: ModelServer, way: str, stream: bool, beside: str
) -> None:
    """Told with the calls, and not again with the answer that follows."""
    model.script(None, reasons("reasoning_content", beside))
    service = await serve({"plain": plain})
    function = {"name": "add", "parameters": CLIENT_TOOL}
    tools: dict[str, Any] = {
        "chat/completions": {"type": "function", "function": function},
        "messages": {"name": "add", "input_schema": CLIENT_TOOL},
        "responses": {"type": "function", **function},
    }
    body = {**WAYS[way][0], "tools": [tools[way]]}
    _, content, thought = await _posted(service, way, body, stream=stream)
    assert (content, thought) == (beside, FIRST)
    [waiting] = (await service.http.get("/v1/threads", params={"limit": 1})).json()["data"]
    thread = (await service.http.get(f"/v1/threads/{waiting['thread_id']}")).json()
    call = thread["input_request"]["tool_calls"][0]["id"]
    answer, content, thought = await _posted(service, way, {**body, **_answered(call)[way]}, stream=stream)
    assert (content, thought) == ("It is 3.", SECOND), answer
    assert FIRST not in json.dumps(model.requests[-1].body)
    run = (await service.http.get("/v1/runs", params={"limit": 1})).json()["data"][0]["run_id"]
    steps = (await service.http.get(f"/v1/runs/{run}/steps")).json()["data"]
    assert [step["thought"] for step in steps] == [f"{FIRST}\n{beside}".strip(), SECOND]


async def test_rounds_of_calls_of_the_clients_tools_tell_their_thoughts_once(serve: Serve, model: ModelServer) -> None:
    """All are in one turn, which is repeated with each result."""
    words = iter("abc")

    def answer(_: ModelRequest) -> Reply:
        word = next(words)
        calls = [] if word == "c" else [ToolCall("add", {"a": 1, "b": 2})]
        return Reply(f"Text {word}.", calls, reasoning=f"Thought {word}.")

    model.script(None, answer)
    service = await serve({"plain": plain})
    body: dict[str, Any] = {"tools": [{"type": "function", "name": "add", "parameters": CLIENT_TOOL}]}
    given: dict[str, Any] = {"input": "1 + 2?"}
    for word in "abc":
        response, content, thought = await _posted(service, "responses", {**body, **given}, stream=False)
        assert (content, thought) == (f"Text {word}.", f"Thought {word}.")
        output = {"type": "function_call_output", "call_id": response["output"][-1].get("call_id"), "output": "3"}
        given = {"input": [output], "previous_response_id": response["id"]}


@pytest.mark.parametrize("way", WAYS)
async def test_a_history_that_is_imported_keeps_what_was_thought_beside_its_calls(
    serve: Serve, model: ModelServer, way: str
) -> None:
    """An endpoint that wants it back gets it; it is content to none."""
    service = await serve({"plain": plain})
    for model.reasons in (False, True):
        model.script(None, lambda _: "It is 3.")
        body = {**WAYS[way][0], **_answered("call_elsewhere")[way]}
        _, content, _ = await _posted(service, way, body, stream=False)
        assert content == "It is 3."
        [called] = [each for each in model.requests[-1].messages if each.get("tool_calls")]
        assert called.get("content") is None
        assert called.get("reasoning_content") == (FIRST if model.reasons else None)
