"""The base of an agent knows the run that the agent takes part in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import autogen_agentchat.agents
from autogen_agentchat.base import Handoff
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core import CancellationToken, FunctionCall
from autogen_core.memory import Memory
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient, FunctionExecutionResult, LLMMessage, UserMessage
from autogen_core.tools import BaseTool, Workbench
from pydantic import BaseModel

from drsai_backend.agents.tool_tasks import calling
from drsai_backend.errors import ConfigurationError
from drsai_backend.tools import Middleware, check_approvers, registered_tool

if TYPE_CHECKING:
    from drsai_backend.database import DatabaseManager
    from drsai_backend.teams.context import RunContext

_AssistantAgent: Final = autogen_agentchat.agents.AssistantAgent
AnyTool: TypeAlias = BaseTool[Any, Any]  # whoever has made it, whatever its arguments and result


class Asking(Protocol):
    """How a person is asked; see `drsai_backend.teams.suspension.InputBroker.ask`."""

    def __call__(
        self,
        source: str,
        prompt: str,
        *,
        choices: Sequence[str] | None = None,
        deadline: datetime | timedelta | None = None,
        by: str | None = None,
        not_by: str | None = None,
    ) -> str: ...


class RunBound:
    """Mixin: gets the run's context before it runs. Never part of a saved state or a component config."""

    _db_manager: DatabaseManager
    """The database manager: `get`, `upsert`, `delete` on every table, one's own included."""
    _run_context: RunContext
    """Who talks, on which thread, in which run, and the model client with the request's parameters."""
    _ask_person: Asking | None = None

    def bind_run(self, context: RunContext) -> None:
        """Called by the engine before every run. Override it to prepare more, and call `super().bind_run(context)`."""
        self._run_context = context
        self._db_manager = context.db_manager

    async def request_input(
        self,
        prompt: str,
        *,
        choices: Sequence[str] | None = None,
        deadline: datetime | timedelta | None = None,
        by: str | None = None,
        not_by: Literal["asker"] | None = None,
    ) -> str:
        """Ask the person who talks to this thread, or another one. The run waits, without a process, until the answer
        is there.

        The turn is repeated then: what this agent did in it before it asked happens once more, but for answers of its
        model that called tools and for finished tool calls, and this call returns the answer. Let no `except` or
        `finally` around it depend on the answer: the question travels up as an exception.

        Args:
            choices: the answers that are accepted; any text when omitted.
            deadline: when an answer is of no use any more, a time or how long from now; shown to the client. The run
                is stopped then.
            by: who may answer, and nobody else: a user (`user:bob`) or a role (`role:treasurer`) of the thread's
                tenant. Default: the owner of the thread, and with whom it is shared.
            not_by: `"asker"`: not the user who asked the team.

        Raises:
            ConfigurationError: the agent runs outside a run of this package; or `by` or `not_by` names nobody.
        """
        check_approvers(by, not_by)
        if self._ask_person is None:
            raise ConfigurationError("request_input() works in a run of DrSai only: nobody is there to be asked")
        name: str = getattr(self, "name")  # noqa: B009 - the mixin's other half has it
        return self._ask_person(name, prompt, choices=choices, deadline=deadline, by=by, not_by=not_by)


def bind(part: RunBound, context: RunContext, ask: Asking) -> None:
    """Give an agent or a group chat its run, and a way to ask the person."""
    part.bind_run(context)
    part._ask_person = ask  # pyright: ignore[reportPrivateUsage]


class DrSaiAgentMixin(RunBound):
    """For an agent of one's own: `class Librarian(DrSaiAgentMixin, BaseChatAgent)`.

    `self._db_manager` and `self._run_context` are there in `on_messages`; not yet in `__init__`.
    """


