from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from drsai_backend import DrSai, decode_state
from drsai_backend.config import Settings
from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import Thread
from tests.support.commands import Command, Commands
from tests.support.model_server import Failure, ModelServer, Reply


@pytest.fixture
def stored(database_url: str, tmp_path: Path) -> str:
    """A database with two threads of ada's and one of bob's."""

    async def talk() -> None:
        settings = Settings(_env_file=None, demo_delay=0, openai_api_key=None, openai_base_url=None)  # pyright: ignore
        async with DrSai(database_url=database_url, settings=settings) as drsai:
            await drsai.user("ada").run("assistant", "My name is Ada.", thread_id="first")
            await drsai.user("ada").run("writers", "Write about [bold]rivers[/bold].", thread_id="second/one")
            await drsai.user("bob").run("assistant", "Hello.", thread_id="first")

    asyncio.run(talk())
    return database_url


RUNS = {"steps", "cancel", "pause", "resume", "retry"}


def verb(name: str) -> tuple[str, str]:
    """A verb with its noun: what a thread does is its run's."""
    return ("runs" if name in RUNS else "threads"), name


def missed(name: str, thread_id: str, whose: str) -> str:
    """The end of the error where a verb is given a thread that is not there, of whom these options name."""
    noun, _ = verb(name)
    what = "thread" if noun == "threads" else "run" if name == "cancel" else "run or thread"
    return f"{what} {thread_id!r} here; `drsai {noun} list {whose}` shows those there are\n"


class Threads:
    def __init__(self, commands: Commands, url: str, folder: Path) -> None:
        self._commands = commands
        self._url = url
        self._folder = folder

    def __call__(self, *arguments: str, user: str = "ada") -> Command:
        return self._commands.run(
            *verb(arguments[0]),
            *arguments[1:],
            "--user",
            user,
            cwd=self._folder,
            env={"DRSAI_DATABASE_URL": self._url},
        )


@pytest.fixture
def threads(commands: Commands, stored: str, tmp_path: Path) -> Threads:
    return Threads(commands, stored, tmp_path)


def test_threads_are_listed_shown_and_deleted(threads: Threads) -> None:
    listed = threads("list").stdout
    assert [line.split()[0] for line in listed.splitlines() if "msgs" in line] == ["second/one", "first"]
    assert "My name is Ada." in listed
    assert "[bold]rivers[/bold]" in listed
    rows: list[dict[str, Any]] = json.loads(threads("list", "--json", "-n", "1").stdout)
    assert [(row["thread_id"], row["status"], row["team"]) for row in rows] == [("second/one", "completed", "writers")]
    assert "--limit shows more" in threads("list", "-n", "1").stdout
    assert threads("list", user="nobody").stdout == "nobody has no threads here.\n"

    shown = threads("show", "second/one").stdout
    assert "status   completed" in shown
    assert "[bold]rivers[/bold]" in shown
    assert [word for word in ("writer", "reviewer") if word not in shown] == []
    whole = json.loads(threads("show", "second/one", "--json").stdout)
    assert [message["seq"] for message in whole["messages"]] == list(range(1, whole["message_count"] + 1))

    state = threads("state", "first", "--encoded").stdout.strip()
    decoded = json.loads(threads("state", "first").stdout)
    assert decode_state(state) == decoded
    assert "My name is Ada." in json.dumps(decoded)

    refused = threads("remove", "first")
    assert (refused.wait(), refused.stderr) == (
        1,
        "Error: Delete thread first of ada? Nobody is here to be asked: say --yes.\n",
    )
    missing = threads("remove", "first", "third", "--yes")
    assert (missing.wait(), missing.stdout) == (1, "")
    deleted = threads("remove", "first", "second/one", "--yes")
    assert (deleted.wait(), deleted.stdout) == (0, "deleted first\ndeleted second/one\n")
    assert threads("list").stdout == "ada has no threads here.\n"
    assert "Hello." in threads("show", "first", user="bob").stdout


