"""Documents are what clients store under a name, in versions that never change: synchronous functions of a `Session`.

Of the versions of a name at most one is served (`ended_at` is null), to all that begins now. What began before finds
the version that it began with, for as long as that is kept. A table with a `user_id` has documents of users, of tenants
and for all: of one name, a user's own wins over their tenant's, and that over the one for all.

Another kind is a table of `DocumentRecord`s, and a `Documents` of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.audit import audit
from drsai_backend.database.locks import alone
from drsai_backend.database.pages import Cursor, Query
from drsai_backend.datamodel import JsonObject, utcnow
from drsai_backend.datamodel.audit import Action, Actor
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Conflict, NotFound
from drsai_backend.page import Page

VERSION_PATTERN: Final = r"^[1-9][0-9]{0,8}$"
"""What the `next` of a page of versions looks like: the number of its last one."""
NOBODY: Final = ""
"""In place of a user: all of the tenant; in place of a tenant, too: all."""
OF_ALL: Final = Owner(NOBODY, NOBODY)

Identity: TypeAlias = tuple[Owner, str, int, datetime]


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a document. A kind that has more columns adds fields of their names.

    Attributes:
        owner: whose it is, with empty names where it is the tenant's, or for all.
        ended_at: when it was replaced or deleted; None: it is served.
    """

    id: int
    owner: Owner
    name: str
    version: int
    definition: JsonObject
    created_at: datetime
    created_by: str
    ended_at: datetime | None

    @property
    def identity(self) -> Identity:
        """What no other version ever has; its key may come again."""
        return self.owner, self.name, self.version, self.created_at


V = TypeVar("V", bound=Version)


