"""The recorder tells messages apart by what they are: the same object shown twice, equal texts, recycled ids."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat
from autogen_core import CancellationToken

from drsai_backend.state import expand
from tests.support.running import Stored, as_messages, comparable, prepared, same_as_stock
from tests.support.teams.scenarios import agent

pytestmark = pytest.mark.usefixtures("spotless")


class Repeating(BaseChatAgent):
    """Shows one and the same message object every time."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "repeats")
        self.message = TextMessage(source=name, content="As I always say.")

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        return Response(chat_message=self.message)

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        pass


class Echoing(Repeating):
    """Shows the very object that it was given."""

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        return Response(chat_message=messages[0])


@pytest.mark.parametrize("member", [Repeating, Echoing])
async def test_a_message_that_is_shown_again_is_stored_again(member: type[Repeating]) -> None:
    def build() -> BaseGroupChat:
        return RoundRobinGroupChat([member("ann"), agent("bob", False)], max_turns=4)

    stored = Stored()
    run = await prepared(build(), stored, check_state=True)
    task = as_messages("Begin.")
    run.session.recorder.know(1, task[0])
    stored.configs[1] = dict(task[0].dump())
    run.session.recorder.next_seq = 2
    result, last = await run.run_session(task)
    await run._turn(last)
    assert [comparable(config) for config in stored.configs.values()] == run.emitted
    assert len(stored.configs) == 5
    assert expand(stored.document(), stored.configs)[0] == stored.states[-1]
    assert result.stop_reason == "Maximum number of turns 4 reached."


async def test_equal_texts_are_different_messages() -> None:
    def build() -> BaseGroupChat:
        members = [agent(name, False, lambda messages, options: "yes") for name in ("ann", "bob")]
        return RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(6))

    run = await same_as_stock(build, ["yes", "yes"])
    assert len(run.stored.configs) == 12


async def test_a_recycled_id_is_not_mistaken_for_a_message() -> None:
    """Message objects come and go; the book must not take a new one for an old one at the same address."""

    class Churning(Repeating):
        async def on_messages_stream(
            self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
        ) -> AsyncGenerator[Any, None]:
            for number in range(50):
                yield TextMessage(source=self.name, content=f"{number}")
            gc.collect()
            yield Response(chat_message=TextMessage(source=self.name, content="done"))

    run = await prepared(RoundRobinGroupChat([Churning("ann")], max_turns=3))
    await run.run("Begin.")
    assert len(run.stored.configs) == 1 + 3 * 51
    assert [comparable(config) for config in run.stored.configs.values()] == run.emitted
