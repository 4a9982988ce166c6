"""Stores with vectors: what is embedded, what is not embedded twice, and how another model takes over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend import DrSai
from drsai_backend.datamodel import WorkJob, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.knowledge.base import Chunking, NewFile, NewStore, Question
from drsai_backend.features.knowledge.extension import Knowledge
from drsai_backend.features.knowledge.rows import indexing
from tests.features.knowledge.conftest import QUICK, until
from tests.support.model_server import Failure, ModelRequest, ModelServer
from tests.support.threads import settings

ANN = Owner("acme", "ann")
TEXTS = {"a.txt": "The cat sleeps.", "b.txt": "A dog barks.", "c.txt": "Stocks are rising."}
Open = Callable[..., Awaitable[DrSai]]


def _embedded(request: ModelRequest) -> dict[str, Any]:
    """Animals are alike, and nothing else is."""
    vectors = [[1.0, 0.1, 0.0] if any(word in text for word in ("cat", "dog", "pet")) else [0.0, 0.0, 1.0]
               for text in request.body["input"]]  # fmt: skip
    return {
        "object": "list",
        "model": request.body["model"],
        "data": [{"object": "embedding", "index": at, "embedding": each} for at, each in enumerate(vectors)],
        "usage": {"prompt_tokens": 1, "total_tokens": 1},
    }


@pytest.fixture
async def opened(database_url: str) -> AsyncIterator[tuple[Open, ModelServer]]:
    async with AsyncExitStack() as stack:
        server = stack.enter_context(ModelServer())
        server.embedded = _embedded

        async def open_one(**values: Any) -> DrSai:
            given = {
                "embeddings_model": "small",
                "embeddings_base_url": server.base_url,
                "model_max_retries": 0,
                **values,
            }
            return await stack.enter_async_context(
                DrSai(settings=settings(database_url=database_url, **QUICK, **given))
            )

        yield open_one, server


async def _filled(drsai: DrSai, texts: dict[str, str]) -> str:
    knowledge = drsai.extension(Knowledge)
    files = [(await drsai.files.create(ANN, name, text.encode())).file_id for name, text in texts.items()]
    store = await knowledge.create(ANN, NewStore(name="pets"), [NewFile(file_id=each) for each in files])
    await until(lambda: _is(drsai, store.store_id, status="completed"))
    return store.store_id


async def _is(drsai: DrSai, store: str, **values: object) -> bool:
    info = await drsai.extension(Knowledge).get(ANN, store)
    return {name: getattr(info, name) for name in values} == values


async def _find(drsai: DrSai, **more: Any) -> Any:
    return await drsai.extension(Knowledge).search(ANN, ["pets"], Question(queries=["Which pet?"], **more))


async def test_vectors_find_what_no_keyword_does(opened: tuple[Open, ModelServer]) -> None:
    open_one, _ = opened
    drsai = await open_one()
    store = await _filled(drsai, TEXTS)
    assert await _is(drsai, store, model="small")
    found = await _find(drsai, score_threshold=0.5)
    assert (found.mode, found.notes) == ("hybrid", [])
    assert sorted(each.filename for each in found.passages) == ["a.txt", "b.txt"]
    assert all(each.cosine is not None and each.cosine > 0.9 for each in found.passages)
    by_words = await _find(drsai, mode="keyword")
    assert (by_words.mode, by_words.passages) == ("keyword", [])


async def test_an_endpoint_that_is_away_leaves_keywords(opened: tuple[Open, ModelServer]) -> None:
    open_one, server = opened
    drsai = await open_one()
    await _filled(drsai, {"a.txt": "Which pet is it? A cat."})
    server.embedded = lambda _: Failure(500, "broken", "server_error")
    found = await _find(drsai)
    assert (found.mode, [each.filename for each in found.passages]) == ("keyword", ["a.txt"])
    assert found.notes == ["The embedding model gave no answer, so it was searched by keywords only."]


async def test_an_endpoint_that_refuses_a_question_leaves_keywords(opened: tuple[Open, ModelServer]) -> None:
    open_one, server = opened
    drsai = await open_one()
    await _filled(drsai, {"a.txt": "Which pet is it? A cat."})
    server.embedded = lambda _: Failure(400, "too long", "invalid_request_error")
    found = await _find(drsai)
    assert (found.mode, [each.filename for each in found.passages]) == ("keyword", ["a.txt"])
    assert found.notes == ["The embedding model refuses the question, so it was searched by keywords only."]


async def test_another_model_takes_over_while_the_old_index_is_searched(
    opened: tuple[Open, ModelServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_one, server = opened
    first = await open_one()
    store = await _filled(first, {**TEXTS, "d.txt": "Which pet? None."})
    await first.close()
    server.embedded = lambda _: Failure(503, "not yet", "server_error")
    drsai = await open_one(embeddings_model="large")
    knowledge = drsai.extension(Knowledge)
    await knowledge.reindex(ANN, store)
    await until(lambda: _is(drsai, store, embedding_anew="large"))
    found = await _find(drsai)
    assert (found.mode, [each.filename for each in found.passages][:1]) == ("keyword", ["d.txt"])
    assert any("`drsai knowledge reindex`" in note for note in found.notes)
    server.embedded = _embedded
    copied: list[int] = []
    copy = indexing.copied

    def copy_twice(session: Any, entries: Any, **of: Any) -> None:
        copied.append(len(entries))
        copy(session, entries, **of)

    swaps, swap = [False], indexing.swap
    monkeypatch.setattr(indexing, "copied", copy_twice)
    monkeypatch.setattr(indexing, "swap", lambda *of, **more: swap(*of, **more) if not swaps or swaps.pop() else False)
    await knowledge.reindex(ANN, store)
    await until(lambda: _is(drsai, store, model="large", embedding_anew=None))
    assert sum(copied) == 4, "a further pass copies what it does not have"
    found = await _find(drsai, score_threshold=0.5)
    assert (found.mode, found.notes) == ("hybrid", [])
    assert sorted(each.filename for each in found.passages) == ["a.txt", "b.txt", "d.txt"]
    assert (await knowledge.get(ANN, store)).chunks == 4


def _by_model(**made: Callable[[ModelRequest], Any]) -> Callable[[ModelRequest], Any]:
    """What each model of the endpoint answers; there is no other one."""

    def answer(request: ModelRequest) -> Any:
        named = made.get(request.body["model"])
        return Failure(404, "no such model", "not_found_error") if named is None else named(request)

    return answer


def _turned(request: ModelRequest) -> dict[str, Any]:
    """Another model's vectors: as many numbers, and none means the same."""
    answer = _embedded(request)
    for each in answer["data"]:
        each["embedding"] = each["embedding"][::-1]
    return answer


