"""A store keeps answers for the cache."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, Protocol

from drsai_backend.datamodel.owner import Owner
from drsai_backend.models.profiles.schema import CacheBounds

MAX_ANSWER_BYTES: Final = 256 * 1024
"""A longer answer is not kept."""


class AnswerStore(Protocol):
    """Keeps answers of a tenant for a while. It may lose any; what it raises is logged, and the model is asked."""

    @abstractmethod
    async def get(self, asker: Owner, digest: str) -> str | None:
        """The answer to a request of that digest that anybody of the asker's tenant was given; None: none is kept."""

    @abstractmethod
    async def put(self, asker: Owner, digest: str, answer: str, ttl: float, bounds: CacheBounds) -> None:
        """Keep an answer for `ttl` seconds, as the asker's, and no more than `bounds` of their tenant's: those that
        would be over first go first."""

    @abstractmethod
    async def forget(self, asker: Owner) -> int:
        """Delete the answers that were kept as this user's; returns how many."""

    @abstractmethod
    async def close(self) -> None:
        """Close connections."""
