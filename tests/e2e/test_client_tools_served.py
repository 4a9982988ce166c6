"""The client's own tools: what teams make of them, in histories, queues, the background and repeated requests."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from drsai_backend import (
    Answer,
    AssistantAgent,
    ClientTool,
    ClientTools,
    RoundRobinGroupChat,
    RunContext,
    RunStatus,
    ToolOutput,
    answered_by,
    client_tools,
)
from drsai_backend.datamodel import Run, UserInput
from tests.e2e.conftest import Serve
from tests.e2e.tool_calls import HELLO, SCHEMA, Joined, ask, call, lonely, returned, told, tool
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall


def _summing(context: RunContext) -> AssistantAgent:
    """As AutoGen's default: what its tools return is the answer."""

    async def own(city: str) -> str:
        return f"own of {city}"

    return AssistantAgent("sam", context.model_client(), tools=[own])


async def test_the_agents_own_rounds_are_counted_as_before(serve: Serve, model: ModelServer) -> None:
    """An answer that calls the agent's own tools ends its turn; one that calls the client's never does."""
    service = await serve({"assistant": _summing})
    model.script(None, [Reply(tool_calls=[call("own", city="Bonn")])])
    assert (await ask(service)).choices[0].message.content == "own of Bonn"
    broken = ToolCall("weather", "{not json")
    calls = [
        Reply(tool_calls=[broken]),
        Reply(tool_calls=[call(city="Bonn")]),
        Reply(tool_calls=[call("own", city="X")]),
    ]
    model.script(None, calls)
    first = await ask(service)
    second = await ask(service, [*HELLO, *returned(first, "sun")])
    assert second.choices[0].message.content == "own of X"


def _pair(context: RunContext) -> RoundRobinGroupChat:
    agents = [
        AssistantAgent(name, context.model_client(), system_message=f"You are {name}.") for name in ("ann", "bob")
    ]
    return RoundRobinGroupChat(agents, max_turns=2)


@client_tools(agent="bob")
@answered_by("ann")
def _bobs(context: RunContext) -> RoundRobinGroupChat:
    return _pair(context)


@answered_by("ann")
def _anns(context: RunContext) -> RoundRobinGroupChat:
    return _pair(context)


async def test_who_gets_them_in_a_group_chat(serve: Serve, model: ModelServer) -> None:
    """The agent that answers, as with a `response_format`, but for one that the team names for tools."""
    service = await serve({"pair": _pair, "anns": _anns, "bobs": _bobs})
    form: Any = {"type": "json_object"}
    for name, offered, formed in (("pair", "bob", "bob"), ("anns", "ann", "ann"), ("bobs", "bob", "ann")):
        model.requests.clear()
        await ask(service, model=name, response_format=form)
        by_agent = dict(zip(("ann", "bob"), model.requests, strict=True))
        assert [agent for agent, request in by_agent.items() if request.tools] == [offered]
        assert [agent for agent, request in by_agent.items() if "response_format" in request.body] == [formed]


@client_tools("ignore")
def _ignoring(context: RunContext) -> AssistantAgent:
    return _summing(context)


@client_tools("refuse")
def _refusing(context: RunContext) -> AssistantAgent:
    return _summing(context)


async def test_what_teams_make_of_them(serve: Serve, model: ModelServer) -> None:
    service = await serve({"bobs": _bobs, "ignoring": _ignoring, "refusing": _refusing, "assistant": _summing})
    model.script("You are bob.", [Reply(tool_calls=[call(city="Bonn")]), "Bob: sun."])
    model.script("You are ann.", ["Ann."])
    first = await ask(service, model="bobs")
    assert [request.tools for request in model.requests] == [[], ["weather"]]
    second = await ask(await serve({"bobs": _bobs}), [*HELLO, *returned(first, "sun")], model="bobs")
    assert second.choices[0].message.content == "**bob**\n\nBob: sun."
    assert len(model.requests) == 3
    model.script(None, lambda _: "Fine.")
    create = service.client.chat.completions.with_raw_response.create
    tools: Any = [tool()]
    ignored = await create(model="ignoring", messages=HELLO, tools=tools)
    assert ignored.headers["x-ignored-fields"] == "tools"
    assert model.requests[-1].tools == ["own"]
    assert "x-ignored-fields" not in (await create(model="assistant", messages=HELLO, tools=tools)).headers
    with pytest.raises(openai.BadRequestError, match="none can be demanded"):
        await ask(service, model="ignoring", tool_choice="required")
    with pytest.raises(openai.BadRequestError, match="takes no tools of its clients"):
        await ask(service, model="refusing")
    blind = await serve({"assistant": lonely}, model_function_calling=False)
    raw = await blind.client.chat.completions.with_raw_response.create(model="assistant", messages=HELLO, tools=tools)
    assert raw.headers["x-ignored-fields"] == "tools"
    refusing = await serve({"assistant": _summing}, client_tools="refuse")
    with pytest.raises(openai.BadRequestError, match="takes no tools of its clients"):
        await ask(refusing)


