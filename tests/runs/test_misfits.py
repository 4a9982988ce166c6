"""States that do not fit, or are none: which message, agent and field it is, in the answer and in the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from pydantic import BaseModel

from drsai_backend import AssistantAgent, DrSai, RoundRobinGroupChat
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import AutoGenMessage, table_of
from drsai_backend.errors import DamagedState, InvalidRequest, RunFailed
from drsai_backend.runs import InputMessage
from drsai_backend.runs.threads.loading import Load
from tests.support.scripted import ScriptedClient
from tests.support.threads import Make


class State(BaseModel):
    count: int


class Teller(BaseChatAgent):
    """An agent that says how often it spoke, and keeps a value."""

    produced_message_types = (TextMessage,)
    durable_fields = ("mood",)

    def __init__(self, name: str, value: object = None, mood: object = "good") -> None:
        super().__init__(name, "counts")
        self.count, self.value, self.mood = 0, value, mood

    async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
        self.count += 1
        return Response(chat_message=TextMessage(content=f"{self.count}", source=self.name))

    async def on_reset(self, cancellation_token: Any) -> None: ...

    async def save_state(self) -> Mapping[str, Any]:
        return {"count": self.count, "more": [{"value": self.value}]}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.count = State.model_validate(state).count


class Strict(Teller):
    async def load_state(self, state: Mapping[str, Any]) -> None:
        State.model_validate({"count": "many"})


class Forgetful(Teller):
    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.count = state["number"]


def crew(*agents: Any) -> RoundRobinGroupChat:
    return RoundRobinGroupChat([*agents], max_turns=len(agents))


async def spoil(drsai: DrSai, seq: int) -> None:
    message = table_of(AutoGenMessage)
    row = (await drsai.db.get(AutoGenMessage, {"thread_id": "t", "seq": seq}))[0]
    change = sa.update(message).where(message.c.id == row.id).values(config={**row.config, "content": 5})
    await drsai.database.write(lambda session: session.execute(change))


async def refused(drsai: DrSai, caplog: pytest.LogCaptureFixture) -> str:
    with caplog.at_level(logging.ERROR, "drsai.run"), pytest.raises(DamagedState) as raised:
        await drsai.run("crew", "two", thread_id="t")
    told = raised.value.message
    assert "thread 't'" in told
    assert [told in record.getMessage() for record in caplog.records] == [True]
    return told


@pytest.mark.parametrize("is_changed", [False, True], ids=["as it was", "a changed team"])
async def test_a_message_that_does_not_fit_is_named(
    make: Make, caplog: pytest.LogCaptureFixture, is_changed: bool
) -> None:
    names = ["ann", "bob"]
    drsai = await make({"crew": lambda: crew(*map(Teller, names))}, warm_threads=0)
    await drsai.run("crew", "one", thread_id="t")
    await spoil(drsai, 2)
    names += ["cat"] if is_changed else []
    told = await refused(drsai, caplog)
    assert "message 2, of type TextMessage, does not fit any more: `content`: Input should be a valid string" in told


async def test_one_that_no_turn_has_taken_up_is_named(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    drsai = await make({"crew": lambda: crew(Teller("ann"))}, warm_threads=0)
    await drsai.run("crew", "one", thread_id="t")
    history = [InputMessage("user", "before"), InputMessage("assistant", "so it was")]
    await drsai.engine.load_history(Principal(), "t", history, Load("crew"))
    await spoil(drsai, 4)
    assert "message 4, of type TextMessage" in await refused(drsai, caplog)


@pytest.mark.parametrize(
    ("agent", "field"),
    [(Strict, "`count`: Input should be a valid integer"), (Forgetful, "`number` is missing")],
)
async def test_an_agent_that_does_not_take_its_state_is_named(
    make: Make, caplog: pytest.LogCaptureFixture, agent: type[Teller], field: str
) -> None:
    kind: type[Teller] = Teller
    drsai = await make({"crew": lambda: crew(kind("ann"), Teller("bob"))}, warm_threads=0)
    await drsai.run("crew", "one", thread_id="t")
    kind = agent
    assert f"the state of 'ann' does not fit any more: {field}" in await refused(drsai, caplog)


@pytest.mark.parametrize(
    ("team", "where"),
    [
        (lambda: crew(Teller("ann"), Teller("bob", {1})), "'bob' cannot be stored: more.0.value is a set"),
        (lambda: crew(Teller("ann", datetime.now(UTC))), "'ann' cannot be stored: more.0.value is a datetime"),
        (lambda: crew(Teller("ann", mood=["good", {1}])), "'ann/fields/mood' cannot be stored: 1 is a set"),
    ],
    ids=["a set", "a time", "a declared field"],
)
async def test_what_is_no_json_is_named(make: Make, caplog: pytest.LogCaptureFixture, team: Any, where: str) -> None:
    drsai = await make({"crew": team})
    with pytest.raises(RunFailed, match=f"state_error.*{where}"):
        await drsai.run("crew", "one", thread_id="t")
    assert where in caplog.text


async def test_a_declared_field_comes_back_as_it_was(make: Make) -> None:
    moods: list[object] = []
    value = {"a": [1, 2.5, None, float("inf")], "b": 2**70}

    def build() -> RoundRobinGroupChat:
        agent = Teller("ann", mood=value if not moods else "fresh")
        moods.append(agent)
        return crew(agent)

    drsai = await make({"crew": build}, warm_threads=0)
    for text in ("one", "two"):
        await drsai.run("crew", text, thread_id="t")
    assert moods[-1].mood == value  # type: ignore[attr-defined]


class Plain(BaseChatAgent):
    """An agent whose class says nothing of what it keeps."""

    produced_message_types = (TextMessage,)

    def __init__(self, name: str, greeting: str = "hello") -> None:
        super().__init__(name, "counts")
        self.greeting, self.limits = greeting, {"most": 3}
        self.count, self.seen = 0, list[str]()

    async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
        self.count += 1
        self.seen.append(messages[-1].to_text())
        return Response(chat_message=TextMessage(content=f"{self.greeting} {self.count}", source=self.name))

    async def on_reset(self, cancellation_token: Any) -> None: ...


class Declared(Plain):
    durable_fields = ("count", "seen")


async def test_attributes_that_are_stored_nowhere_are_told_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:

    def build() -> RoundRobinGroupChat:
        stock = AssistantAgent("eve", ScriptedClient(lambda *_: "x"))
        return crew(Plain("ann"), Plain("bob"), Declared("cat"), Teller("dan"), stock)

    drsai = await make({"crew": build})
    for text in ("one", "two"):
        await drsai.run("crew", text)
    told = [record.getMessage() for record in caplog.records if "durable_fields" in record.getMessage()]
    assert [text.partition(":")[0] for text in told] == [f"agents of {__name__}.Plain keep count, seen with no thread"]


async def test_a_task_that_is_none_says_what_to_do(make: Make) -> None:
    drsai = await make({"crew": lambda: crew(Teller("ann"))})
    with pytest.raises(InvalidRequest, match="not NoneType: to continue, say so") as raised:
        await drsai.run("crew", None)  # type: ignore[arg-type]
    assert raised.value.param == "task"
