"""A run whose process was killed stays of the trace that it began in."""

from __future__ import annotations

import json
import signal

import pytest

from tests.crash.conftest import Serving
from tests.crash.test_sigkill import numbered
from tests.features.traces.collector import Collector
from tests.support.model_server import ModelServer, Reply

TRACE, CLIENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_the_second_process_names_the_first_ones_trace(serving: Serving, model: ModelServer) -> None:
    with Collector() as collector:
        serving.environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "20"}
        serving.restart()
        numbered(model, "ann", "bob")
        model.script("You are bob.", lambda _: Reply(content="bob was " + "cut off " * 300, chunk_delay=0.15))
        body = {
            "model": "pair",
            "thread_id": "t",
            "stream": True,
            "messages": [{"role": "user", "content": "Hello."}],
        }
        headers = {"traceparent": f"00-{TRACE}-{CLIENT}-01"}
        with serving.http() as http, http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as told:
            for line in told.iter_lines():
                if line.startswith("data: {") and "was" in json.loads(line[6:])["choices"][0]["delta"].get(
                    "content", ""
                ):
                    break
            else:
                pytest.fail("the answer came to an end")
            collector.until(lambda: collector.named("turn") != [])
            serving.process.die()
        [first] = collector.named("turn")
        assert first.trace == TRACE
        assert [each.parent for each in collector.named("chat gpt-4o-mini")] == [first.id]
        assert collector.named("invoke_agent pair") == [], "it was not over"

        model.script("You are bob.", lambda _: "bob goes on")
        serving.start()
        assert serving.settled("t")["status"] == "completed"
        serving.process.kill(signal.SIGTERM)
        serving.process.wait()
    again = collector.one("invoke_agent pair")
    assert (again.trace, again.attributes["drsai.run.attempt"]) == (TRACE, 2)
    assert again.attributes["drsai.run.status"] == "completed"
    [turn] = [each for each in collector.named("turn") if each.id != first.id]
    assert (turn.trace, turn.parent) == (TRACE, again.id)
    calls = {each.id: each.parent for each in collector.named("chat gpt-4o-mini")}
    assert list(calls.values()) == [first.id, turn.id]
    handed = model.requests[-1].headers["traceparent"]
    assert handed.split("-")[1:3] == [TRACE, list(calls)[-1]]
