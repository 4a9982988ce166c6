"""The answerer is the participant that answers for the router itself: by its model, with a given text, or from a tool's
result."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence

from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    TextMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    ToolCallSummaryMessage,
)
from autogen_core import CancellationToken
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage

from drsai_backend.agents import DrSaiAgent
from drsai_backend.json_types import JsonObject
from drsai_backend.strategies.router.calling import ToolCaller


class Answerer(ToolCaller, DrSaiAgent):
    """A `DrSaiAgent` that may be told what its next answer is. Its arguments are those of `DrSaiAgent`."""

    component_provider_override = None
    durable_fields = ("_task",)
    _task: JsonObject | None = None

    def say(self, text: str) -> None:
        """Have this text as its next answer; no model is asked."""
        self._task = {"say": text}

    def use(self, tool: str, arguments: Mapping[str, object], *, phrase: bool) -> None:
        """Have as its next answer what this tool returns; with `phrase`, in the words of its model."""
        self._task = {"tool": tool, "arguments": dict(arguments), "phrase": phrase}

    def answer(self) -> None:
        """Have as its next answer its model's."""
        self._task = None

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """See `AssistantAgent.on_messages_stream`."""
        task, self._task = self._task, None
        if task is not None:
            await self._add_messages_to_context(self._model_context, messages)
            if "say" in task:
                text: str = task["say"]
                await self._model_context.add_message(AssistantMessage(content=text, source=self.name))
                yield Response(chat_message=TextMessage(content=text, source=self.name))
                return
            made: list[BaseAgentEvent] = []
            async for event in self.call(task["tool"], task["arguments"], self.name, cancellation_token):
                made.append(event)
                yield event
                await self._remember(event)
            if not task["phrase"]:
                yield self._summary(made)
                return
            messages = ()
        async for item in super().on_messages_stream(messages, cancellation_token):
            yield item

    async def _remember(self, event: ToolCallRequestEvent | ToolCallExecutionEvent) -> None:
        if isinstance(event, ToolCallRequestEvent):
            await self._model_context.add_message(AssistantMessage(content=event.content, source=self.name))
        else:
            await self._model_context.add_message(FunctionExecutionResultMessage(content=event.content))

    def _summary(self, made: list[BaseAgentEvent]) -> Response:
        asked, done = made
        assert isinstance(asked, ToolCallRequestEvent)
        assert isinstance(done, ToolCallExecutionEvent)
        message = ToolCallSummaryMessage(
            content=done.content[0].content, source=self.name, tool_calls=asked.content, results=done.content
        )
        return Response(chat_message=message, inner_messages=made)
