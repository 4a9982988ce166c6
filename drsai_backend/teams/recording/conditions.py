"""What a termination condition has counted so far. AutoGen's conditions have no `save_state`.

A condition is captured as the attributes that differ from those it had when the team was built, so that its settings
are not stored again and an untouched condition costs nothing. Kept are attributes that are JSON: `bool`, `int`,
`float`, `str`, `None`, and lists, sets and dicts of them; combined and wrapped conditions are walked. Clocks are kept
as elapsed time.
"""

from __future__ import annotations

# Private: how AutoGen's teams, conditions and workbenches keep what they are. tests/teams/test_upstream.py.
# pyright: reportPrivateUsage=false
import copy
import time
from typing import TypeAlias, cast

import orjson
from autogen_agentchat.base import AndTerminationCondition, TerminationCondition
from autogen_agentchat.conditions import TimeoutTermination
from autogen_agentchat.messages import StopMessage

from drsai_backend.json_types import JsonObject
from drsai_backend.teams.team_tree import children

_SCALARS = (bool, int, float, str, type(None))
Baseline: TypeAlias = tuple[JsonObject, list["Baseline | None"]]


def baseline(condition: TerminationCondition | None) -> Baseline | None:
    """The attributes of a condition nobody has called yet."""
    if condition is None:
        return None
    return _attributes(condition), [baseline(child) for child in children(condition)]


def capture(condition: TerminationCondition | None, before: Baseline | None) -> JsonObject | None:
    """What has changed since `before`; None: nothing."""
    if condition is None or before is None:
        return None
    attributes, inner_before = before
    state: JsonObject = {}
    changed = {
        name: value
        for name, value in _attributes(condition).items()
        if name not in attributes or attributes[name] != value
    }
    sets: JsonObject = {name: [*value] for name, value in changed.items() if type(value) is set}
    plain = {name: value for name, value in changed.items() if name not in sets}
    if plain:
        state["v"] = plain
    if sets:
        state["sets"] = sets
    inner = [capture(child, old) for child, old in zip(children(condition), inner_before, strict=True)]
    if any(inner):
        state["c"] = inner
    if isinstance(condition, AndTerminationCondition) and condition._stop_messages:
        state["s"] = [message.dump() for message in condition._stop_messages]
    if isinstance(condition, TimeoutTermination):
        state["elapsed"] = round(time.monotonic() - condition._start_time, 3)
    return state or None


def restore(condition: TerminationCondition | None, state: JsonObject | None) -> None:
    """Put what `capture` gave back into a freshly built condition."""
    if condition is None or not state:
        return
    for name, value in state.get("v", {}).items():
        setattr(condition, name, copy.deepcopy(value))
    for name, value in state.get("sets", {}).items():
        setattr(condition, name, set(value))
    for child, inner in zip(children(condition), state.get("c", ()), strict=False):
        restore(child, inner)
    if isinstance(condition, AndTerminationCondition):
        condition._stop_messages = [StopMessage.model_validate(message) for message in state.get("s", ())]
    if isinstance(condition, TimeoutTermination) and "elapsed" in state:
        condition._start_time = time.monotonic() - state["elapsed"]


def _attributes(condition: TerminationCondition) -> JsonObject:
    skipped = {"_conditions", "_stop_messages"}
    if isinstance(condition, TimeoutTermination):
        skipped.add("_start_time")
    kept: JsonObject = {}
    for name, value in vars(condition).items():
        if name in skipped:
            continue
        if isinstance(value, _SCALARS):
            kept[name] = value
        elif isinstance(value, (list, dict)):
            try:
                kept[name] = orjson.loads(orjson.dumps(value))
            except TypeError:
                continue
        elif type(value) is set and all(isinstance(item, _SCALARS) for item in cast("set[object]", value)):
            kept[name] = set(cast("set[object]", value))
    return kept