async def test_a_history_with_calls_from_elsewhere(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    asked = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bonn"}'}}
    lost = {**asked, "id": "call_2"}
    history: list[Any] = [
        *HELLO,
        {"role": "assistant", "content": "One moment.", "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "sun"}]},
    ]
    answer = await ask(service, history)
    assert answer.choices[0].message.content == "ok"
    assert [each["role"] for each in model.requests[-1].messages] == ["system", "user", "assistant", "tool"]
    later = [*history, {"role": "assistant", "content": None, "tool_calls": [lost]}, {"role": "user", "content": "?"}]
    await ask(service, [*history, {"role": "assistant", "content": "Sun."}, {"role": "user", "content": "And Rome?"}])
    roles = [each["role"] for each in model.requests[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    await ask(service, later)  # what was never answered is left out
    assert not any(each.get("tool_calls") for each in model.requests[-1].messages[4:])


async def test_a_history_that_ends_with_a_result_and_offers_no_tools(serve: Serve, model: ModelServer) -> None:
    """In each API, for an agent that could be given tools, and for a team none of whose agents could: it hears of the
    calls in words."""
    model.script(None, lambda _: "Fine.")
    service = await serve({"assistant": lonely, "ignoring": client_tools("ignore")(lonely)})
    blind = await serve({"deaf": lonely}, model_function_calling=False)
    function = {"name": "weather", "arguments": '{"city": "Bonn"}'}
    asked = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    use = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Bonn"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "sun"}
    bodies: dict[str, Any] = {
        "/v1/chat/completions": {"messages": [*HELLO, asked, {"role": "tool", "tool_call_id": "c1", "content": "sun"}]},
        "/v1/messages": {
            "max_tokens": 9,
            "messages": [*HELLO, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}],
        },
        "/v1/responses": {
            "input": [
                *HELLO,
                {"type": "function_call", "call_id": "c1", **function},
                {"type": "function_call_output", "call_id": "c1", "output": "sun"},
            ]
        },
    }
    for path, body in bodies.items():
        for team in ("assistant", "ignoring", "deaf"):
            http = blind.http if team == "deaf" else service.http
            answer = await http.post(path, json={"model": team, **body})
            assert answer.status_code == 200, answer.text
            said = model.requests[-1].messages[1:]
            if team != "deaf":
                assert [each["role"] for each in said] == ["user", "assistant", "tool"]
                assert said[1]["tool_calls"][0]["function"] == function
            else:
                assert [each["content"] for each in said[1:]] == [
                    '[called weather({"city": "Bonn"})]',
                    "[weather returned]\nsun",
                ]
    # A thread that is named, and whose turn has failed.
    named: dict[str, Any] = {"extra_body": {"thread_id": "t"}}
    model.script(None, [Reply(tool_calls=[call(city="Bonn")]), Failure(400), "Fine."])
    history = [*HELLO, *returned(await ask(service, **named), "sun")]
    with pytest.raises(openai.APIStatusError):
        await ask(service, history, **named)
    assert (await ask(service, history, tools=openai.omit, **named)).thread_id == "t"
    assert told(model.requests[-1]) == ["sun"]


async def test_calls_in_the_history_of_an_endpoint_that_wants_tools_declared(serve: Serve, model: ModelServer) -> None:
    """As Anthropic's does: a chat continues without the tools of before."""
    model.declared = True
    model.script(None, [Reply(tool_calls=[call(city="Bonn")]), "Sun.", "Hello."])
    service = await serve({"assistant": lonely})
    first = await ask(service)
    await ask(service, [*HELLO, *returned(first, "sun")])
    more = {"extra_body": {"thread_id": first.thread_id}, "tools": openai.omit}
    await ask(service, [{"role": "user", "content": "Thanks."}], **more)
    assert model.refused
    texts = [each["content"] for each in model.requests[-1].messages]
    assert any('weather({"city": "Bonn"})' in text for text in texts)
    assert any("sun" in text for text in texts)


async def test_a_chat_window_that_sends_its_tools_with_every_chat(serve: Serve, model: ModelServer) -> None:
    """As Open WebUI with its defaults: 36 tools, of which the model calls none."""
    tools = [tool(f"tool_{number}", description="Does this and that. " * 20) for number in range(36)]
    service = await serve()
    values: dict[str, Any] = {"stream": True, "extra_headers": {"X-OpenWebUI-Chat-Id": "c"}, "tools": tools}
    for number in range(2):
        joined = await Joined().read(await ask(service, [{"role": "user", "content": f"{number}"}], **values))
        assert (joined.content, joined.finish_reason) == ("ok", "stop")
        assert len(model.requests[-1].tools) == 39
    [row] = await service.drsai.db.get(UserInput)
    assert row.extra_requests is not None
    assert len(row.extra_requests["drsai:client_tools"]["tools"]) == 36
    assert [run.status.value for run in await service.drsai.db.get(Run)] == ["completed"] * 2
    assert len(model.requests) == 2


async def test_a_program_without_http(serve: Serve, model: ModelServer) -> None:
    model.script(None, [Reply(tool_calls=[call(city="Bonn"), call(city="Rome")]), "Ok."])
    drsai = (await serve()).drsai
    tools = ClientTools([ClientTool("weather", "Of a city.", SCHEMA)])
    asked = await drsai.run("assistant", "Weather?", client_tools=tools)
    assert asked.input_request is not None
    assert asked.thread_id is not None
    results = [ToolOutput(each["id"], each["arguments"]) for each in asked.input_request["tool_calls"]]
    answer = Answer(asked.input_request["id"], results=results)
    handle = await (await serve()).drsai.answer(asked.thread_id, answer)
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert told(model.requests[-1]) == ['{"city": "Bonn"}', '{"city": "Rome"}']
    assert model.requests[-1].tools[-1] == "weather"


async def test_in_the_queue_and_in_the_background(serve: Serve, model: ModelServer) -> None:
    """The tools of an input that waits are kept with it, and its calls are told as those of any run."""
    asked = asyncio.Event()

    async def rule(request: ModelRequest) -> Reply:
        if request.last == "first":
            while not asked.is_set():  # noqa: ASYNC110 - the server's thread has a loop of its own
                await asyncio.sleep(0.01)
            return Reply("One.")
        return Reply("Ok.") if told(request) else Reply(tool_calls=[call(city="Bonn")])

    model.script(None, rule)
    service = await serve()
    body = {"thread_id": "t"}
    first = asyncio.create_task(ask(service, [{"role": "user", "content": "first"}], extra_body=body))
    while not model.requests:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.01)
    second = asyncio.create_task(ask(service, [{"role": "user", "content": "second"}], extra_body=body))
    background = await service.http.post(
        "/v1/chat/completions", json={"model": "assistant", "messages": HELLO, "tools": [tool()], "background": True}
    )
    assert background.status_code == 202
    asked.set()
    assert (await first).choices[0].message.content == "One."
    answer = await second
    history = [*HELLO, *returned(answer, "sun")]
    assert (await ask(service, history, extra_body=body)).choices[0].message.content == "Ok."
    run_id = background.json()["id"]
    await service.http.get(f"/v1/runs/{run_id}/events")
    [made] = (await service.http.get(f"/v1/runs/{run_id}")).json()["input_request"]["tool_calls"]
    results = {"role": "tool", "tool_call_id": made["id"], "content": "sun"}
    brings = {"model": "assistant", "messages": [*HELLO, results], "tools": [tool()], "background": True}
    url = "https://8.8.8.8/"
    assert (await service.http.post("/v1/webhooks/secret")).is_success
    refused = (await service.http.post("/v1/chat/completions", json={**brings, "webhook_url": url})).json()["error"]
    assert refused["param"] == "webhook_url"
    assert "results of tools resume" in refused["message"]
    resumed = await service.http.post("/v1/chat/completions", json=brings)
    assert (resumed.status_code, resumed.json()["id"]) == (202, run_id)
    await service.http.get(f"/v1/runs/{run_id}/events")
    assert (await service.http.get(f"/v1/runs/{run_id}")).json()["status"] == "completed"


async def test_a_repeated_request_with_a_key(serve: Serve, model: ModelServer) -> None:
    model.script(None, [Reply(tool_calls=[call(city="Bonn")]), "Ok."])
    service = await serve()
    keyed: dict[str, Any] = {"extra_headers": {"Idempotency-Key": "k1"}, "extra_body": {"thread_id": "t"}}
    first = await ask(service, **keyed)
    assert (await ask(service, **keyed)).choices[0].message.tool_calls == first.choices[0].message.tool_calls
    history, again = [*HELLO, *returned(first, "sun")], {"extra_headers": {"Idempotency-Key": "k2"}}
    answers = [(await ask(await serve(), history, **again)).choices[0].message.content for _ in range(2)]
    assert answers == ["Ok.", "Ok."]
    assert len(model.requests) == 2


async def test_the_same_results_twice_at_once(serve: Serve, model: ModelServer) -> None:
    """They are taken once, in whichever process; a cancelled run takes none."""
    model.script(None, [Reply(tool_calls=[call(city="Bonn")]), Reply("Ok.", delay=0.3), Reply(tool_calls=[call()])])
    services = [await serve(), await serve()]
    first = await ask(services[0])
    history = [*HELLO, *returned(first, "sun")]
    got = await asyncio.gather(*(ask(service, history) for service in services), return_exceptions=True)
    assert sorted(type(each).__name__ for each in got) == ["ChatCompletion", "ConflictError"]
    assert len(model.requests) == 2
    second = await ask(services[0], extra_body={"thread_id": "t"})
    cancelled = await services[1].http.post("/v1/threads/t/cancel", json={})
    assert cancelled.json()["status"] == "stopped"
    with pytest.raises(openai.ConflictError):
        await ask(services[1], returned(second, "sun")[1:], extra_body={"thread_id": "t"})


async def test_equal_words_and_other_results(serve: Serve, model: ModelServer) -> None:
    """Conversations of one user that are equal but for what their tools have returned, of calls that were made here and
    elsewhere: each continues with its own, in any process."""

    def rule(request: ModelRequest) -> Reply:
        is_told = told(request) or request.last in ("?", "Here?")
        return Reply("Done.") if is_told else Reply(tool_calls=[call(city="Bonn")])

    model.script(None, rule)
    service = await serve()
    asked = {"role": "user", "content": "?"}
    chats: dict[str, tuple[list[Any], str]] = {}
    elsewhere: dict[str, list[Any]] = {}
    done = {"role": "assistant", "content": "Done."}
    made = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    for secret in ("ann's", "bob's"):
        history = [*HELLO, *returned(await ask(service), secret)]
        answer = await ask(service, history)
        chats[secret] = ([*history, done], answer.thread_id)
        calls = {"role": "assistant", "content": None, "tool_calls": [made]}
        elsewhere[secret] = [*HELLO, calls, {"role": "tool", "tool_call_id": "call_1", "content": secret}, done]

    def results() -> list[str]:
        return [each["content"] for each in model.requests[-1].messages if each["role"] == "tool"]

    for secret, (history, thread_id) in chats.items():
        answer = await ask(await serve(), [*history, asked])
        assert (results(), answer.thread_id) == ([secret], thread_id)
        # Asked anew: the thread is further on, and a fork of it begins where it was.
        again = await ask(service, [*history, asked])
        assert (results(), again.thread_id in {each for _, each in chats.values()}) == ([secret], False)
    threads: dict[str, str] = {}
    for secret, history in elsewhere.items():
        answer = await ask(service, [*history, {"role": "user", "content": "Here?"}])
        assert results() == [secret]
        threads[secret] = answer.thread_id
        history += [{"role": "user", "content": "Here?"}, done]
    for secret, history in elsewhere.items():
        answer = await ask(await serve(), [*history, asked])
        assert (results(), answer.thread_id) == ([secret], threads[secret])


async def test_results_brought_to_another_model(serve: Serve, model: ModelServer) -> None:
    """They resume no run of the first one, whose agent has done things in the turn: they are told as history."""
    done: list[str] = []

    def pay(what: str) -> str:
        """Pay for it."""
        done.append(what)
        return "paid"

    def team(context: RunContext) -> AssistantAgent:
        return AssistantAgent("sam", context.model_client(), tools=[pay], reflect_on_tool_use=True)

    service = await serve({"assistant": team, "other": team})
    for body in ({}, {"thread_id": "t"}):
        model.script(None, [Reply(tool_calls=[call("pay", what="x"), call(city="Bonn")]), "Ok.", "Ok."])
        first = await ask(service, extra_body=body)
        history = [*HELLO, *returned(first, "sun")]
        if body:
            with pytest.raises(openai.ConflictError, match="waits for an answer to model 'assistant'"):
                await ask(service, history, model="other", extra_body=body)
        else:
            other = await ask(service, history, model="other")
            assert (other.choices[0].message.content, told(model.requests[-1])) == ("Ok.", ["sun"])
            assert other.thread_id != first.thread_id
        assert (await ask(service, history)).thread_id == first.thread_id
        assert told(model.requests[-1]) == ["paid", "sun"]
    assert done == ["x", "x"]
