"""Messages of the system wherever clients put them, as coding agents do: the strictest model takes what comes of it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend import AssistantAgent, DrSai, RunContext, requires_approval
from tests.e2e.conftest import Serve
from tests.e2e.tool_calls import SCHEMA, ask, call, returned
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import settings as settings_with

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
_TOOLS: dict[str, Any] = {
    CHAT: {"type": "function", "function": {"name": "look", "parameters": SCHEMA}},
    MESSAGES: {"name": "look", "input_schema": SCHEMA},
    RESPONSES: {"type": "function", "name": "look", "parameters": SCHEMA},
}
Entry = tuple[str, int]
"""A role and a number. `calls` are that many, and a `result` is of one of them."""

_rounds = st.integers(1, 3).map(lambda count: [("calls", count), *(("result", index) for index in range(count))])
_says = st.tuples(st.just("user"), st.just(0))
_turns = st.tuples(
    st.lists(_says, min_size=1, max_size=2),
    st.lists(_rounds, max_size=2).map(lambda rounds: [entry for each in rounds for entry in each]),
    st.lists(st.just(("assistant", 0)), min_size=1, max_size=2),
).map(lambda parts: [entry for part in parts for entry in part])
_conversations = st.tuples(
    st.lists(_turns, max_size=2).map(lambda turns: [entry for turn in turns for entry in turn]),
    st.lists(_says, min_size=1, max_size=2),
    st.one_of(st.just([]), _rounds),
).map(lambda parts: [entry for part in parts for entry in part])


def read_as(path: str, entries: list[Entry]) -> list[dict[str, Any]]:
    """A conversation as the clients of an API write it; each text is its number in brackets."""
    found: list[dict[str, Any]] = []
    first = 0
    for number, (role, count) in enumerate(entries):
        text = f"[{number}]"
        names = [f"c{number}x{index}" for index in range(count)]
        if role == "calls":
            first = number
            if path == CHAT:
                calls = [{"id": n, "type": "function", "function": {"name": "look", "arguments": "{}"}} for n in names]
                found.append({"role": "assistant", "tool_calls": calls})
            elif path == MESSAGES:
                blocks = [{"type": "tool_use", "id": each, "name": "look", "input": {}} for each in names]
                found.append({"role": "assistant", "content": blocks})
            else:
                each = {"type": "function_call", "name": "look", "arguments": "{}"}
                found += [{**each, "call_id": name} for name in names]
        elif role == "result":
            name = f"c{first}x{count}"
            if path == CHAT:
                found.append({"role": "tool", "tool_call_id": name, "content": text})
            elif path == MESSAGES:
                block = {"type": "tool_result", "tool_use_id": name, "content": text}
                found.append({"role": "user", "content": [block]})
            else:
                found.append({"type": "function_call_output", "call_id": name, "output": text})
        else:
            found.append({"role": role, "content": text})
    return found


@pytest.fixture(scope="module")
def sent(sqlite_template: bytes) -> Iterator[Callable[..., Any]]:
    """`sent(path, body)`: the answer, and what the model was asked last."""
    with tempfile.TemporaryDirectory() as directory, ModelServer() as model, asyncio.Runner() as runner:
        file = Path(directory) / "a.db"
        file.write_bytes(sqlite_template)
        given = settings_with(openai_base_url=model.base_url, openai_api_key="k", model="gpt-4o-mini")
        drsai = DrSai(None, f"sqlite:///{file}", settings=given)
        runner.run(drsai.__aenter__())
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app=drsai.app()), base_url="http://test")

        def send(path: str, body: Any) -> tuple[httpx.Response, ModelRequest]:
            answer = runner.run(http.post(path, json=body))
            return answer, (model.requests or model.refused)[-1]

        yield send
        runner.run(http.aclose())
        runner.run(drsai.__aexit__(None, None, None))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from([CHAT, MESSAGES, RESPONSES]),
    _conversations,
    st.lists(st.integers(0, 40), min_size=1, max_size=4),
)
def test_the_system_may_speak_anywhere(
    sent: Callable[..., Any], path: str, entries: list[Entry], places: list[int]
) -> None:
    for place in places:
        entries.insert(place % (len(entries) + 1), ("system", 0))
    said = {"input" if path == RESPONSES else "messages": read_as(path, entries)}
    limit = {"max_tokens": 100} if path == MESSAGES else {}
    answer, request = sent(path, {"model": "assistant", "tools": [_TOOLS[path]], "history": "import", **said, **limit})
    assert answer.status_code == 200, answer.text
    system = [f"[{number}]" for number, (role, _) in enumerate(entries) if role == "system"]
    assert [request.system.find(each) for each in system] == sorted(request.system.find(each) for each in system)
    assert all(each in request.system for each in system)
    shown = "".join(str(each.get("content") or "") for each in request.messages[1:])
    rest = [f"[{number}]" for number, (role, _) in enumerate(entries) if role not in ("system", "calls")]
    at = [shown.find(each) for each in rest]
    assert -1 not in at
    assert at == sorted(at)


async def test_an_answer_stands_before_what_the_system_says_after_it(serve: Serve, model: ModelServer) -> None:
    """What a person answers is their message, not the system's that comes with it."""
    paid: list[int] = []

    def team(context: RunContext) -> AssistantAgent:
        def pay(amount: int) -> str:
            """Pay."""
            paid.append(amount)
            return "paid"

        return AssistantAgent("payer", context.model_client(), tools=[requires_approval(pay)], reflect_on_tool_use=True)

    service = await serve({"payer": team})
    model.script(None, [Reply(tool_calls=[ToolCall("pay", {"amount": 5})]), "Done."])
    create: Any = service.client.chat.completions.create
    asked = await create(model="payer", messages=[{"role": "user", "content": "Pay 5."}])
    messages = [
        {"role": "user", "content": "Pay 5."},
        {"role": "assistant", "content": asked.choices[0].message.content},
        {"role": "user", "content": "approve"},
        {"role": "developer", "content": "It is noon."},
    ]
    answer = await create(model="payer", messages=messages)
    assert (answer.choices[0].message.content, paid) == ("Done.", [5])
    assert "It is noon." in model.requests[1].system


