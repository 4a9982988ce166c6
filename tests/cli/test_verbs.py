"""One set of verbs over all nouns: the words of earlier releases run what they ran, every command has `--json`, and no
error names a path of the API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import drsai_backend
from drsai_backend.cli.app import app
from drsai_backend.cli.verbs import OLD_WORDS, in_commands
from tests.support.commands import Commands

ALONE = {"serve", "worker", "mcp", "chat", "demo"}
"""What streams, and has no nouns."""
WRITES = {"agents convert"}
"""What had a `--json` of its own: it says how a file is written."""


def root() -> Any:
    return typer.main.get_command(app)


def commands_of(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        full = f"{path} {name}".strip()
        if hasattr(command, "commands"):
            yield from commands_of(command, full)
        else:
            yield full, command


def test_every_command_of_a_noun_has_json() -> None:
    found = {path: {option for each in command.params for option in each.opts} for path, command in commands_of(root())}
    assert {path for path in found if path not in ALONE and "--json" not in found[path]} == {
        *("keys webhook", "memory export")  # Lines of JSON are all that it prints.
    }
    assert found["runs retry"] >= {"run", "--json"}


def test_the_nouns_have_one_set_of_verbs() -> None:
    """A verb that means one of the set is called so."""
    verbs = {path for path, command in commands_of(root()) if not command.hidden}
    others = {"create", "delete", "revoke", "put", "upload", "invoke", "current", "get", "new", "update", "rename"}
    # A setting is a value, as in git's and gcloud's `config`, and nothing to look at.
    assert {path for path in verbs if path.split()[-1] in others} == {"config get"}
    assert {f"runs {verb}" for verb in ("list", "show", "retry", "cancel")} <= verbs
    for noun in ("agents", "tools"):  # They have versions.
        assert {f"{noun} {verb}" for verb in ("list", "show", "apply", "history", "rollback", "remove")} <= verbs


@pytest.mark.parametrize("old", OLD_WORDS)
def test_an_old_word_is_the_new_one(old: str) -> None:
    new = OLD_WORDS[old]
    [ran, asked] = [CliRunner().invoke(app, [*words.split(), "--help"]) for words in (old, new)]
    assert ran.exit_code == asked.exit_code == 0
    assert ran.stderr == f"Warning: `drsai {old}` is `drsai {new}` now; the old words go with 0.4\n"
    assert asked.stderr == ""
    assert ran.stdout.split("\n", 2)[2] == asked.stdout.split("\n", 2)[2], "all but the line of its usage"
    noun, verb = old.split()
    assert re.search(rf"^│ {verb} ", CliRunner().invoke(app, [noun, "--help"]).stdout, re.MULTILINE) is None


def test_a_word_that_never_was_is_none() -> None:
    refused = CliRunner().invoke(app, ["threads", "destroy"])
    assert refused.exit_code == 2
    assert "No such command 'destroy'" in refused.output


def test_audit_alone_is_its_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRSAI_DATABASE_URL", f"sqlite:///{tmp_path}/one.db")
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["db", "upgrade"]).exit_code == 0
    for words in ([], ["--limit", "3"], ["list"]):
        assert CliRunner().invoke(app, ["audit", *words, "--json"]).stdout == "[]\n"
    assert "prune" in CliRunner().invoke(app, ["audit", "--help"]).stdout


def test_what_errors_name_is_a_command() -> None:
    assert in_commands("no version 7: GET /v1/agents/duo/versions lists them") == (
        "no version 7: `drsai agents history duo` lists them"
    )
    folder, named = Path(drsai_backend.__file__).parent, set[str]()
    for file in folder.rglob("*.py"):
        if file.parent.name in ("api", "http") or file.name == "routes.py" or "api" in file.parts:
            continue
        for line in file.read_text().splitlines():
            text = line.strip()
            if re.search(r"\b(GET|POST|PUT|PATCH|DELETE) /v1/", text) and re.match(r'f?"|.*[=(] ?f?"', text):
                named.add(
                    text.replace("{self.noun}", "agent").replace("{_RESERVED}", "schema").replace("{name}", "duo")
                )
    assert len(named) >= 5, "the texts are found"
    # Descriptions of settings are no errors.
    left = {text for text in map(in_commands, named) if "/v1/" in text and "description=" not in text}
    assert left == set()


def test_runs_are_listed_shown_and_ended(commands: Commands, database_url: str, tmp_path: Path) -> None:
    def typed(*words: str) -> Any:
        return commands.run(*words, "--user", "ada", cwd=tmp_path, env={"DRSAI_DATABASE_URL": database_url})

    for thread, words in (("one", "My name is Ada."), ("two", "What is my name?")):
        asked = commands.run(
            "chat", "--user", "ada", "-t", thread, cwd=tmp_path, env={"DRSAI_DATABASE_URL": database_url}, stdin=words
        )
        assert asked.wait() == 0, asked.stderr
    rows = json.loads(typed("runs", "list", "--json").stdout)
    assert [row["thread_id"] for row in rows] == ["two", "one"]
    assert [row["thread_id"] for row in json.loads(typed("runs", "list", "one", "--json").stdout)] == ["one"]
    run_id = rows[1]["run_id"]
    by_run, by_thread = typed("runs", "show", run_id).stdout, typed("runs", "show", "one").stdout
    assert by_run == by_thread
    assert re.search(r"^status +completed$", by_run, re.MULTILINE)
    over = typed("runs", "cancel", run_id)
    assert (over.wait(), "is completed" in over.stderr) == (1, True)
    gone = json.loads(typed("threads", "remove", "one", "--yes", "--json").stdout)
    assert gone == {"deleted": ["one"]}
