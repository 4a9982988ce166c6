"""Agents and teams that are defined over the API, with their versions: synchronous functions of a `Session`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.audit import audit
from drsai_backend.database.locks import alone
from drsai_backend.database.owned import of_thread
from drsai_backend.database.values import read_cursor
from drsai_backend.datamodel import JsonObject, Run, StoredDefinition, Thread, table_of, utcnow
from drsai_backend.datamodel.audit import Action, Actor
from drsai_backend.datamodel.lifecycle import UNFINISHED
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import Conflict, NotFound

MAX_DEFINITIONS: Final = 1_000
"""How many a user, a tenant, or all together may have at a time."""
MAX_VERSIONS: Final = 100
"""How many versions of a name are kept."""
KEPT: Final = timedelta(days=30)
"""For how long the versions of a name that was deleted are kept."""
CURSOR_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,63}\.[0-9]{1,18}$"
"""What the `next` of a page looks like: the name and the number of its last definition."""
VERSION_PATTERN: Final = r"^[1-9][0-9]{0,8}$"
"""The same of a page of versions: the number of its last one."""
NOBODY: Final = ""
"""In place of a user: all of the tenant; in place of a tenant, too: all."""
OF_ALL: Final = Owner(NOBODY, NOBODY)

definition = table_of(StoredDefinition)
_run = table_of(Run)
_thread = table_of(Thread)
_served: Final = definition.c.ended_at.is_(None)
_ACTIONS: Final = {False: Action.AGENT_CREATED, True: Action.AGENT_UPDATED}


Identity: TypeAlias = tuple[Owner, str, int, datetime]


@dataclass(frozen=True, slots=True)
class DefinitionVersion:
    """A version of a definition. `owner` has empty names where it is the tenant's, or for all. `ended_at`: it is not
    served any more."""

    id: int
    owner: Owner
    name: str
    version: int
    definition: JsonObject
    created_at: datetime
    created_by: str
    restores: int | None
    ended_at: datetime | None

    @property
    def identity(self) -> Identity:
        """What no other version ever has; its key may come again."""
        return self.owner, self.name, self.version, self.created_at


@dataclass(frozen=True, slots=True)
class Change:
    """A new version of a definition.

    Attributes:
        owner: whose it is.
        name: by which it is asked.
        definition: what it is; it was checked.
        created_by: the user who stores it.
        actor: for the audit log.
        replaces: there is one of that name.
        expected: the version that is replaced; None: whichever it is.
        restores: the older version that this one is equal to.
    """

    owner: Owner
    name: str
    definition: JsonObject
    created_by: str
    actor: Actor
    replaces: bool = False
    expected: int | None = None
    restores: int | None = None


def visible_to(who: Owner) -> tuple[Owner, Owner, Owner]:
    """Those whose definitions somebody may use: theirs go before their tenant's, and these before those for all."""
    return who, Owner(who.tenant, NOBODY), OF_ALL


def store(session: Session, change: Change) -> DefinitionVersion:
    """Add a definition, or a version of one that is there.

    Raises:
        Conflict: there is one of that name (`replaces=False`), or it is not the `expected` version, or the owner has
            `MAX_DEFINITIONS`.
        NotFound: there is none to be replaced.
    """
    connection, owner, name = session.connection(), change.owner, change.name
    alone(session, "definitions", *owner)
    here = (*_of(owner), definition.c.name == name)
    there = connection.execute(sa.select(definition.c.version).where(*here, _served)).scalar()
    if change.replaces:
        _check_version(name, there, change.expected)
    else:
        if there is not None:
            raise Conflict(f"there is an agent {name!r} already: PUT /v1/agents/{name} replaces it", param="name")
        count = connection.execute(sa.select(sa.func.count()).where(*_of(owner), _served)).scalar_one()
        if count >= MAX_DEFINITIONS:
            raise Conflict(f"there are {MAX_DEFINITIONS} definitions already: delete some of them", param="name")
    now = utcnow()
    version = (connection.execute(sa.select(sa.func.max(definition.c.version)).where(*here)).scalar() or 0) + 1
    connection.execute(sa.update(definition).where(*here, _served).values(ended_at=now))
    row = {
        "tenant": owner.tenant,
        "user_id": owner.user_id,
        "name": name,
        "version": version,
        "definition": change.definition,
        "created_at": now,
        "created_by": change.created_by,
        "restores": change.restores,
    }
    key = connection.execute(sa.insert(definition).values(**row).returning(definition.c.id)).scalar_one()
    _drop_old(session, owner, name, version, now)
    action = _ACTIONS[change.replaces] if change.restores is None else Action.AGENT_ROLLED_BACK
    restored = {} if change.restores is None else {"restores": change.restores}
    _note(session, change.actor, action, owner, name, {"version": version, **restored})
    return DefinitionVersion(
        key, owner, name, version, change.definition, now, change.created_by, change.restores, None
    )


