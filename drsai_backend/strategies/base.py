"""A strategy is a way in which an agent works, chosen by name in a definition.

A strategy is its options as declared fields, and a function that builds from an agent's parts what does the work: one
agent, or a small group chat whose manager keeps the way. What it keeps between turns is declared fields of the saved
state of what it builds. A strategy is a module of this folder, a name of `NAMES` in `__init__`, and an entry of
`Strategy` in `choice`; `simple.py` is the example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from autogen_agentchat.base import ChatAgent, Team
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import Workbench
from pydantic import BaseModel, ConfigDict

from drsai_backend.errors import TeamBuildError
from drsai_backend.teams.context import RunContext


@dataclass(frozen=True, slots=True)
class AgentParts:
    """What a definition says of an agent, for one run. Functions make a fresh part each, as a strategy may build
    several agents of them.

    Attributes:
        name: of what is built.
        description: one line for users, and for who chooses speakers.
        system_message: the prompt, its variables filled in; None: there is none.
        client: a model's client: the agent's own, or that of a profile by name.
        workbenches: the tools.
        model_context: what of the thread the model is shown.
        handoffs: to whom it may hand over.
        max_iterations: answers of the agent's model in one turn, those that call tools included. In `plan_execute` that
            is an attempt at one step, in `reflexion` an attempt at the task, in `router` the agent's own answer; how
            many steps or attempts there are is an option of theirs. In `plan_execute` and `router`, an agent with
            tools has at least 2: one that calls them, and the answer.
        tool_choice: `auto`, `required`, `none`, or the tool that has to be called.
        stream: show the answer while it is made.
        part: builds another agent or team of the definitions, by its name.
        run: the run that it is built for.
    """

    name: str
    description: str
    system_message: str | None
    client: Callable[[str | None], ChatCompletionClient]
    workbenches: Callable[[], list[Workbench]]
    model_context: Callable[[], ChatCompletionContext]
    handoffs: tuple[str, ...]
    max_iterations: int
    tool_choice: str
    stream: bool
    part: Callable[[str], ChatAgent | Team]
    run: RunContext

    @classmethod
    def of_code(  # noqa: PLR0913 - what a definition says, with its defaults
        cls,
        name: str,
        run: RunContext,
        *,
        description: str | None = None,
        system_message: str | None = None,
        workbenches: Callable[[], list[Workbench]] = list,
        model_context: Callable[[], ChatCompletionContext] = UnboundedChatCompletionContext,
        handoffs: tuple[str, ...] = (),
        max_iterations: int = 10,
        tool_choice: str = "auto",
        stream: bool = True,
        part: Callable[[str], ChatAgent | Team] | None = None,
    ) -> AgentParts:
        """The parts of an agent that is made in code: its models are the run's."""

        def nobody(wanted: str) -> ChatAgent | Team:
            raise TeamBuildError(f"strategy of {name!r} names {wanted!r}: say by `part` how that is built")

        return cls(
            name=name,
            description=description or name,
            system_message=system_message,
            client=run.model_client,
            workbenches=workbenches,
            model_context=model_context,
            handoffs=handoffs,
            max_iterations=max_iterations,
            tool_choice=tool_choice,
            stream=stream,
            part=part or nobody,
            run=run,
        )


class AgentWords(Protocol):
    """What a strategy is told of an agent to judge whether it can work so (`AgentDefinition`)."""

    @property
    def has_tools(self) -> bool: ...
    @property
    def has_handoffs(self) -> bool: ...
    @property
    def max_iterations(self) -> int: ...


class StrategyBase(BaseModel, ABC):
    """A strategy's options. A subclass declares `kind: Literal["…"]` with a default, and its fields."""

    model_config = ConfigDict(extra="forbid", strict=True)

    is_team: ClassVar[bool] = False
    """It builds a group chat, not an agent; so it takes part in round robin and selector teams only."""
    needs_functions: ClassVar[bool] = True
    """Where the agent has tools, its model has to call functions."""

    def wrong(self, agent: AgentWords) -> Iterator[str]:
        """Yield why an agent cannot work so: sentences that name the field and what to do."""
        yield from ()

    def uses(self) -> dict[str, str]:
        """The agents and teams of the definitions that the options name, by the field that names each
        (`skills.0.agent`)."""
        return {}

    def calls(self) -> dict[str, str]:
        """The agent's tools that the options name, by the field that names each (`patterns.0.tool`)."""
        return {}

    @abstractmethod
    def build(self, parts: AgentParts) -> ChatAgent | Team:
        """A fresh agent or team for a run.

        Raises:
            TeamBuildError: it cannot be built of these parts.
        """