class DrSaiAgent(DrSaiAgentMixin, _AssistantAgent):
    """AutoGen's `AssistantAgent`, with the same arguments, plus `self._db_manager` and `self._run_context`, and these:

    Args:
        tools: may also name classes that are registered (`register_tool`).
        tool_choice: "auto"; "required": the model has to call a tool before it answers; "none": it may call none; or
            the name of the tool it has to call. It holds in runs of this package.
        tool_middleware: what runs around calls of this package's tools; see `drsai_backend.tools.middleware`.
        dependency_overrides: functions that stand in for dependencies of the tools.
        tool_provided: values by type, for parameters of those types (`drsai_backend.tools.depends.injectable`).

    Raises:
        ConfigurationError: no class of a name is registered.
    """

    component_provider_override = "drsai_backend.DrSaiAgent"

    def __init__(  # noqa: PLR0913 - as AutoGen's
        self,
        name: str,
        model_client: ChatCompletionClient,
        *,
        tools: Sequence[AnyTool | Callable[..., object] | str] | None = None,
        workbench: Workbench | Sequence[Workbench] | None = None,
        handoffs: list[Handoff | str] | None = None,
        model_context: ChatCompletionContext | None = None,
        description: str = "An agent that provides assistance with ability to use tools.",
        system_message: str | None = (
            "You are a helpful AI assistant. Solve tasks using your tools. Reply with TERMINATE when the task has been "
            "completed."
        ),
        model_client_stream: bool = False,
        reflect_on_tool_use: bool | None = None,
        max_tool_iterations: int = 1,
        tool_call_summary_format: str = "{result}",
        tool_call_summary_formatter: Callable[[FunctionCall, FunctionExecutionResult], str] | None = None,
        output_content_type: type[BaseModel] | None = None,
        output_content_type_format: str | None = None,
        memory: Sequence[Memory] | None = None,
        metadata: dict[str, str] | None = None,
        tool_choice: str = "auto",
        tool_middleware: Sequence[Middleware] = (),
        dependency_overrides: Mapping[Callable[..., object], Callable[..., object]] | None = None,
        tool_provided: Mapping[type, object] | None = None,
    ) -> None:
        super().__init__(
            name,
            model_client,
            tools=None if tools is None else [registered_tool(t) if isinstance(t, str) else t for t in tools],
            workbench=workbench,
            handoffs=None if handoffs is None else [*handoffs],
            model_context=model_context,
            description=description,
            system_message=system_message,
            model_client_stream=model_client_stream,
            reflect_on_tool_use=reflect_on_tool_use,
            max_tool_iterations=max_tool_iterations,
            tool_call_summary_format=tool_call_summary_format,
            tool_call_summary_formatter=tool_call_summary_formatter,
            output_content_type=output_content_type,
            output_content_type_format=output_content_type_format,
            memory=memory,
            metadata=metadata,
        )
        self.tool_choice = tool_choice
        self.tool_middleware = tuple(tool_middleware)
        self.dependency_overrides = dict(dependency_overrides or {})
        self.tool_provided = dict(tool_provided or {})

    @staticmethod
    async def _execute_tool_call(
        tool_call: FunctionCall,
        workbench: Sequence[Workbench],
        handoff_tools: list[AnyTool],
        agent_name: str,
        cancellation_token: CancellationToken,
        stream: asyncio.Queue[BaseAgentEvent | BaseChatMessage | None],
    ) -> tuple[FunctionCall, FunctionExecutionResult]:
        """Make a call, and say so: see `tool_tasks`."""
        given = tool_call, workbench, handoff_tools, agent_name, cancellation_token, stream
        with calling(cancellation_token):
            return await _AssistantAgent._execute_tool_call(*given)

    @staticmethod
    def _get_compatible_context(model_client: ChatCompletionClient, messages: list[LLMMessage]) -> Sequence[LLMMessage]:
        """Return the messages without images where the model sees none. AutoGen's way copies each of a long thread for
        each call; nearly always there are none."""
        if not model_client.model_info["vision"]:
            for message in messages:
                # By class and without a call: three times as fast as a pattern.
                if message.__class__ is UserMessage and message.content.__class__ is list:
                    return _AssistantAgent._get_compatible_context(model_client, messages)
        return messages


def tells_its_calls(agent: object) -> bool:
    """Whether an agent says itself when it calls a tool."""
    return getattr(agent, "_execute_tool_call", None) is DrSaiAgent._execute_tool_call  # pyright: ignore[reportPrivateUsage]


AssistantAgent = DrSaiAgent
"""The same class under AutoGen's name: moving over is an import change."""
