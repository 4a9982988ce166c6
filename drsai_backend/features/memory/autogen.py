"""`DrSaiMemory` is long-term memory as AutoGen's `Memory`, for agents of any kind."""

from __future__ import annotations

from dataclasses import replace

from autogen_core import CancellationToken, Component
from autogen_core.memory import MemoryContent, MemoryMimeType
from autogen_core.models import LLMMessage, SystemMessage

from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.memory.base import Level, NewMemory
from drsai_backend.features.memory.extension import Memory
from drsai_backend.features.memory.recall import TOP_K, RecallOptions, written
from drsai_backend.teams.recall import RecallMemory


class DrSaiMemory(RecallMemory[Memory, RecallOptions], Component[RecallOptions]):
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
    source = "memory"
    message = SystemMessage
    mark = "[memory]"

    def __init__(
        self,
        top_k: int = TOP_K,
        min_score: float | None = None,
        scope: str = "",
        *,
        shared: Level | None = None,
        of: tuple[Memory, Owner] | None = None,
    ) -> None:
        super().__init__(RecallOptions(top_k=top_k, min_score=min_score, scope=scope, shared=shared), of)

    async def _found(self, of: Memory, owner: Owner, question: str) -> tuple[list[MemoryContent], LLMMessage | None]:
        found = (await of.search(owner, question, self._config)).items
        text, _ = written([each.memory for each in found], of.host.settings.memory_tokens)
        results = [
            MemoryContent(
                content=each.memory.text,
                mime_type=MemoryMimeType.TEXT,
                metadata={"id": each.memory.memory_id, "score": each.score, "days_ago": each.days_ago},
            )
            for each in found
        ]
        return results, None if text is None else SystemMessage(content=text)

    async def add(self, content: MemoryContent, cancellation_token: CancellationToken | None = None) -> None:
        """Remember a text. Raises InvalidRequest: it is no text, or cannot be remembered."""
        memory, owner = self._outside()
        new = NewMemory(text=str(content.content), scope=self._config.scope)
        importance: object = (content.metadata or {}).get("importance")
        if isinstance(importance, int | float) and 0 <= importance <= 1:
            new = replace(new, importance=float(importance))
        await memory.add(owner, new)

    async def clear(self) -> None:
        """Forget everything of the person."""
        memory, owner = self._outside()
        await memory.delete_all(owner)
