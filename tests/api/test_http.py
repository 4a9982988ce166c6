"""What surrounds the endpoints: error bodies, request ids, CORS, health, models, the OpenAPI document."""

from __future__ import annotations

import asyncio
import time

import httpx
import openai
import pytest
from fastapi import FastAPI

from drsai_backend import __version__
from drsai_backend.api.http.parameters import check_query
from drsai_backend.errors import DatabaseUnavailable, InvalidRequest
from tests.api.conftest import OPEN, FakeSettings
from tests.api.fakes import FakeEngine
from tests.support.apps import create_app

CHAT = "/v1/chat/completions"
HELLO = {"model": "assistant", "messages": [{"role": "user", "content": "hello"}]}


def over(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/v1/models/nobody", 404, "model_not_found"),
        ("POST", "/v1/chat/completions/", 404, "not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("PUT", "/v1/threads", 405, "method_not_allowed"),
        ("PUT", "/v1/threads/t", 405, "method_not_allowed"),
    ],
)
async def test_every_error_has_the_four_keys(
    http: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    response = await http.request(method, path)
    assert response.status_code == status
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["code"]) == ("invalid_request_error", code)
    assert response.headers["x-request-id"].startswith("req_")
    if status == 405:
        assert response.headers["allow"]
        assert method in error["message"]


def test_a_query_takes_a_list_of_any_length_and_anything_else_once() -> None:
    """A request's head holds some ten thousand names, which are not counted once for each."""
    began = time.process_time()
    check_query({"path": "/", "query_string": b"&".join([b"a[]=1"] * 40_000)}, ["a[]"])
    assert time.process_time() - began < 4
    for query, text in ((b"a=1&b=2&a=3", "`a` is given more than once"), (b"a=1&b=2&c=3", "`c` is no query parameter")):
        with pytest.raises(InvalidRequest, match=text):
            check_query({"path": "/", "query_string": query}, ["a", "b"])


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/agents/schema", "GET"),
        ("/v1/agents/crew", "DELETE, GET, PUT"),
        ("/v1/threads/t", "DELETE, GET, PATCH"),
        ("/v1/files", "GET, POST"),
    ],
)
async def test_the_methods_of_a_path_are_its_own(http: httpx.AsyncClient, path: str, allowed: str) -> None:
    response = await http.request("TRACE", path)
    assert (response.status_code, response.headers["allow"]) == (405, allowed)


