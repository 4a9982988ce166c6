"""What a thread costs in statements, each of which is a way to the database and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend import DrSai
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.runs.start.read import StoredThread, read_thread
from drsai_backend.runs.threads.queries import read_detail
from drsai_backend.runs.threads.views import ThreadDetail
from drsai_backend.state import travel
from drsai_backend.state.travel import Place
from tests.runs.test_travel import TEAMS, say
from tests.support.threads import Make

NAME = ThreadName("default", "anonymous", "t")


FORK = 14
"""Of a fork at the end of a thread, with what is told of it."""


async def counted(drsai: DrSai, fn: Callable[[Session], Any], *, writes: bool = False) -> tuple[Any, list[str]]:
    """What a storage function returns, and the statements that it has executed."""
    told: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        told.append(statement)

    def watched(session: Session) -> Any:
        connection = session.connection()
        sa.event.listen(connection, "before_cursor_execute", note)
        try:
            return fn(session)
        finally:
            sa.event.remove(connection, "before_cursor_execute", note)

    return await (drsai.database.write if writes else drsai.database.read)(watched), told


@pytest.mark.parametrize("runs", [1, 3])
async def test_a_cold_thread_is_read_in_one_statement(make: Make, runs: int) -> None:
    drsai = await make(TEAMS)
    for number in range(runs):
        await say(drsai, f"text {number}")
    read, told = await counted(drsai, lambda session: read_thread(session, NAME, 2, "pair"))
    assert isinstance(read, StoredThread)
    assert len(told) == 1
    assert read.state is not None
    assert [*read.state.configs] == [*range(1, 3 * runs + 1)]
    assert len(read.state.entries) == 2 * runs
    assert read.user_texts == [f"text {number}" for number in range(runs)][-2:]


async def test_a_fork_takes_few_statements(make: Make) -> None:
    drsai = await make(TEAMS)
    await say(drsai, "text")

    def fork(session: Session) -> ThreadDetail:
        target = NAME.owner.thread("f")
        return read_detail(
            session, travel.fork(session, NAME, Place(), target, Principal("anonymous").actor), is_new=True
        )

    made, told = await counted(drsai, fork, writes=True)
    assert made == await drsai.get_thread("f")
    assert (made.message_count, made.forked_from) == (3, {"user_id": "anonymous", "thread_id": "t", "seq": 3})
    assert len(told) <= FORK
