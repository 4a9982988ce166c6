"""Rows of rules are listed, set, removed, and read where they have changed. Synchronous functions of a `Session`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.audit import audit
from drsai_backend.database.backends.prepared import Prepared
from drsai_backend.database.followed import changed
from drsai_backend.database.locks import alone
from drsai_backend.database.pages import Cursor, given
from drsai_backend.database.values import batches
from drsai_backend.datamodel import ApiKey, table_of, utcnow
from drsai_backend.datamodel.audit import Action, Actor, By
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import Conflict
from drsai_backend.features.rules.base import RuleInfo, Who, thread_of
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page

_key = table_of(ApiKey)
R = TypeVar("R", bound=RuleInfo)

MOST: Final = 10_000
"""How many rules of a tenant its admins set: all processes read and know all of them."""

LOCK: Final = Prepared(
    lambda _: sa.text(
        "SELECT pg_advisory_xact_lock(hashtextextended(l.name, 37)) FROM (SELECT value AS name FROM "
        "jsonb_array_elements_text(CAST(:locks AS jsonb)) ORDER BY value) l"
    )
)
"""Wait for others who count the same on PostgreSQL: rows that are not there cannot be locked."""


class RuleRows(Generic[R]):
    """The rules of one table, which has a column for each thing that is bounded. A rule that is changed is another row.

    Args:
        table: with the columns `id`, `at`, `kind`, `tenant` and `name` besides.
        info: makes of a row what is told of it.
        acts: those of setting a rule and of removing it, for the audit log.
    """

    def __init__(self, table: sa.Table, info: Callable[[JsonObject], R], acts: tuple[Action, Action]) -> None:
        self._table, self._info = table, info
        self._set, self._removed = acts
        self._list = Cursor((table.c.id,))

    def changed(self, session: Session, known: object) -> tuple[object, list[JsonObject] | None]:
        """Return all rows, with what tells whether they change; None: they are as they were `known`."""
        return changed(session, known, self._table)

    def page(self, session: Session, tenant: str | None, after: str | None, limit: int) -> Page[R]:
        """Return a page of what was set, the newest first. Raises InvalidRequest where `after` is no `next`."""
        query = sa.select(self._table).where(*given((tenant, self._table.c.tenant.__eq__)))
        return self._list.page(session, query, after, limit).map(self._told)

    def set(self, session: Session, who: Who, values: Mapping[str, int], actor: Actor) -> R:
        """Set what somebody may have, in place of what was set before. Raises Conflict where a user sets it, and `MOST`
        are set in the tenant already."""
        connection = session.connection()
        alone(session, self._table.name, who.tenant)
        self.forget(session, who)
        if actor.by is By.USER:
            of_tenant = sa.select(sa.func.count()).where(self._table.c.tenant == who.tenant)
            if connection.execute(of_tenant).scalar_one() >= MOST:
                raise Conflict(f"{MOST} are set in tenant {who.tenant!r} already: remove some")
        row = {**who._asdict(), **values, "at": utcnow()}
        made = connection.execute(sa.insert(self._table).values(**row).returning(*self._table.c)).mappings().one()
        audit(session, actor, self._set, *_subject(who), detail={**values})
        return self._told(dict(made))

    def remove(self, session: Session, who: Who, actor: Actor) -> bool:
        """Have the settings hold again. False: nothing was set."""
        alone(session, self._table.name, who.tenant)
        if not self.forget(session, who):
            return False
        audit(session, actor, self._removed, *_subject(who))
        return True

    def forget(self, session: Session, who: Who) -> int:
        """Delete what was set for somebody, without a word of it; returns how many rows."""
        return session.connection().execute(sa.delete(self._table).where(*self._of(who))).rowcount

    def forget_keys(self, session: Session, owner: Owner, key_ids: Sequence[str]) -> None:
        """Delete what was set for keys of a user's."""
        c = self._table.c
        for some in batches(key_ids):
            gone = sa.delete(self._table).where(c.tenant == owner.tenant, c.kind == "key", c.name.in_(some))
            session.connection().execute(gone)

    def forget_revoked(self, session: Session, before: datetime) -> int:
        """Delete what was set for keys that were revoked before a moment; returns how many rows."""
        c = self._table.c
        revoked = sa.select(_key.c.key_id).where(_key.c.tenant == c.tenant, _key.c.revoked_at < before)
        gone = sa.delete(self._table).where(c.kind == "key", c.name.in_(revoked))
        return session.connection().execute(gone).rowcount

    def _of(self, who: Who) -> Sequence[sa.ColumnElement[bool]]:
        return [self._table.c[name] == value for name, value in who._asdict().items()]

    def _told(self, row: JsonObject) -> R:
        return self._info({**row, "set_at": row["at"]})


def _subject(who: Who) -> tuple[str, ThreadName | Owner | str | None]:
    owner = Owner(who.tenant, who.name) if who.kind == "user" else who.tenant or None
    owner = thread_of(who) if who.kind == "thread" else owner
    return f"{who.kind} {who.name}".strip(), owner
