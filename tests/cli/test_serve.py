"""`drsai serve`: its address, its teams, its database, its logs, and how it stops."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml

from tests.cli.serving import TEAMS, ask, models
from tests.support.commands import Commands, clean_environment
from tests.support.model_server import Answer, ModelServer, Raw, Reply

CONFIG = {
    "provider": "autogen_agentchat.agents.AssistantAgent",
    "component_type": "agent",
    "version": 1,
    "config": {
        "name": "helper",
        "description": "From a file.",
        "model_client": {"provider": "drsai_backend.models.DefaultModelClient", "config": {}},
        "tools": [],
        "model_context": {"provider": "autogen_core.model_context.UnboundedChatCompletionContext", "config": {}},
        "system_message": "You help.",
        "reflect_on_tool_use": False,
        "tool_call_summary_format": "{result}",
    },
}


def test_the_installed_command_serves_what_it_prints_until_sigterm(tmp_path: Path) -> None:
    """The one test of `serve` that starts it as a user does, with all its imports."""
    drsai = Path(sys.executable).parent / "drsai"
    environment = clean_environment()
    del environment["PYTHONPATH"]
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                [drsai, "serve", "--port", "0"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
            )
        )
        stack.callback(process.kill)
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        printed = "".join(lines)
        url = re.search(r"serves (http://127\.0\.0\.1:\d+/v1)\n", printed)
        assert url is not None, printed
        assert re.search(r"models +assistant +A helpful assistant", printed)
        assert re.search(r"writers +A writer and a reviewer", printed)
        assert f"sqlite:///{tmp_path / 'drsai.db'}\n" in printed
        assert "OFFLINE DEMO MODEL" in printed
        assert all(len(line) <= 81 for line in lines if str(tmp_path) not in line)

        shell = printed[printed.index("curl ") : printed.index("\n\nCtrl-C")]
        pasted = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True, env=environment)
        answer = json.loads(pasted.stdout)
        assert answer["thread_id"] == "hello-assistant"
        assert "Ada" in answer["choices"][0]["message"]["content"]
        assert "Ada" in ask(url.group(1), "assistant", "What is my name?", extra_body={"thread_id": "hello-assistant"})

        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert (tmp_path / "drsai.db").exists()
    # A clean end leaves no write-ahead log behind.
    assert not (tmp_path / "drsai.db-wal").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_addresses_than_loopback_are_refused(commands: Commands, tmp_path: Path, host: str) -> None:
    command = commands.run("serve", "--host", host, "--port", "0", cwd=tmp_path)
    assert command.wait() == 1
    assert command.stderr.startswith(f"Error: {host} is no loopback address")
    assert command.stderr.count("\n") == 1
    assert command.stdout == ""
    assert list(tmp_path.glob("*.db")) == []


def test_the_address_of_the_environment_is_refused_too(commands: Commands, tmp_path: Path) -> None:
    command = commands.run("serve", "--port", "0", cwd=tmp_path, env={"DRSAI_HOST": "0.0.0.0"})
    assert command.wait() == 1
    assert "--insecure" in command.stderr


def test_insecure_serves_all_addresses_and_names_one_that_can_be_called(commands: Commands, tmp_path: Path) -> None:
    server = commands.start("serve", "--host", "0.0.0.0", "--port", "0", "--insecure", cwd=tmp_path)
    url = server.base_url()
    assert url.startswith("http://127.0.0.1:")
    assert models(url) == ["assistant", "writers"]
    assert "INSECURE" in server.stdout
    server.kill(signal.SIGINT)
    assert server.wait() == 0


def test_localhost_is_loopback(commands: Commands, tmp_path: Path) -> None:
    server = commands.start("serve", "--host", "localhost", "--port", "0", cwd=tmp_path)
    url = server.base_url()
    assert url.startswith("http://localhost:")
    assert models(url) == ["assistant", "writers"]
    server.die()


def test_a_port_in_use(commands: Commands, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = commands.run("serve", "--port", str(port), cwd=tmp_path)
    assert command.wait() == 1
    assert command.stderr == f"Error: port {port} of 127.0.0.1 is in use; take another with --port (0: any free one)\n"


def test_teams_of_a_python_file(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TEAMS)
    server = commands.start("serve", "mine.py", "--port", "0", cwd=tmp_path)
    url = server.base_url()
    assert models(url) == ["parrot", "pair"]
    assert re.search(r"parrot +Says it again\.", server.stdout)
    assert "offline demo model" in ask(url, "parrot")
    assert "**ann**" in ask(url, "pair")
    server.die()


SLOW = """
import time