def _busy(_: ModelRequest) -> Failure:
    return Failure(503, "not yet", "server_error")


async def test_the_old_vectors_are_searched_while_the_endpoint_has_the_old_model(
    opened: tuple[Open, ModelServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drsai_backend.search.embedding._BELIEVED", 0.0)
    open_one, server = opened
    first = await open_one()
    store = await _filled(first, TEXTS)
    await first.close()
    server.embedded = _by_model(small=_embedded, large=_busy)
    drsai = await open_one(embeddings_model="large")
    await drsai.extension(Knowledge).reindex(ANN, store)
    await until(lambda: _is(drsai, store, embedding_anew="large"))
    found = await _find(drsai, score_threshold=0.5)
    assert (found.mode, found.notes) == ("hybrid", [])
    assert sorted(each.filename for each in found.passages) == ["a.txt", "b.txt"]
    # An endpoint that answers with its own vectors, whatever it is asked for, is seen through.
    server.embedded = _by_model(small=_turned, large=_busy)
    found = await _find(drsai)
    assert (found.mode, found.passages) == ("keyword", [])
    assert [note for note in found.notes if "is not embedded by large" in note]
    server.embedded = _by_model(large=_turned)
    await drsai.extension(Knowledge).reindex(ANN, store)
    await until(lambda: _is(drsai, store, model="large", embedding_anew=None))
    found = await _find(drsai, score_threshold=0.5)
    assert sorted(each.filename for each in found.passages) == ["a.txt", "b.txt"]


async def test_other_dimensions_are_another_model(opened: tuple[Open, ModelServer]) -> None:
    open_one, server = opened
    first = await open_one()
    store = await _filled(first, TEXTS)
    await first.close()

    def shortened(request: ModelRequest) -> dict[str, Any]:
        answer = _embedded(request)
        for each in answer["data"]:
            each["embedding"] = each["embedding"][: request.body.get("dimensions", 3)]
            each["embedding"][0] += 0.5
        return answer

    server.embedded = shortened
    drsai = await open_one(embeddings_dimensions=2)
    file = await drsai.files.create(ANN, "d.txt", b"One more cat.")
    await drsai.extension(Knowledge).attach(ANN, store, [NewFile(file_id=file.file_id)])
    await until(lambda: _is(drsai, store, model="small (2 dimensions)", status="completed", embedding_anew=None))
    found = await _find(drsai, mode="vector")
    assert (found.mode, found.notes, len(found.passages)) == ("vector", [], 4)


async def test_a_search_during_which_the_store_is_swapped_is_repeated(
    opened: tuple[Open, ModelServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would ask an index that is being emptied."""
    open_one, _ = opened
    drsai = await open_one()
    store = await _filled(drsai, TEXTS)
    find, asked = drsai.extension(Knowledge).host.search.find, list[Any]()

    async def late(indexes: Any, query: Any) -> Any:
        if not asked:
            await drsai.extension(Knowledge).reindex(ANN, store)
            await until(lambda: _is_over(drsai, store))
        asked.append(indexes)
        return await find(indexes, query)

    monkeypatch.setattr(drsai.extension(Knowledge).host.search, "find", late)
    found = await _find(drsai, score_threshold=0.5)
    assert sorted(each.filename for each in found.passages) == ["a.txt", "b.txt"]
    assert len(asked) == 2


async def test_chunks_that_another_models_process_has_stored_get_vectors(
    opened: tuple[Open, ModelServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed before it could have the store embedded anew, and one of the store's model has read the file."""
    open_one, _ = opened
    first = await open_one()
    store = await _filled(first, TEXTS)
    await first.close()
    other = await open_one(embeddings_model="large")
    with monkeypatch.context() as cut:
        cut.setattr(indexing, "complete", _cut)
        file = await other.files.create(ANN, "d.txt", b"One more cat.")
        await other.extension(Knowledge).attach(ANN, store, [NewFile(file_id=file.file_id)])
        await until(lambda: _is(other, store, chunks=4))
        await other.close()
    drsai = await open_one()
    await until(lambda: _is(drsai, store, status="completed"))
    found = await _find(drsai, score_threshold=0.5)
    assert sorted(each.filename for each in found.passages) == ["a.txt", "b.txt", "d.txt"]


def _cut(*_: object, **__: object) -> None:
    raise OSError


async def _is_over(drsai: DrSai, store: str) -> bool:
    knowledge = drsai.extension(Knowledge)
    jobs = await drsai.database.read(lambda session: session.execute(sa.select(table_of(WorkJob).c.id)).first())
    return jobs is None and await knowledge.reindexing(ANN, store) is None


async def test_a_store_without_vectors_gets_them_with_the_next_file(opened: tuple[Open, ModelServer]) -> None:
    open_one, _ = opened
    first = await open_one(embeddings_model=None)
    store = await _filled(first, TEXTS)
    found = await _find(first)
    assert found.notes == ["There is no embedding model, so it was searched by keywords only."]
    await first.close()
    drsai = await open_one()
    file = await drsai.files.create(ANN, "d.txt", b"One more cat.")
    await drsai.extension(Knowledge).attach(ANN, store, [NewFile(file_id=file.file_id)])
    await until(lambda: _is(drsai, store, model="small", status="completed"))
    found = await _find(drsai, score_threshold=0.5)
    assert sorted(each.filename for each in found.passages) == ["a.txt", "b.txt", "d.txt"]


async def test_a_file_whose_later_chunks_are_never_embedded_fails(opened: tuple[Open, ModelServer]) -> None:
    """What is stored of it at the first attempt is no progress of those after it."""
    open_one, server = opened
    server.embedded = lambda request: (
        Failure(500, "broken", "server_error") if "poison" in str(request.body) else _embedded(request)
    )
    drsai = await open_one()
    knowledge = drsai.extension(Knowledge)
    text = "\n\n".join(f"# Part {number}\n\n" + f"word{number} " * 60 for number in range(39)) + "\n\n# End\n\npoison"
    file = await drsai.files.create(ANN, "long.md", text.encode())
    new = NewFile(file_id=file.file_id, chunking=Chunking(size=100, overlap=0))
    store = (await knowledge.create(ANN, NewStore(name="pets"), [new])).store_id
    waits = (table_of(WorkJob).c.claim.is_(None), table_of(WorkJob).c.next_at.is_not(None))

    async def is_failed() -> bool:
        now = sa.update(table_of(WorkJob)).where(*waits).values(next_at=utcnow())  # Not after seconds and hours.
        await drsai.database.write(lambda session: session.execute(now))
        return (await knowledge.get_file(ANN, store, file.file_id)).status == "failed"

    await until(lambda: _is(drsai, store, chunks=32))
    await until(is_failed)
    failed = await knowledge.get_file(ANN, store, file.file_id)
    assert (failed.error_code, failed.done) == ("server_error", 0)


async def test_an_endpoint_that_refuses_a_text_fails_its_file_alone(opened: tuple[Open, ModelServer]) -> None:
    open_one, server = opened
    server.embedded = lambda request: (
        Failure(400, "too long", "invalid_request_error") if "dog" in str(request.body) else _embedded(request)
    )
    drsai = await open_one()
    store = await _filled(drsai, TEXTS)
    files = (await drsai.extension(Knowledge).list_files(ANN, store)).items
    assert {each.filename: each.status for each in files} == {
        "a.txt": "completed", "b.txt": "failed", "c.txt": "completed",
    }  # fmt: skip