def delete(session: Session, owner: Owner, name: str, *, expected: int | None, actor: Actor) -> None:
    """Delete a definition; runs that began with it keep it.

    Raises:
        NotFound: there is none of that name.
        Conflict: it is not the `expected` version.
    """
    alone(session, "definitions", *owner)
    here = (*_of(owner), definition.c.name == name, _served)
    version = session.connection().execute(sa.select(definition.c.version).where(*here)).scalar()
    _check_version(name, version, expected)
    session.connection().execute(sa.update(definition).where(*here).values(ended_at=utcnow()))
    _note(session, actor, Action.AGENT_DELETED, owner, name, {"version": version})


def _check_version(name: str, there: int | None, expected: int | None) -> None:
    if there is None:
        raise NotFound(f"there is no agent {name!r}", param="name")
    if expected is not None and there != expected:
        text = f"agent {name!r} is at version {there} now, not {expected}: look at what was changed"
        raise Conflict(text, param="version")


def _note(session: Session, actor: Actor, action: Action, owner: Owner, name: str, detail: JsonObject) -> None:
    audit(
        session,
        actor,
        action,
        name,
        tenant=owner.tenant or None,
        owner=owner if owner.user_id else None,
        detail=detail,
    )


def _drop_old(session: Session, owner: Owner, name: str, version: int, now: datetime) -> None:
    """Drop what is too much of an owner's: the oldest versions of the name that has a new one, and names that were
    deleted long ago; but nothing that a run which is not over began with."""
    other = definition.alias()
    same = (getattr(other.c, each) == getattr(definition.c, each) for each in ("tenant", "user_id", "name"))
    is_served = sa.exists().where(*same, other.c.ended_at.is_(None))
    is_too_old = sa.and_(definition.c.name == name, definition.c.version <= version - MAX_VERSIONS)
    is_gone = sa.and_(definition.c.ended_at < now - KEPT, ~is_served)
    ended = (definition.c.ended_at.is_not(None), sa.or_(is_too_old, is_gone))
    session.connection().execute(sa.delete(definition).where(*_of(owner), *ended, ~_is_used()))


def _is_used() -> sa.ColumnElement[bool]:
    """That a run which is not over began with it."""
    return sa.exists().where(_run.c.definition == definition.c.id, _run.c.status.in_(UNFINISHED))


def find(session: Session, who: Owner, names: Collection[str]) -> dict[str, DefinitionVersion]:
    """The definitions of these names that somebody may use, by name: their own, else their tenant's, else for all."""
    places = visible_to(who)
    rows = _rows(session, _anyones(places), definition.c.name.in_(names), _served)
    found: dict[str, DefinitionVersion] = {}
    for each in sorted(rows, key=lambda row: places.index(row.owner)):
        found.setdefault(each.name, each)
    return found


def known_names(session: Session, keys: Collection[tuple[Owner, str]]) -> dict[tuple[Owner, str], bool]:
    """Of somebody and a name each, those where they may use a definition of that name, or might when a run began that
    is not over: it may wait for an answer, which is sent to that name."""
    found: dict[tuple[Owner, str], bool] = {}
    for who, name in keys:
        mine = (_anyones(visible_to(who)), definition.c.name == name, sa.or_(_served, _is_used()))
        if session.connection().execute(sa.select(sa.exists().where(*mine))).scalar():
            found[who, name] = True
    return found


def get(session: Session, owner: Owner, name: str) -> DefinitionVersion:
    """The definition of an owner that is served. Raises NotFound: there is none of that name."""
    for each in _rows(session, *_of(owner), definition.c.name == name, _served):
        return each
    raise NotFound(f"there is no agent {name!r}", param="name")


def by_id(session: Session, key: int) -> DefinitionVersion | None:
    """A version by its key, whether it is served or not."""
    return next(iter(_rows(session, definition.c.id == key)), None)


