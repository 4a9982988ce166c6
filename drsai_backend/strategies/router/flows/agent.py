"""The agent of a flow is the participant that leads a person through it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ToolCallExecutionEvent,
)
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import Workbench

from drsai_backend.agents import DrSaiAgentMixin
from drsai_backend.json_types import JsonObject
from drsai_backend.strategies.router.calling import ToolCaller
from drsai_backend.strategies.router.flows.filling import find_values
from drsai_backend.strategies.router.flows.machine import Progress, ToolOutcome, Walk
from drsai_backend.strategies.router.flows.schema import Ask, Flow

Task: TypeAlias = Literal["start", "answer", "resume", "leave"]
_STATE: Final = "FlowState"
_MAX_RESULT: Final = 8000
"""Characters of a tool's result that a slot keeps."""
_MAX_TEXT: Final = 10_000
"""Characters of what a person says in one turn."""


class FlowAgent(ToolCaller, DrSaiAgentMixin, BaseChatAgent):
    """Leads through a flow: each answer is an ordinary answer of a run, after which it waits for the next message.

    Args:
        name: the flow's.
        workbench: with the tools that it calls.
        model_client: finds values in free text, where the flow says `fill: model`.
    """

    def __init__(
        self,
        name: str,
        flow: Flow,
        *,
        workbench: Sequence[Workbench] = (),
        model_client: ChatCompletionClient | None = None,
    ) -> None:
        super().__init__(name, flow.description)
        self.flow = flow
        self._workbench = list(workbench)
        self._model_client = model_client if flow.fill == "model" else None
        self._progress: JsonObject | None = None
        self._task: JsonObject | None = None

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    @property
    def waits(self) -> bool:
        """Whether it waits for an answer."""
        return self._progress is not None and not self._progress.get("left")

    @property
    def was_left(self) -> bool:
        """Whether it was left and may be taken up again."""
        return self._progress is not None and bool(self._progress.get("left"))

    def give(self, task: Task, text: str, given: Mapping[str, object] | None = None) -> None:
        """Say what it is to do in its next turn.

        Args:
            text: what the person has said.
            given: texts for slots that are known already.
        """
        self._task = {"do": task, "text": text[:_MAX_TEXT], "given": dict(given or {})}

    def hears(self, text: str) -> None:
        """The person has said something more, before its turn."""
        if self._task is not None:
            self._task = {**self._task, "text": f"{self._task['text']}\n{text}".strip()[:_MAX_TEXT]}

    def forget(self) -> None:
        """Forget what it was to do: the run was cut before its turn."""
        self._task = None

    def takes(self, text: str) -> bool:
        """Whether the step that waits takes a text as its answer."""
        walk = self._walk(Progress.load(self._progress or {}), CancellationToken())
        return walk.takes(text)

    def leave(self) -> None:
        """Leave the flow where it stands; it may be taken up again."""
        if self._progress is not None:
            self._progress = {**self._progress, "left": True}

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        """See `on_messages_stream`; its response."""
        last = [each async for each in self.on_messages_stream(messages, cancellation_token)][-1]
        assert isinstance(last, Response)
        return last

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Take the next steps of the flow: what it says as pieces, what its tools do as events, and the response."""
        task: JsonObject | None = self._task
        if task is None:  # It is used without a router.
            text = "\n".join(each.to_model_text() for each in messages)[:_MAX_TEXT]
            task = {"do": "answer" if self.waits else "start", "text": text, "given": {}}
        progress = Progress() if self._progress is None or task["do"] == "start" else Progress.load(self._progress)
        walk = self._walk(progress, cancellation_token)
        message = TextMessage(content="", source=self.name)
        said: list[str] = []
        inner: list[BaseAgentEvent | BaseChatMessage] = []
        async for item in self._turn(task, walk):
            if isinstance(item, str):
                if not item:
                    continue
                piece = f"\n\n{item}" if said else item
                said.append(piece)
                yield ModelClientStreamingChunkEvent(content=piece, source=self.name, full_message_id=message.id)
            else:
                event = cast("BaseAgentEvent", item)
                inner.append(event)
                yield event
        self._task = None
        self._progress = None if walk.ended is not None else walk.progress.dump()
        message.content = "".join(said) or self.flow.texts.done
        yield Response(chat_message=message, inner_messages=inner)

    async def _turn(self, task: JsonObject, walk: Walk) -> AsyncGenerator[object, None]:
        text: str = task["text"]
        match task["do"]:
            case "leave":
                walk.progress.left = True
                yield self.flow.texts.left
            case "resume":
                walk.progress.left = False
                if not walk.question():  # Its definition has changed.
                    walk.progress.kind = ""
                    items = walk.answer(text)
                    async for item in items:
                        yield item
                yield walk.question()
            case "answer":
                async for item in walk.answer(text):
                    yield item
            case _:
                async for item in walk.start(text, task["given"]):
                    yield item

    def _walk(self, progress: Progress, token: CancellationToken) -> Walk:
        async def call(name: str, arguments: JsonObject) -> AsyncGenerator[object, None]:
            async for event in self.call(name, arguments, self.name, token):
                yield event
                if isinstance(event, ToolCallExecutionEvent):
                    result = event.content[0]
                    yield ToolOutcome(_read(result.content[:_MAX_RESULT]), failed=bool(result.is_error))

        async def find(text: str, slots: Mapping[str, Ask]) -> Mapping[str, str]:
            assert self._model_client is not None
            return await find_values(self._model_client, self._steps, self.flow, text, slots)

        return Walk(self.flow, progress, self._today(), call, None if self._model_client is None else find)

    def _today(self) -> dt.date:
        """Return the day on which the run began, so that a turn that is repeated reads the same."""
        context = getattr(self, "_run_context", None)
        began: dt.datetime | None = getattr(context, "began_at", None)
        return (began or dt.datetime.now(dt.UTC)).date()

    async def save_state(self) -> Mapping[str, object]:
        """Return where it stands, and what it is to do next. A team to which others are added keeps it, by its name."""
        return {"type": _STATE, "progress": self._progress, "task": self._task}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Take what `save_state` gave."""
        self._progress, self._task = state.get("progress"), state.get("task")

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        self._progress = self._task = None


def _read(text: str) -> object:
    """A tool's result: an object or a list where it is JSON, else the text."""
    if text[:1] in ("{", "["):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
