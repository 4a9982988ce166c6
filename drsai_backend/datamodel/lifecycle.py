"""The lifecycle is one for a thread and its runs: statuses, sets of them, and the verbs that change one to another.

Every write of a status takes it from a verb. A thread has the status of its latest run; runs whose input waits in the
queue have theirs beside it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from drsai_backend.errors import IllegalTransition


class RunStatus(StrEnum):
    """Status of a thread (that of its latest run) and of a run. Stored as lower-case strings."""

    CREATED = "created"
    RUNNING = "running"
    AWAITING_INPUT = "awaiting_input"
    PAUSED = "paused"
    COMPLETED = "completed"
    STOPPED = "stopped"
    ERROR = "error"

    @property
    def is_final(self) -> bool:
        """True when the run is over and the next user input starts a new one."""
        return self in FINAL


FINAL: Final = frozenset({RunStatus.COMPLETED, RunStatus.STOPPED, RunStatus.ERROR})
"""The run is over."""
IDLE: Final = FINAL | {RunStatus.CREATED}
"""Of a thread: it does nothing and waits for nobody."""
SUSPENDED: Final = frozenset({RunStatus.AWAITING_INPUT, RunStatus.PAUSED})
"""The run is not over, and waits for a person."""
UNFINISHED: Final = SUSPENDED | {RunStatus.RUNNING}
"""The run has begun and is not over."""
BUSY: Final = frozenset({RunStatus.RUNNING, RunStatus.PAUSED})
"""Of a thread: it begins no other run."""
PENDING: Final = frozenset({RunStatus.CREATED, RunStatus.RUNNING})
"""Of a run: it has nothing to tell yet but will have, without anybody's help."""
WAITING: Final = (RunStatus.CREATED, RunStatus.PAUSED, RunStatus.AWAITING_INPUT)
"""Of a run: it is not over, and nobody runs it. A partial index has them, which SQLite uses for a query that asks for
these, in this order."""


@dataclass(frozen=True)
class Verb:
    """A change of status: from one of `sources` to one of `targets`."""

    name: str
    sources: frozenset[RunStatus]
    targets: frozenset[RunStatus]

    def __call__(self, current: RunStatus, new: RunStatus) -> RunStatus:
        """`new`, to be stored.

        Raises:
            IllegalTransition: the verb does not change `current` to `new`.
        """
        if not self.allows(current, new):
            raise IllegalTransition(f"a run that is {current.value} cannot become {new.value} ({self.name})")
        return new

    def allows(self, current: RunStatus, new: RunStatus) -> bool:
        """Whether the verb changes `current` to `new`."""
        return current in self.sources and new in self.targets


START: Final = Verb("start", IDLE, frozenset({RunStatus.RUNNING}))
"""A worker begins a run."""
RESUME: Final = Verb("resume", SUSPENDED, frozenset({RunStatus.RUNNING}))
"""A person has answered, or takes the pause back."""
RETRY: Final = Verb("retry", frozenset({RunStatus.ERROR}), frozenset({RunStatus.RUNNING}))
"""A run that has failed is run again, from the turn that failed."""
TAKE_OVER: Final = Verb("take over", frozenset({RunStatus.RUNNING}), frozenset({RunStatus.RUNNING}))
"""The worker that ran it is gone."""
END: Final = Verb("end", frozenset({RunStatus.RUNNING}), FINAL | SUSPENDED)
"""The worker that runs it has done its part."""
STOP: Final = Verb("stop", UNFINISHED, frozenset({RunStatus.STOPPED}))
"""Somebody ends a run that no worker holds."""
GIVE_UP: Final = Verb("give up", UNFINISHED, frozenset({RunStatus.ERROR}))
"""A run that no worker holds cannot be resumed; one that waits, once its deadline has passed."""
JOIN: Final = Verb("join", frozenset({RunStatus.CREATED}), frozenset({RunStatus.COMPLETED}))
"""The run that is live takes up an input of the queue."""
DROP: Final = Verb("drop", frozenset({RunStatus.CREATED}), frozenset({RunStatus.STOPPED, RunStatus.ERROR}))
"""An input leaves the queue without having been run."""
REWIND: Final = Verb("rewind", IDLE, IDLE)
"""A thread on which nothing is under way goes back to an earlier run, and has its status: a change of the thread, of no
run. So it is none of `VERBS`."""
VERBS: Final = (START, RESUME, RETRY, TAKE_OVER, END, STOP, GIVE_UP, JOIN, DROP)

_TAKING: Final = {source: verb for verb in (START, RESUME, TAKE_OVER) for source in verb.sources}


def taken(current: RunStatus) -> RunStatus:
    """Return what a thread of that status becomes when a worker takes it: to start, resume or take over a run."""
    return _TAKING[current](current, RunStatus.RUNNING)


TRANSITIONS: Final[dict[RunStatus, frozenset[RunStatus]]] = {
    current: frozenset(new for new in RunStatus if any(verb.allows(current, new) for verb in VERBS))
    for current in RunStatus
}
"""What may become of a status."""


def check_transition(current: RunStatus, new: RunStatus) -> None:
    """Check what a program may make of a thread's status by hand.

    Raises:
        IllegalTransition: `new` may not follow `current`.
    """
    if not any(verb.allows(current, new) for verb in (START, RESUME, END, STOP)):
        raise IllegalTransition(f"a thread that is {current.value} cannot become {new.value}", param="status")
