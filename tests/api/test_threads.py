"""Stored conversations over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from drsai_backend.errors import ThreadBusy
from tests.api.fakes import FakeEngine


@pytest.fixture
def stored(engine: FakeEngine) -> FakeEngine:
    for number in range(5):
        engine.threads["ann", f"t{number}"] = number
    engine.threads["bob", "his/own"] = 9
    return engine


async def get(http: httpx.AsyncClient, path: str, **params: Any) -> dict[str, Any]:
    response = await http.get(path, params=params)
    assert response.status_code == 200, response.text
    return response.json()


async def test_pages_of_ones_own_threads_newest_first(http: httpx.AsyncClient, stored: FakeEngine) -> None:
    first = await get(http, "/v1/threads", user="ann", limit=2)
    assert [thread["id"] for thread in first["data"]] == ["t4", "t3"]
    assert (first["object"], first["has_more"], first["first_id"], first["last_id"]) == ("list", True, "t4", "t3")
    seen = [thread["id"] for thread in first["data"]]
    after = first["next"]
    while after:
        page = await get(http, "/v1/threads", user="ann", limit=2, after=after)
        seen += [thread["id"] for thread in page["data"]]
        after = page["next"]
        assert page["has_more"] == bool(after)
    assert seen == ["t4", "t3", "t2", "t1", "t0"]
    assert first["data"][0] == {
        "id": "t4",
        "object": "thread",
        "thread_id": "t4",
        "title": "Title 4",
        "status": "completed",
        "team": "assistant",
        "created_at": 1767225840,
        "updated_at": 1767225840,
        "message_count": 3,
    }


async def test_nobodys_threads(http: httpx.AsyncClient, stored: FakeEngine) -> None:
    page = await get(http, "/v1/threads")
    assert page == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
        "next": None,
    }


async def test_one_thread(http: httpx.AsyncClient, stored: FakeEngine) -> None:
    thread = await get(http, "/v1/threads/his%2Fown", user="bob")
    assert (thread["id"], thread["status"], thread["meta"]) == ("his/own", "completed", {"color": "blue"})
    assert {"error_message", "input_request", "team_result", "tasks", "run_id"} <= set(thread)


async def test_messages(http: httpx.AsyncClient, stored: FakeEngine) -> None:
    page = await get(http, "/v1/threads/t1/messages", user="ann", limit=2)
    assert [message["seq"] for message in page["data"]] == [1, 2]
    assert (page["has_more"], page["next"]) == (True, 2)
    message = page["data"][0]
    assert (message["object"], message["id"], message["content"]) == ("thread.message", "m1", "message 1")
    assert message["message"]["type"] == "TextMessage"
    rest = await get(http, "/v1/threads/t1/messages", user="ann", after=page["next"], limit=100)
    assert [message["seq"] for message in rest["data"]] == [3]
    assert (rest["has_more"], rest["next"]) == (False, None)
    assert [m["seq"] for m in (await get(http, "/v1/threads/his/own/messages", user="bob"))["data"]] == [1, 2, 3]


async def test_delete(http: httpx.AsyncClient, stored: FakeEngine) -> None:
    response = await http.delete("/v1/threads/t1", params={"user": "ann"})
    assert response.json() == {"id": "t1", "object": "thread.deleted", "deleted": True}
    assert (await http.delete("/v1/threads/t1", params={"user": "ann"})).status_code == 404


@pytest.mark.parametrize("user", ["bob", "anonymous", None])
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/threads/t1"), ("GET", "/v1/threads/t1/messages"), ("DELETE", "/v1/threads/t1")],
)
async def test_the_threads_of_others_do_not_exist(
    http: httpx.AsyncClient, stored: FakeEngine, method: str, path: str, user: str | None
) -> None:
    response = await http.request(method, path, params={"user": user} if user else None)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"
    assert ("ann", "t1") in stored.threads


async def test_a_thread_at_work_is_not_deleted(
    http: httpx.AsyncClient, stored: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(*_: Any) -> None:
        raise ThreadBusy("a run is live on thread 't1'")

    monkeypatch.setattr(stored, "delete_thread", busy)
    response = await http.delete("/v1/threads/t1", params={"user": "ann"})
    assert response.status_code == 409
    assert response.json()["error"]["code"] == "thread_busy"


@pytest.mark.parametrize(
    ("path", "param", "text"),
    [
        ("/v1/threads?limit=0", "limit", "at least 1"),
        ("/v1/threads?limit=101", "limit", "at most 100"),
        ("/v1/threads?limit=many", "limit", "integer"),
        ("/v1/threads?user=", "user", "1 to 255"),
        ("/v1/threads?user=a%00b", "user", "printable"),
        (f"/v1/threads?user={'u' * 256}", "user", "255"),
        ("/v1/threads/t1/messages?after=-1", "after", "at least 0"),
        ("/v1/threads/t1/messages?limit=1000", "limit", "at most 100"),
    ],
)
async def test_bad_queries_are_named(http: httpx.AsyncClient, path: str, param: str, text: str) -> None:
    response = await http.get(path)
    assert response.status_code == 400
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert text in error["message"]
