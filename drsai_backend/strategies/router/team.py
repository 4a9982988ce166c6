"""The team of a router is a group chat: skills, flows, and who answers otherwise; one of them for each input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

# Private: what a group chat is made of. tests/teams/test_upstream.py fails when it changes.
from autogen_agentchat.base import ChatAgent, Team, TerminationCondition
from autogen_agentchat.messages import BaseChatMessage, MessageFactory
from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, StaticStreamWorkbench, Workbench

from drsai_backend.agents.base import AnyTool
from drsai_backend.errors import TeamBuildError
from drsai_backend.strategies.router.answerer import Answerer
from drsai_backend.strategies.router.flows.agent import FlowAgent
from drsai_backend.strategies.router.manager import RouterManager, RouterParts
from drsai_backend.strategies.router.options import RouterOptions
from drsai_backend.teams.group_chats import DrSaiGroupChat
from drsai_backend.teams.replay.steps import OwnSteps
from drsai_backend.tools import Function


class FlowContainer(ChatAgentContainer):
    """Keeps no messages for its flow, which the manager tells what it has to know: a router may have many flows, most
    of which never speak on a thread."""

    def _buffer_message(self, message: BaseChatMessage) -> None: ...


class RouterTeam(OwnSteps, DrSaiGroupChat):
    """Each input goes to one participant: by patterns first, then by a model's choice. Its answer ends the run.

    Args:
        name: of the team, and of the participant that answers where no other is chosen.
        model_client: answers for the router itself.
        options: patterns, flows, confidence and fallback: `RouterOptions`, or its fields as a dict.
        skills: agents and teams that may be chosen.
        when: by a skill's name, when it is right; default: its description.
        tools: functions and tools that the model may choose, and that flows call; or workbenches.
        router_client: the model that chooses; `model_client` when omitted.
        system_message: of the participant that answers.
        max_tool_iterations: of the participant that answers.

    Raises:
        TeamBuildError: two participants have one name, or a target is not there.
    """

    has_one_turn = True

    def __init__(  # noqa: PLR0913 - options of a public class
        self,
        name: str,
        model_client: ChatCompletionClient,
        options: RouterOptions | Mapping[str, object],
        *,
        skills: Sequence[ChatAgent | Team] = (),
        when: Mapping[str, str] | None = None,
        tools: Sequence[AnyTool | Callable[..., object]] = (),
        workbenches: Callable[[], list[Workbench]] | None = None,
        router_client: ChatCompletionClient | None = None,
        description: str = "Finds who can help.",
        system_message: str | None = None,
        model_context: ChatCompletionContext | None = None,
        model_client_stream: bool = True,
        max_tool_iterations: int = 9,
        tool_choice: str = "auto",
        termination_condition: TerminationCondition | None = None,
    ) -> None:
        self._options = options if isinstance(options, RouterOptions) else RouterOptions.model_validate(dict(options))
        self._skills = {each.name: (when or {}).get(each.name) or each.description for each in skills}
        for sentence in self._options.wrong_targets(set(self._skills)):
            raise TeamBuildError(f"the router {name!r}: {sentence}")

        def made() -> list[Workbench]:
            if workbenches is not None:
                return workbenches()
            found: list[AnyTool] = [
                cast(AnyTool, each) if isinstance(each, BaseTool) else Function(each) for each in tools
            ]
            return [StaticStreamWorkbench(found)] if found else []

        chooses = router_client or model_client
        self._flows = {
            flow_name: FlowAgent(flow_name, flow, workbench=made() if flow.tools else (), model_client=chooses)
            for flow_name, flow in self._options.flows.items()
        }
        own = made()
        self._answerer = Answerer(
            name,
            model_client,
            workbench=own or None,
            model_context=model_context,
            description=description,
            system_message=system_message,
            model_client_stream=model_client_stream,
            reflect_on_tool_use=bool(own),
            max_tool_iterations=max_tool_iterations if own else 1,
            tool_choice=tool_choice,
        )
        self._model_client = chooses
        try:
            super().__init__(
                name=name,
                description=description,
                participants=[*skills, *self._flows.values(), self._answerer],
                group_chat_manager_name="RouterManager",
                group_chat_manager_class=RouterManager,
                termination_condition=termination_condition,
                max_turns=1,
            )
        except ValueError as error:
            raise TeamBuildError(
                f"the router {name!r}: its skills, flows and itself need names of their own"
            ) from error

    def _create_participant_factory(
        self,
        parent_topic_type: str,
        output_topic_type: str,
        agent: ChatAgent | Team,
        message_factory: MessageFactory,
    ) -> Callable[[], ChatAgentContainer]:
        kind = FlowContainer if isinstance(agent, FlowAgent) else ChatAgentContainer
        return lambda: kind(parent_topic_type, output_topic_type, agent, message_factory)

    def _create_group_chat_manager_factory(self, *args: Any, **options: Any) -> Callable[[], RouterManager]:
        parts = RouterParts(self._options, self._skills, self._flows, self._answerer, self._model_client, self._steps)
        return partial(RouterManager, *args, parts=parts, **options)
