"""The group chats are AutoGen's, with the same arguments, and know the run they take part in."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

import autogen_agentchat.teams
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core import CancellationToken

from drsai_backend.agents import RunBound

_BRACES: Final = re.compile(r"\{\{|\}\}|\{(?:roles|participants|history)\}")
_BRACE: Final = {"{{": "{", "}}": "}"}


class DrSaiGroupChat(RunBound, autogen_agentchat.teams.BaseGroupChat):
    """Base of this package's group chats, and of one's own: subclass it as AutoGen's `BaseGroupChat`.

    `self._db_manager` and `self._run_context` are there before the manager is made; not yet in `__init__`.

    Attributes:
        has_one_turn: one turn is all that such a team has to do: its end is no bound that was reached.
    """

    has_one_turn: bool = False

    def run_stream(
        self,
        *,
        task: str | BaseChatMessage | Sequence[BaseChatMessage] | None = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | TaskResult]:
        """Run on a task; without one, or with an empty list, continue."""
        # AutoGen gives an inner team that has heard nothing since its last turn an empty list, and refuses it.
        task = None if task == [] else task
        return super().run_stream(
            task=task, cancellation_token=cancellation_token, output_task_messages=output_task_messages
        )


class RoundRobinGroupChat(DrSaiGroupChat, autogen_agentchat.teams.RoundRobinGroupChat):
    """Participants take turns. See `autogen_agentchat.teams.RoundRobinGroupChat`."""

    component_provider_override = "drsai_backend.RoundRobinGroupChat"


class SelectorGroupChat(DrSaiGroupChat, autogen_agentchat.teams.SelectorGroupChat):
    """A model or a function picks the next speaker. See `autogen_agentchat.teams.SelectorGroupChat`.

    `selector_prompt` may be anybody's: `{roles}`, `{participants}`, `{history}` are replaced in it, `{{` and `}}` stand
    for a brace, and nothing else in it means anything.
    """

    component_provider_override = "drsai_backend.SelectorGroupChat"

    def _create_group_chat_manager_factory(self, *args: Any, **given: Any) -> Any:
        self._selector_prompt = _SelectorPrompt(self._selector_prompt)
        return super()._create_group_chat_manager_factory(*args, **given)


class _SelectorPrompt(str):
    """A prompt that AutoGen formats. As a format string it could take the machine's memory (`{roles:>1000000000}`), or
    show the model what hangs on its values (`{history.__class__}`)."""

    __slots__ = ()

    def format(self, *args: object, **values: object) -> str:
        return _BRACES.sub(lambda found: _BRACE.get(found[0]) or str(values[found[0][1:-1]]), self)


class Swarm(DrSaiGroupChat, autogen_agentchat.teams.Swarm):
    """Agents hand over to each other. See `autogen_agentchat.teams.Swarm`."""

    component_provider_override = "drsai_backend.Swarm"


class GraphFlow(DrSaiGroupChat, autogen_agentchat.teams.GraphFlow):
    """Agents run along a directed graph. See `autogen_agentchat.teams.GraphFlow`."""

    component_provider_override = "drsai_backend.GraphFlow"


class MagenticOneGroupChat(DrSaiGroupChat, autogen_agentchat.teams.MagenticOneGroupChat):
    """An orchestrator plans and delegates. See `autogen_agentchat.teams.MagenticOneGroupChat`."""

    component_provider_override = "drsai_backend.MagenticOneGroupChat"
