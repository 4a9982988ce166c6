"""The example as a user has it: a folder in an application, and one line of a list. Without both, nothing is left."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from drsai_backend.database import migrations
from tests.examples.processes import ROOT
from tests.support.commands import Command, Commands

TEAMS = """
from drsai_backend import DrSaiAgent, builtin_tools

def secretary(context):
    \"\"\"Reads notes.\"\"\"
    return DrSaiAgent("secretary", context.model_client(), tools=builtin_tools(["read_notes"]))

def parrot(context):
    return DrSaiAgent("parrot", context.model_client())

teams = {"secretary": secretary, "parrot": parrot}
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'app.db'}"
    else:
        yield request.getfixturevalue("empty_postgres")


class Application:
    """A folder with teams, maybe the feature's folder, and the list that names it."""

    def __init__(self, commands: Commands, folder: Path, url: str) -> None:
        self.commands, self.folder = commands, folder
        self.environment = {"DRSAI_DATABASE_URL": url}
        folder.mkdir()
        (folder / "teams.py").write_text(TEAMS)

    def add(self) -> None:
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "examples/notes", self.folder / "notes", ignore=skipped)
        self.environment["DRSAI_EXTENSIONS"] = "notes:Notes"

    def remove(self) -> None:
        shutil.rmtree(self.folder / "notes")
        del self.environment["DRSAI_EXTENSIONS"]

    def run(self, *arguments: str, code: int = 0) -> str:
        ran = self.commands.run(*arguments, cwd=self.folder, env=self.environment)
        assert ran.wait(60) == code, ran.stdout + ran.stderr
        return ran.stdout if code == 0 else ran.stderr

    def serve(self) -> Command:
        return self.commands.start("serve", "teams.py", "--port", "0", cwd=self.folder, env=self.environment)


def stop(server: Command) -> None:
    server.kill(signal.SIGTERM)
    assert server.wait(60) == 0, server.stderr


def ask(url: str, team: str, text: str) -> httpx.Response:
    body = {"model": team, "messages": [{"role": "user", "content": text}], "user": "ann"}
    return httpx.post(f"{url}/chat/completions", json=body, timeout=30)


def test_a_folder_and_a_line_add_it_and_without_them_nothing_is_left(
    commands: Commands, tmp_path: Path, empty_url: str
) -> None:
    app = Application(commands, tmp_path / "app", empty_url)
    app.add()
    assert "extension notes: 0001 (head)" in app.run("db", "upgrade")
    assert "noted as number 1" in app.run("notes", "add", "The tide turns at noon.", "--user", "ann")
    assert "Look at the notes of users." in app.run("--help")
    server = app.serve()
    url = server.base_url()
    paths = httpx.get(f"{url.removesuffix('/v1')}/openapi.json").json()["paths"]
    assert {"/v1/notes", "/v1/notes/{number}"} <= paths.keys()
    assert httpx.post(f"{url}/notes", json={"text": "Buy bread."}, params={"user": "ann"}).status_code == 201
    answer = ask(url, "secretary", "Please read my notes").json()["choices"][0]["message"]["content"]
    assert "The tide turns at noon." in answer
    assert "Buy bread." in answer
    stop(server)
    assert app.run("notes", "list", "--user", "ann") == "1  The tide turns at noon.\n2  Buy bread.\n"

    app.remove()
    assert "notes" not in app.run("db", "show")
    assert "No such command 'notes'" in app.run("notes", "list", "--user", "ann", code=2)
    assert "notes of users" not in app.run("--help")
    server = app.serve()
    url = server.base_url()
    assert "/v1/notes" not in httpx.get(f"{url.removesuffix('/v1')}/openapi.json").text
    assert httpx.get(f"{url}/notes", params={"user": "ann"}).status_code == 404
    assert ask(url, "parrot", "Hello.").status_code == 200
    assert "there is no built-in tool 'read_notes'" in ask(url, "secretary", "Hello.").text
    stop(server)
    exported = tmp_path / "ann.zip"
    assert "notes" not in app.run("users", "remove", "ann", "--yes", "--export", str(exported))
    with migrations.connecting(empty_url, write=False) as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM notes")).scalar() == 2, "its tables are ignored"
        assert connection.execute(sa.text("SELECT count FROM notes_ended_runs")).scalar() == 1

    app.add()
    assert "deleted ann: 2 notes, 1 notes ended run" in app.run("users", "remove", "ann", "--yes")
    assert app.run("notes", "list", "--user", "ann") == ""
    assert "extension notes: no tables of the extension notes" in app.run("db", "downgrade", "base", "--yes")


def test_what_is_wrong_is_one_line(commands: Commands, tmp_path: Path) -> None:
    app = Application(commands, tmp_path / "app", "sqlite:///app.db")
    app.environment["DRSAI_EXTENSIONS"] = "notes:Notes"
    text = "Error: DRSAI_EXTENSIONS: notes cannot be imported: ModuleNotFoundError: No module named 'notes'\n"
    for arguments in (["serve", "teams.py"], ["notes", "list"], ["db", "upgrade"]):
        assert app.run(*arguments, code=1) == text


def test_the_help_is_shown_though_an_extension_is_lost(commands: Commands, tmp_path: Path) -> None:
    app = Application(commands, tmp_path / "app", "sqlite:///app.db")
    app.environment["DRSAI_EXTENSIONS"] = "notes:Notes"
    assert " threads " in app.run("--help")
    del app.environment["DRSAI_EXTENSIONS"]
    (app.folder / ".env").write_text("DRSAI_MAX_STALL_SECONDS=long\n")
    assert " threads " in app.run("--help")
