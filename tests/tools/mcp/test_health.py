"""Servers are asked whether they answer: anew, in their time, and once for all who ask."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from drsai_backend import DrSai
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.errors import TooManyRequests
from drsai_backend.tools.mcp import McpHttp, McpStdio
from drsai_backend.tools.mcp import connection as connections
from drsai_backend.tools.mcp import health as healths
from drsai_backend.tools.mcp.health import Health
from drsai_backend.tools.mcp.host import pool
from drsai_backend.tools.mcp.pool import Pool
from tests.support.peer import Answer, Peer
from tests.support.threads import settings
from tests.tools.mcp.conftest import SERVER, processes, serving, stdio


@pytest.fixture
async def health() -> AsyncGenerator[Health]:
    made = Health()
    yield made
    await made.close()


def web(url: str, **more: Any) -> McpHttp:
    return McpHttp(**{"name": "web", "url": url, **more})


async def test_what_is_told_of_a_server_that_answers(health: Health, http: McpHttp) -> None:
    for server, tools in ((stdio(), 13), (http, 13), (http.model_copy(update={"include": ("double", "norm")}), 2)):
        found = await health.of(server)
        assert (found.up, found.error, found.tools) == (True, None, tools), found
        assert found.version == "7.1"
        assert 0 < found.latency_ms < 15_000
    assert pool().count == 0, "connections of runs are left alone"
    await health.close()
    assert processes() == []


async def test_what_is_told_of_one_that_does_not(health: Health, unused_port: int) -> None:
    backup = web(f"http://127.0.0.1:{unused_port}/mcp", backup=stdio())
    for server, said in (
        (backup, "web cannot be reached"),
        (McpStdio(name="n", command="no-such-program"), "there is no program"),
        (stdio(args=("-c", "raise SystemExit(3)")), "n cannot be reached"),
        (stdio(arguments={"gone": {"a": 1}}), "it has no such tool"),
        (web("http://127.0.0.1:9/mcp", allowed_addresses=()), "must not reach"),
    ):
        found = await health.of(server)
        assert (found.up, found.tools, found.version) == (False, None, None)
        assert said in str(found.error), found


@pytest.mark.parametrize("drip", [False, True])
async def test_one_that_hangs_is_down_in_its_time_and_asked_once_for_all(
    health: Health, monkeypatch: pytest.MonkeyPatch, drip: bool
) -> None:
    monkeypatch.setattr(healths, "SHARED_SECONDS", 0.8)
    with Peer(lambda _: Answer(drip=True) if drip else Answer(hold=threading.Event())) as peer:
        server, began = web(peer.url("/mcp")), time.monotonic()
        asking = [asyncio.create_task(health.of(server, 0.5)) for _ in range(20)]
        await asyncio.sleep(0.1)
        asking.pop().cancel()
        answers = await asyncio.gather(*asking)
        assert time.monotonic() - began < 3
        assert len({each.asked_at for each in answers}) == 1
        assert "did not answer within 0.5 s" in str(answers[0].error)
        assert not answers[0].up
        assert await health.of(server, 0.5) == answers[0], "for others who ask soon"
        asked = len(peer.told)
        assert asked == 1
        await asyncio.sleep(0.8)
        assert (await health.of(server, 0.5)).asked_at > answers[0].asked_at
        assert len(peer.told) == 2


async def test_few_are_asked_at_once_of_each_tenant(health: Health) -> None:
    with Peer(lambda _: Answer(hold=threading.Event())) as peer:
        acme = [web(peer.url(f"/{n}"), tenant="acme") for n in range(5)]
        asking = [asyncio.create_task(health.of(each, 0.5)) for each in acme[:4]]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            await health.of(acme[4])
        assert not (await health.of(web(peer.url("/4"), tenant="other"), 0.1)).up
        await asyncio.gather(*asking)
        assert not (await health.of(acme[4], 0.1)).up, "once the others are answered"


class Session(BaseHTTPRequestHandler):
    """A server of the releases that have sessions. It never says that one is over."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        info = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
        told = {"result": info} if asked["method"] == "initialize" else {"error": {"code": -32601, "message": "No."}}
        body = json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), **told}).encode() if "id" in asked else b""
        self.send_response(200 if body else 202)
        for name, value in {"mcp-session-id": "s", "content-type": "application/json"}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    def do_DELETE(self) -> None:
        server: Any = self.server
        server.ending += 1
        server.most = max(server.most, server.ending)
        server.told.set()
        server.hold.wait(server.seconds)
        server.ending -= 1

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
async def hanging(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Any]:
    """A server that hangs at the end of a session."""
    monkeypatch.setattr(connections, "_CLOSE_SECONDS", 0.3)
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Session)
    server.told, server.hold = threading.Event(), threading.Event()
    server.ending = server.most = 0
    server.seconds = None
    server.url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.hold.set()
    await asyncio.to_thread(server.shutdown)
    server.server_close()


