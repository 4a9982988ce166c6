"""The values of a run's writes are finished, and say nothing of the statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

from sqlalchemy.orm import Session

from drsai_backend.database.backends.prepared import Charge, Step
from drsai_backend.database.runs.reads import ThreadHead
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.base import JsonText
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import LeaseLost
from drsai_backend.json_types import JsonObject


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come, in all processes: what its model calls have used (`prompt_tokens`, `completion_tokens`,
    `total_tokens`), its stored turns, for how many seconds it ran, and its newest model calls. `also` stores what of
    these features want, up to the number `newest`, in the same write."""

    usage: dict[str, int] = field(
        default_factory=lambda: {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    )
    turns: int = 0
    seconds: float = 0.0
    calls: Sequence[Mapping[str, object] | list[object]] | None = None
    also: Sequence[Step] = ()
    newest: int = 0

    def values(self, run_id: str, now: datetime) -> dict[str, object]:
        """Return the values as parameters of the statements that store it."""
        return {
            "run": run_id,
            "updated": now,
            "new_usage": self.usage,
            "new_calls": self.calls or None,
            "new_turns": self.turns,
            "new_seconds": self.seconds,
        }


class StepRow(Protocol):
    """A recorded step, as `drsai_backend.teams.replay.steps.Step` has it."""

    @property
    def agent(self) -> str: ...
    @property
    def step(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def value(self) -> JsonObject: ...


@dataclass(slots=True)
class NewMessage:
    """A message to append; `config` is JSON text. `shown`: whether a chat window shows it."""

    seq: int
    config: JsonText
    shown: bool = False


class StoredInput(NamedTuple):
    """What is stored of a request: the tenant and the key of its thread, how that stood before (None: it is new;
    `queued` counts other inputs only), the row that is the request's own, the run that serves it, whether it waits in
    the queue, and how many agents may speak."""

    tenant: str
    key: int
    head: ThreadHead | None
    row_id: str
    run_id: str
    is_queued: bool
    speakers: int


class StoredWithRequest(Protocol):
    """What belongs into the transaction that stores a request.

    Attributes:
        row_id: is set once that is stored, to the row that is the request's own.
    """

    row_id: str | None

    def __call__(self, session: Session, stored: StoredInput) -> Sequence[Step]:
        """Return its statements. What is raised undoes the transaction, and reaches whoever asked; it may be called
        again, for another one."""
        ...


LEAST_DEBT: Final = 192
"""What a journal entry counts at least in `Thread.journal_debt`: it takes as long to fold, however short it is."""
_SHORT = 16384
"""Characters that are written in a fraction of a millisecond."""


def _is_short(messages: Sequence[NewMessage], size: int) -> bool:
    return size + sum(len(each.config) for each in messages) < _SHORT


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstWrite:
    """What the first write of every run needs. `head=None` creates the thread; `user_input=None`: the stored one stays;
    `limits` are those that the request asked for; `at` is when it came; `audit` are entries of the audit log, see
    `drsai_backend.database.audit`; `also` makes more statements, by what is stored of the request once `key` is known.
    `newest`: it is made only if the thread stands at this point (`Run.point`), and none that is equal to it is newer.
    `definition`: of a run that begins, `of_key` and `of_time`, key and `created_at` of the stored definition of its
    team. `charges`: what the request is charged before."""

    head: ThreadHead | None
    name: ThreadName
    team: str
    run_id: str
    owner: str
    lease: timedelta
    title: str
    user_input: JsonObject | None
    messages: Sequence[NewMessage]
    limits: JsonObject | None
    request_id: str | None
    clear_steps: bool
    at: datetime
    audit: Sequence[Step] = ()
    also: tuple[StoredWithRequest, StoredInput] | None = None
    newest: bytes | None = None
    definition: Mapping[str, object] | None = None
    charges: Sequence[Charge] = ()

    @property
    def is_short(self) -> bool:
        """Whether the write takes a fraction of a millisecond. The user input holds the messages once more."""
        return self.also is None and _is_short(self.messages, 0)

    @property
    def row_id(self) -> str:
        """The row that the request has got."""
        return self.run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun(FirstWrite):
    """The first write of a run that has no row yet. `principal`: who asked, as `Run.principal` keeps it."""

    principal: JsonObject | None = None
    idempotency_key: str | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRun(FirstWrite):
    """That of a run whose input has waited in the queue under its `run_id`, and is taken out of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedRun(FirstWrite):
    """That of a run which was begun before: it waited for an answer, was paused, or lost its worker.

    `attempt`, `retries` and `retry_turn` are what its row says from now on. `control` is what it is asked to do as soon
    as it can, where nothing else is asked of it. `queued_answer` is the run_id of an input of the queue that answers
    it, and joins it. `answer_id`: an answer with an idempotency key gets a row under that run_id, which has joined it.
    """

    progress: Progress
    answers: list[JsonObject] | None
    attempt: int
    retries: int
    retry_turn: int | None
    control: str | None
    queued_answer: str | None
    answer_id: str | None
    idempotency_key: str | None
    fingerprint: str | None

    @property
    def row_id(self) -> str:
        return self.answer_id or self.run_id


@dataclass(slots=True)
class Lease:
    """The right to write a thread: row key and epoch, with the turn that the next write follows.

    Writing tells what others have asked meanwhile: `control`, and with the end how many inputs are `queued`.
    """

    key: int
    name: ThreadName
    run_id: str
    epoch: int
    owner: str
    turn: int
    last_seq: int
    control: str | None = None
    queued: int = 0

    @property
    def guard(self) -> dict[str, object]:
        """Parameters of a statement that only its holder may make, after the turn it has seen (`statements.HELD`), and
        the tenant, for whom what it stores is encrypted."""
        held = {"key": self.key, "held_run": self.run_id, "owner": self.owner, "tenant": self.name.tenant}
        return {**held, "seen_epoch": self.epoch, "seen_turn": self.turn}

    def lost(self) -> LeaseLost:
        """The error for a holder that is the holder no more."""
        return LeaseLost(f"thread {self.name.thread_id!r} is run by another worker now", param="thread_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnWrite:
    """One turn to append. `debt`: what its entry adds to `Thread.journal_debt`. `clear_answers` drops the person's
    answers that the turn has used up, `clear_steps` what was recorded during it. `also` runs in the same transaction,
    once the guard has passed."""

    payload: str
    debt: int
    messages: Sequence[NewMessage]
    progress: Progress
    clear_answers: bool
    clear_steps: bool
    also: Sequence[Step] = ()

    @property
    def is_short(self) -> bool:
        """Whether the write takes a fraction of a millisecond."""
        return _is_short(self.messages, len(self.payload))


@dataclass(slots=True, kw_only=True)
class EndWrite:
    """How a run ends, or its part in this process. `turn` is the last turn's write, if it came to a boundary; `steps`
    are to be recorded of a turn that will be repeated. `waits_for` is who may answer its question. `messages` are part
    of no turn: what was shown of those that were cut off. `finish` and `ending` are what `Run` keeps. `told` is kept
    for clients that repeat their requests; None: no request has a key. `point` names the conversation with this answer.
    `raises_events`: webhooks may want to know. `shown`: the number of a message that turns out to be shown.
    `turns_away`: inputs that wait behind the run end with it, as nobody knows when it is resumed."""

    status: RunStatus
    progress: Progress
    turn: TurnWrite | None = None
    stop_reason: str | None = None
    stop_code: str | None = None
    finish: JsonObject | None = None
    ending: JsonObject | None = None
    error_message: str | None = None
    input_request: JsonObject | None = None
    deadline: datetime | None = None
    waits_for: str | None = None
    messages: Sequence[NewMessage] = ()
    steps: Sequence[StepRow] = ()
    clear_steps: bool = False
    told: JsonObject | None = None
    point: bytes | None = None
    raises_events: bool = False
    shown: int | None = None
    turns_away: bool = False
