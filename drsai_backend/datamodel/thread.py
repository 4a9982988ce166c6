"""A thread is one conversation of one user; here it is with what belongs to it besides its runs."""

import re
from datetime import datetime
from typing import Final, cast

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.base import (
    NEVER_AGAIN,
    JsonObject,
    NamedRecord,
    Record,
    StatusType,
    UTCDateTime,
    counter,
    json_field,
    long_text,
    secret_text,
    short_text,
    tenant_field,
    thread_key_field,
    utcnow,
)
from drsai_backend.datamodel.encrypted import encrypted_json, encrypted_string, encrypted_text, only
from drsai_backend.datamodel.lifecycle import RunStatus
from drsai_backend.errors import InvalidRequest

_LONGEST: Final = 255
# Controls, white space but the plain one, and characters that cannot be seen or turn the line around.
_BAD: Final = (
    r"\x00-\x1f\x7f-\xa0\xad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff9-\ufffb"
)
_NAME_PATTERN: Final = rf"^[^ {_BAD}]([^{_BAD}]*[^ {_BAD}])?$"
NAME_SCHEMA: Final[JsonObject] = {
    "type": "string",
    "minLength": 1,
    "maxLength": _LONGEST,
    "pattern": _NAME_PATTERN,
}
"""JSON schema of a `user_id` or `thread_id`."""


def check_name(value: str, param: str) -> str:
    """A user or thread id, whoever brings it: 1 to 255 printable characters, no space at either end.

    Raises:
        InvalidRequest: it is not; `param` is the field it came in.
    """
    if not 1 <= len(value) <= _LONGEST:
        raise InvalidRequest(f"`{param}` must have 1 to {_LONGEST} characters", param=param)
    if re.fullmatch(_NAME_PATTERN, value) is None:
        raise InvalidRequest(f"`{param}` must be printable and must not begin or end with a space", param=param)
    return value


_ASKED: Final = only("kind", "asker", "by", "not_by")
"""What lists of questions look at."""
_FOUND_BY: Final = only("id", "source", "type", "created_at", "models_usage")


def _found_by(config: JsonObject) -> JsonObject:
    """Return what of a message stays in clear: who said it and of which kind it is; of what else queries look at, that
    it is there and how much it is."""
    shadow = _FOUND_BY(config)
    if isinstance(content := config.get("content"), list):
        shadow["content"] = [None] * len(cast("list[object]", content))
    if isinstance(noted := config.get("metadata"), dict):
        shadow["metadata"] = {name: "" for name in cast("JsonObject", noted) if name.startswith("drsai")}
    return shadow