@pytest.mark.parametrize(
    "command", [["show"], ["state"], ["remove", "--yes"], ["cancel"], ["pause"], ["resume"], ["retry"], ["export"]]
)
def test_threads_of_others_do_not_exist(threads: Threads, command: list[str]) -> None:
    refused = threads(*command, "second/one", user="bob")
    assert refused.wait() == 1
    assert refused.stderr == f"Error: bob has no {missed(command[0], 'second/one', '--user bob')}"


def test_threads_of_another_tenant(commands: Commands, stored: str, tmp_path: Path) -> None:
    env = {"DRSAI_DATABASE_URL": stored}

    def threads(*arguments: str) -> Command:
        return commands.run(*verb(arguments[0]), *arguments[1:], cwd=tmp_path, env=env)

    acme = ("--user", "ada", "--tenant", "acme")
    assert threads("list", *acme).stdout == "ada (acme) has no threads here.\n"
    for command in (["show"], ["state"], ["remove", "--yes"], ["cancel"], ["pause"], ["resume"], ["retry"], ["export"]):
        refused = threads(*command, "first", *acme)
        complaint = f"Error: ada (acme) has no {missed(command[0], 'first', '--user ada --tenant acme')}"
        assert (refused.wait(), refused.stderr) == (1, complaint)
    assert threads("list", "--tenant", "").stderr.startswith("Error: `--tenant` must have 1 to 255 characters")

    # Moved into it, it is another thread than that of the same name.
    assert threads("export", "first", "--user", "ada", "-o", "a.thread").wait() == 0
    moved = threads("import", "a.thread", "--tenant", "acme")
    assert moved.stdout.startswith("imported first of ada (acme): 2 messages, completed")
    assert "My name is Ada." in threads("show", "first", *acme).stdout
    assert decode_state(threads("state", "first", "--encoded", *acme).stdout.strip())
    assert threads("export", "first", *acme, "-o", "b.thread").wait() == 0
    prune = ("prune", "--older-than", "0m", "--yes")
    assert threads(*prune, "--tenant", "other").stdout == "0 threads of all users (other) to delete\n"
    assert threads(*prune, "--tenant", "acme").stdout == "deleted 1 thread of all users (acme)\n"
    assert len(json.loads(threads("list", "--user", "ada", "--json").stdout)) == 2
    assert threads("import", "b.thread", "--tenant", "acme").wait() == 0
    assert threads("remove", "first", *acme, "--yes").stdout == "deleted first\n"
    assert "My name is Ada." in threads("show", "first", "--user", "ada").stdout


TEAMS = """
from autogen_agentchat.agents import UserProxyAgent
from drsai_backend import AssistantAgent, RoundRobinGroupChat

def pair(context):
    members = [AssistantAgent(name, context.model_client(), model_client_stream=True) for name in ("ann", "bob")]
    return RoundRobinGroupChat(members, max_turns=50)

def asking(context):
    return RoundRobinGroupChat([UserProxyAgent("person")], max_turns=1)

teams = {"pair": pair, "asking": asking}
"""


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(lambda _: Reply("one two three four five six", chunk_delay=0.05)) as server:
        yield server


class Steered:
    """A server whose team speaks for half a minute, and `drsai threads` on its database."""

    def __init__(self, commands: Commands, url: str, folder: Path, model: ModelServer) -> None:
        (folder / "mine.py").write_text(TEAMS)
        self._commands = commands
        self._place: dict[str, Any] = {
            "cwd": folder,
            "env": {"DRSAI_DATABASE_URL": url, "OPENAI_BASE_URL": model.base_url},
        }
        self._server = commands.start("serve", "mine.py", "--port", "0", **self._place)
        self._model = model
        self.stop_server = self._server.die

    def ask(self, team: str, thread_id: str, **more: Any) -> None:
        body = {"model": team, "messages": [{"role": "user", "content": "Begin."}], "thread_id": thread_id, **more}
        answer = httpx.post(f"{self._server.base_url()}/chat/completions", json=body, timeout=20)
        assert answer.status_code < 300, answer.text

    def threads(self, *arguments: str) -> str:
        command = self._commands.run(*verb(arguments[0]), *arguments[1:], **self._place)
        assert command.wait() == (1 if command.stderr else 0)
        return command.stdout + command.stderr

    def shown(self, thread_id: str) -> dict[str, Any]:
        return json.loads(self.threads("show", thread_id, "--json"))

    def until_next_answer(self) -> int:
        """Wait until the model is asked once more; how often it was, then."""
        before, deadline = len(self._model.requests), time.monotonic() + 20
        while len(self._model.requests) == before:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return before + 1


