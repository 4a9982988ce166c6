"""Every block of the documents stands alone: programs run, commands have the options that they are given, data is read
by what reads it.

Other modules run the blocks of extending.md, embedding.md and database.md, of the READMEs, and the shell lines of
http.md; `tests/clients/contracts.py` those of clients.md that need another client's package.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from typer.main import get_command

from drsai_backend import DrSai
from drsai_backend.cli.app import app
from drsai_backend.definitions import DefinitionPolicy, load
from drsai_backend.models.prices import load_prices
from drsai_backend.models.profiles.load import load_profiles
from drsai_backend.teams.context import problems
from drsai_backend.tools.mcp.servers import McpServers
from tests.clients.environments import DOCUMENTED
from tests.examples.processes import ROOT, run_python
from tests.support.commands import Commands

_RUN_ELSEWHERE = {
    "python": {"extending.md", "embedding.md", "database.md", "README.md", "README.zh-CN.md"},
    "sh": {"http.md"},
}
_TEXTS = {"", "text", "diff", "sql"}
"""Pictures, formats, changes (`test_extending`), and statements for a database of one's own (`test_views`)."""
AGENT = "autogen_agentchat.agents.AssistantAgent"


class Block(NamedTuple):
    """A fenced block: where it begins, the heading above it, its language, and its text."""

    file: str
    line: int
    heading: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def _blocks() -> Iterator[Block]:
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        heading, fence, held = "", None, list[str]()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if fence is None and line.startswith("```"):
                fence, held = (number, line[3:].split(" ")[0]), []
            elif fence is not None and line == "```":
                yield Block(path.name, fence[0], heading, fence[1], "\n".join(held) + "\n")
                fence = None
            elif fence is not None:
                held.append(line)
            elif line.startswith("#"):
                heading = line.lstrip("# ")
        assert fence is None, f"{path.name}: a block is not closed"


BLOCKS = list(_blocks())


def blocks(*languages: str) -> list[Any]:
    return [
        pytest.param(block, id=str(block))
        for block in BLOCKS
        if block.language in languages
        and block.file not in _RUN_ELSEWHERE.get(block.language, ())
        and not (block.language in ("python", "js") and block.heading in DOCUMENTED)
    ]


def test_every_language_is_one_that_is_run() -> None:
    assert {block.language for block in BLOCKS} - _TEXTS == {"python", "sh", "bash", "yaml", "json", "toml", "js"}
    assert {block.heading for block in BLOCKS if block.language == "js"} <= DOCUMENTED.keys()


# --- programs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where a server with the built-in teams is."""
    return commands.start("serve", "--port", "0", cwd=tmp_path_factory.mktemp("served")).base_url().removesuffix("/v1")


def here(text: str, request: pytest.FixtureRequest) -> str:
    """The text, with a server that runs in place of the documents' one, if it asks one."""
    if "127.0.0.1:8000" not in text:
        return text
    return text.replace("http://127.0.0.1:8000", request.getfixturevalue("server"))


@pytest.mark.parametrize("block", blocks("python"))
def test_a_program_runs(block: Block, tmp_path: Path, commands: Commands, request: pytest.FixtureRequest) -> None:
    if "bubblewrap" in block.text and shutil.which("bwrap") is None:
        pytest.skip("WITHOUT BUBBLEWRAP: apt-get installs it, as .ci/run does")
    if "from notes import" in block.text:
        shutil.copytree(ROOT / "examples/notes", tmp_path / "notes", ignore=shutil.ignore_patterns("__pycache__"))
    printed = run_python(commands, ["-c", here(block.text, request)], tmp_path)
    assert bool(printed) == ("print(" in block.text)


# --- commands --------------------------------------------------------------------------------------------------------


_CURL = re.compile(r"""^curl (?:.|\n)*?['"]$""", re.MULTILINE)


def _lines(text: str) -> Iterator[list[str]]:
    """The words of each command, without what a shell does beside it."""
    for line in _CURL.sub("", text).splitlines():
        line = re.sub(r"^export \w+=\$\((.*)\)$", r"\1", re.sub(r"\s#.*$", "", line))
        for command in re.split(r";|&&|\|", line):
            words = shlex.split(re.sub(r"\s[<>].*$", "", command))
            while words and re.fullmatch(r"\w+=.*", words[0]):
                words = words[1:]
            yield words


def _parse(words: list[str]) -> None:
    """Read the options and arguments of `drsai …` as the command line does, and call nothing."""
    command: Any = get_command(app)
    context, name, rest = None, "drsai", words
    while True:
        context = command.make_context(name, list(rest), parent=context)
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        name, command, rest = command.resolve_command(context, rest)
        assert command is not None, name


