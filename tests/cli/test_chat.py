from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.serving import TEAMS
from tests.support.commands import Command, Commands, clean_environment
from tests.support.model_server import ModelServer, Reply

ASKING = """
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.conditions import TextMentionTermination
from drsai_backend import AssistantAgent, RoundRobinGroupChat

def asking(context):
    clerk = AssistantAgent("clerk", context.model_client(), system_message="You are a clerk.")
    return RoundRobinGroupChat([UserProxyAgent("person"), clerk], max_turns=2)

teams = {"asking": asking}
"""


def answers(text: str, speaker: str = "assistant") -> list[str]:
    return re.findall(rf"^{speaker}: (.*)$", text, re.MULTILINE)


def test_lines_of_a_pipe_are_messages(commands: Commands, tmp_path: Path) -> None:
    command = commands.run("chat", cwd=tmp_path, stdin="My name is Ada.\n\nWhat is my name?\n/quit\nNot said.\n")
    assert command.wait() == 0, command.stderr
    assert "OFFLINE DEMO MODEL" in command.stdout
    first, second = answers(command.stdout)
    assert "Nice to meet you, Ada" in first
    assert second == "[offline demo model] Your name is Ada."
    assert "you: What is my name?" in command.stdout
    assert "Not said" not in command.stdout
    assert "\x1b" not in command.stdout
    assert command.stderr == ""

    resume = re.search(r"^  drsai (chat --thread \S+)$", command.stdout, re.MULTILINE)
    assert resume is not None
    again = commands.run(*resume.group(1).split(), cwd=tmp_path, stdin="What is my name?\n")
    assert re.search(r"thread +thread_\w+, 4 messages: “My name is Ada.”", again.stdout)
    assert answers(again.stdout) == ["[offline demo model] Your name is Ada."]


def test_speakers_of_a_group_chat(commands: Commands, tmp_path: Path) -> None:
    command = commands.run("chat", "--model", "writers", cwd=tmp_path, stdin="Write about rivers.\n")
    assert re.findall(r"^(writer|reviewer): ", command.stdout, re.MULTILINE) == ["writer", "reviewer"] * 2
    assert "**" not in command.stdout
    thread = re.search(r"--thread (\S+)", command.stdout)
    assert thread is not None
    # The model need not be named again.
    again = commands.run("chat", "--thread", thread.group(1), cwd=tmp_path, stdin="/threads\n/nonsense\n")
    assert re.search(r"model +writers", again.stdout)
    assert thread.group(1) in again.stdout
    assert "There is no /nonsense." in again.stdout


def test_a_question_is_answered(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ASKING)
    first = commands.run("chat", "--teams", "mine.py", "-t", "t", cwd=tmp_path, stdin="I want a lamp.\n")
    assert "Your next message is the answer." in first.stdout
    second = commands.run("chat", "--teams", "mine.py", "-t", "t", cwd=tmp_path, stdin="A blue one.\n")
    assert "You were asked: " in second.stdout
    assert len(answers(second.stdout, "clerk")) == 1
    assert re.search(r"drsai chat --thread t --teams mine.py$", second.stdout, re.MULTILINE)
    shown = json.loads(commands.run("threads", "show", "t", "--json", cwd=tmp_path).stdout)
    assert shown["status"] == "completed"
    assert [item["content"] for item in shown["messages"]].count("A blue one.") >= 1


def test_a_failed_answer_is_told_and_the_next_one_works(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        TEAMS.replace(
            'return AssistantAgent("parrot"',
            'if context.user_input.user_last_message == "Fail.":\n        raise ValueError("on purpose")\n'
            '    return AssistantAgent("parrot"',
        )
    )
    command = commands.run("chat", "--teams", "mine.py", cwd=tmp_path, stdin="Fail.\nMy name is Ada.\n")
    assert command.wait() == 1
    assert command.stderr == "Error: the team could not be built: its factory raised ValueError: on purpose\n"
    assert len(answers(command.stdout, "parrot")) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--model", "nobody"], "unknown model 'nobody'; available: assistant, writers"),
        (["--teams", "nothing.py"], "there is no file nothing.py"),
        (["--base-url", "127.0.0.1:8000"], "--base-url must start with http:// or https://"),
        (["--base-url", "http://127.0.0.1:1/v1"], "no answer from http://127.0.0.1:1/v1: is `drsai serve` running"),
        (["--base-url", "http://127.0.0.1:1/v1", "--teams", "x.py"], "--base-url talks to a server"),
        (["--base-url", "http://127.0.0.1:1/v1", "--tenant", "acme"], "--base-url talks to a server, which knows the"),
    ],
)
def test_what_cannot_be_talked_to(commands: Commands, tmp_path: Path, arguments: list[str], complaint: str) -> None:
    command = commands.run("chat", *arguments, cwd=tmp_path, stdin="Hello.\n")
    assert command.wait() == 1
    assert command.stderr.startswith(f"Error: {complaint}")
    assert command.stderr.count("\n") == 1


