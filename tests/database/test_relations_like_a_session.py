"""Rows with relationships: whatever graph is upserted is what a plain SQLAlchemy session would have stored."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import DetachedInstanceError
from sqlmodel import SQLModel

from drsai_backend.database import DatabaseManager
from drsai_backend.database.manager.relations import load_options
from drsai_backend.datamodel import Thread
from drsai_backend.errors import DrSaiError, InvalidRequest
from tests.database.related import TABLES, Item, Left, Owner, Plan, Project, Remark, Right, Tag, names, only

LOAD = ["owner.projects", "items.tags.items", "items.children", "items.parent", "notes", "plan"]
KINDS = ["item", "child", "adopt", "drop", "tag", "share", "untag", "owner", "no owner", "note", "drop note"]
KINDS += ["rank", "deep rank", "replace", "project", "plan"]
Step = tuple[str, int, int]
STEPS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(KINDS),
            st.integers(0, 5),
            st.integers(0, 5),
        ),
        min_size=1,
        max_size=6,
    ),
    min_size=1,
    max_size=4,
)


def mutate(project: Project, steps: list[Step], name: Callable[[], str]) -> None:
    """The same change of a graph, whoever keeps it."""
    for kind, a, b in steps:
        items = sorted(project.items, key=lambda item: item.name)
        item, other = (items[a % len(items)], items[b % len(items)]) if items else (None, None)
        match kind:
            case "item":
                project.items.append(Item(name=name(), rank=a))
            case "replace":
                project.items = [*items[: a % 3], Item(name=name())]
            case "note":
                project.notes.append(Remark(name=name()))
            case "drop note" if project.notes:
                project.notes.remove(min(project.notes, key=lambda note: note.name))
            case "owner":
                project.owner = Owner(name=name(), rank=b)
            case "no owner":
                project.owner = None
            case "project" if project.owner is not None:
                project.owner.projects.append(Project(name=name(), items=[Item(name=name())]))
            case "plan" if project.plan is None:
                project.plan = Plan(name=name())
            case "rank":
                project.rank = a
            case _ if item is None or other is None:
                pass
            case "child":
                item.children.append(Item(name=name(), tags=[Tag(name=name())]))
            case "adopt":
                item.parent = other
            case "drop":
                project.items.remove(item)
            case "tag":
                item.tags.append(Tag(name=name(), rank=b))
            case "share":
                item.tags.extend(tag for tag in other.tags if tag not in item.tags)
            case "untag" if item.tags:
                item.tags.remove(min(item.tags, key=lambda tag: tag.name))
            case "deep rank":
                item.rank += 1
                for tag in item.tags:
                    tag.rank += 1
            case _:
                pass


def stored(session: Session, prefix: str) -> dict[str, Any]:
    """All rows of an example, with names for ids."""
    found: dict[str, Any] = {}
    for model in (Owner, Project, Item, Tag, Remark, Plan):
        for row in session.scalars(sa.select(model).where(sa.column("name").startswith(prefix))):
            fields: dict[str, Any] = {"rank": row.rank}
            for relation in ("owner", "project", "parent"):
                if hasattr(model, relation):
                    there = getattr(row, relation)
                    fields[relation] = there and there.name.removeprefix(prefix)
            if isinstance(row, Item):
                fields["tags"] = sorted(tag.name.removeprefix(prefix) for tag in row.tags)
            found[f"{model.__name__} {row.name.removeprefix(prefix)}"] = fields
    return found


@contextmanager
def plain_engine() -> Iterator[sa.Engine]:
    """A database that only SQLAlchemy itself writes."""
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    SQLModel.metadata.create_all(engine, tables=[model.__table__ for model in (*TABLES, Thread)])  # type: ignore[attr-defined]
    yield engine
    engine.dispose()


def fresh_names(prefix: str) -> Callable[[], str]:
    numbers = iter(range(10_000))
    return lambda: f"{prefix}{next(numbers):04}"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=STEPS.map(lambda steps: steps[0]), steps=STEPS)
async def test_what_is_stored_is_what_a_session_stores(
    related: DatabaseManager, first: list[Step], steps: list[list[Step]]
):
    prefix = uuid.uuid4().hex
    root = prefix + "root"
    ours, theirs = fresh_names(prefix), fresh_names(prefix)
    with plain_engine() as engine:
        for part in [first, *steps]:
            with Session(engine) as session:
                query = sa.select(Project).where(sa.column("name") == root).options(*load_options(Project, LOAD))
                project = session.scalars(query).first() or Project(name=root)
                # Else the session would keep what was put into the graph and taken out again.
                session.expunge_all()
                mutate(project, part, theirs)
                session.add(project)
                try:
                    session.commit()
                except sa.exc.SQLAlchemyError as error:
                    refused: Exception | None = error
                else:
                    refused = None
            mine = await related.get(Project, {"name": root}, load=LOAD) or [Project(name=root)]
            mutate(mine[0], part, ours)
            try:
                await related.upsert(mine[0])
            except DrSaiError:
                assert refused is not None
            else:
                assert refused is None
                # Upserted as it is, it changes nothing.
                before = await related.database.read(lambda session: session.scalars(sa.select(Item.updated_at)).all())
                await related.upsert(mine[0])
                after = await related.database.read(lambda session: session.scalars(sa.select(Item.updated_at)).all())
                assert before == after
            with Session(engine) as session:
                expected = stored(session, prefix)
            assert await related.database.read(lambda session: stored(session, prefix)) == expected
            (again,) = await related.get(Project, {"name": root}, load=LOAD) or [None]
            if again is not None and refused is None:
                assert {item.name: item.project_id for item in again.items} == {
                    item.name: item.project_id for item in mine[0].items
                }


async def test_orphans_and_those_taken_out(related: DatabaseManager):
    await related.upsert(Project(name="p", items=[Item(name="a")], notes=[Remark(name="n")]))
    project = await only(related, Project, "items", "notes")
    item = project.items.pop()
    project.notes.clear()
    await related.upsert(project)
    assert item.project_id is None
    assert await names(related, Item, project_id=None) == ["a"]
    assert await names(related, Remark) == []


async def test_rows_that_refer_to_each_other(related: DatabaseManager):
    left = Left()
    left.right = Right(left=left)
    await related.upsert(left)
    (read,) = await related.get(Left, load=["right.left"])
    assert read.right.left is read
    a, b = Item(name="a"), Item(name="b")
    a.parent, b.parent = b, a
    with pytest.raises(InvalidRequest, match="circle"):
        await related.upsert(a)
    assert await names(related, Item) == []


async def test_what_the_object_does_not_hold_stays(related: DatabaseManager):
    await related.upsert(Project(name="p", items=[Item(name="a")]))
    project = await only(related, Project)
    with pytest.raises(DetachedInstanceError):
        _ = project.items
    project.rank = 5
    await related.upsert(project)
    await related.upsert(Project(name="p", rank=6))  # found by its unique name
    assert [item.name for item in (await only(related, Project, "items")).items] == ["a"]
    await related.upsert(Project(name="p", items=[Item(name="b")]))  # says what it holds now
    read = await only(related, Project, "items")
    assert (read.rank, [item.name for item in read.items]) == (6, ["b"])
