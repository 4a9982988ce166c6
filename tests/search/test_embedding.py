"""Texts are embedded once a tenant, at an endpoint over HTTP."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from drsai_backend.config import Settings
from drsai_backend.database import Database
from drsai_backend.datamodel import EmbeddedText, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import EndpointBusy, EndpointFailed, InvalidRequest, UnknownModel
from drsai_backend.models.embeddings import Embeddings
from drsai_backend.search import Embedder
from drsai_backend.search.embedding import _USED
from tests.support.model_server import Failure, ModelServer, embeddings_of

ANN, BOB, EVE = Owner("acme", "ann"), Owner("acme", "bob"), Owner("other", "eve")
TEXT = table_of(EmbeddedText)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as made:
        yield made


class Desk:
    """Makes embedders of one database and endpoint."""

    def __init__(self, database: Database, url: str) -> None:
        self.database = database
        self.url = url
        self.opened: list[Embeddings] = []

    def __call__(self, *, kept: int = 100, **values: Any) -> Embedder:
        given = {"embeddings_model": "small", "embeddings_base_url": self.url, "model_max_retries": 0, **values}
        settings = Settings(**given)
        self.opened.append(Embeddings(settings))
        return Embedder(self.database, self.opened[-1], settings, kept=kept)

    async def kept(self) -> list[tuple[str, str]]:
        query = sa.select(TEXT.c.tenant, TEXT.c.user_id).order_by(TEXT.c.id)
        return await self.database.read(lambda session: [(row[0], row[1]) for row in session.execute(query)])


@pytest.fixture
async def desk(database_url: str, server: ModelServer) -> AsyncIterator[Desk]:
    async with Database(database_url) as database:
        made = Desk(database, server.base_url)
        yield made
        for each in made.opened:
            await each.close()


def unpacked(vector: bytes) -> list[float]:
    return np.frombuffer(vector, "<f4").tolist()


async def test_vectors_have_length_1_and_the_order_of_the_texts(desk: Desk, server: ModelServer) -> None:
    embedder = desk()
    assert (embedder.available, embedder.model, embedder.dimensions) == (True, "small", None)
    one, two, again = await embedder.embed(ANN, ["abc", "abcdef", "abc"])
    assert one == again
    assert unpacked(one) == pytest.approx([3 / math.hypot(3, 0.5), 0.5 / math.hypot(3, 0.5)])
    assert unpacked(two) == pytest.approx([6 / math.hypot(6, 1.5), 1.5 / math.hypot(6, 1.5)])
    [request] = server.requests
    assert request.body == {"model": "small", "input": ["abc", "abcdef"], "encoding_format": "base64"}
    assert await embedder.embed(ANN, []) == []


async def test_equal_texts_of_a_tenant_are_asked_for_once(desk: Desk, server: ModelServer) -> None:
    first = await desk().embed(ANN, ["one", "two"])
    assert await desk().embed(BOB, ["two", "one"]) == [*reversed(first)]
    assert len(server.requests) == 1
    await desk().embed(BOB, ["two", "three"])
    assert server.requests[1].body["input"] == ["three"]
    await desk().embed(EVE, ["one"])
    await desk(embeddings_model="large").embed(ANN, ["one"])
    assert len(server.requests) == 4
    assert await desk.kept() == [("acme", "ann"), ("acme", "ann"), ("acme", "bob"), ("other", "eve"), ("acme", "ann")]


async def test_what_was_used_longest_ago_goes(desk: Desk, server: ModelServer) -> None:
    embedder = desk(kept=2)
    await embedder.embed(EVE, ["x"])
    await embedder.embed(ANN, ["one"])
    await embedder.embed(ANN, ["two"])
    old = sa.update(TEXT).values(used_at=utcnow() - 2 * _USED)
    await desk.database.write(lambda session: session.execute(old))
    await embedder.embed(ANN, ["one"])
    await embedder.embed(ANN, ["three"])
    asked = len(server.requests)
    await embedder.embed(ANN, ["one", "three"])
    assert len(server.requests) == asked
    await embedder.embed(ANN, ["two"])
    assert len(server.requests) == asked + 1
    assert sorted(await desk.kept()) == [("acme", "ann"), ("acme", "ann"), ("other", "eve")]


async def test_requests_are_bounded(desk: Desk, server: ModelServer) -> None:
    embedder = desk(embeddings_batch=2)
    await embedder.embed(ANN, ["a", "b", "c", "d" * 150_000, "e" * 150_000, "f" * 150_000, "g"])
    assert [[each[0] for each in request.body["input"]] for request in server.requests] == [
        ["a", "b"],
        ["c", "d"],
        ["e", "f"],
        ["g"],
    ]
    server.requests.clear()
    await desk().embed(ANN, ["h" * 150_000, "i" * 150_000, "j" * 150_000])
    assert [len(request.body["input"]) for request in server.requests] == [2, 1]
    for texts in ([""], ["x" * 200_001], ["x"] * 1_001):
        with pytest.raises(InvalidRequest):
            await embedder.embed(ANN, texts)


async def test_what_came_before_a_failure_is_kept(desk: Desk, server: ModelServer) -> None:
    embedder = desk(embeddings_batch=1)
    server.embedded = lambda request: (
        Failure(429, "slow down", "rate_limit") if request.body["input"] == ["b"] else embeddings_of(request)
    )
    with pytest.raises(EndpointBusy):
        await embedder.embed(ANN, ["a", "b", "c"])
    server.embedded = embeddings_of
    await embedder.embed(ANN, ["a", "b", "c"])
    assert [request.body["input"] for request in server.requests] == [["a"], ["b"], ["b"], ["c"]]


async def test_vectors_that_cannot_be_used_are_refused(desk: Desk, server: ModelServer) -> None:
    with pytest.raises(EndpointFailed, match="other dimensions"):
        await desk(embeddings_dimensions=3).embed(ANN, ["a"])
    assert server.requests[0].body["dimensions"] == 3

    def zeros(request: Any) -> Any:
        answer = embeddings_of(request)
        answer["data"][0]["embedding"] = [0.0, 0.0]
        return answer

    server.embedded = zeros
    with pytest.raises(EndpointFailed, match="cannot be used"):
        await desk().embed(ANN, ["a"])
    assert await desk.kept() == []


async def test_without_an_endpoint_there_are_none(desk: Desk) -> None:
    none = {"embeddings_base_url": None, "openai_api_key": None, "openai_base_url": None}
    settings = Settings(openai_api_key=SecretStr("sk"))
    for embedder in (desk(**none), Embedder(desk.database, None, settings)):
        assert (embedder.available, embedder.model) == (False, None)
        with pytest.raises(UnknownModel):
            await embedder.embed(ANN, ["a"])