class Thread(NamedRecord, table=True):
    """One conversation. `(tenant, user_id, thread_id)` is unique and never NULL.

    The stored row holds only short columns, because it is updated at every turn and a database rewrites a row as a
    whole (an SQLite row that holds 300 KB writes 610 KB when a counter in it changes). `messages`, `state`,
    `user_input`, `tasks`, `team_result` and `meta` are therefore declared here, accepted by the constructor and filled
    by the manager when a thread is read, while their columns stay NULL; they are kept in `AutoGenMessage`,
    `ThreadSnapshot` + `JournalEntry`, `UserInput` and `ThreadField`.
    """

    # No index of anything that changes with a turn: PostgreSQL then updates the row within its page (HOT). What changes
    # when a run begins and ends, `updated_at`, is in one, as lists of tens of thousands were sorted for each page. The
    # user comes first, for those who ask the database with SQL and have one tenant.
    __table_args__ = (
        sa.UniqueConstraint("user_id", "tenant", "thread_id"),
        sa.Index("ix_thread_newest", "user_id", "tenant", "updated_at", "id"),
        # For a tenant's operators. Neither ever changes.
        sa.Index("ix_thread_of_tenant", "tenant", "thread_id"),
        NEVER_AGAIN,
    )

    status: RunStatus = Field(default=RunStatus.CREATED, sa_type=StatusType)
    error_message: str | None = encrypted_text("thread.error_message")
    input_request: JsonObject | None = encrypted_json("thread.input_request", _ASKED)

    user_input: JsonObject | None = json_field()
    # What is empty is the attribute's default and not the column's.
    messages: list[JsonObject] = json_field(default_factory=list, nullable=True, sa_column_kwargs={"default": None})
    tasks: list[JsonObject] | JsonObject | None = json_field(default_factory=list, sa_column_kwargs={"default": None})
    team_result: JsonObject | None = json_field()
    state: str | None = long_text()
    meta: JsonObject | None = json_field(default_factory=dict, sa_column_kwargs={"default": None})

    team: str | None = Field(default=None, description="Model id of the team that ran last.")
    title: str | None = encrypted_string(
        "thread.title", default=None, description="The first words of the first user message."
    )
    revision: int = Field(default=0, description="Counts the changes of this row.")
    last_seq: int = Field(default=0, description="`seq` of the newest message; 0: none.")
    turn: int = Field(default=0, description="Number of the newest journal entry; 0: none.")
    journal_debt: int = Field(
        default=0, description="Journal bytes since the snapshot, less what it earned; see state.store."
    )
    run_id: str | None = Field(default=None, description="The latest run.")
    epoch: int = Field(default=0, description="Fencing token: grows with every lease.")
    lease_owner: str | None = Field(default=None)
    lease_expires_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    control: str | None = short_text(
        8, default=None, description="What the live run is asked to do: `cancel`, `pause`, `steer`."
    )
    queued: int = counter("User inputs that wait.")
    branch: int | None = Field(default=None, description="The current `ThreadBranch`; None: it was never rewound.")
    forked_from: JsonObject | None = json_field(
        description="Of a fork: `user_id` and `thread_id` of its source, and `seq`, the newest message that it took."
    )


class ThreadField(SQLModel, table=True):
    """A long attribute of a thread (`tasks`, `team_result`, `meta`), a row each: changing one rewrites no other."""

    __table_args__ = ({"sqlite_with_rowid": False},)

    thread_key: int = thread_key_field(primary_key=True)
    name: str = Field(primary_key=True)
    value: object = encrypted_json("threadfield.value")


class ThreadBranch(SQLModel, table=True):
    """A line of a thread that was rewound: what was said and done after its first turn and message, and before that
    the line that it left (`parent`), up to `at_turn` and `at_seq`.

    `turn` and `seq` of a thread only ever grow, and only one branch grows at a time. So a branch ends where the next
    number begins, and a rewind adds a row and changes none.
    """

    __table_args__ = ({"sqlite_with_rowid": False},)

    thread_key: int = thread_key_field(primary_key=True)
    number: int = Field(
        primary_key=True,
        sa_type=sa.Integer,
        sa_column_kwargs={"autoincrement": False},
        description="0: the line that the thread began with.",
    )
    parent: int | None = Field(default=None, description="None: it is number 0.")
    at_turn: int = Field(description="The last turn of the parent that belongs to it; 0: none.")
    at_seq: int = Field(description="The last message of the parent that belongs to it; 0: none.")
    first_turn: int
    first_seq: int
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)


class ThreadSnapshot(SQLModel, table=True):
    """The folded journal of a thread up to and including `turn`, encoded by `drsai_backend.state.codec`."""

    thread_key: int = thread_key_field(primary_key=True)
    turn: int = Field(primary_key=True, sa_type=sa.Integer, sa_column_kwargs={"autoincrement": False})
    payload: str = encrypted_text("threadsnapshot.payload", default=...)