def of_unfinished_run(session: Session, thread: ThreadName, team: str) -> DefinitionVersion | None:
    """The definition that the run of a thread began with, if it is not over and its team has that name."""
    begun = sa.select(_run.c.definition).join(_thread, _thread.c.run_id == _run.c.run_id)
    begun = begun.where(*of_thread(_thread, thread), _run.c.team == team, _run.c.status.in_(UNFINISHED))
    return next(iter(_rows(session, definition.c.id == begun.scalar_subquery())), None)


def versions(session: Session, owner: Owner, name: str, *, before: int | None, limit: int) -> list[DefinitionVersion]:
    """The newest versions of a name that are kept, newest first; with `before`, of those that are older. None: there is
    no definition of that name, or no more of it."""
    here = (*_of(owner), definition.c.name == name)
    query = sa.select(definition).where(*here, sa.exists(sa.select(1).where(*_same_served(owner, name))))
    if before is not None:
        query = query.where(definition.c.version < before)
    rows = session.connection().execute(query.order_by(definition.c.version.desc()).limit(limit)).mappings()
    return [_version(row) for row in rows]


def version_of(session: Session, owner: Owner, name: str, version: int) -> DefinitionVersion | None:
    """One version of a definition that is there."""
    here = (*_of(owner), definition.c.name == name, definition.c.version == version)
    return next(iter(_rows(session, *here, sa.exists(sa.select(1).where(*_same_served(owner, name))))), None)


def list_names(session: Session, owners: Collection[Owner], limit: int) -> dict[Identity, int]:
    """The definitions of these owners that are served, and their keys."""
    d = definition.c
    query = sa.select(d.tenant, d.user_id, d.name, d.version, d.created_at, d.id).where(_anyones(owners), _served)
    rows = session.connection().execute(query.limit(limit))
    return {(Owner(row[0], row[1]), row[2], row[3], row[4]): row[5] for row in rows}


def list_served(
    session: Session, owners: Collection[Owner], after: tuple[str, int] | None, limit: int
) -> tuple[list[DefinitionVersion], bool]:
    """The definitions of these owners, by name and key, from behind `after` on; and whether there are more."""
    query = sa.select(definition.c.id).where(_anyones(owners), _served)
    if after is not None:
        name, key = after
        behind = sa.and_(definition.c.name == name, definition.c.id > key)
        query = query.where(sa.or_(definition.c.name > name, behind))
    query = query.order_by(definition.c.name, definition.c.id).limit(limit + 1)
    keys = session.connection().execute(query).scalars().all()
    return read_all(session, keys[:limit]), len(keys) > limit


def read_all(session: Session, keys: Collection[int]) -> list[DefinitionVersion]:
    """The versions of these keys, as far as they are there, in the order of the keys."""
    found = {each.id: each for each in _rows(session, definition.c.id.in_(keys))}
    return [found[key] for key in keys if key in found]


def _of(owner: Owner) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return definition.c.tenant == owner.tenant, definition.c.user_id == owner.user_id


def _same_served(owner: Owner, name: str) -> tuple[sa.ColumnElement[bool], ...]:
    """That one of the name is served."""
    other = definition.alias()
    mine = (other.c.tenant == owner.tenant, other.c.user_id == owner.user_id, other.c.name == name)
    return (*mine, other.c.ended_at.is_(None))


def _anyones(owners: Collection[Owner]) -> sa.ColumnElement[bool]:
    return sa.or_(*(sa.and_(*_of(owner)) for owner in owners))


def _rows(session: Session, *where: sa.ColumnElement[bool]) -> list[DefinitionVersion]:
    return [_version(row) for row in session.connection().execute(sa.select(definition).where(*where)).mappings()]


def _version(row: Mapping[str, Any] | sa.RowMapping) -> DefinitionVersion:
    names = ("id", "name", "version", "definition", "created_at", "created_by", "restores", "ended_at")
    return DefinitionVersion(owner=Owner(row["tenant"], row["user_id"]), **{name: row[name] for name in names})


def check_cursor(after: str | None) -> tuple[str, int] | None:
    """The cursor of a page. Raises InvalidRequest where it is none."""
    if after is None:
        return None
    name, _, key = read_cursor(CURSOR_PATTERN, after)[0].rpartition(".")
    return name, int(key)


def check_version_cursor(after: str) -> int:
    """The cursor of a page of versions. Raises InvalidRequest where it is none."""
    return int(read_cursor(VERSION_PATTERN, after)[0])
