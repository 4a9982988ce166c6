"""Metrics of real servers: several processes at one address, one of which is killed, and a port of their own."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from tests.cli.serving import TEAMS
from tests.features.metrics.scraped import Scraped
from tests.support.commands import Command, Commands
from tests.support.model_server import ModelServer, Reply

pytestmark = pytest.mark.slow
Start = Callable[..., Command]


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(lambda _: Reply("one two three", prompt_tokens=100, completion_tokens=10)) as server:
        yield server


@pytest.fixture
def start(commands: Commands, tmp_path: Path, database_url: str, model: ModelServer) -> Start:
    def started(*options: str, **env: str) -> Command:
        (tmp_path / "mine.py").write_text(TEAMS)
        environment = {"OPENAI_BASE_URL": model.base_url, "DRSAI_DATABASE_URL": database_url, **env}
        return commands.start("serve", "mine.py", "--port", "0", *options, cwd=tmp_path, env=environment)

    return started


def of(server: Command) -> set[int]:
    """The processes that serve."""
    return {each.pid for each in psutil.Process(server.pid).children()}


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def scrape(url: str) -> Scraped:
    """Each asks by a connection of its own, which any of the processes takes."""
    told = httpx.get(url, timeout=20)
    assert told.status_code == 200, told.text
    return Scraped(told.text)


def chat(url: str, _: int = 0) -> int:
    body = {"model": "parrot", "messages": [{"role": "user", "content": "Hello."}]}
    return httpx.post(f"{url}/chat/completions", json=body, timeout=20).status_code


def test_a_server_counts_without_being_asked_to(start: Start, model: ModelServer) -> None:
    server = start()
    url = server.base_url()
    assert [chat(url) for _ in range(3)] == [200] * 3
    found = scrape(url.replace("/v1", "/metrics"))
    assert found.of("drsai_requests_total", route="/v1/chat/completions", status="2xx") == 3
    assert found.of("drsai_runs_ended_total", team="parrot", status="completed") == 3
    assert found.of("drsai_runs", team="parrot", status="completed") == 3
    assert found.of("drsai_model_calls_total") == len(model.requests) == 3
    assert found.of("drsai_tokens_total", type="prompt") == 300


def test_no_counter_goes_back_whoever_answers_and_dies(start: Start, model: ModelServer) -> None:
    server = start("--workers", "2")
    url = server.base_url()
    until(lambda: len(of(server)) == 2 == server.stderr.count("is ready"))
    metrics = url.replace("/v1", "/metrics")
    before: dict[object, float] = {}

    def looked() -> Scraped:
        found = scrape(metrics)
        now = dict(found.counters())
        assert {key: (now.get(key), value) for key, value in before.items() if now.get(key, -1.0) < value} == {}
        before.update(now)
        return found

    with ThreadPoolExecutor(4) as clients:
        for _ in range(5):
            assert set(clients.map(lambda _: chat(url), range(8))) == {200}
            looked()
    for _ in range(10):
        found = looked()
        assert found.of("drsai_requests_total", route="/v1/chat/completions", status="2xx") == 40
        assert found.of("drsai_runs_ended_total", status="completed") == 40
        assert found.of("drsai_model_calls_total") == len(model.requests) == 40
    until(lambda: looked().of("drsai_runs", status="completed") == 40)  # One look at the database holds for seconds.
    killed = of(server).pop()
    psutil.Process(killed).kill()
    until(lambda: killed not in of(server) and len(of(server)) == 2)
    until(lambda: server.stderr.count("is ready") == 3)
    for _ in range(10):
        # What it had counted is what it was.
        assert looked().of("drsai_runs_ended_total", status="completed") == 40
    until(lambda: looked().of("drsai_runs", status="completed") == 40)
    assert {chat(url) for _ in range(8)} == {200}
    assert looked().of("drsai_requests_total", route="/v1/chat/completions", status="2xx") == 48


def test_a_run_that_outlives_its_process_is_a_recovery(start: Start, model: ModelServer) -> None:
    model.script(None, lambda _: Reply("one two three four five six", chunk_delay=0.2))
    server = start("--workers", "2")
    url = server.base_url()
    until(lambda: len(of(server)) == 2 == server.stderr.count("is ready"))
    body = {"model": "pair", "background": True, "messages": [{"role": "user", "content": "Hello."}]}
    run_id = httpx.post(f"{url}/chat/completions", json=body).json()["id"]
    until(lambda: bool(model.requests))
    for pid in of(server):
        psutil.Process(pid).kill()
    until(lambda: server.stderr.count("is ready") == 4, 60)
    until(lambda: httpx.get(f"{url}/runs/{run_id}").json().get("status") == "completed", 60)
    found = scrape(url.replace("/v1", "/metrics"))
    assert found.of("drsai_recoveries_total", team="pair") == 1
    assert found.by("drsai_runs_ended_total", "status") == {"completed": 1}
    assert found.of("drsai_turns_total", team="pair") == 2
    assert found.of("drsai_requests_total", route="/v1/chat/completions", method="POST") == 1


def test_all_processes_answer_at_the_port_of_metrics(start: Start, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
    server = start("--workers", "2", DRSAI_METRICS_PORT=port, DRSAI_AUTH="required")
    url = server.base_url()
    until(lambda: len(of(server)) == 2 == server.stderr.count("is ready"))
    assert httpx.get(url.replace("/v1", "/metrics")).status_code == 401
    for _ in range(2):
        assert chat(url) == 401
    metrics = f"http://127.0.0.1:{port}/metrics"

    def refused() -> float:
        return scrape(metrics).of("drsai_requests_total", route="/v1/chat/completions", status="4xx")

    until(lambda: refused() == 2)  # It is counted after it was answered.
    for _ in range(5):
        assert refused() == 2
    killed = of(server).pop()
    psutil.Process(killed).kill()
    until(lambda: server.stderr.count("is ready") == 3)
    assert refused() == 2
    # Another server does not take it in silence.
    other = start("--workers", "2", DRSAI_METRICS_PORT=port)
    assert other.wait() == 1
    assert "DRSAI_METRICS_PORT" in other.stderr
    assert other.stderr.count("\n") == 1
    server.kill(signal.SIGTERM)
    assert server.wait() == 0


def test_a_worker_has_a_port(commands: Commands, tmp_path: Path, database_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
    environment = {"DRSAI_DATABASE_URL": database_url, "DRSAI_METRICS_PORT": port}
    worker = commands.start("worker", cwd=tmp_path, env=environment)
    until(lambda: "Ctrl-C stops" in worker.stdout)
    assert scrape(f"http://127.0.0.1:{port}/metrics").of("drsai_workers") == 1


@pytest.mark.parametrize(
    ("setting", "value"),
    [("DRSAI_METRICS_PORT", "99999"), ("DRSAI_METRICS_HOST", "no such host"), ("DRSAI_METRICS_FOLDER", "/no/such")],
)
def test_a_bad_setting_is_said_in_a_line(commands: Commands, tmp_path: Path, setting: str, value: str) -> None:
    environment = {"DRSAI_METRICS_PORT": "9", setting: value} if setting.endswith("HOST") else {setting: value}
    served = commands.run("serve", "--port", "0", cwd=tmp_path, env=environment)
    assert served.wait() == 1
    assert setting in served.stderr
    assert served.stderr.count("\n") <= 2
