"""`drsai serve` and what else takes teams takes several files, of Python and of definitions together."""

from __future__ import annotations

from pathlib import Path

import pytest

from drsai_backend.config import Settings
from drsai_backend.definitions import DefinitionError, load_all
from drsai_backend.features.extensions import means_of
from tests.cli.serving import ask, models
from tests.support.commands import Commands

PYTHON = """
from drsai_backend import AssistantAgent
teams = {"ann": lambda context: AssistantAgent("ann", context.model_client())}
"""
YAML = "agents:\n  bob:\n    prompt: You are Bob.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.py").write_text(PYTHON)
    (tmp_path / "two.yaml").write_text(YAML)
    return tmp_path


def test_python_and_yaml_are_served_together(commands: Commands, folder: Path) -> None:
    server = commands.start("serve", "one.py", "two.yaml", "--port", "0", cwd=folder)
    base_url = server.base_url()
    assert models(base_url) == ["ann", "bob"]
    assert ask(base_url, model="bob")
    # A conversation says how it is continued, with all of them.
    chat = commands.run("chat", "--teams", "one.py", "--teams", "two.yaml", "-m", "bob", cwd=folder, stdin="Hello.")
    assert "--teams one.py --teams two.yaml" in chat.stdout, chat.stderr


def test_all_that_is_wrong_with_any_of_them_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "three.yaml").write_text("agents:\n  ann: {sistem: x}\n")
    means = means_of(Settings(_env_file=None))  # pyright: ignore[reportCallIssue]
    with pytest.raises(DefinitionError) as refused:
        load_all(["one.py", "three.yaml", "no.py", "one.py"], means)
    told = [str(each) for each in refused.value.problems]
    assert "there is no such field" in told[0]
    assert told[1:] == ["there is no file no.py", "one.py: one.py has a team 'ann', too"]
    assert [*load_all(["two.yaml", "one.py"], means)] == ["bob", "ann"]
