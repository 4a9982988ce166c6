"""Documents of every kind: stored, replaced, deleted and found alike, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from drsai_backend.database import Database, documents
from drsai_backend.database.documents import NOBODY, OF_ALL, Change, Documents, Version
from drsai_backend.database.registered_tools import tools
from drsai_backend.database.stored_definitions import definitions
from drsai_backend.datamodel import AuditEntry, Run, Thread, table_of
from drsai_backend.datamodel.audit import PROGRAM
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Conflict, NotFound
from drsai_backend.page import Page

MORE: dict[str, dict[str, Any]] = {"tool": {"kind": "http", "secrets": None}, "agent": {"restores": None}}
ACME = Owner("acme", NOBODY)
ANN = Owner("acme", "ann")


class Shelf:
    """The documents of a kind in a database, each call in a transaction of its own."""

    def __init__(self, database: Database, kind: Documents[Any]) -> None:
        self.database = database
        self.kind = kind

    def put(self, name: str, owner: Owner = ACME, text: str = "", **values: Any) -> Version:
        more = MORE[self.kind.noun]
        change = Change(owner, name, {"text": text}, "ann", PROGRAM, **{"more": more, **values})
        return self.database.write_sync(lambda session: self.kind.store(session, change))

    def delete(self, name: str, owner: Owner = ACME, expected: int | None = None) -> None:
        return self.database.write_sync(
            lambda session: self.kind.delete(session, owner, name, actor=PROGRAM, expected=expected)
        )

    def find(self, who: Owner, *names: str, **values: Any) -> dict[str, Version]:
        places = self.kind.places(who)
        return self.database.read_sync(lambda session: self.kind.find(session, places, names, **values))

    def get(self, name: str, version: int | None = None) -> Version:
        return self.database.read_sync(lambda session: self.kind.get(session, [ACME], name, version))

    def kept(self, name: str, owner: Owner = ACME) -> list[int]:
        """The numbers of the versions in the table."""
        of_name = (self.kind.are_of(owner), self.kind.table.c.name == name)
        rows = self.database.read_sync(lambda session: self.kind.rows(session, *of_name))
        return sorted(each.version for each in rows)

    def page(self, after: str | None, limit: int) -> Page[Version]:
        return self.database.read_sync(lambda session: self.kind.served(session, [ACME], after, limit))

    def told(self) -> list[tuple[str, dict[str, Any]]]:
        """What the audit log has of them."""
        entry = table_of(AuditEntry).c
        query = sa.select(entry.action, entry.detail).order_by(entry.id)
        return self.database.read_sync(lambda session: [(row[0], row[1]) for row in session.execute(query)])


@pytest.fixture(params=[tools, definitions], ids=["tools", "agents"])
def shelf(request: pytest.FixtureRequest, database_url: str) -> Iterator[Shelf]:
    database = Database(database_url)
    yield Shelf(database, request.param)
    database.close_sync()


def few(shelf: Shelf, **values: Any) -> Shelf:
    """The same documents with other limits."""
    return Shelf(shelf.database, replace(shelf.kind, **values))


# --- changes ---------------------------------------------------------------------------------------------------------


def test_a_version_is_replaced_by_the_next(shelf: Shelf) -> None:
    first = shelf.put("a", text="one", replaces=False)
    second = shelf.put("a", text="two", replaces=True, expected=1)
    assert [(each.version, each.definition["text"]) for each in (first, second)] == [(1, "one"), (2, "two")]
    assert shelf.get("a") == second
    assert (old := shelf.get("a", 1)).ended_at == second.created_at
    assert replace(old, ended_at=None) == first
    assert first.identity != second.identity


def test_what_there_must_be_is_looked_at(shelf: Shelf) -> None:
    noun = shelf.kind.noun
    with pytest.raises(NotFound, match=f"there is no {noun} 'a'"):
        shelf.put("a", replaces=True)
    with pytest.raises(NotFound, match=f"there is no {noun} 'a'"):
        shelf.delete("a")
    shelf.put("a")
    with pytest.raises(Conflict, match=f"there is an? {noun} 'a' already: PUT /v1/{noun}s/a replaces it"):
        shelf.put("a", replaces=False)
    assert shelf.put("a").version == 2
    for change in (lambda: shelf.put("a", replaces=True, expected=1), lambda: shelf.delete("a", expected=1)):
        with pytest.raises(Conflict, match=f"{noun} 'a' is at version 2 now, not 1"):
            change()
    with pytest.raises(NotFound, match=f"there is no version 3 of {noun} 'a'"):
        shelf.get("a", 3)
    shelf.delete("a", expected=2)
    with pytest.raises(NotFound):
        shelf.get("a", 1)
    assert shelf.put("a").version == 3


def test_the_audit_log_says_what_was_done(shelf: Shelf) -> None:
    shelf.put("a")
    shelf.put("a", more={**MORE[shelf.kind.noun], **{name: 1 for name in shelf.kind.told if name == "restores"}})
    shelf.put("a", action=shelf.kind.deleted)
    shelf.delete("a")
    kind = {"kind": "http"} if "kind" in shelf.kind.told else {}
    restores = {"restores": 1} if "restores" in shelf.kind.told else {}
    assert shelf.told() == [
        (shelf.kind.created, {"version": 1, **kind}),
        (shelf.kind.changed, {"version": 2, **kind, **restores}),
        (shelf.kind.deleted, {"version": 3, **kind}),
        (shelf.kind.deleted, {"version": 3}),
    ]


def test_workers_of_the_release_before_wait_for_the_same_lock(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[str, ...]] = []
    monkeypatch.setattr(documents, "alone", lambda _, *name: taken.append(name))
    shelf.put("a", ANN if shelf.kind is definitions else ACME)
    shelf.delete("a", ANN if shelf.kind is definitions else ACME)
    assert taken == [("definitions", "acme", "ann") if shelf.kind is definitions else ("tools", "acme")] * 2


def test_an_owner_may_have_so_many(shelf: Shelf) -> None:
    two = few(shelf, most=2)
    two.put("a")
    two.put("b")
    with pytest.raises(Conflict, match=r"2 \w+ already: delete some of them"):
        two.put("c")
    two.put("a")
    two.put("c", Owner("other", NOBODY))
    two.delete("a")
    two.put("c")


def test_of_a_name_so_many_versions_are_kept(shelf: Shelf) -> None:
    three = few(shelf, most_versions=3)
    three.put("b")
    three.put("b")
    for _ in range(5):
        three.put("a")
    assert (three.kept("a"), three.kept("b")) == ([3, 4, 5], [1, 2])


def test_what_ended_long_ago_is_dropped(shelf: Shelf) -> None:
    short = few(shelf, kept=timedelta(0))
    shelf.put("a", Owner("other", NOBODY))
    shelf.delete("a", Owner("other", NOBODY))
    for name in ("gone", "gone", "there", "there"):
        shelf.put(name)
    shelf.delete("gone")
    short.put("new")
    # Of what is served, a kind with a history keeps the versions before.
    assert short.kept("there") == ([1, 2] if shelf.kind.has_history else [2])
    assert short.kept("gone") == []
    assert short.kept("a", Owner("other", NOBODY)) == [1], "it is another's"


def test_what_is_used_is_kept(shelf: Shelf) -> None:
    first = shelf.put("a")
    used = few(shelf, kept=timedelta(0), most_versions=1, is_used=shelf.kind.table.c.id == first.id)
    for _ in range(3):
        used.put("a")
    used.delete("a")
    used.put("b")
    assert used.kept("a") == [1]
    assert used.put("a").version == 2


@pytest.mark.parametrize("shelf", [definitions], indirect=True, ids=["agents"])
def test_a_version_that_a_run_began_with_is_kept(shelf: Shelf) -> None:
    def begin(session: Session) -> None:
        session.execute(sa.insert(table_of(Thread)).values(tenant="acme", user_id="ann", thread_id="t"))
        key = session.execute(sa.select(table_of(Thread).c.id)).scalar_one()
        values = {"run_id": "r", "team": "a", "status": "running", "definition": first.id}
        session.execute(sa.insert(table_of(Run)).values(thread_key=key, **values))

    first = shelf.put("a")
    shelf.database.write_sync(begin)
    short = few(shelf, kept=timedelta(0), most_versions=1)
    for _ in range(3):
        short.put("a")
    assert short.kept("a") == [1, 4]
    shelf.database.write_sync(lambda session: session.execute(sa.update(table_of(Run)).values(status="completed")))
    short.put("a")
    assert short.kept("a") == [5]


# --- reads -----------------------------------------------------------------------------------------------------------


def test_what_was_served_at_a_time(shelf: Shelf) -> None:
    first, second = shelf.put("a"), shelf.put("a")
    shelf.delete("a")
    assert shelf.find(ANN, "a") == {}
    for version in (first, second):
        assert shelf.find(ANN, "a", at=version.created_at)["a"].version == version.version
    assert shelf.find(ANN, "a", at=first.created_at - timedelta(microseconds=1)) == {}
    # The clock of who replaced it was ahead.
    table, late = shelf.kind.table, second.created_at + timedelta(hours=1)
    ahead = sa.update(table).where(table.c.id == first.id).values(ended_at=late)
    shelf.database.write_sync(lambda session: session.execute(ahead))
    assert shelf.find(ANN, "a", at=second.created_at)["a"].version == 2


def test_nobody_finds_anothers(shelf: Shelf) -> None:
    for owner in (Owner("other", NOBODY), *([Owner("acme", "bob")] if shelf.kind is definitions else [])):
        shelf.put("a", owner)
    assert shelf.find(ANN, "a") == {}
    keys = [(ANN, "a"), (Owner("other", "ann"), "a"), (Owner("other", "ann"), "b")]
    assert list(shelf.database.read_sync(lambda session: shelf.kind.find_each(session, keys))) == [keys[1]]


def test_a_users_own_wins_over_their_tenants_and_that_over_the_one_for_all(shelf: Shelf) -> None:
    places = shelf.kind.places(ANN)
    assert places == ((ANN, ACME, OF_ALL) if shelf.kind is definitions else (ACME,))
    for owner in reversed(places):
        shelf.put("a", owner)
        assert shelf.find(ANN, "a")["a"].owner == owner


def test_pages_hold_everything_once(shelf: Shelf) -> None:
    for name in ("b", "d", "a", "c", "b"):
        shelf.put(name)
    shelf.delete("d")
    pages = [shelf.page(None, 2)]
    while pages[-1].next is not None:
        pages.append(shelf.page(pages[-1].next, 2))
    assert [[each.name for each in page.items] for page in pages] == [["a", "b"], ["c"]]


# --- whatever is done ------------------------------------------------------------------------------------------------

NAMES = ("a", "b")
OWNERS = (ANN, Owner("acme", "bob"), ACME, Owner("other", NOBODY), OF_ALL)
STEPS = st.lists(st.tuples(st.booleans(), st.sampled_from(OWNERS), st.sampled_from(NAMES)), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(STEPS)
def test_versions_never_change_and_one_is_served(shelf: Shelf, steps: list[tuple[bool, Owner, str]]) -> None:
    """Each step stores a version, or deletes a document; a dictionary of what is served says what is found."""
    shelf.database.write_sync(lambda session: session.execute(sa.delete(shelf.kind.table)))
    made: list[Version] = []
    served: dict[tuple[Owner, str], Version] = {}
    for number, (is_stored, whose, name) in enumerate(steps):
        owner = whose if shelf.kind is definitions else Owner(whose.tenant, NOBODY)
        if is_stored:
            served[owner, name] = shelf.put(name, owner, str(number))
            made.append(served[owner, name])
        elif served.pop((owner, name), None) is None:
            with pytest.raises(NotFound):
                shelf.delete(name, owner)
        else:
            shelf.delete(name, owner)
    rows = shelf.database.read_sync(lambda session: shelf.kind.rows(session, sa.true()))
    assert {each.identity: each.definition for each in rows} == {each.identity: each.definition for each in made}
    assert {(each.owner, each.name): each for each in rows if each.ended_at is None} == served
    for who in (ANN, Owner("acme", "bob"), Owner("other", "eve")):
        places = shelf.kind.places(who)
        wanted = {n: next((served[p, n] for p in places if (p, n) in served), None) for n in NAMES}
        assert shelf.find(who, *NAMES) == {name: each for name, each in wanted.items() if each is not None}
