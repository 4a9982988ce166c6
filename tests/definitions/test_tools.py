"""Tools of a definition: options, approvals and fixed arguments, and what is told of those that cannot be."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from autogen_core.tools import FunctionTool
from jsonschema import Draft202012Validator

from drsai_backend import tool
from drsai_backend.agents.contexts import CompactionContext
from drsai_backend.definitions import DefinitionError, DefinitionPolicy, json_schema, load, read_definitions
from drsai_backend.definitions.build import Builder
from drsai_backend.definitions.policy import NOTHING_ALLOWED
from drsai_backend.definitions.schema import McpTools
from drsai_backend.definitions.stored.document import checked
from drsai_backend.errors import InvalidRequest
from drsai_backend.tools import Approval
from tests.support.scripted import ScriptedClient

HTTP: dict[str, Any] = {
    "name": "ask",
    "description": "Asks.",
    "parameters": [{"name": "city", "type": "string", "required": True}],
    "endpoint": {"url": "https://api.example.com/{city}"},
}


@tool
async def shout(text: str, loud: int = 1) -> str:
    """Say it loud."""
    return text.upper() * loud


async def _whisper(text: str) -> str:
    return text


whisper = FunctionTool(_whisper, "Whisper.")

# An entry, and of what is told: the field, and a part of the text.
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "a placeholder": (
        {"http": {**HTTP, "endpoint": {"url": "https://api.example.com/{town}"}}},
        "http",
        "the placeholder {town} is no parameter",
    ),
    "an option": ({"builtin": "file_reader", "options": {"foldrs": []}}, "options.foldrs", "It has: folders"),
    "the value of one": ({"builtin": "file_reader", "options": {"folders": ["/no"]}}, "options.folders", "no folder"),
    "options of none": ({"builtin": "calculator", "options": {"x": 1}}, "options", "it has no options"),
    "an approver in options": (
        {"builtin": "http_request", "options": {"requires_approval": {"by": "bob"}}},
        "options.requires_approval",
        "names nobody",
    ),
    "an option of a server": ({"mcp": "x", "options": {"timout": 3}}, "options.timout", "did you mean 'timeout'?"),
    "arguments of what is not offered": (
        {"mcp": "x", "include": ["a"], "arguments": {"b": {"c": 1}}},
        "",
        "`arguments` are for 'b', which is not offered",
    ),
    "an approver": ({"builtin": "weather", "requires_approval": {"by": "bob"}}, "requires_approval", "names nobody"),
    "a field of approvals": (
        {"registered": "x", "requires_approval": {"byy": "x"}},
        "requires_approval.byy",
        "no such",
    ),
    "a deadline": ({"mcp": "x", "requires_approval": {"deadline": 0}}, "requires_approval.deadline", "0 seconds"),
    "a word for an approval": (
        {"mcp": "x", "requires_approval": "maybe"},
        "requires_approval",
        "must be true or false",
    ),
    "an approver of HTTP": (
        {"http": {**HTTP, "requires_approval": {"by": "bob"}}},
        "http.requires_approval",
        "names nobody",
    ),
    "an argument": (
        {"builtin": "weather", "arguments": {"plaice": "Oslo"}},
        "arguments.plaice",
        "did you mean 'place'?",
    ),
    "the value of an argument": (
        {"builtin": "weather", "arguments": {"place": 3}},
        "arguments.place",
        "3 is not of type 'string'",
    ),
    "an argument of HTTP": ({"http": HTTP, "arguments": {"town": "Oslo"}}, "arguments.town", "there are city"),
    "an argument of a function": (
        {"python": "tests.definitions.test_tools:shout", "arguments": {"loud": "very"}},
        "arguments.loud",
        "is not of type 'integer'",
    ),
    "AutoGen's own": (
        {"python": "tests.definitions.test_tools:whisper", "arguments": {"text": "x"}},
        "python",
        "for functions and for tools of this package",
    ),
    "arguments of an agent": ({"agent": "bob", "arguments": {"task": "x"}}, "arguments", "there is no such field"),
    "a variable that is a parameter": (
        {"http": {**HTTP, "context_vars": {"city": "Oslo"}}},
        "http",
        "`context_vars`: city is a parameter, too",
    ),
    "a variable of the system": (
        {"http": {**HTTP, "context_vars": {"userId": "x"}}},
        "http",
        "`context_vars`: userId is filled in by the system",
    ),
    "a variable that is nowhere": (
        {"http": {**HTTP, "context_vars": {"bot": "x"}}},
        "http",
        "`context_vars`: bot is nowhere: write {bot}",
    ),
}
RIGHT: list[Any] = [
    {"builtin": "web_fetch", "options": {"max_bytes": 1000}, "requires_approval": True},
    {"builtin": "weather", "arguments": {"place": "Oslo"}},
    {"builtin": "http_request", "options": {"methods": ["POST"], "requires_approval": {"by": "role:x", "deadline": 9}}},
    {"builtin": "ask_person", "options": {"deadline": 600}},
    {"registered": "x", "arguments": {"a": 1}, "requires_approval": {"by": "user:bob", "not_by": "asker"}},
    {"http": {**HTTP, "requires_approval": {"by": "user:bob", "deadline": 1.5}}, "arguments": {"city": "Oslo"}},
    {"mcp": "x", "options": {"timeout": 3, "resources": True}, "arguments": {"t": {"a": 1}}, "requires_approval": True},
    {"python": "tests.definitions.test_tools:shout", "arguments": {"loud": 2}},
]


def written(path: Path, *tools: Any, **agent: Any) -> str:
    file = path / "team.yaml"
    data = {"agents": {"bob": {}, "ann": {"tools": [*tools], **agent}}, "serve": ["ann"]}
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    return str(file)


@pytest.mark.parametrize("case", WRONG)
def test_misuse_is_refused_with_its_field(case: str, tmp_path: Path) -> None:
    entry, field, said = WRONG[case]
    with pytest.raises(DefinitionError) as refused:
        load(written(tmp_path, entry), DefinitionPolicy(("tests.definitions",)))
    [problem] = refused.value.problems
    where = "agents.ann.tools[0]" + (f".{field}" if field else "")
    assert (problem.field, problem.line is not None) == (where, True)
    assert said in problem.message


def test_what_can_be_is_read_and_is_in_the_schema(tmp_path: Path) -> None:
    file = written(tmp_path, *RIGHT, context="compaction")
    assert [*load(file, DefinitionPolicy(("tests.definitions",)))] == ["ann"]
    Draft202012Validator(json_schema()).validate(yaml.safe_load(Path(file).read_text()))
    found = read_definitions(file, ("tests.definitions",)).agents["ann"]
    assert found.context is not None
    assert found.context.kind == "compaction"
    server = found.tools[6]
    assert isinstance(server, McpTools)
    assert (server.options.timeout, server.arguments, server.requires_approval) == (3, {"t": {"a": 1}}, True)
    http: Any = found.tools[5]
    assert http.http.requires_approval == Approval("user:bob", None, timedelta(seconds=1.5))


@pytest.mark.parametrize(("window", "room"), [(100_000, 75_000), (None, 24_000)])
def test_compaction_without_a_number_is_by_the_models_window(window: int | None, room: int, tmp_path: Path) -> None:
    given = read_definitions(written(tmp_path, context={"kind": "compaction", "model": "small"}))
    client: Any = ScriptedClient(lambda messages, options: "Yes.")
    client.context_length = window
    run: Any = SimpleNamespace(model_client=lambda *names: SimpleNamespace(inner=client))
    builder: Any = Builder(given, NOTHING_ALLOWED, run)
    context = builder._model_context(given.agents["ann"])
    assert isinstance(context, CompactionContext)
    assert context.max_tokens == room


def test_one_tool_with_two_options_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    places = [{"builtin": "weather", "arguments": {"place": place}} for place in ("Oslo", "Rome")]
    read_definitions(written(tmp_path, *places))
    [told] = [each.getMessage() for each in caplog.records]
    assert told.endswith("agents.ann.tools[1]: there is another tool 'weather': models take one of a name")


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"builtin": "file_reader", "options": {"folders": ["/"]}}, "folders"),
        ({"builtin": "web_search", "options": {"url": "http://127.0.0.1:1", "provider": "searxng"}}, "provider"),
        ({"builtin": "http_request", "options": {"requires_approval": False}}, "requires_approval"),
        ({"mcp": "x", "options": {"resources": True}}, "resources"),
    ],
)
def test_what_reaches_further_is_not_for_whoever_stores_a_definition(entry: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        checked("ann", {"agents": {"ann": {"tools": [entry]}}})
    assert refused.value.param == f"definition.agents.ann.tools[0].options.{field}"
    assert "is for files, which the operator writes" in refused.value.message


def test_what_narrows_is() -> None:
    tools = [
        {"builtin": "ask_person", "options": {"deadline": 60}, "requires_approval": {"by": "role:x"}},
        {"builtin": "weather", "options": {"units": "imperial"}, "arguments": {"place": "Oslo"}},
        {"registered": "x", "arguments": {"a": 1}, "requires_approval": True},
        {"mcp": "x", "options": {"max_output": 100}},
    ]
    assert checked("ann", {"agents": {"ann": {"tools": tools, "context": "compaction"}}}).served == ["ann"]


def test_a_text_that_only_begins_variables_is_read_at_once() -> None:
    text = "${a:-" * 40_000
    began = time.process_time()
    assert checked("ann", {"agents": {"ann": {"prompt": text}}}).agents["ann"].prompt == text
    assert time.process_time() - began < 4, "not once for each beginning"
