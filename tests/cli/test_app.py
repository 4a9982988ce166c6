"""The command as such: what it costs to ask for help, and how errors look."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import drsai_backend
from tests.support.commands import Commands, clean_environment

HEAVY = ("autogen_core", "autogen_agentchat", "openai", "sqlalchemy", "fastapi", "pydantic_settings")


@pytest.mark.parametrize("start", [["drsai"], ["python", "-m", "drsai_backend"]])
def test_the_version(tmp_path: Path, start: list[str]) -> None:
    program = Path(sys.executable).parent / start[0]
    done = subprocess.run(
        [program, *start[1:], "--version"], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"drsai {drsai_backend.__version__}\n", "")


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["threads", "--help"], ["keys", "--help"], ["serve", "--help"]]
)
def test_help_imports_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "from drsai_backend.cli import main\n"
        f"sys.argv = ['drsai', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_a_bare_command_shows_the_help(commands: Commands, tmp_path: Path) -> None:
    command = commands.run(cwd=tmp_path)
    assert command.wait() == 0
    for name in ("serve", "chat", "demo", "threads", "keys", "db"):
        assert name in command.stdout
    assert list(tmp_path.glob("*.db")) == []


def test_an_option_that_is_not_there(commands: Commands, tmp_path: Path) -> None:
    command = commands.run("serve", "--nonsense", cwd=tmp_path)
    assert command.wait() == 2
    assert "--nonsense" in command.stderr
    assert "Traceback" not in command.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--port", "0"],
        ["chat"],
        ["demo"],
        ["threads", "list"],
        ["keys", "list"],
        ["db", "show"],
        ["db", "upgrade"],
    ],
)
@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("mysql://me:hushhush@host/name", "the database URL (DRSAI_DATABASE_URL, --database-url) is of 'mysql'"),
        ("nonsense", "the database URL (DRSAI_DATABASE_URL, --database-url) is none: write sqlite:///file"),
        ("postgresql://me:hushhush@127.0.0.1:1/name", "the database cannot be reached: postgresql://me:***@127.0"),
    ],
)
def test_a_database_that_cannot_be_used(
    commands: Commands, tmp_path: Path, arguments: list[str], url: str, complaint: str
) -> None:
    command = commands.run(*arguments, "--database-url", url, cwd=tmp_path)
    assert command.wait() == (1 if url.startswith("postgresql") else 2)
    assert command.stderr.startswith(f"Error: {complaint}")
    assert command.stderr.count("\n") == 1
    assert "hushhush" not in command.stdout + command.stderr


@pytest.mark.parametrize("content", [b"this is no database, but it is long enough to be a header of one " * 10])
def test_a_file_that_is_no_database(commands: Commands, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "drsai.db").write_bytes(content)
    command = commands.run("threads", "list", cwd=tmp_path)
    assert command.wait() == 1
    assert command.stderr == f"Error: the file is not an SQLite database: sqlite:///{tmp_path}/drsai.db\n"
    assert (tmp_path / "drsai.db").read_bytes() == content


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("words", [["agents", "schema"], ["--version"]])
def test_a_disk_that_is_full(tmp_path: Path, words: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        command = [Path(sys.executable).parent / "drsai", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=clean_environment(), stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (1, "Error: the output cannot be written: No space left on device\n")
