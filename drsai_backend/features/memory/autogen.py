"""`DrSaiMemory` is long-term memory as AutoGen's `Memory`, for agents of any kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self, cast

from autogen_core import CancellationToken, Component
from autogen_core.memory import Memory, MemoryContent, MemoryMimeType, MemoryQueryResult, UpdateContextResult
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import SystemMessage

from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError
from drsai_backend.features.memory import extension
from drsai_backend.features.memory.base import FoundMemories, Level, NewMemory
from drsai_backend.features.memory.recall import TOP_K, RecallOptions, written
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.recall import question_in
from drsai_backend.tools.shelf import shelf

_MARK = "[memory]"


class DrSaiMemory(Memory, Component[RecallOptions]):
    """What is remembered of the user who asks: `AssistantAgent(…, memory=[DrSaiMemory()])`, made in a team's factory.

    In a run, the agent's model is shown what fits the question, in one message that is stored nowhere; a turn that is
    repeated shows the same. Elsewhere, `update_context` puts that message into the context, in place of the one before.

    Args:
        top_k: memories at most.
        min_score: their least score, 0 to 1; None: any.
        scope: those of it, and those of none.
        shared: in a run, of what all users share that of its team, or of the tenant; None: as the settings say.
        of: the feature and whose memories, outside of a factory: `(drsai.extension(Memory), Owner("default", "ada"))`.

    Raises:
        ConfigurationError: it is made outside of a factory, and `of` is not given.
    """

    component_type = "memory"
    component_provider_override = "drsai_backend.DrSaiMemory"
    component_config_schema = RecallOptions

    def __init__(
        self,
        top_k: int = TOP_K,
        min_score: float | None = None,
        scope: str = "",
        *,
        shared: Level | None = None,
        of: tuple[extension.Memory, Owner] | None = None,
    ) -> None:
        self._config = RecallOptions(top_k=top_k, min_score=min_score, scope=scope, shared=shared)
        self._of = of
        self._run = cast("RunContext | None", shelf.get())
        if of is None:
            if self._run is None:
                raise ConfigurationError("DrSaiMemory is made in the factory of a team, or is told whose it is: `of`")
            self._run.recall(self, "memory", self._config.model_dump())

    def _found_in(self) -> tuple[extension.Memory, Owner]:
        if self._of is not None:
            return self._of
        raise ConfigurationError("in a run, memories are shown by the run: ask `drsai.extension(Memory)` for them")

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        """Put the memories that fit the last question into the context, as one message: called again it takes the place
        of the one before. In a run nothing is put there: the run shows it."""
        results = MemoryQueryResult(results=[])
        if self._of is None:
            return UpdateContextResult(memories=results)
        messages = await model_context.get_messages()
        kept = [each for each in messages if not (isinstance(each, SystemMessage) and each.content.startswith(_MARK))]
        if len(kept) < len(messages):
            await model_context.clear()
            for each in kept:
                await model_context.add_message(each)
        if question := question_in(kept):
            memory, owner = self._of
            found = await memory.search(owner, question, self._config)
            results = _as_result(found)
            text, _ = written([each.memory for each in found.items], memory.host.settings.memory_tokens)
            if text is not None:
                await model_context.add_message(SystemMessage(content=text))
        return UpdateContextResult(memories=results)

    async def query(
        self,
        query: str | MemoryContent,
        cancellation_token: CancellationToken | None = None,
        **kwargs: Any,
    ) -> MemoryQueryResult:
        """Return the memories that fit a question, the best first."""
        memory, owner = self._found_in()
        found = await memory.search(owner, query if isinstance(query, str) else str(query.content), self._config)
        return _as_result(found)

    async def add(self, content: MemoryContent, cancellation_token: CancellationToken | None = None) -> None:
        """Remember a text. Raises InvalidRequest: it is no text, or cannot be remembered."""
        memory, owner = self._found_in()
        new = NewMemory(text=str(content.content), scope=self._config.scope)
        importance: object = (content.metadata or {}).get("importance")
        if isinstance(importance, int | float) and 0 <= importance <= 1:
            new = replace(new, importance=float(importance))
        await memory.add(owner, new)

    async def clear(self) -> None:
        """Forget everything of the person."""
        memory, owner = self._found_in()
        await memory.delete_all(owner)

    async def close(self) -> None:
        """Do nothing: nothing is held open."""

    def _to_config(self) -> RecallOptions:
        return self._config

    @classmethod
    def _from_config(cls, config: RecallOptions) -> Self:
        return cls(**config.model_dump())


def _as_result(found: FoundMemories) -> MemoryQueryResult:
    return MemoryQueryResult(
        results=[
            MemoryContent(
                content=each.memory.text,
                mime_type=MemoryMimeType.TEXT,
                metadata={"id": each.memory.memory_id, "score": each.score, "days_ago": each.days_ago},
            )
            for each in found.items
        ]
    )
