"""Many runs are ended at once over HTTP, those of another process too, and the server is killed while it does it: asked
once more, it ends the rest, and each has ended once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa

from drsai_backend.database.engine import parse_url
from tests.crash.conftest import TEAMS, Serving
from tests.support.commands import Commands
from tests.support.model_server import ModelServer, Reply
from tests.support.peer import Peer

RUNS = 40
SETTINGS = {
    "DRSAI_ALLOWED_ADDRESSES": "127.0.0.1",
    "DRSAI_SWEEP_SECONDS": "0.2",
    "DRSAI_HEARTBEAT_SECONDS": "0.3",
    "DRSAI_LEASE_SECONDS": "1",
    "DRSAI_SECRET_KEY": "test",
    "DRSAI_JOB_CONCURRENCY": "20",
}


def query(database_url: str, statement: str) -> Sequence[sa.Row[Any]]:
    engine = sa.create_engine(parse_url(database_url), poolclass=sa.NullPool)
    with engine.connect() as connection:
        found = connection.execute(sa.text(statement)).all()
    engine.dispose()
    return found


def until(database_url: str, statement: str, count: int, seconds: float = 60) -> None:
    """Wait until a query has so many rows."""
    end = time.monotonic() + seconds
    while len(query(database_url, statement)) < count:
        assert time.monotonic() < end, statement
        time.sleep(0.01)


STOPPED = "SELECT run_id FROM run WHERE status = 'stopped'"
REQUESTED = "SELECT subject FROM auditentry WHERE action = 'run.cancel_requested'"


def begin(http: httpx.Client, number: int, url: str) -> None:
    message = {"role": "user", "content": "Work."}
    body = {"model": "solo", "messages": [message], "background": True, "webhook_url": url, "user": f"u{number % 5}"}
    http.post("/v1/chat/completions", json={**body, "thread_id": f"t{number}"}).raise_for_status()


def test_killed_while_many_are_ended(serving: Serving, model: ModelServer) -> None:
    model.script("You are sam.", lambda _: Reply("Done.", delay=600))
    serving.environment |= SETTINGS
    serving.restart()
    with Peer() as peer:
        with serving.http() as http:
            for number in range(5):
                http.post("/v1/webhooks/secret", params={"user": f"u{number}"}, json={}).raise_for_status()
            for number in range(RUNS):
                begin(http, number, peer.url())
        until(serving.database_url, "SELECT run_id FROM run WHERE status = 'running'", RUNS // 2)

        def cancel() -> None:
            with serving.http() as http, suppress(httpx.HTTPError):
                http.post("/v1/admin/runs/cancel", json={"limit": 1_000}, timeout=60)

        asking = threading.Thread(target=cancel)
        asking.start()
        until(serving.database_url, REQUESTED, 3)
        serving.restart()
        asking.join()
        assert len(query(serving.database_url, STOPPED)) < RUNS, "it was killed in the middle"
        with serving.http() as http:
            done = http.post("/v1/admin/runs/cancel", json={"limit": 1_000}, timeout=120).raise_for_status().json()
            assert done["found"] <= RUNS
            until(serving.database_url, STOPPED, RUNS)
            again = http.post("/v1/admin/runs/cancel", json={}).raise_for_status().json()
        assert (again["found"], again["data"]) == (0, [])
        requested = Counter(row.subject for row in query(serving.database_url, REQUESTED))
        assert len(requested) == RUNS, "who did it is known of each"
        assert max(requested.values()) <= 2, "once more of those that were cut off"
        events = query(serving.database_url, "SELECT run_id, type FROM webhookdelivery")
        assert Counter(row.run_id for row in events) == dict.fromkeys(requested, 1), "each has ended once"
        assert {row.type for row in events} == {"run.stopped"}


def test_runs_of_another_process_are_ended(
    serving: Serving, model: ModelServer, commands: Commands, tmp_path: Path
) -> None:
    model.script("You are sam.", lambda _: Reply("Done.", delay=600))
    serving.environment |= SETTINGS
    serving.restart()
    with Peer() as peer, serving.http() as http:
        for number in range(5):
            http.post("/v1/webhooks/secret", params={"user": f"u{number}"}, json={}).raise_for_status()
        for number in range(8):
            begin(http, number, peer.url())
        until(serving.database_url, "SELECT run_id FROM run WHERE status = 'running'", 8)
        environment = {"OPENAI_BASE_URL": model.base_url, "DRSAI_DATABASE_URL": serving.database_url, **SETTINGS}
        environment |= {"CHAOS_TOOLS": str(serving.effects), "DRSAI_MODELS": serving.environment["DRSAI_MODELS"]}
        other = commands.start("serve", str(TEAMS), "--port", "0", cwd=tmp_path, env=environment)
        done = httpx.post(f"{other.base_url()}/admin/runs/cancel", json={}, timeout=60).raise_for_status().json()
        assert done["found"] == len(done["data"]) == 8
        assert {each["outcome"] for each in done["data"]} <= {"done", "asked"}
        until(serving.database_url, STOPPED, 8)
        other.die()
