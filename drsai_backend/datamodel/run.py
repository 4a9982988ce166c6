"""A run has rows for its result, the journal of its turns, the steps of a turn in flight, model calls that are kept and
inputs that wait; workers have theirs beside it."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Self, cast

import sqlalchemy as sa
from pydantic import BaseModel, PrivateAttr
from pydantic import Field as PydanticField
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.base import (
    JsonObject,
    KeyedRecord,
    Record,
    StatusType,
    UTCDateTime,
    big_key,
    by_database,
    counter,
    json_field,
    json_type,
    partial_index,
    secret_text,
    short_text,
    thread_key_field,
    utcnow,
)
from drsai_backend.datamodel.encrypted import encrypted_bytes, encrypted_json, encrypted_text, only
from drsai_backend.datamodel.lifecycle import WAITING, RunStatus
from drsai_backend.json_types import formatted

CALL_FIELDS: Final = (
    *("agent", "step", "prompt_tokens", "completion_tokens", "seconds", "profile", "model"),
    *("cached_tokens", "reasoning_tokens", "cache_write_tokens", "attempts", "cached", "cut"),
)
"""The places of a model call's fields (`drsai_backend.models.endpoints.answers.CallRecord`) in its short form."""
_PLACES: Final = {name: place for place, name in enumerate(CALL_FIELDS, 1)}


def shortened(call: Mapping[str, object]) -> list[object] | Mapping[str, object]:
    """A model call in its short form, a list; as it is where it has a field that this version does not know."""
    try:
        return [*map(call.get, CALL_FIELDS[: max(map(_PLACES.__getitem__, call), default=0)])]
    except KeyError:
        return call


class CallsType(TypeDecorator[list[JsonObject]]):
    """Model calls, each stored as an object or in its short form."""

    impl = sa.JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(json_type())

    def process_result_value(self, value: Any | None, dialect: Dialect) -> list[JsonObject] | None:
        if value is None:
            return None
        return [each if isinstance(each, dict) else _call_of(each) for each in value]


def _call_of(short: list[object]) -> JsonObject:
    return {name: value for name, value in zip(CALL_FIELDS, short, strict=False) if value is not None}