@dataclass(frozen=True, slots=True)
class Change:
    """A new version of a document.

    Attributes:
        owner: whose it is.
        name: by which it is found.
        definition: what it is; it was checked.
        created_by: the user who stores it.
        actor: for the audit log.
        replaces: whether there must be one of that name; None: it is all the same.
        expected: the version that is replaced; None: whichever it is.
        more: the other columns of its kind.
        action: what the audit log says was done; None: the document was created, or changed.
    """

    owner: Owner
    name: str
    definition: JsonObject
    created_by: str
    actor: Actor
    replaces: bool | None = None
    expected: int | None = None
    more: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    action: Action | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents(Generic[V]):
    """The documents of a kind.

    Attributes:
        table: a row is a version.
        version: what a row is read as.
        noun: what a document is called; the API has them at its plural.
        article: of the noun.
        listed: by what a list of them is sorted: their names, and what tells those of one name apart.
        lock: held by whoever changes an owner's; workers of two releases take the same.
        created, changed, deleted: what the audit log says was done.
        told: the columns that it has of a version, beside its number.
        full: the error where an owner has as many as they may.
        most: how many that is.
        most_versions: how many are kept of a name, whatever their age.
        kept: for how long a version is kept that has ended.
        has_history: clients see the older versions of what is served: they are kept for as long as it is.
        is_used: the versions that are kept, however old they are.
        path: where the API has them, below `/v1`; empty: at the plural of the noun.
    """

    table: sa.Table
    version: type[V]
    noun: str
    article: str
    listed: Cursor
    lock: str
    created: Action
    changed: Action
    deleted: Action
    full: str
    told: Sequence[str] = ()
    most: int = 1_000
    most_versions: int = 100
    kept: timedelta = timedelta(days=30)
    has_history: bool = False
    is_used: sa.ColumnElement[bool] = field(default_factory=sa.false)
    path: str = ""

    @property
    def is_served(self) -> sa.ColumnElement[bool]:
        """The versions that are served."""
        return self.table.c.ended_at.is_(None)

    @property
    def _at(self) -> str:
        return f"/v1/{self.path or self.noun + 's'}"

    @property
    def _owned_by(self) -> Sequence[str]:
        return [name for name in Owner._fields if name in self.table.c]

    def are_of(self, *owners: Owner) -> sa.ColumnElement[bool]:
        """The versions of these owners."""
        c, columns = self.table.c, self._owned_by
        return sa.or_(*(sa.and_(*(c[name] == getattr(owner, name) for name in columns)) for owner in owners))

    def places(self, who: Owner) -> tuple[Owner, ...]:
        """Return those whose documents somebody may use: the first one's win over the next one's."""
        of_tenant = Owner(who.tenant, NOBODY)
        return (who, of_tenant, OF_ALL) if "user_id" in self.table.c else (of_tenant,)

    def missing(self, name: str) -> NotFound:
        """The error for a name that is none, or is not for who asks: it is the same."""
        return NotFound(f"there is no {self.noun} {name!r}", param="name")

    # --- changes -----------------------------------------------------------------------------------------------------

    def store(self, session: Session, change: Change) -> V:
        """Add a document, or a version of one that is there.

        Raises:
            Conflict: there is one of that name (`replaces=False`), or it is not the `expected` version, or the owner
                has as many as they may.
            NotFound: there is none to be replaced.
        """
        connection, c, name = session.connection(), self.table.c, change.name
        there, mine = self._alone_with(session, change.owner, name), self.are_of(change.owner)
        if change.replaces:
            self._check(name, there, change.expected)
        elif there is None:
            count = connection.execute(sa.select(sa.func.count()).where(mine, self.is_served)).scalar_one()
            if count >= self.most:
                raise Conflict(f"{self.full.format(self.most)} already: delete some of them", param="name")
        elif change.replaces is False:
            text = f"there is {self.article} {self.noun} {name!r} already: PUT {self._at}/{name} replaces it"
            raise Conflict(text, param="name")
        latest = connection.execute(sa.select(sa.func.max(c.version)).where(mine, c.name == name)).scalar() or 0
        now = utcnow()
        connection.execute(sa.update(self.table).where(mine, c.name == name, self.is_served).values(ended_at=now))
        row = {
            **{column: getattr(change.owner, column) for column in self._owned_by},
            **change.more,
            "name": name,
            "version": latest + 1,
            "definition": change.definition,
            "created_at": now,
            "created_by": change.created_by,
        }
        inserted = connection.execute(sa.insert(self.table).values(row).returning(self.table))
        stored = self._version(inserted.mappings().one())
        self._drop_old(session, stored)
        told = {column: value for column in self.told if (value := getattr(stored, column)) is not None}
        action = change.action or (self.created if there is None else self.changed)
        self._note(session, change.actor, action, stored, told)
        return stored

    def delete(self, session: Session, owner: Owner, name: str, *, actor: Actor, expected: int | None = None) -> None:
        """Delete a document; what began with it keeps it.

        Raises:
            NotFound: there is none of that name.
            Conflict: it is not the `expected` version.
        """
        there = self._check(name, self._alone_with(session, owner, name), expected)
        ended = sa.update(self.table).where(self.table.c.id == there.id).values(ended_at=utcnow())
        session.connection().execute(ended)
        self._note(session, actor, self.deleted, there, {})

    def _alone_with(self, session: Session, owner: Owner, name: str) -> V | None:
        """Lock an owner's documents to the end of the transaction, and return the one of a name."""
        alone(session, self.lock, *(getattr(owner, column) for column in self._owned_by))
        return self.find(session, [owner], [name]).get(name)

    def _check(self, name: str, there: V | None, expected: int | None) -> V:
        if there is None:
            raise self.missing(name)
        if expected is not None and there.version != expected:
            text = f"{self.noun} {name!r} is at version {there.version} now, not {expected}: look at what was changed"
            raise Conflict(text, param="version")
        return there

    def _drop_old(self, session: Session, stored: V) -> None:
        """Drop what is too much of an owner's: the oldest versions of the name that has a new one, and what has ended
        long ago; but nothing that is used."""
        c, other = self.table.c, self.table.alias().c
        is_surplus = sa.and_(c.name == stored.name, c.version <= stored.version - self.most_versions)
        is_old = c.ended_at < stored.created_at - self.kept
        if self.has_history:
            same = (other[column] == c[column] for column in (*self._owned_by, "name"))
            is_old &= ~sa.exists().where(*same, other.ended_at.is_(None))
        ended = (self.are_of(stored.owner), c.ended_at.is_not(None), ~self.is_used)
        session.connection().execute(sa.delete(self.table).where(*ended, sa.or_(is_surplus, is_old)))

    def _note(self, session: Session, actor: Actor, action: Action, version: V, told: Mapping[str, object]) -> None:
        owner = version.owner if version.owner.user_id else version.owner.tenant or None
        audit(session, actor, action, version.name, owner, {"version": version.version, **told})

    # --- reads -------------------------------------------------------------------------------------------------------

    def find(
        self, session: Session, places: Sequence[Owner], names: Collection[str], *, at: datetime | None = None
    ) -> dict[str, V]:
        """The documents of these names that are served, or were served `at` a time: of a name, that of the first of the
        places that has one."""
        c, then = self.table.c, self.is_served
        if at is not None:
            then = sa.and_(c.created_at <= at, sa.or_(then, c.ended_at > at))
        found: dict[str, V] = {}
        rows = self.rows(session, self.are_of(*places), c.name.in_(names), then)
        for each in sorted(rows, key=lambda row: (places.index(row.owner), -row.version)):
            found.setdefault(each.name, each)
        return found

    def find_each(self, session: Session, keys: Collection[tuple[Owner, str]]) -> dict[tuple[Owner, str], V]:
        """Return what each of these users finds by each of these names."""
        found: dict[tuple[Owner, str], V] = {}
        for who in {who for who, _ in keys}:
            names = [name for whose, name in keys if whose == who]
            found |= {(who, name): each for name, each in self.find(session, self.places(who), names).items()}
        return found

    def get(
        self,
        session: Session,
        places: Sequence[Owner],
        name: str,
        version: int | None = None,
        *,
        param: str = "version",
    ) -> V:
        """The document that `find` finds, or an older version of it. Raises NotFound: there is none; `param` is what
        says which version."""
        served = self._check(name, self.find(session, places, [name]).get(name), None)
        if version is None or version == served.version:
            return served
        c = self.table.c
        for older in self.rows(session, self.are_of(served.owner), c.name == name, c.version == version):
            return older
        text = f"there is no version {version} of {self.noun} {name!r}: GET {self._at}/{name}/versions lists them"
        raise NotFound(text, param=param)

    def versions(self, session: Session, places: Sequence[Owner], name: str, after: str | None, limit: int) -> Page[V]:
        """A page of the versions of a document that are kept, newest first. Raises NotFound as `get` does, and
        InvalidRequest where `after` is no `next`."""
        c, listed = self.table.c, Cursor((self.table.c.version,), VERSION_PATTERN)
        query = listed.behind(sa.select(self.table).where(c.name == name), after)
        query = query.where(self.are_of(self.get(session, places, name).owner))
        return listed.page(session, query, None, limit).map(self._version)

    def served(self, session: Session, places: Sequence[Owner], after: str | None, limit: int) -> Page[V]:
        """A page of the documents of these places that are served, by name, then by key. Raises InvalidRequest where
        `after` is no `next`."""
        c = self.table.c
        keys = self.listed.sorted(sa.select(c.id).where(self.are_of(*places), self.is_served), after)
        # Keys are sorted, and what a page has: definitions may be long.
        query = sa.select(self.table).where(c.id.in_(keys.limit(limit + 1)))
        return self.listed.page(session, query, None, limit).map(self._version)

    def rows(self, session: Session, *where: sa.ColumnElement[bool]) -> list[V]:
        """Return all versions for which this is true."""
        return self._run(session, sa.select(self.table).where(*where))

    def _run(self, session: Session, query: Query) -> list[V]:
        return [self._version(row) for row in session.connection().execute(query).mappings()]

    def _version(self, row: Mapping[Any, Any]) -> V:
        owner = Owner(*(row.get(name, NOBODY) for name in Owner._fields))
        names = (each.name for each in fields(self.version) if each.name != "owner")
        return self.version(owner=owner, **{name: row[name] for name in names})
