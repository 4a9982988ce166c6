"""The lines that a real server writes: one for each thing that happens to a run, with the ids of where it belongs."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from drsai_backend.config import Settings
from tests.support.commands import Commands, clean_environment
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
MOUNTED = """
import logging, socket, sys
import uvicorn
from fastapi import FastAPI
from drsai_backend import DrSai
from drsai_backend.cli.logs import configure_logging
from drsai_backend.config import Settings

drsai = DrSai(settings=Settings())
app = FastAPI(lifespan=drsai.lifespan)
app.mount("/ai", drsai.app())
# uvicorn gives its loggers handlers when this is made, as its command does before it imports an application.
config = uvicorn.Config(app)
if sys.argv[1:] == ["alike"]:
    configure_logging(drsai.settings)
else:
    logging.basicConfig(format="mine %(message)s %(user)s", level="INFO", stream=sys.stdout)
    logging.getLogger().handlers[0].addFilter(lambda record: hasattr(record, "user"))
listening = socket.create_server(("127.0.0.1", 0))
print("port", listening.getsockname()[1], flush=True)
uvicorn.Server(config).run(sockets=[listening])
"""
BODY = {"model": "assistant", "messages": [{"role": "user", "content": "Hello."}]}
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
    whose = {"tenant": "default", "user": "anonymous", "team": "parrot"}
    assert whose.items() <= started.items()
    assert whose.items() <= ended.items()
    assert str(started["attempt"]) == "1"
    assert (failed["tool"], failed["agent"]) == ("fail", "parrot")
    assert "LookupError: the tool's reason" in failed["exception"]
    assert "Traceback" in failed["exception"]
    assert (ended["status"], str(ended["turns"]), str(ended["tokens"])) == ("completed", "1", "15")
    assert float(ended["seconds"]) >= 0
    assert ended["model"] == "gpt-4o-mini"
    factory, refused = (line for line in lines if line.get("request_id") == "req-2")
    assert (factory["event"], factory["team"]) == ("team factory failed", "broken")
    assert "ZeroDivisionError: the factory's reason" in factory["exception"]
    assert (refused["event"], refused["code"]) == ("request refused", "team_build_failed")
    for number, code, status in (("3", "model_not_found", "404"), ("4", "invalid_request", "400")):
        [line] = [line for line in lines if line.get("request_id") == f"req-{number}"]
        assert (line["event"], line["code"], str(line["status"])) == ("request refused", code, status)


@pytest.mark.parametrize(("users", "user"), [("hashed", "[0-9a-f]{16}"), ("none", None)])
def test_a_user_is_named_as_the_operator_wants_it(
    commands: Commands, tmp_path: Path, users: str, user: str | None
) -> None:
    environment = {"DRSAI_LOG_FORMAT": "json", "DRSAI_LOG_USERS": users}
    server = commands.start("serve", "--port", "0", cwd=tmp_path, env=environment)
    assert httpx.post(f"{server.base_url()}/chat/completions", json=BODY, timeout=20).status_code == 200
    server.kill()
    server.wait()
    lines = [line for line in read_lines(server.stderr, "json") if line["event"] in ("run started", "run ended")]
    assert [line["tenant"] for line in lines] == ["default"] * 2
    for line in lines:
        assert ("user" in line) == (user is not None)
        assert user is None or re.fullmatch(user, line["user"])


def test_a_digest_of_a_user_is_one_of_a_tenant_and_a_key() -> None:
    def digest(tenant: str = "acme", user: str = "ada", **values: Any) -> str:
        return Settings(_env_file=None, log_users="hashed", **values).logged(tenant, user)["user"]

    made = [digest(), digest("other"), digest(user="bob"), digest(secret_key="k"), digest(secret_key="l")]
    assert len({*made}) == len(made)
    assert digest() == made[0]
    assert digest(secret_key="k") == made[3]


def served(commands: Commands, folder: Path, *arguments: str) -> tuple[str, str]:
    """What a program that mounts the application has written when a run has ended: stdout and stderr."""
    (folder / "mounted.py").write_text(MOUNTED)
    environment = clean_environment(DRSAI_LOG_FORMAT="json", DRSAI_DATABASE_URL=f"sqlite:///{folder}/mounted.db")
    program = commands.program("mounted.py", *arguments, cwd=folder, env=environment)
    deadline = time.monotonic() + 30
    while (found := re.search(r"port (\d+)\n", program.stdout)) is None:
        assert program.running, program.stderr
        assert time.monotonic() < deadline, program.stderr
        time.sleep(0.02)
    asked = httpx.post(f"http://127.0.0.1:{found.group(1)}/ai/v1/chat/completions", json=BODY, timeout=20)
    assert asked.status_code == 200, asked.text
    program.kill()
    program.wait()
    return program.stdout, program.stderr


def test_all_lines_of_a_program_have_one_form_where_it_wants_that(commands: Commands, tmp_path: Path) -> None:
    _, lines = served(commands, tmp_path, "alike")
    assert {"drsai.run", "uvicorn.access"} <= {line["logger"] for line in read_lines(lines, "json")}
    assert "POST" not in "".join(line for line in lines.splitlines() if not line.startswith("{"))


def test_the_logs_of_a_program_are_its_own(commands: Commands, tmp_path: Path) -> None:
    mine, others = served(commands, tmp_path)
    assert [line for line in mine.splitlines() if line.startswith("mine run")] == [
        "mine run started anonymous",
        "mine run ended anonymous",
    ]
    assert "run started" not in others, "nothing of the package's is shown beside it"


LOGGED = """
import json, logging, sys, time
from drsai_backend.cli.logs import configure_logging
from drsai_backend.config import Settings

