"""Runs over HTTP: in the background, under control, answered."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import DatabaseUnavailable, ShuttingDown
from drsai_backend.runs.events import RunEnded
from drsai_backend.runs.requests import Answer
from tests.api.fakes import FakeEngine
from tests.api.scripts import COMPLETED, said

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}


async def begin(http: httpx.AsyncClient, engine: FakeEngine, **fields: Any) -> str:
    """Start a run that ends at once; its id."""
    fields.setdefault("thread_id", "t1")
    body = {"model": engine.play(said("a", "hi"), COMPLETED), "messages": HELLO, **fields}
    response = await http.post(CHAT, json=body)
    assert response.status_code == 200, response.text
    return response.headers["x-run-id"]


# --- chat completions -------------------------------------------------------------------------------------------------


async def test_what_a_request_asks_for_reaches_the_engine(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    for policy in ("enqueue", "reject", "interrupt", "steer"):
        body = {"on_busy": policy, "on_disconnect": "continue", "background": False}
        await client.chat.completions.create(model="assistant", messages=HELLO, extra_body=body)
        assert engine.requests[-1].how.on_busy == policy
    assert engine.requests[-1].how.background is False
    assert engine.requests[-1].extra == {}
    await client.chat.completions.create(model="assistant", messages=HELLO)
    assert engine.requests[-1].how.on_busy == "enqueue"


@pytest.mark.parametrize("user", [None, "ann", "ann@example.org & co"])
async def test_in_the_background(
    client: openai.AsyncOpenAI, http: httpx.AsyncClient, engine: FakeEngine, user: str | None
) -> None:
    fields: dict[str, Any] = {"background": True, "thread_id": "t1", **({"user": user} if user else {})}
    raw = await client.chat.completions.with_raw_response.create(
        model=engine.play(0.2, COMPLETED), messages=HELLO, extra_body=fields
    )
    assert raw.status_code == 202
    assert (raw.headers["x-thread-id"], raw.headers["x-run-id"]) == ("t1", "run-1")
    assert engine.requests[0].how.background is True
    run = raw.http_response.json()
    assert (run["id"], run["object"], run["status"]) == ("run-1", "thread.run", "running")
    assert (run["background"], run["created_at"]) == (True, 1_700_000_000)
    assert raw.headers["location"].startswith("/v1/runs/run-1")
    again = await http.get(raw.headers["location"])
    assert (again.status_code, again.json()) == (200, run)


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        ({"on_busy": "wait"}, "on_busy", "'enqueue', 'reject', 'interrupt', 'steer' or 'rollback'"),
        ({"on_busy": 1}, "on_busy", "must be"),
        ({"on_disconnect": "stop"}, "on_disconnect", "'continue' or 'cancel'"),
        ({"background": "yes"}, "background", "true or false"),
        ({"background": True, "stream": True}, "stream", "background"),
        ({"background": True, "on_disconnect": "cancel"}, "on_disconnect", "background"),
    ],
)
async def test_what_cannot_be_asked_for_is_named(
    http: httpx.AsyncClient, engine: FakeEngine, fields: dict[str, Any], param: str, text: str
) -> None:
    response = await http.post(CHAT, json={"model": "assistant", "messages": HELLO, **fields})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == param
    assert text in error["message"]
    assert engine.requests == []


MOVED = RunEnded(RunStatus.RUNNING, error_code="shutting_down", error_message="the server stops; the run goes on")


@pytest.mark.parametrize(("key", "retry"), [(None, "false"), ("k1", None)])
async def test_a_run_that_moved_away_is_a_503(
    http: httpx.AsyncClient, engine: FakeEngine, key: str | None, retry: str | None
) -> None:
    body = {"model": engine.play(said("a", "hi"), MOVED), "messages": HELLO}
    response = await http.post(CHAT, json=body, headers={"Idempotency-Key": key} if key else {})
    assert response.status_code == 503
    assert response.json()["error"] == {
        "message": "the server stops; the run goes on",
        "type": "server_error",
        "param": None,
        "code": "shutting_down",
    }
    assert (response.headers["retry-after"], response.headers["x-run-id"]) == ("1", "run-1")
    assert response.headers.get("x-should-retry") == retry


async def test_a_stream_that_moved_away_ends_with_an_error(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    model = engine.play(said("a", "hi"), RunEnded(RunStatus.RUNNING, error_code="run_moved"))
    answer = await client.chat.completions.create(model=model, messages=HELLO, stream=True)
    with pytest.raises(openai.APIError) as caught:
        [_ async for _ in answer]
    assert caught.value.code == "run_moved"


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_paused_run_ends_the_answer(client: openai.AsyncOpenAI, engine: FakeEngine, streamed: bool) -> None:
    model = engine.play(said("a", "hi"), RunEnded(RunStatus.PAUSED))
    if streamed:
        chunks = [
            chunk async for chunk in await client.chat.completions.create(model=model, messages=HELLO, stream=True)
        ]
        assert chunks[-1].choices[0].finish_reason == "stop"
        assert chunks[-1].model_extra is not None
        assert chunks[-1].model_extra["drsai"]["status"] == "paused"
    else:
        answer = await client.chat.completions.create(model=model, messages=HELLO)
        assert answer.choices[0].finish_reason == "stop"
        assert answer.model_extra is not None
        assert answer.model_extra["drsai"]["status"] == "paused"


@pytest.mark.parametrize(
    ("error", "code", "wait"),
    [
        (ShuttingDown("this server stops"), "shutting_down", 1),
        (DatabaseUnavailable("the database cannot be reached"), "database_unavailable", 5),
    ],
)
async def test_a_503_says_when_to_come_again(
    http: httpx.AsyncClient, engine: FakeEngine, error: Any, code: str, wait: int
) -> None:
    engine.refusal = error
    response = await http.post(CHAT, json={"model": "assistant", "messages": HELLO})
    assert (response.status_code, response.json()["error"]["code"]) == (503, code)
    assert response.headers["retry-after"] == str(wait)
    assert "x-should-retry" not in response.headers
    engine.refusal = None
    assert "retry-after" not in (await http.get("/v1/runs/none")).headers


# --- runs -------------------------------------------------------------------------------------------------------------


async def test_a_run(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    run_id = await begin(http, engine, user="ann")
    run = (await http.get(f"/v1/runs/{run_id}", params={"user": "ann"})).json()
    assert (run["id"], run["thread_id"], run["status"], run["attempt"]) == (run_id, "t1", "completed", 1)
    assert {"usage", "stop_reason", "error_message", "input_request", "joined", "finished_at"} <= set(run)
    cancelled = await http.post(f"/v1/runs/{run_id}/cancel", headers=JSON, params={"user": "ann"})
    assert (cancelled.status_code, cancelled.json()) == (200, run)
    assert engine.asked == [("cancel_run", "ann", run_id)]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/runs/run-1"),
        ("GET", "/v1/runs/run-1/events"),
        ("POST", "/v1/runs/run-1/cancel"),
        ("GET", "/v1/threads/t1/runs"),
        ("GET", "/v1/threads/t1/events"),
        ("POST", "/v1/threads/t1/cancel"),
        ("POST", "/v1/threads/t1/pause"),
        ("POST", "/v1/threads/t1/resume"),
        ("POST", "/v1/threads/t1/input"),
    ],
)
@pytest.mark.parametrize("user", [None, "bob"])
async def test_the_runs_of_others_do_not_exist(
    http: httpx.AsyncClient, engine: FakeEngine, method: str, path: str, user: str | None
) -> None:
    await begin(http, engine, user="ann")
    body = {"json": {"id": "q1", "text": "x"} if path.endswith("input") else {}} if method == "POST" else {}
    response = await http.request(method, path, params={"user": user} if user else {}, **body)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"
    assert engine.asked == []


async def test_the_runs_of_a_thread(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    for _ in range(3):
        await begin(http, engine, thread_id="a/b")
    first = (await http.get("/v1/threads/a/b/runs", params={"limit": 2})).json()
    assert [run["id"] for run in first["data"]] == ["run-3", "run-2"]
    assert (first["object"], first["first_id"], first["last_id"]) == ("list", "run-3", "run-2")
    assert first["has_more"] is True
    second = (await http.get("/v1/threads/a%2Fb/runs", params={"after": first["next"]})).json()
    assert [run["id"] for run in second["data"]] == ["run-1"]
    assert (second["has_more"], second["next"]) == (False, None)


# --- control ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["cancel", "pause", "resume"])
async def test_control(http: httpx.AsyncClient, engine: FakeEngine, act: str) -> None:
    await begin(http, engine, thread_id="a/b", user="ann")
    path = f"/v1/threads/a/b/{act}"
    for request in (
        {"headers": JSON, "params": {"user": "ann"}},
        {"json": {"user": "ann"}},
        {"json": {"user": {"name": "ann"}}, "params": {"user": "ann"}},
    ):
        response = await http.post(path, **request)
        assert response.status_code == 200, response.text
        thread = response.json()
        assert (thread["id"], thread["object"], thread["control"]) == ("a/b", "thread", act)
    assert engine.asked == [(act, "ann", "a/b")] * 3


@pytest.mark.parametrize("path", ["/v1/threads/t1/cancel", "/v1/threads/t1/input", "/v1/runs/run-1/cancel"])
async def test_users_that_differ_are_refused(http: httpx.AsyncClient, engine: FakeEngine, path: str) -> None:
    await begin(http, engine)
    fields = {"id": "q1", "text": "x"} if path.endswith("input") else {}
    response = await http.post(path, json={"user": "ann", **fields}, params={"user": "bob"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "user")
    response = await http.post(path, json={"colour": "red", **fields})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "colour")
    assert "not known" in response.json()["error"]["message"]
    assert engine.asked == []


async def test_foreign_web_pages_control_nothing(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    """A browser sends these without asking, so they must not do anything."""
    await begin(http, engine)
    for path in ("/v1/threads/t1/cancel", "/v1/runs/run-1/cancel", "/v1/threads/t1/input"):
        for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
            response = await http.post(
                path, content=b'{"id": "q1", "text": "x"}', headers={"content-type": content_type}
            )
            assert response.status_code == 415
        assert (await http.post(path)).status_code == 415
    assert engine.asked == []


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"text": "blue"}, Answer("q1", "blue")),
        ({"text": ""}, Answer("q1", "")),
        ({"decision": "approve"}, Answer("q1", decision="approve")),
        ({"decision": "deny", "reason": "too dear"}, Answer("q1", decision="deny", reason="too dear")),
        ({"decision": "edit", "arguments": {"n": 1}}, Answer("q1", decision="edit", arguments={"n": 1})),
        ({"decision": "result", "text": "42"}, Answer("q1", "42", "result")),
    ],
)
async def test_an_answer(http: httpx.AsyncClient, engine: FakeEngine, fields: dict[str, Any], answer: Answer) -> None:
    await begin(http, engine, user="ann")
    engine.scripts["assistant"] = (1, lambda _: [0.2, COMPLETED])
    response = await http.post("/v1/threads/t1/input", json={"id": "q1", **fields}, params={"user": "ann"})
    assert response.status_code == 202, response.text
    assert (response.json()["id"], response.json()["object"]) == ("run-2", "thread.run")
    assert response.json()["status"] == "running", "or the answer waited for the run"
    assert (response.headers["x-thread-id"], response.headers["x-run-id"]) == ("t1", "run-2")
    assert engine.asked == [("answer", "ann", "t1", answer)]


async def test_an_answer_that_comes_too_late(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    await begin(http, engine)
    response = await http.post("/v1/threads/t1/input", json={"id": "old", "text": "x"})
    assert response.status_code == 409
    assert response.json()["error"]["code"] == "input_request_stale"
    assert response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"text": "x"}, "id"),
        ({"id": "", "text": "x"}, "id"),
        ({"id": 3, "text": "x"}, "id"),
        ({"id": "q1"}, "text"),
        ({"id": "q1", "text": 3}, "text"),
        ({"id": "q1", "decision": "maybe"}, "decision"),
        ({"id": "q1", "decision": "edit", "arguments": "{}"}, "arguments"),
        ({"id": "q1", "text": "x", "stream": 1}, "stream"),
        ({"id": "q1", "text": "a\0b"}, "text"),
    ],
)
async def test_an_answer_that_cannot_be_used(
    http: httpx.AsyncClient, engine: FakeEngine, fields: dict[str, Any], param: str
) -> None:
    await begin(http, engine)
    response = await http.post("/v1/threads/t1/input", json=fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    assert engine.asked == []


async def test_the_routes_are_in_the_openapi_document(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    paths = document["paths"]
    run = paths["/v1/runs/{run_id}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert run["properties"]["object"] == {"const": "thread.run"}
    assert run["properties"]["created_at"]["type"] == "integer"
    assert "awaiting_input" in run["properties"]["status"]["enum"]
    assert CHAT in paths
    accepted = paths[CHAT]["post"]["responses"]["202"]["content"]["application/json"]["schema"]
    assert accepted["properties"].keys() == run["properties"].keys()
    body = paths["/v1/threads/{thread_id}/input"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["id"]
    assert body["additionalProperties"] is False
    assert "on_busy" in document["components"]["schemas"]["ChatBody"]["properties"]
    assert set(_references(document)) <= {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for item in value.values() for found in _references(item)]
    return [found for item in value for found in _references(item)] if isinstance(value, list) else []
