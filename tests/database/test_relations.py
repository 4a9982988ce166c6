"""Rows with relationships: stored with each other, by the rules of the manager; what cannot be done is said."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlmodel import SQLModel

from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import AutoGenMessage, JournalEntry, RunStatus, Thread, utcnow
from drsai_backend.errors import Conflict, DrSaiError, InvalidRequest, ThreadBusy
from tests.database.related import Bookmark, Item, Labelled, Owner, Plan, Project, Remark, Tag, names, only

# --- the examples ---------------------------------------------------------------------------------------------


async def test_children_go_with_their_parent(related: DatabaseManager):
    project = await related.upsert(Project(name="p", items=[Item(name="a"), Item(name="b")]))
    assert [item.project_id for item in project.items] == [project.id, project.id]
    read = await only(related, Project, "items")
    assert sorted(item.name for item in read.items) == ["a", "b"]
    assert read.items[0].project is read
    assert related.sync.get(Project, load=["items"])[0].items[0].model_dump() == read.items[0].model_dump()


async def test_a_parent_goes_with_its_child(related: DatabaseManager):
    item = await related.upsert(Item(name="a", project=Project(name="p", owner=Owner(name="o"))))
    assert item.project is not None
    read = await only(related, Item, "project.owner")
    assert read.project.owner.name == "o"
    assert (read.project_id, read.project.id) == (item.project_id, item.project.id)


async def test_the_synchronous_calls_do_the_same(related: DatabaseManager):
    related.sync.upsert(Project(name="p", items=[Item(name="a", tags=[Tag(name="t")])]))
    (read,) = related.sync.get(Project, load=["items.tags"])
    assert [tag.name for tag in read.items[0].tags] == ["t"]
    assert related.sync.delete(Project, {"name": "p"}) == 1


# --- the rules of the manager hold for all of them --------------------------------------------------------------------


async def test_a_conflict_in_a_child_writes_nothing(related: DatabaseManager):
    await related.upsert(Project(name="p", items=[Item(name="a")]))
    mine, theirs = [await only(related, Project, "items") for _ in range(2)]
    theirs.items[0].rank = 1
    await related.upsert(theirs)
    mine.rank = 7
    mine.items[0].rank = 2
    with pytest.raises(Conflict) as conflict:
        await related.upsert(mine)
    assert conflict.value.param == "rank"
    assert (await only(related, Project)).rank == 0
    mine.items[0].rank = 0
    await related.upsert(mine)  # another field of another row: merged
    read = await only(related, Project, "items")
    assert (read.rank, read.items[0].rank) == (7, 1)


async def test_two_who_add_are_merged_and_two_who_move_are_not(related: DatabaseManager):
    await related.upsert(Project(name="p", items=[Item(name="a")]))
    await related.upsert(Project(name="q"))
    mine, theirs = [await only(related, Project, "items", name="p") for _ in range(2)]
    mine.items.append(Item(name="b"))
    theirs.items.append(Item(name="c"))
    await related.upsert(theirs)
    await related.upsert(mine)
    assert await names(related, Item, project_id=mine.id) == ["a", "b", "c"]
    item = await only(related, Item, "project", name="a")
    moved = await only(related, Item, "project", name="a")
    moved.project = await only(related, Project, name="q")
    await related.upsert(moved)
    item.project = None
    with pytest.raises(Conflict) as conflict:
        await related.upsert(item)
    assert conflict.value.param == "project_id"
    mine, other = await only(related, Project, "items", name="p"), await only(related, Project, "items", name="q")
    last = mine.items[0]
    other.items.append(last)  # SQLAlchemy takes it out of the first
    stale = await only(related, Item, name=last.name)
    await related.upsert(other)
    stale.project_id = None
    with pytest.raises(Conflict):
        await related.upsert(stale)
    await related.upsert(mine)
    assert (await only(related, Item, "project", name=last.name)).project.name == "q"


async def test_a_child_deleted_meanwhile(related: DatabaseManager):
    await related.upsert(Project(name="p", items=[Item(name="a"), Item(name="b")]))
    project = await only(related, Project, "items")
    await related.delete(Item, {"name": "a"})
    project.rank = 1
    await related.upsert(project)  # the child itself did not change
    assert await names(related, Item) == ["b"]
    for item in project.items:
        item.rank = 3
    with pytest.raises(Conflict, match="Item was deleted"):
        await related.upsert(project)


async def test_many_at_once_do_not_wait_for_each_other_for_ever(related: DatabaseManager):
    await related.upsert(Project(name="p", items=[Item(name=name) for name in "abcd"]))

    async def count_up(backwards: bool) -> None:
        for _ in range(20):
            project = await only(related, Project, "items")
            for item in sorted(project.items, key=lambda item: item.name, reverse=backwards):
                item.rank += 1
            try:
                await related.upsert(project)
                return
            except Conflict:
                continue
        pytest.fail("never got through")

    await asyncio.gather(*(count_up(number % 2 == 0) for number in range(6)))
    assert [item.rank for item in await related.get(Item)] == [6, 6, 6, 6]


# --- what cannot be done is said --------------------------------------------------------------------------------------


async def test_errors_name_the_field(related: DatabaseManager):
    async def refused(row: SQLModel, error: type[DrSaiError], param: str, text: str) -> None:
        with pytest.raises(error, match=text) as caught:
            await related.upsert(row)
        assert caught.value.param == param

    await refused(
        Project(name="p", items=[Item(name="a", tags=[Tag(name="a\0b")])]), InvalidRequest, "items.tags.name", "NUL"
    )
    await refused(Project(name="p", items=[Item(rank=1)]), InvalidRequest, "name", "name of the Item is required")
    await refused(Remark(name="n"), InvalidRequest, "project_id", "project_id of the Remark is required")
    await refused(Bookmark(name="b", owner=Owner(name="o")), InvalidRequest, "owner", "upsert it first")
    assert await names(related, Project) == []
    assert await names(related, Owner) == []
    owner = await related.upsert(Owner(name="o"))
    bookmark = await related.upsert(Bookmark(name="b", owner=owner))
    assert bookmark.owner_id == owner.id
    read = await only(related, Bookmark, "seen")
    assert [seen.name for seen in read.seen] == ["o"]
    read.seen.append(Owner(name="x"))
    await refused(read, InvalidRequest, "seen", "viewonly")

    project = await related.upsert(Project(name="p", plan=Plan(name="one")))
    project.plan = Plan(name="two")
    await refused(project, InvalidRequest, "plan", "cannot be without project_id")
    first, second = [await only(related, Project) for _ in range(2)]
    first.rank, second.rank = 1, 2
    await refused(Owner(name="o", projects=[first, second]), InvalidRequest, "Project", "two changed objects")


async def test_what_can_be_loaded(related: DatabaseManager):
    for path in ("nothing", "items.nothing", "name", "items.", ""):
        with pytest.raises(InvalidRequest, match="is no relationship of") as caught:
            await related.get(Project, load=[path])
        assert caught.value.param == "load"
    with pytest.raises(InvalidRequest, match="it has: none"):
        await related.get(Thread, load=["messages"])


# --- beside the package's own tables ----------------------------------------------------------------------------------


async def test_a_thread_in_a_graph(related: DatabaseManager):
    bookmark = Bookmark(name="b", thread=Thread(user_id="u", thread_id="t", meta={"k": 1}, messages=[{"a": 1}]))
    await related.upsert(bookmark)
    read = await only(related, Bookmark, "thread")
    assert (read.thread.meta, read.thread.messages, read.thread.last_seq) == ({"k": 1}, [{"a": 1}], 1)
    read.thread.title = "new"
    read.name = "c"
    await related.upsert(read)
    assert (await only(related, Thread)).title == "new"
    live = {"status": RunStatus.RUNNING, "lease_owner": "w", "lease_expires_at": utcnow() + timedelta(hours=1)}
    await related.database.write(lambda session: session.execute(sa.update(Thread).values(live)))
    read.thread.messages.append({"b": 2})
    with pytest.raises(ThreadBusy):
        await related.upsert(read)
    assert len(await related.get(AutoGenMessage)) == 1
    assert await related.get(JournalEntry) == []


# --- deleting ---------------------------------------------------------------------------------------------------------


async def test_deletes_follow_the_cascade(related: DatabaseManager):
    tag = Tag(name="t")
    items = [Item(name="a", tags=[tag]), Item(name="b", tags=[tag])]
    await related.upsert(Project(name="p", items=items, notes=[Remark(name="n")]))
    await related.upsert(Project(name="q"))
    assert await related.delete(Project, {"name": {"in": ["p", "q"]}}) == 2
    assert [item.project_id for item in await related.get(Item)] == [None, None]
    assert await names(related, Remark) == []
    assert await related.delete(Item, {"name": "a"}) == 1
    assert len(await related.get(Labelled)) == 1
    assert await names(related, Tag) == ["t"]


async def test_a_row_that_others_need_is_not_deleted(related: DatabaseManager):
    await related.upsert(Project(name="p", plan=Plan(name="x"), notes=[Remark(name="n")]))
    with pytest.raises(Conflict, match="plan need") as caught:
        await related.delete(Project, {"name": "p"})
    assert caught.value.param == "plan"
    assert await names(related, Remark) == ["n"]
