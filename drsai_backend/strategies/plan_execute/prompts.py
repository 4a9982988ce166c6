"""Prompts are what the members of a plan-execute team are told; what they say is read here, too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from drsai_backend.datamodel.task_lists import Task, TaskStatus
from drsai_backend.strategies.plan_execute.board import Board, Outcome
from drsai_backend.strategies.plan_execute.plan import new_id

RESULT: Final = 8_000
"""Characters of one step's result that others are told."""
RESULTS: Final = 32_000
"""And of all of them together."""
_TOOLS: Final = 100
_DESCRIPTION: Final = 200

PLANNER: Final = """\
You make the plan for a task; others do its steps. Take as few steps as it needs, at most {most}. Each step is done by \
an agent that sees the task, its own step and the results of the steps that it needs, and nothing else: so `do` says \
all of it. `needs` names the steps whose results it uses; steps that need nothing from each other are done at the same \
time. Do not plan a step that only sums up: that is done in the end. A task that needs no work done has no steps.
Answer with JSON alone, as this: \
{{"steps": [{{"id": "1", "do": "…", "needs": []}}, {{"id": "2", "do": "…", "needs": ["1"]}}]}}"""
EXECUTOR: Final = """\
You do one step of a plan. Do that step alone, and answer with its result. If you cannot do it, begin your answer with \
FAILED: and say why. If what you find means that the plan has to be another one, begin with REPLAN: and say what you \
found."""
REJECTED: Final = "The plan was rejected, so nothing was done."
_OUTCOME: Final = re.compile(r"^[\W_]*(failed|replan)[\W_]*?(?:[:\uff1a\-\u2013\u2014]|[\])*]|$)", re.IGNORECASE)


def told(own: str | None, part: str) -> str:
    """The system message of a member: what all of them are told, and its part."""
    return f"{own}\n\n{part}" if own else part


def cut(text: str, most: int) -> str:
    """The text, or its beginning and a word that it is cut."""
    return text if len(text) <= most else f"{text[:most]}\n[… cut: {len(text) - most} more characters]"


def outcome_of(text: str) -> tuple[Outcome, str]:
    """Whether a step is done by what was said of it, and its result, or the reason."""
    said = text.strip()
    if not said:
        return "failed", "It gave no result."
    first, _, rest = said.partition("\n")
    found = _OUTCOME.match(first)
    if found is None:
        return "done", said
    reason = f"{first[found.end() :].strip(' *_')}\n{rest}".strip()
    return ("failed" if found.group(1).lower() == "failed" else "replan"), reason or "No reason was given."


def to_plan(board: Board, tools: Sequence[tuple[str, str]]) -> str:
    """Return what the planner is told beside the conversation; "": nothing."""
    parts: list[str] = []
    if tools:
        lines = [f"- {name}: {' '.join(text.split())[:_DESCRIPTION]}" for name, text in tools[:_TOOLS]]
        parts.append("\n".join(["The agents that do the steps have these tools:", *lines]))
    if board.list is not None:
        parts.append(f"There is a plan already, which has to be changed. {cut(board.why or '', RESULT)}")
        parts.append(_report(board, board.tasks.values()))
        parts.append(
            "Give the steps that are still to be done, in place of those that are not done. They may need steps that "
            f"are done. New steps have ids from {new_id(board.tasks)} on."
        )
    return "\n\n".join(parts)


def to_do(board: Board, step: str, task: str, added: Sequence[str]) -> str:
    """Return what the executor of a step is told."""
    own = board.tasks[step]
    parts = [f"The task that the plan is for:\n{cut(task, RESULT)}"]
    if added:
        parts.append("The user has added meanwhile:\n" + cut("\n".join(added), RESULT))
    if own.needs:
        parts.append(_report(board, [board.tasks[need] for need in own.needs]))
    if step in board.results:
        parts.append(f"An earlier attempt at your step failed: {cut(board.results[step], RESULT)}")
    parts.append(f"Your step, {step}:\n{own.do}")
    return "\n\n".join(parts)


def to_answer(board: Board, task: str) -> str:
    """Return what the one who answers is told of the steps; "": there were none."""
    if not board.tasks:
        return ""
    shown = [each for each in board.tasks.values() if each.status is not TaskStatus.REPLACED]
    parts = ["This was done for the task:", _report(board, shown)]
    if board.left or board.no_plan:
        parts.append("Not everything was done. Say what is missing.")
    parts.append(f"Now answer the task from these results:\n{cut(task, RESULT)}")
    return "\n\n".join(parts)


def left_over(board: Board) -> str:
    """Return what a user is told of steps that were not done; "": all were."""
    failed = [each for each in board.left if board.tasks[each].status is TaskStatus.FAILED]
    missed = [each for each in board.left if each not in failed]
    said = [f"{_steps(failed)} failed"] if failed else []
    if missed:
        limit = f", because the limit of {board.bounds.max_steps} steps was reached" if board.at_limit else ""
        said.append(f"{_steps(missed)} {'was' if len(missed) == 1 else 'were'} not done{limit}")
    if board.no_plan:
        said.insert(0, f"no {'new ' if board.results else ''}plan could be made")
    what = "Not everything" if board.results else "Nothing"
    return f"{what} was done: {'; '.join(said)}." if said else ""


def begins(board: Board, steps: Sequence[str]) -> str:
    """Return what is said of steps that begin."""
    lines: list[str] = []
    for step in steps:
        task = board.tasks[step]
        again = f" (attempt {task.attempts + 1} of {board.bounds.retries + 1})" if task.attempts else ""
        lines.append(f"Step {step}{again}: {task.do}")
    return "\n".join(lines)


def _steps(names: Sequence[str]) -> str:
    return f"step{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _report(board: Board, tasks: Iterable[Task]) -> str:
    shown = list(tasks)
    each_most = min(RESULT, RESULTS // max(len(shown), 1))
    parts: list[str] = []
    for task in shown:
        said = board.results.get(task.id)
        status = {TaskStatus.DONE: "done", TaskStatus.FAILED: "failed"}.get(task.status, "not done")
        parts.append(f"Step {task.id} ({status}): {task.do}" + (f"\n{cut(said, each_most)}" if said else ""))
    return "\n\n".join(parts)
