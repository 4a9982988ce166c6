"""Memories that get vectors of another model get them in parts, between which others write, and the index of before is
searched until all have them: whoever is killed, and whatever is said, changed and forgotten meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend import DrSai
from drsai_backend.datamodel import SearchEntry, SearchIndex, SearchVector, table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.memory import rows
from drsai_backend.features.memory.base import NewMemory
from drsai_backend.features.memory.extension import Memory
from tests.features.memory.learning import ANN, aged, current
from tests.features.memory.test_found import longer, meaning
from tests.support.model_server import Failure, ModelRequest, ModelServer

TEXTS = (
    "The user has a dog.",
    "The user likes tea.",
    "The user lives in Lisbon.",
    "The user owns a boat.",
    "He cooks.",
)
NEW = "The user owns a house."


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drsai_backend.features.memory.rows._AT_ONCE", 1)
    monkeypatch.setattr("drsai_backend.features.memory.rows._PART", 2)


@pytest.fixture
async def plain(make: Callable[..., DrSai], model: ModelServer, parts: None) -> AsyncIterator[DrSai]:
    """A process of the earlier model, which has remembered something."""
    model.embedded = lambda request: meaning(request) if request.model == "small" else longer(meaning(request))
    async with make(memory=False, embeddings_model="small") as drsai:
        for text in TEXTS:
            await drsai.extension(Memory).add(ANN, NewMemory(text=text))
        await aged(drsai)
        yield drsai


@pytest.fixture
async def later(make: Callable[..., DrSai], plain: DrSai) -> AsyncIterator[DrSai]:
    async with make(memory=False, embeddings_model="large") as drsai:
        yield drsai


def at_part(monkeypatch: pytest.MonkeyPatch, drsai: DrSai, number: int, act: Callable[[], Awaitable[object]]) -> None:
    """Have something be done when vectors of that part of the memories are asked for."""
    embedder = drsai.extension(Memory).host.embedder
    embed, asked = embedder.embed, list[Sequence[str]]()

    async def embedded(owner: Owner, texts: Sequence[str]) -> list[bytes]:
        asked.append(texts)
        if len(asked) == number + 1:  # Before them, the new one is embedded.
            await act()
        return await embed(owner, texts)

    monkeypatch.setattr(embedder, "embed", embedded)


async def indexed(drsai: DrSai) -> list[tuple[str | None, list[str]]]:
    """Of each index the model, and the texts that have vectors."""

    def read(session: Session) -> list[tuple[str | None, list[str]]]:
        i, e, v = (table_of(each).c for each in (SearchIndex, SearchEntry, SearchVector))
        there = sa.and_(v.index_id == e.index_id, v.number == e.number)
        query = sa.select(e.text).join(table_of(SearchVector), there)
        indexes = session.execute(sa.select(i.id, i.model).order_by(i.id)).all()
        return [(model, sorted(session.execute(query.where(e.index_id == key)).scalars())) for key, model in indexes]

    return await drsai.database.read(read)


async def test_the_index_of_before_is_searched_until_all_have_vectors(
    plain: DrSai, later: DrSai, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    async def look() -> None:
        assert [(model, len(texts)) for model, texts in await indexed(plain)] == [("small", 5), ("large", 4)]
        found = await plain.extension(Memory).search(ANN, "Which animal waits for me?")
        seen.append(found.items[0].memory.text)

    at_part(monkeypatch, later, 3, look)
    await later.extension(Memory).add(ANN, NewMemory(text=NEW))
    assert seen == [TEXTS[0]]
    assert await indexed(plain) == [("large", sorted((*TEXTS, NEW)))]
    found = await later.extension(Memory).search(ANN, "Which animal waits for me?")
    assert found.items[0].memory.text == TEXTS[0]


async def test_what_is_changed_forgotten_and_added_meanwhile(
    plain: DrSai, later: DrSai, make: Callable[..., DrSai], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        async with make(memory=False) as other:
            memory = other.extension(Memory)
            known = {each.text: each.memory_id async for each in memory.every(ANN)}
            await memory.delete(ANN, known[TEXTS[0]])  # It has its vector.
            await memory.delete(ANN, known[TEXTS[4]])  # Its vector is asked for.
            await memory.change(ANN, known[TEXTS[1]], "The user likes milk.")
            await memory.change(ANN, known[TEXTS[2]], kind="episode")
            await memory.add(ANN, NewMemory(text="The user plays chess."))
            assert all(TEXTS[0] not in texts and TEXTS[1] not in texts for _, texts in await indexed(other))

    at_part(monkeypatch, later, 3, act)
    await later.extension(Memory).add(ANN, NewMemory(text=NEW))
    texts = sorted((NEW, "The user likes milk.", TEXTS[2], TEXTS[3], "The user plays chess."))
    assert await current(plain) == texts
    assert await indexed(plain) == [("large", texts)]


async def test_what_a_worker_of_the_release_before_forgets_meanwhile(
    plain: DrSai, later: DrSai, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows nothing of a second index."""

    def own_index(session: Session, owner: Owner) -> list[int | None]:
        return [rows.person_of(session, owner).index]

    async def act() -> None:
        memory = plain.extension(Memory)
        known = {each.text: each.memory_id async for each in memory.every(ANN)}
        with monkeypatch.context() as before:
            before.setattr(rows, "_indexes", own_index)
            for text in TEXTS[:3]:
                await memory.delete(ANN, known[text])
        assert [len(texts) for _, texts in await indexed(plain)] == [2, 4]

    at_part(monkeypatch, later, 3, act)
    await later.extension(Memory).add(ANN, NewMemory(text=NEW))
    assert await indexed(plain) == [("large", sorted((*TEXTS[3:], NEW)))]


