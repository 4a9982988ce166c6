"""What is remembered of a user is shown to agents in another thread, in a message that is stored nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autogen_core import FunctionCall

from drsai_backend import AssistantAgent, DrSai, DrSaiAgent, RunContext, Thread
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.memory.base import NewMemory
from drsai_backend.features.memory.extension import Memory
from drsai_backend.runs import InputMessage
from drsai_backend.tools.builtin import builtin_tools
from tests.support.asks import asks
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import LATE, settings

ANN = Owner("default", "ann")
BOB = Owner("default", "bob")


class Listener:
    """A team of one agent that has memories; keeps what its model was asked."""

    def __init__(self) -> None:
        self.asked: list[list[Any]] = []

    def rule(self, messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        self.asked.append([*messages])
        return "Indeed."

    def __call__(self, context: RunContext) -> DrSaiAgent:
        agent = DrSaiAgent("ear", ScriptedClient(self.rule), system_message="Listen.")
        context.recall(agent, "memory")
        return agent

    @property
    def shown(self) -> list[str]:
        """What was recalled, of each request."""
        return ["\n".join(str(m.content) for m in each if "[memory]" in str(m.content)) for each in self.asked]


async def test_a_fact_is_recalled_in_the_next_chat_and_stored_in_none(database_url: str) -> None:
    ear = Listener()
    async with DrSai({"ear": ear}, database_url, settings=settings(**LATE)) as drsai:
        memory = drsai.extension(Memory)
        made = await memory.add(ANN, NewMemory(text="The user is allergic to peanuts."))
        assert await memory.add(ANN, NewMemory(text="the user is  allergic to peanuts")) == made
        ann = drsai.user("ann")
        await ann.run("ear", "What may I eat with peanuts?", thread_id="t")
        await ann.run("ear", "And with my peanuts allergy?", thread_id="t")
        await drsai.user("bob").run("ear", "Am I allergic to peanuts?", thread_id="t")
        first, second, bobs = ear.shown
        assert first.count("allergic to peanuts") == second.count("allergic to peanuts") == 1
        assert bobs == ""
        [found] = (await memory.search(ANN, "peanuts")).items
        assert (found.memory.uses, found.days_ago) == (2, 0)
        [stored] = await drsai.db.get(Thread, {"user_id": "ann", "thread_id": "t"})
        assert "allergic to peanuts" not in str(stored.messages) + str(stored.state)


async def test_on_a_shared_thread_and_without_the_scope_nothing_is_shown(database_url: str) -> None:
    ear = Listener()
    async with DrSai({"ear": ear}, database_url, settings=settings(**LATE)) as drsai:
        for owner in (ANN, BOB):
            await drsai.extension(Memory).add(owner, NewMemory(text="The user is allergic to peanuts."))
        await drsai.user("ann").run("ear", "Am I allergic to peanuts?", thread_id="t")
        await drsai.user("ann").share_thread("t", with_user="bob", right="write")
        await drsai.user("bob", owner="ann").run("ear", "And am I allergic to peanuts?", thread_id="t")
        writes = Principal("bob", scopes=frozenset({Scope.CHAT, Scope.MEMORY_WRITE}))
        question = [InputMessage("user", "Am I allergic to peanuts?")]
        await (await drsai.engine.start(*asks("ear", question, writes))).wait()
        await drsai.user("bob").run("ear", "Am I allergic to peanuts?")
    assert ["allergic" in each for each in ear.shown] == [True, False, False, True]


async def test_what_is_forgotten_on_a_shared_thread_is_not_shown_there(database_url: str) -> None:
    """Whose thread it is would read it, and whether there was anything."""
    told: list[str] = []

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        if messages[-1].type != "FunctionExecutionResultMessage":
            return [FunctionCall(f"c{len(told)}", '{"text": "allergic to peanuts"}', "forget")]
        told.append(messages[-1].content[0].content)
        return "Done."

    def build(_: RunContext) -> AssistantAgent:
        return AssistantAgent("ear", ScriptedClient(rule), tools=builtin_tools(["forget"]), max_tool_iterations=2)

    async with DrSai({"ear": build}, database_url, settings=settings(**LATE)) as drsai:
        memory = drsai.extension(Memory)
        await drsai.user("ann").run("ear", "Forget my allergy.", thread_id="t")
        await drsai.user("ann").share_thread("t", with_user="bob", right="write")
        for _ in range(2):
            await memory.add(BOB, NewMemory(text="The user is allergic to peanuts and to cats."))
            await drsai.user("bob", owner="ann").run("ear", "Forget my allergy.", thread_id="t")
            assert [each async for each in memory.every(BOB)] == []
        await drsai.user("bob", owner="ann").run("ear", "Forget my allergy.", thread_id="t")
    assert told[0] == "Nothing like that is remembered."
    assert {*told[1:]} == {"What is remembered of you like that, if anything, is forgotten. This thread is not yours."}


async def test_who_may_be_many_people_is_shown_nothing(database_url: str) -> None:
    ear = Listener()
    async with DrSai({"ear": ear}, database_url, settings=settings(**LATE)) as drsai:
        await drsai.extension(Memory).add(Principal().owner, NewMemory(text="The user is allergic to peanuts."))
        await drsai.run("ear", "Am I allergic to peanuts?", thread_id="t")
    assert ear.shown == [""]