@pytest.mark.parametrize("block", blocks("sh", "bash"))
def test_a_command_takes_the_options_that_it_is_given(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for words in _lines(block.text):
        if words and words[0].removeprefix(".venv/bin/") == "drsai":
            _parse(words[1:])


@pytest.mark.skipif(shutil.which("curl") is None, reason="WITHOUT CURL: apt-get installs it, as .ci/run does")
@pytest.mark.parametrize("block", [each for each in blocks("sh", "bash") if "curl" in each.values[0].text])
def test_a_request_is_understood(block: Block, server: str, tmp_path: Path) -> None:
    """It comes to a route that takes its body. A tool's credentials cannot be tried here, a server
    that is named is not there, and hooks need a secret."""
    [call] = _CURL.findall(block.text)
    done = subprocess.run(
        ["bash", "-c", call.replace("http://127.0.0.1:8000", server) + " -s -w '\\n%{http_code}'"],
        cwd=tmp_path,
        env={**os.environ, "DRSAI_API_KEY": "unused", "URL": server, "KEY": "unused"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer, status = done.stdout.rsplit("\n", 1)
    told = {
        "mcp.md": "there is no MCP server 'search'",
        "tools.md": "the credentials were tried",
        "webhooks.md": "needs a secret that signs",
    }
    refused = told.get(block.file, "")
    assert (status in ("200", "201", "202")) == (not refused), answer
    assert refused in answer


# --- data ------------------------------------------------------------------------------------------------------------


def _component(data: dict[str, Any], path: Path) -> None:
    """Fields of an agent's component config."""
    assert problems({"provider": AGENT, "config": {"name": "one", **data}}) == []


def _flows(data: dict[str, Any], path: Path) -> None:
    """The flows of a router that has the tool which they call, as the file has them."""
    flows = path.read_text("utf-8").replace("tool: book, arguments: {", "tool: current_time, arguments: {zone: UTC, ")
    desk = (
        f"prompt: You are the desk.\ntools: [current_time]\nstrategy:\n  kind: router\n{textwrap.indent(flows, '  ')}"
    )
    path.write_text(f"agents:\n  desk:\n{textwrap.indent(desk, '    ')}")
    load(str(path), DefinitionPolicy())


_READ_BY: dict[str, Callable[[dict[str, Any], Path], object]] = {
    "agents": lambda _, path: load(str(path), DefinitionPolicy()),
    "crew": lambda _, path: load(str(path), DefinitionPolicy()),
    "currency": lambda _, path: load_prices(path),
    "default": lambda _, path: load_profiles(path),
    "flows": _flows,
    "mcpServers": lambda _, path: McpServers.read(path),
    "model_client": _component,
    "model_context": _component,
    "model_list": lambda *_: None,  # of LiteLLM's proxy
    "provider": lambda data, path: _component({"workbench": [data]}, path),
    "scrape_configs": lambda *_: None,  # of Prometheus
    "workbench": _component,
}
"""What reads a file, by its first key."""


@pytest.mark.parametrize("block", blocks("yaml"))
def test_data_is_read_by_what_reads_it(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_TOKEN", "s")
    file = tmp_path / "data.yaml"
    file.write_text(block.text)
    data = yaml.safe_load(block.text)
    _READ_BY[next(iter(data))](data, file)


@pytest.mark.parametrize("block", blocks("json"))
def test_json_is_json(block: Block) -> None:
    assert json.loads(re.sub(r", …(?=[\n}\]])", "", block.text)) is not None


@pytest.mark.parametrize("block", blocks("toml"))
def test_toml_is_toml(block: Block) -> None:
    assert tomllib.loads(block.text)


# --- the files of deploy/, and the way through the documents ---------------------------------------------------------


def test_nginx_passes_on_all_paths_but_those_of_one_server() -> None:
    text = (ROOT / "deploy/nginx.conf").read_text(encoding="utf-8")
    [passed] = re.findall(r"location ~ (\S+) {", text)
    paths = {route.path for route in DrSai(database_url="sqlite://").app().routes}
    assert {path for path in paths if not re.match(passed, path)} == {
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/docs",
        "/docs/static",
        "/redoc",
    }


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_the_readme_names_every_page(readme: str) -> None:
    text = (ROOT / readme).read_text(encoding="utf-8")
    index = text[text.rindex("\n## ") :]
    named = set(re.findall(r"\(docs/([\w/-]+\.md)", index))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert named == pages | {"architecture/index.md", "decisions/index.md"}


@pytest.mark.parametrize("document", [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], ids=lambda path: path.name)
def test_the_files_that_it_names_are_there(document: Path) -> None:
    """But for the changelog's, which names what was."""
    named = re.findall(
        r"`((?:tests|drsai_backend|migrations|examples|benchmarks|deploy|\.ci)/[\w./-]+)", document.read_text("utf-8")
    )
    missing = [path for path in named if not (ROOT / path).exists() and not path.startswith("drsai_backend/features/<")]
    assert document.name == "CHANGELOG.md" or missing == []
