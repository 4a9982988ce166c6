"""Give a run's context to the agents and group chats that ask for it, and to the model clients and tools of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autogen_agentchat.agents import UserProxyAgent

# Private: the stock input function, which reads the terminal. tests/teams/test_upstream.py fails when it moves.
from autogen_agentchat.agents._user_proxy_agent import cancellable_input
from autogen_agentchat.teams import BaseGroupChat, MagenticOneGroupChat
from autogen_core import CancellationToken, Image
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import Workbench

from drsai_backend.agents import RunBound, bind
from drsai_backend.errors import InvalidRequest
from drsai_backend.models import RunModelClient, facade, run_client_of
from drsai_backend.runs.events import InputMessage
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.replay.steps import TurnSteps
from drsai_backend.teams.replay.tool_calls import ToolCalls
from drsai_backend.teams.replay.workbench import RecordedWorkbench
from drsai_backend.teams.suspension import InputBroker
from drsai_backend.teams.team_tree import Parts, is_a, leaf_agents


def inject(
    team: Parts,
    context: RunContext,
    broker: InputBroker,
    steps: TurnSteps | None = None,
    prompt: str | None = None,
) -> None:
    """Bind all parts of a team, nested teams, wrapped agents and agents used as tools included, to this run.

    Agents and group chats of this package get `_db_manager` and `_run_context`, and ask through `broker`; so does a
    `UserProxyAgent` without an input function of its own. Every model client is metered and takes the request's
    parameters. What models answer and tools return is recorded in `steps`, or given again from there. `prompt`, the
    client's system message, goes with every request of every agent, Magentic-One's orchestrator among them.
    """
    steps = TurnSteps() if steps is None else steps
    part: Any
    for path, part in team:
        if isinstance(part, RunBound):
            bind(part, context, broker.ask)
        agent = steps.agent(path)
        speaks = not is_a(part, BaseGroupChat) or is_a(part, MagenticOneGroupChat)
        client = getattr(part, "_model_client", None)
        if isinstance(client, ChatCompletionClient):
            run_client = run_client_of(client) or RunModelClient(
                client, params=context.params, meter=context.meter, rules=context.models.rules
            )
            # A client of its own, for two agents may share one and their answers must not be mixed up.
            run_client = run_client.with_steps(agent, prompt if speaks else None)
            setattr(part, "_model_client", facade(run_client))  # noqa: B010 - no class of this package declares it
        workbenches: list[Workbench] | None = getattr(part, "_workbench", None)
        if workbenches:
            calls = ToolCalls(agent, broker)
            setattr(part, "_workbench", [RecordedWorkbench(each, calls.stream) for each in workbenches])  # noqa: B010 - as above
        if is_a(part, UserProxyAgent) and part.input_func is cancellable_input:
            part.input_func = _asking(part.name, broker)
            setattr(part, "_is_async", True)  # noqa: B010 - AutoGen derives it once, from the function it was given


def refuse_unseen_images(team: BaseGroupChat, messages: Sequence[InputMessage]) -> None:
    """AutoGen leaves images out of what it sends to a model that sees none; whoever sent them would not know.

    Raises:
        InvalidRequest: there are images, and each agent of the team has a model that sees none.
    """
    if not any(isinstance(part, Image) for message in messages for part in message.content):
        return
    agents = [agent for agent in leaf_agents(team) if not is_a(agent, UserProxyAgent)]
    clients = [getattr(agent, "_model_client", None) for agent in agents]
    if agents and all(isinstance(each, ChatCompletionClient) and not each.model_info["vision"] for each in clients):
        raise InvalidRequest(
            "the model behind this team sees no images: send text alone, ask another model, or, if it does see them, "
            "have DRSAI_MODEL_VISION=true set",
            param="messages",
        )


def _asking(name: str, broker: InputBroker) -> Any:
    async def ask(prompt: str, cancellation_token: CancellationToken | None) -> str:
        return broker.ask(name, prompt)

    return ask
