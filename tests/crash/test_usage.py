"""A server is killed at random moments of its runs: what is counted of model calls is what the endpoint has counted.

Each answer has a number of tokens that no other one has, and each process a key of its own, so both sides say which
call is whose.
"""

from __future__ import annotations

import gzip
import itertools
import json
import random
import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from drsai_backend.database.engine import parse_url
from tests.crash.conftest import Serving
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall

KILLS = 6
"""Per database."""
AT_ONCE = 3
"""Threads with a run each."""


class Endpoint:
    """Answers with tokens by which each answer is known, and notes whose key asked for it."""

    def __init__(self, model: ModelServer) -> None:
        self._numbers = itertools.count(1_000)
        self.answered: dict[int, str] = {}
        model.script("You are worker.", self._work)
        model.script("You are bob.", lambda request: self._reply(request, "That is all."))

    def _work(self, request: ModelRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return self._reply(request, "I have looked.")
        look = ToolCall("look", {"token": "x", "before": 0, "after": 0})
        return self._reply(request, "", look)

    def _reply(self, request: ModelRequest, text: str, *calls: ToolCall) -> Reply:
        number = next(self._numbers)
        self.answered[number] = request.api_key
        return Reply(text, tool_calls=calls, prompt_tokens=number, completion_tokens=7, delay=0.01, chunk_delay=0.005)


def query(database_url: str, statement: str) -> Sequence[sa.Row[Any]]:
    engine = sa.create_engine(parse_url(database_url), poolclass=sa.NullPool)
    with engine.connect() as connection:
        found = connection.execute(sa.text(statement)).all()
    engine.dispose()
    return found


def begin(serving: Serving, thread: int) -> None:
    with serving.client() as client:
        client.chat.completions.create(
            model="tools",
            messages=[{"role": "user", "content": "Look."}],
            extra_body={"thread_id": f"t{thread}", "background": True, "on_busy": "enqueue"},
        )


def test_no_answered_call_counts_twice_and_none_that_was_stored_is_lost(serving: Serving, model: ModelServer) -> None:
    """Of a process that was not killed every answer is counted. Of one that was, those may be missing that it had not
    stored yet, the newest of each run: they are asked for again."""
    endpoint, moments = Endpoint(model), random.Random(37)
    serving.environment["DRSAI_CALLS_KEEP"] = "true"
    killed: set[str] = set()
    for kill in range(KILLS):
        key = f"key-{kill}"
        serving.process.die()
        serving.environment["OPENAI_API_KEY"] = key
        serving.start()
        before = len(model.requests)
        for thread in range(AT_ONCE):
            begin(serving, thread)
        wanted, end = before + moments.randrange(1, 3 * AT_ONCE), time.monotonic() + 60
        while len(model.requests) < wanted:
            assert time.monotonic() < end, "nothing is asked"
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.05))
        killed.add(key)
    serving.process.die()
    serving.environment["OPENAI_API_KEY"] = "key-last"
    serving.start()
    end = time.monotonic() + 120
    while query(serving.database_url, "SELECT run_id FROM run WHERE finished_at IS NULL"):
        assert time.monotonic() < end, "the runs do not come to an end"
        time.sleep(0.05)
    found = query(serving.database_url, "SELECT prompt_tokens, completion_tokens, calls FROM usageentry")
    assert {(row.completion_tokens, row.calls) for row in found} == {(7, 1)}
    stored = [row.prompt_tokens for row in found]
    assert len({*stored}) == len(stored)
    assert {*stored} <= endpoint.answered.keys()
    missing = endpoint.answered.keys() - {*stored}
    assert {endpoint.answered[number] for number in missing} <= killed
    # One call of each run was under way, or answered and not stored yet.
    assert len(missing) <= KILLS * AT_ONCE
    # What was sent is kept of just the calls that are counted, whole, and was sent.
    calls = query(serving.database_url, "SELECT run, epoch, number FROM usageentry")
    kept = query(serving.database_url, "SELECT run_id, epoch, number, data FROM keptcall")
    assert {tuple(row[:3]) for row in kept} == {tuple(row) for row in calls}
    exchanges = [json.loads(gzip.decompress(row.data)) for row in kept]
    assert {each["answer"]["usage"]["prompt_tokens"] for each in exchanges} == {*stored}
    sent = [request.body for request in model.requests]
    assert all(each["request"] in sent for each in exchanges)
    report = serving.get("/usage?group_by=kind")["data"]
    assert [(each["calls"], each["prompt_tokens"]) for each in report] == [(len(stored), sum(stored))]
