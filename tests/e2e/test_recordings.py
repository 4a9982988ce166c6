"""What chat windows really sent (tests/recordings), sent to this server, with a model that answers as it did then."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.e2e.conftest import Serve, Service
from tests.recordings import Exchange, names, recording
from tests.recordings.pending import ANSWERS, HOUSEKEEPING, SEEN, THREADS
from tests.support.model_server import Answer, ModelRequest, ModelServer, Reply, ToolCall


@pytest.fixture
def database_url(migrated_sqlite: str) -> str:
    """SQLite alone: what is tested here is what is understood of requests."""
    return migrated_sqlite


@dataclass
class Replay:
    """What came of a scene: per request the answer, and the requests that the model got for it."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    asked: list[list[ModelRequest]] = field(default_factory=list)
    threads: list[dict[str, Any]] = field(default_factory=list)


def text_of(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def reply(exchange: Exchange) -> Answer:
    answer = exchange.answer
    calls = [
        ToolCall(call["function"]["name"], call["function"]["arguments"], call["id"])
        for call in answer.get("tool_calls", [])
    ]
    return Reply(answer.get("content"), tool_calls=calls)


def of_two(exchange: Exchange, request: ModelRequest) -> Answer:
    """What the writer, or the reviewer, said in the recorded answer of the two."""
    texts = (exchange.answer["content"] or "").split("\n\n")
    return texts[3] if "APPROVE" in request.system else texts[1]


def in_turns(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Roles and texts, the system's apart; messages of one role in a row are one, as models want it."""
    found: list[tuple[str, str]] = []
    for message in messages:
        role, text = message["role"], text_of(message["content"])
        if found and found[-1][0] == role != "tool":
            found[-1] = (role, f"{found[-1][1]}\n\n{text}")
        elif role != "system":
            found.append((role, text))
    return found


def as_asked(messages: list[dict[str, Any]], asked: dict[str, str]) -> list[dict[str, Any]]:
    """A window's messages, with its earlier questions as it had sent them when they were asked: with what it had found
    for them around, which the model still knows. The last one is noted."""
    known = [{**each, "content": asked.get(text_of(each["content"]), each["content"])} for each in messages[:-1]]
    last = text_of(messages[-1]["content"])
    if last.startswith("### Task:"):
        asked[last.rpartition("</context>")[2].strip()] = last
    return [*known, messages[-1]]


def with_ids(body: dict[str, Any], ids: dict[str, str]) -> dict[str, Any]:
    """A recorded request with the ids that calls of tools have here."""
    text = json.dumps(body)
    for recorded, given in ids.items():
        text = text.replace(json.dumps(recorded), json.dumps(given))
    return json.loads(text)


async def send(service: Service, exchange: Exchange, ids: dict[str, str], user: str | None = None) -> dict[str, Any]:
    """The answer as the window reads it, with the response's status. `user`: who asks, where the window is told to say
    so."""
    sent = {name: exchange.headers[name] for name in exchange.headers if name.startswith("x-")}
    body = with_ids(exchange.body, ids) | ({} if user is None else {"user": user})
    response = await service.http.post("/v1/chat/completions", json=body, headers=sent, timeout=60)
    if response.status_code != 200:
        return {"status": response.status_code, "content": response.text}
    if not exchange.body.get("stream"):
        message = response.json()["choices"][0]["message"]
        return {"status": 200, **{name: message.get(name) for name in ("content", "tool_calls") if message.get(name)}}
    content, calls = "", {}
    for line in response.text.splitlines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            if "error" in event:
                return {"status": 200, **event}
            for choice in event["choices"]:
                content += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls") or []:
                    known = calls.setdefault(call["index"], {"id": call.get("id"), "name": "", "arguments": ""})
                    for name in ("name", "arguments"):
                        known[name] += call["function"].get(name) or ""
    found: dict[str, Any] = {"status": 200}
    return found | ({"content": content} if content else {}) | ({"tool_calls": list(calls.values())} if calls else {})


_replays: dict[str, Replay] = {}
"""Each scene is replayed once in a process; the tests look at what came of it."""


async def replay(name: str, serve: Serve, model: ModelServer) -> Replay:
    if name not in _replays:
        _replays[name] = await replay_now(name, serve, model)
    return _replays[name]


async def replay_now(name: str, serve: Serve, model: ModelServer, user: str | None = None) -> Replay:
    model.continues = "vllm"
    service = await serve(
        model_vision=True, model_continues="vllm", max_turns=2
    )  # enough for the two, and for what wrongly goes to them
    found = Replay()
    ids: dict[str, str] = {}
    for exchange in recording(name).exchanges:
        whole = exchange.kind == "chat" and exchange.body["model"] == "writers"
        model.script(None, lambda r, e=exchange, w=whole: of_two(e, r) if w else reply(e))
        before = len(model.requests)
        found.answers.append(await send(service, exchange, ids, user))
        calls = zip(exchange.answer.get("tool_calls", []), found.answers[-1].get("tool_calls", []), strict=False)
        ids |= {recorded["id"]: given["id"] for recorded, given in calls}
        found.asked.append(model.requests[before:])
    users = {e.headers.get("x-openwebui-user-id") for e in recording(name).exchanges} | {None, user}
    for each in users:
        query = {} if each is None else {"user": each}
        found.threads += (await service.http.get("/v1/threads", params={**query, "limit": 100})).json()["data"]
    return found


def scenes(pending: dict[str, str], *, only: str = "*") -> list[Any]:
    """All scenes, each for one worker, so that it is replayed once; those that wait for a part of the server are marked
    so."""
    return [
        pytest.param(
            name,
            id=name,
            marks=[
                pytest.mark.xdist_group(name),
                *([pytest.mark.xfail(strict=True, reason=f"waits for: {pending[name]}")] if name in pending else []),
            ],
        )
        for name in names(only)
    ]


@pytest.mark.parametrize("name", scenes(ANSWERS))
async def test_every_request_is_answered_as_it_was(name: str, serve: Serve, model: ModelServer) -> None:
    found = await replay(name, serve, model)
    for number, (exchange, answer) in enumerate(zip(recording(name).exchanges, found.answers, strict=True)):
        expected: dict[str, Any] = {"status": 200, "content": exchange.answer.get("content")}
        if calls := exchange.answer.get("tool_calls"):
            names_of = [
                {"name": call["function"]["name"], "arguments": call["function"]["arguments"]} for call in calls
            ]
            made = [{key: call[key] for key in ("name", "arguments")} for call in answer.get("tool_calls", [])]
            assert made == names_of, number
            continue
        assert answer == expected, (number, exchange.kind)


@pytest.mark.parametrize("name", scenes(SEEN))
async def test_the_model_sees_what_the_window_shows(name: str, serve: Serve, model: ModelServer) -> None:
    """A chat request reaches the model as the window has it: same roles, same texts, the window's instructions in the
    system message."""
    found = await replay(name, serve, model)
    wrapped: dict[str, str] = {}
    for exchange, asked in zip(recording(name).exchanges, found.asked, strict=True):
        if exchange.kind != "chat" or exchange.body["model"] == "writers":
            continue
        [request] = asked
        # Where nobody is named, what the window drops may be another person's: the model sees what it shows.
        sent = as_asked(exchange.body["messages"], {} if name == RETRIEVAL else wrapped)
        told = [text_of(message["content"]) for message in sent if message["role"] == "system"]
        assert all(text in request.system for text in told)
        assert in_turns(request.messages) == in_turns(sent)


@pytest.mark.parametrize("name", scenes(HOUSEKEEPING))
async def test_housekeeping_is_one_plain_call_and_no_conversation(name: str, serve: Serve, model: ModelServer) -> None:
    """It reaches the model once, as it was sent, and leaves no thread; the chats do."""
    found = await replay(name, serve, model)
    for exchange, asked in zip(recording(name).exchanges, found.asked, strict=True):
        if exchange.is_housekeeping:
            assert len(asked) == 1, exchange.kind
            sent = [(m["role"], text_of(m["content"])) for m in exchange.body["messages"]]
            if [role for role, _ in sent] == ["system"]:
                sent = [("user", sent[0][1])]  # A strict endpoint wants one of the user's.
            assert [(m["role"], text_of(m["content"])) for m in asked[0].messages] == sent
    chats = sum(exchange.kind in ("chat", "merge") for exchange in recording(name).exchanges)
    assert len(found.threads) <= chats


@pytest.mark.xdist_group("openwebui/legacy_tools")
async def test_one_person_keeps_what_a_window_has_found(serve: Serve, model: ModelServer) -> None:
    """The scene in which the window drops what it had put around a question, with its user named."""
    found = await replay_now(RETRIEVAL, serve, model, user="ann")
    wrapped: dict[str, str] = {}
    for exchange, asked in zip(recording(RETRIEVAL).exchanges, found.asked, strict=True):
        if exchange.kind == "chat":
            sent = as_asked(exchange.body["messages"], wrapped)
            assert in_turns(asked[0].messages) == in_turns(sent)
    assert wrapped
    assert len(found.threads) == 1


RETRIEVAL = "openwebui/legacy_tools"
MORE = {
    **dict.fromkeys(("openwebui/regenerate", "openwebui/edit_a_question", "openwebui/fork", "openwebui/stop"), 2),
    "openwebui/edit_an_answer": 2,
    "openwebui/another_model": 2,
    RETRIEVAL: 2,
    "openwebui/compaction": 4,  # a history whose beginning is gone is unknown
}
"""How many threads a scene may make where that is not one."""


@pytest.mark.parametrize("name", scenes(THREADS, only="openwebui"))
async def test_a_chat_is_a_thread_and_what_branches_off_one_of_its_own(
    name: str, serve: Serve, model: ModelServer
) -> None:
    """Nothing but the history says which chat a request belongs to, where Open WebUI is not told to send ids."""
    found = await replay(name, serve, model)
    if any(exchange.kind == "chat" for exchange in recording(name).exchanges):
        assert len(found.threads) <= MORE.get(name, 1)
