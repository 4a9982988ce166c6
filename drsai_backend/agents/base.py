"""Agents that know the run they take part in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, Protocol

import autogen_agentchat.agents

from drsai_backend.errors import ConfigurationError
from drsai_backend.tools import check_approvers

if TYPE_CHECKING:
    from drsai_backend.database import DatabaseManager
    from drsai_backend.teams.context import RunContext


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


class DrSaiAgent(DrSaiAgentMixin, autogen_agentchat.agents.AssistantAgent):
    """AutoGen's `AssistantAgent`, with the same arguments, plus `self._db_manager` and `self._run_context`."""

    component_provider_override = "drsai_backend.DrSaiAgent"


AssistantAgent = DrSaiAgent
"""The same class under AutoGen's name: moving over is an import change."""
