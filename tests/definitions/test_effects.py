"""Fields without effect, and words that YAML 1.1 and 1.2 read differently: they work as they did, and are told."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from drsai_backend.definitions import read_definitions

TWO: dict[str, Any] = {"ann": {"prompt": "Hi."}, "bob": {"prompt": "Hi."}}


def of(**agent: Any) -> dict[str, Any]:
    return {"agents": {"ann": agent}}


def crew(termination: Any, kind: str = "round_robin", agents: Any = TWO) -> dict[str, Any]:
    team = {"kind": kind, "participants": ["ann", "bob"], "max_turns": 3, "termination": termination}
    return {"agents": agents, "teams": {"crew": team}}


HANDING = {"ann": {"handoffs": ["bob"]}, "bob": {}}
DONE = {"kind": "tools", "require_done": True}

# What is written, the field, and a part of what is said.
WARNED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a choice of no tools": (of(tool_choice="required"), "agents.ann.tool_choice", "has no tools of its own"),
    "a choice of a simple one": (
        of(strategy="simple", tool_choice="none"),
        "agents.ann.tool_choice",
        "has no tools of its own",
    ),
    "reminders of nothing": (
        of(strategy={"kind": "tools", "reminders": 2}),
        "agents.ann.strategy.reminders",
        "without `require_done: true`",
    ),
    "a variable in an example": (
        of(examples=[{"user": "Who am I?", "assistant": "You are {{user_id}}."}]),
        "agents.ann.examples[0].assistant",
        "{{user_id}} is filled in in `prompt` only",
    ),
    "a tool twice": (of(tools=["calculator", {"builtin": "calculator"}]), "agents.ann.tools[1]", "there twice"),
    "a tool twice by another name": (
        {
            "agents": {"ann": {"tools": ["sums", {"builtin": "calculator"}]}},
            "tools": {"sums": {"builtin": "calculator"}},
        },
        "agents.ann.tools[1]",
        "there twice",
    ),
    "handoffs of one alone": (of(handoffs=["user"]), "agents.ann.handoffs", "takes part in no swarm"),
    "handoffs in a round robin": (crew({"max_messages": 9}, agents=HANDING), "agents.ann.handoffs", "no swarm"),
    "a tool done": (
        {"agents": {"ann": {"tools": [{"agent": "done"}], "strategy": DONE}, "done": {}}},
        "agents.ann.tools[0]",
        "give it another name",
    ),
    "a misspelt output": (
        of(tools=["calculator"], context={"kind": "ephemeral_outputs", "ephemeral": {"calculater": 1}}),
        "agents.ann.context.ephemeral.calculater",
        "did you mean 'calculator'?",
    ),
    "pieces of no files": (
        of(knowledge={"stores": ["handbook"], "chunk_size": 200}),
        "agents.ann.knowledge.chunk_size",
        "without `files`",
    ),
    "a model of vectors": (
        of(knowledge={"files": ["a.md"], "embeddings": "bge"}),
        "agents.ann.knowledge.embeddings",
        "DRSAI_EMBEDDINGS_MODEL",
    ),
    "a misspelt speaker": (
        crew({"text_message": "bop"}),
        "teams.crew.termination.text_message",
        "nobody is called 'bop'; did you mean 'bob'?",
    ),
    "a misspelt source": (crew({"source": ["ann", "eve"]}), "teams.crew.termination.source[1]", "called 'eve'"),
    "a misspelt source of a text": (
        crew({"text_mention": {"text": "X", "sources": ["eve"]}}),
        "teams.crew.termination.text_mention.sources[0]",
        "called 'eve'",
    ),
    "a misspelt handoff": (
        crew({"handoff": "bop"}, "swarm", HANDING),
        "teams.crew.termination.handoff",
        "nobody hands over to 'bop'; did you mean 'bob'?",
    ),
    "one of all": (
        crew({"all": [{"max_messages": 3}, {"text_message": "eve"}]}),
        "teams.crew.termination.all[1].text_message",
        "called 'eve'",
    ),
}

SILENT: dict[str, dict[str, Any]] = {
    "a choice of tools": of(tools=["calculator"], tool_choice="calculator"),
    "pieces of files": of(knowledge={"files": ["a.md"], "chunk_size": 200, "chunk_overlap": 20}),
    "a choice with `done`": of(strategy=DONE, tool_choice="required"),
    "reminders": of(strategy={**DONE, "reminders": 2}),
    "braces in an example": of(examples=[{"user": "{{name}}", "assistant": "{{ x.y.z }}"}]),
    "a swarm": crew({"max_messages": 9}, "swarm", HANDING),
    "a handoff that ends": crew({"handoff": "user"}, agents={"ann": {"handoffs": ["user"]}, "bob": {}}),
    "the person": crew({"source": ["user"]}),
    "who is inside": {
        "agents": {**TWO, "cat": {}},
        "teams": {
            "crew": crew(None)["teams"]["crew"],
            "all": {
                "kind": "round_robin",
                "participants": ["crew", "cat"],
                "termination": {"text_message": "ann"},
            },
        },
    },
    "who is only known when it is built": {
        "agents": {"ann": {"strategy": "plan_execute"}},
        "teams": {"t": {"kind": "round_robin", "participants": ["ann"], "termination": {"source": ["planner"]}}},
    },
    "outputs of a server's tools": of(
        tools=[{"mcp": "x"}], context={"kind": "ephemeral_outputs", "ephemeral": {"y": 1}}
    ),
}


def read(file: Path, text: str, caplog: pytest.LogCaptureFixture) -> tuple[Any, list[str]]:
    """The definitions of a text, and what is told in the log."""
    file.write_text(text)
    with caplog.at_level(logging.WARNING, "drsai.definitions"):
        found = read_definitions(str(file), environment={})
    return found, [each.getMessage() for each in caplog.records]


@pytest.mark.parametrize("case", WARNED)
def test_what_has_no_effect_is_told(case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, field, said = WARNED[case]
    _, told = read(tmp_path / "team.yaml", yaml.safe_dump(data), caplog)
    assert len(told) == 1, told
    place, _, rest = told[0].partition(": ")
    assert place.rpartition(":")[2].isdigit(), "the line"
    assert rest.startswith(f"{field}: ")
    assert said in rest


@pytest.mark.parametrize("case", SILENT)
def test_what_has_an_effect_is_not(case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read(tmp_path / "team.yaml", yaml.safe_dump(SILENT[case]), caplog)[1] == []


WORDS = """\
agents:
  on: {prompt: no, stream: no}
  off: {description: Yes, stream: false}
teams:
  yes:
    kind: round_robin
    participants: [on, off]
    max_turns: 2
serve: [yes]
"""


def test_words_are_texts_where_a_text_is_meant(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found, told = read(tmp_path / "team.yaml", WORDS, caplog)
    assert [*found.agents, *found.teams, *found.served] == ["on", "off", "yes", "yes"]
    assert found.teams["yes"].participants == ["on", "off"]
    assert (found.agents["on"].prompt, found.agents["off"].description) == ("no", "Yes")
    # Where it may be true or false, it is what it was.
    assert found.agents["on"].stream is False
    [only] = told
    assert only.endswith(
        "team.yaml:2: agents.on.stream: no is read as false, and YAML 1.2 has it as a text: write false, or put it in "
        "quotes"
    )


def test_words_that_fit_nowhere_are_told_as_texts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Exception, match="max_iterations: must be a whole number"):
        read(tmp_path / "team.yaml", "agents: {ann: {max_iterations: on}}\n", caplog)
