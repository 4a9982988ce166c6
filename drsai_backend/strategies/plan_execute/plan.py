"""A plan is data: how a model is asked for one, how its answer is read, and what is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, cast

from pydantic import BaseModel, ConfigDict, Field

from drsai_backend.json_types import JsonObject

LONGEST: Final = 2000
"""Characters of a step."""
_IDS: Final = ("id", "step_id", "number", "step_number", "name")
_TEXTS: Final = ("do", "task", "step", "description", "content", "action", "title", "instruction")
_NEEDS: Final = ("needs", "depends_on", "dependencies", "dependsOn", "after", "requires")
_LISTS: Final = ("steps", "plan", "tasks", "subtasks")
_LINE: Final = re.compile(r"^\s*(?:step\s*)?(\d{1,3})\s*[.):]\s+(\S.*)$", re.IGNORECASE)
_KEEPS: Final = re.compile(r"[^\w.-]+")


class Step(BaseModel):
    """One step: what is to be done, and which steps have to be done before because it needs their results."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(description="A short name that no other step has: 1, 2, 3.")
    do: str = Field(description="What is to be done, in full: who does it sees neither the plan nor the conversation.")
    needs: list[str] = Field(description="Ids of the steps whose results it needs. Empty: it can run at once.")


class Plan(BaseModel):
    """The steps of a plan, in order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: list[Step]


class PlanError(ValueError):
    """A plan that cannot be followed; the text says why, to whoever has made it."""


def read_plan(text: str) -> list[Step]:
    """The steps in a text: JSON, wherever in it that is and however the fields are called; or numbered lines, of which
    each needs the one before.

    Raises:
        PlanError: there is no plan in it.
    """
    for value in _values(text):
        steps = _steps_in(value)
        if steps is not None:
            return _read_steps(steps)
    lines = [found.group(2).strip() for line in text.splitlines() if (found := _LINE.match(line))]
    if lines:
        return _read_steps(lines)
    raise PlanError('it holds no JSON object {"steps": [{"id": …, "do": …, "needs": […]}]}')


def _values(text: str) -> Iterator[object]:
    decoder, at, tries = json.JSONDecoder(), 0, 0
    while tries < 50 and (found := re.compile(r"[{\[]").search(text, at)):
        tries += 1
        try:
            value, at = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            at = found.start() + 1
            continue
        yield value


def _steps_in(value: object) -> list[object] | None:
    if isinstance(value, list):
        steps = cast("list[object]", value)
        return steps if all(isinstance(each, (str, dict)) for each in steps) else None
    if isinstance(value, dict):
        given = cast("JsonObject", value)
        for name in _LISTS:
            inner = given.get(name)
            if isinstance(inner, (list, dict)):
                return _steps_in(cast("object", inner))
    return None


def _read_steps(given: Sequence[object]) -> list[Step]:
    says_needs = any(isinstance(each, dict) and any(name in each for name in _NEEDS) for each in given)
    steps: list[Step] = []
    for number, each in enumerate(given, 1):
        fields: JsonObject = cast("JsonObject", each) if isinstance(each, dict) else {"do": each}
        text = next((fields[name] for name in _TEXTS if isinstance(fields.get(name), str)), "")
        # Without a word on what needs what, the order is the one thing that is known.
        needs = _needs_of(fields) if says_needs else [steps[-1].id] if steps else []
        named = next((fields[name] for name in _IDS if isinstance(fields.get(name), (str, int))), number)
        steps.append(Step(id=_id(named), do=text.strip(), needs=needs))
    return steps


def _needs_of(fields: Mapping[str, object]) -> list[str]:
    value: object = next((fields[name] for name in _NEEDS if name in fields), None)
    if value is None or value == "":
        return []
    return [_id(each) for each in (cast("list[object]", value) if isinstance(value, list) else [value])]


def _id(value: object) -> str:
    text = str(value).strip()
    # "Step 2" and "2" mean the same one.
    found = re.fullmatch(r"(?:step|task)[\s_-]*(\d+)", text, re.IGNORECASE)
    return found.group(1) if found else _KEEPS.sub("_", text)[:40]


def check_plan(steps: Sequence[Step], *, most: int, taken: Collection[str] = (), done: Collection[str] = ()) -> None:
    """Whether a plan can be followed.

    Args:
        most: steps that it may have.
        taken: ids of earlier plans, which new steps may not have.
        done: of those, the ones whose results are there.

    Raises:
        PlanError: it cannot.
    """
    if len(steps) > most:
        raise PlanError(f"it has {len(steps)} steps, and at most {most} may be made of it: put some together")
    ids = [each.id for each in steps]
    for number, each in enumerate(steps, 1):
        if not each.id:
            raise PlanError(f"step number {number} has no id")
        if not each.do.strip():
            raise PlanError(f"step {each.id!r} does not say what is to be done")
        if len(each.do) > LONGEST:
            raise PlanError(f"step {each.id!r} has more than {LONGEST} characters")
        if each.id in taken:
            raise PlanError(f"step {each.id!r} has the id of an earlier step: give new steps other ids")
        if ids.count(each.id) > 1:
            raise PlanError(f"two steps have the id {each.id!r}")
        _check_needs(each, ids, taken, done)
    if circle := _circle(steps):
        raise PlanError(f"steps {', '.join(map(repr, circle))} wait for each other")


def _check_needs(step: Step, ids: Collection[str], taken: Collection[str], done: Collection[str]) -> None:
    for need in step.needs:
        if need == step.id:
            raise PlanError(f"step {step.id!r} needs itself")
        if need not in ids and need not in done:
            what = "which is not done" if need in taken else "which is not there"
            raise PlanError(f"step {step.id!r} needs step {need!r}, {what}")


def _circle(steps: Sequence[Step]) -> list[str]:
    left = {each.id: {*each.needs} & {other.id for other in steps} for each in steps}
    while free := [name for name, needs in left.items() if not needs]:
        for name in free:
            del left[name]
        for needs in left.values():
            needs.difference_update(free)
    return list(left)


def shown_plan(steps: Sequence[Step], title: str) -> str:
    """A plan for people to read."""
    lines = [f"{each.id}. {each.do}" + (f" (needs {', '.join(each.needs)})" if each.needs else "") for each in steps]
    return "\n".join([title, "", *lines])


def new_id(taken: Collection[str]) -> int:
    """A number from which on ids are free."""
    return max((int(each) for each in taken if each.isdecimal()), default=0) + 1
