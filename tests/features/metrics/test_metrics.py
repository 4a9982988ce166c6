"""What `/metrics` tells is what has happened, and how things stand in the database; and who may ask for it."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from drsai_backend import AssistantAgent, DrSai, RoundRobinGroupChat, RunContext
from drsai_backend.access.principal import OF_THE_SERVER, ROLES, Principal, Scope
from drsai_backend.api.engine.tasks import STATES
from drsai_backend.config import Settings
from drsai_backend.database.hooks import CallsOf, MadeCall
from drsai_backend.datamodel import Run, RunStatus, WebhookDelivery, WorkJob, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError, DatabaseUnavailable
from drsai_backend.features.extensions import serving
from drsai_backend.features.metrics.base import FAMILIES, MOST
from drsai_backend.features.metrics.counts import TASK_STATES, Counts
from drsai_backend.features.metrics.extension import Metrics
from drsai_backend.features.metrics.numbers import Numbers
from tests.examples.processes import ROOT
from tests.features.metrics.scraped import Scraped
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import settings

Http = httpx.AsyncClient


def answer(request: ModelRequest) -> Reply | Failure:
    if "fail" in request.last:
        return Failure(500)
    if request.tools and request.messages[-1]["role"] == "user":
        return Reply("", tool_calls=[ToolCall(request.tools[0], {"place": "here"})])
    return Reply("one two three", prompt_tokens=100, completion_tokens=10)


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(answer, strict=False) as server:
        yield server


def plain(context: RunContext) -> AssistantAgent:
    return AssistantAgent("ann", context.model_client(), model_client_stream=True)


def pair(context: RunContext) -> RoundRobinGroupChat:
    members: list[Any] = [AssistantAgent(name, context.model_client()) for name in ("ann", "bob")]
    return RoundRobinGroupChat(members, max_turns=2)


async def look(place: str) -> str:
    """Look somewhere."""
    if place == "nowhere":
        raise ValueError("there is nothing")
    return f"What is {place}."


def looking(context: RunContext) -> AssistantAgent:
    return AssistantAgent("ann", context.model_client(), tools=[look], reflect_on_tool_use=True)


TEAMS = {"plain": plain, "pair": pair, "looking": looking}
Make = Callable[..., DrSai]


@pytest.fixture
def make(database_url: str, model: ModelServer) -> Make:
    def made(**values: Any) -> DrSai:
        endpoint = {"openai_base_url": model.base_url, "openai_api_key": SecretStr("k"), "model": "gpt-4o-mini"}
        given = {**endpoint, "model_max_retries": 0, "metrics": True, **values}
        return DrSai(TEAMS, database_url, settings=settings(**given))

    return made


@asynccontextmanager
async def asking(drsai: DrSai, who: Principal | None = None) -> AsyncIterator[Http]:
    app = drsai.app(is_open=True) if who is None else drsai.app(lambda _: who, is_open=True)
    async with Http(transport=httpx.ASGITransport(app=app), base_url="http://test") as http:
        yield http


async def scrape(http: Http, **headers: str) -> Scraped:
    told = await http.get("/metrics", headers=headers)
    assert told.status_code == 200, told.text
    return Scraped(told.text)


async def chat(http: Http, team: str, text: str = "Hello.", **more: Any) -> int:
    body = {"model": team, "messages": [{"role": "user", "content": text}], **more}
    return (await http.post("/v1/chat/completions", json=body)).status_code


# --- what has happened -----------------------------------------------------------------------------------------------


async def test_the_counters_are_what_clients_and_the_endpoint_saw(make: Make, model: ModelServer) -> None:
    async with make() as drsai, asking(drsai) as http:
        assert [await chat(http, "plain", stream=True) for _ in range(3)] == [200] * 3
        assert [await chat(http, "pair") for _ in range(2)] == [200] * 2
        assert await chat(http, "looking") == 200
        assert await chat(http, "plain", "fail") == 424
        assert (await http.get("/v1/threads")).status_code == 200
        assert (await http.get("/v1/threads/none")).status_code == 404
        assert (await http.get("/nowhere/at/all")).status_code == 404
        found = await scrape(http)
        runs = await drsai.db.get(Run)
    # Requests, by their routes.
    chats = {"route": "/v1/chat/completions", "method": "POST"}
    assert found.of("drsai_requests_total", **chats, status="2xx") == 6
    assert found.of("drsai_requests_total", **chats, status="4xx") == 1
    assert found.of("drsai_request_seconds_count", **chats) == 7
    assert found.of("drsai_requests_total", route="/v1/threads/{thread_id}", status="4xx") == 1
    assert found.of("drsai_requests_total", route="other", status="4xx") == 1
    # Runs and turns.
    assert found.by("drsai_runs_ended_total", "status") == {"completed": 6, "error": 1}
    assert found.by("drsai_runs_ended_total", "team") == {"plain": 4, "pair": 2, "looking": 1}
    assert found.by("drsai_turns_total", "team") == {
        team: sum(run.turns for run in runs if run.team == team) for team in ("plain", "pair", "looking")
    }
    assert found.of("drsai_turns_total", team="pair") == 4
    assert found.of("drsai_turn_seconds_count", team="pair") == 4
    assert found.of("drsai_run_seconds_count") == 7
    assert found.of("drsai_first_token_seconds_count") == 6
    # Model calls, as the endpoint has answered them.
    answered = [each for each in model.requests if "fail" not in each.last]
    assert found.of("drsai_model_calls_total", model="gpt-4o-mini", kind="run") == len(answered)
    assert found.of("drsai_model_call_seconds_count") == len(answered)
    used = {name: sum((run.usage or {}).get(f"{name}_tokens", 0) for run in runs) for name in ("prompt", "completion")}
    assert {name: found.of("drsai_tokens_total", type=name) for name in used} == used
    assert used["prompt"] > 0
    assert found.by("drsai_model_errors_total", "error") == {"model_error": 1}
    price = (used["prompt"] * 0.15 + used["completion"] * 0.60) / 1_000_000
    assert found.of("drsai_cost_total", currency="USD") == pytest.approx(price)
    assert found.of("drsai_unpriced_calls_total") == 0
    # Tools.
    assert found.of("drsai_tool_calls_total", tool="look", outcome="success") == 1
    assert found.of("drsai_tool_call_seconds_count", tool="look") == 1
    assert found.of("agent_tool_calls_total") == found.of("agent_tasks_total") == 0
    # The database, read when somebody asks.
    assert found.by("drsai_runs", "status") == {"completed": 6, "error": 1}
    assert found.of("drsai_runs", team="pair", status="completed") == 2
    assert (found.of("drsai_database_up"), found.of("drsai_workers"), found.of("drsai_leases")) == (1, 1, 0)


async def test_a_failed_call_of_a_profile_is_one_of_the_model_that_was_asked(make: Make) -> None:
    refusing = {"provider": "default", "retries": 0, "breaker": {"failures": 1, "seconds": 600}}
    profiles = {
        "first": {**refusing, "model": "gpt-4o-mini", "fallback": ["second"]},
        "second": {**refusing, "model": "gpt-4.1-nano"},
    }
    async with make(profile_overrides={"profiles": profiles, "default": "first"}) as drsai, asking(drsai) as http:
        assert [await chat(http, "plain", "fail") for _ in range(2)] != [200] * 2
        found = await scrape(http)
    # The first run has asked both, and the second neither, as their endpoint had failed.
    assert found.by("drsai_model_errors_total", "model") == {"gpt-4.1-nano": 1, "gpt-4o-mini": 1}


async def test_tasks_have_the_names_of_agent_engines(make: Make, model: ModelServer) -> None:
    calls = iter([Reply("", tool_calls=[ToolCall("calculator", {"expression": "1 + 1"})])])
    model.script(None, lambda request: next(calls, Reply("It is 2.")))
    async with make(engine_modes=["tools", "simple"]) as drsai, asking(drsai) as http:
        for body in ({"mode": "tools", "tools": ["calculator"]}, {"mode": "simple"}):
            told = await http.post("/api/v1/agent/execute", json={"task": "What is 1 + 1?", **body})
            assert told.json()["status"] == "success", told.text
        model.script(None, lambda _: Failure(500))
        body = {"task": "What is 1 + 1?", "mode": "simple"}
        assert (await http.post("/api/v1/agent/execute", json=body)).json()["status"] == "failed"
        found = await scrape(http)
        told = await http.get("/api/v1/agent/stats")
    assert found.of("agent_tasks_total", mode="tools", status="success", tenant_id="default") == 1
    assert found.of("agent_tasks_total", mode="simple", status="failed") == 1
    assert found.of("agent_tasks_total") == found.of("agent_task_duration_seconds_count") == 3
    assert found.of("agent_tool_calls_total", tool_name="calculator", status="success") == 1
    assert {status: STATES[status] for status in TASK_STATES} == TASK_STATES
    # The same of the database, for who has asked.
    stats = told.json()
    assert (stats["total"], stats["by_status"]["success"], stats["by_status"]["failed"]) == (3, 2, 1)
    assert stats["success_rate"] == pytest.approx(2 / 3)
    assert stats["mean_time"] > 0
    assert {mode: each["total"] for mode, each in stats["by_mode"].items()} == {"tools": 1, "simple": 2}
    assert stats["by_mode"]["tools"]["success_rate"] == 1


async def test_statistics_of_nothing_and_of_others(make: Make) -> None:
    async with make() as drsai:
        await drsai.user("ann").run("plain", "This is no task.")
        async with asking(drsai, Principal("ann")) as http:
            told = (await http.get("/api/v1/agent/stats")).json()
            assert (told["total"], told["success_rate"], told["mean_time"], told["by_mode"]) == (0, None, None, {})
            refused = await http.get("/api/v1/agent/stats?tenant_id=acme")
            assert refused.status_code == 403
            assert (await http.get("/api/v1/agent/stats?since=yesterday")).status_code == 400


def test_a_model_call_that_is_given_again_counts_once() -> None:
    numbers = Numbers()

    class _Host:
        prices: Any = type("Prices", (), {"currency": "USD", "cost_of": lambda *_: None})()

    counts = Counts(numbers, _Host())  # type: ignore[arg-type]
    calls = [MadeCall(number, utcnow(), {"model": "m", "attempts": 3}) for number in (1, 2, 3)]
    of = CallsOf(Owner("default", "ann"), run_id="run_a", epoch=1)
    for given in (calls[:2], calls[:2], calls, calls[2:]):
        counts.calls_made(of, given)
    counts.calls_made(CallsOf(Owner("default", "ann"), run_id="run_a", epoch=2), calls[:1])
    counts.calls_made(CallsOf(Owner("default", "ann"), "title"), [calls[0]._replace(number=0)])
    counts.calls_made(CallsOf(Owner("default", "ann"), "title"), [calls[0]._replace(number=0)])
    sums = numbers.sums()
    assert sums["drsai_model_calls_total", "m", "run"] == 4
    assert sums["drsai_model_calls_total", "m", "title"] == 2
    assert sums["drsai_model_retries_total", "m"] == 12
    assert sums["drsai_unpriced_calls_total", "m"] == 6


async def test_what_fails_in_an_extension_holds_up_no_run(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(Counts, "run_told", broken)
    monkeypatch.setattr(Counts, "calls_made", broken)
    async with make() as drsai:
        assert (await drsai.run("plain", "Hello.")).text == "one two three"


async def test_off_nothing_is_asked(make: Make) -> None:
    async with make(metrics=None) as drsai, asking(drsai) as http:
        assert await chat(http, "plain") == 200
        told = await http.get("/metrics")
        assert (told.status_code, "DRSAI_METRICS" in told.text) == (404, True)
        assert not drsai.engine._services.watchers
        assert "metrics" not in drsai.engine.hooks.calls_made
        metrics = drsai.extension(Metrics)
        assert "_numbers" not in vars(metrics)
        assert metrics._measuring is None


async def test_the_loop_and_the_database_are_timed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drsai_backend.features.metrics.extension._PULSE", 0.01)
    async with make() as drsai:
        metrics = drsai.extension(Metrics)
        found = Scraped("")
        while not found.of("drsai_database_seconds_count"):
            found = Scraped((await metrics.text())[0].decode())
        assert found.of("drsai_loop_lag_seconds_count") >= 10


# --- how things stand ------------------------------------------------------------------------------------------------


async def rows_of(drsai: DrSai, kind: Any, *rows: dict[str, Any]) -> None:
    await drsai.database.write(lambda session: session.execute(sa.insert(table_of(kind)), rows))


async def test_what_waits_is_counted(make: Make) -> None:
    async with make() as drsai:
        await drsai.run("plain", "Hello.", thread_id="t")
        await drsai._extensions._host.work.stop()
        await drsai.engine._sender.stop()
        [run] = await drsai.db.get(Run)
        now = utcnow()
        job = {"tenant": "default", "user_id": "ann", "kind": "reading", "payload": {}, "version": 1}
        before, after = now - timedelta(minutes=10), now + timedelta(minutes=10)
        taken = {"claim": "w", "next_at": after}
        for key, more in {
            "a": {"next_at": before},
            "b": {"next_at": after},
            "c": taken,
            "d": {"next_at": None},
        }.items():
            await rows_of(drsai, WorkJob, {**job, "key": key, "created_at": now, **more})
        hook = {"thread_key": run.thread_key, "run_id": run.run_id, "url": "https://x/", "endpoint": "https://x:443"}
        whose = {"tenant": "default", "user_id": "ann", "subscriber": "ann", "kind": "run", "type": "run.completed"}
        for number, more in enumerate(({"next_at": now}, {"next_at": None})):
            row = {"event_id": f"evt_{number}", "created_at": now - timedelta(hours=1), **hook, **whose, **more}
            await rows_of(drsai, WebhookDelivery, row)
        found = Scraped((await drsai.extension(Metrics).text())[0].decode())
        assert found.by("drsai_jobs", "state") == {"due": 1, "later": 1, "taken": 1, "failed": 1}
        assert 600 <= found.of("drsai_jobs_oldest_seconds") < 1_000
        assert found.of("drsai_webhooks_waiting") == 1
        assert 3_600 <= found.of("drsai_webhooks_oldest_seconds") < 4_000
        assert found.of("drsai_queued_inputs") == found.of("drsai_queued_oldest_seconds") == 0


async def test_live_runs_have_leases_and_messages_wait_behind_them(make: Make, model: ModelServer) -> None:
    model.script(None, lambda _: Reply("x", hang=True))
    async with make() as drsai, asking(drsai) as http:
        body = {"model": "plain", "thread_id": "t", "messages": [{"role": "user", "content": "Hello."}]}
        for _ in range(3):
            assert (await http.post("/v1/chat/completions", json={**body, "background": True})).status_code == 202
        metrics = drsai.extension(Metrics)
        found = await scrape(http)
        while not found.of("drsai_leases", state="held"):
            metrics._looked = float("-inf")
            found = await scrape(http)
        assert (found.of("drsai_runs", status="running"), found.of("drsai_runs", status="created")) == (1, 2)
        assert (found.of("drsai_queued_inputs"), found.of("drsai_leases", state="expired")) == (2, 0)
        model.script(None, lambda _: Reply("ok"))
        await drsai.engine.cancel(Principal(), "t")


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """The statements of all databases, from then on."""
    noted: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        noted.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    yield noted
    sa.event.remove(sa.Engine, "before_cursor_execute", note)


async def test_a_scrape_takes_as_many_statements_however_much_is_there(
    make: Make, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drsai_backend.features.metrics.extension._PULSE", 3600)
    async with make(sweep_seconds=3600, heartbeat_seconds=60, lease_seconds=120) as drsai:
        await drsai.run("plain", "Hello.", thread_id="t0")
        await drsai._extensions._host.work.stop()
        metrics = drsai.extension(Metrics)

        async def taken() -> int:
            statements.clear()
            metrics._looked = float("-inf")
            await metrics.text()
            return sum("count(" in each for each in statements)

        await taken()
        few = await taken()
        [run] = await drsai.db.get(Run)
        names = [each.name for each in table_of(Run).c if each.name not in ("id", "run_id")]
        columns = {name: getattr(run, name) for name in names}
        many = [{**columns, "run_id": f"run_{number}", "status": RunStatus.COMPLETED} for number in range(1_000)]
        await rows_of(drsai, Run, *many)
        assert await taken() == few == 6
        statements.clear()
        found = Scraped((await metrics.text())[0].decode())
        assert statements == [], "what was read is told for some seconds"
        assert found.of("drsai_runs", team="plain", status="completed") == 1_001


async def test_without_the_database_processes_tell_what_they_count(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async with make() as drsai, asking(drsai) as http:
        # An open server asks now and then whether there are keys by now: here, with each request.
        drsai.keys.stale_seconds = 0
        assert await chat(http, "plain") == 200

        async def away(*_: object, **__: object) -> None:
            raise DatabaseUnavailable("it is away")

        monkeypatch.setattr(drsai.database, "read", away)
        found = await scrape(http)
        assert (await http.get("/v1/models")).status_code == 503, "it lets nobody else in while it cannot know"
        monkeypatch.undo()
        assert found.of("drsai_database_up") == 0
        assert found.of("drsai_runs_ended_total") == 1
        assert "drsai_runs" in found.families
        await drsai.keys.create(Owner("default", "ann"), ["user"])
        assert (await http.get("/v1/models")).status_code == 401
        monkeypatch.setattr(drsai.database, "read", away)
        assert (await http.get("/metrics")).status_code == 401, "it is open no more"
        monkeypatch.undo()


# --- who may ask, and how --------------------------------------------------------------------------------------------


async def test_both_formats_have_all_families(make: Make) -> None:
    async with make() as drsai, asking(drsai) as http:
        assert await chat(http, "plain") == 200
        plain_text = await http.get("/metrics")
        assert plain_text.headers["content-type"].startswith("text/plain; version=0.0.4")
        other = await http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
        assert other.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        for each in (Scraped(plain_text.text), Scraped(other.text)):
            assert each.families.keys() == {family.name.removesuffix("_total") for family in FAMILIES}
            assert each.of("drsai_runs_ended_total", status="completed") == 1
        assert {each.type for each in Scraped(other.text).families.values()} == {"counter", "gauge", "histogram"}


async def test_only_who_has_the_scope_may_ask(make: Make) -> None:
    assert not any(OF_THE_SERVER & scopes for scopes in ROLES.values())
    async with make() as drsai, asking(drsai) as http:
        assert (await http.get("/metrics")).status_code == 200, "nobody needs a key yet"
        keys = {
            name: (await drsai.keys.create(Owner("default", "ann"), [name])).key.get_secret_value()
            for name in ("metrics:read", "user", "operator", "admin", "usage:read")
        }

        async def status(key: str | None, method: str = "get", path: str = "/metrics", **more: Any) -> int:
            headers = {} if key is None else {"authorization": f"Bearer {key}"}
            return (await http.request(method, path, headers=headers, **more)).status_code

        assert await status(None) == 401
        assert {name: await status(key) for name, key in keys.items()} == {
            **dict.fromkeys(keys, 403),
            "metrics:read": 200,
        }
        # An admin of a tenant gives nobody what tells of all tenants.
        body = {"user": "bob", "scopes": ["metrics:read"]}
        assert await status(keys["admin"], "post", "/v1/keys", json=body) == 403
        assert await status(keys["metrics:read"], path="/v1/threads") == 403


def test_the_page_has_all_metrics_as_they_are() -> None:
    text = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \| (.*) \|$", text, re.MULTILINE)
    assert rows == [
        (each.name, each.kind, ", ".join(f"`{label}`" for label in each.labels), each.text) for each in FAMILIES
    ]
    bounds = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|$", text, re.MULTILINE))
    assert bounds == {name: str(most) for name, most in MOST.items()}


# --- settings, and a port of its own ---------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.mark.parametrize("port", ["0", "65536", "http", "-1"])
def test_a_port_that_cannot_be_is_named(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRSAI_METRICS_PORT", port)
    with pytest.raises(ConfigurationError, match="DRSAI_METRICS_PORT"):
        settings()


def test_the_port_is_not_that_of_the_server() -> None:
    with pytest.raises(ConfigurationError, match="DRSAI_METRICS_PORT must be another one than DRSAI_PORT"):
        settings(port=9100, metrics_port=9100)


async def test_what_cannot_be_had_is_named(make: Make, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"DRSAI_METRICS_PORT: 127.0.0.1, port {port}, cannot be had"):
            async with make(metrics_port=port):
                pass
        with pytest.raises(ConfigurationError, match="DRSAI_METRICS_PORT"), serving(settings(metrics_port=port)):
            pass
    with pytest.raises(ConfigurationError, match="DRSAI_METRICS_HOST"):
        async with make(metrics_port=free_port(), metrics_host="no such host"):
            pass
    with (
        pytest.raises(ConfigurationError, match="DRSAI_METRICS_FOLDER"),
        serving(settings(metrics_folder=tmp_path / "none")),
    ):
        pass


def test_a_server_counts_in_a_folder_that_goes_with_it(tmp_path: Path) -> None:
    with serving(settings()) as served:
        assert served.metrics is True
        assert served.metrics_folder is not None
        assert served.metrics_folder.is_dir()
    assert not served.metrics_folder.exists()
    with serving(settings(metrics=False)) as served:
        assert (served.metrics, served.metrics_folder) == (False, None)
    with serving(settings(metrics_folder=tmp_path)) as served:
        assert served.metrics_folder == tmp_path
    assert tmp_path.is_dir()


async def asked(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await reader.read()
    except ConnectionError:  # Not all of the request was read.
        return b""
    finally:
        writer.close()


async def test_the_port_answers_without_a_key_and_nothing_else(make: Make) -> None:
    port = free_port()
    async with make(metrics_port=port, metrics=None, auth="required") as drsai, asking(drsai) as http:
        assert (await http.get("/metrics")).status_code == 401
        async with Http() as other:
            told = await other.get(f"http://127.0.0.1:{port}/metrics")
            assert Scraped(told.text).of("drsai_database_up") == 1
            assert (await other.get(f"http://127.0.0.1:{port}/v1/threads")).status_code == 404
            assert (await other.post(f"http://127.0.0.1:{port}/metrics")).status_code == 404
            # A page whose name was made to point here.
            strange = await other.get(f"http://127.0.0.1:{port}/metrics", headers={"host": "evil.example"})
            assert strange.status_code == 403
        assert await asked(port, b"x" * 20_000) == b""
        # A peer that says nothing holds up nobody.
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        assert (await asked(port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        silent.close()
        with suppress(OSError):
            await silent.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_silent_peer_is_left(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drsai_backend.features.metrics.port._SECONDS", 0.05)
    port = free_port()
    async with make(metrics_port=port):
        assert await asked(port, b"GET /metrics") == b""


def test_settings_say_what_is_counted() -> None:
    for given, is_on in (
        ({}, False),
        ({"metrics": True}, True),
        ({"metrics_port": 9100}, True),
        ({"metrics_port": 9100, "metrics": False}, False),
    ):
        host: Any = type("Host", (), {"settings": settings(**given)})()
        assert Metrics(host).is_on is is_on, given
    assert Settings.model_fields["metrics_host"].default == "127.0.0.1"
    assert Scope.METRICS_READ in OF_THE_SERVER
