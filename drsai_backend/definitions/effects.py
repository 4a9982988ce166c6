"""The effects of fields are looked at here: what is written and changes nothing is told, as sentences for who has
written it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drsai_backend.definitions.check import requires_done, speakers, suggestion, tool_names, tools_of
from drsai_backend.definitions.schema import (
    AgentDefinition,
    BuiltinTool,
    Definitions,
    PythonTool,
    SwarmTeam,
    ToolEntry,
)
from drsai_backend.definitions.source import FieldPath
from drsai_backend.definitions.templates import variables_in
from drsai_backend.definitions.termination import named_in

_CUT: Final = "without `files`, how a file is cut is said where it is put into a store"
_OF_STORES: Final = {
    "chunk_size": _CUT,
    "chunk_overlap": _CUT,
    "embeddings": "stores are embedded by the server's model (DRSAI_EMBEDDINGS_MODEL)",
}
"""Fields of `knowledge` that say something of stores."""


def without_effect(given: Definitions) -> Iterator[tuple[FieldPath, str]]:
    """The fields of definitions, which are right otherwise, that have no effect: paths and sentences."""
    handing: set[str] = set()
    for name, team in given.teams.items():
        named = [] if team.termination is None else [*named_in(team.termination, ("teams", name, "termination"))]
        if isinstance(team, SwarmTeam) or any(field == "handoff" for _, field, _ in named):
            handing |= {*team.participants}
        speaking, targets = speakers(team, given)
        for where, field, who in named if speaking is not None else ():
            known, does = (targets, "hands over to") if field == "handoff" else (speaking or set(), "is called")
            if who not in known:
                yield where, f"has no effect: nobody {does} {who!r}{suggestion(who, known)}"
    for name, agent in given.agents.items():
        path: FieldPath = ("agents", name)
        asked, calls = requires_done(agent), agent.has_tools or agent.handoffs
        for is_so, field, text in (
            (agent.handoffs and name not in handing, ("handoffs",), "has no effect: the agent takes part in no swarm"),
            (
                agent.tool_choice != "auto" and not (calls or asked),
                ("tool_choice",),
                "has no effect: the agent has no tools of its own",
            ),
            (
                "reminders" in agent.strategy.model_fields_set and not asked,
                ("strategy", "reminders"),
                "has no effect without `require_done: true`",
            ),
        ):
            if is_so:
                yield (*path, *field), text
        yield from _of_knowledge(path, agent)
        yield from _of_tools(path, agent, given)
        for index, example in enumerate(agent.examples):
            for field, variable in ((field, each) for field, text in example for each in variables_in(text)):
                yield (*path, "examples", index, field), f"{{{{{variable}}}}} is filled in in `prompt` only"


def _of_knowledge(path: FieldPath, agent: AgentDefinition) -> Iterator[tuple[FieldPath, str]]:
    if (knowledge := agent.knowledge) is None:
        return
    for field, hint in _OF_STORES.items():
        if field in knowledge.model_fields_set and not (knowledge.files and hint == _CUT):
            yield (*path, "knowledge", field), f"has no effect: {hint}"


def stores_named(given: Definitions) -> Iterator[tuple[FieldPath, str]]:
    """Yield the stores in which agents look things up, by their names or ids, and where they are named."""
    for name, agent in given.agents.items():
        for index, store in enumerate(agent.knowledge.stores if agent.knowledge is not None else ()):
            yield ("agents", name, "knowledge", "stores", index), store


def _of_tools(path: FieldPath, agent: AgentDefinition, given: Definitions) -> Iterator[tuple[FieldPath, str]]:
    seen, named = list[ToolEntry](), set[str]()
    for index, entry in enumerate(agent.tools):
        whole = given.tools.get(entry, BuiltinTool(builtin=entry)) if isinstance(entry, str) else entry
        names = tool_names([entry], given) or set()
        if whole in seen:
            yield (*path, "tools", index), "has no effect: this tool is there twice"
        elif names & named:
            yield (*path, "tools", index), f"there is another tool {min(names & named)!r}: models take one of a name"
        named |= names
        seen.append(whole)
        called = whole.python.rpartition(":")[2] if isinstance(whole, PythonTool) else ""
        if requires_done(agent) and "done" in (called, *names):
            yield (*path, "tools", index), "is called as the tool `done` of `require_done`: give it another name"
    known = tools_of(agent, given)
    for tool in getattr(agent.context, "ephemeral", ()):
        if known is not None and tool not in known and not agent.handoffs:
            yield (*path, "context", "ephemeral", tool), f"the agent itself has no such tool{suggestion(tool, known)}"