class Run(Record, table=True):
    """One execution of a team on a thread, from user input to a final status."""

    __table_args__ = (
        sa.UniqueConstraint("run_id"),
        # In the order of the runs' beginnings, for those who follow a thread.
        sa.Index(None, "thread_key", "epoch"),
        partial_index("ix_run_live", "status = 'running'", "thread_key"),
        partial_index(
            "uq_run_idempotency", "idempotency_key IS NOT NULL", "thread_key", "idempotency_key", unique=True
        ),
        partial_index("ix_run_deadline", "deadline IS NOT NULL", "deadline"),
        partial_index("ix_run_waits_for", "status = 'awaiting_input'", "waits_in", "waits_for"),
        partial_index("ix_run_point", "point IS NOT NULL", "point"),
        partial_index("ix_run_joined", "joined IS NOT NULL", "joined"),
        partial_index("ix_run_definition", "definition IS NOT NULL", "definition"),
        partial_index("ix_run_waiting", f"status IN {tuple(status.value for status in WAITING)}", "thread_key"),
        # Of all users' runs, the newest and those that have failed.
        sa.Index("ix_run_newest", "created_at", "id"),
        partial_index("ix_run_failed", "status = 'error'", "created_at", "id"),
    )

    run_id: str
    thread_key: int | None = thread_key_field(default=None, nullable=False)
    team: str
    status: RunStatus = Field(default=RunStatus.RUNNING, sa_type=StatusType)
    attempt: int = Field(default=1, description="How often a worker has taken it up; 1: never taken over.")
    idempotency_key: str | None = None
    fingerprint: str | None = Field(
        default=None,
        description="SHA-256 of the request, with an idempotency key; else a short digest of the chat request that "
        "brought it about, or has answered it last: its client may repeat it.",
    )
    usage: JsonObject | None = json_field(
        description="What its model calls have used so far, in all processes; None: it has not begun."
    )
    usage_before: JsonObject | None = json_field(
        description="What it had used when it was resumed last, after a question or a pause; None: it never was."
    )
    told: JsonObject | None = encrypted_json(
        "run.told",
        only("status"),
        description="With an idempotency key: what the client was told when the part of the run that its request "
        "brought about had ended. See `drsai_backend.runs.events.RunEnded`.",
    )
    error_message: str | None = encrypted_text("run.error_message")
    answers: list[JsonObject] | None = encrypted_json(
        "run.answers",
        description="A person's answers that the turn in flight has not used up yet, in order.",
    )
    first_seq: int = Field(default=0, description="The first message of the run.")
    last_seq: int = Field(
        default=0, description="The last message of the run, or of its part that has ended; until then 0."
    )
    stop_reason: str | None = encrypted_text("run.stop_reason")
    started_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    finished_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    epoch: int = counter("The thread's epoch when it was taken up last.")
    retries: int = counter("How often its worker has died since turn `retry_turn` was stored.")
    retry_turn: int | None = Field(default=None, description="-1: it was retried or resumed, and nobody runs it yet.")
    background: bool = Field(default=False, sa_column_kwargs=by_database(sa.false()))
    joined: str | None = Field(default=None, description="The run that took this one's input up.")
    deadline: datetime | None = Field(
        default=None, sa_type=UTCDateTime, description="Until when a person may answer what the run waits for."
    )
    turns: int = counter("The turns that are stored, those of nested teams included.")
    seconds: float = counter(
        "For how long it ran, in all processes; the time that it waited for a person is not part of it.", 0.0
    )
    limits: JsonObject | None = json_field(description="The bounds that its request asked for, where it did.")
    stop_code: str | None = Field(default=None, description="Which bound ended it.")
    finish: JsonObject | None = json_field(
        description="How the model call that gave its last answer finished: `finish_reason`, `service_tier`, "
        "`system_fingerprint`; what is not there is `stop`, or not known."
    )
    ending: JsonObject | None = encrypted_json(
        "run.ending",
        description="What else is known of its end: `raised`, the class and text of what was, for admins; `shown`, the "
        "number of a message that turned out to be the answer after it was told; `worker`, who held it last, where "
        "nobody did any more.",
    )
    request_id: str | None = Field(default=None, description="`X-Request-Id` of the request that brought its input.")
    waits_in: str | None = Field(
        default=None, description="The tenant of the thread, once the run has waited for a person."
    )
    waits_for: str | None = Field(
        default=None, description="Who may answer what it waits for, or waited for last: `user:ann`, `role:treasurer`."
    )
    principal: JsonObject | None = json_field(
        description="Who asked, besides its owner; see `drsai_backend.access.principal.Principal.dump`."
    )
    point: bytes | None = Field(
        default=None,
        sa_type=sa.LargeBinary,
        description="The conversation after its part that has ended, as its client sees it; see "
        "`drsai_backend.runs.history.digest`. None: nothing was answered.",
    )
    calls: list[JsonObject] | None = Field(
        default=None,
        sa_type=CallsType,
        description="Its newest model calls, as far as they came from model profiles; see "
        "`drsai_backend.models.endpoints.answers.CallRecord`.",
    )
    definition: int | None = Field(
        default=None,
        sa_type=big_key(),  # pyright: ignore[reportArgumentType]
        description="The `storeddefinition` that its team was built from; None: its team is no stored one.",
    )


class JournalEntry(SQLModel, table=True):
    """What one turn added to the state of a thread; see `drsai_backend.state.journal`."""

    __table_args__ = ({"sqlite_with_rowid": False},)

    thread_key: int = thread_key_field(primary_key=True)
    turn: int = Field(primary_key=True, sa_type=sa.Integer, sa_column_kwargs={"autoincrement": False})
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    run_id: str
    epoch: int
    first_seq: int = Field(description="First message the turn stored.")
    last_seq: int = Field(description="Last message the turn stored; below first_seq: none.")
    payload: str = encrypted_text("journalentry.payload", default=...)


KEPT: Final = "~"
"""Follows the name of a recorded answer where its calls are messages of the thread: the turn came to no end."""


class TurnStep(SQLModel, table=True):
    """What an agent did in the turn in flight: an answer of its model that calls tools, or the result of a tool call.

    A run that was cut inside a turn repeats it, and is given these again instead of asking the model and calling the
    tools once more; see `drsai_backend.teams.replay.steps`. The rows go when the turn is stored; those of a run that
    has failed, when the next one begins.
    """

    __table_args__ = ({"sqlite_with_rowid": False},)

    thread_key: int = thread_key_field(primary_key=True)
    agent: str = Field(primary_key=True, description="Names from the outermost team's member down, joined by `/`.")
    step: str = Field(primary_key=True, description="Names the step among those of the agent in the turn.")
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    run_id: str
    turn: int
    epoch: int
    digest: str = Field(description="Hash of what was asked.")
    value: object = encrypted_json("turnstep.value", nullable=False)


