"""What the READMEs show is what happens: their Python blocks are run, their shell lines are the real ones."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drsai_backend import DrSai, RunStatus
from drsai_backend.config import Settings
from drsai_backend.teams.registry import load_teams
from tests.examples.processes import ROOT, clean_environment, run_python
from tests.support.commands import Commands

READMES = ("README.md", "README.zh-CN.md")
FIRST = "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/drsai serve"
SECOND = ".venv/bin/pip install -e '.[dev]' && .venv/bin/pytest"


def blocks(readme: str) -> dict[str, str]:
    """The Python blocks of a README by their file name."""
    text = (ROOT / readme).read_text(encoding="utf-8")
    return dict(re.findall(r"^```python file=(\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


@contextmanager
def serving(directory: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """`drsai serve` in a process, ready; killed with SIGKILL at the end."""
    log = (directory / "server.log").open("ab")
    process = subprocess.Popen(
        [sys.executable, "-m", "drsai_backend", "serve", "--port", str(port)],
        cwd=directory,
        env={**clean_environment(), "PYTHONWARNINGS": "default"},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    log.close()
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                    break
            except (urllib.error.URLError, OSError):
                assert process.poll() is None, (directory / "server.log").read_text()
                assert time.monotonic() < deadline, (directory / "server.log").read_text()
                time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("readme", READMES)
def test_the_two_commands(readme: str) -> None:
    lines = (ROOT / readme).read_text(encoding="utf-8").splitlines()
    assert FIRST in lines
    assert SECOND in lines
    assert SECOND in (ROOT / ".ci/run").read_text(), "CI runs the second one as it is"


def test_both_show_the_same_code() -> None:
    assert blocks(READMES[0]) == blocks(READMES[1])
    names = {"resume.py", "responses.py", "my_teams.py", "careful.py", "in_code.py", "in_a_script.py"}
    assert set(blocks(READMES[0])) == names


@pytest.mark.parametrize("readme", READMES)
def test_every_python_block_is_one_of_those(readme: str) -> None:
    text = (ROOT / readme).read_text(encoding="utf-8")
    assert len(re.findall(r"^```python", text, re.MULTILINE)) == len(blocks(readme))


def test_resume_after_sigkill(commands: Commands, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    program = tmp_path / "resume.py"
    for name in ("resume.py", "responses.py"):
        (tmp_path / name).write_text(blocks("README.md")[name].replace("127.0.0.1:8000", f"127.0.0.1:{port}"))
    with serving(tmp_path, port):
        client = subprocess.Popen(
            [sys.executable, "-u", str(program)],
            cwd=tmp_path,
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert client.stdout is not None
        assert "Nice to meet you, Ada" in client.stdout.readline()
    with serving(tmp_path, port):
        output, _ = client.communicate("\n", timeout=60)
        assert "Your name is Ada." in run_python(commands, ["responses.py"], tmp_path)
    assert client.returncode == 0, output
    assert "Your name is Ada." in output


async def test_teams_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "my_teams.py").write_text(blocks("README.md")["my_teams.py"])
    teams = load_teams(str(tmp_path / "my_teams.py"))
    settings = Settings(demo_delay=0, openai_api_key=None, openai_base_url=None)
    async with DrSai(teams, f"sqlite:///{tmp_path / 'my.db'}", settings=settings) as drsai:
        result = await drsai.run("debate", "Tea is better than coffee.")
    assert result.status is RunStatus.COMPLETED
    assert [message["source"] for message in result.task_result["messages"]] == ["user", *["pro", "contra"] * 2]


async def test_tools_that_need_a_person(tmp_path: Path) -> None:
    (tmp_path / "careful.py").write_text(blocks("README.md")["careful.py"])
    teams = load_teams(str(tmp_path / "careful.py"))
    settings = Settings(demo_delay=0, openai_api_key=None, openai_base_url=None)
    async with DrSai(teams, f"sqlite:///{tmp_path / 'my.db'}", settings=settings) as drsai:
        asked = await drsai.run("agency", "Book a trip to Lisbon.", thread_id="t")
        assert asked.status is RunStatus.AWAITING_INPUT
        done = await drsai.run("agency", 'edit {"city": "Porto"}', thread_id="t")
    assert (done.status, "Booked: Porto." in done.text) == (RunStatus.COMPLETED, True)


def test_in_code(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "in_code.py").write_text(blocks("README.md")["in_code.py"])
    for _ in range(2):  # the second process goes on
        output = run_python(commands, ["in_code.py"], tmp_path)
        assert "Rain: worth a closer look" in output
        assert re.search(r"^completed \{'prompt_tokens': \d+", output, re.MULTILINE)


def test_without_asyncio(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "in_a_script.py").write_text(blocks("README.md")["in_a_script.py"])
    assert "Nice to meet you, Ada" in run_python(commands, ["in_a_script.py"], tmp_path)


def _anchors(document: Path) -> set[str]:
    """What its headings are found by, as GitHub makes it of them."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", each) for each in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in plain}


@pytest.mark.parametrize(
    "document",
    [
        *sorted(path.name for path in ROOT.glob("*.md")),
        "examples/README.md",
        "tests/README.md",
        *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
    ],
)
def test_links_lead_somewhere(document: str) -> None:
    source = ROOT / document
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", source.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            found = source.parent / target if target else source
            assert found.exists(), f"{document}: {target}"
            assert not anchor or anchor in _anchors(found), f"{document}: {target}#{anchor}"
