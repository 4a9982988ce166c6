"""`drsai knowledge`: folders and patterns become stores that are searched, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import Command, Commands

LEAVE = "# Leave\n\nEverybody has thirty days of leave a year.\n"


class Typed:
    def __init__(self, commands: Commands, url: str, folder: Path) -> None:
        self._commands, self._env, self._folder = commands, {"DRSAI_DATABASE_URL": url}, folder

    def __call__(self, *arguments: str, **more: str) -> Command:
        return self._commands.run("knowledge", *arguments, cwd=self._folder, env={**self._env, **more})

    def json(self, *arguments: str) -> object:
        return json.loads(self(*arguments, "--json").stdout)


@pytest.fixture
def typed(commands: Commands, database_url: str, tmp_path: Path) -> Typed:
    return Typed(commands, database_url, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "policies"
    (folder / "old").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "secret.md").write_text("Nobody reads this.")
    (folder / "leave.md").write_text(LEAVE)
    (folder / "old" / "flights.md").write_text("# Flights\n\nThe treasurer approves flights.\n")
    return folder


def test_folders_are_added_searched_shown_and_removed(typed: Typed, folder: Path, tmp_path: Path) -> None:
    added = typed("add", "handbook", "policies")
    assert added.stdout == "handbook: 2 of 2 files read, 0 unchanged\n", added.stderr
    assert added.stderr == "", "there is no bar where it is no terminal"
    assert "2 unchanged" in typed("add", "handbook", "policies").stdout
    found = typed("search", "handbook", "Who approves flights?")
    assert "old/flights.md, Flights" in found.stdout
    assert "The treasurer approves flights." in found.stdout
    assert "searched by keywords only" in found.stderr
    assert "Nobody reads this" not in typed("search", "handbook", "nobody reads").stdout

    # What has changed, and what is named by a pattern; a terminal has a bar.
    (folder / "leave.md").write_text(LEAVE.replace("thirty", "forty"))
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 and no more")
    again = typed("add", "handbook", "policies", "*.pdf", FORCE_COLOR="1")
    assert (again.wait(), "1 of 3 files read, 1 unchanged" in again.stdout) == (1, True)
    assert "broken.pdf is not read" in again.stderr
    assert "reading" in again.stderr
    assert "forty days" in typed("search", "handbook", "days of leave").stdout
    [store] = json.loads(typed("list", "--json").stdout)
    assert (store["name"], store["file_counts"]["completed"], store["file_counts"]["failed"]) == ("handbook", 2, 1)
    assert f"{store['store_id']}  handbook  3 files" in typed("list").stdout
    shown = typed("show", "handbook").stdout
    assert all(each in shown for each in ("old/flights.md", "leave.md", "failed", "it is searched by keywords"))
    assert "is embedded by no model" in typed("reindex", "handbook").stdout

    removed = typed("remove", "handbook", "leave.md", "broken.pdf", "--yes")
    assert removed.stdout == "deleted 2 files of handbook\n"
    assert "forty days" not in typed("search", "handbook", "days of leave").stdout
    assert typed("remove", "handbook", "--yes").stdout == "deleted the store handbook\n"
    assert "has no stores here" in typed("list").stdout


def test_what_cannot_be_done_is_told(typed: Typed, folder: Path) -> None:
    assert typed("add", "team", str(folder / "leave.md"), "--shared", "--tenant", "acme").wait() == 0
    for arguments, why in (
        (("add", "handbook", "nowhere/*.md"), "nowhere/*.md names no file here"),
        (("add", "handbook", "policies", "policies/old/../leave.md"), ""),
        (("search", "handbook2", "leave"), "there is no vector store 'handbook2'"),
        (("show", "team", "--tenant", "acme", "--user", "ada"), "is named with --shared"),
        (("remove", "team", "gone.md", "--shared", "--tenant", "acme", "--yes"), "there is no file 'gone.md'"),
        (("reindex", "handbook2"), "there is no vector store 'handbook2'"),
    ):
        command = typed(*arguments)
        assert (command.wait(), why in command.stderr) == (1 if why else 0, True), (arguments, command.stderr)
    found = typed("search", "team", "leave", "--tenant", "acme", "--user", "ada")
    assert "thirty days" in found.stdout, "all users of the tenant search it"