@pytest.fixture
def steered(commands: Commands, database_url: str, tmp_path: Path, model: ModelServer) -> Steered:
    return Steered(commands, database_url, tmp_path, model)


def test_a_live_run_of_another_process_is_steered(steered: Steered) -> None:
    steered.ask("pair", "t", background=True)
    steered.until_next_answer()
    # The turn in flight may be over at once.
    assert steered.threads("pause", "t") in ("t will pause when the turn in flight is over.\n", "t is paused.\n")
    deadline = time.monotonic() + 20
    while steered.shown("t")["status"] != "paused":
        assert time.monotonic() < deadline
    assert steered.threads("pause", "t") == "t is paused.\n"
    assert steered.threads("resume", "t") == "t is resumed: a server or a worker continues it within seconds.\n"
    steered.until_next_answer()
    for _ in range(2):  # once more is no error
        assert steered.threads("cancel", "t") == "t is stopped.\n"
    assert steered.shown("t")["status"] == "stopped"
    assert steered.threads("pause", "t") == "Error: thread 't' is stopped: only a live run can be paused\n"
    assert steered.threads("resume", "t") == "Error: thread 't' is stopped and not paused\n"


def test_retrying(steered: Steered, model: ModelServer) -> None:
    """The server does it; the command line runs nothing itself."""
    model.script(None, [Failure(400, "no"), Reply("one", delay=60)])
    steered.ask("pair", "t", background=True)
    deadline = time.monotonic() + 20
    while steered.shown("t")["status"] != "error":
        assert time.monotonic() < deadline
    assert steered.threads("retry", "t") == "t is run again: a server or a worker continues it within seconds.\n"
    steered.until_next_answer()
    refused = (
        "Error: thread 't' is running: there is nothing to retry; only the last run of a thread can be, where it has"
    )
    assert steered.threads("retry", "t") == f"{refused} failed\n"
    assert steered.threads("cancel", "t") == "t is stopped.\n"


def test_steering_takes_no_run_over(steered: Steered, model: ModelServer) -> None:
    """What nobody runs is stopped at once and leaves what the API leaves; the command line runs nothing itself."""
    steered.ask("asking", "asks")
    steered.ask("pair", "t", background=True)
    asked = steered.until_next_answer()
    steered.stop_server()
    assert steered.shown("t")["status"] == "running"
    assert steered.threads("cancel", "t") == "t is stopped.\n"
    assert len(model.requests) == asked
    assert steered.threads("cancel", "asks") == "asks is stopped.\n"
    assert steered.shown("asks")["messages"][-1]["message"]["decision"] == "withdrawn"


def test_looking_makes_no_database(commands: Commands, tmp_path: Path) -> None:
    for arguments in (["threads", "list"], ["threads", "show", "x"], ["db", "show"], ["db", "downgrade", "base"]):
        command = commands.run(*arguments, cwd=tmp_path)
        assert command.wait() == 1
        assert command.stderr.startswith(f"Error: there is no database {tmp_path / 'drsai.db'};")
    assert list(tmp_path.glob("drsai.db*")) == []


