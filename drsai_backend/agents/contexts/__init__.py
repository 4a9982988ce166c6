"""Model contexts decide what of a thread an agent's model is shown. See docs/contexts.md."""

from drsai_backend.agents.contexts.buffered import EphemeralOutputsContext, OutputsContext, TokenBufferedContext
from drsai_backend.agents.contexts.compaction import COMPACTION_PROMPT, CompactionContext, Once
from drsai_backend.agents.contexts.ephemeral import EPHEMERAL_NOTE
from drsai_backend.agents.contexts.growing import CountTokens, GrowingContext

__all__ = [
    "COMPACTION_PROMPT",
    "EPHEMERAL_NOTE",
    "CompactionContext",
    "CountTokens",
    "EphemeralOutputsContext",
    "GrowingContext",
    "Once",
    "OutputsContext",
    "TokenBufferedContext",
]
