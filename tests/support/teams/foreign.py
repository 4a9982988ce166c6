"""Parts of teams as users write them: agents, a context, a tool and a condition with states of their own."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response, TerminatedException, TerminationCondition
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, MultiModalMessage, StopMessage, TextMessage
from autogen_core import CancellationToken, Image
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_core.tools import BaseToolWithState, ParametersSchema, TextResultContent, ToolResult, ToolSchema, Workbench
from pydantic import BaseModel


class Tally(BaseChatAgent):
    """A foreign agent with a state of its own that does not only grow."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "counts")
        self.seen: dict[str, int] = {}

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        for message in messages:
            self.seen[message.source] = self.seen.get(message.source, 0) + 1
        return Response(chat_message=TextMessage(source=self.name, content=json.dumps(self.seen, sort_keys=True)))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        self.seen = {}

    async def save_state(self) -> Mapping[str, Any]:
        return {"seen": dict(self.seen)}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.seen = dict(state["seen"])


class Trimmed(BufferedChatCompletionContext):
    """A foreign context: forgets for good, which an append-only cursor would not see."""

    async def add_message(self, message: Any) -> None:
        await super().add_message(message)
        del self._messages[:-3]


class Chatty(BaseChatAgent):
    """Streams inner chat messages before its answer."""

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage, MultiModalMessage)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        raise NotImplementedError

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Any, None]:
        first = TextMessage(source=self.name, content=f"I got {len(messages)}")
        yield first
        yield Response(
            chat_message=MultiModalMessage(source=self.name, content=["a picture", tiny_image()]),
            inner_messages=[first],
        )

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        pass


def tiny_image() -> Image:
    import PIL.Image

    return Image(PIL.Image.new("RGB", (2, 2), (200, 10, 10)))


class Count(BaseModel):
    calls: int = 0
    best: float = float("-inf")


class CountArgs(BaseModel):
    by: int = 1


class Counter(BaseToolWithState[CountArgs, Any, Count]):
    """A tool that remembers; AutoGen saves that nowhere."""

    component_type = "tool"

    def __init__(self) -> None:
        super().__init__(CountArgs, Any, Count, "count", "Counts.")  # type: ignore[arg-type]
        self.count = Count()

    async def run(self, args: CountArgs, cancellation_token: CancellationToken) -> Any:
        self.count.calls += args.by
        self.count.best = max(self.count.best, float(self.count.calls))
        return f"counted to {self.count.calls}"

    def save_state(self) -> Count:
        return self.count.model_copy()

    def load_state(self, state: Count) -> None:
        self.count = state


class Remembering(TerminationCondition):
    """A user's own condition, with all kinds of attributes, around another one."""

    def __init__(self, inner: TerminationCondition, most: int) -> None:
        self._inner = inner
        self._most = most
        self._lengths: list[int] = []
        self._by_source: dict[str, int] = {}
        self._sources: set[str] = set()
        self._last: str | None = None

    @property
    def terminated(self) -> bool:
        return sum(self._by_source.values()) >= self._most or self._inner.terminated

    async def __call__(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> StopMessage | None:
        if self.terminated:
            raise TerminatedException("it is over")
        for message in messages:
            self._lengths.append(len(message.to_text()))
            self._by_source[message.source] = self._by_source.get(message.source, 0) + 1
            self._sources.add(message.source)
            self._last = message.source
        inner = await self._inner(messages)
        if inner is not None:
            return inner
        if self.terminated:
            text = f"{self._lengths} {self._by_source} {sorted(self._sources)} {self._last}"
            return StopMessage(content=text, source="Remembering")
        return None

    async def reset(self) -> None:
        self._lengths = []
        self._by_source = {}
        self._sources = set()
        self._last = None
        await self._inner.reset()


class Ticker(Workbench):
    """A workbench with a state: its tool counts how often it was called."""

    def __init__(self) -> None:
        self.ticks = 0

    async def list_tools(self) -> list[ToolSchema]:
        return [
            ToolSchema(name="tick", description="Ticks.", parameters=ParametersSchema(type="object", properties={}))
        ]

    async def call_tool(self, name: str, *_: Any, **__: Any) -> ToolResult:
        self.ticks += 1
        return ToolResult(name=name, result=[TextResultContent(content=f"tick {self.ticks}")])

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def reset(self) -> None: ...

    async def save_state(self) -> Mapping[str, Any]:
        return {"ticks": self.ticks}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.ticks = state["ticks"]
