"""A request that is repeated with its idempotency key is run once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drsai_backend import RunStatus
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import AutoGenMessage
from drsai_backend.errors import (
    IdempotencyMismatch,
)
from tests.support.teams.crew import Crew, pair
from tests.support.threads import (
    QUICK,
    WHERE,
    Make,
    idle,
    request,
    said,
    thread_of,
)

POLICIES = [{"on_busy": policy} for policy in ("reject", "interrupt", "steer", "rollback")]


@pytest.mark.parametrize("values", [{}, {"background": True}, *POLICIES], ids=str)
async def test_the_same_request_at_the_same_moment_is_one_run(make: Make, values: Any) -> None:
    crew = Crew()
    crew.ann.delay = 0.3
    workers = [await make({"crew": crew}, **QUICK) for _ in range(2)]
    starts = [workers[n % 2].engine.start(*request("x", key="k", **values)) for n in range(4)]
    handles = await asyncio.gather(*starts)
    assert len({handle.run_id for handle in handles}) == 1
    for handle in handles:
        assert (await handle.wait()).status is RunStatus.COMPLETED
    assert said(await thread_of(workers[0])) == ["x"]


async def test_a_dropped_input_is_replayed_without_the_threads_messages(make: Make) -> None:
    drsai = await idle(make, Crew())
    await drsai.run("crew", "x", thread_id="t")

    async def nobody(_: int) -> None:
        pass

    drsai.engine._recovery.wake = nobody
    handle = await drsai.engine.start(*request("y", background=True, key="k"))
    await drsai.engine.cancel_run(Principal(), handle.run_id)
    again = await drsai.engine.start(*request("y", background=True, key="k"))
    assert (await again.wait()).status is RunStatus.STOPPED
    assert list(again.transcript()) == []


async def test_idempotency(make: Make) -> None:
    drsai = await make({"crew": pair})
    first = await drsai.engine.start(*request("x", key="k"))
    end = await first.wait()
    again = await drsai.engine.start(*request("x", key="k"))
    assert again.run_id == first.run_id
    assert (await again.wait()).status is end.status
    assert [d.message.to_text() for d in again.transcript()] == [d.message.to_text() for d in first.transcript()]
    with pytest.raises(IdempotencyMismatch):
        await drsai.engine.start(*request("y", key="k"))
    assert len(await drsai.db.get(AutoGenMessage, filters=WHERE)) == 3


async def test_idempotency_of_background_and_queued_inputs(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew}, **QUICK)
    handles = [
        await drsai.engine.start(*request("x", background=True, key="k")),
        await drsai.engine.start(*request("x", background=True, key="k")),
        await drsai.engine.start(*request("y", key="l")),
        await drsai.engine.start(*request("y", key="l")),
    ]
    crew.ann.release()
    for handle in handles:
        assert (await handle.wait()).status is RunStatus.COMPLETED
    assert handles[0].run_id == handles[1].run_id != handles[2].run_id == handles[3].run_id
    assert said(await thread_of(drsai)) == ["x", "y"]
