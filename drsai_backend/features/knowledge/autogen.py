"""`DrSaiKnowledge` is knowledge as AutoGen's `Memory`, for agents of any kind."""

from __future__ import annotations

from typing import Any, Self, cast

from autogen_core import CancellationToken, Component
from autogen_core.memory import Memory, MemoryContent, MemoryMimeType, MemoryQueryResult, UpdateContextResult
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import LLMMessage, UserMessage
from pydantic import BaseModel, ConfigDict, Field, model_validator

from drsai_backend.datamodel.citations import DATA, shown_passages
from drsai_backend.datamodel.knowledge import AgentStore
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError
from drsai_backend.estimates import estimate_text
from drsai_backend.features.knowledge.agents import MOST_TOKENS, ForAgents, Lookup, told
from drsai_backend.features.knowledge.base import Passage
from drsai_backend.search.base import Mode
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.recall import question_in
from drsai_backend.tools.shelf import shelf


class DrSaiKnowledgeConfig(BaseModel):
    """What a component config says."""

    model_config = ConfigDict(extra="forbid")

    stores: list[str]
    agent: str | None = None
    top_k: int = Field(default=5, ge=1, le=50)
    retrieval: Mode = "hybrid"
    min_score: float | None = Field(default=None, ge=0, le=1)
    max_tokens: int = Field(default=MOST_TOKENS, ge=100)
    ranker: str | None = Field(default=None, min_length=1, max_length=255)

    @model_validator(mode="after")
    def _of_some(self) -> DrSaiKnowledgeConfig:
        if not self.stores and self.agent is None:
            raise ValueError("`stores` must have at least 1, or `agent` be an agent")
        return self

    def lookup(self) -> dict[str, Any]:
        """Return the options of a `Lookup`."""
        stores = self.stores if self.agent is None else [*self.stores, AgentStore(self.agent)]
        return {**self.model_dump(exclude={"agent"}), "stores": stores}


class DrSaiKnowledge(Memory, Component[DrSaiKnowledgeConfig]):
    """What stores have to a question: `AssistantAgent(…, memory=[DrSaiKnowledge(["handbook"])])`, made in a team's
    factory. The stores are those of who asks.

    In a run, the agent's model is shown passages before the question, in one message that is stored nowhere; a turn
    that is repeated shows the same. Elsewhere, `update_context` puts that message into the context, in place of the one
    before.

    Args:
        stores: their names or ids.
        of: the feature and whose stores, outside of a factory: `(drsai.extension(Knowledge), Owner("default", "ada"))`.
        options: `agent` (one whose definition has `files`: these, too), `top_k` (5), `retrieval` ("hybrid", "vector",
            "keyword"), `min_score` (None: any), `max_tokens` (2,000 of the passages together), `ranker` (None: the
            profile of a model that puts them in order).

    Raises:
        ConfigurationError: it is made outside of a factory, and `of` is not given.
        ValidationError: an option cannot be.
    """

    component_type = "memory"
    component_provider_override = "drsai_backend.DrSaiKnowledge"
    component_config_schema = DrSaiKnowledgeConfig

    def __init__(self, stores: list[str], *, of: tuple[ForAgents, Owner] | None = None, **options: Any) -> None:
        self._config = DrSaiKnowledgeConfig(stores=stores, **options)
        self._of = of
        if of is None:
            run = cast("RunContext | None", shelf.get())
            if run is None:
                raise ConfigurationError(
                    "DrSaiKnowledge is made in the factory of a team, or is told whose stores they are: `of`"
                )
            run.recall(self, "knowledge", self._config.lookup())

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        """Put what is found for the last question into the context, as one message: called again, it takes the place of
        the one before. In a run nothing is put there: the run shows it."""
        found: list[Passage] = []
        if self._of is not None:
            messages = await model_context.get_messages()
            kept = [each for each in messages if not _is_ours(each)]
            question = question_in(kept)
            found = await self._found(question) if question.strip() else []
            wanted = kept
            if found:
                text = shown_passages(map(told, found), (), self._config.max_tokens, estimate_text)
                wanted = [*kept, UserMessage(content=text, source="user")]
            if wanted != messages:
                await model_context.clear()
                for each in wanted:
                    await model_context.add_message(each)
        return UpdateContextResult(memories=_as_result(found))

    async def query(
        self,
        query: str | MemoryContent,
        cancellation_token: CancellationToken | None = None,
        **kwargs: Any,
    ) -> MemoryQueryResult:
        """Return passages for a question, the best first. Raises NotFound: there is no such store."""
        return _as_result(await self._found(query if isinstance(query, str) else str(query.content)))

    async def _found(self, question: str) -> list[Passage]:
        if self._of is None:
            raise ConfigurationError(
                "in a run, passages are shown by the run: ask `drsai.extension(Knowledge)` for them"
            )
        knowledge, owner = self._of
        lookup = Lookup(**self._config.lookup())
        return (await knowledge.search(owner, lookup.stores, lookup.question(question))).passages

    async def add(self, content: MemoryContent, cancellation_token: CancellationToken | None = None) -> None:
        """Raise ConfigurationError: stores have files."""
        raise ConfigurationError("stores have files, and take no texts: `drsai knowledge add` adds them")

    async def clear(self) -> None:
        """Raise ConfigurationError: stores are not an agent's to empty."""
        raise ConfigurationError("stores are not emptied by agents: `drsai knowledge remove`")

    async def close(self) -> None:
        """Close nothing: nothing is held open."""

    def _to_config(self) -> DrSaiKnowledgeConfig:
        return self._config

    @classmethod
    def _from_config(cls, config: DrSaiKnowledgeConfig) -> Self:
        return cls(**config.model_dump())


def _is_ours(message: LLMMessage) -> bool:
    return isinstance(message, UserMessage) and isinstance(message.content, str) and message.content.startswith(DATA)


def _as_result(found: list[Passage]) -> MemoryQueryResult:
    return MemoryQueryResult(
        results=[
            MemoryContent(
                content=each.text,
                mime_type=MemoryMimeType.TEXT,
                metadata=each.model_dump(include={"file_id", "filename", "page", "headings", "score", "attributes"}),
            )
            for each in found
        ]
    )
