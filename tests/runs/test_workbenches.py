"""What a workbench says of its state is there in the thread's next run, warm or in another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall

from drsai_backend import DrSai
from tests.support.scripted import ScriptedClient
from tests.support.teams.foreign import Ticker
from tests.support.threads import Make


def ann(**tools: Any) -> AssistantAgent:
    client = ScriptedClient(
        lambda messages, options: [FunctionCall(id=f"c{len(messages)}", name="tick", arguments="{}")]
    )
    return AssistantAgent("ann", client, **tools)


async def ask(drsai: DrSai, thread_id: str = "t") -> str:
    return (await drsai.run("ann", "Tick.", thread_id=thread_id)).text


@pytest.mark.parametrize("cold", [False, True])
async def test_a_workbench_goes_on_where_it_was(make: Make, cold: bool) -> None:
    drsai = await make({"ann": lambda: ann(workbench=Ticker())})
    for expected in ("tick 1", "tick 2", "tick 3"):
        assert await ask(drsai) == expected
        if cold:
            drsai = await make({"ann": lambda: ann(workbench=Ticker())})
    assert await ask(drsai, "another") == "tick 1"


async def test_a_thread_that_was_stored_without_takes_the_state_up(make: Make) -> None:
    """As a database of the release before has it: the state has no place for a workbench's."""

    async def tick() -> str:
        """Ticks."""
        return "a tick"

    assert await ask(await make({"ann": lambda: ann(tools=[tick])})) == "a tick"
    for expected in ("tick 1", "tick 2"):
        assert await ask(await make({"ann": lambda: ann(workbench=Ticker())})) == expected


async def test_a_workbench_that_tells_no_state_works(make: Make) -> None:
    class Silent(Ticker):
        async def save_state(self) -> Mapping[str, Any]:
            raise NotImplementedError

    for _ in range(2):
        assert await ask(await make({"ann": lambda: ann(workbench=Silent())})) == "tick 1"


async def test_a_workbench_of_all_threads_belongs_to_none(make: Make) -> None:
    shared = Ticker()
    drsai = await make({"ann": lambda: ann(workbench=shared)})
    for number, thread_id in enumerate(("t", "another", "t", "another"), start=1):
        assert await ask(drsai, thread_id) == f"tick {number}"
