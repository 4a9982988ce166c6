"""Shares say with whom threads are shared: storage functions of a `Session`. `runs.threads.rights` decides who may call
them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.locks import lock_thread
from drsai_backend.database.owned import of_thread
from drsai_backend.database.runs.statements import run, thread
from drsai_backend.database.upserts import insert_into
from drsai_backend.datamodel import Right, ThreadShare, utcnow
from drsai_backend.datamodel.base import table_of
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import Conflict, InvalidRequest, NotFound
from drsai_backend.json_types import JsonObject

MAX_SHARES: Final = 500
"""With how many users and roles a thread may be shared: their list is one answer, and every owner may make one."""

share = table_of(ThreadShare)


class Grantee(NamedTuple):
    """With whom a thread is shared: one of the two."""

    with_user: str | None = None
    with_role: str | None = None

    def check(self, name: ThreadName) -> None:
        """Raise InvalidRequest unless a thread of that name can be shared with them."""
        self.check_one()
        if self.with_user == name.user_id:
            raise InvalidRequest(f"the thread is {name.user_id}'s already", param="with_user")

    def check_one(self) -> None:
        """Raise InvalidRequest unless it is one user or one role."""
        if (self.with_user is None) == (self.with_role is None):
            raise InvalidRequest("name `with_user` or `with_role`: one of the two", param="with_user")
        for param, value in self._asdict().items():
            if value is not None:
                check_name(value, param)

    @property
    def given(self) -> dict[str, str]:
        """The one that is given, by its column."""
        return {column: value for column, value in self._asdict().items() if value is not None}

    def __str__(self) -> str:
        return f"user {self.with_user!r}" if self.with_user is not None else f"role {self.with_role!r}"


def granted_to(tenant: str, names: Collection[str]) -> sa.ColumnElement[bool]:
    """The shares of a tenant with any of those whom `Principal.names` names."""
    users = [name.removeprefix("user:") for name in names if name.startswith("user:")]
    roles = [name.removeprefix("role:") for name in names if name.startswith("role:")]
    granted = sa.and_(share.c.tenant == tenant, share.c.with_user.in_(users))
    return sa.or_(granted, sa.and_(share.c.tenant == tenant, share.c.with_role.in_(roles))) if roles else granted


def rights_in(
    session: Session, name: ThreadName, names: Collection[str]
) -> tuple[list[Right], JsonObject | None] | None:
    """Return what somebody was granted of a thread of their tenant, and what the thread asks. None: there is no such
    one."""
    connection = session.connection()
    query = sa.select(thread.c.id, thread.c.input_request).where(*of_thread(thread, name))
    found = connection.execute(query).first()
    if found is None:
        return None
    rights = sa.select(share.c.right).where(share.c.thread_key == found.id, granted_to(name.tenant, names))
    return [Right(right) for right in connection.execute(rights).scalars()], found.input_request


def thread_of_any(session: Session, tenant: str, run_id: str) -> ThreadName | None:
    """The thread of a run of the tenant, whoever's it is."""
    columns = (thread.c.tenant, thread.c.user_id, thread.c.thread_id)
    query = sa.select(*columns).join(run, run.c.thread_key == thread.c.id)
    row = session.connection().execute(query.where(run.c.run_id == run_id, thread.c.tenant == tenant)).first()
    return None if row is None else ThreadName(*row)


def add_share(session: Session, name: ThreadName, grantee: Grantee, right: Right, created_by: str) -> JsonObject:
    """Share a thread, or change the right that the grantee (`with_user` or `with_role`) has. Returns the share.

    Raises:
        NotFound: there is no such thread.
        Conflict: it is shared with `MAX_SHARES` others already.
    """
    connection = session.connection()
    # The thread is not deleted meanwhile, and nobody else counts its shares.
    key = lock_thread(session, name)
    if key is None:
        raise NotFound(f"no thread {name.thread_id!r}", param="thread_id")
    [(column, value)] = grantee.given.items()
    others = sa.or_(share.c[column].is_(None), share.c[column] != value)
    count = sa.select(sa.func.count()).where(share.c.thread_key == key, others)
    if connection.execute(count).scalar_one() >= MAX_SHARES:
        text = f"the thread is shared with {MAX_SHARES} others already: take a share back, or share it with a role"
        raise Conflict(text, param="thread_id")
    changed = {"right": right.value, "created_at": utcnow(), "created_by": created_by}
    statement = insert_into(share, connection.dialect.name).values(
        thread_key=key, tenant=name.tenant, **grantee.given, **changed
    )
    unique = ["thread_key", *grantee.given]
    stored = statement.on_conflict_do_update(index_elements=unique, set_=changed).returning(share)
    return dict(connection.execute(stored).mappings().one())


def remove_share(session: Session, name: ThreadName, grantee: Grantee) -> bool:
    """Take a share back. False: there is none."""
    mine = sa.select(thread.c.id).where(*of_thread(thread, name)).scalar_subquery()
    terms = (share.c[column] == value for column, value in grantee.given.items())
    change = sa.delete(share).where(share.c.thread_key == mine, *terms)
    return session.connection().execute(change).rowcount == 1


def is_granted(session: Session, owner: Owner) -> bool:
    """Whether anything is shared with a user by name."""
    return session.execute(sa.select(sa.literal(1)).where(_given_to(owner)).limit(1)).first() is not None


def remove_grants(session: Session, owner: Owner) -> int:
    """Take back all that is shared with a user by name; returns how many shares that were."""
    return session.connection().execute(sa.delete(share).where(_given_to(owner))).rowcount


def _given_to(owner: Owner) -> sa.ColumnElement[bool]:
    return granted_to(owner.tenant, {f"user:{owner.user_id}"})


def list_shares(session: Session, name: ThreadName) -> list[JsonObject]:
    """The shares of a thread, oldest first."""
    query = sa.select(share).join(thread, share.c.thread_key == thread.c.id).where(*of_thread(thread, name))
    return [dict(row) for row in session.connection().execute(query.order_by(share.c.id)).mappings()]