def test_talking_to_a_server(commands: Commands, tmp_path: Path) -> None:
    server = commands.start("serve", "--port", "0", cwd=tmp_path)
    url = server.base_url()
    here = tmp_path / "elsewhere"
    here.mkdir()
    command = commands.run(
        "chat", "--base-url", url, "--user", "ada", cwd=here, stdin="My name is Ada.\nWhat is my name?\n/threads\n"
    )
    assert command.wait() == 0, command.stderr
    assert answers(command.stdout)[1] == "[offline demo model] Your name is Ada."
    resume = re.search(r"^  drsai (chat --thread (\S+) --base-url \S+ --user ada)$", command.stdout, re.MULTILINE)
    assert resume is not None
    assert command.stdout.count(resume.group(2)) == 2  # listed, and how to go on
    again = commands.run(*resume.group(1).split(), cwd=here, stdin="What is my name?\n")
    assert answers(again.stdout) == ["[offline demo model] Your name is Ada."]
    group = commands.run("chat", "--base-url", url, "-m", "writers", cwd=here, stdin="Write about rivers.\n")
    assert re.findall(r"^(writer|reviewer): ", group.stdout, re.MULTILINE) == ["writer", "reviewer"] * 2
    assert "**" not in group.stdout
    refused = commands.run("chat", "--base-url", url, "-m", "nobody", cwd=here, stdin="Hello.\n")
    assert refused.stderr == "Error: unknown model 'nobody'; available: assistant, writers\n"
    assert list(here.glob("*.db")) == []
    server.die()


def test_a_server_that_needs_a_key(commands: Commands, tmp_path: Path) -> None:
    def make(user: str, *scopes: str) -> tuple[str, str]:
        made = commands.run("keys", "add", "--user", user, "--tenant", "acme", *scopes, cwd=tmp_path)
        return made.stdout.strip(), made.stderr.split()[0]

    ada, key_id = make("ada")
    viewer, _ = make("ada", "--scope", "viewer")
    gateway, _ = make("portal", "--scope", "user", "--scope", "act-as")
    server = commands.start("serve", "--port", "0", cwd=tmp_path)
    url = server.base_url()
    here = tmp_path / "elsewhere"
    here.mkdir()

    def chat(key: str | None, *more: str, text: str = "My name is Ada.\n") -> Command:
        env = {} if key is None else {"DRSAI_API_KEY": key}
        return commands.run("chat", "--base-url", url, *more, cwd=here, env=env, stdin=text)

    assert len(answers(chat(ada, "-t", "t").stdout)) == 1
    assert answers(chat(ada, "-t", "t", text="What is my name?\n").stdout) == ["[offline demo model] Your name is Ada."]
    # Of the tenant and user of the key, as the database has it.
    whose = ("--user", "ada", "--tenant", "acme")
    assert "My name is Ada." in commands.run("threads", "show", "t", *whose, cwd=tmp_path).stdout
    local = commands.run("chat", "-t", "t", *whose, cwd=tmp_path, stdin="What is my name?\n")
    assert answers(local.stdout) == ["[offline demo model] Your name is Ada."]
    assert local.stdout.endswith("drsai chat --thread t --tenant acme --user ada\n")
    as_ada = chat(gateway, "-t", "t", "--user", "ada", text="What is my name?\n")
    assert answers(as_ada.stdout) == ["[offline demo model] Your name is Ada."]

    def refused(command: Command) -> str:
        assert command.wait() == 1
        assert command.stderr.count("\n") == 1
        return command.stderr

    assert refused(chat(None)).startswith(f"Error: {url} needs an API key: set DRSAI_API_KEY to one (")
    told = f"Error: {url} refuses the key that DRSAI_API_KEY is set to: "
    assert refused(chat(ada[:-1])).startswith(told)
    assert ada[9:40] not in refused(chat(ada[:-1]))
    assert refused(chat(viewer)) == f"{told}this needs the scope `chat`, which your key does not have\n"
    # In a chat request it would be a tag, and the talk be ada's: whoever names a user is told at once.
    for thread in ((), ("-t", "t")):
        assert refused(chat(ada, *thread, "--user", "bob")).startswith(f"{told}this key is ada's")
    assert refused(chat("sk drsai")).startswith("Error: DRSAI_API_KEY: must be an API key")
    commands.run("keys", "remove", key_id, cwd=tmp_path)
    time.sleep(2)
    assert refused(chat(ada)) == f"{told}the API key was revoked: ask for another one\n"
    server.die()


