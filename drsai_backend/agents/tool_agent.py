"""A tool agent calls tools until its steps are used up, and then says so; or until it says that it is done."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final, Literal, cast

from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from autogen_core import CancellationToken
from autogen_core.models import AssistantMessage, ChatCompletionClient, UserMessage
from autogen_core.tools import StaticStreamWorkbench, Workbench

from drsai_backend.agents.base import DrSaiAgent
from drsai_backend.errors import ConfigurationError
from drsai_backend.models import RunModelClient, run_client_of
from drsai_backend.models.text_calls.wording import TextForm
from drsai_backend.tools import tool

LIMIT: Final = "limit"
"""A message's metadata says here which limit ended the work that it tells of: `max_iterations`, or `reminders`."""
REMINDERS: Final = 3
_REMINDER: Final = (
    "You have not called the tool `done`. If the task is finished, call it with your whole answer. If it is not, "
    "continue to work on it."
)


class ReminderEvent(BaseAgentEvent):
    """What an agent's model was told to do, as if by the user, who is not shown it."""

    type: Literal["ReminderEvent"] = "ReminderEvent"
    content: str

    def to_text(self) -> str:
        """Return what it was told."""
        return self.content


@tool(idempotent=True, timeout=None, max_output=1_000_000)
async def done(answer: str) -> str:
    """Say that the task is finished. Nothing else ends your work.

    Args:
        answer: your whole answer; the user sees this and nothing else of what you wrote.
    """
    return answer


class ToolAgent(DrSaiAgent):
    """Calls tools until it can answer, or until it calls `done`.

    Args:
        name: its name.
        model_client: its model.
        workbench: its tools.
        max_iterations: answers of its model in one turn, 1 to 99, those after reminders included. The last one is asked
            for without tools; the answer's metadata then has `limit`. Rounds with tools of the client's do not count.
        require_done: only a call of the tool `done` ends its work, with that call's answer. An agent that stops without
            it is reminded, by a message that only its model sees, and a `ReminderEvent` tells. What it says meanwhile
            is shown as its thoughts.
        reminders: how often; then what it said last is the answer, and its metadata has `limit`.
        text_form: calls are written in text, as `text` or `json`, for models that cannot call functions; see
            `ReactAgent`. None: the model calls functions.
        arguments: those of `DrSaiAgent`.

    Raises:
        ConfigurationError: `max_iterations` or `reminders` cannot be.
    """

    component_provider_override = None

    def __init__(  # noqa: PLR0913 - as AutoGen's
        self,
        name: str,
        model_client: ChatCompletionClient,
        *,
        workbench: Workbench | Sequence[Workbench] | None = None,
        max_iterations: int = 10,
        require_done: bool = False,
        reminders: int = REMINDERS,
        text_form: TextForm | None = None,
        **arguments: Any,
    ) -> None:
        if not 1 <= max_iterations <= 99:
            raise ConfigurationError(f"max_iterations={max_iterations}: it is 1 to 99")
        if not 0 <= reminders <= 99:
            raise ConfigurationError(f"reminders={reminders}: they are 0 to 99")
        workbenches = [workbench] if isinstance(workbench, Workbench) else list(workbench or ())
        if arguments.get("tools") and (workbenches or require_done):
            raise ConfigurationError("give the tools as a workbench: AutoGen takes one or the other")
        if require_done:
            workbenches.append(StaticStreamWorkbench([done]))
        if text_form is not None:
            client = model_client if isinstance(model_client, RunModelClient) else RunModelClient(model_client)
            model_client = client.calling_in_text(text_form)
        calls = bool(workbenches or arguments.get("tools"))
        super().__init__(
            name,
            model_client,
            workbench=workbenches or None,
            reflect_on_tool_use=calls,
            max_tool_iterations=max(max_iterations - 1, 1) if calls else 1,
            **arguments,
        )
        self.require_done = require_done
        self.max_iterations = max_iterations
        self._calls_tools = calls
        self.reminders = reminders
        if require_done:
            # What it says is not its answer before `done` is called.
            self._model_client_stream = False

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """See AutoGen's `AssistantAgent`; teams are told of events, too."""
        return [*super().produced_message_types, cast("type[BaseChatMessage]", ReminderEvent)]

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """See AutoGen's `AssistantAgent`."""
        limit, tools = self._max_tool_iterations, self._workbench
        left, reminders = self.max_iterations, self.reminders
        # Beside tools of the client's, the number is none: AutoGen's loop finds out when it is over.
        counts = type(limit) is int and self._calls_tools
        try:
            while True:
                if counts:
                    self._max_tool_iterations = max(left - 1, 1)
                    self._workbench = tools if left > 1 else []
                response: Response | None = None
                async with aclosing(super().on_messages_stream(messages, cancellation_token)) as stream:
                    async for item in stream:
                        if isinstance(item, Response):
                            response = item
                            break
                        yield item
                        left -= isinstance(item, ToolCallRequestEvent)
                        if self.require_done and (answer := _answer_in(item)) is not None:
                            await self._model_context.add_message(AssistantMessage(content=answer, source=self.name))
                            yield Response(chat_message=TextMessage(content=answer, source=self.name))
                            return
                assert response is not None, "AutoGen's agent ends with a response"
                said = response.chat_message
                client = run_client_of(self._model_client)
                if isinstance(said, TextMessage) and not (client and client.answered_by_tool):
                    left -= 1
                    if left <= 0 and counts:
                        said.metadata[LIMIT] = "max_iterations"
                    elif self.require_done and reminders == 0:
                        said.metadata[LIMIT] = "reminders"
                    elif self.require_done:
                        reminders -= 1
                        yield ThoughtEvent(content=said.content, source=self.name)
                        yield ReminderEvent(content=_REMINDER, source=self.name)
                        await self._model_context.add_message(UserMessage(content=_REMINDER, source="user"))
                        messages = []
                        continue
                yield response
                return
        finally:
            self._max_tool_iterations, self._workbench = limit, tools


def _answer_in(item: BaseAgentEvent | BaseChatMessage) -> str | None:
    """The answer of a call of `done`, where an event has one that was right."""
    results = item.content if isinstance(item, ToolCallExecutionEvent) else ()
    return next((each.content for each in results if each.name == done.name and not each.is_error), None)


class ReactAgent(ToolAgent):
    """Writes its calls in text: thought, action, action input, observation. For models that cannot call functions.

    Args:
        name: its name.
        model_client: any model's client.
        workbench: its tools.
        max_steps: answers of its model in one turn, 1 to 50; see `max_iterations` of `ToolAgent`.
        form: how a call is written: `text`, in lines with labels; `json`, as one object.
        arguments: those of `ToolAgent`.

    Raises:
        ConfigurationError: `max_steps` cannot be.
    """

    component_provider_override = None

    def __init__(
        self,
        name: str,
        model_client: ChatCompletionClient,
        *,
        workbench: Workbench | Sequence[Workbench] | None = None,
        max_steps: int = 10,
        form: TextForm = "text",
        **arguments: Any,
    ) -> None:
        if not 1 <= max_steps <= MAX_STEPS:
            raise ConfigurationError(f"max_steps={max_steps}: it is 1 to {MAX_STEPS}")
        super().__init__(name, model_client, workbench=workbench, max_iterations=max_steps, text_form=form, **arguments)


MAX_STEPS: Final = 50
"""Steps of an agent that writes its calls in text."""
