"""The compliance suite of Open Responses, as far as it asks a server: the same cases under the same names
(`bin/compliance-test.ts` of openresponses/openresponses at version 2026-04-24), over HTTP and over a WebSocket, without
a network. What answers must look like is in `tests.support.open_responses`.

Its tests of a hosted file search and web search are optional there, and need what is not here.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelServer, Reply, ToolCall
from tests.support.open_responses import COMPACTION, RESPONSE, SOCKET_ERROR, check, check_events
from tests.support.teams.foreign import tiny_image
from tests.support.websocket import connected

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather of a place.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}


@pytest.fixture
async def service(serve: Serve, model: ModelServer) -> Service:
    model.script(None, lambda request: f"You said: {request.last}")
    return await serve()


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **more}


async def post(service: Service, given: Any, path: str = "/v1/responses", **more: Any) -> httpx.Response:
    return await service.http.post(path, json={"model": "assistant", "input": given, **more})


async def created(service: Service, given: Any, **more: Any) -> Any:
    """A response that is complete and says something."""
    answer = await post(service, given, **more)
    assert answer.status_code == 200, answer.text
    response = check(answer.json(), RESPONSE)
    assert (response["status"], bool(response["output"])) == ("completed", True)
    return response


async def streamed(service: Service, given: Any, **more: Any) -> list[Any]:
    answer = await post(service, given, stream=True, **more)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *frames, done = answer.text.split("\n\n")[:-1]
    assert done == "data: [DONE]"
    events: list[Any] = []
    for frame in frames:
        name, data = frame.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def text_of(response: Any) -> str:
    return "".join(part["text"] for item in response["output"] for part in item.get("content", ()))


async def test_http(service: Service, model: ModelServer) -> None:
    """basic-response, streaming-response, system-prompt, image-input, file-input, multi-turn, assistant-phase,
    previous-response-id."""
    assert text_of(await created(service, [message("user", "Say hello.")])) == "You said: Say hello."
    response = check_events(await streamed(service, [message("user", "Count.")]))
    assert (response["status"], text_of(response)) == ("completed", "You said: Count.")

    await created(service, [message("system", "You are a pirate."), message("user", "Say hello.")])
    assert "pirate" in model.requests[-1].system

    image = {"type": "input_image", "image_url": tiny_image().data_uri}
    await created(service, [message("user", [{"type": "input_text", "text": "What is it?"}, image])])
    assert model.requests[-1].body["messages"][-1]["content"][1]["type"] == "image_url"

    for data in ("data:text/plain;base64,QXByaWw6IDQy", "QXByaWw6IDQy"):
        file = {"type": "input_file", "filename": "sales.txt", "file_data": data}
        await created(service, [message("user", [{"type": "input_text", "text": "How much?"}, file])])
        assert model.requests[-1].last == "How much?\n\nsales.txt\n\nApril: 42"

    history = [message("user", "I am Alice."), message("assistant", "Hello Alice!"), message("user", "Who am I?")]
    await created(service, history)
    told = [(item["role"], item["content"]) for item in model.requests[-1].messages[1:]]
    assert told == [("user", "I am Alice."), ("assistant", "Hello Alice!"), ("user", "Who am I?")]

    phases = [message("assistant", f"{phase}.", phase=phase) for phase in ("commentary", "final_answer")]
    await created(service, [message("user", "Go."), *phases, message("user", "Next.")])

    first = await created(service, "The word is papaya.")
    second = await created(service, "What is the word?", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    assert "papaya" in str(model.requests[-1].messages)


async def test_tool_calling(service: Service, model: ModelServer) -> None:
    """tool-calling, function-call-roundtrip."""
    model.script(None, [Reply(tool_calls=[ToolCall("get_weather", {"place": "Rome"})]), "Warm."])
    response = await created(service, "What is the weather in Rome?", tools=[WEATHER])
    [call] = [item for item in response["output"] if item["type"] == "function_call"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "64 degrees"}
    assert text_of(await created(service, [result], previous_response_id=response["id"])) == "Warm."


async def test_compaction(service: Service, model: ModelServer) -> None:
    """compact-response, compact-missing-model, websocket-compact-new-chain."""
    said = [message("user", "We start on Tuesday."), message("assistant", "Understood.")]
    answer = await post(service, said, "/v1/responses/compact", prompt_cache_key="k")
    compacted = check(answer.json(), COMPACTION)
    assert [item["type"] for item in compacted["output"]] == ["compaction"]
    assert "Tuesday" not in answer.text
    refused = await service.http.post("/v1/responses/compact", json={"input": said})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "model")
    async with connected(service.drsai.app()) as socket:
        create = {"type": "response.create", "model": "assistant", "store": False}
        given = [*compacted["output"], message("user", "When?")]
        response = check_events(await socket.turn({**create, "input": given}))
    assert response["status"] == "completed"
    assert [item["content"] for item in model.requests[-1].messages[1:]] == [
        "We start on Tuesday.",
        "Understood.",
        "When?",
    ]


async def test_a_websocket_names_what_is_left_aside(service: Service) -> None:
    reasoning = {"mode": "pro", "effort": None}
    parts = [{"type": "input_text", "text": "Hi.", "size": 1}]
    more = {"reasoning": reasoning, "tools": [{"type": "web_search"}], "truncation": "auto"}
    async with connected(service.drsai.app()) as socket:
        first = await socket.turn(creating([{"role": "user", "content": parts}], **more))
        second = await socket.turn(creating("Hi."))
    told = [each["response"]["drsai"].get("ignored_fields") for each in first if "response" in each]
    names = ["tools[0] (web_search)", "truncation", "input.content.size", "reasoning.mode"]
    assert told[:2] == [names, names]
    assert check_events(first)["status"] == "completed"
    assert "ignored_fields" not in str(second)


def creating(given: Any, **more: Any) -> dict[str, Any]:
    return {"type": "response.create", "model": "assistant", "store": False, "input": given, **more}


def failed(events: list[Any]) -> str:
    """The code of the error that a turn was answered with."""
    [error] = events
    return check(error, SOCKET_ERROR)["error"]["code"]


async def test_websocket(service: Service, model: ModelServer) -> None:
    """websocket-response, -sequential-responses, -continuation, -previous-response-not-found,
    -failed-continuation-evicts-cache, -reconnect-store-false-recovery."""
    app = service.drsai.app()
    async with connected(app) as socket:
        stored = await socket.turn({"type": "response.create", "model": "assistant", "input": "Count."})
        assert check_events(stored)["store"] is True
        for word in ("first", "second"):
            assert text_of(check_events(await socket.turn(creating(word)))) == f"You said: {word}"

        first = check_events(await socket.turn(creating("The word is cobalt.")))
        again = await socket.turn(creating("Which word?", previous_response_id=first["id"]))
        assert check_events(again)["previous_response_id"] == first["id"]
        assert "cobalt" in str(model.requests[-1].messages)

        missing = await socket.turn(creating("Continue.", previous_response_id="resp_missing"))
        assert failed(missing) == "previous_response_not_found"

        ember = check_events(await socket.turn(creating("The word is ember.")))
        result = [{"type": "function_call_output", "call_id": "call_missing", "output": "Nobody asked."}]
        assert failed(await socket.turn(creating(result, previous_response_id=ember["id"]))) == "invalid_request"
        stale = await socket.turn(creating("Continue.", previous_response_id=ember["id"]))
        assert failed(stale) == "previous_response_not_found"
        copper = check_events(await socket.turn(creating("The word is copper.")))

    async with connected(app) as socket:
        lost = await socket.turn(creating("Continue.", previous_response_id=copper["id"]))
        assert failed(lost) == "previous_response_not_found"
        assert check_events(await socket.turn(creating("Begin again.")))["status"] == "completed"
        for name in ("stream", "stream_options", "background"):
            [error] = await socket.turn(creating("x", **{name: {} if name == "stream_options" else True}))
            assert error["error"]["param"] == name
