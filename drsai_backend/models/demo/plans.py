"""What the demo model says as a member of a plan-execute team, which it knows by the words of its prompts."""

from __future__ import annotations

import json
import re
from typing import Final

_PREFIX: Final = "[offline demo model] "
_PLANNER: Final = "You make the plan for a task"
_THEN: Final = re.compile(r"(?:[.,;?!]|\band\b|\s)+\s*\bthen\b[\s,]*|[.?!;]\s+(?=[A-Z])", re.IGNORECASE)
_AND: Final = re.compile(r"\s*,?\s+\band\b\s+|,\s+", re.IGNORECASE)
_OWN: Final = re.compile(r"^Your step, \S+:\n", re.MULTILINE)
_DONE: Final = "This was done for the task:"
_ENDS: Final = re.compile(r"\n\n(?:Not everything was done|Now answer the task)")
_STEP: Final = re.compile(r"^Step \S+ \([\w ]+\): ", re.MULTILINE)


def plan_of(system: str, task: str) -> str | None:
    """A plan in JSON, when the prompt asks for one: what is joined by `and` is done at once, what comes after `then`
    when that is done. None: it does not."""
    if _PLANNER not in system:
        return None
    steps: list[dict[str, object]] = []
    before: list[str] = []
    for part in _THEN.split(task):
        ids: list[str] = []
        for do in filter(None, (each.strip(" .?!\n") for each in _AND.split(part))):
            ids.append(str(len(steps) + 1))
            steps.append({"id": ids[-1], "do": do, "needs": before})
        before = ids or before
    return json.dumps({"steps": steps[:9]}, ensure_ascii=False)


def own_step(text: str) -> str:
    """Of what an executor is told, its step; any other text as it is."""
    return _OWN.split(text)[-1]


def summed_up(text: str) -> str | None:
    """The results that the one who answers is told, one a line. None: these are none."""
    if not text.startswith(_DONE):
        return None
    parts = _STEP.split(_ENDS.split(text)[0])[1:]
    said = (part.replace(_PREFIX, "").partition("\n") for part in parts)
    return "\n".join(f"- {do.strip()}: {' '.join(result.split())}" for do, _, result in said)
