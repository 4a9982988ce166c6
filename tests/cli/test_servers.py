"""`drsai serve --workers`: several servers on one socket, what becomes of them, and of their runs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest

from drsai_backend.cli import servers
from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError
from tests.cli.serving import TEAMS, ask
from tests.support.commands import Command, Commands
from tests.support.model_server import ModelServer, Reply

pytestmark = pytest.mark.slow


def of(server: Command) -> set[int]:
    """The processes that serve."""
    return {each.pid for each in psutil.Process(server.pid).children()}


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alone(server: Command, count: int) -> set[int]:
    """The servers, when they are so many, and ready."""
    until(lambda: len(of(server)) == count == server.stderr.count("is ready"))
    return of(server)


def test_a_server_that_is_killed_is_replaced_and_its_run_resumed(
    commands: Commands, tmp_path: Path, database_url: str
) -> None:
    (tmp_path / "mine.py").write_text(TEAMS)
    with ModelServer(lambda _: Reply("one two three four five six", chunk_delay=0.2)) as model:
        environment = {"OPENAI_BASE_URL": model.base_url, "DRSAI_DATABASE_URL": database_url}
        options = ("--port", "0", "--workers", "3")
        server = commands.start("serve", "mine.py", *options, cwd=tmp_path, env=environment)
        url, before = server.base_url(), alone(server, 3)
        body = {"model": "pair", "background": True, "messages": [{"role": "user", "content": "Hello."}]}
        run_id = httpx.post(f"{url}/chat/completions", json=body).json()["id"]
        until(lambda: bool(model.requests))
        for pid in before:
            psutil.Process(pid).kill()
        until(lambda: len(of(server) - before) == 3)
        until(lambda: httpx.get(f"{url}/runs/{run_id}").json().get("status") == "completed", 60)
        assert server.stderr.count("another one begins in") == 3
        now = of(server)
        server.kill(signal.SIGTERM)
        assert server.wait() == 0
        assert not any(psutil.pid_exists(pid) for pid in now)


def test_sighup_replaces_all_while_requests_are_answered(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TEAMS)
    server = commands.start("serve", "mine.py", "--port", "0", "--workers", "2", cwd=tmp_path)
    url, before = server.base_url(), alone(server, 2)
    (tmp_path / "mine.py").write_text(TEAMS.replace('"only"', '"other"').replace('"parrot": parrot', '"new": parrot'))
    server.kill(signal.SIGHUP)
    while of(server) & before:
        assert httpx.get(f"{url}/models").status_code == 200
    assert len(of(server)) == 2
    assert ask(url, "new")
    server.kill(signal.SIGTERM)
    assert server.wait() == 0


def test_sighup_while_those_of_before_still_answer(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TEAMS)
    with ModelServer(lambda _: Reply("word " * 40, chunk_delay=0.2)) as model:
        environment = {"OPENAI_BASE_URL": model.base_url}
        options = ("--port", "0", "--workers", "2")
        server = commands.start("serve", "mine.py", *options, cwd=tmp_path, env=environment)
        url, before = server.base_url(), alone(server, 2)
        body = {"model": "pair", "stream": True, "messages": [{"role": "user", "content": "Hello."}]}
        with httpx.stream("POST", f"{url}/chat/completions", json=body, timeout=60) as stream:
            pieces = stream.iter_bytes()
            next(pieces)
            server.kill(signal.SIGHUP)
            until(lambda: server.stderr.count("is ready") == 4 and len(of(server)) == 3)
            between = of(server)
            assert len(between & before) == 1, "one still answers"
            server.kill(signal.SIGHUP)
            until(lambda: server.stderr.count("is ready") == 6)
        until(lambda: not of(server) & between)
        time.sleep(1)
        assert len(of(server)) == 2
        assert server.stderr.count("is ready") == 6
        server.kill(signal.SIGTERM)
        assert server.wait() == 0


def test_those_that_are_to_be_replaced_die_before(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TEAMS)
    server = commands.start("serve", "mine.py", "--port", "0", "--workers", "2", cwd=tmp_path)
    url, before = server.base_url(), alone(server, 2)
    (tmp_path / "mine.py").write_text(f"import time\ntime.sleep(1.5)\n{TEAMS}")
    server.kill(signal.SIGHUP)
    until(lambda: len(of(server)) == 3)
    for pid in before:
        psutil.Process(pid).kill()
    until(lambda: server.stderr.count("is ready") == 4)
    assert len(of(server) - before) == 2
    assert ask(url, "parrot")


def test_a_replacement_that_cannot_begin_leaves_the_others(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TEAMS)
    server = commands.start("serve", "mine.py", "--port", "0", "--workers", "2", cwd=tmp_path)
    url, before = server.base_url(), alone(server, 2)
    (tmp_path / "mine.py").write_text("nothing = ")
    server.kill(signal.SIGHUP)
    until(lambda: "the others stay" in server.stderr)
    assert of(server) == before
    assert ask(url, "parrot")


def test_nobody_is_left_when_the_watching_process_is_killed(commands: Commands, tmp_path: Path) -> None:
    server = commands.start("serve", "--port", "0", "--workers", "2", cwd=tmp_path)
    url, those = server.base_url(), alone(server, 2)
    server.die()
    until(lambda: not any(psutil.pid_exists(pid) for pid in those))
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/models")


def test_what_is_wrong_is_said_once(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("nothing = ")
    command = commands.run("serve", "mine.py", "--port", "0", "--workers", "3", cwd=tmp_path)
    assert command.wait() == 1
    assert "SyntaxError" in command.stderr
    assert command.stderr.count("\n") == 1
    again = commands.run("serve", "--reload", "--workers", "2", cwd=tmp_path)
    assert (again.wait(), "--workers" in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("url", "workers", "cores", "count"),
    [
        ("sqlite:///a.db", None, 8, 1),
        ("sqlite:///a.db", 3, 1, 3),
        ("postgresql://host/a", None, 8, 4),
        ("postgresql://host/a", None, 2, 2),
        ("postgresql://host/a", 6, 2, 6),
    ],
)
def test_how_many(monkeypatch: pytest.MonkeyPatch, url: str, workers: int | None, cores: int, count: int) -> None:
    monkeypatch.setattr(servers, "_cores", lambda: cores)
    assert servers.count_of(Settings(database_url=url, workers=workers)) == count


def test_a_database_in_memory_is_of_one_process() -> None:
    with pytest.raises(ConfigurationError, match="in memory"):
        servers.count_of(Settings(database_url="sqlite://", workers=2))