class Terminal:
    """`drsai` in a terminal of its own."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self._screen, terminal = pty.openpty()
        env = clean_environment(TERM="xterm", COLUMNS="80", LINES="24", **environment)
        del env["NO_COLOR"]
        drsai = Path(sys.executable).parent / "drsai"
        self.process = subprocess.Popen(
            [drsai, *arguments], cwd=folder, env=env, stdin=terminal, stdout=terminal, stderr=terminal,
            start_new_session=True, preexec_fn=_own_terminal,
        )  # fmt: skip
        os.close(terminal)
        self._unread = ""

    def prompt(self) -> None:
        """Wait until it reads. What is typed between the prompt and the reading, a signal too, is not noticed."""
        self.until("you >")
        time.sleep(0.3)

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def until(self, wanted: str, timeout: float = 30) -> str:
        """Read until a text appears behind the one that was waited for last; returns what is between them."""
        deadline = time.monotonic() + timeout
        while (found := re.search(_loosely(wanted), self._unread)) is None:
            left = deadline - time.monotonic()
            assert left > 0, f"no {wanted!r} in {self._unread!r}"
            if select.select([self._screen], [], [], left)[0]:
                try:
                    self._unread += os.read(self._screen, 65536).decode(errors="replace")
                except OSError:
                    raise AssertionError(f"no {wanted!r} in {self._unread!r}") from None
        read, self._unread = self._unread[: found.end()], self._unread[found.end() :]
        return read

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        os.close(self._screen)


def _loosely(text: str) -> str:
    """A pattern for a text with colours and cursor movements in it."""
    return r"(?:\x1b\[[0-9;?]*[a-zA-Z])*".join(map(re.escape, text))


def _own_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # A shell's background job inherits an ignored SIGINT, and so would what it starts; a terminal's programs do not.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def slow_model() -> Iterator[ModelServer]:
    with ModelServer(lambda _: Reply("**one** two three four five", chunk_delay=0.2, hang=False)) as server:
        yield server


def test_ctrl_c_stops_an_answer_and_ctrl_d_ends(commands: Commands, tmp_path: Path, slow_model: ModelServer) -> None:
    terminal = Terminal(tmp_path, "chat", "-t", "t", OPENAI_BASE_URL=slow_model.base_url, DRSAI_MODEL="gpt-4o")
    try:
        terminal.prompt()
        terminal.type("\x03")
        terminal.until("Ctrl-D or /quit ends.")
        terminal.prompt()
        terminal.type("Hello.\r")
        terminal.until("two")
        terminal.type("\x03")
        terminal.until("Stopped.")
        terminal.prompt()
        terminal.type("Again.\r")
        shown = terminal.until("you >")
        time.sleep(0.3)
        assert "\x1b[1mone\x1b[0m two three four five" in shown  # Markdown, in one piece at the end
        terminal.type("\x04")
        terminal.until("drsai chat --thread t")
        assert terminal.process.wait(10) == 0
    finally:
        terminal.close()
    shown = json.loads(commands.run("threads", "show", "t", "--json", cwd=tmp_path).stdout)
    asked, stopped, *rest = [(item["source"], item["content"]) for item in shown["messages"]]
    assert (asked, rest) == (("user", "Hello."), [("user", "Again."), ("assistant", "**one** two three four five")])
    assert stopped[1].startswith("**one** two")  # What was shown stays.
    deadline = time.monotonic() + 5
    while not slow_model.requests[0].disconnected and time.monotonic() < deadline:
        time.sleep(0.01)
    assert slow_model.requests[0].disconnected


def test_ctrl_c_of_a_server_answer_leaves_it(commands: Commands, tmp_path: Path, slow_model: ModelServer) -> None:
    server = commands.start("serve", "--port", "0", cwd=tmp_path, env={"OPENAI_BASE_URL": slow_model.base_url})
    terminal = Terminal(tmp_path, "chat", "-t", "t", "--base-url", server.base_url())
    try:
        terminal.prompt()
        terminal.type("Hello.\r")
        terminal.until("two")
        terminal.type("\x03")
        terminal.until("The server continues the run")
        terminal.prompt()
        terminal.type("\x04")
        assert terminal.process.wait(10) == 0
    finally:
        terminal.close()
    server.kill(signal.SIGTERM)
    assert server.wait() == 0