class AutoGenMessage(NamedRecord, table=True):
    """One AutoGen `BaseChatMessage` or `BaseAgentEvent`, as `model_dump(mode="json")`, numbered in its thread.

    Rows are append-only: states and journal entries refer to them by `seq`.
    """

    __table_args__ = (
        sa.UniqueConstraint("thread_key", "seq"),
        # For people who ask for a day's messages. On SQLite an index would be one more B-tree to write for each.
        sa.Index(
            "ix_autogenmessage_created_at",
            "created_at",
            postgresql_using="brin",
            postgresql_with={"autosummarize": "on"},
            info={"dialect": "postgresql"},
        ).ddl_if(dialect="postgresql"),
    )

    config: JsonObject = encrypted_json("autogenmessage.config", _found_by, default_factory=dict)
    message_meta: JsonObject | None = encrypted_json("autogenmessage.message_meta")
    thread_key: int | None = thread_key_field(default=None, nullable=False)
    seq: int | None = Field(default=None, nullable=False, description="1, 2, 3 … within the thread.")
    run_id: str | None = Field(default=None)
    shown: bool | None = Field(
        default=None, description="Whether a chat window shows it; None: stored by hand, or by an earlier version."
    )


class UserInput(NamedRecord, table=True):
    """The latest request's new messages and model parameters; one row per thread, refreshed on every request.

    `api_key` is plain text on the object and ciphertext in the row (the manager encrypts and decrypts it). It is left
    out of `repr` and of every dump.
    """

    __table_args__ = (sa.UniqueConstraint("user_id", "tenant", "thread_id"),)

    user_messages: list[JsonObject] | None = encrypted_json(
        "userinput.user_messages",
        default_factory=list,
        description="The request's new messages, OpenAI shape.",
    )
    user_last_message: str | None = encrypted_text("userinput.user_last_message")
    api_key: str | None = secret_text()
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    cache_seed: int | None = Field(default=None, sa_type=sa.BigInteger, description="The request's `seed`.")
    n: int | None = None
    stream: bool | None = None
    extra_requests: JsonObject | None = encrypted_json(
        "userinput.extra_requests", default_factory=dict, description="Body fields this service does not know."
    )


class SingleTask(NamedRecord, table=True):
    """One task: a node of a tree (`is_node_task`, `node_task_id`) and a link of a chain (`previous_id`, `next_id`)."""

    __table_args__ = (sa.UniqueConstraint("user_id", "tenant", "thread_id", "task_id"), NEVER_AGAIN)

    task_id: str
    is_node_task: bool = False
    node_task_id: str | None = None
    previous_id: str | None = None
    next_id: str | None = None
    content: str | None = encrypted_text("singletask.content")
    files: list[JsonObject] | None = encrypted_json("singletask.files")
    task_messages: list[JsonObject] | None = encrypted_json("singletask.task_messages")
    meta: JsonObject | None = encrypted_json("singletask.meta")


class Tasks(NamedRecord, table=True):
    """A list of tasks that belong together."""

    __table_args__ = (sa.UniqueConstraint("user_id", "tenant", "thread_id", "tasks_id"), NEVER_AGAIN)

    tasks_id: str
    content: str | None = encrypted_text("tasks.content")
    files: list[JsonObject] | None = encrypted_json("tasks.files")
    tasks: list[JsonObject] | None = encrypted_json("tasks.tasks")
    meta: JsonObject | None = encrypted_json("tasks.meta")


class PlanCheck(NamedRecord, table=True):
    """A plan waiting for, or carrying, a person's verdict."""

    __table_args__ = (sa.Index(None, "user_id", "tenant", "thread_id"), NEVER_AGAIN)

    task: str | None = encrypted_text("plancheck.task")
    steps: list[JsonObject] | None = encrypted_json("plancheck.steps")
    session_id: str | None = None


class AgentJson(Record, table=True):
    """An AutoGen component config (`component.dump_component()`), stored for a user."""

    __table_args__ = (sa.Index(None, "user_id", "tenant"), NEVER_AGAIN)

    tenant: str = tenant_field()
    user_id: str
    component: JsonObject = encrypted_json("agentjson.component", default_factory=dict)
