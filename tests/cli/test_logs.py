"""The lines that a real server writes: one for each thing that happens to a run, with the ids of where it belongs."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.commands import Commands
from tests.support.model_server import ModelServer, Reply, ToolCall

TEAMS = """
from drsai_backend import AssistantAgent

def parrot(context):
    async def fail(text: str) -> str:
        "Fail."
        raise LookupError("the tool's reason")
    return AssistantAgent("parrot", context.model_client(), tools=[fail])

def broken(context):
    raise ZeroDivisionError("the factory's reason")

teams = {"parrot": parrot, "broken": broken}
"""
CONSOLE = re.compile(r"(\w+)=('[^']*'|\S+)")


def read_lines(text: str, form: str) -> Iterator[dict[str, Any]]:
    """The lines of a log, as dicts with `event`, and `traceback`: the rest of a console's line."""
    if form == "json":
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                yield json.loads(line)
        return
    found: dict[str, Any] | None = None
    for line in text.splitlines():
        head = re.match(r"\d{4}-\S+ \[(\w+)\s*\] (.*?)\s+\[([\w.]+)\](.*)", line)
        if head is None:
            if found is not None:
                found["exception"] = found.get("exception", "") + line + "\n"
            continue
        if found is not None:
            yield found
        fields = {name: value.strip("'") for name, value in CONSOLE.findall(head.group(4))}
        found = {"level": head.group(1), "event": head.group(2), "logger": head.group(3), **fields}
    if found is not None:
        yield found


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_line_for_everything_that_happens_to_a_run(commands: Commands, tmp_path: Path, form: str) -> None:
    (tmp_path / "teams.py").write_text(TEAMS)
    with ModelServer([Reply(tool_calls=[ToolCall("fail", {"text": "x"})]), "Said."]) as model:
        environment = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "k", "DRSAI_LOG_FORMAT": form}
        server = commands.start("serve", "teams.py", "--port", "0", cwd=tmp_path, env=environment)
        with httpx.Client(base_url=server.base_url(), timeout=20) as client:

            def ask(team: str, number: int, **more: Any) -> httpx.Response:
                body = {"model": team, "messages": [{"role": "user", "content": "Hello."}], "thread_id": f"t{number}"}
                return client.post("/chat/completions", json=body | more, headers={"X-Request-Id": f"req-{number}"})

            run_id = ask("parrot", 1).json()["drsai"]["run_id"]
            assert ask("broken", 2).status_code == 500
            assert ask("nobody", 3).status_code == 404
            assert ask("parrot", 4, max_turns=10_000).status_code == 400
        server.kill()
        server.wait()
        lines = list(read_lines(server.stderr, form))
    mine = [line for line in lines if line.get("request_id") == "req-1" and not line["event"].startswith("model ")]
    assert [line["event"] for line in mine] == ["run started", "tool failed", "run ended"]
    assert {(line["thread_id"], line["run_id"]) for line in mine} == {("t1", run_id)}
    started, failed, ended = mine
    assert (started["team"], str(started["attempt"])) == ("parrot", "1")
    assert (failed["tool"], failed["agent"]) == ("fail", "parrot")
    assert "LookupError: the tool's reason" in failed["exception"]
    assert "Traceback" in failed["exception"]
    assert (ended["status"], str(ended["turns"]), str(ended["tokens"])) == ("completed", "1", "15")
    assert float(ended["duration"]) >= 0
    factory, refused = (line for line in lines if line.get("request_id") == "req-2")
    assert (factory["event"], factory["team"]) == ("team factory failed", "broken")
    assert "ZeroDivisionError: the factory's reason" in factory["exception"]
    assert (refused["event"], refused["code"]) == ("request refused", "team_build_failed")
    for number, code, status in (("3", "model_not_found", "404"), ("4", "invalid_request", "400")):
        [line] = [line for line in lines if line.get("request_id") == f"req-{number}"]
        assert (line["event"], line["code"], str(line["status"])) == ("request refused", code, status)
