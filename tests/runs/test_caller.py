"""A `Caller`: whose threads its calls are about, and as whom they are made."""

from __future__ import annotations

from typing import Any

import pytest

from drsai_backend.datamodel.thread import Thread
from drsai_backend.errors import Forbidden, InvalidRequest, NotFound
from tests.support.teams.crew import Crew
from tests.support.threads import Make


async def test_the_program_is_the_local_user(make: Make) -> None:
    drsai = await make({"crew": Crew()})
    await drsai.run("crew", "Hello.", thread_id="t")
    local = drsai.user("anonymous")
    assert local.who == drsai.who
    assert (await local.get_thread("t")).message_count == (await drsai.get_thread("t")).message_count
    for other in (drsai.user("ann"), drsai.user("anonymous", tenant="acme")):
        with pytest.raises(NotFound):
            await other.get_thread("t")
        assert (await other.list_threads()).items == []


@pytest.mark.parametrize("who", [{"user_id": ""}, {"user_id": "a", "tenant": " "}, {"user_id": "a", "owner": "\n"}])
async def test_a_name_that_is_none(make: Make, who: dict[str, str]) -> None:
    drsai = await make({"crew": Crew()})
    with pytest.raises(InvalidRequest, match=f"`{[*who][-1]}` must"):
        drsai.user(**who)


@pytest.mark.parametrize("option", [{"background": True}, {"webhook_url": "https://hooks.example.org/"}, {"odd": 1}])
async def test_a_run_takes_its_own_options_alone(make: Make, option: dict[str, Any]) -> None:
    """Who waits for a run has no use for what `start` takes besides."""
    drsai = await make({"crew": Crew()})
    with pytest.raises(TypeError, match=f"a run takes no {next(iter(option))}"):
        await drsai.run("crew", "Hello.", **option)
    with pytest.raises(TypeError, match=f"a run takes no {next(iter(option))}"):
        await anext(drsai.run_stream("crew", "Hello.", **option))
    assert (await drsai.list_threads()).items == []


async def test_threads_of_others(make: Make) -> None:
    drsai = await make({"crew": Crew()})
    ann = drsai.user("ann", tenant="acme")
    asked = await ann.run("crew", "Hello.", thread_id="t")
    bob = drsai.user("bob", tenant="acme", owner="ann")
    eve = drsai.user("eve", tenant="acme", owner="ann", roles=["clerk"])
    for caller in (bob, eve, drsai.user("bob", owner="ann")):
        with pytest.raises(NotFound):
            await caller.get_thread("t")
    await ann.share_thread("t", with_user="bob", right="write")
    await ann.share_thread("t", with_role="clerk")
    seen = [await each.get_thread("t") for each in (ann, bob, eve)]
    assert [each.right for each in seen] == [None, "write", "read"]
    assert len({each.model_copy(update={"right": None}).model_dump_json() for each in seen}) == 1
    assert (await bob.run("crew", "And you?", thread_id="t")).thread_id == "t"
    async for _ in bob.run_stream("crew", "Once more.", thread_id="t"):
        pass
    assert len((await eve.list_runs("t")).items) == 3
    assert await eve.list_messages("t") == await ann.list_messages("t")
    assert (await eve.turns("t")).items == (await ann.turns("t")).items
    assert (await eve.branches("t")).items == (await ann.branches("t")).items
    assert (await eve.get_run(str(asked.run_id))).run_id == asked.run_id
    with pytest.raises(Forbidden):
        await eve.clear_history("t")
    assert (await bob.rewind("t", turn=1)).branch == 1
    fork = await bob.fork("t", new_thread_id="f")
    assert (await drsai.user("bob", tenant="acme").get_thread("f")).message_count == fork.message_count


async def test_nobody_deletes_a_thread_of_others(make: Make) -> None:
    """Nor their own one of that id."""
    drsai = await make({"crew": Crew()})
    for name in ("ann", "bob"):
        await drsai.user(name).run("crew", "Hello.", thread_id="t")
    await drsai.user("ann").share_thread("t", with_user="bob", right="write")
    with pytest.raises(Forbidden):
        await drsai.user("bob", owner="ann").delete_thread("t")
    assert len(await drsai.db.get(Thread)) == 2
    await drsai.user("ann", owner="ann").delete_thread("t")
    assert [thread.user_id for thread in await drsai.db.get(Thread)] == ["bob"]
