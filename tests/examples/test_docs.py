"""Facts of the documents that the code knows better."""

from __future__ import annotations

import ast
import json
import pkgutil
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from pydantic import ByteSize, SecretStr

import drsai_backend
from drsai_backend import DrSai, errors
from drsai_backend.config import Settings
from drsai_backend.datamodel import JournalEntry
from drsai_backend.datamodel.audit import Action
from drsai_backend.definitions import read_definitions
from drsai_backend.state.codec import decode_value
from drsai_backend.strategies import Router
from tests.clients.table import table, table_of_open_webui
from tests.examples.processes import ROOT, clean_environment


def _variable(name: str) -> str:
    alias = Settings.model_fields[name].validation_alias
    return alias if isinstance(alias, str) else f"DRSAI_{name.upper()}"


def _shown(value: Any) -> str:
    if value is None or value == [] or value == {}:
        return ""
    if isinstance(value, list):
        return f"`{','.join(map(str, value))}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, ByteSize):
        return f"`{value.human_readable().replace('.0MiB', 'MiB').replace('.0KiB', 'KiB')}`"
    return f"`{value}`"


def test_every_act_of_the_audit_log_is_named() -> None:
    [table] = re.findall(r"\| action \|.*?\n\n", (ROOT / "docs/audit.md").read_text(), re.DOTALL)
    named = [name for row in table.strip().splitlines()[2:] for name in re.findall(r"`([\w.]+)`", row.split("|")[1])]
    assert sorted(named) == sorted(Action)


def test_settings_name_every_variable_and_its_default() -> None:
    text = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(\w+)` \| (`[^`]+`|) ?\|", text, re.MULTILINE))
    fields = Settings.model_fields
    assert listed == {
        _variable(name): _shown(field.get_default(call_default_factory=True)) for name, field in fields.items()
    }


def test_settings_defaults_hold_no_secret() -> None:
    assert not any(isinstance(field.default, SecretStr) for field in Settings.model_fields.values())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's configuration and pages, written once."""
    folder = tmp_path_factory.mktemp("site")
    runpy.run_path(str(ROOT / "docs/make_site.py"))["write"](folder)
    return folder


@pytest.mark.xdist_group("site")
def test_the_page_of_the_routes_has_each_of_them(site: Path) -> None:
    made = (site / "pages/routes.md").read_text(encoding="utf-8")
    document = DrSai(database_url="sqlite://").app().openapi()
    routes = [f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods]
    assert sorted(re.findall(r"^### `(.*)`\n\n\w", made, re.MULTILINE)) == sorted(routes)
    assert len(routes) > 60, "or nothing was compared"


def test_http_says_where_each_group_of_routes_is_told() -> None:
    text = (ROOT / "docs/http.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|.*\]\(", text[: text.index("\n## ")], re.MULTILINE)
    told = [path.rstrip("…") for row in rows for path in re.findall(r"`(?:POST )?(/.*?)`", row)]
    paths = DrSai(database_url="sqlite://").app().openapi()["paths"]
    assert [path for path in paths if not path.startswith(tuple(told))] == []
    others = {"/mcp", "/console"}  # They are not in the document.
    assert [each for each in told if each not in others and not any(path.startswith(each) for path in paths)] == []


def test_http_names_every_error() -> None:
    text = (ROOT / "docs/http.md").read_text(encoding="utf-8")
    codes = {cls.code for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.DrSaiError)}
    assert codes - set(re.findall(r"`(\w+)`", text)) == set()


