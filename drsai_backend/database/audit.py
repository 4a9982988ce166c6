"""The audit log is written and read by synchronous functions of a `Session`, to be called in the transaction of the act
that they tell of.

Rows are only ever added. A trigger refuses changes on both databases; `prune_audit` is the one way to delete any.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Final, cast

import orjson
import sqlalchemy as sa
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from drsai_backend.database.backends.prepared import Prepared, Step
from drsai_backend.database.pages import Cursor, given
from drsai_backend.datamodel import AuditEntry, JsonObject, table_of, utcnow
from drsai_backend.datamodel.audit import Action, Actor, By
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import InvalidRequest
from drsai_backend.page import Page

MAX_DETAIL: Final = 4096
"""Bytes of JSON that an entry's `detail` may have."""
MAX_TEXT: Final = 300
"""Characters of a text in a `detail`, and of a `subject`; what is more is cut off."""
BATCH: Final = 1000

_entry = table_of(AuditEntry)
_list: Final = Cursor((_entry.c.id,))


class AuditRecord(BaseModel):
    """An entry of the audit log as it is shown. Times are aware and in UTC."""

    id: int
    at: datetime
    tenant: str | None = Field(description="Where it was done; null: to the whole database.")
    by: str = Field(description="`user`: through the API; `program`: by trusted code; `cli`: by the command line.")
    actor: str | None = Field(description="The user who acted; null: a program or the command line.")
    key_id: str | None
    acted_by: str | None = Field(description="The user whose key acted as `actor`.")
    action: str
    kind: str
    subject: str
    owner: str | None
    thread_id: str | None
    detail: JsonObject | None
    request_id: str | None


@Prepared
def _insert(_: str) -> sa.ClauseElement:
    names = [column.name for column in _entry.c if column.name != "id"]
    return sa.insert(_entry).values({name: sa.bindparam(name, type_=_entry.c[name].type) for name in names})


def audit(
    session: Session,
    actor: Actor,
    action: Action,
    subject: str,
    owner: ThreadName | Owner | str | None = None,
    detail: JsonObject | None = None,
) -> None:
    """Add an entry to the audit log, in the transaction of the session.

    Args:
        actor: who acts: `Principal.actor`, or `PROGRAM` or `CLI`. To be made outside of the storage function, where
            the request is known.
        action: what was done.
        subject: the id of what it was done to.
        owner: the thread that it is, or belongs to, or the user whom it belongs to, or the tenant whose log it is in;
            None: only the command line shows it.
        detail: what else there is to say, and no secret. Texts are cut after 300 characters; of more than 4 KB only
            the size is kept. An act never fails because there is much to say of it.
    """
    _insert.run(session.connection(), audit_step(actor, action, subject, owner, detail)[1])


def audit_step(
    actor: Actor,
    action: Action,
    subject: str,
    owner: ThreadName | Owner | str | None = None,
    detail: JsonObject | None = None,
) -> Step:
    """The statement of `audit`, for writes that are a list of statements."""
    tenant, user_id, thread_id = (*(owner if isinstance(owner, tuple) else (owner,)), None, None)[:3]
    row: dict[str, object] = {
        "at": utcnow(),
        "tenant": tenant,
        "by": actor.by.value,
        "actor": actor.user_id,
        "key_id": actor.key_id,
        "acted_by": actor.acted_by,
        "action": action.value,
        "kind": action.kind,
        "subject": _cut(subject),
        "owner": user_id,
        "thread_id": thread_id,
        "detail": None if detail is None else _bounded(detail),
        "request_id": actor.request_id,
    }
    return _insert, row


def newest_by(session: Session, action: Action, subject: str, tenant: str) -> By | None:
    """Return how who did this last to a thing of a tenant came to act; None: the log does not say."""
    query = sa.select(_entry.c.by).where(
        _entry.c.tenant == tenant, _entry.c.action == action.value, _entry.c.subject == _cut(subject)
    )
    found = session.connection().execute(query.order_by(_entry.c.id.desc()).limit(1)).scalar()
    return None if found is None else By(found)


def was_deleted(session: Session, owner: Owner, since: datetime) -> bool:
    """Whether a user was deleted after a moment, as far as the log knows."""
    # Not by the index of a tenant's entries, which are more.
    theirs = (_entry.c.tenant + "" == owner.tenant, _entry.c.subject == _cut(owner.user_id))
    query = sa.select(_entry.c.id).where(_entry.c.at > since, _entry.c.action == Action.USER_DELETED.value, *theirs)
    return session.connection().execute(query.limit(1)).first() is not None


def _bounded(detail: JsonObject) -> JsonObject:
    kept = cast(JsonObject, _storable(detail))
    size = len(orjson.dumps(kept))
    return kept if size <= MAX_DETAIL else {"omitted_bytes": size}


def _storable(value: object) -> object:
    """Return what both databases can hold, its texts cut."""
    match value:
        case str():
            return _cut(value)
        case list():
            return [_storable(item) for item in cast("list[object]", value)]
        case dict():
            return {_cut(name): _storable(item) for name, item in cast("dict[str, object]", value).items()}
        case _:
            return value


def _cut(text: str) -> str:
    # No NUL and no lone surrogate, which PostgreSQL refuses.
    return text[:MAX_TEXT].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def list_audit(  # noqa: PLR0913 - the filters of `drsai.audit.list`
    session: Session,
    *,
    tenant: str | None = None,
    user_id: str | None = None,
    action: str | None = None,
    thread_id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    after: str | None = None,
    limit: int = 20,
) -> Page[AuditRecord]:
    """A page of the audit log, newest first.

    Args:
        tenant: only this one's; None: all, and what was done to the whole database.
        user_id: only what this user did, or another did as them or to what is theirs.
        action: only these acts: "key.created", or all of a kind: "key".
        thread_id: only what was done to this thread, or to what belongs to it.
        since, until: only from this moment on, and before that one.
        after: `next` of the page before.
        limit: how many at most.

    Raises:
        InvalidRequest: `after` is no `next` of an earlier page, or there is no such action.
    """
    c = _entry.c
    terms = given(
        (tenant, c.tenant.__eq__),
        (user_id, lambda user: sa.or_(c.actor == user, c.acted_by == user, c.owner == user)),
        (action, lambda name: c.action.in_(_actions(name))),
        (thread_id, c.thread_id.__eq__),
        (since, c.at.__ge__),
        (until, c.at.__lt__),
    )
    return _list.page(session, sa.select(_entry).where(*terms), after, limit).map(AuditRecord.model_validate)


def _actions(name: str) -> list[str]:
    found = [action.value for action in Action if name in (action.value, action.kind)]
    if not found:
        known = ", ".join(Action)
        raise InvalidRequest(f"there is no action {name!r}, but {known}", param="action")
    return found


def prune_audit(
    session: Session, actor: Actor, before: datetime, *, tenant: str | None = None, limit: int = BATCH
) -> int:
    """Delete up to `limit` of the entries from before that moment, oldest first, and return how many: call it with the
    same moment until it says 0. Of each tenant an entry says how many of its own are gone."""
    c, connection = _entry.c, session.connection()
    old = sa.select(c.id).where(c.at < before, *given((tenant, c.tenant.__eq__)))
    chosen = old.order_by(c.at, c.id).limit(limit)
    gone = Counter(connection.execute(sa.delete(_entry).where(c.id.in_(chosen)).returning(c.tenant)).scalars())
    for where, count in gone.items():
        detail: JsonObject = {"entries": count, "before": before.isoformat()}
        audit(session, actor, Action.AUDIT_PRUNED, where or "*", where, detail)
    return gone.total()
