"""A check finds what is wrong with definitions, in their form and in what they name, and tells all of it at once."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Any, Final, cast

from pydantic import BaseModel, ValidationError

from drsai_backend.definitions.functions import NOT_FIXED, function_tool, is_allowed
from drsai_backend.definitions.group_chats import wrong_graph
from drsai_backend.definitions.policy import DefinitionPolicy
from drsai_backend.definitions.schema import (
    KNOWLEDGE,
    PERSON,
    AgentAsTool,
    AgentDefinition,
    BuiltinTool,
    CompactedContext,
    Definitions,
    FixedPart,
    GraphTeam,
    HttpEndpointTool,
    Knowledge,
    McpTools,
    PythonTool,
    RoundRobinTeam,
    SwarmTeam,
    TeamDefinition,
    ToolEntry,
)
from drsai_backend.definitions.source import FieldPath
from drsai_backend.definitions.templates import unknown_variables
from drsai_backend.definitions.termination import can_end
from drsai_backend.errors import DrSaiError, InvalidRequest
from drsai_backend.explain import Wrong, did_you_mean, explain
from drsai_backend.json_types import JsonObject, as_object
from drsai_backend.net.addresses import Reachable
from drsai_backend.strategies import Tools
from drsai_backend.tools import ToolBase
from drsai_backend.tools.builtin import NAMES, builtin_tools
from drsai_backend.tools.fixed import wrong_arguments

_TEXTS: Final = {
    "missing": "is required",
    "unexpected_keyword_argument": "there is no such field",
    "union_tag_not_found": "is required",
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "string_pattern_mismatch": "must be made of letters, digits and _, and not begin with a digit",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "greater_than": "must be more than {gt}",
    "less_than": "must be less than {lt}",
    "too_short": "must have at least {min_length}",
    "too_long": "must have at most {max_length}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
}
MOST_WRONG: Final = 51
"""Things that are looked for: one more than are told."""
MAX_PARTS: Final = 1_000
"""Agents and teams that one is built of: each run builds them, one that is used twice twice."""
MAX_DEPTH: Final = 30
"""Agents and teams within each other."""
_ANYWHERE: Final = Reachable(("0.0.0.0/0", "::/0"))
"""What may be reached is looked at when a URL is asked."""
_ANY_TOOL: Final = {"registered": "?"}
"""A tool of which nothing is known when it is checked."""
_LONGEST_NAME: Final = 64
"""Letters that the name of an agent may have."""
_CHOICES: Final = frozenset({"auto", "required", "none", "done"})
"""What `tool_choice` may be beside the name of a tool; `done` is one of an agent with `require_done`."""


def suggestion(name: str, known: Collection[str]) -> str:
    """`; did you mean …?`, or what there is; "" where there is nothing."""
    listed = f" (there are {', '.join(sorted(known)[:20])})" if known else ""
    return did_you_mean(name, known) or listed


def check(data: JsonObject, means: DefinitionPolicy) -> tuple[Definitions | None, list[tuple[FieldPath, str]]]:
    """The definitions, or None where their form is wrong, and all that is wrong with form and names.

    Args:
        means: what the operator lets definitions use.
    """
    definitions, wrong = parse_definitions(data)
    left = definitions or _right_part(data)
    if left is not None:
        told = {place for path, _ in wrong for place in ((), path, path[:2])}
        # What is said of a whole part may come of what was taken out of it.
        names = islice(_wrong_names(left, means), MOST_WRONG)
        wrong += [each for each in names if each[0] not in told]
    return definitions, wrong


def _right_part(data: Mapping[str, object]) -> Definitions | None:
    """The definitions without what is wrong with their form, so that the names in the rest can be looked at; None: too
    little is left. A part that is wrong as a whole has something of its name in its place."""
    left = copy.deepcopy(data)
    for repeated in (False, True, True):
        try:
            return Definitions.model_validate(left)
        except ValidationError as error:
            for wrong in explain(error, left):
                if len(wrong.path) < 2 or wrong.path[0] == "serve":
                    return None
                with suppress(KeyError, IndexError, TypeError):  # It is gone with another that was wrong.
                    _take_out(left, wrong.path, repeated=repeated)
    return None


def _take_out(data: Any, path: FieldPath, *, repeated: bool) -> None:
    section, name, *rest = path
    field = rest[0] if rest else "strategy" if section == "agents" else "kind"
    if repeated or section == "tools":
        del data[section][name]
        into, instead = ("tools", _ANY_TOOL) if section == "tools" else ("agents", {})
        data.setdefault(into, {}).setdefault(name, instead)
    elif field in ("kind", "participants"):
        participants = as_object(data[section][name]).get("participants")
        data[section][name] = {"kind": "round_robin", "max_turns": 1, "participants": participants}
    elif field == "tools" and len(rest) > 1:
        data[section][name][field][rest[1]] = _ANY_TOOL
    else:
        for each in (field, "tool_choice") if field == "strategy" else (field,):  # What may be chosen, it decides.
            del data[section][name][each]


def parse_definitions(data: JsonObject) -> tuple[Definitions | None, list[tuple[FieldPath, str]]]:
    """The definitions, or None and what is wrong with their form: paths and sentences."""
    try:
        return Definitions.model_validate(data), []
    except ValidationError as error:
        return None, list(explained(error, data, Definitions))


def explained(error: ValidationError, data: JsonObject, kind: type[BaseModel]) -> Iterator[tuple[FieldPath, str]]:
    """Yield what is wrong with the form of some data, as paths and sentences. Of a union, the alternative that got
    furthest.

    Args:
        error: of `kind.model_validate(data)`.
    """
    found = list(islice(explain(error, data), 2 * MOST_WRONG))
    told: set[FieldPath] = set()
    for each in found:
        path = each.path
        deeper = any(other.path[: len(path)] == path and len(other.path) > len(path) for other in found)
        if path in told or (deeper and each.type in ("bool_type", "string_type", "model_type", "dict_type")):
            continue
        told.add(path)
        yield path, _sentence(each, data, kind)


def _sentence(wrong: Wrong, data: JsonObject, kind: type[BaseModel]) -> str:
    if wrong.type == "extra_forbidden":
        near = _right_field(wrong.path, data, kind)
        return "there is no such field" + (f"; did you mean {near!r}?" if near else "")
    if wrong.type in ("literal_error", "union_tag_invalid"):
        expected = str(wrong.values.get("expected") or wrong.values.get("expected_tags"))
        value = str(at(data, wrong.path))
        return f"must be {expected}, and is {value!r}" + did_you_mean(value, re.findall(r"'([^']*)'", expected))
    if wrong.type == "string_pattern_mismatch" and ":" in str(wrong.values["pattern"]):
        return "must be the import path of a function, as `package.module:name`"
    ours = _TEXTS.get(wrong.type)
    return wrong.phrase if ours is None else ours.format_map(wrong.values)


def at(data: Any, path: Sequence[str | int]) -> Any:
    """Return what of some data is at a path."""
    for step in path:
        data = data[step]
    return data


@cache
def _all_fields() -> frozenset[str]:
    """Return the fields of all parts of a definition. The schema of the whole takes 9 MB and 60 ms, and a server whose
    definitions are right needs it never."""
    parts = Definitions.model_json_schema()["$defs"].values()
    return frozenset(name for part in parts for name in part.get("properties", ())) | frozenset(
        Definitions.model_fields
    )


def _right_field(path: FieldPath, data: JsonObject, kind: type[BaseModel]) -> str | None:
    """The field that was meant: one of a similar name which would be there."""
    name = str(path[-1])
    if len(path) > 2 and isinstance(path[1], str):
        # One agent, team or tool by itself: there may be thousands.
        section = str(path[0])
        data = {section: {path[1]: data[section][path[1]]}}
    for near in difflib.get_close_matches(name[:64], _all_fields(), 5, 0.6):
        changed = copy.deepcopy(data)
        holder = cast("JsonObject", at(changed, path[:-1]))
        if near in holder:
            continue
        holder[near] = holder.pop(name)
        try:
            kind.model_validate(changed)
        except ValidationError as error:
            wrong = {(each.path, each.type) for each in explain(error, changed)}
            if ((*path[:-1], near), "extra_forbidden") in wrong:
                continue
        return near
    return None


# --- what is named --------------------------------------------------------------------------------------------------


def _wrong_names(given: Definitions, means: DefinitionPolicy) -> Iterator[tuple[FieldPath, str]]:
    """Yield what definitions name that is not there, and what cannot work: paths and sentences."""
    parts: dict[str, object] = {**given.agents, **given.teams}
    doubles = given.agents.keys() & given.teams.keys()
    for name in doubles:
        yield ("teams", name), "an agent has this name, too"
    for name, agent in given.agents.items():
        for index, entry in enumerate(agent.tools):
            yield from _wrong_tool(("agents", name, "tools", index), entry, given, means, parts)
        yield from _wrong_agent(("agents", name), agent, given, parts, means)
    for name, entry in given.tools.items():
        if isinstance(entry, str):
            yield ("tools", name), "must be an object: a name here would be another name for a tool"
        else:
            yield from _wrong_tool(("tools", name), entry, given, means, parts)
    for name, team in given.teams.items():
        yield from _wrong_participants(name, team, given, parts)
        yield from _never_works(name, team, given, means)
    yield from _no_parts({("serve", index): name for index, name in enumerate(given.serve or ())}, parts)
    if not parts:
        yield (), "has no agents and no teams"
    if not doubles:
        yield from _circles(given)


def _no_parts(used: Mapping[FieldPath, str], parts: Mapping[str, object]) -> Iterator[tuple[FieldPath, str]]:
    """The agents and teams among those that are used, by their places, that are not there."""
    for path, name in used.items():
        if name not in parts:
            yield path, f"there is no agent or team {name!r}{suggestion(name, parts)}"


def _wrong_agent(
    path: FieldPath,
    agent: AgentDefinition,
    given: Definitions,
    parts: Mapping[str, object],
    means: DefinitionPolicy,
) -> Iterator[tuple[FieldPath, str]]:
    """Yield what is wrong with an agent, its tools apart."""
    yield from _no_parts({_of_strategy(path, field): name for field, name in agent.strategy.uses().items()}, parts)
    if (known := tools_of(agent, given)) is not None:
        for field, used in agent.strategy.calls().items():
            if used not in known:
                yield _of_strategy(path, field), f"the agent has no tool {used!r}{suggestion(used, known)}"
        chosen, choices = agent.tool_choice, {*known, *_CHOICES}
        if known and not agent.handoffs and chosen not in choices:
            yield (*path, "tool_choice"), f"the agent has no tool {chosen!r}{suggestion(chosen, choices)}"
        if chosen == "done" and known and chosen not in known and not requires_done(agent):
            yield (*path, "tool_choice"), "'done' needs the strategy `{kind: tools, require_done: true}`"
    if means.tries:
        yield from _never_built(path, agent, given)
    if isinstance(agent.context, CompactedContext) and agent.context.keep >= agent.context.share:
        yield (*path, "context", "keep"), f"must be less than `share`, which is {agent.context.share}"
    if agent.knowledge is not None:
        yield from _wrong_knowledge((*path, "knowledge"), agent.knowledge)
    for variable in unknown_variables(agent.prompt):
        yield (*path, "prompt"), f"there is no variable {{{{{variable}}}}}"


def _never_built(path: FieldPath, agent: AgentDefinition, given: Definitions) -> Iterator[tuple[FieldPath, str]]:
    """Yield why an agent could not be built for any run."""
    name, strategy = str(path[-1]), agent.strategy
    for index, target in enumerate(agent.handoffs):
        if target in agent.handoffs[:index]:
            yield (*path, "handoffs", index), f"{target!r} is there already"
    handoffs = {f"transfer_to_{target.lower()}": target for target in agent.handoffs}
    for index, entry in enumerate(agent.tools):
        for tool in sorted((tool_names([entry], given) or set()) & handoffs.keys()):
            yield (*path, "tools", index), f"{tool!r} is the handoff to {handoffs[tool]!r}"
    for tool, count in getattr(agent.context, "ephemeral", {}).items():
        if count < 0:
            yield (*path, "context", "ephemeral", tool), "must be at least 0"
    if strategy.kind == "router" and name in strategy.flows:
        yield (*path, "strategy", "flows", name), "is the name of the agent, too"
    longest = _LONGEST_NAME - (len(f"_executor_{strategy.at_once}") if strategy.kind == "plan_execute" else 0)
    if len(name) > longest:
        yield (
            (*path, "strategy"),
            f"needs an agent whose name has at most {longest} letters: its parts have longer ones",
        )


def _wrong_knowledge(path: FieldPath, knowledge: Knowledge) -> Iterator[tuple[FieldPath, str]]:
    if not (knowledge.stores or knowledge.files):
        yield (*path, "stores"), "must have at least 1, or `files`"
    if knowledge.files and not 100 <= knowledge.chunk_size <= 4096:
        yield (*path, "chunk_size"), "must be between 100 and 4096"
    elif knowledge.files and 2 * knowledge.chunk_overlap > knowledge.chunk_size:
        yield (*path, "chunk_overlap"), "must be at most half of `chunk_size`"
    for index, each in enumerate(knowledge.files):
        if not each.isprintable():
            yield (*path, "files", index), "must be a path or a URL in one line, without control characters"
        elif "://" in each:
            try:
                _ANYWHERE.check_url(each, "files")
            except InvalidRequest as error:
                yield (*path, "files", index), error.message


def _of_strategy(agent: FieldPath, field: str) -> FieldPath:
    return (*agent, "strategy", *(int(each) if each.isdigit() else each for each in field.split(".")))


def tools_of(agent: AgentDefinition, given: Definitions) -> set[str] | None:
    """The names of an agent's tools for its model, as `tool_names`."""
    known = tool_names(agent.tools, given)
    return {*known, KNOWLEDGE} if known is not None and agent.looks_up else known


