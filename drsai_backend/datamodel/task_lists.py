"""Task lists have tasks with their statuses, folded from marks: what a team works off, told by the messages of its run.

A mark is what one message changes of a list. It is kept in the metadata of the message, so it is stored with the turn
that made it, and there is no second copy of a status. `Thread.tasks` is these marks, folded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NotRequired, TypedDict, cast

from drsai_backend.json_types import JsonObject

MARK: Final = "drsai_tasks"
"""The key in a message's metadata."""


ENDED: Final = frozenset({"done", "incomplete", "rejected"})
"""The states of a list whose team has come to its end. Before that it is `planned`, `unplanned` (none could be made),
`checked` or `running`."""


class TaskStatus(StrEnum):
    """What becomes of a task."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    REPLACED = "replaced"
    SKIPPED = "skipped"


_NEXT: Final = {
    TaskStatus.WAITING: {TaskStatus.RUNNING, TaskStatus.REPLACED, TaskStatus.SKIPPED},
    # Back to waiting: it is tried again.
    TaskStatus.RUNNING: {TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.WAITING},
    TaskStatus.DONE: set[TaskStatus](),
    TaskStatus.FAILED: set[TaskStatus](),
    TaskStatus.REPLACED: set[TaskStatus](),
    TaskStatus.SKIPPED: set[TaskStatus](),
}


class NewTask(TypedDict):
    """A task that a mark adds: its id in the list, what is to be done, and the ids of those whose results it needs."""

    id: str
    do: str
    needs: list[str]


class TaskMark(TypedDict):
    """What a message changes of a list. `list` names the list in its thread; with `content` it begins, and
    is the list of the team `by`. `drop` takes
    tasks out that never ran. `now` has the statuses that change, by task. `state` is that of the list as a whole."""

    list: str
    content: NotRequired[str]
    by: NotRequired[str]
    drop: NotRequired[list[str]]
    add: NotRequired[list[NewTask]]
    now: NotRequired[dict[str, str]]
    state: NotRequired[str]


@dataclass(slots=True)
class Task:
    """A task as the marks say. `said` numbers the stored messages that tell of it, the newest last."""

    id: str
    do: str
    needs: tuple[str, ...]
    status: TaskStatus = TaskStatus.WAITING
    attempts: int = 0
    said: list[int] = field(default_factory=list[int])

    def become(self, status: TaskStatus) -> None:
        """Raise ValueError: a task does not change so."""
        if status not in _NEXT[self.status]:
            raise ValueError(f"a task that is {self.status} does not become {status}")
        self.status = status
        self.attempts += status is TaskStatus.RUNNING


@dataclass(slots=True)
class TaskList:
    """The tasks of one list, in the order in which they were added."""

    id: str
    content: str
    by: str
    state: str = "planned"
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])

    def apply(self, mark: TaskMark, seq: int | None = None) -> None:
        """Change the list as a mark of it says.

        Raises:
            ValueError: a task does not change so.
            KeyError: there is no such task.
        """
        for name in mark.get("drop", ()):
            if self.tasks[name].status is not TaskStatus.WAITING:
                raise ValueError(f"task {name!r} is {self.tasks[name].status}: it stays in its list")
            del self.tasks[name]
        for each in mark.get("add", ()):
            self.tasks.pop(each["id"], None)  # of a plan that was rejected; a new step stands where it was added
            self.tasks[each["id"]] = Task(each["id"], each["do"], tuple(each["needs"]))
        for name, status in mark.get("now", {}).items():
            task = self.tasks[name]
            task.become(TaskStatus(status))
            if seq is not None:
                task.said.append(seq)
        self.state = mark.get("state", self.state)

    def cut(self) -> None:
        """The run is over, and had not come to the list's end: what is open stays undone."""
        if self.state in ENDED:
            return
        self.state = "stopped"
        for task in self.open:
            task.status = TaskStatus.SKIPPED

    @property
    def open(self) -> list[Task]:
        """The tasks that something may still become of."""
        return [each for each in self.tasks.values() if each.status in (TaskStatus.WAITING, TaskStatus.RUNNING)]

    def rows(self) -> JsonObject:
        """The list with the fields of a `Tasks` row, and each task with those of a `SingleTask`."""
        tasks = list(self.tasks.values())
        names = [None, *(each.id for each in tasks), None]
        return {
            "tasks_id": self.id,
            "content": self.content,
            "files": None,
            "tasks": [
                {
                    "task_id": each.id,
                    "is_node_task": False,
                    "node_task_id": None,
                    "previous_id": names[number],
                    "next_id": names[number + 2],
                    "content": each.do,
                    "files": None,
                    "task_messages": [{"seq": seq} for seq in each.said],
                    "meta": {"status": str(each.status), "attempts": each.attempts, "needs": list(each.needs)},
                }
                for number, each in enumerate(tasks)
            ],
            "meta": {"status": self.state, "team": self.by},
        }


def mark_of(metadata: Mapping[str, object] | None) -> TaskMark | None:
    """The mark in a message's metadata, or None."""
    text = None if metadata is None else metadata.get(MARK)
    if not isinstance(text, str):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return cast("TaskMark", found) if isinstance(found, dict) and "list" in found else None


def dump_mark(mark: TaskMark) -> dict[str, str]:
    """The metadata of a message with this mark."""
    return {MARK: json.dumps(mark, ensure_ascii=False, separators=(",", ":"))}


def fold(messages: Iterable[tuple[int, JsonObject]]) -> list[TaskList]:
    """The lists that the marks of stored messages tell of: their `seq` and dumps, in order. A mark that does not fit,
    as of a message that somebody else has written, is passed over."""
    found: dict[str, TaskList] = {}
    for seq, config in messages:
        mark = mark_of(config.get("metadata"))
        if mark is None:
            continue
        try:
            if "content" in mark:
                found.setdefault(mark["list"], TaskList(mark["list"], mark["content"], mark.get("by", "")))
            found[mark["list"]].apply(mark, seq)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return list(found.values())
