"""Give a run's context to the agents and group chats that ask for it, and to the model clients of all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autogen_agentchat.agents import UserProxyAgent

# Private: the stock input function, which reads the terminal. tests/runs/test_inject.py fails when it moves.
from autogen_agentchat.agents._user_proxy_agent import cancellable_input
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.teams import BaseGroupChat
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import StaticWorkbench

from drsai_backend.agents import RunBound
from drsai_backend.models import RunModelClient
from drsai_backend.teams._wiring import leaf_agents, nested_teams
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.suspension import InputBroker


def inject(team: BaseGroupChat, context: RunContext, broker: InputBroker) -> None:
    """Bind everything in `team`, nested teams, wrapped agents and agents used as tools included, to this run.

    Agents and group chats of this package get `_db_manager` and `_run_context`; every model client is metered and
    takes the request's parameters; a `UserProxyAgent` without an input function of its own asks through `broker`.
    """
    part: Any
    for part in _parts(team):
        if isinstance(part, RunBound):
            part.bind_run(context)
        client = getattr(part, "_model_client", None)
        if isinstance(client, ChatCompletionClient) and not isinstance(client, RunModelClient):
            wrapped = RunModelClient(client, params=context.params, meter=context.meter)
            setattr(part, "_model_client", wrapped)  # noqa: B010 - no class of this package declares it
        if isinstance(part, UserProxyAgent) and part.input_func is cancellable_input:
            part.input_func = _asking(part.name, broker)
            setattr(part, "_is_async", True)  # noqa: B010 - AutoGen derives it once, from the function it was given


def _asking(name: str, broker: InputBroker) -> Any:
    async def ask(prompt: str, cancellation_token: CancellationToken | None) -> str:
        return broker.ask(name, prompt)

    return ask


def _parts(team: BaseGroupChat) -> Iterator[Any]:
    yield from nested_teams(team)
    for agent in leaf_agents(team):
        yield agent
        for workbench in getattr(agent, "_workbench", ()):
            if isinstance(workbench, StaticWorkbench):
                for tool in workbench._tools:
                    runner = getattr(tool, "_task_runner", None)  # AutoGen's AgentTool and TeamTool
                    if isinstance(runner, BaseGroupChat):
                        yield from _parts(runner)
                    elif isinstance(runner, ChatAgent):
                        yield runner