from drsai_backend.features.base import Extension

class Slow(Extension):
    name = "slow"

    def routes(self, web):
        time.sleep(2)
"""


def test_runs_are_taken_up_when_the_application_is_made(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    server = commands.start("serve", "--port", "0", cwd=tmp_path, env={"DRSAI_EXTENSIONS": "slow:Slow"})
    assert models(server.base_url()) == ["assistant", "writers"]
    server.kill(signal.SIGTERM)
    assert server.wait() == 0
    assert "stood still" not in server.stderr


def test_teams_of_a_module_and_another_attribute(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TEAMS)
    server = commands.start("serve", "mine:mine", "--port", "0", cwd=tmp_path)
    assert models(server.base_url()) == ["only"]
    server.die()


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_teams_of_component_configs(commands: Commands, tmp_path: Path, suffix: str) -> None:
    teams = {"teams": {"helper": CONFIG}}
    text = yaml.safe_dump(teams) if suffix == "yaml" else json.dumps(teams)
    (tmp_path / f"teams.{suffix}").write_text(text)
    server = commands.start("serve", f"teams.{suffix}", "--port", "0", cwd=tmp_path)
    url = server.base_url()
    assert re.search(r"helper +From a file\.", server.stdout)
    assert "offline demo model" in ask(url, "helper")
    server.die()


@pytest.mark.parametrize(
    ("teams", "complaint"),
    [
        ("nothing.py", "there is no file nothing.py"),
        ("nothing.yaml", "nothing.yaml: there is no such file"),
        ("no such thing", "cannot read teams from 'no such thing'"),
        ("broken.py", "broken.py cannot be imported: ZeroDivisionError"),
    ],
)
def test_teams_that_cannot_be_read(commands: Commands, tmp_path: Path, teams: str, complaint: str) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    command = commands.run("serve", teams, "--port", "0", cwd=tmp_path)
    assert command.wait() == 1
    assert complaint in command.stderr
    assert command.stderr.startswith("Error: ")
    assert command.stderr.count("\n") == 1


def test_a_setting_that_cannot_be_used_is_named(commands: Commands, tmp_path: Path) -> None:
    command = commands.run("serve", cwd=tmp_path, env={"DRSAI_PORT": "eighty"})
    assert command.wait() == 1
    assert command.stderr.startswith("Error: DRSAI_PORT: ")
    assert "eighty" not in command.stderr


def test_an_unreachable_database_is_one_line_without_its_password(commands: Commands, tmp_path: Path) -> None:
    url = "postgresql://me:hushhush@127.0.0.1:1/nowhere"
    command = commands.run("serve", "--port", "0", "--database-url", url, cwd=tmp_path)
    assert command.wait() == 1
    assert command.stderr == "Error: the database cannot be reached: postgresql://me:***@127.0.0.1:1/nowhere\n"
    assert "hushhush" not in command.stdout


def test_a_postgresql_schema_that_is_behind_is_not_touched(
    commands: Commands, tmp_path: Path, empty_postgres: str
) -> None:
    command = commands.run("serve", "--port", "0", cwd=tmp_path, env={"DRSAI_DATABASE_URL": empty_postgres})
    assert command.wait() == 1
    assert "run `drsai db upgrade`" in command.stderr
    assert command.stderr.count("\n") == 1


def test_the_database_is_printed_without_its_password(commands: Commands, tmp_path: Path, database_url: str) -> None:
    server = commands.start("serve", "--port", "0", "--database-url", database_url, cwd=tmp_path)
    url = server.base_url()
    assert re.search(r"database +(sqlite:////|postgresql://)", server.stdout)
    if "@" in database_url:
        password = database_url.partition("@")[0].rpartition(":")[2]
        assert not password or f":{password}@" not in server.stdout
    assert "Ada" in ask(url, "assistant", "My name is Ada.")
    server.kill(signal.SIGTERM)
    assert server.wait() == 0


def test_sigterm_hands_a_run_over_at_its_next_turn(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TEAMS)
    with ModelServer(lambda _: Reply("one two three four five six", chunk_delay=0.1)) as model:
        environment = {"OPENAI_BASE_URL": model.base_url}
        server = commands.start("serve", "mine.py", "--port", "0", cwd=tmp_path, env=environment)
        with openai.OpenAI(base_url=server.base_url(), api_key="unused", max_retries=0) as client:
            stream = client.chat.completions.create(
                model="pair",
                messages=[{"role": "user", "content": "Hello."}],
                stream=True,
                extra_body={"thread_id": "moved"},
            )
            next(stream)
            server.kill(signal.SIGTERM)
            seen, error = read(stream)
        assert "another process resumes the run" in error
        assert seen.count("six") == 1, "the turn in flight comes to its end"
        assert server.wait() == 0
        asked = len(model.requests)
        again = commands.start("serve", "mine.py", "--port", "0", cwd=tmp_path, env=environment)
        assert settled(again.base_url(), "moved") == "completed"
        assert len(model.requests) == asked + 1
        again.kill(signal.SIGTERM)
        assert again.wait() == 0


ENDLESS: dict[str, Callable[[], Answer]] = {
    "not a byte": lambda: Reply("never", delay=3600),
    "the beginning of an answer": lambda: Reply("never ends", hang=True),
    "a gigabyte as fast as it is read": lambda: Raw(repeat(PIECE, 1_000_000_000 // 1_000), "text/event-stream"),
}
PIECE = b'data: {"choices": [{"index": 0, "delta": {"content": "%b"}}], "model": "m"}\n\n' % (b"x" * 1_000)


@pytest.mark.parametrize("answer", ENDLESS.values(), ids=ENDLESS)
def test_sigterm_cuts_a_turn_that_does_not_end_and_tells_its_client(
    commands: Commands, tmp_path: Path, answer: Callable[[], Answer]
) -> None:
    (tmp_path / "mine.py").write_text(TEAMS)
    with ModelServer(lambda _: answer()) as model:
        environment = {
            "OPENAI_BASE_URL": model.base_url,
            "DRSAI_SHUTDOWN_GRACE_SECONDS": "1",
            "DRSAI_MAX_ANSWER_BYTES": "2000000000",
        }
        server = commands.start("serve", "mine.py", "--port", "0", cwd=tmp_path, env=environment)
        with openai.OpenAI(base_url=server.base_url(), api_key="unused", max_retries=0) as client:
            stream = client.chat.completions.create(
                model="pair",
                messages=[{"role": "user", "content": "Hello."}],
                stream=True,
                extra_body={"thread_id": "cut"},
            )
            while not model.requests:
                time.sleep(0.01)
            server.kill(signal.SIGTERM)
            assert "another process resumes the run" in read(stream)[1]
        assert server.wait() == 0
        shown = commands.run("threads", "show", "cut", "--json", cwd=tmp_path)
        assert json.loads(shown.stdout)["status"] == "running", "for the next process to resume"
        model.script(None, lambda _: "An answer.")
        again = commands.start("serve", "mine.py", "--port", "0", cwd=tmp_path, env=environment)
        assert settled(again.base_url(), "cut") == "completed"
        again.kill(signal.SIGTERM)
        assert again.wait() == 0


def read(stream: Any) -> tuple[str, str]:
    """The text of a stream, and the error it broke off with."""
    seen = ""
    try:
        for chunk in stream:
            seen += chunk.choices[0].delta.content or ""
    except openai.APIError as error:
        return seen, str(error)
    return seen, ""


def settled(url: str, thread_id: str) -> str:
    """A thread's status, once its run is over or waits."""
    end = time.monotonic() + 60
    while (status := httpx.get(f"{url}/threads/{thread_id}").json()["status"]) == "running":
        assert time.monotonic() < end
        time.sleep(0.05)
    return status


def test_logs_are_json_on_request_and_quiet_otherwise(commands: Commands, tmp_path: Path) -> None:
    server = commands.start(
        "serve", "--port", "0", "--access-log", cwd=tmp_path, env={"DRSAI_LOG_FORMAT": "json", "DRSAI_HOST": "::1"}
    )
    url = server.base_url()
    assert url.startswith("http://[::1]:")
    ask(url, "assistant")
    server.kill(signal.SIGTERM)
    assert server.wait() == 0
    logged = [json.loads(line) for line in server.stderr.splitlines() if line.startswith("{")]
    assert [line["event"] for line in logged if line["logger"] == "uvicorn.access"] != []

    quiet = commands.start("serve", "--port", "0", "--log-level", "ERROR", cwd=tmp_path)
    ask(quiet.base_url(), "writers")
    quiet.kill(signal.SIGTERM)
    assert quiet.wait() == 0
    assert quiet.stderr == "Stopping; once more to stop at once.\n"
