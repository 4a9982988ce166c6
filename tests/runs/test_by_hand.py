"""Programs change rows by the database manager: never so that an input is lost."""

from __future__ import annotations

import pytest
from sqlmodel import SQLModel

from drsai_backend.datamodel import QueuedInput, Run, ThreadField, TurnStep
from drsai_backend.errors import InvalidRequest
from tests.support.teams.crew import Crew
from tests.support.threads import Make, ended, head_of, idle, queued, said, thread_of

pytestmark = pytest.mark.usefixtures("checked")


async def test_an_input_that_waits_is_run_whatever_a_program_wants_of_its_thread(make: Make) -> None:
    drsai = await idle(make, Crew())
    await drsai.run("crew", "x", thread_id="t")
    await queued(drsai, "y")
    thread = await thread_of(drsai)
    thread.queued = 0
    with pytest.raises(InvalidRequest) as error:
        await drsai.db.upsert(thread)
    assert error.value.param == "queued"
    await drsai.engine.look_at((await head_of(drsai)).key)
    thread = await ended(drsai)
    assert (said(thread), thread.queued) == (["x", "y"], 0)


@pytest.mark.parametrize("model", [QueuedInput, Run, ThreadField, TurnStep])
async def test_a_program_deletes_and_changes_no_row_of_a_run(make: Make, model: type[SQLModel]) -> None:
    drsai = await idle(make, Crew())
    await drsai.run("crew", "x", thread_id="t")
    await queued(drsai, "y")
    key = (await head_of(drsai)).key
    with pytest.raises(InvalidRequest):
        await drsai.db.delete(model, {"thread_key": key})
    rows = await drsai.db.get(model, {"thread_key": key})
    for row in rows or [model(thread_key=key)]:
        with pytest.raises(InvalidRequest):
            await drsai.db.upsert(row)
    await drsai.engine.look_at(key)
    assert said(await ended(drsai)) == ["x", "y"]
