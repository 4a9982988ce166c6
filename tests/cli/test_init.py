"""`drsai init` writes a project that works as it is, and `drsai serve --reload` serves what is written into it."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from drsai_backend.cli.app import app
from tests.cli.serving import models
from tests.support.commands import clean_environment


def typed(*words: str) -> Any:
    return CliRunner().invoke(app, [*words], catch_exceptions=True)


@pytest.mark.parametrize("kind", [[], ["--yaml"]])
def test_a_project_is_written_and_its_own_test_passes(tmp_path: Path, kind: list[str]) -> None:
    folder = tmp_path / "new" / "project"
    made = typed("init", str(folder), *kind, "--json")
    team = "team.yaml" if kind else "team.py"
    names = [team, "test_team.py", ".env.example", "compose.yaml"]
    assert json.loads(made.stdout) == {"files": [str(folder / name) for name in names]}
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert [name for name in names if "TEAM_FILE" in (folder / name).read_text()] == []
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert services["server"]["command"][1] == f"/project/{team}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_team.py"],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


def test_nothing_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("mine")
    refused = typed("init", str(tmp_path))
    assert "has compose.yaml already: nothing was written" in str(refused.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["compose.yaml"]
    (tmp_path / "file").write_text("")
    assert "cannot be written" in str(typed("init", str(tmp_path / "file" / "project")).exception)


def test_a_change_is_served_and_a_mistake_waited_with(tmp_path: Path) -> None:
    assert typed("init", str(tmp_path), "--yaml").exit_code == 0
    team, out = tmp_path / "team.yaml", tmp_path / "out.txt"
    written = team.read_text()
    command = [sys.executable, "-m", "drsai_backend", "serve", "team.yaml", "--reload", "--port", "0"]
    with out.open("w") as file:
        server = subprocess.Popen(command, cwd=tmp_path, env=clean_environment(), stdout=file, stderr=file)
    try:
        until(out, lambda: "Ctrl-C" in out.read_text())
        found = re.search(r"serves (http://\S+)", out.read_text())
        assert found is not None
        url = found[1]
        assert models(url) == ["assistant"]
        time.sleep(0.5)  # It has looked at the files, and the next times are later ones.
        team.write_text(f"{written}  writer: {{prompt: Write.}}\n")
        until(out, lambda: models(url) == ["assistant", "writer"])
        team.write_text(f"{written}  writer: {{promt: Write.}}\n")
        until(out, lambda: "did you mean 'prompt'?" in out.read_text() and "Waiting for a change" in out.read_text())
        team.write_text(f"{written}  poet: {{prompt: Write.}}\n")
        until(out, lambda: models(url) == ["assistant", "poet"])
        server.terminate()
        assert server.wait(30) == 0
    finally:
        server.kill()
        server.wait()
    with pytest.raises(httpx.ConnectError):
        models(url)


def until(out: Path, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 40
    while True:
        with contextlib.suppress(httpx.HTTPError):  # The server that was is gone, the next one not there.
            if is_so():
                return
        assert time.monotonic() < deadline, out.read_text()
        time.sleep(0.2)
