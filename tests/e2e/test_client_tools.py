"""The client's own tools, with the real `openai` client and a strict model over HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
import openai
import pytest

from drsai_backend.api.objects import INPUT_REQUEST_SCHEMA
from drsai_backend.datamodel import AutoGenMessage, Run, Thread
from drsai_backend.teams.builtin import assistant
from tests.e2e.conftest import Serve
from tests.e2e.tool_calls import HELLO, Joined, ask, call, lonely, returned, told, tool
from tests.support.model_server import Failure, ModelServer, Reply


@pytest.mark.parametrize("named", [False, True], ids=["by history", "by thread"])
async def test_calls_beside_the_agents_own(serve: Serve, model: ModelServer, named: bool) -> None:
    """Three calls in one answer, one of them the agent's own, then another round; each request to another process."""
    calls = [
        call(id="call_0", city="Bonn"),
        call("calculator", "call_1", expression="6*7"),
        call(id="call_2", city="R"),
    ]
    model.script(
        None, [Reply("Let me look.", tool_calls=calls), Reply(tool_calls=[call(id="call_0", city="Ulm")]), "Ok."]
    )
    body = {"thread_id": "t"} if named else {}
    first = await ask(await serve(), extra_body=body)
    message = first.choices[0].message
    assert (message.content, [each.function.name for each in message.tool_calls]) == ("Let me look.", ["weather"] * 2)
    assert [json.loads(each.function.arguments) for each in message.tool_calls] == [{"city": "Bonn"}, {"city": "R"}]
    assert first.drsai["status"] == "awaiting_input"
    history = [*HELLO, *returned(first, "sun", "rain")]
    second = await ask(await serve(), history, extra_body=body)
    assert told(model.requests[1]) == ["sun", "42", "rain"]
    ids = [each.id for answer in (first, second) for each in answer.choices[0].message.tool_calls]
    assert len(set(ids)) == 3
    assert all(len(each) <= 40 for each in ids)
    service = await serve()
    third = await ask(service, [*history, *returned(second, "fog")], extra_body=body)
    assert (third.choices[0].message.content, third.choices[0].finish_reason) == ("Ok.", "stop")
    assert third.thread_id == first.thread_id
    assert len(model.requests) == 3
    usage = [answer.usage.total_tokens for answer in (first, second, third)]
    assert usage == [15, 15, 15]
    [run] = await service.drsai.db.get(Run)
    assert run.usage == {"prompt_tokens": 30, "completion_tokens": 15, "total_tokens": 45}
    stored = [row.config["type"] for row in await service.drsai.db.get(AutoGenMessage)]
    assert stored.count("ToolCallExecutionEvent") == 2
    # The conversation continues, and knows of the calls.
    model.script(None, ["Sure.", "On."])
    more = [
        *history,
        *returned(second, "fog"),
        {"role": "assistant", "content": "Ok."},
        {"role": "user", "content": "?"},
    ]
    fourth = await ask(service, more, extra_body=body)
    roles = [each["role"] for each in model.requests[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "tool", "tool", "assistant", "tool", "assistant", "user"]
    # As a process finds it that reads all of it.
    last = [*more, {"role": "assistant", "content": "Sure."}, {"role": "user", "content": "Go on."}]
    fifth = await ask(await serve(), last, extra_body=body)
    assert len(model.requests[-1].messages) == len(roles) + 2
    assert {fourth.thread_id, fifth.thread_id} == {first.thread_id}
    [thread] = await service.drsai.db.get(Thread)
    assert thread.branch in (None, 0)
    # An answer asked for anew, after the round: the thread of the first one is where it was then.
    model.script(None, ["Well."])
    again = await ask(service, more, extra_body=body)
    assert [each["role"] for each in model.requests[-1].messages] == roles
    assert (again.thread_id == first.thread_id) is named


async def test_a_stream_of_calls(serve: Serve, model: ModelServer) -> None:
    calls = [call(city="Bonn"), call(city="Rome")]
    model.script(None, [Reply("Let me look.", tool_calls=calls), Reply("Sun and rain.")])
    joined = await Joined().read(await ask(await serve(), stream=True))
    assert (joined.content, joined.finish_reason, joined.heads) == ("Let me look.", "tool_calls", 2)
    assert [json.loads(each["arguments"])["city"] for each in joined.calls.values()] == ["Bonn", "Rome"]
    asked = [
        {"id": each["id"], "type": "function", "function": {"name": each["name"], "arguments": each["arguments"]}}
        for each in joined.calls.values()
    ]
    results = [{"role": "tool", "tool_call_id": each["id"], "content": "sun"} for each in joined.calls.values()]
    service = await serve()
    history = [*HELLO, {"role": "assistant", "content": None, "tool_calls": asked}, *results]
    async with service.client.chat.completions.stream(model="assistant", messages=history, tools=[tool()]) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    assert (final.choices[0].message.content, final.choices[0].finish_reason) == ("Sun and rain.", "stop")


async def test_what_is_wrong_with_results(serve: Serve, model: ModelServer) -> None:
    model.script(None, [Reply(tool_calls=[call(city="Bonn"), call(city="Rome")]), "Ok."])
    service = await serve()
    first = await ask(service, extra_body={"thread_id": "t"})
    answer, sun, rain = returned(first, "sun", "rain")
    one, two = sun["tool_call_id"], rain["tool_call_id"]
    question = {"role": "user", "content": "And?"}
    wrong: list[tuple[list[Any], str, str]] = [
        ([answer, sun], "messages[1].tool_calls", two),
        ([answer, question], "messages[1].tool_calls", f"{one}, {two}"),
        ([answer, sun, rain, sun], "messages[4].tool_call_id", "already"),
        ([answer, sun, {**rain, "tool_call_id": "call_x"}], "messages[3].tool_call_id", "'call_x'"),
        ([sun], "messages", two),
        ([sun, rain, {**rain, "tool_call_id": one[:-1] + "7"}], "messages[3].tool_call_id", "waits for no call"),
        ([{"role": "assistant", "content": "Hm."}, sun], "messages[2].tool_call_id", "no call"),
        ([answer, {**sun, "content": None}, rain], "messages[2].content", "required"),
    ]
    for messages, param, text in wrong:
        for body in ({"thread_id": "t"}, {}):
            with pytest.raises(openai.BadRequestError) as raised:
                await ask(service, [*HELLO, *messages], extra_body=body)
            assert raised.value.param == param, messages
            assert text in raised.value.message
    assert len(model.requests) == 1
    assert (await ask(service, [*HELLO, answer, sun, rain])).choices[0].message.content == "Ok."
    with pytest.raises(openai.ConflictError, match="not any more"):
        await ask(service, [sun, rain], extra_body={"thread_id": "t"})
    # Another user's calls are not found: the history is one of elsewhere.
    model.script(None, ["Fine."])
    other = await ask(service, [*HELLO, answer, sun, rain], user="eve")
    assert other.thread_id != "t"
    assert told(model.requests[-1]) == ["sun", "rain"]


async def test_a_message_instead_of_results(serve: Serve, model: ModelServer) -> None:
    """The calls are withdrawn, so that no chat is stuck."""
    model.script(None, [Reply(tool_calls=[call(city="Bonn")]), "Hello."])
    service = await serve()
    first = await ask(service, extra_body={"thread_id": "t"})
    answer = await ask(service, [{"role": "user", "content": "Never mind."}], extra_body={"thread_id": "t"})
    assert answer.choices[0].message.content == "Hello."
    runs = await service.drsai.db.get(Run)
    assert [run.status.value for run in runs] == ["stopped", "completed"]
    with pytest.raises(openai.ConflictError):
        await ask(service, returned(first, "sun")[1:], extra_body={"thread_id": "t"})


async def test_a_message_in_the_background_instead_of_results(serve: Serve, model: ModelServer) -> None:
    model.script(None, [Reply(tool_calls=[call(city="Bonn")]), "Hello."])
    service = await serve()
    await ask(service, extra_body={"thread_id": "t"})
    body = {"model": "assistant", "messages": [MORE], "thread_id": "t", "background": True}
    queued = await service.http.post("/v1/chat/completions", json=body)
    assert queued.status_code == 202
    async with asyncio.timeout(10):
        await service.http.get(f"/v1/runs/{queued.json()['id']}/events")  # to its end
    runs = await service.drsai.db.get(Run)
    assert [run.status.value for run in runs] == ["stopped", "completed"]


SAID: Any = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hm."}]
MORE: Any = {"role": "user", "content": "And?"}


@pytest.mark.parametrize("begun", [[], SAID], ids=["first", "later"])
@pytest.mark.parametrize("thought", ["", "Let me look."], ids=["calls", "text and calls"])
async def test_results_that_a_named_thread_does_not_wait_for(
    serve: Serve, model: ModelServer, begun: Any, thought: str
) -> None:
    """Since their turn failed or was withdrawn, or its answer was lost: whoever shows the calls with them is answered,
    and the model sees each message once."""
    service = await serve()
    named: dict[str, Any] = {"extra_body": {"thread_id": "t"}}
    if begun:
        model.script(None, ["Hm."])
        await ask(service, begun[:1], **named)
    model.script(None, [Reply(thought, tool_calls=[call(city="Bonn")]), Failure(400)])
    asked = [*begun, *HELLO]
    history = [*asked, *returned(await ask(service, asked, **named), "sun")]
    with pytest.raises(openai.APIStatusError):
        await ask(service, history, **named)
    model.script(None, lambda _: "Fine.")

    def seen() -> list[str]:
        return [each["role"] for each in model.requests[-1].messages]

    window = {"X-OpenWebUI-Chat-Id": "t"}
    more = [*history, MORE]
    last = [*more, {"role": "assistant", "content": "Fine."}, MORE]
    expected: dict[int, list[str]] = {}
    for messages in (history, more, last):  # of somebody who has had it elsewhere
        await ask(service, messages, user="eve", extra_body={"history": "import"})
        expected[len(messages)] = seen()
    count = len(model.requests)
    for process, messages, values in (
        (service, history, named),  # it failed
        (await serve(), history, named),  # the answer was lost
        (service, more, named),  # the same with another question
        (service, history, {"extra_headers": window}),
        (await serve(), more, {**named, "extra_headers": {"Idempotency-Key": "k"}}),
        (service, more, {**named, "extra_headers": {"Idempotency-Key": "k"}}),
    ):
        answer = await ask(process, messages, **values)
        assert (answer.thread_id, answer.choices[0].message.content) == ("t", "Fine.")
        assert seen() == expected[len(messages)], values
    assert len(model.requests) == count + 5
    # As if it had been said here from the beginning.
    await ask(await serve(), last, **named)
    assert seen() == expected[len(last)]
    # Not the same words later on, of whom nothing shows that they are the first ones.
    foreign = {**history[-2], "tool_calls": [{**history[-2]["tool_calls"][0], "id": "call_1"}]}
    with pytest.raises(openai.ConflictError, match="whole conversation"):
        await ask(service, [*HELLO, foreign, {**history[-1], "tool_call_id": "call_1"}], **named)


async def test_results_whose_calls_nobody_knows(serve: Serve, model: ModelServer) -> None:
    """Neither a run here nor the conversation has them."""
    model.script(None, [Reply(tool_calls=[call(city="Bonn")]), "Ok."])
    service = await serve()
    [_, *taken] = returned(await ask(service), "sun")
    await ask(service, taken)
    asked = len(model.requests)
    bare, more = [{"role": "tool", "tool_call_id": "nope", "content": "sun"}], {"role": "user", "content": "Well?"}
    output = {"type": "function_call_output", "call_id": "nope", "output": "sun"}
    block = {"type": "tool_result", "tool_use_id": "nope", "content": "sun"}
    bodies: list[tuple[str, dict[str, Any], str]] = [
        ("chat/completions", {"messages": bare}, "messages[0].tool_call_id"),
        ("chat/completions", {"messages": [*bare, more]}, "messages[0].tool_call_id"),
        ("chat/completions", {"messages": bare, "thread_id": "none"}, "messages[0].tool_call_id"),
        ("chat/completions", {"messages": taken}, "messages[0].tool_call_id"),
        ("responses", {"input": [output]}, "input[0].call_id"),
        ("messages", {"messages": [{"role": "user", "content": [block]}], "max_tokens": 9}, "messages[0]"),
    ]
    for way, body, place in bodies:
        answer = await service.http.post(f"/v1/{way}", json={"model": "assistant", **body})
        assert (answer.status_code, place in answer.json()["error"]["message"]) == (400, True), answer.text
    assert len(model.requests) == asked


async def test_words_of_the_user_after_the_results(serve: Serve, model: ModelServer) -> None:
    model.script(None, [Reply("One moment.", tool_calls=[call(city="Bonn")]), "Ok."])
    service = await serve({"assistant": assistant, "other": lonely})
    first = await ask(service)
    history = [*HELLO, *returned(first, "sun"), {"role": "user", "content": "In German."}]
    await ask(await serve(), history)
    assert told(model.requests[-1]) == ["sun\n\n[The user adds:]\nIn German."]
    # They are said by the user, and neither names of tools nor the question for them are said by anybody.
    model.script(None, lambda _: "Fine.")
    history += [{"role": "assistant", "content": "Ok."}, {"role": "user", "content": "And?"}]
    assert (await ask(service, history)).thread_id == first.thread_id
    await ask(service, [{"role": "user", "content": "You?"}], model="other", extra_body={"thread_id": first.thread_id})
    said = [(each["role"], each["content"]) for each in model.requests[-1].messages if each["role"] != "system"]
    assert said == [
        ("user", HELLO[0]["content"]),
        ("assistant", "One moment."),
        ("user", "In German."),
        ("assistant", "Ok."),
        ("user", "And?"),
        ("assistant", "Fine."),
        ("user", "You?"),
    ]


async def test_an_answer_by_id(serve: Serve, model: ModelServer) -> None:
    model.script(None, [Reply(tool_calls=[call(city="Bonn")]), "Ok."])
    service = await serve()
    choice: Any = "required"
    first = await ask(service, tool_choice=choice)
    [asked] = (await service.http.get("/v1/input-requests")).json()["data"]
    assert (asked["kind"], asked["type"], len(asked["tool_calls"])) == ("client_tool", "tool_results", 1)
    jsonschema.validate(asked, {**INPUT_REQUEST_SCHEMA, "additionalProperties": False})
    path, call_id = f"/v1/threads/{first.thread_id}/input", asked["tool_calls"][0]["id"]
    for body, param in (
        ({"text": "sun"}, "results"),
        ({"results": []}, "results"),
        ({"results": [{"id": "call_x", "content": "sun"}]}, "results[0].id"),
        ({"results": [{"id": call_id}]}, "results[0].content"),
    ):
        refused = await service.http.post(path, json={"id": asked["id"], **body})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    result = {"id": call_id, "content": "no such city", "is_error": True}
    answered = await service.http.post(path, json={"id": asked["id"], "results": [result]})
    assert answered.status_code == 202, answered.text
    events = (await service.http.get(f"/v1/runs/{answered.json()['id']}/events")).text  # to its end
    assert '"completed"' in events
    # What the request demanded was for its first answer: this one is a text.
    assert "tool_choice" in model.requests[0].body
    assert model.requests[1].body.get("tool_choice") == "auto"
    assert told(model.requests[1]) == ["no such city"]


async def test_choices(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    offered = [tool("weather"), tool("news")]
    named: Any = {"type": "function", "function": {"name": "news"}}
    allowed: Any = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}
    own = ["calculator", "current_time", "convert_units"]
    for choice, tools, sent in (
        ("auto", [*own, "weather", "news"], "auto"),
        ("none", own, "auto"),
        ("required", ["weather", "news"], "required"),
        (named, ["news"], "required"),
        (allowed, [*own, "news"], "auto"),
    ):
        answer = await ask(service, tools=offered, tool_choice=choice, parallel_tool_calls=False)
        request = model.requests[-1]
        assert (request.tools, request.body["tool_choice"], answer.choices[0].finish_reason) == (tools, sent, "stop")
        assert request.body["parallel_tool_calls"] is False  # the agent's own tools are offered as well
    unknown: Any = {"type": "function", "function": {"name": "nothing"}}
    twice: Any = [tool(), tool()]
    for values, param in (({"tool_choice": unknown}, "tool_choice"), ({"tools": twice}, "tools")):
        with pytest.raises(openai.BadRequestError) as raised:
            await ask(service, **values)
        assert raised.value.param == param


async def test_names_that_are_the_agents_own(serve: Serve, model: ModelServer) -> None:
    ours = call("calculator", expression="6*7")
    model.script(
        None, [Reply(tool_calls=[ours, call("calculator_of_client", city="Bonn"), call("a_b", city="x")]), "Ok."]
    )
    tools = [tool("calculator"), tool("a.b")]
    first = await ask(await serve(), tools=tools)
    assert [each.function.name for each in first.choices[0].message.tool_calls] == ["calculator", "a.b"]
    # Another list of tools with the results: the calls of before are known all the same.
    await ask(await serve(), [*HELLO, *returned(first, "1", "2")], tools=[tool("other", description="New.")])
    assert told(model.requests[1]) == ["42", "1", "2"]
    assert model.requests[1].tools[-1] == "other"
    assert len(model.requests[1].tools) == 4


async def test_custom_tools_and_functions(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    custom: Any = {"type": "custom", "custom": {"name": "shell", "description": "Runs it."}}
    model.script(None, [Reply(tool_calls=[call("shell", input="ls -l")]), "Ok."])
    first = await ask(service, tools=[custom])
    [made] = first.choices[0].message.tool_calls
    assert (made.type, made.custom.name, made.custom.input) == ("custom", "shell", "ls -l")
    assert (await ask(service, [*HELLO, *returned(first, "a.txt")], tools=[custom])).choices[0].message.content == "Ok."

    model.script(None, [Reply(tool_calls=[call(city="Bonn")]), "Ok."] * 2)
    old: dict[str, Any] = {"functions": [tool()["function"]], "tools": openai.omit}
    for body in ({"thread_id": "t"}, {}):  # without an id nothing leads to the run, and the history is imported
        first = await ask(service, **old, extra_body=body)
        assert first.choices[0].finish_reason == "function_call"
        message = first.choices[0].message
        assert json.loads(message.function_call.arguments) == {"city": "Bonn"}
        result = {"role": "function", "name": "weather", "content": "sun"}
        history = [*HELLO, message.model_dump(exclude_none=True), result]
        second = await ask(service, history, **old, extra_body=body)
        assert second.choices[0].message.content == "Ok."
        assert (second.thread_id == first.thread_id) is bool(body)
        assert told(model.requests[-1]) == ["sun"]