class KeptCall(SQLModel, table=True):
    """What a model was sent in a call of a run, and what it has answered, where that was to be kept."""

    __table_args__ = (sa.Index(None, "thread_key"), sa.Index(None, "at"))

    run_id: str = Field(primary_key=True)
    epoch: int = Field(primary_key=True, sa_type=sa.Integer, sa_column_kwargs={"autoincrement": False})
    number: int = Field(primary_key=True, sa_type=sa.Integer, sa_column_kwargs={"autoincrement": False})
    thread_key: int = thread_key_field()
    at: datetime = Field(sa_type=UTCDateTime, description="When it was answered.")
    data: bytes = encrypted_bytes("keptcall.data", description="Both as JSON, in gzip's format.")


class QueuedInput(KeyedRecord, table=True):
    """A user input that waits until the run on its thread has ended, or until its next turn boundary (`steer`)."""

    __table_args__ = (sa.UniqueConstraint("run_id"), sa.Index(None, "thread_key"))

    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    thread_key: int = thread_key_field()
    run_id: str = Field(description="The run that the input will be, status CREATED until then.")
    policy: str = short_text(12, description="The request's `on_busy`.")
    request: JsonObject = encrypted_json("queuedinput.request", default_factory=dict)
    api_key: str | None = secret_text()
    on_question: str = short_text(
        12,
        default="wait",
        sa_column_kwargs=by_database("wait"),
        description="What it is to a question that is asked while it waits: `wait`, or the `answer`.",
    )


class Worker(SQLModel, table=True):
    """A process that runs teams on the database, as it announces itself. The rows of those that are gone are kept for a
    while: they say until when a team was known. Times are the database's on PostgreSQL, as those of leases."""

    worker_id: str = Field(primary_key=True)
    teams: list[str] | None = json_field(
        description="The teams in its code, by name; NULL: it is of a release that announces none, and may know any."
    )
    since: datetime = Field(sa_type=UTCDateTime, description="From when on it has lived without a gap.")
    seen_at: datetime = Field(sa_type=UTCDateTime, description="When it was alive last.")
    alive_until: datetime | None = Field(
        default=None,
        sa_type=UTCDateTime,
        description="Until when its leases last without another heartbeat; NULL: it is of a release that renews each.",
    )


class TeamResult(BaseModel):
    """What a run produced.

    `task_result` is AutoGen's `TaskResult` as JSON: `{"messages": [...], "stop_reason": ...}` with every message of the
    run in order, the user's included. `usage` sums all model calls (`prompt_tokens`, `completion_tokens`,
    `total_tokens`); `duration` is in seconds. `files` are those that its tools have made: `id`, `filename`, `bytes` and
    `media_type`. What `DrSai.run` returns also says where it happened, with what `status`, and, when the run waits for
    a person, what was asked (`input_request`, as in `RunEnded`); with `queued_behind` by that run: this one's message
    still waits in the queue.
    """

    task_result: JsonObject
    usage: dict[str, int] = PydanticField(default_factory=dict)
    duration: float = 0.0
    files: list[JsonObject] = PydanticField(default_factory=list)
    thread_id: str | None = None
    run_id: str | None = None
    status: RunStatus | None = None
    input_request: JsonObject | None = None
    queued_behind: str | None = None

    _output: BaseModel | None = PrivateAttr(default=None)

    @property
    def text(self) -> str:
        """The content of the last chat message that is not the user's, as text; empty when there is none.

        A structured answer is its JSON, or what its format string makes of it; of several parts, the text ones.
        """
        for message in reversed(self.task_result.get("messages", [])):
            if message.get("source") != "user" and not str(message.get("type", "")).endswith("Event"):
                return _text(message.get("content"), message.get("format_string"))
        return ""

    @property
    def output(self) -> BaseModel | None:
        """The answer as an object of the agent's `output_content_type`; None when it is not a structured one.

        What `DrSai.run` returns has it; a result that was read from the database has not.
        """
        return self._output

    def with_output(self, output: BaseModel | None) -> Self:
        """Return this result, which it changes, with that `output`."""
        self._output = output
        return self


def _text(content: object, format_string: str | None) -> str:
    match content:
        case str():
            return content
        case list():
            return "\n\n".join(part for part in cast("list[object]", content) if isinstance(part, str))
        case dict() if format_string and (text := formatted(format_string, cast("JsonObject", content))) is not None:
            return text
        case None:
            return ""
        case _:
            return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