@pytest.mark.parametrize("last", [[], [{"role": "system", "content": "Later."}]])
async def test_who_spoke_last_is_told_by_its_place(serve: Serve, model: ModelServer, last: list[Any]) -> None:
    service = await serve()
    said = [
        {"role": "system", "content": "S."},
        {"role": "user", "content": "U."},
        {"role": "assistant", "content": ""},
    ]
    for path, name in ((CHAT, "messages[2].role"), (MESSAGES, "messages[2].role")):
        answer = await service.http.post(path, json={"model": "assistant", "max_tokens": 5, "messages": [*said, *last]})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)
    answer = await service.http.post(RESPONSES, json={"model": "assistant", "input": [*said, *last]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")
    assert model.requests == []


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_of_one_run_have_ids_of_their_own(serve: Serve, model: ModelServer, stream: bool) -> None:
    """Claude Code takes two messages of one id for one, and then sends calls and results in another order."""
    service = await serve()
    model.script(None, lambda asked: Reply(tool_calls=[call(city="Bonn")]) if len(asked.messages) < 7 else "Ok.")
    history: list[Any] = [{"role": "user", "content": "Weather?"}]
    ids: list[str] = []
    for _ in range(3):
        answer = await ask(service, history)
        ids.append(answer.id)
        if answer.choices[0].message.tool_calls:
            history += returned(answer, "sun")
    assert len({*ids}) == 3
    assert len({each.partition("_")[2][:18] for each in ids}) == 1  # of one run
    messages: list[Any] = [{"role": "user", "content": "Weather?"}]
    ids.clear()
    tools = [{"name": "weather", "input_schema": SCHEMA}]
    for _ in range(3):
        body = {"model": "assistant", "max_tokens": 9, "messages": messages, "tools": tools, "stream": stream}
        answer = await service.http.post(MESSAGES, json=body, headers={"X-Thread-Id": "t"})
        assert answer.status_code == 200, answer.text
        ids.append(answer.text.split('"id":"msg_')[1].split('"')[0])
        if '"call_' in answer.text:
            call_id = "call_" + answer.text.split('"id":"call_')[1].split('"')[0]
            use = {"type": "tool_use", "id": call_id, "name": "weather", "input": {"city": "Bonn"}}
            result = {"type": "tool_result", "tool_use_id": call_id, "content": "sun"}
            messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    assert len({*ids}) == 3
