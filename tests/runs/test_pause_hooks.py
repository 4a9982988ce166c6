"""A pause tells the agents by `on_pause`, and whoever resumes the thread by `on_resume`, as AutoGen's team does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken

from drsai_backend import DrSai, RunStatus
from drsai_backend.access.principal import Principal
from tests.support.teams.crew import Crew
from tests.support.threads import QUICK, Make, ended, request, sources, thread_of, turns


class Pausable(BaseChatAgent):
    """Keeps in its state whether it is paused, and says so."""

    def __init__(self, crew: PausableCrew) -> None:
        super().__init__("cat", "Listens.")
        self.crew = crew
        self.heard = crew.heard
        self.paused = False

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        self.crew.speaking.set()
        if self.crew.hangs:
            await asyncio.sleep(60)
        return Response(chat_message=TextMessage(content=f"paused: {self.paused}", source=self.name))

    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        self.heard.append("pause")
        self.paused = True

    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        self.heard.append("resume")
        self.paused = False

    async def on_reset(self, cancellation_token: CancellationToken) -> None: ...

    async def save_state(self) -> Mapping[str, Any]:
        return {"paused": self.paused}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.paused = state["paused"]


class PausableCrew(Crew):
    """Ann, bob, then one who listens for pauses, in a team inside the team."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []
        self.speaking = asyncio.Event()
        self.hangs = False
        self.bob.hold()

    def __call__(self) -> RoundRobinGroupChat:
        inner = RoundRobinGroupChat([Pausable(self)], name="inner", max_turns=1)
        agents = [AssistantAgent(name, getattr(self, name)) for name in ("ann", "bob")]
        return RoundRobinGroupChat([*agents, inner], max_turns=3)


async def paused(make: Make, crew: Crew) -> DrSai:
    drsai = await make({"crew": crew}, **QUICK)
    handle = await drsai.engine.start(*request("x"))
    await turns(drsai, 1)
    await drsai.engine.pause(Principal(), "t")
    crew.bob.release()
    assert (await handle.wait()).status is RunStatus.PAUSED
    return drsai


async def test_agents_hear_of_a_pause_and_of_its_end(make: Make) -> None:
    crew = PausableCrew()
    await paused(make, crew)
    assert crew.heard == ["pause"]
    other = await make({"crew": crew}, **QUICK)
    await other.engine.resume(Principal(), "t")
    thread = await ended(other)
    assert (thread.status, sources(thread)) == (RunStatus.COMPLETED, ["user", "ann", "bob", "cat"])
    assert thread.messages[-1]["content"] == "paused: False"
    assert crew.heard == ["pause", "resume"]
    assert (await other.run("crew", "again", thread_id="t")).status is RunStatus.COMPLETED
    assert crew.heard == ["pause", "resume"]


async def test_a_message_to_a_paused_thread_resumes_the_agents_too(make: Make) -> None:
    crew = PausableCrew()
    drsai = await paused(make, crew)
    assert (await drsai.run("crew", "and y", thread_id="t")).status is RunStatus.COMPLETED
    assert crew.heard == ["pause", "resume"]


async def test_agents_of_a_cancelled_pause_are_resumed_by_the_next_run(make: Make) -> None:
    crew = PausableCrew()
    drsai = await paused(make, crew)
    await drsai.engine.cancel(Principal(), "t")
    assert crew.heard == ["pause"]
    assert (await drsai.run("crew", "y", thread_id="t")).status is RunStatus.COMPLETED
    assert (await thread_of(drsai)).messages[-1]["content"] == "paused: False"
    assert crew.heard == ["pause", "resume"]


async def test_a_resume_that_was_cut_is_told_again(make: Make) -> None:
    """The process goes after `on_resume`, before it stores a turn: the agent of the next one is paused, too."""
    crew = PausableCrew()
    await paused(make, crew)
    crew.hangs = True
    other = await make({"crew": crew}, **QUICK)
    await other.engine.resume(Principal(), "t")
    async with asyncio.timeout(30):
        await crew.speaking.wait()
    assert crew.heard == ["pause", "resume"]
    crew.hangs = False
    await other.engine.close()
    thread = await ended(await make({"crew": crew}, **QUICK))
    assert thread.messages[-1]["content"] == "paused: False"
    assert crew.heard == ["pause", "resume", "resume"]
