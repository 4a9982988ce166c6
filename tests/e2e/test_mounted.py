"""The application below a path of another one, with a real server and OpenAI's client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient

from drsai_backend import DrSai
from drsai_backend.datamodel import Thread
from tests.support.listening import listening_socket
from tests.support.threads import settings

CHAT: dict[str, Any] = {"model": "writers", "messages": [{"role": "user", "content": "Write about rain."}]}


@asynccontextmanager
async def serving(app: FastAPI, **options: Any) -> AsyncGenerator[str]:
    """A real server, which runs the application's lifespan; its address."""
    listening = listening_socket()
    server = uvicorn.Server(uvicorn.Config(app, ws="none", log_config=None, access_log=False, **options))
    task = asyncio.create_task(server.serve([listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@pytest.mark.parametrize("path", ["/ai", "/a b/čaj"])
async def test_mounted_with_the_lifespan_of_the_outer_application(database_url: str, path: str):
    drsai = DrSai(database_url=database_url, settings=settings())
    outer = FastAPI(lifespan=drsai.lifespan)
    outer.mount(path, drsai.app())
    async with (
        serving(outer) as server,
        httpx.AsyncClient(base_url=server, timeout=60) as http,
        openai.AsyncOpenAI(api_key="unused", base_url=f"{server}{path}/v1", max_retries=0) as client,
    ):
        answer = await client.chat.completions.create(**CHAT)
        assert answer.choices[0].message.content
        async for chunk in await client.chat.completions.create(**CHAT, stream=True):
            assert chunk.id
        assert (await http.get(f"{path}/readyz")).json() == {"status": "ready", "model": "offline demo model"}

        accepted = await http.post(f"{path}/v1/chat/completions", json={**CHAT, "background": True, "user": "ada"})
        assert accepted.status_code == 202
        run = await http.get(accepted.headers["location"])
        assert run.json()["id"] == accepted.json()["id"]

        threads = await http.get(f"{path}/v1/threads", params={"limit": 1})
        assert threads.json()["has_more"]
        rest = await http.get(f"{path}/v1/threads", params={"after": threads.json()["next"]})
        assert len(rest.json()["data"]) == 1

        document = (await http.get(f"{path}/openapi.json")).json()
        assert document["servers"] == [{"url": path}]
        assert "/v1/chat/completions" in document["paths"]
        missing = await http.get(f"{path}/v1/nothing")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")


async def test_location_behind_a_proxy_that_takes_the_path_away(database_url: str):
    drsai = DrSai(database_url=database_url, settings=settings())
    async with serving(drsai.app(), root_path="/ai") as server, httpx.AsyncClient(base_url=server, timeout=60) as http:
        accepted = await http.post("/v1/chat/completions", json={**CHAT, "background": True})
        assert accepted.headers["location"] == f"/ai/v1/runs/{accepted.json()['id']}"


async def test_mounted_without_a_lifespan_is_refused(database_url: str):
    drsai = DrSai(database_url=database_url, settings=settings())
    outer = FastAPI()
    outer.mount("/ai", drsai.app())
    async with serving(outer) as server, httpx.AsyncClient(base_url=f"{server}/ai", timeout=60) as http:
        assert (await http.get("/healthz")).status_code == 200
        refused = [await http.get(path) for path in ("/readyz", "/v1/models", "/v1/threads", "/v1/runs/x")]
        refused += [await http.post("/v1/chat/completions", json=CHAT | {"stream": stream}) for stream in (True, False)]
        for answer in refused:
            assert answer.status_code == 503
            error = answer.json()["error"]
            assert error["code"] == "not_opened"
            assert "FastAPI(lifespan=drsai.lifespan)" in error["message"]
            assert answer.headers["x-request-id"]
    assert await drsai.db.get(Thread) == []
    await drsai.close()


def test_a_second_lifespan_says_why_not(database_url: str):
    app = DrSai(database_url=database_url, settings=settings()).app()
    with TestClient(app) as client:
        assert client.get("/readyz").status_code == 200
    with pytest.raises(Exception, match="make a new one to open it again"), TestClient(app):
        pytest.fail("it was opened")
