"""The embedder makes vectors of texts at the configured endpoint, and keeps them for equal texts of a tenant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from drsai_backend.config import Settings
from drsai_backend.database import Database
from drsai_backend.datamodel.owner import Owner

if TYPE_CHECKING:
    from drsai_backend.models.embeddings import Embeddings


class Embedder:
    """Embeds texts by one model (`DRSAI_EMBEDDINGS_MODEL`). Nothing is computed or downloaded here.

    Args:
        database: keeps what was embedded.
        embeddings: asks the endpoint, and is closed by whoever made it; None: there is none.
        settings: say the dimensions, and how much is asked for at once.
    """

    def __init__(self, database: Database, embeddings: Embeddings | None, settings: Settings) -> None:
        self._database = database
        self._embeddings = embeddings

    @property
    def available(self) -> bool:
        """Whether there is an endpoint. Without one, `embed` raises, and search is by keywords alone."""
        raise NotImplementedError

    @property
    def model(self) -> str | None:
        """The model; None: there is none."""
        raise NotImplementedError

    @property
    def dimensions(self) -> int | None:
        """Of the vectors, where the settings say it (`DRSAI_EMBEDDINGS_DIMENSIONS`); None: as many as the model gives,
        which the length of the first vector says (4 bytes a number)."""
        raise NotImplementedError

    async def embed(self, owner: Owner, texts: Sequence[str]) -> list[bytes]:
        """Return a vector for each text, in order: 32-bit floats, least significant byte first, of length 1.

        Texts that somebody of the tenant has embedded before are not asked for again. A text that is longer than the
        model reads is the endpoint's to refuse.

        Raises:
            UnknownModel: there is no endpoint.
            InvalidRequest: the endpoint refuses a text.
            EndpointFailed, EndpointTimeout, EndpointBusy: it gives no embeddings.
        """
        raise NotImplementedError