def tool_names(entries: Sequence[ToolEntry], given: Definitions) -> set[str] | None:
    """The names of an agent's tools for its model; None: some are only known when it is built."""
    names: set[str] = set()
    for each in entries:
        entry = given.tools.get(each, BuiltinTool(builtin=each)) if isinstance(each, str) else each
        match entry:
            case BuiltinTool():
                names.add(entry.builtin)
            case HttpEndpointTool():
                names.add(entry.http.name)
            case AgentAsTool():
                names.add(entry.agent)
            case _:
                return None
    return names


def _wrong_tool(
    path: FieldPath,
    entry: ToolEntry,
    given: Definitions,
    means: DefinitionPolicy,
    parts: Mapping[str, object],
) -> Iterator[tuple[FieldPath, str]]:
    builtin = means.builtin
    match entry:
        case str() if entry not in {*builtin, *given.tools}:
            yield path, f"there is no tool {entry!r}{suggestion(entry, {*builtin, *given.tools})}"
        case BuiltinTool() if entry.builtin not in builtin:
            yield (*path, "builtin"), f"there is no tool {entry.builtin!r}{suggestion(entry.builtin, builtin)}"
        case AgentAsTool():
            yield from _no_parts({(*path, "agent"): entry.agent}, parts)
        case PythonTool() if not is_allowed(module := entry.python.partition(":")[0], means.python):
            allowed = ", ".join(sorted(means.python)) or "none"
            yield (*path, "python"), f"{module} may not be named: DRSAI_DEFINITION_PACKAGES allows {allowed}"
        case BuiltinTool() if entry.options and entry.builtin not in NAMES:
            yield (*path, "options"), "it has no options"
        case HttpEndpointTool():
            yield from _wrong_arguments(path, entry.http.schema_of_parameters(), entry)
        case BuiltinTool() if entry.builtin not in NAMES or not (entry.options or entry.arguments):
            pass
        case BuiltinTool() | PythonTool() if means.tries:
            yield from _wrong_made(path, entry, means)
        case McpTools() if means.mcp is not None and entry.mcp not in (known := means.mcp()):
            hint = suggestion(entry.mcp, known) or ": DRSAI_MCP_SERVERS names none"
            yield (*path, "mcp"), f"there is no MCP server {entry.mcp!r}{hint}"
        case _:
            pass


