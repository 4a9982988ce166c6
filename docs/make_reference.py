"""The page of the Python interface is made of the docstrings: `reference()`."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = {
    "Running teams": "DrSai caller.Caller caller.RunOptions TeamResult RunStatus RunLimits limited runs.ModelParams "
    "Answer ClientTools ClientTool ToolOutput client_tools answered_by shows stop_on_disconnect",
    "Without asyncio": "sync.SyncDrSai sync.SyncHandle",
    "A run under way": "runs.Handle runs.OnBusy runs.OnQuestion",
    "Events of a run": "runs.RunEvent runs.RunStarted runs.TextDelta runs.ToolEvent runs.ToolStarted runs.ToolFinished "
    "runs.MessageDone runs.QueuedBehind runs.RunEnded",
    "What is read of threads and runs": "runs.threads.views.ThreadSummary runs.threads.views.ThreadDetail "
    "page.Page runs.threads.views.RunView runs.threads.views.InputRequestView runs.threads.views.StoredMessage "
    "runs.threads.views.ShareView runs.threads.views.SharedThread datamodel.Right",
    "Teams": "RunContext teams.context.TeamFactory DrSaiGroupChat RoundRobinGroupChat SelectorGroupChat Swarm "
    "GraphFlow MagenticOneGroupChat PlanExecuteTeam ReflexionTeam RouterTeam RouterOptions Flow",
    "Agents and tools": "AssistantAgent DrSaiAgent ToolAgent ReactAgent DrSaiAgentMixin agents.RunBound tool "
    "Depends dependency_overrides DrSaiMemory DrSaiKnowledge "
    "FileOutput ToolBase ToolIdentity ToolOptions ToolRun RegisteredTools BuiltinTools builtin_tools "
    "requires_approval idempotent TaskComplete "
    "models.DefaultModelClient models.ModelProvider",
    "Who asks": "access.principal.Principal access.principal.Scope access.principal.ROLES api.auth.Identify "
    "api.auth.allowed access.key_store.ApiKeys access.key_store.NewKey",
    "Extensions": "features.base.Extension features.base.Host api.joining.Web database.hooks.EndedRun",
    "Storage": "DatabaseManager database.SyncDatabaseManager datamodel.Record datamodel.json_field datamodel.long_text "
    "Thread UserInput encode_state decode_state",
}
HEAD = """# The Python interface

Made of the docstrings. What stands with a dot is imported from the module before it:
`runs.ModelParams` is `from drsai_backend.runs import ModelParams`. Beside this: [settings](settings.md) for
`drsai_backend.config.Settings`, [database](database.md) for the tables, and [examples](examples.md). A
`JsonObject` is a `dict[str, Any]` that holds JSON.
"""


def reference() -> str:
    """Return the whole page.

    Raises:
        ValueError: a public class or function has no docstring, or an attribute is described nowhere.
    """
    package = griffe.load("drsai_backend", search_paths=[ROOT], resolve_aliases=True)
    # Without its stub: what that adds is told where it is waited for.
    sync = ROOT / "drsai_backend/sync.py"
    known = {"modules_collection": package.modules_collection, "lines_collection": package.lines_collection}
    package.set_member("sync", griffe.visit("sync", sync, sync.read_text(encoding="utf-8"), parent=package, **known))
    parts = [HEAD]
    for chapter, names in CHAPTERS.items():
        parts += [f"## {chapter}", *(part for name in names.split() for part in _entry(name, package[name]))]
    errors = package["errors"]
    parts += ["## Errors", _markdown(errors.docstring.value)]
    parts += [part for name, error in errors.classes.items() for part in _entry(f"errors.{name}", error)]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _entry(name: str, item: griffe.Object | griffe.Alias) -> list[str]:
    text = _docstring(item)
    if item.is_attribute:
        return [f"### {name}", _code(item.source), _markdown(text)]
    if item.is_function:
        return [f"### {name}", _code(_signature(item)), _markdown(text)]
    parts = [f"### {name}"]
    if "\nArgs:" in text:
        arguments = re.sub(r"^def __init__\((\s*)self,\s*", r"(\1", _signature(item["__init__"]))
        parts.append(_code(item.name + arguments.removesuffix(" -> None")))
    listed = re.search(r"^Attributes:\n((?: {4}.*\n?)+)\n?", text, re.MULTILINE)
    attributes = _items(listed[1]) if listed else {}
    parts.append(_markdown(text.replace(listed[0], "") if listed else text))
    public = [each for each in item.members.values() if each.is_public and not each.name.startswith("__")]
    if not re.match(r"class .*table=True\)", item.source):
        fields = [_field(each, attributes.get(each.name), text) for each in public if each.is_attribute]
        fields = [*_keywords(item), *(field for field in fields if field)]
        parts += ["**Attributes**", "\n".join(fields)] if fields else []
    for each in public:
        if each.is_function:
            parts += [f"#### {item.name}.{each.name}", _code(_signature(each)), _markdown(_docstring(each))]
    return parts


def _keywords(item: griffe.Object | griffe.Alias) -> list[str]:
    """What the first line of a class says of it: an error's code and status."""
    node = ast.parse(textwrap.dedent(item.source)).body[0]
    assert isinstance(node, ast.ClassDef)
    return [f"- `{each.arg} = {ast.unparse(each.value)}`" for each in node.keywords if each.arg != "table"]


