"""Writes docs/reference.md from the docstrings: `make reference`."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs/reference.md"
CHAPTERS = {
    "Running teams": ["DrSai", "TeamResult", "RunStatus", "RunLimits", "limited", "runs.ModelParams", "Answer"],
    "Without asyncio": ["sync.SyncDrSai", "sync.SyncHandle"],
    "A run under way": ["runs.Handle", "runs.RunHandle", "runs.InputMessage", "runs.OnBusy"],
    "Events of a run": [
        f"runs.{name}"
        for name in ("RunEvent", "RunStarted", "TextDelta", "ToolEvent", "ToolStarted", "ToolFinished", "MessageDone")
    ]
    + ["runs.RunEnded"],
    "What is read of threads and runs": [
        f"runs.views.{name}"
        for name in ("ThreadSummary", "ThreadDetail", "ThreadPage", "RunView", "RunPage", "StoredMessage")
    ],
    "Teams": [
        "RunContext",
        "teams.context.TeamFactory",
        "DrSaiGroupChat",
        "RoundRobinGroupChat",
        "SelectorGroupChat",
        "Swarm",
        "GraphFlow",
        "MagenticOneGroupChat",
    ],
    "Agents and tools": [
        "AssistantAgent",
        "DrSaiAgent",
        "DrSaiAgentMixin",
        "agents.RunBound",
        "requires_approval",
        "idempotent",
        "models.DefaultModelClient",
    ],
    "Storage": [
        "DatabaseManager",
        "database.SyncDatabaseManager",
        "datamodel.Record",
        "datamodel.json_field",
        "datamodel.long_text",
        "Thread",
        "UserInput",
        "encode_state",
        "decode_state",
    ],
}
HEAD = """# The Python interface

Made from the docstrings by `make reference`; do not edit. What stands with a dot is imported from the module before it:
`runs.ModelParams` is `from drsai_backend.runs import ModelParams`. Beside this: [settings](settings.md) for
`drsai_backend.config.Settings`, [database](database.md) for the tables, and [examples](../examples/README.md).
"""


def reference() -> str:
    """The whole document.

    Raises:
        ValueError: a public class or function has no docstring, or an attribute is described nowhere.
    """
    package = griffe.load("drsai_backend", search_paths=[ROOT], resolve_aliases=True)
    parts = [HEAD]
    for chapter, names in CHAPTERS.items():
        parts += [f"## {chapter}\n", *(_entry(name, package[name]) for name in names)]
    errors = package["errors"]
    parts += ["## Errors\n", _markdown(errors.docstring.value)]
    parts += [_entry(f"errors.{name}", item) for name, item in errors.classes.items()]
    return "\n".join(parts)


def _entry(name: str, item: griffe.Object | griffe.Alias) -> str:
    parts = [f"### {name}\n"]
    if item.is_attribute:
        parts.append(_code(f"{item.name} = {item.value}"))
    if item.is_function:
        parts.append(_code(_signature(item)))
    text = _docstring(item)
    if not item.is_class:
        return "\n".join([*parts, _markdown(text)])
    if "__init__" in item.members and "\nArgs:" in text:
        parts.append(_code(_signature(item["__init__"]).replace("__init__(self, ", f"{item.name}(")))
    parts.append(_markdown(text))
    public = [each for each in item.members.values() if each.is_public and not each.name.startswith("__")]
    if not re.search(r"class .*table=True\)", item.source):
        fields = [line for each in public if each.is_attribute for line in _field(each, text)]
        parts.append("\n".join([*fields, ""]) if fields else "")
    for each in public:
        if each.is_function:
            heading = f"#### {item.name}.{each.name}\n"
            parts += [heading, _code(_signature(each)), _markdown(_docstring(each))]
    return "\n".join(filter(None, parts))


def _field(item: griffe.Attribute, about: str) -> list[str]:
    """A list item; none for what the class tells about without a type."""
    described = re.search(r"description=(.*)\)$", str(item.value), re.DOTALL)
    text = ast.literal_eval(described[1]) if described else item.docstring.value if item.docstring else ""
    shared = re.fullmatch(r"_\w+\((DrSai\.\w+)\)", str(item.value))
    if shared:
        return [f"- `{item.name}(…)`: as `{shared[1]}`"]
    if not text and not re.search(rf"\b{item.name}\b", about) and not _plain(item):
        raise ValueError(f"{item.canonical_path} is described nowhere")
    if item.annotation is None and "instance-attribute" in item.labels:
        return [f"- `{item.name}`: {_inline(text)}"] if text else []
    shown = item.name if item.annotation is None else f"{item.name}: {item.annotation}"
    default = "" if item.value is None or "(" in str(item.value) else f" = {item.value}"
    return [f"- `{shown}{default}`" + (f": {_inline(text)}" if text else "")]


def _plain(item: griffe.Attribute) -> bool:
    """Whether its name says it: ids and times, and what an error or an enum sets."""
    return item.annotation is None and item.value is not None or item.name.endswith(("_id", "_at", "seq"))


def _docstring(item: griffe.Object | griffe.Alias) -> str:
    if item.docstring is None:
        raise ValueError(f"{item.canonical_path} has no docstring")
    return item.docstring.value


def _signature(function: griffe.Function) -> str:
    """As the source has it, without its colon."""
    source = textwrap.dedent(function.source)
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    end = node.body[0]
    lines = source.splitlines()[node.lineno - 1 : end.lineno - 1 or None]
    return "\n".join(lines).rstrip().removesuffix(":")


def _code(text: str) -> str:
    return f"```python\n{text}\n```\n"


def _inline(text: str) -> str:
    return " ".join(text.split())


def _markdown(docstring: str) -> str:
    """Google's sections as lists, and `::` blocks as code."""
    text = re.sub(r"^::\n\n((?: {4}.*\n?|\n(?= {4}))+)", _fenced, docstring, flags=re.MULTILINE)
    text = re.sub(r"^([A-Z]\w+(?: \([\w ]+\))?):\n((?: {4}.*\n?)+)", _section, text, flags=re.MULTILINE)
    return f"{text.rstrip()}\n"


def _fenced(found: re.Match[str]) -> str:
    code = textwrap.dedent(found[1]).strip("\n")
    return f"```{'text' if '├' in code else 'python'}\n{code}\n```\n"


def _section(found: re.Match[str]) -> str:
    body = textwrap.dedent(found[2]).rstrip()
    if found[1] != "Returns":
        body = re.sub(r"^(\S[^:]*): ", lambda item: f"- {_names(item[1])}: ", body, flags=re.MULTILINE)
        body = re.sub(r"^ +", "  ", body, flags=re.MULTILINE)
    return f"**{found[1]}**\n\n{body}\n\n"


def _names(text: str) -> str:
    return re.sub(r"(?<!\()\b\w+\b(?![^(]*\))", r"`\g<0>`", text)


if __name__ == "__main__":
    REFERENCE.write_text(reference(), encoding="utf-8")