configure_logging(Settings(_env_file=None, openai_api_key="of-the-server", log_format="json"))
for text in json.load(sys.stdin):
    began = time.process_time()
    logging.getLogger("mine").warning("%s", text)
    print(time.process_time() - began)
"""


def test_what_has_the_shape_of_a_secret_is_hidden_in_lines_of_any_length() -> None:
    """Anybody makes long ones: a name in a query, which is refused by that name, has 64 KB."""
    hidden = {
        "sk-abcdefgh ends": "sk-*** ends",
        "of-the-server, ends": "***, ends",
        "a eyJhbGciOi.eyJzdWIi.c2ln ends": "a eyJ*** ends",
        "a eyJhbGciOi, cut": "a eyJ***, cut",
        "token-eyJhbGciOi-eyJhbGciOi.eyJzdWIi.c2ln ends": "token-eyJ*** ends",
        "Authorization: Basic dXNlcjpwYXNz, ends": "Authorization: Basic ***, ends",
        "'authorization': 'bearer   abcdefgh' ends": "'authorization': 'bearer   ***' ends",
        "Incorrect API key provided: abcdefgh. ends": "Incorrect API key provided: *** ends",
        "OPENAI_API_KEY=abcdefgh ends": "OPENAI_API_KEY=*** ends",
        "my-api-key: 'abcdefgh' ends": "my-api-key: '***' ends",
        r"{\"api_key\": \"abcdefgh\"} ends": r"{\"api_key\": \"***\"} ends",
        "password=abcdefgh&ends": "password=***&ends",
        "PGPASSWORD=abcdefgh and DB_PASSWORD=abcdefgh ends": "PGPASSWORD=*** and DB_PASSWORD=*** ends",
        "access_token=abcdefgh; x-secret-key: abcdefgh ends": "access_token=***; x-secret-key: *** ends",
        "_token: b'abcdefgh' ends": "_token: b'***' ends",
        "https://bot:abcdefgh@example.org ends": "https://bot:***@example.org ends",
        "postgresql+psycopg://:abc@example.org ends": "postgresql+psycopg://:***@example.org ends",
        "x=POSTGRES://bot:abc@example.org ends": "x=POSTGRES://bot:***@example.org ends",
    }
    shown = (
        "eyJabc",
        "tokens: 1234567",
        "a secretary: abcdefgh",
        "http://127.0.0.1:8000/v1",
        "task-abcdefgh",
        "sk-abc",
    )
    parts = ("a.", "a-", "eyJ-", "eyJabcdef-", "token-", "token=", "api-", "secret ", "://", "a://", "://a:", "basic ")
    parts = (*parts, "bearer  ", "sk-", "password:", "api key provided", "token\\", "=", " ", "\\", "a")
    long = [each * (60_000 // len(each)) for each in parts]
    long += [head + each * 60_000 for head in ("token", "token:", "basic", "://a:", "eyJ") for each in " a-\\"]
    command, given = [sys.executable, "-c", LOGGED], json.dumps([*hidden, *shown, *long])
    ran = subprocess.run(command, input=given, text=True, capture_output=True, env=clean_environment(), check=True)
    lines = [json.loads(line)["event"] for line in ran.stderr.splitlines()]
    assert lines[: -len(long)] == [*hidden.values(), *shown]
    seconds = [*map(float, ran.stdout.split())][-len(long) :]
    slow = {text[:20]: each for text, each in zip(long, seconds, strict=True) if each > 1}
    assert not slow, "a hundredth of a second is enough; ten are needed where each place is looked at from each other"
