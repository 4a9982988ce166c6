"""What agents write to a `ListMemory` during a run is there in the next one, warm or in another process."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, FunctionCall, Image
from autogen_core.memory import (
    ListMemory,
    Memory,
    MemoryContent,
    MemoryMimeType,
    MemoryQueryResult,
    UpdateContextResult,
)
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import FunctionExecutionResultMessage, SystemMessage, UserMessage
from PIL import Image as PILImage

from drsai_backend import DrSai, RunStatus, requires_approval
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import Make

_PIXEL = Image(PILImage.new("RGB", (1, 1)))


class Keeper(BaseChatAgent):
    """Does with its memory what it is told, and says what is in it."""

    def __init__(self, memory: ListMemory) -> None:
        super().__init__("keeper", "Keeps.")
        self._memory = [memory]

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        [memory], text = self._memory, messages[-1].to_text()
        if text == "clear":
            await memory.clear()
        elif text == "bytes":
            await memory.add(MemoryContent(content=b"\xff\0", mime_type=MemoryMimeType.BINARY))
        elif text == "image":
            await memory.add(MemoryContent(content=_PIXEL, mime_type="image/png", metadata={"a": [1]}))
        elif text != "look":
            await memory.add(MemoryContent(content=text, mime_type=MemoryMimeType.TEXT))
        said = [[type(each.content).__name__, shown(each.content), str(each.mime_type)] for each in memory.content]
        return Response(chat_message=TextMessage(content=repr(said), source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None: ...


def shown(content: Any) -> str:
    return content.to_base64() if isinstance(content, Image) else str(content)


def team() -> RoundRobinGroupChat:
    return team_that_knows("known")


def team_that_knows(first: str) -> RoundRobinGroupChat:
    memory = ListMemory(memory_contents=[MemoryContent(content=first, mime_type=MemoryMimeType.TEXT)])
    return RoundRobinGroupChat([Keeper(memory)], max_turns=1)


async def ask(drsai: DrSai, text: str) -> list[list[str]]:
    return eval((await drsai.run("keeper", text, thread_id="t")).text)


@pytest.mark.parametrize("cold", [False, True])
async def test_a_memory_is_kept_with_the_thread(make: Make, cold: bool) -> None:
    drsai = await make({"keeper": team})
    for text in ("one", "bytes", "image"):
        told = await ask(drsai, text)
        if cold:
            drsai = await make({"keeper": team})
    assert await ask(drsai, "look") == told
    assert [kind for kind, _, _ in told] == ["str", "str", "bytes", "Image"]
    await ask(drsai, "clear")
    drsai = await make({"keeper": team}) if cold else drsai
    assert await ask(drsai, "after") == [["str", "after", "MemoryMimeType.TEXT"]]


async def test_a_factory_decides_what_its_memories_begin_with(make: Make) -> None:
    assert len(await ask(await make({"keeper": team}), "one")) == 2
    drsai = await make({"keeper": lambda: team_that_knows("news")})
    assert [text for _, text, _ in await ask(drsai, "look")] == ["news", "one"]


async def test_what_a_turn_writes_does_not_grow_with_the_memory(make: Make) -> None:
    drsai = await make({"keeper": lambda: team_that_knows("x" * 20_000)})
    await ask(drsai, "one")
    sizes: list[int] = []

    def measure(session: Any) -> int:
        return session.exec_driver_sql("SELECT sum(length(payload)) FROM journalentry").scalar()

    for number in range(3):
        await ask(drsai, f"{number}")
        sizes.append(await drsai.database.read(lambda session: measure(session.connection())))
    assert sizes[2] - sizes[1] < 1_500


async def test_a_thread_that_was_stored_without_memories_takes_them_up(make: Make) -> None:
    """As a database of the release before has it: the state has no place for them."""

    class Forgetful(Keeper):
        def __init__(self, memory: ListMemory) -> None:
            super().__init__(memory)
            self._own, self._memory = self._memory, []

        async def on_messages(
            self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
        ) -> Response:
            self._memory = self._own
            return await super().on_messages(messages, cancellation_token)

    def before() -> RoundRobinGroupChat:
        client = ScriptedClient(lambda messages, options: f"heard {len(messages)}")
        return RoundRobinGroupChat([Forgetful(ListMemory()), AssistantAgent("ann", client)], max_turns=2)

    def now() -> RoundRobinGroupChat:
        client = ScriptedClient(lambda messages, options: f"heard {len(messages)}")
        return RoundRobinGroupChat([Keeper(ListMemory()), AssistantAgent("ann", client)], max_turns=2)

    await (await make({"keeper": before})).run("keeper", "one", thread_id="t")
    drsai = await make({"keeper": now})
    heard = (await drsai.run("keeper", "two", thread_id="t")).text
    assert heard == "heard 6"  # nothing that ann knew is lost, beside her system message
    drsai = await make({"keeper": now})
    assert "'two'" in str((await drsai.run("keeper", "look", thread_id="t")).task_result)


async def test_a_memory_that_runs_share_is_kept_with_none_and_that_is_logged(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    shared = ListMemory("common")
    drsai = await make({"keeper": lambda: RoundRobinGroupChat([Keeper(shared)], max_turns=1)})
    await ask(drsai, "one")
    with caplog.at_level(logging.WARNING, "drsai.team"):
        assert len(await ask(drsai, "two")) == 2
    assert "'common' is shared by several runs" in caplog.text


class Elsewhere(Memory):
    """Stands for a vector store, which all runs share: it tells all that it holds."""

    def __init__(self, *held: str | Image) -> None:
        self.held = [*held]

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        for each in self.held:
            told = SystemMessage(content=shown(each))
            await model_context.add_message(
                UserMessage(content=[each], source="memory") if isinstance(each, Image) else told
            )
        results = [MemoryContent(content=each, mime_type="text/plain") for each in self.held]
        return UpdateContextResult(memories=MemoryQueryResult(results=results))

    async def query(
        self, query: str | MemoryContent, cancellation_token: CancellationToken | None = None, **kwargs: Any
    ) -> MemoryQueryResult:
        return MemoryQueryResult(results=[])

    async def add(self, content: MemoryContent, cancellation_token: CancellationToken | None = None) -> None: ...

    async def clear(self) -> None: ...

    async def close(self) -> None: ...


@pytest.mark.parametrize("first", [[], ["one"], [_PIXEL], ["one", "two"]])
async def test_a_turn_that_waits_goes_on_when_a_memory_that_is_kept_elsewhere_has_grown(
    make: Make, first: list[str | Image]
) -> None:
    store, seen = Elsewhere(*first), list[Sequence[Any]]()

    def pays(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        seen.append(messages)
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return "Paid."
        return [FunctionCall(f"c{len(seen)}", '{"to": "ada"}', "pay")]

    @requires_approval
    async def pay(to: str) -> str:
        """Pays."""
        return f"paid {to}"

    def build() -> RoundRobinGroupChat:
        memory = [ListMemory(memory_contents=[MemoryContent(content="own", mime_type="text/plain")]), store]
        client = ScriptedClient(pays)
        ann = AssistantAgent("ann", client, tools=[pay], memory=memory, reflect_on_tool_use=True)
        return RoundRobinGroupChat([ann], max_turns=1)

    asked = await (await make({"crew": build})).run("crew", "Pay.", thread_id="t")
    store.held.append("three")
    told = await (await make({"crew": build})).run("crew", "approve", thread_id="t")
    assert (asked.status, told.status, told.text) == (RunStatus.AWAITING_INPUT, RunStatus.COMPLETED, "Paid.")
    assert len(seen[1]) == len(seen[0]) + 2
    assert [each.model_dump() for each in seen[1][:-2]] == [each.model_dump() for each in seen[0]]
    # The next turn is told what is there by then.
    await (await make({"crew": build})).run("crew", "Again.", thread_id="t")
    assert seen[2][-1].content == "three"