async def test_a_server_that_hangs_at_the_end_does_not_hold_up(hanging: Any) -> None:
    own = Pool()
    async with own.connection(web(hanging.url)) as connection:
        assert connection.version == "1"
    async with asyncio.timeout(10):
        await own.close()
    assert hanging.told.is_set()


async def test_few_hang_at_the_end_at_once(health: Health, hanging: Any) -> None:
    hanging.seconds = 0.3  # As long as it is waited for: what has been given up is not counted.
    for n in range(12):
        await health.of(web(f"{hanging.url}?{n}"))
    await health.close()
    assert 1 < hanging.most <= 6


# --- over HTTP --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def stop(unused_port: int) -> AsyncGenerator[Callable[[], None]]:
    """Ends the server that listens at the port."""
    server = await serving(unused_port)

    def end() -> None:
        server.kill()
        server.wait()

    yield end
    end()


async def test_who_may_ask_which(
    database_url: str, tmp_path: Path, unused_port: int, stop: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "servers.json"
    program = {"command": sys.executable, "args": [str(SERVER)]}
    broken = {"gone": {"command": "/opt/inner/gone"}, "bare": {**program, "env": {"A": "${INNER_TOKEN}"}}}
    file.write_text(json.dumps({"numbers": program, "off": {**program, "enabled": False}, **broken}))
    values: dict[str, Any] = {"mcp_servers": str(file), "allowed_addresses": ["127.0.0.0/8"]}
    who = {
        name: Principal(name, tenant, scopes=frozenset({*scopes}))
        for name, tenant, scopes in (
            ("ann", "acme", (Scope.TOOLS_REGISTER, Scope.AGENTS_READ)),
            ("eve", "other", (Scope.TOOLS_REGISTER, Scope.AGENTS_READ)),
            ("bob", "acme", (Scope.AGENTS_READ, Scope.CHAT)),
        )
    }
    async with DrSai({}, database_url, settings=settings(**values)) as drsai:
        app = drsai.app(lambda request: who[request.headers["x-who"]], is_open=True)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:

            async def ask(name: str, method: str, path: str, **more: Any) -> httpx.Response:
                return await http.request(method, f"/v1{path}", headers={"x-who": name}, timeout=60, **more)

            async def check(path: str, name: str = "ann") -> dict[str, Any]:
                return (await ask(name, "POST", f"/mcp/servers/{path}")).raise_for_status().json()

            config = {"url": f"http://127.0.0.1:{unused_port}/mcp", "include": ["double"]}
            for name in ("far", "numbers"):
                made = await ask("ann", "POST", "/tools", json={"name": name, "type": "mcp", "config": config})
                assert made.status_code == 201, made.text
            endpoint = {"description": "Asks.", "endpoint": {"url": "https://tool.invalid/"}}
            await ask("ann", "POST", "/tools", json={"name": "plain", "config": endpoint})
            listed = [
                [(each["id"], each["owner"]) for each in (await ask(name, "GET", "/mcp/servers")).json()["data"]]
                for name in ("ann", "eve", "bob")
            ]
            of_all = [(name, "operator") for name in ("numbers", *broken)]
            own = [*of_all, ("far", "tenant"), ("numbers", "tenant")]
            assert listed == [own, of_all, own]
            page = (await ask("ann", "GET", "/mcp/servers?limit=1")).json()
            assert [each["id"] for each in page["data"]] == ["numbers", *broken, "far"]
            rest = (await ask("ann", "GET", f"/mcp/servers?limit=2&after={page['next']}")).json()
            assert ([each["id"] for each in rest["data"]], rest["has_more"]) == (["numbers"], False)

            told = await check("numbers/check")
            assert (told["owner"], told["up"], told["tools"]) == ("tenant", True, 1), told
            assert (await check("numbers/check?owner=operator"))["tools"] == 13
            assert (await check("numbers/check", "eve"))["owner"] == "operator"
            for name, path in (
                ("eve", "far/check"),
                ("eve", "numbers/check?owner=tenant"),
                ("ann", "far/check?owner=operator"),
                ("ann", "plain/check"),
                ("ann", "off/check"),
                ("ann", "none/check"),
            ):
                assert (await ask(name, "POST", f"/mcp/servers/{path}")).status_code == 404, path
            assert (await ask("bob", "POST", "/mcp/servers/far/check")).status_code == 403
            stop()
            told = await check("far/check")
            assert (told["up"], told["tools"], told["version"]) == (False, None, None), told
            assert "the MCP server far cannot be reached" in told["error"]
            assert abs(told["asked_at"] - time.time()) < 20
            for name, inner in (("gone", "/opt/inner/gone"), ("bare", "INNER_TOKEN")):
                for _ in range(2):  # Others who ask soon are told the same.
                    told = await check(f"{name}/check")
                    said = f"the MCP server {name} does not answer as it should; the log of this server says why"
                    assert (told["up"], told["error"]) == (False, said)
                assert inner in caplog.text
    assert processes() == []