def test_the_packages_of_the_architecture_are_those_there_are() -> None:
    text = (ROOT / "docs/architecture/packages.md").read_text(encoding="utf-8")
    block = re.search(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    told = {
        entry.split()[0]: set(re.findall(r"\b(\w+)/", entry))
        for entry in re.split(r"\n(?=\w)", block[1])
        if entry.strip()
    }
    package = ROOT / "drsai_backend"
    there: dict[str, set[str]] = {path.stem: set() for path in package.glob("*.py") if not path.stem.startswith("__")}
    there |= {
        path.parent.name: {each.parent.name for each in path.parent.glob("*/__init__.py")}
        for path in package.glob("*/__init__.py")
    }
    assert told == there


def test_the_modules_that_the_architecture_names_are_there() -> None:
    pages = [*(ROOT / "docs/architecture").glob("*.md"), *(ROOT / "docs/decisions").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    packages = [path.stem for path in (ROOT / "drsai_backend").iterdir()]
    names = [name for name in re.findall(r"`(\w+(?:\.\w+)+)`", text) if name.partition(".")[0] in packages]
    assert len(names) > 40
    for name in names:
        assert pkgutil.resolve_name(f"drsai_backend.{name}") is not None, name


async def test_the_journal_entry_of_the_architecture_is_a_real_one() -> None:
    text = (ROOT / "docs/architecture/state.md").read_text(encoding="utf-8")
    payload = re.findall(r"^```text\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)[0]
    decoded = json.loads(re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0])
    assert decode_value(payload) == decoded
    settings = Settings(demo_delay=0, openai_api_key=None, openai_base_url=None)
    async with DrSai(database_url="sqlite://", settings=settings) as drsai:
        await drsai.run("writers", "Write about rain.")
        entries = await drsai.db.get(JournalEntry, filters={"turn": 2})
    assert [decode_value(entry.payload) for entry in entries] == [decoded]


@pytest.mark.xdist_group("site")
def test_the_page_of_the_python_interface_has_each_public_name(site: Path) -> None:
    made = (site / "pages/reference.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^### (?:\w+\.)*(\w+)$", made, re.MULTILINE))
    assert set(drsai_backend.__all__) - headings == set()


@pytest.mark.parametrize("folder", ["architecture", "decisions"])
def test_an_index_lists_each_page_of_its_folder(folder: str) -> None:
    listed = re.findall(r"^\| \[.*?\]\(([^)]*)\)", (ROOT / f"docs/{folder}/index.md").read_text(), re.MULTILINE)
    assert sorted(["index.md", *listed]) == sorted(path.name for path in (ROOT / f"docs/{folder}").iterdir())


def test_a_decision_has_its_number_a_date_and_a_reason() -> None:
    pages = sorted((ROOT / "docs/decisions").glob("0*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    index = (ROOT / "docs/decisions/index.md").read_text(encoding="utf-8")
    for page in pages:
        text = page.read_text(encoding="utf-8")
        told = re.match(
            r"# (.*)\n\nDecided on (2\d{3}-\d\d-\d\d)\.\n\n## Decision\n\n\S.*## Reason\n\n\S", text, re.DOTALL
        )
        assert told is not None, page.name
        assert f"| [{page.name[:4]}]({page.name}) | {told[2]} | {told[1]} |" in index


@pytest.mark.xdist_group("site")
def test_the_site_has_each_page_and_its_navigation_all_but_that_of_the_tests(site: Path) -> None:
    there = {path.relative_to(site / "pages").as_posix() for path in (site / "pages").rglob("*.md")}
    assert {"index.md", "http.md", "architecture/run.md", "reference.md", "routes.md", "changelog.md"} <= there
    config = tomllib.loads((site / "zensical.toml").read_text(encoding="utf-8"))
    groups = config["project"]["nav"]
    assert [name for group in groups for name in group] == ["Start", "Use", "Operate", "Extend", "Reference"]
    assert there - set(re.findall(r"[\w/-]+\.md", json.dumps(groups))) == {"tests.md"}
    for page in there:
        text = re.sub(r"^```.*?^```$", "", (site / "pages" / page).read_text(encoding="utf-8"), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)#\s]+)", text):
            assert target.startswith("http") or (site / "pages" / page).parent.joinpath(target).exists(), target


def test_the_code_about_relationships_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs/database.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python file=relations.py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "relations.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "relations.py"], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        "text - text was changed by somebody else since it was read",
        "garden has 3 items",
        "0 items left",
    ], done.stderr


def test_the_tests_that_security_names_are_there() -> None:
    text = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 30
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not re.search(rf"^(?:async )?def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert missing == []


def test_clients_has_the_tables_of_what_the_real_clients_are_expected_to_see() -> None:
    text = (ROOT / "docs/clients.md").read_text(encoding="utf-8")
    for made in (table(), table_of_open_webui()):
        assert made in text, "python -m tests.clients.table writes them"


def test_the_flow_of_flows_is_one(tmp_path: Path) -> None:
    """As a file has it, `no:` without quotes among its keys."""
    [flow] = re.findall(r"^```yaml\n(flows:\n.*?)^```$", (ROOT / "docs/flows.md").read_text(), re.MULTILINE | re.DOTALL)
    head = "agents:\n  desk:\n    tools: [{registered: book}]\n    strategy:\n      kind: router\n"
    (tmp_path / "desk.yaml").write_text(head + indent(flow, " " * 6))
    router = read_definitions(str(tmp_path / "desk.yaml")).agents["desk"].strategy
    assert isinstance(router, Router)
    assert router.flows["booking"].position("day") == 0
    assert router.flows["booking"].steps[3].goes_to == {"no": "day"}


def _docstrings() -> Iterator[tuple[str, str]]:
    """Each module of the package, and its docstring."""
    for path in sorted((ROOT / "drsai_backend").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def test_the_docstring_of_a_module_begins_with_what_the_module_is() -> None:
    begun = re.compile(r"(?:What|Who|Whom|Whose|Which|How|Where|When|Whether|Why|For|From|With|Between|Around)\b")
    assert [module for module, text in _docstrings() if begun.match(text)] == []


# Of the first sentences of modules. A word that is a noun as well (runs, calls, lists, writes) tells no sentence.
VERB = re.compile(
    r"\b(?:"
    r"are|is|has|have|do|does|may|says|say|tells|tell|asks|ask|makes|make|gives|give|"
    r"gets|get|takes|take|puts|put|sends|send|serves|serve|brings|carries|keeps|keep|holds|"
    r"hold|finds|find|shows|show|reads|encrypts|removes|executes|execute|knows|know|decides|"
    r"decide|chooses|becomes|become|begins|comes|come|goes|leads|looks|stands|stand|stay|"
    r"leave|leaves|lets|waits|wait|happens|belong|differ|join|surrounds|forbids"
    r")\b"
)
CLAUSE = re.compile(
    r"\b(?:that|which|who|whose|whom|what|where|when|while|whether|as|how|why|if|because|although|than)\b|:",
    re.IGNORECASE,
)


def test_the_docstring_of_a_module_is_a_sentence() -> None:
    """Its subject and its verb come before the first colon, and before any clause in it."""

    def is_sentence(text: str) -> bool:
        first = re.sub(r"`[^`]*`", "X", " ".join(text.partition("\n\n")[0].split()))
        subject_and_verb = re.split(r"[.?!](?: |$)", CLAUSE.split(first)[0])[0]
        return VERB.search(subject_and_verb, subject_and_verb.find(" ")) is not None

    fragments = ["Digest of a request: it is short.", "Runs of teams.", "The one who asks.", "It. Is."]
    assert [text for text in fragments if is_sentence(text)] == []
    assert is_sentence("The digest of a request is equal for its retries.")
    assert [module for module, text in _docstrings() if not is_sentence(text)] == []


def test_the_docstring_of_a_function_begins_with_a_word_that_can_begin_a_sentence() -> None:
    """It is "Return what …", not "What …". Properties are named as attributes are; and what is given to a decorator is
    shown to others: routes, commands, tools."""
    begun = re.compile(
        r"(?:What|Who|Whom|Whose|Which|How|Where|When|Why|None|Nothing|Of|As|From|By|Around|Those|Its|All)\b|Raises "
    )
    others = [
        f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"
        for path in sorted((ROOT / "drsai_backend").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and begun.match(ast.get_docstring(node) or "")
        and not any(isinstance(each, ast.Call) or "property" in ast.unparse(each) for each in node.decorator_list)
    ]
    assert others == []
