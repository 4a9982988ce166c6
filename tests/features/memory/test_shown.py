"""Which memories were shown to which step of a run is told by the run's steps, and what they say only to those whose
they are."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from autogen_core import FunctionCall

from drsai_backend import DrSai, DrSaiAgent, RunContext, tool
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.memory.base import NewMemory
from drsai_backend.features.memory.extension import Memory
from tests.features.memory.learning import ANN
from tests.support.scripted import ScriptedClient
from tests.support.threads import LATE, settings

BOB = Owner("default", "bob")


def calling(messages: Any, options: Any) -> Any:
    """Call the tool once, and answer."""
    if type(messages[-1]).__name__ == "FunctionExecutionResultMessage":
        return "Indeed."
    return [FunctionCall(id="c1", name="look", arguments="{}"), FunctionCall(id="c2", name="look", arguments="{}")]


async def test_steps_name_what_was_shown(database_url: str) -> None:
    gate, reached = asyncio.Event(), asyncio.Event()

    @tool(idempotent=True)
    async def look() -> str:
        """Look."""
        reached.set()
        await gate.wait()
        return "seen"

    def ear(context: RunContext) -> DrSaiAgent:
        agent = DrSaiAgent("ear", ScriptedClient(calling), tools=[look], reflect_on_tool_use=True)
        context.recall(agent, "memory")
        return agent

    async with DrSai({"ear": ear}, database_url, settings=settings(**LATE)) as drsai:
        memory, ann = drsai.extension(Memory), drsai.user("ann")
        made = await memory.add(ANN, NewMemory(text="The user likes tea."))
        await memory.add(BOB, NewMemory(text="The user likes coffee."))
        handle = await ann.start("ear", "What do I like?", thread_id="t")
        await reached.wait()
        in_flight = (await ann.steps(handle.run_id)).items
        assert [(each.call_id, each.recalled, each.is_stored) for each in in_flight] == [
            ("c1", [made.version_id], False),
            ("c2", [], False),
        ]
        gate.set()
        await handle.wait()
        # A later version is another one: what was shown stays what it was.
        await memory.change(ANN, made.memory_id, "The user likes green tea.")
        steps = (await ann.steps(handle.run_id)).items
        assert [(each.call_id, each.recalled, each.is_stored) for each in steps] == [
            ("c1", [made.version_id], True),
            ("c2", [], True),
            (None, [made.version_id], True),
        ]
        newest = (await ann.steps(handle.run_id, order="desc", limit=1)).items
        assert newest == steps[-1:]
        nothing = await ann.run("ear", "Hello?", thread_id="t")
        assert [each.recalled for each in (await ann.steps(str(nothing.run_id))).items] == [[], [], []]
        await ann.share_thread("t", with_user="bob", right="read")
        transport = httpx.ASGITransport(drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:

            async def ask(path: str, user: str, **params: Any) -> Any:
                return (await http.get(f"/v1{path}", params={"user": user, **params})).json()

            for user, texts in (("ann", ["The user likes tea."]), ("bob", [])):
                told = (await ask(f"/runs/{handle.run_id}/steps", user))["data"]
                names = [name for each in told for name in each["recalled"]]
                assert names == [made.version_id] * 2
                found = await ask("/memories", user, **{"version_id[]": sorted({*names})})
                assert [each["text"] for each in found["data"]] == texts
            wrong = await ask("/memories", "ann", **{"version_id[]": ["memv_x\0"]})
            assert "version_id" in wrong["error"]["param"]
