"""The audit log says who did what that others may ask about later."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy import event
from sqlmodel import Field

from drsai_backend.datamodel.base import (
    NEVER_AGAIN,
    JsonObject,
    KeyedRecord,
    UTCDateTime,
    json_field,
    short_text,
    table_of,
    utcnow,
)


class By(StrEnum):
    """How somebody came to act: through the API, as a program that is trusted, or by the command line."""

    USER = "user"
    PROGRAM = "program"
    CLI = "cli"


class Action(StrEnum):
    """What was done. The word before the point is the kind of thing that it was done to."""

    KEY_CREATED = "key.created"
    KEY_CHANGED = "key.changed"
    KEY_REVOKED = "key.revoked"
    THREAD_DELETED = "thread.deleted"
    THREAD_EXPORTED = "thread.exported"
    THREAD_IMPORTED = "thread.imported"
    THREAD_FORKED = "thread.forked"
    THREAD_REWOUND = "thread.rewound"
    THREAD_LOADED = "thread.history_loaded"
    THREAD_SHARED = "thread.shared"
    THREAD_UNSHARED = "thread.unshared"
    THREADS_PRUNED = "threads.pruned"
    INPUT_ANSWERED = "input_request.answered"
    RUN_STARTED_AS = "run.started_as"
    RUN_CANCEL_REQUESTED = "run.cancel_requested"
    RUN_PAUSE_REQUESTED = "run.pause_requested"
    RUN_RESUME_REQUESTED = "run.resume_requested"
    RUN_RETRY_REQUESTED = "run.retry_requested"
    USER_DELETED = "user.deleted"
    USER_EXPORTED = "user.exported"
    WEBHOOK_SECRET_CREATED = "webhook_secret.created"
    WEBHOOK_SECRET_ROTATED = "webhook_secret.rotated"
    FILE_DELETED = "file.deleted"
    TOOL_REGISTERED = "tool.registered"
    TOOL_CHANGED = "tool.changed"
    TOOL_DELETED = "tool.deleted"
    AGENT_CREATED = "agent.created"
    AGENT_UPDATED = "agent.updated"
    AGENT_DELETED = "agent.deleted"
    AGENT_ROLLED_BACK = "agent.rolled_back"
    KNOWLEDGE_DELETED = "knowledge.deleted"
    BUDGET_SET = "budget.set"
    BUDGET_REMOVED = "budget.removed"
    LIMIT_SET = "limit.set"
    LIMIT_REMOVED = "limit.removed"
    SWITCHED_OFF = "switch.off"
    SWITCHED_ON = "switch.on"
    CONFIG_CHANGED = "config.changed"
    CONFIG_ROLLED_BACK = "config.rolled_back"
    CONFIG_DELETED = "config.deleted"
    SECRETS_ROTATED = "secrets.rotated"
    AUDIT_PRUNED = "audit.pruned"

    @property
    def kind(self) -> str:
        """The kind of thing that it is done to."""
        return self.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts.

    Attributes:
        by: how they came to act.
        user_id: the user who acts; None: a program or the command line, which nobody has authenticated.
        key_id: the API key that was used; None: another way.
        acted_by: the user whose key acts as `user_id`; None: they act for themselves.
        request_id: `X-Request-Id` of the request.
    """

    by: By = By.PROGRAM
    user_id: str | None = None
    key_id: str | None = None
    acted_by: str | None = None
    request_id: str | None = None


PROGRAM = Actor()
CLI = Actor(By.CLI)


class AuditEntry(KeyedRecord, table=True):
    """One act, stored in its transaction. A trigger of the database refuses every change of a row; `drsai audit prune`
    is what deletes old ones. What it is about may be gone by now: rows outlive users and threads."""

    __table_args__ = (sa.Index(None, "tenant", "id"), sa.Index(None, "at"), NEVER_AGAIN)

    at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    tenant: str | None = Field(default=None, description="Where it was done; None: to the whole database.")
    by: str = short_text(8, description="`user`, `program` or `cli`.")
    actor: str | None = Field(default=None, description="The user who acted; None: a program or the command line.")
    key_id: str | None = None
    acted_by: str | None = Field(default=None, description="The user whose key acted as `actor`.")
    action: str = short_text(32)
    kind: str = short_text(24, description="What kind of thing it was done to.")
    subject: str = Field(description="The id of that thing.")
    owner: str | None = Field(default=None, description="The user whom the thing belongs to.")
    thread_id: str | None = None
    detail: JsonObject | None = json_field(description="What else there is to say; at most 4 KB.")
    request_id: str | None = None


REFUSAL = "rows of the audit log are never changed"
"""What the database answers whoever tries."""

for _dialect, _statements in {
    "sqlite": (
        "CREATE TRIGGER auditentry_append_only BEFORE UPDATE ON auditentry "
        f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END",
    ),
    "postgresql": (
        "CREATE OR REPLACE FUNCTION drsai_refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$",
        "CREATE TRIGGER auditentry_append_only BEFORE UPDATE ON auditentry "
        "FOR EACH ROW EXECUTE FUNCTION drsai_refuse_change()",
    ),
}.items():
    for _statement in _statements:
        event.listen(table_of(AuditEntry), "after_create", sa.DDL(_statement).execute_if(dialect=_dialect))
