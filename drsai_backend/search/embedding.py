"""The embedder makes vectors of texts at the configured endpoint, and keeps them for equal texts of a tenant."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import orjson
import sqlalchemy as sa
from cachetools import TTLCache
from sqlalchemy.orm import Session

from drsai_backend.config import Settings
from drsai_backend.database import Database
from drsai_backend.database.backends.prepared import Step
from drsai_backend.database.calls import Calls
from drsai_backend.database.upserts import insert_into
from drsai_backend.database.values import batches
from drsai_backend.datamodel import EmbeddedText, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import DrSaiError, EndpointFailed, InvalidRequest, UnknownModel
from drsai_backend.search.base import MAX_ENTRIES, MAX_TEXT
from drsai_backend.search.indexes import unit

if TYPE_CHECKING:
    from drsai_backend.models.embeddings import Embeddings

KEPT: Final = 10_000
"""Vectors that are kept of a tenant; those that were used longest ago go first."""
_CHARACTERS: Final = 400_000
"""Of the texts of one request, about: OpenAI takes 300,000 tokens."""
_USED: Final = timedelta(hours=12)
"""How late the time of the last use may be: one that is younger is not written anew."""
_BELIEVED: Final = 60.0
"""Seconds for which it is believed that the endpoint has an earlier model, or has not."""
_SAME: Final = 0.99
"""The cosine from which on two vectors of a text are of one model."""
_SIZED: Final = re.compile(r"(.+) \((\d+) dimensions\)")
"""A model with the dimensions that it is asked for, as `Embedder.model` says it."""
_text = table_of(EmbeddedText)


class Embedder:
    """Embeds texts by one model (`DRSAI_EMBEDDINGS_MODEL`), and those of searches by an earlier one as long as the
    endpoint has that. Nothing is computed or downloaded here.

    Args:
        database: keeps what was embedded.
        embeddings: asks the endpoint, and is closed by whoever made it; None: there is none.
        settings: say the model, the dimensions, and how much is asked for at once.
        calls: stores what it asks for, for whoever counts; None: nobody does.
        kept: how many vectors are kept of a tenant.
    """

    def __init__(
        self,
        database: Database,
        embeddings: Embeddings | None,
        settings: Settings,
        calls: Calls | None = None,
        *,
        kept: int = KEPT,
    ) -> None:
        self._database = database
        self._embeddings = embeddings
        self._calls = calls or Calls(database)
        self._settings = settings
        self._kept = kept
        self._name = settings.embeddings_model
        self._has: TTLCache[str, bool] = TTLCache(100, _BELIEVED)
        """Whether the endpoint has earlier models, by `model`."""
        self.dimensions = settings.embeddings_dimensions
        """Of the vectors, as the endpoint is asked for (`DRSAI_EMBEDDINGS_DIMENSIONS`); None: as many as the model
        gives, which the length of a vector says (4 bytes a number)."""

    @property
    def available(self) -> bool:
        """Whether there is an endpoint. Without one, `embed` raises, and search is by keywords alone."""
        return self._embeddings is not None and self._embeddings.endpoint is not None

    @property
    def model(self) -> str | None:
        """The model; with the dimensions, where they are asked for, as with others it is another model: its vectors
        are compared with none of those. None: there is none."""
        if not self.available:
            return None
        return self._name if self.dimensions is None else f"{self._name} ({self.dimensions} dimensions)"

    async def embed(self, owner: Owner, texts: Sequence[str]) -> list[bytes]:
        """Return a vector for each of up to 1,000 texts, in order: 32-bit floats, least significant byte first, of
        length 1.

        Texts that somebody of the tenant has embedded before are not asked for again. A text that is longer than the
        model reads is the endpoint's to refuse. What was embedded before a request failed is kept.

        Raises:
            UnknownModel: there is no endpoint.
            InvalidRequest: there are too many texts, one is empty, or the endpoint refuses one.
            EndpointFailed, EndpointTimeout, EndpointBusy: it gives no embeddings.
        """
        from drsai_backend.models.embeddings import KIND, EmbeddingsRequest

        if self._embeddings is None or not self.available:
            raise UnknownModel("there are no embeddings here: DRSAI_EMBEDDINGS_MODEL is not set, or no endpoint")
        if len(texts) > MAX_ENTRIES or not all(0 < len(each) <= MAX_TEXT for each in texts):
            text = f"up to {MAX_ENTRIES} texts of 1 to {MAX_TEXT} characters are embedded at once"
            raise InvalidRequest(text, param="input")
        which = (self._embeddings.endpoint, self._name, self.dimensions)
        digests = {each: blake2b(orjson.dumps((*which, each)), digest_size=16).hexdigest() for each in texts}
        found = await self._database.read(partial(_read, tenant=owner.tenant, digests=[*digests.values()]))
        vectors = {digest: vector for digest, (vector, _) in found.items()}
        if stale := [digest for digest, (_, is_fresh) in found.items() if not is_fresh]:
            await self._database.write(partial(_use, tenant=owner.tenant, digests=stale))
        for part in self._parts([each for each, digest in digests.items() if digest not in vectors]):
            answer = await self._embeddings.create(EmbeddingsRequest(part, "base64", self.dimensions, model=self._name))
            made = await asyncio.to_thread(_vectors, answer.body, self.dimensions)
            also = self._calls.statements(owner, KIND, answer.record())
            fresh = {digests[each]: vector for each, vector in zip(part, made, strict=True)}
            await self._database.write(partial(_keep, owner=owner, vectors=fresh, most=self._kept, also=also))
            vectors |= fresh
        return [vectors[digests[each]] for each in texts]

    async def embed_by(
        self,
        model: str,
        owner: Owner,
        texts: Sequence[str],
        sample: Callable[[], Awaitable[tuple[str, bytes] | None]],
    ) -> list[bytes] | None:
        """Return vectors as `embed` does, of this embedder's model, or of one that it had before, while the endpoint
        has that.

        Args:
            model: `model` of the embedder that has made those with which they are compared.
            owner: who asks.
            texts: what is embedded.
            sample: reads a text and its vector of those: an endpoint that embeds it otherwise now has that model no
                more, whatever it calls its own.

        Returns:
            None: the endpoint has that model no more, or does not answer for it.

        Raises:
            UnknownModel, InvalidRequest, EndpointFailed: as `embed`.
        """
        if model == self.model:
            return await self.embed(owner, texts)
        sized = _SIZED.fullmatch(model)
        name, dimensions = (model, None) if sized is None else (sized[1], int(sized[2]))
        said = {"embeddings_model": name, "embeddings_dimensions": dimensions}
        settings = self._settings.model_copy(update=said)
        before = Embedder(self._database, self._embeddings, settings, self._calls, kept=self._kept)
        has = self._has.get(model)
        if has is None:
            has = self._has[model] = await before._makes(owner, await sample())
        return await before.embed(owner, texts) if has else None

    async def _makes(self, owner: Owner, sample: tuple[str, bytes] | None) -> bool:
        """Return whether the endpoint, asked now, makes this vector of this text. Of nothing it does not."""
        if self._embeddings is None or sample is None:
            return False
        from drsai_backend.models.embeddings import KIND, EmbeddingsRequest

        asked = EmbeddingsRequest([sample[0]], "base64", self.dimensions, model=self._name)
        try:
            answer = await self._embeddings.create(asked)
            [made] = _vectors(answer.body, self.dimensions)
        except DrSaiError:
            return False
        await self._calls.store(owner, KIND, answer.record())
        import numpy as np

        old, new = (np.frombuffer(each, "<f4") for each in (sample[1], made))
        return len(old) == len(new) and float(old @ new) >= _SAME

    def _parts(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """The texts of each request."""
        part, size = list[str](), 0
        for each in texts:
            if part and (len(part) == self._settings.embeddings_batch or size + len(each) > _CHARACTERS):
                yield part
                part, size = [], 0
            part.append(each)
            size += len(each)
        if part:
            yield part


def _vectors(answer: bytes, dimensions: int | None) -> list[bytes]:
    vectors = [base64.b64decode(each["embedding"]) for each in orjson.loads(answer)["data"]]
    size = 4 * dimensions if dimensions is not None else len(vectors[0])
    if any(len(each) != size for each in vectors):
        raise EndpointFailed("the embeddings endpoint answered with vectors of other dimensions than were asked for")
    try:
        return [unit(each) for each in vectors]
    except InvalidRequest as error:
        raise EndpointFailed(f"the embeddings endpoint's answer cannot be used: {error.message}") from None


def _read(session: Session, *, tenant: str, digests: Sequence[str]) -> dict[str, tuple[bytes, bool]]:
    """The vectors that are kept, by digest, each with whether its use need not be written down."""
    c, since = _text.c, utcnow() - _USED
    found: dict[str, tuple[bytes, bool]] = {}
    for some in batches(digests):
        query = sa.select(c.digest, c.vector, c.used_at).where(c.tenant == tenant, c.digest.in_(some))
        found |= {row.digest: (row.vector, row.used_at > since) for row in session.connection().execute(query)}
    return found


def _use(session: Session, *, tenant: str, digests: Sequence[str]) -> None:
    for some in batches(sorted(digests)):
        these = sa.update(_text).where(_text.c.tenant == tenant, _text.c.digest.in_(some))
        session.connection().execute(these.values(used_at=utcnow()))


def _keep(
    session: Session, *, owner: Owner, vectors: Mapping[str, bytes], most: int, also: Sequence[Step] = ()
) -> None:
    """Keep vectors, and delete what is too much of the tenant's; `also` is stored with them."""
    connection, c = session.connection(), _text.c
    for statement, values in also:
        statement.run(connection, values)
    rows = [
        {**owner._asdict(), "digest": digest, "used_at": utcnow(), "vector": vector}
        for digest, vector in sorted(vectors.items())
    ]
    connection.execute(insert_into(_text, connection.dialect.name).on_conflict_do_nothing(), rows)
    mine = c.tenant == owner.tenant
    surplus = connection.execute(sa.select(sa.func.count()).where(mine)).scalar_one() - most
    if surplus > 0:
        oldest = sa.select(c.id).where(mine).order_by(c.used_at, c.id).limit(surplus)
        connection.execute(sa.delete(_text).where(c.id.in_(oldest)))
