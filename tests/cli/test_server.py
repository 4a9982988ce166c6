"""`drsai serve` under clients that mean it no good: real sockets, a real process, a real limit of files."""

from __future__ import annotations

import contextlib
import gc
import inspect
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock
from urllib.parse import urlsplit

import h11
import httpx
import psutil
import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from drsai_backend.cli.server import Connections, Server
from drsai_backend.config import Settings
from tests.support.commands import Command, Commands
from tests.support.model_server import ModelServer, Reply

CHAT = "/v1/chat/completions"


@contextlib.contextmanager
def serving(commands: Commands, folder: Path, files: tuple[int, int] | None = None, **env: str) -> Iterator[Command]:
    server = commands.start("serve", "--port", "0", cwd=folder, env=env, files=files)
    server.base_url()
    yield server
    server.die()


def connect(server: Command) -> socket.socket:
    url = urlsplit(server.base_url())
    return socket.create_connection((url.hostname, url.port), timeout=20)


def healthy(server: Command) -> bool:
    return httpx.get(server.base_url().removesuffix("/v1") + "/healthz", timeout=20).json()["status"] == "ok"


def read(client: socket.socket) -> tuple[int, Any]:
    """Status and JSON of an answer after which the server closes; 0 and nothing where it only closes."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    return (int(head.split()[1]), json.loads(body)) if data else (0, None)


def head(path: str, *more: str, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@pytest.mark.parametrize(("grown", "connections", "collects"), [(50, 0, 0), (75, 0, 1), (100, 100, 0), (140, 100, 1)])
def test_what_runs_under_way_have_is_not_taken_for_garbage(grown: int, connections: int, collects: int) -> None:
    bounds = Connections(Settings(_env_file=None))
    server = Server(uvicorn.Config("none"), bounds, drain=AsyncMock())
    server._usual_size = psutil.Process().memory_info().rss - (grown << 20)
    bounds.connections = {object() for _ in range(connections)}  # type: ignore[misc]
    full: list[int] = []
    watch = lambda phase, info: full.append(info["generation"]) if phase == "start" else None  # noqa: E731
    gc.callbacks.append(watch)
    try:
        server._collect_if_grown()
    finally:
        gc.callbacks.remove(watch)
    assert full.count(2) == collects


def test_idle_connections_do_not_shut_others_out(commands: Commands, tmp_path: Path) -> None:
    """More than there are files for; the limit is raised to the hard one, and the rest is kept for the server."""
    with serving(commands, tmp_path, files=(64, 160)) as server, contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(connect(server))
        assert healthy(server)
        assert "120 connections at most: this process may open 160 files" in server.stderr
        with httpx.Client(base_url=server.base_url(), timeout=20) as client:
            hello = {"model": "assistant", "messages": [{"role": "user", "content": "Hello."}]}
            assert client.post("/chat/completions", json=hello).status_code == 200
        assert server.stderr.count("\n") < 10


def _limit(server: Command, left: int) -> int:
    """A limit of files that leaves it so many, once the connections of its clients are closed. A limit is of numbers,
    and some below the largest are free."""
    process = psutil.Process(server.pid)
    while any(each.raddr for each in process.net_connections("tcp")):
        time.sleep(0.05)
    used = {int(each.name) for each in Path(f"/proc/{server.pid}/fd").iterdir()}
    return [number for number in range(160) if number not in used][left - 1] + 1


@pytest.mark.parametrize("left", [1, 5])
def test_files_that_run_out_are_logged_once(commands: Commands, tmp_path: Path, left: int) -> None:
    """Something else than connections has taken them. With one left, a client is the only one, and is still served."""
    import resource

    with serving(commands, tmp_path, files=(64, 160)) as server, contextlib.ExitStack() as stack:
        # What it reads the database with opens its files when it is needed: all of it, where many ask at once.
        with httpx.Client(base_url=server.base_url(), timeout=20) as client, ThreadPoolExecutor(16) as asking:
            assert {each.status_code for each in asking.map(client.get, ["/threads"] * 256)} == {200}
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (_limit(server, left), 160))
        for _ in range(8 * left):
            stack.enter_context(connect(server))
        deadline = time.monotonic() + 20
        while "no connection" not in server.stderr and time.monotonic() < deadline:
            time.sleep(0.05)
        assert healthy(server)
        assert server.stderr.count("no connection can be taken: Too many open files") == 1
        assert server.stderr.count("\n") < 10


def test_where_all_connections_are_busy_another_is_told(commands: Commands, tmp_path: Path) -> None:
    with ModelServer(lambda _: Reply("never ends", hang=True)) as model:
        env = {"OPENAI_BASE_URL": model.base_url, "DRSAI_MAX_CONNECTIONS": "2", "DRSAI_SHUTDOWN_GRACE_SECONDS": "0"}
        with serving(commands, tmp_path, **env) as server, contextlib.ExitStack() as stack:
            body = json.dumps({"model": "assistant", "messages": [{"role": "user", "content": "x"}], "stream": True})
            for _ in range(2):
                busy = stack.enter_context(connect(server))
                busy.sendall(head(CHAT, f"Content-Length: {len(body)}") + body.encode())
                assert b"200 OK" in busy.recv(15)
            status, answer = read(stack.enter_context(connect(server)))
            assert (status, answer["error"]["code"]) == (503, "too_many_connections")


def test_headers_and_bodies_have_their_time(commands: Commands, tmp_path: Path) -> None:
    with (
        serving(commands, tmp_path, DRSAI_HEADER_SECONDS="1", DRSAI_BODY_SECONDS="1") as server,
        connect(server) as silent,
        connect(server) as slow_head,
        connect(server) as slow_body,
        connect(server) as again,
    ):
        slow_head.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
        slow_body.sendall(head(CHAT, "Content-Length: 1000") + b"{")
        again.sendall(head("/healthz", method="GET"))
        assert again.recv(12) == b"HTTP/1.1 200"
        again.sendall(b"GET /he")  # a kept connection is no way around it
        assert read(silent) == (0, None)
        for client, part in ((slow_head, "headers"), (slow_body, "body")):
            status, answer = read(client)
            assert (status, answer["error"]["code"]) == (408, "request_timeout")
            assert part in answer["error"]["message"]
        assert b"408" in b"".join(iter(lambda: again.recv(65536), b""))
        assert healthy(server)


def test_a_kept_connection_is_closed_in_time(commands: Commands, tmp_path: Path) -> None:
    with serving(commands, tmp_path, DRSAI_KEEP_ALIVE_SECONDS="1") as server, connect(server) as client:
        for _ in range(2):
            client.sendall(head("/healthz", method="GET"))
            received = b""
            while not received.endswith(b"}"):
                received += client.recv(65536)
        assert client.recv(1) == b""


@pytest.mark.parametrize(
    ("path", "length"),
    [
        (CHAT, "Transfer-Encoding: chunked"),
        (CHAT, "Content-Length: 34000000000"),
        ("/nothing", "Content-Length: 34000000000"),
    ],
)
def test_a_body_that_is_refused_is_not_read_for_ever(
    commands: Commands, tmp_path: Path, path: str, length: str
) -> None:
    with serving(commands, tmp_path, DRSAI_MAX_BODY_BYTES="100000") as server, connect(server) as client:
        client.sendall(head(path, length))
        part = b" " * 65536
        piece = b"%x\r\n%b\r\n" % (len(part), part) if "chunked" in length else part
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 100_000_000:
                client.sendall(piece)
                sent += len(part)
        assert sent < 20_000_000, "what the sockets of both sides hold is in it"
        assert healthy(server)
        assert server.stderr.count("Traceback") == 0


def test_two_lengths_of_a_body_are_refused(commands: Commands, tmp_path: Path) -> None:
    with serving(commands, tmp_path) as server, connect(server) as client:
        smuggled = b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        client.sendall(head(CHAT, f"Content-Length: {len(smuggled)}", "Transfer-Encoding: chunked") + smuggled)
        status, answer = read(client)
        assert (status, answer["error"]["code"]) == (400, "invalid_request")


def test_a_foreign_host_is_not_served_on_loopback(commands: Commands, tmp_path: Path) -> None:
    """A page that rebinds its name to 127.0.0.1 asks by that name."""

    def ask(server: Command, host: str) -> int:
        return httpx.get(server.base_url() + "/models", headers={"Host": host}, timeout=20).status_code

    with serving(commands, tmp_path, DRSAI_ALLOWED_HOSTS="ai.example.org") as server:
        served = ["localhost", "127.0.0.1:8000", "[::1]:80", "127.1.2.3", "a.localhost", "AI.example.org:443"]
        assert [ask(server, host) for host in served] == [200] * len(served)
        foreign = ["evil.example", "evil.example:8000", "192.168.1.2", "localhost.evil.example", "x.ai.example.org"]
        assert [ask(server, host) for host in foreign] == [400] * len(foreign)
    with serving(commands, tmp_path) as server:
        refused = httpx.get(server.base_url().removesuffix("/v1") + "/healthz", headers={"Host": "evil.example"})
        assert refused.json()["error"]["code"] == "host_not_allowed"
        assert "DRSAI_ALLOWED_HOSTS" in refused.json()["error"]["message"]
        assert ask(server, "ai.example.org") == 400


@pytest.mark.parametrize(
    ("env", "served", "foreign"),
    [({}, ["anything.example"], []), ({"DRSAI_ALLOWED_HOSTS": "ai.example"}, ["10.1.2.3:80", "ai.example"], ["other"])],
)
def test_elsewhere_only_a_setting_restricts_hosts(
    commands: Commands, tmp_path: Path, env: dict[str, str], served: list[str], foreign: list[str]
) -> None:
    server = commands.start("serve", "--host", "0.0.0.0", "--insecure", "--port", "0", cwd=tmp_path, env=env)
    for host in served:
        assert httpx.get(server.base_url() + "/models", headers={"Host": host}).status_code == 200
    for host in foreign:
        assert httpx.get(server.base_url() + "/models", headers={"Host": host}).status_code == 400
    server.die()


def test_what_is_reached_into_of_uvicorn_and_h11() -> None:
    """`cli.server` overrides these; a release that renames one fails here, and not in an attack."""
    for name in ("startup", "shutdown", "on_tick", "capture_signals", "handle_exit"):
        assert callable(getattr(uvicorn.Server, name))
    assert list(inspect.signature(uvicorn.Server.startup).parameters) == ["self", "sockets"]
    assert list(inspect.signature(uvicorn.Server.on_tick).parameters) == ["self", "counter"]
    parameters = ["self", "config", "server_state", "app_state", "_loop"]
    assert list(inspect.signature(H11Protocol.__init__).parameters) == parameters
    for name in ("connection_made", "data_received", "on_response_complete", "pause_writing", "resume_writing"):
        assert name in vars(H11Protocol)
    for name in ("_unset_keepalive_if_required", "connection_lost"):
        assert name in vars(H11Protocol)
    source = inspect.getsource(H11Protocol)
    for name in (
        "self.conn = h11",
        "self.transport",
        "self.flow",
        "self.cycle",
        "on_response=self.on_response_complete",
    ):
        assert name in source
    assert "self.response_complete" in inspect.getsource(RequestResponseCycle.__init__)
    connection = h11.Connection(h11.SERVER)
    assert (connection.their_state, connection.our_state) == (h11.IDLE, h11.IDLE)
    connection.receive_data(b"GET / HT")
    assert connection.next_event() is h11.NEED_DATA
    assert connection.trailing_data == (b"GET / HT", False)