async def test_what_nobody_expected_is_a_500_without_a_word_about_it(
    http: httpx.AsyncClient, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.refusal = RuntimeError("SELECT secret FROM table")
    response = await http.post(CHAT, json=HELLO, headers={"X-Request-Id": "abc"})
    assert response.status_code == 500
    assert response.json() == {
        "error": {
            "message": "something went wrong here; the log has it under request abc",
            "type": "server_error",
            "param": None,
            "code": "internal_error",
        }
    }
    assert response.headers["x-request-id"] == "abc"
    assert response.headers["x-should-retry"] == "false"
    assert "request abc POST /v1/chat/completions failed" in caplog.text
    assert "SELECT secret" in caplog.text


@pytest.mark.parametrize("sent", ["a" * 129, "with space", 'quo"te', ""])
async def test_a_request_id_that_is_not_sane_is_replaced(http: httpx.AsyncClient, sent: str) -> None:
    response = await http.get("/healthz", headers={"X-Request-Id": sent})
    assert response.headers["x-request-id"].startswith("req_")
    assert len(response.headers.get_list("x-request-id")) == 1


async def test_cors_is_off_unless_set(http: httpx.AsyncClient) -> None:
    response = await http.get("/v1/models", headers={"Origin": "https://ui.example"})
    assert "access-control-allow-origin" not in response.headers


async def test_cors(engine: FakeEngine) -> None:
    async with over(create_app(engine, FakeSettings(cors_origins=["https://ui.example"]), OPEN)) as http:
        origin = {"Origin": "https://ui.example"}
        preflight = await http.options(
            CHAT,
            headers={
                **origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "content-type,x-thread-id",
            },
        )
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "https://ui.example"
        assert "x-thread-id" in preflight.headers["access-control-allow-headers"]
        answer = await http.post(CHAT, json=HELLO, headers=origin)
        assert answer.headers["access-control-allow-origin"] == "https://ui.example"
        assert "X-Thread-Id" in answer.headers["access-control-expose-headers"]
        foreign = await http.post(CHAT, json=HELLO, headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in foreign.headers
        engine.refusal = RuntimeError("broken")
        failed = await http.post(CHAT, json=HELLO, headers=origin)
        assert failed.status_code == 500
        assert failed.headers["access-control-allow-origin"] == "https://ui.example"


async def test_cors_allows_the_methods_of_all_routes(engine: FakeEngine) -> None:
    app = create_app(engine, FakeSettings(cors_origins=["https://ui.example"]), OPEN)
    methods = {method for route in app.routes for method in getattr(route, "methods", None) or ()}
    methods -= {"HEAD"}  # which no browser asks for first
    async with over(app) as http:
        for method in sorted(methods):
            headers = {"Origin": "https://ui.example", "Access-Control-Request-Method": method}
            preflight = await http.options("/v1/threads/t", headers=headers)
            assert preflight.status_code == 200, (method, preflight.text)


async def test_health(http: httpx.AsyncClient, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await http.get("/healthz")).json() == {"status": "ok", "version": __version__}
    answers = await asyncio.gather(*(http.get("/readyz") for _ in range(20)))
    assert {response.text for response in answers} == {'{"status":"ready"}'}
    assert (await http.get("/readyz")).status_code == 200
    assert engine.db.tried == 1, "each of them tried a write"
    engine.db.broken = DatabaseUnavailable("the database cannot be reached")
    monkeypatch.setattr("drsai_backend.api.app._FRESH", 0)
    response = await http.get("/readyz")
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "database_unavailable"
    assert (await http.get("/healthz")).status_code == 200


async def test_models(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    engine.play(name="org/team")
    models = [model async for model in client.models.list()]
    assert [model.id for model in models] == ["assistant", "writers", "org/team"]
    assert {model.created for model in models} == {1_600_000_000}
    model = await client.models.retrieve("org/team")
    assert (model.id, model.object, model.owned_by) == ("org/team", "model", "drsai")
    with pytest.raises(openai.NotFoundError) as caught:
        await client.models.retrieve("nobody")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


async def test_the_chat_endpoint_is_in_the_openapi_document(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    assert document["info"]["version"] == __version__
    assert {CHAT, "/v1/models", "/v1/threads", "/healthz"} <= set(document["paths"])
    schema = document["components"]["schemas"]["ChatBody"]
    assert schema["required"] == ["model", "messages"]
    assert schema["properties"]["stream_options"]["anyOf"][0] == {"$ref": "#/components/schemas/StreamOptions"}
    assert "StreamOptions" in document["components"]["schemas"]


async def test_a_lifespan_runs_around_the_server(engine: FakeEngine) -> None:
    from contextlib import asynccontextmanager

    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI):
        seen.append("start")
        yield
        seen.append("stop")

    app = create_app(engine, FakeSettings(), OPEN, lifespan=lifespan)
    async with app.router.lifespan_context(app):
        assert seen == ["start"]
    assert seen == ["start", "stop"]


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/v1/threads?state=running", "state"),
        ("/v1/threads?limit=1&limit=2", "limit"),
        ("/v1/threads?status=busy", "status"),
        ("/v1/runs?status=busy", "status"),
        ("/v1/runs?x", "x"),
        ("/v1/input-requests?status=running", "status"),
        ("/v1/threads/t/runs?status=", "status"),
        ("/v1/threads/t/messages?order=asc", "order"),
        ("/v1/threads/t/events?x=1", "x"),
        ("/v1/models?x=1", "x"),
        ("/healthz?x=1", "x"),
        ("/readyz?x=1", "x"),
    ],
)
async def test_query_parameters_are_checked(http: httpx.AsyncClient, path: str, param: str) -> None:
    response = await http.get(path)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    if "busy" in path:
        assert "awaiting_input" in response.json()["error"]["message"]


async def test_a_chat_request_takes_no_query(http: httpx.AsyncClient) -> None:
    body = {"model": "assistant", "messages": [{"role": "user", "content": "x"}]}
    response = await http.post("/v1/chat/completions?user=ann", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "user")