def _wrong_made(
    path: FieldPath, entry: BuiltinTool | PythonTool, means: DefinitionPolicy
) -> Iterator[tuple[FieldPath, str]]:
    """Yield what is wrong with a tool that is made to see whether it can be."""
    field: FieldPath = (*path, "python")
    options: JsonObject = getattr(entry, "options", {})
    try:
        if isinstance(entry, PythonTool):
            tool = function_tool(entry.python, means.python)
        else:
            field = (*path, "options")
            [tool] = builtin_tools([entry.builtin], means.settings, **{entry.builtin: options})
    except DrSaiError as error:
        text = error.message.removeprefix(f"{getattr(entry, 'builtin', '')}: ")
        about = (name for name in options if re.match(rf"(it has no option ')?{re.escape(name)}\b", text))
        yield (*field, *islice(about, 1)), text
        return
    if isinstance(tool, ToolBase):
        yield from _wrong_arguments(path, tool.parameters, entry)
    elif entry.arguments or entry.requires_approval:
        yield field, NOT_FIXED


def _wrong_arguments(path: FieldPath, parameters: JsonObject, entry: FixedPart) -> Iterator[tuple[FieldPath, str]]:
    return (((*path, "arguments", name), text) for name, text in wrong_arguments(parameters, entry.arguments))