@pytest.mark.parametrize("is_user", [False, True])
async def test_all_is_forgotten_meanwhile(
    plain: DrSai, later: DrSai, monkeypatch: pytest.MonkeyPatch, is_user: bool
) -> None:
    async def act() -> None:
        await (plain.users.delete(ANN) if is_user else plain.extension(Memory).delete_all(ANN))
        assert await indexed(plain) == []

    at_part(monkeypatch, later, 2, act)
    await later.extension(Memory).add(ANN, NewMemory(text=NEW))
    assert await indexed(plain) == [("large", [NEW])]


async def test_who_is_cut_off_has_left_what_the_next_one_continues(
    plain: DrSai, later: DrSai, make: Callable[..., DrSai], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut() -> None:
        raise asyncio.CancelledError

    at_part(monkeypatch, later, 3, cut)
    with pytest.raises(asyncio.CancelledError):
        await later.extension(Memory).add(ANN, NewMemory(text=NEW))
    assert await current(plain) == sorted(TEXTS)
    assert await indexed(plain) == [("small", sorted(TEXTS)), ("large", sorted(TEXTS[:4]))]
    async with make(memory=False, embeddings_model="large") as drsai:
        stored: list[int] = []
        at_part(monkeypatch, drsai, 1, lambda: _noted(drsai, stored))
        await drsai.extension(Memory).add(ANN, NewMemory(text=NEW))
    assert stored == [4]
    assert await indexed(plain) == [("large", sorted((*TEXTS, NEW)))]


async def _noted(drsai: DrSai, stored: list[int]) -> None:
    stored.append(len((await indexed(drsai))[-1][1]))


async def test_an_endpoint_that_fails_meanwhile(plain: DrSai, later: DrSai, model: ModelServer) -> None:
    """Words find what is said then, in the index of before; the next one goes on."""
    asked: list[ModelRequest] = []

    def failing(request: ModelRequest) -> Any:
        asked.append(request)
        return Failure(503, "not now", "server_error") if len(asked) == 3 else longer(meaning(request))

    model.embedded = failing
    await later.extension(Memory).add(ANN, NewMemory(text="The user plays chess."))
    assert [(name, len(texts)) for name, texts in await indexed(plain)] == [("small", 5), ("large", 2)]
    assert "chess" in (await later.extension(Memory).search(ANN, "chess?")).items[0].memory.text
    await later.extension(Memory).add(ANN, NewMemory(text=NEW))
    assert await indexed(plain) == [("large", sorted((*TEXTS, "The user plays chess.", NEW)))]


async def test_what_takes_long_is_left_alone_while_it_goes_on(
    plain: DrSai, later: DrSai, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be more than ten minutes since it was begun."""

    async def remembered() -> None:
        await plain.extension(Memory).add(ANN, NewMemory(text="The user plays chess."))
        assert [(model, len(texts)) for model, texts in await indexed(plain)] == [("small", 6), ("large", 4)]

    at_part(monkeypatch, later, 3, remembered)
    at_part(monkeypatch, later, 2, lambda: aged(plain))
    await later.extension(Memory).add(ANN, NewMemory(text=NEW))
    assert await indexed(plain) == [("large", sorted((*TEXTS, NEW, "The user plays chess.")))]


async def test_processes_of_two_models_do_not_undo_each_others_work(
    plain: DrSai, later: DrSai, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a rollout, each embeds what it lacks, and no more."""
    said = iter(("The user plays chess.", "The user plays go."))

    async def remembered() -> None:
        await plain.extension(Memory).add(ANN, NewMemory(text=next(said)))

    at_part(monkeypatch, later, 3, remembered)
    await later.extension(Memory).add(ANN, NewMemory(text=NEW))
    first = sorted((*TEXTS, NEW, "The user plays chess."))
    assert await indexed(plain) == [("large", first)]
    await remembered()
    second = sorted((*first, "The user plays go."))
    assert await indexed(plain) == [("large", first), ("small", second)]
    embedded: list[str] = []

    def noting(request: ModelRequest) -> Any:
        embedded.extend([given] if isinstance(given := request.body["input"], str) else given)
        return longer(meaning(request))

    model.embedded = noting
    await later.extension(Memory).add(ANN, NewMemory(text="The user swims."))
    assert embedded == ["The user swims.", "The user plays go."]
    assert await indexed(plain) == [("large", sorted((*second, "The user swims."))), ("small", second)]
    assert "go" in (await later.extension(Memory).search(ANN, "go?")).items[0].memory.text