def _field(item: griffe.Attribute, meaning: str | None, about: str) -> str:
    """A list item. `about` is the docstring of the class, which may tell of several together."""
    value = "" if item.value is None else str(item.value)
    arguments = getattr(item.value, "arguments", ())
    given = {each.name: str(each.value) for each in arguments if isinstance(each, griffe.ExprKeyword)}
    if "description" in given:
        meaning = ast.literal_eval(given["description"])
    elif item.docstring is not None:
        meaning = item.docstring.value
    constant = item.annotation is None and "class-attribute" in item.labels
    inside = item.annotation is None and not constant  # Set by `__init__`.
    told = re.search(rf"\b{item.name}\b", about) or item.name.endswith(("_id", "_at", "seq"))
    if meaning is None and not told and not constant:
        raise ValueError(f"{item.canonical_path} is described nowhere")
    if (inside and meaning is None) or item.name.startswith("component_"):
        return ""
    value = given.get("default", value)
    shown = item.name if item.annotation is None else f"{item.name}: {item.annotation}"
    shown += "" if inside or not value or "(" in value else f" = {value}"
    return f"- `{shown}`" + (f": {_joined(meaning)}" if meaning else "")


def _docstring(item: griffe.Object | griffe.Alias) -> str:
    if item.docstring is None:
        raise ValueError(f"{item.canonical_path} has no docstring")
    return item.docstring.value


def _signature(function: griffe.Object | griffe.Alias) -> str:
    """As the source has it, without its colon and what is said to a linter."""
    source = textwrap.dedent(function.source)
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    lines = source.splitlines()[node.lineno - 1 : node.body[0].lineno - 1]
    return re.sub(r"  # noqa: .*", "", "\n".join(lines)).rstrip().removesuffix(":")


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _joined(text: str) -> str:
    return " ".join(text.split())


def _markdown(docstring: str) -> str:
    """Google's sections as lists, and `::` blocks as code."""
    text = re.sub(r"(.?)::\n\n((?: {4}.*\n?|\n(?= {4}))+)", _fenced, docstring)
    text = re.sub(r"^([A-Z]\w+(?: \([\w ]+\))?):\n((?: {4}.*\n?)+)", _section, text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text)


def _fenced(found: re.Match[str]) -> str:
    before, code = found[1] and f"{found[1]}:", textwrap.dedent(found[2]).strip("\n")
    language = "text" if "├" in code else "yaml" if re.match(r"\w+:", code) else "python"
    return f"{before}\n\n```{language}\n{code}\n```\n"


def _section(found: re.Match[str]) -> str:
    if found[1] == "Returns":
        return f"**{found[1]}**: {_joined(found[2])}\n\n"
    items = [f"- {_names(name)}: {text}" for name, text in _items(found[2]).items()]
    return "\n".join([f"**{found[1]}**\n", *items, "\n"])


def _items(body: str) -> dict[str, str]:
    """The `name: text` items of a section."""
    items = re.findall(r"^(\S[^:]*): (.*(?:\n +.*)*)", textwrap.dedent(body), re.MULTILINE)
    return {name: _joined(text) for name, text in items}


def _names(text: str) -> str:
    return re.sub(r"\b\w+\b(?![^(]*\))", r"`\g<0>`", text)