def _wrong_participants(
    name: str, team: TeamDefinition, given: Definitions, parts: Mapping[str, object]
) -> Iterator[tuple[FieldPath, str]]:
    path: FieldPath = ("teams", name, "participants")
    for index, participant in enumerate(team.participants):
        if participant not in parts:
            yield (*path, index), f"there is no agent or team {participant!r}{suggestion(participant, parts)}"
        elif _is_team(participant, given) and not isinstance(team, RoundRobinTeam) and team.kind != "selector":
            yield (*path, index), f"{participant!r} is a team, and a {team.kind} team takes agents only"
    if isinstance(team, SwarmTeam):
        for participant in team.participants:
            agent = given.agents.get(participant)
            for index, target in enumerate([] if agent is None else agent.handoffs):
                if target not in (*team.participants, PERSON):
                    where: FieldPath = ("agents", participant, "handoffs", index)
                    known = [*team.participants, PERSON]
                    yield where, f"{target!r} takes no part in the swarm {name!r}{suggestion(target, known)}"


def _never_works(
    name: str, team: TeamDefinition, given: Definitions, means: DefinitionPolicy
) -> Iterator[tuple[FieldPath, str]]:
    path: FieldPath = ("teams", name)
    if team.kind == "selector" and len(team.participants) == 1:
        text = "a selector chooses among two at least: name another, or take `kind: round_robin`"
        yield (*path, "participants"), text
    if isinstance(team, GraphTeam) and (wrong := wrong_graph(team)) is not None:
        yield (*path, "edges"), wrong
    if team.max_turns is not None or team.kind not in ("round_robin", "selector"):
        return
    if team.termination is None:
        yield path, "would never end: give it `termination` or `max_turns`"
        return
    known, targets = speakers(team, given)
    # One that was stored by a release that did not look for this is read all the same: a run's bounds end it.
    if means.tries and known is not None and not can_end(team.termination, known, targets):
        yield (*path, "termination"), "would never end: nobody whom it names speaks, or is handed over to"


