"""`DrSaiKnowledge` is knowledge as AutoGen's `Memory`, for agents of any kind."""

from __future__ import annotations

from typing import Any

from autogen_core import CancellationToken, Component
from autogen_core.memory import MemoryContent, MemoryMimeType
from autogen_core.models import LLMMessage, UserMessage

from drsai_backend.datamodel.citations import DATA
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError
from drsai_backend.features.knowledge.agents import ForAgents, Lookup
from drsai_backend.teams.recall import RecallMemory


class DrSaiKnowledge(RecallMemory[ForAgents, Lookup], Component[Lookup]):
    """What stores have to a question: `AssistantAgent(…, memory=[DrSaiKnowledge(["handbook"])])`, made in a team's
    factory. The stores are those of who asks.

    In a run, the agent's model is shown passages before the question, in one message that is stored nowhere; a turn
    that is repeated shows the same. Elsewhere, `update_context` puts that message into the context, in place of the one
    before.

    Args:
        stores: their names or ids.
        of: the feature and whose stores, outside of a factory: `(drsai.extension(Knowledge), Owner("default", "ada"))`.
        options: `agent` (one whose definition has `files`: these, too), `top_k` (5), `retrieval` ("hybrid", "vector",
            "keyword"), `min_score` (None: any), `filters` (which files are looked at; None: all), `max_tokens` (2,000
            of the passages together), `ranker` (None: the profile of a model that puts them in order).

    Raises:
        ConfigurationError: it is made outside of a factory, and `of` is not given.
        ValidationError: an option cannot be.
    """

    component_type = "memory"
    component_provider_override = "drsai_backend.DrSaiKnowledge"
    component_config_schema = Lookup
    source = "knowledge"
    message = UserMessage
    mark = DATA

    def __init__(self, stores: list[str], *, of: tuple[ForAgents, Owner] | None = None, **options: Any) -> None:
        super().__init__(Lookup(stores=stores, **options), of)

    async def _found(self, of: ForAgents, owner: Owner, question: str) -> tuple[list[MemoryContent], LLMMessage | None]:
        look = self._config
        passages = (await of.search(owner, look.names, look.question(question))).passages
        results = [
            MemoryContent(
                content=each.text,
                mime_type=MemoryMimeType.TEXT,
                metadata=each.model_dump(include={"file_id", "filename", "page", "headings", "score", "attributes"}),
            )
            for each in passages
        ]
        return results, UserMessage(content=look.shown(passages), source="user") if passages else None

    async def add(self, content: MemoryContent, cancellation_token: CancellationToken | None = None) -> None:
        """Raise ConfigurationError: stores have files."""
        raise ConfigurationError("stores have files, and take no texts: `drsai knowledge add` adds them")

    async def clear(self) -> None:
        """Raise ConfigurationError: stores are not an agent's to empty."""
        raise ConfigurationError("stores are not emptied by agents: `drsai knowledge remove`")