def test_what_others_have_written_does_not_reach_the_terminal(
    commands: Commands, database_url: str, tmp_path: Path
) -> None:
    """Names, titles and messages with line ends, escape sequences and markup are shown, and do nothing."""
    evil = "a\nb\r\x1b]0;owned\x07\x9b2J\u202e[bold]:bug:[/bold]"
    shown = "a\\nb\\u000d\\u001b]0;owned\\u0007\\u009b2J\\u202e[bold]:bug:[/bold]"

    async def store() -> None:
        async with DatabaseManager(database_url) as db:
            message = {"type": "TextMessage", "source": evil, "content": f"Hello.\n{evil}"}
            await db.upsert(
                Thread(user_id="ada", thread_id=evil, title=evil, team=evil, error_message=evil, messages=[message])
            )

    asyncio.run(store())

    def done(*arguments: str) -> str:
        command = commands.run(
            "threads", *arguments, "--user", "ada", cwd=tmp_path, env={"DRSAI_DATABASE_URL": database_url}
        )
        assert command.wait() in (0, 1)
        text = command.stdout + command.stderr
        assert [character for character in text if not character.isprintable() and character != "\n"] == []
        return text

    assert done("list").splitlines()[0].startswith(shown)
    assert json.loads(done("list", "--json"))[0]["thread_id"] == evil
    detail = done("show", evil)
    assert detail.count(shown) == 5  # thread, title, team, error, source
    assert "\nHello.\na\nb\\u001b]0;owned" in detail
    assert json.loads(done("show", evil, "--json"))["title"] == evil
    assert done("state", evil).startswith("Error: thread 'a\\nb")
    assert done("export", evil, "-o", "file") == f"exported {shown} to file ({(tmp_path / 'file').stat().st_size} B)\n"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    assert "`thread_id` must be printable" in done("import", "file")
    assert done("remove", evil) == f"Error: Delete thread {shown} of ada? Nobody is here to be asked: say --yes.\n"
    assert done("remove", evil, "--yes") == f"deleted {shown}\n"


def test_a_thread_is_shared_and_taken_back(threads: Threads) -> None:
    assert "bob may answer it" in threads("share", "first", "--with", "bob", "--right", "answer").stdout
    assert "role clerk may read it" in threads("share", "first", "--role", "clerk").stdout
    rows: list[dict[str, Any]] = json.loads(threads("shares", "first", "--json").stdout)
    assert [(row["with_user"], row["with_role"], row["right"]) for row in rows] == [
        ("bob", None, "answer"),
        (None, "clerk", "read"),
    ]
    assert "role clerk  read" in threads("shares", "first").stdout
    threads("unshare", "first", "--with", "bob")
    threads("unshare", "first", "--role", "clerk")
    assert "shared with nobody" in threads("shares", "first").stdout
    for arguments, text in (
        (("first",), "one of the two"),
        (("first", "--with", "ada"), "already"),
        (("first", "--with", "bob", "--right", "all"), "read, answer or write"),
        (("none", "--with", "bob"), "no thread 'none'"),
    ):
        refused = threads("share", *arguments)
        assert refused.wait() != 0
        assert text in refused.stderr
    assert "not shared with" in threads("unshare", "first", "--with", "bob").stderr


def test_steps_of_runs(threads: Threads) -> None:
    [step] = json.loads(threads("steps", "first", "--json").stdout)
    assert (step["position"], step["source"], step["tool"], step["is_error"]) == (1, "assistant", None, False)
    assert "Ada" in step["text"]
    assert threads("steps", step["run_id"]).stdout.startswith("1 assistant\n  answer: ")
    lines = threads("steps", "second/one", "--newest", "-n", "1").stdout.splitlines()
    assert lines[0] == "4 reviewer"
    assert "There are more: --after 4-" in lines[-1]
    assert "\\n" not in threads("steps", "second/one").stdout, "lines of a text are one line here"
    missing = threads("steps", step["run_id"], user="bob")
    assert missing.wait() == 1
    assert missing.stderr.startswith(f"Error: bob has no run or thread '{step['run_id']}' here")
