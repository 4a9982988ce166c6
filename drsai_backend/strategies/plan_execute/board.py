"""The board says which step of a plan runs when, how often, and when the plan is over. It knows no models, no messages
and no storage.

A board is what the marks of a run's messages add up to, so it is the same in every process that has these messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Literal

from drsai_backend.datamodel.task_lists import NewTask, Task, TaskList, TaskMark, TaskStatus
from drsai_backend.strategies.plan_execute.plan import Step

_WORDS: Final = 300
"""Characters of a task's text that a mark keeps: the message itself has all of it."""
Outcome = Literal["done", "failed", "replan"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a team does for one task.

    Attributes:
        max_steps: attempts at steps, those that are repeated included.
        retries: attempts at one step beside the first.
        replans: plans beside the first.
        at_once: steps of one turn.
        check: a person sees every plan before it is followed.
    """

    max_steps: int = 20
    retries: int = 3
    replans: int = 2
    at_once: int = 3
    check: bool = False


class Next(Enum):
    """What is to be done: make a plan, ask a person about it, run steps, sum up, or say that nothing was done."""

    PLAN = auto()
    CHECK = auto()
    RUN = auto()
    ANSWER = auto()
    REFUSED = auto()


@dataclass(slots=True)
class Board:
    """The plan for one task, and how far it is.

    Attributes:
        bounds: of the team.
        team: its name.
        list: the steps and their statuses; None: there is no plan yet.
        plans: how many there were.
        used: attempts at steps so far.
        results: what steps have said, by id: the result of one that is done, else why it is not.
        why: the reason for which a new plan is wanted; None: the one there is holds.
        batch: the steps of the turn in flight, or of the last one.
        no_plan: a plan was wanted, and none could be made.
    """

    bounds: Bounds
    team: str = ""
    list: TaskList | None = None
    plans: int = 0
    used: int = 0
    results: dict[str, str] = field(default_factory=dict[str, str])
    why: str | None = None
    batch: tuple[str, ...] = ()
    no_plan: bool = False
    _checked: bool = False
    _refused: bool = False
    _past: set[str] = field(default_factory=set[str])
    """Steps that failed, and in whose place a later plan has others."""

    # --- what is next ---------------------------------------------------------------------------------------------

    def next(self) -> tuple[Next, tuple[str, ...]]:
        """Return what is to be done now, and of steps, which."""
        if self._refused:
            # What earlier plans have given is an answer of a kind.
            return Next.ANSWER if self.results else Next.REFUSED, ()
        if self.list is None:
            return Next.PLAN, ()
        if self.why is not None and self.may_replan:
            return Next.PLAN, ()
        if self.bounds.check and not self._checked and self.waiting:
            return Next.CHECK, ()
        ready = self.ready[: max(0, min(self.bounds.at_once, self.bounds.max_steps - self.used))]
        return (Next.RUN, tuple(ready)) if ready else (Next.ANSWER, ())

    @property
    def may_replan(self) -> bool:
        """Whether one more plan may be made, and steps of it run."""
        return self.plans <= self.bounds.replans and self.used < self.bounds.max_steps

    @property
    def tasks(self) -> dict[str, Task]:
        return {} if self.list is None else self.list.tasks

    @property
    def taken(self) -> list[str]:
        """The steps that have run, whose ids no other may have; those of a plan that was rejected are free."""
        return [each.id for each in self.tasks.values() if each.attempts]

    @property
    def waiting(self) -> list[str]:
        """The steps that are still to be run, whenever that may be."""
        return [each.id for each in self.tasks.values() if each.status is TaskStatus.WAITING]

    @property
    def ready(self) -> list[str]:
        """The steps that could run now, in the order of the plan."""
        tasks = self.tasks
        return [
            each for each in self.waiting if all(tasks[need].status is TaskStatus.DONE for need in tasks[each].needs)
        ]

    @property
    def left(self) -> list[str]:
        """The steps that were not done, those of earlier plans left out."""
        undone = (TaskStatus.WAITING, TaskStatus.FAILED, TaskStatus.SKIPPED)
        return [each.id for each in self.tasks.values() if each.status in undone and each.id not in self._past]

    @property
    def at_limit(self) -> bool:
        """Whether no more attempts may be made."""
        return self.used >= self.bounds.max_steps

    # --- marks: what an event changes -----------------------------------------------------------------------------

    def planned(self, name: str, task: str, steps: Sequence[Step]) -> TaskMark:
        """The mark of a plan: the first one of the list `name`, or what replaces the steps that are not done."""
        mark: TaskMark = {"list": name, "add": [_new(each) for each in steps], "state": "planned"}
        if self.list is None:
            mark["content"], mark["by"] = task[:_WORDS], self.team
        else:
            mark["list"] = self.list.id
            new = {each.id for each in steps}
            mark["drop"] = [each for each in self.waiting if each in new]
            mark["now"] = {each: str(TaskStatus.REPLACED) for each in self.waiting if each not in new}
        return mark

    def unplanned(self, name: str, task: str) -> TaskMark:
        """The mark of a planner that could make no plan: what there is holds."""
        if self.list is None:
            return {"list": name, "content": task[:_WORDS], "by": self.team, "state": "unplanned"}
        return {"list": self._id, "state": "unplanned"}

    def changed(self, steps: Sequence[Step]) -> TaskMark:
        """The mark of a plan as a person has edited it."""
        return {"list": self._id, "drop": self.waiting, "add": [_new(each) for each in steps], "state": "checked"}

    def accepted(self) -> TaskMark:
        """The mark of a plan that a person has approved."""
        return {"list": self._id, "state": "checked"}

    def refused(self, *, for_good: bool) -> TaskMark:
        """The mark of a plan that a person does not want; `for_good`: nor another one."""
        now = dict.fromkeys(self.waiting, str(TaskStatus.SKIPPED if for_good else TaskStatus.REPLACED))
        return {"list": self._id, "now": now, "state": "rejected" if for_good else "planned"}

    def started(self, steps: Sequence[str]) -> TaskMark:
        """The mark of steps that begin."""
        return {"list": self._id, "now": dict.fromkeys(steps, str(TaskStatus.RUNNING)), "state": "running"}

    def ends_as(self, step: str, outcome: Outcome) -> TaskMark:
        """The mark of an attempt at a step. One that failed is to be tried again, as long as the bounds allow it."""
        again = outcome == "failed" and self.tasks[step].attempts <= self.bounds.retries
        status = TaskStatus.DONE if outcome == "done" else TaskStatus.WAITING if again else TaskStatus.FAILED
        return {"list": self._id, "now": {step: str(status)}}

    def finished(self) -> TaskMark:
        """The mark of the end: what was not done is left."""
        now = dict.fromkeys(self.waiting, str(TaskStatus.SKIPPED))
        return {"list": self._id, "now": now, "state": "incomplete" if self.left or self.no_plan else "done"}

    @property
    def _id(self) -> str:
        return "" if self.list is None else self.list.id

    # --- events ---------------------------------------------------------------------------------------------------

    def take(self, mark: TaskMark, said: str = "") -> None:
        """An event has happened. `said`: the result of a step, why it failed, or what a person wants."""
        if "content" in mark and self.list is None:
            self.list = TaskList(mark["list"], mark["content"], mark.get("by", ""))
        if self.list is None or mark["list"] != self.list.id:
            return
        self.list.apply(mark)
        now = mark.get("now", {})
        self.no_plan = mark.get("state") == "unplanned" or (self.no_plan and "add" not in mark)
        match mark.get("state"):
            case "planned" if "add" in mark:
                self.why, self.plans, self._checked = None, self.plans + 1, False
                self._past |= {each.id for each in self.tasks.values() if each.status is TaskStatus.FAILED}
            case "planned":
                self.why = said or "The user does not want this plan."
                self._refused = not self.may_replan
            case "unplanned":
                self.why, self.plans = None, self.plans + 1
            case "checked":
                self._checked = True
            case "rejected":
                self._refused = True
            case "running":
                self.batch, self.used = tuple(now), self.used + len(now)
            case None:
                self.results |= dict.fromkeys(now, said)
                failed = [step for step, status in now.items() if status == TaskStatus.FAILED]
                self.why = f"Step {failed[-1]} failed: {said}" if failed else self.why
            case _:
                pass


def _new(step: Step) -> NewTask:
    return {"id": step.id, "do": step.do, "needs": list(step.needs)}
