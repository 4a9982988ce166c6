"""Chat Completions end to end: what a client sends is stored, reaches the model, and comes back as it was stored."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from autogen_agentchat.agents import UserProxyAgent

from drsai_backend import AssistantAgent, RoundRobinGroupChat, RunContext, RunStatus, Thread, UserInput
from drsai_backend.datamodel import AutoGenMessage, Run
from tests.e2e.conftest import Serve
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall
from tests.support.teams.foreign import tiny_image


def ask(text: str, **values: Any) -> dict[str, Any]:
    return {"model": "assistant", "messages": [{"role": "user", "content": text}], **values}


def on(thread_id: str, **values: Any) -> dict[str, Any]:
    return {"extra_body": {"thread_id": thread_id, **values}}


async def test_a_conversation_goes_on_in_another_process(serve: Serve, model: ModelServer) -> None:
    model.script(None, ["Nice to meet you, Ada.", "You are Ada.", "Still Ada."])
    for number, text in enumerate(["I am Ada.", "Who am I?", "And now?"]):
        service = await serve()
        answer = await service.client.chat.completions.create(**ask(text), **on("t"))
        assert answer.choices[0].message.content == ["Nice to meet you, Ada.", "You are Ada.", "Still Ada."][number]
        assert answer.thread_id == "t"  # type: ignore[attr-defined]
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (10, 5)
        contents = [message["content"] for message in model.requests[-1].messages if message["role"] != "system"]
        assert len(contents) == 2 * number + 1
        assert contents[-1] == text


async def test_parameters_reach_the_model_and_the_row(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    await service.client.chat.completions.create(
        **ask("x", temperature=0.3, max_tokens=77, top_p=0.9, seed=2**40, user="ada"), **on("t", colour="red")
    )
    body = model.requests[-1].body
    assert (body["temperature"], body["max_tokens"], body["top_p"], body["seed"]) == (0.3, 77, 0.9, 2**40)
    assert body["stream"] is True
    [row] = await service.drsai.db.get(UserInput, filters={"user_id": "ada"})
    assert (row.temperature, row.max_tokens, row.top_p, row.cache_seed) == (0.3, 77, 0.9, 2**40)
    assert row.extra_requests == {"colour": "red"}
    assert row.user_messages == [{"role": "user", "content": "x"}]


async def test_how_an_answer_finished_is_stored(serve: Serve, model: ModelServer) -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 4}}
    model.script(None, [Reply("cut", finish_reason="length", details=details, system_fingerprint="fp_1"), "done"])
    keyed: Any = {"extra_headers": {"Idempotency-Key": "k"}, **on("t")}
    first, second = await serve(), await serve()
    cut = await first.client.chat.completions.create(**ask("x"), **keyed)
    plain = await first.client.chat.completions.create(**ask("y"), **on("u"))
    assert (cut.choices[0].finish_reason, plain.choices[0].finish_reason) == ("length", "stop")
    again = await second.client.chat.completions.create(**ask("x"), **keyed)
    assert (again.choices, again.usage, again.system_fingerprint) == (cut.choices, cut.usage, "fp_1")
    rows = await second.drsai.db.get(Run)
    assert {row.team: row.finish for row in rows if row.finish} == {
        "assistant": {"finish_reason": "length", "system_fingerprint": "fp_1"}
    }
    for answer, reason in ((cut, "length"), (plain, "stop")):
        run = (await second.http.get(f"/v1/runs/{answer.drsai['run_id']}")).json()  # type: ignore[attr-defined]
        assert run["finish_reason"] == reason
        followed = (await second.http.get(f"/v1/runs/{answer.drsai['run_id']}/events")).text  # type: ignore[attr-defined]
        assert f'"finish_reason":"{reason}"' in followed


async def test_a_key_of_the_users_own_is_used_and_never_shown(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    answer = await service.client.chat.completions.create(**ask("x"), **on("t", api_key="sk-of-ada-42"))
    assert model.requests[-1].headers["authorization"] == "Bearer sk-of-ada-42"
    assert "sk-of-ada-42" not in answer.model_dump_json()
    [thread] = await service.drsai.db.get(Thread)
    assert "sk-of-ada-42" not in json.dumps(thread.model_dump(mode="json"))
    [row] = await service.drsai.db.get(UserInput)
    assert row.api_key == "sk-of-ada-42"
    assert "sk-of-ada-42" not in repr(row) + row.model_dump_json()


async def test_tools_run_inside_and_do_not_leak(serve: Serve, model: ModelServer) -> None:
    model.script(None, [Reply(tool_calls=[ToolCall("calculator", {"expression": "6*7"})]), "It is 42."])
    service = await serve()
    stream = await service.client.chat.completions.create(
        **ask("What is 6*7?"), **on("t"), stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "It is 42."
    assert not any(c.choices and c.choices[0].delta.tool_calls for c in chunks)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 30
    stored = [row.config["type"] for row in await service.drsai.db.get(AutoGenMessage)]
    assert stored == ["TextMessage", "ToolCallRequestEvent", "ToolCallExecutionEvent", "TextMessage"]
    assert "42" in str(model.requests[-1].messages[-1])


def writer_reviewer(request: ModelRequest) -> str:
    system = str(request.messages[0]["content"])
    users = sum(message["role"] == "user" for message in request.messages)
    if "review" in system.lower() and "APPROVE" in system:
        return "APPROVE" if users > 2 else "Shorter."
    return f"Draft {users}."


async def test_speakers_are_marked_in_a_group_chat(serve: Serve, model: ModelServer) -> None:
    model.script(None, writer_reviewer)
    service = await serve()
    whole = await service.client.chat.completions.create(**ask("Write.", model="writers"), **on("a"))
    text = whole.choices[0].message.content or ""
    assert text.index("**writer**") < text.index("**reviewer**")
    assert text.endswith("APPROVE")
    stream = await service.client.chat.completions.create(**ask("Write.", model="writers"), **on("b"), stream=True)
    pieces = [chunk async for chunk in stream]
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == text
    said = pieces[-1].drsai["messages"]  # type: ignore[attr-defined]
    assert [message["source"] for message in said] == ["writer", "reviewer"] * (len(said) // 2)
    assert [message["content"] for message in said][-1] == "APPROVE"


async def test_a_client_that_resends_its_history(serve: Serve, model: ModelServer) -> None:
    model.script(None, lambda request: f"answer {len(request.messages)}")
    service = await serve()
    history: list[dict[str, str]] = [{"role": "system", "content": "Be kind."}]
    for number in range(3):
        history.append({"role": "user", "content": f"question {number}"})
        answer = await service.client.chat.completions.create(model="assistant", messages=history, **on("t"))  # type: ignore[call-overload]
        history.append({"role": "assistant", "content": answer.choices[0].message.content or ""})
    page = (await service.http.get("/v1/threads/t/messages")).json()
    assert [item["content"] for item in page["data"] if item["source"] == "user"] == [f"question {n}" for n in range(3)]
    assert len(page["data"]) == 7


async def test_a_failing_model_is_an_honest_error(serve: Serve, model: ModelServer) -> None:
    model.script(None, ["fine", Failure(401), "fine again"])
    service = await serve()
    await service.client.chat.completions.create(**ask("one"), **on("t"))
    with pytest.raises(openai.APIStatusError) as caught:
        await service.client.chat.completions.create(**ask("two"), **on("t"))
    assert caught.value.status_code == 424
    body: Any = caught.value.body
    assert set(body) == {"message", "type", "param", "code"}
    assert "Traceback" not in str(body)
    assert "sk-server" not in str(body)
    detail = (await service.http.get("/v1/threads/t")).json()
    assert detail["status"] == "error"
    assert "401" in detail["error_message"]
    assert (await service.client.chat.completions.create(**ask("three"), **on("t"))).choices[0].message.content
    contents = [m["content"] for m in model.requests[-1].messages if m["role"] != "system"]
    assert contents == ["one", "fine", "two\n\nthree"]


async def test_a_stream_that_fails_says_so(serve: Serve, model: ModelServer) -> None:
    model.script(None, [Failure(500)])
    service = await serve()
    stream = await service.client.chat.completions.create(**ask("one"), **on("t"), stream=True)
    with pytest.raises(openai.APIError):
        async for _ in stream:
            pass


@pytest.mark.parametrize(
    "after", ["1-99999999999999999999", f"{'9' * 400}-1", "nan-1", "9999999999999.000000-1", "1.000000-1\n", ""]
)
async def test_a_cursor_that_is_none_names_its_field(serve: Serve, after: str) -> None:
    service = await serve()
    response = await service.http.get("/v1/threads", params={"after": after})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "after")


async def test_events_of_an_unknown_thread_are_a_404_also_when_the_database_is_slow(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service = await serve()
    read = service.drsai.db.database.read

    async def slow(work: Any, **options: Any) -> Any:
        await asyncio.sleep(0.7)  # longer than a stream waits before it sends its headers
        return await read(work, **options)

    monkeypatch.setattr(service.drsai.db.database, "read", slow)
    response = await service.http.get("/v1/threads/nobody/events")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
    assert not caplog.records


def proxied(context: RunContext) -> RoundRobinGroupChat:
    drafter = AssistantAgent("drafter", context.model_client(), model_client_stream=True)
    return RoundRobinGroupChat([drafter, UserProxyAgent("boss")], max_turns=4)


async def test_a_person_is_asked_and_answers_after_restarts(serve: Serve, model: ModelServer) -> None:
    model.script(None, ["A draft.", "Better."])
    teams = {"assistant": proxied}
    texts: list[str] = []
    for text in ("Draft.", "Not yet.", "Good."):
        service = await serve(teams)
        answer = await service.client.chat.completions.create(**ask(text), **on("t"))
        texts.append(answer.choices[0].message.content or "")
    assert "A draft." in texts[0]
    assert "Enter your response" in texts[0]
    assert "Better." in texts[1]
    detail = (await service.http.get("/v1/threads/t")).json()
    assert detail["status"] == "completed"
    assert detail["input_request"] is None
    assert len(model.requests) == 2
    assert "Not yet." in str(model.requests[-1].messages[-1]["content"])
    [run] = await service.drsai.db.get(Run)
    assert run.status is RunStatus.COMPLETED


BAD: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": "nul \0"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"model": "nobody"}, "model"),
    ({"temperature": 7}, "temperature"),
    ({"thread_id": ""}, "thread_id"),
    ({"n": 3}, "n"),
    (
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}
            ]
        },
        "messages[0].content[0].image_url",
    ),
]


async def test_bad_input_names_the_field_and_changes_nothing(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    await service.client.chat.completions.create(**ask("good"), **on("t"))
    [before] = await service.drsai.db.get(Thread)
    for change, param in BAD:
        response = await service.http.post("/v1/chat/completions", json={**ask("x"), "thread_id": "t", **change})
        assert response.status_code in (400, 404), (change, response.text)
        assert param in str(response.json()["error"]["param"]), (change, response.text)
    [after] = await service.drsai.db.get(Thread)
    assert after.model_dump() == before.model_dump()
    assert (await service.client.chat.completions.create(**ask("good"), **on("t"))).choices[0].message.content == "ok"


async def test_a_damaged_thread_is_a_clear_error(serve: Serve, model: ModelServer) -> None:
    import sqlalchemy as sa

    from drsai_backend.datamodel import JournalEntry

    service = await serve(warm_threads=0)
    await service.client.chat.completions.create(**ask("good"), **on("t"))
    table = JournalEntry.__table__  # type: ignore[attr-defined]
    await service.drsai.database.write(lambda session: session.execute(sa.update(table).values(payload="????")))
    response = await service.http.post("/v1/chat/completions", json={**ask("x"), "thread_id": "t"})
    assert response.status_code == 422
    assert response.json()["error"]["code"] == "state_damaged"
    assert "'t'" in response.json()["error"]["message"]
    assert (await service.client.chat.completions.create(**ask("good"), **on("u"))).choices[0].message.content == "ok"


async def test_images_reach_a_model_that_sees(serve: Serve, model: ModelServer) -> None:
    service = await serve(model_vision=True)
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": tiny_image().data_uri}},
    ]
    for _ in range(2):
        await service.client.chat.completions.create(
            model="assistant",
            messages=[{"role": "user", "content": content}],  # type: ignore[list-item]
            **on("t"),
        )
        service = await serve(model_vision=True)
    parts = [part for m in model.requests[-1].messages if isinstance(m["content"], list) for part in m["content"]]
    assert [part["type"] for part in parts] == ["text", "image_url"] * 2


@pytest.mark.parametrize("background", [False, True])
async def test_images_for_a_model_that_sees_none_are_refused(
    serve: Serve, model: ModelServer, background: bool
) -> None:
    service = await serve(model_vision=False)
    content: Any = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": tiny_image().data_uri}},
    ]
    with pytest.raises(openai.BadRequestError) as refused:
        await service.client.chat.completions.create(
            model="writers",
            messages=[{"role": "user", "content": content}],
            extra_body={"thread_id": "t", "background": background},
        )
    assert refused.value.param == "messages"
    assert "sees no images" in refused.value.message
    assert model.requests == []
    assert await service.drsai.db.get(Thread) == []
