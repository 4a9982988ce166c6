"""The client's own tools in Responses: items that call them, their events, and outputs that resume the run."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from drsai_backend import AssistantAgent, RunContext, client_tools
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import Failure, ModelServer, Reply, ToolCall
from tests.support.open_responses import check_events
from tests.support.threads import until
from tests.support.websocket import connected

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {"type": "function", "name": "weather", "description": "Of a city.", "parameters": CITY, "strict": False}
PATCH: Any = {"type": "custom", "name": "patch", "description": "Applies a patch."}
ASKS = "Weather in Bonn and Rome?"


def calls(*cities: str, text: str = "") -> Reply:
    return Reply(text, tool_calls=[ToolCall("weather", {"city": city}) for city in cities])


async def create(service: Service, given: Any = ASKS, **more: Any) -> Any:
    return await service.client.responses.create(model="assistant", input=given, **{"tools": [WEATHER], **more})


def called(response: Any) -> list[Any]:
    return [item for item in response.output if item.type == "function_call"]


def outputs(response: Any, *texts: str) -> list[Any]:
    pairs = zip(called(response), texts, strict=True)
    return [{"type": "function_call_output", "call_id": call.call_id, "output": text} for call, text in pairs]


def told(model: ModelServer) -> list[str]:
    """The results that the model was given last."""
    return [str(each["content"]) for each in model.requests[-1].messages if each["role"] == "tool"]


async def test_calls_and_outputs(serve: Serve, model: ModelServer) -> None:
    """After a response, in another process; and with the whole conversation, as clients do it that store nothing."""
    service, other = await serve(), await serve()
    model.script(None, [calls("Bonn", "Rome", text="Let me look."), "Fine.", "Welcome."])
    first = await create(service)
    assert [(each.name, each.arguments, each.status) for each in called(first)] == [
        ("weather", '{"city": "Bonn"}', "completed"),
        ("weather", '{"city": "Rome"}', "completed"),
    ]
    assert (first.status, first.output_text) == ("completed", "Let me look.")
    assert first.tools[0].to_dict() == WEATHER
    assert (await other.client.responses.retrieve(first.id)).output == first.output
    second = await create(other, outputs(first, "cold", "warm"), previous_response_id=first.id)
    assert (second.output_text, told(model)) == ("Fine.", ["cold", "warm"])
    assert second.id != first.id
    assert (await service.client.responses.retrieve(second.id)).output_text == "Fine."
    listed = (await service.client.responses.input_items.list(second.id, order="asc")).data
    assert [item.to_dict()["output"] for item in listed] == ["cold", "warm"]
    third = await create(service, "Thanks.", previous_response_id=second.id)
    assert third.output_text == "Welcome."
    thread = third.model_extra["drsai"]["thread_id"]
    items = (await service.client.conversations.items.list(thread, order="asc")).data
    tools = [item.to_dict() for item in items if item.type.startswith("function_call")]
    kinds = [item.type for item in items if not item.type.startswith("function_call") and item.type != "reasoning"]
    assert kinds == ["message"] * 5
    assert [item["call_id"] for item in tools] == [each.call_id for each in called(first)] * 2
    assert [item.get("output") for item in tools] == [None, None, "cold", "warm"]
    for order in ("asc", "desc"):
        pages = service.client.conversations.items.list(thread, order=order, limit=2)  # type: ignore[arg-type]
        assert [item.id async for item in pages] == [item.id for item in items][:: 1 if order == "asc" else -1]
    one = await service.client.conversations.items.retrieve(tools[2]["id"], conversation_id=thread)
    assert one.to_dict() == tools[2]


async def test_the_whole_conversation_again(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    for stored in (True, False):
        model.script(None, [calls("Bonn"), calls("Rome"), "Fine."])
        said: Any = [{"role": "user", "content": ASKS}]
        for text in ("cold", "warm"):
            response = await create(service, said, store=stored, instructions="Be brief.")
            said += [item.to_dict() for item in response.output] + outputs(response, text)
        last = await create(service, said, store=stored)
        assert (last.output_text, told(model)) == ("Fine.", ["cold", "warm"])

    async def one_is_left() -> bool:
        return len((await service.drsai.list_threads()).items) == 1

    await until(one_is_left)


async def test_the_events_of_calls(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    asking = Reply(tool_calls=[ToolCall("weather", {"city": "Bonn"}), ToolCall("patch", {"input": "+a"})])
    model.script(None, [asking, "Fine."])
    stream = await create(service, tools=[WEATHER, PATCH], stream=True)
    events = [event.to_dict() async for event in stream]
    response = check_events(events)
    kinds = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
    custom = [kind.replace("function_call_arguments", "custom_tool_call_input") for kind in kinds]
    assert [event["type"].removeprefix("response.") for event in events[2:-1]] == [*kinds, *custom]
    assert (events[2]["item"]["arguments"], events[2]["item"]["status"]) == ("", "in_progress")
    assert events[3]["delta"] == events[4]["arguments"] == events[5]["item"]["arguments"] == '{"city": "Bonn"}'
    assert (events[7]["delta"], response["output"][1]["input"]) == ("+a", "+a")
    again = await service.client.responses.retrieve(
        response["id"], stream=True, starting_after=events[3]["sequence_number"]
    )
    assert [event.to_dict() async for event in again][:-1] == events[4:-1]
    given = [
        {"type": f"{item['type'].replace('_call', '_call_output')}", "call_id": item["call_id"], "output": "done"}
        for item in response["output"]
    ]
    async with connected(service.drsai.app()) as socket:
        one = {"type": "response.create", "model": "assistant", "previous_response_id": response["id"]}
        last = check_events(await socket.turn({**one, "input": given}))
    assert (last["status"], told(model)) == ("completed", ["done", "done"])
    listed = (await service.client.responses.input_items.list(last["id"], order="asc")).data
    assert [item.type for item in listed] == [item["type"] for item in given]
    said = (await service.client.conversations.items.list(last["drsai"]["thread_id"], order="asc")).data
    kinds = [each["type"] for each in (*response["output"], *given)]
    assert [item.type for item in said if item.type != "message"] == kinds


async def test_what_is_said_beside_calls_is_streamed_as_it_is_stored(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    model.script(None, [calls("Bonn", text="Let me look.")])
    stream = await create(service, stream=True)
    events = [event.to_dict() async for event in stream]
    response = check_events(events)
    assert [(item["type"], item["status"]) for item in response["output"]] == [
        ("message", "completed"),
        ("function_call", "completed"),
    ]
    assert [event["output_index"] for event in events if event["type"] == "response.output_item.done"] == [0, 1]
    stored = await service.client.responses.retrieve(response["id"])
    assert (stored.output_text, stored.to_dict()["output"]) == ("Let me look.", response["output"])
    again = await service.client.responses.retrieve(
        response["id"], stream=True, starting_after=events[2]["sequence_number"]
    )
    assert [event.to_dict()["type"] async for event in again][-6:] == [event["type"] for event in events[-6:]]


async def test_choices_and_what_is_wrong(serve: Serve, model: ModelServer) -> None:
    service = await serve({"assistant": _plain, "refusing": _refusing, "ignoring": _ignoring})
    model.script(None, [calls("Bonn"), "Fine.", "Hi."])
    first = await create(service, tool_choice={"type": "function", "name": "weather"})
    assert model.requests[-1].body["tool_choice"] == "required"
    assert first.tool_choice.to_dict() == {"type": "function", "name": "weather"}
    before = {"previous_response_id": first.id}
    [output] = outputs(first, "cold")
    two = {"type": "function", "name": "time"}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"given": "x", "tool_choice": {"type": "function", "name": "time"}}, "tool_choice"),
        ({"given": "x", "tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"given": "x", "tools": [two, two]}, "tools[1].name"),
        ({"given": "x", "extra_body": {"tools": [{"type": "web\nsearch"}]}}, "tools[0].type"),
        ({"given": "x", "extra_body": {"model": "refusing"}}, "tools"),
        ({"given": [output, output], **before}, "input[1].call_id"),
        ({"given": [{**output, "call_id": output["call_id"] + "9"}], **before}, "input[0].call_id"),
        (
            {"given": [{"role": "user", "content": "x"}, first.output[0].to_dict(), {"role": "user", "content": "y"}]},
            "input[1].call_id",
        ),
    ]
    for values, param in wrong:
        with pytest.raises(openai.BadRequestError) as error:
            await create(service, **values)
        assert (error.value.param, param in error.value.message or param == "tools[0].type") == (param, True)
    second = await create(service, [output, {"role": "user", "content": "Be brief."}], **before)
    assert (second.output_text, told(model)) == ("Fine.", ["cold\n\n[The user adds:]\nBe brief."])
    for stale in (output, {**output, "call_id": "call_of_another"}):
        with pytest.raises(openai.BadRequestError) as error:
            await create(service, [stale], previous_response_id=second.id)
        assert error.value.param == "input[0].call_id"
    raw = await service.client.responses.with_raw_response.create(
        model="ignoring", input="x", tools=[WEATHER], tool_choice="auto", top_p=0.5
    )
    assert raw.headers["x-ignored-fields"] == "tools, tool_choice"


async def test_tools_that_nobody_here_has(serve: Serve, model: ModelServer) -> None:
    """They are left aside, and named, unless they are demanded."""
    service = await serve()
    model.script(None, lambda asked: calls("Bonn") if asked.last == ASKS and "weather" in asked.tools else "Sunny.")
    group = {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [WEATHER]}
    search = {"type": "web_search", "external_web_access": True}
    given = {"model": "assistant", "input": ASKS, "tools": [group, WEATHER, search], "tool_choice": "auto"}
    answer = await service.http.post("/v1/responses", json=given)
    assert answer.headers["x-ignored-fields"] == "tools[0] (namespace), tools[2] (web_search)"
    assert "weather" in model.requests[0].tools
    assert not {"agents", "web_search"} & {*model.requests[0].tools}
    body = answer.json()
    assert [each["name"] for each in body["tools"]] == ["weather"]
    output = {"type": "function_call_output", "call_id": body["output"][0]["call_id"], "output": "sun"}
    alone = {"model": "assistant", "input": [output], "tools": [search], "previous_response_id": body["id"]}
    answer = await service.http.post("/v1/responses", json=alone)
    assert answer.json()["output"][0]["content"][0]["text"] == "Sunny."
    asked, both = len(model.requests), [{"type": "function", "name": "weather"}, {"type": "web_search"}]
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": both}
    for choice in ("none", allowed, both[0]):
        answer = await service.http.post("/v1/responses", json={**given, "tool_choice": choice})
        asked += 1
        assert (answer.status_code, len(model.requests)) == (200, asked)
    for choice in ("required", {**allowed, "mode": "required"}, {"type": "web_search"}):
        answer = await service.http.post(
            "/v1/responses", json={**given, "tools": [WEATHER, search], "tool_choice": choice}
        )
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], "'web_search'" in error["message"]) == (400, "tool_choice", True)
    assert len(model.requests) == asked


async def test_after_calls_that_were_answered(serve: Serve, model: ModelServer) -> None:
    """The same outputs again, as an application does it whose model has failed, or another message: what a fork would
    lack is not left out in silence."""
    service = await serve()
    model.script(None, [calls("Bonn"), Failure(400, "down"), "Fine."])
    first = await create(service)
    with pytest.raises(openai.APIStatusError):
        await create(service, outputs(first, "cold"), previous_response_id=first.id)
    asked = len(model.requests)
    for given in (outputs(first, "cold"), [*outputs(first, "cold"), {"role": "user", "content": "x"}], "And now?"):
        with pytest.raises(openai.BadRequestError) as error:
            await create(service, given, previous_response_id=first.id)
        assert (error.value.param, "`input`" in error.value.message) == ("previous_response_id", True)
    assert len(model.requests) == asked
    shown = [{"role": "user", "content": ASKS}, *(item.to_dict() for item in first.output), *outputs(first, "cold")]
    assert (await create(service, shown)).output_text == "Fine."
    assert told(model) == ["cold"]


async def test_a_message_instead_of_outputs(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    model.script(None, [calls("Bonn"), "Never mind."])
    first = await create(service)
    second = await create(service, "Stop that.", previous_response_id=first.id)
    assert second.output_text == "Never mind."
    assert second.model_extra["drsai"]["thread_id"] == first.model_extra["drsai"]["thread_id"]


def _plain(context: RunContext) -> AssistantAgent:
    return AssistantAgent("plain", context.model_client())


@client_tools("refuse")
def _refusing(context: RunContext) -> AssistantAgent:
    return _plain(context)


@client_tools("ignore")
def _ignoring(context: RunContext) -> AssistantAgent:
    return _plain(context)
