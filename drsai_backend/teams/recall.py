"""Recall shows the model of an agent what a feature finds for the question, in a message that is no part of the thread.

The message is found once a turn, when the agent first asks its model, and recorded as a step: a turn that is repeated
shows the same. It goes with every request of the turn, and is stored in no state and in no list of messages.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeAlias, TypeVar, cast

from autogen_agentchat.teams import BaseGroupChat
from autogen_core import CancellationToken
from autogen_core.memory import Memory, MemoryContent, MemoryQueryResult, UpdateContextResult
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import LLMMessage
from pydantic import BaseModel

from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError
from drsai_backend.json_types import JsonObject
from drsai_backend.models.endpoints.message_rules import question_at
from drsai_backend.tools.shelf import shelf

if TYPE_CHECKING:
    from drsai_backend.teams.context import RunContext
    from drsai_backend.teams.replay.steps import AgentSteps
    from drsai_backend.teams.team_tree import TeamTree


class Recalled(NamedTuple):
    """What is shown for a question: the text, and the names of what is in it, without spaces, which steps of the run
    tell (`RunStep.recalled`)."""

    text: str
    names: Sequence[str] = ()


Recall: TypeAlias = Callable[[str], Awaitable[str | Recalled | None]]
"""Returns what is shown for a question; None: nothing is. It raises nothing that should end the run."""
RecallSource: TypeAlias = Callable[["RunContext", Mapping[str, object]], Recall]
"""Makes the recall of an agent, of the run and the agent's options. Raises TeamBuildError where that cannot be."""
Recalling: TypeAlias = tuple[object, Recall]
"""An agent, a group chat with all its agents, or an agent's AutoGen `Memory`; and what is recalled for it."""
Shown: TypeAlias = Callable[[Sequence[LLMMessage]], Awaitable[str | None]]
F = TypeVar("F")
C = TypeVar("C", bound=BaseModel)


def shown_to(
    path: str, part: object, tree: TeamTree, all_of_run: Iterable[Recalling], steps: AgentSteps
) -> Shown | None:
    """Return what finds the text that is shown with the messages of an agent; None: nothing is recalled for it.

    Args:
        path: of the agent.
        part: the agent.
        tree: the team that it is in.
        all_of_run: what the team's factory has asked for.
        steps: record what was found.
    """
    memories = getattr(part, "_memory", None) or ()
    mine = [
        recall for of, recall in all_of_run if of is part or _holds(tree, of, path) or any(of is m for m in memories)
    ]
    return partial(_found, mine, steps) if mine else None


def _holds(tree: TeamTree, team: object, path: str) -> bool:
    """Whether a group chat has the agent of a path."""
    if not isinstance(team, BaseGroupChat):
        return False
    own = next((at for at, part in tree.parts.items() if part is team), None)
    return own is not None and path.startswith(own[: own.rfind("/") + 1])


async def _found(recalls: Sequence[Recall], steps: AgentSteps, messages: Sequence[LLMMessage]) -> str | None:
    async def find() -> JsonObject:
        question = question_in(messages)
        found = [await recall(question) for recall in recalls] if question else []
        told = [Recalled(each) if isinstance(each, str) else each for each in found if each]
        names = [name for each in told for name in each.names]
        text = "\n\n".join(each.text for each in told) or None
        return {"text": text, "names": names} if names else {"text": text}

    return await steps.recalled(find)


def question_in(messages: Sequence[LLMMessage]) -> str:
    """Return what the user has asked last, as text; else what the agent was told last; empty: nothing was said."""
    place = question_at(messages)
    content = "" if place is None else messages[place].content
    return content if isinstance(content, str) else "\n".join(part for part in content if isinstance(part, str))


class RecallMemory(Memory, Generic[F, C]):
    """What a feature recalls, as AutoGen's `Memory`: in a run the run shows it, elsewhere `update_context` does.

    Attributes:
        source: the feature, by its name.
        message: the class of the message in which it is shown outside of runs.
        mark: how that begins.

    Args:
        options: for the feature.
        of: the feature and whose it is, outside of a factory.

    Raises:
        ConfigurationError: it is made outside of a factory, and `of` is not given.
    """

    source: ClassVar[str]
    message: ClassVar[type[BaseModel]]
    mark: ClassVar[str]

    def __init__(self, options: C, of: tuple[F, Owner] | None) -> None:
        self._config, self._of = options, of
        if of is None:
            run = cast("RunContext | None", shelf.get())
            if run is None:
                name = type(self).__name__
                raise ConfigurationError(f"{name} is made in the factory of a team, or is told whose it is: `of`")
            run.recall(self, self.source, options.model_dump())

    @abstractmethod
    async def _found(self, of: F, owner: Owner, question: str) -> tuple[list[MemoryContent], LLMMessage | None]:
        """Return what fits a question, the best first, and the message in which it is shown, if anything is."""

    def _outside(self) -> tuple[F, Owner]:
        if self._of is None:
            raise ConfigurationError(f"in a run, the run shows it: ask the extension {self.source!r} for it")
        return self._of

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        """Put what fits the last question into the context, as one message: called again, it takes the place of the one
        before. In a run nothing is put there: the run shows it."""
        found: list[MemoryContent] = []
        if self._of is not None:
            messages = await model_context.get_messages()
            kept = [each for each in messages if not self._is_shown_in(each)]
            if len(kept) < len(messages):
                await model_context.clear()
                for each in kept:
                    await model_context.add_message(each)
            if (question := question_in(kept)).strip():
                found, message = await self._found(*self._of, question)
                if message is not None:
                    await model_context.add_message(message)
        return UpdateContextResult(memories=MemoryQueryResult(results=found))

    def _is_shown_in(self, message: LLMMessage) -> bool:
        content = message.content
        return isinstance(message, self.message) and isinstance(content, str) and content.startswith(self.mark)

    async def query(
        self,
        query: str | MemoryContent,
        cancellation_token: CancellationToken | None = None,
        **kwargs: Any,
    ) -> MemoryQueryResult:
        """Return what fits a question, the best first. Raises as the feature does."""
        found, _ = await self._found(*self._outside(), query if isinstance(query, str) else str(query.content))
        return MemoryQueryResult(results=found)

    async def close(self) -> None:
        """Do nothing: nothing is held open."""

    def _to_config(self) -> C:
        return self._config

    @classmethod
    def _from_config(cls, config: C) -> Self:
        return cls(**config.model_dump())
