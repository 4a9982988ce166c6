"""The lifecycle of a thread and of its runs."""

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
        return self in _FINAL


_FINAL: Final = frozenset({RunStatus.COMPLETED, RunStatus.STOPPED, RunStatus.ERROR})

TRANSITIONS: Final[dict[RunStatus, frozenset[RunStatus]]] = {
    RunStatus.CREATED: frozenset({RunStatus.RUNNING}),
    RunStatus.RUNNING: frozenset(
        {RunStatus.COMPLETED, RunStatus.ERROR, RunStatus.STOPPED, RunStatus.AWAITING_INPUT, RunStatus.PAUSED}
    ),
    RunStatus.AWAITING_INPUT: frozenset({RunStatus.RUNNING, RunStatus.STOPPED}),
    RunStatus.PAUSED: frozenset({RunStatus.RUNNING, RunStatus.STOPPED}),
    RunStatus.COMPLETED: frozenset({RunStatus.RUNNING}),
    RunStatus.STOPPED: frozenset({RunStatus.RUNNING}),
    RunStatus.ERROR: frozenset({RunStatus.RUNNING}),
}


def check_transition(current: RunStatus, new: RunStatus) -> None:
    """The one place that refuses a status change.

    Raises:
        IllegalTransition: `new` may not follow `current`.
    """
    if new not in TRANSITIONS[current]:
        raise IllegalTransition(f"a thread that is {current.value} cannot become {new.value}", param="status")