def requires_done(agent: AgentDefinition) -> bool:
    """Whether only a call of the tool `done` ends the agent's work."""
    return isinstance(agent.strategy, Tools) and agent.strategy.require_done


def speakers(team: TeamDefinition, given: Definitions) -> tuple[set[str] | None, set[str]]:
    """Return who speaks in a team, the person included, and to whom somebody in it hands over. None: some of them are
    only known when they are built."""
    parts = needed_by(team.participants, given)
    agents = [given.agents[each] for each in parts if each in given.agents]
    targets = {target for each in agents for target in each.handoffs}
    return None if any(each.strategy.is_team for each in agents) else {*parts, PERSON}, targets


def _is_team(name: str, given: Definitions) -> bool:
    agent = given.agents.get(name)
    return agent is None or agent.strategy.is_team


def _circles(given: Definitions) -> Iterator[tuple[FieldPath, str]]:
    """An agent or team that would be built inside itself, or of too much."""
    uses: dict[str, list[str]] = {name: _agents_in(agent, given) for name, agent in given.agents.items()}
    uses |= {name: list(team.participants) for name, team in given.teams.items()}
    sizes: dict[str, tuple[int, int]] = {}
    """How many parts each is built of, and how deep they are within each other."""

    def walk(name: str, way: tuple[str, ...]) -> Iterator[tuple[FieldPath, str]]:
        path: FieldPath = ("agents" if name in given.agents else "teams", name)
        if name in way:
            circle = " → ".join([*way[way.index(name) :], name])
            yield path, f"is a part of itself: {circle}"
        elif len(way) >= MAX_DEPTH:
            yield path, f"is too deep: {MAX_DEPTH} agents and teams may be within each other"
        elif name not in sizes:
            for used in uses.get(name, ()):
                yield from walk(used, (*way, name))
            below = [sizes.get(used, (1, 1)) for used in uses.get(name, ())]
            parts, depth = 1 + sum(each for each, _ in below), 1 + max((each for _, each in below), default=0)
            sizes[name] = min(parts, MAX_PARTS + 1), depth
            if parts > MAX_PARTS >= max((each for each, _ in below), default=0):
                yield path, f"would be built of more than {MAX_PARTS} agents and teams, for every run"
            if depth == MAX_DEPTH + 1:
                yield path, f"goes too deep: {MAX_DEPTH} agents and teams may be within each other"

    for name in uses:
        yield from walk(name, ())


def needed_by(names: Iterable[str], given: Definitions) -> set[str]:
    """The names of the agents, teams and tools that agents or teams are built of, their own among them."""
    needed: set[str] = set()
    waiting = [*names]
    while waiting:
        each = waiting.pop()
        if each in needed:
            continue
        needed.add(each)
        agent, team = given.agents.get(each), given.teams.get(each)
        if agent is not None:
            waiting += _agents_in(agent, given)
            needed.update(entry for entry in agent.tools if isinstance(entry, str) and entry in given.tools)
        elif team is not None:
            waiting += team.participants
    return needed


def _agents_in(agent: AgentDefinition, given: Definitions) -> list[str]:
    entries = [given.tools.get(each, each) if isinstance(each, str) else each for each in agent.tools]
    return [*agent.strategy.uses().values(), *(each.agent for each in entries if isinstance(each, AgentAsTool))]
