"""Embeddings of the configured endpoint, with the real client and an endpoint over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import openai
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from drsai_backend.models.embeddings import EmbeddingsRequest, read_answer
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import Failure, ModelServer, embeddings_of


@pytest.fixture
def database_url(migrated_sqlite: str) -> str:
    """Nothing here is about storage."""
    return migrated_sqlite


async def embed(service: Service, given: Any = "Hello", **values: Any) -> openai.types.CreateEmbeddingResponse:
    return await service.client.embeddings.create(**{"model": "small", "input": given, **values})


async def test_vectors(serve: Serve, model: ModelServer) -> None:
    service = await serve(embeddings_model="small")
    answer = await embed(service, ["one", "three"], encoding_format="float", dimensions=2)
    assert [(each.index, each.embedding) for each in answer.data] == [(0, [3.0, 0.5]), (1, [5.0, 1.5])]
    assert (answer.model, answer.usage.total_tokens) == ("small", 2)
    sent = model.requests[0]
    assert sent.body == {"model": "small", "input": ["one", "three"], "encoding_format": "float", "dimensions": 2}
    assert sent.api_key == "sk-server"
    assert (await embed(service, [5, 6, 7])).data[0].embedding == [3.0, 0.5]  # base64, tokens
    assert (await embed(service, [[5], [6, 7]])).data[1].embedding == [2.0, 1.5]


@pytest.mark.parametrize("known", ["float", "base64"])
async def test_an_endpoint_that_knows_one_encoding(serve: Serve, model: ModelServer, known: str) -> None:
    service = await serve(embeddings_model="small")

    def answered(request: Any) -> dict[str, Any]:
        request.body["encoding_format"] = known
        return embeddings_of(request)

    model.embedded = answered
    for asked in ("float", "base64"):
        body = {"model": "small", "input": "Hello", "encoding_format": asked}
        [vector] = (await service.http.post("/v1/embeddings", json=body)).json()["data"]
        assert vector["embedding"] == ([5.0, 0.5] if asked == "float" else "AACgQAAAAD8=")


async def test_an_endpoint_of_their_own(serve: Serve, model: ModelServer) -> None:
    """It gets neither the models' key nor a request's."""
    values = {
        "embeddings_model": "small",
        "embeddings_base_url": model.base_url,
        "openai_base_url": "http://127.0.0.1:1",
    }
    service = await serve(**values)
    await embed(service)
    assert model.requests[0].api_key == "none"
    with pytest.raises(openai.BadRequestError) as refused:
        await embed(service, extra_headers={"X-Model-Api-Key": "sk-mine"})
    assert refused.value.param == "X-Model-Api-Key"
    service = await serve(**values, embeddings_api_key=SecretStr("sk-vectors"))
    await embed(service)
    assert model.requests[1].api_key == "sk-vectors"
    service = await serve(embeddings_model="small")
    await embed(service, extra_headers={"X-Model-Api-Key": "sk-mine"})
    assert model.requests[2].api_key == "sk-mine"


async def test_without_an_endpoint(serve: Serve) -> None:
    demo = {"openai_api_key": None, "openai_base_url": None}
    for values, named in (({}, "DRSAI_EMBEDDINGS_MODEL"), ({"embeddings_model": "small", **demo}, "OPENAI_API_KEY")):
        service = await serve(**values)
        with pytest.raises(openai.NotFoundError, match=named):
            await embed(service)
    with pytest.raises(openai.NotFoundError, match="'small'"):
        await embed(service, model="large")


async def test_what_cannot_be_is_refused_by_name(serve: Serve, model: ModelServer) -> None:
    service = await serve(embeddings_model="small")
    cases: list[tuple[str, dict[str, Any]]] = [
        *(("input", {"input": given}) for given in ("", [], ["a", ""], [[]], ["a", 1], None, ["a"] * 2049)),
        ("encoding_format", {"encoding_format": "int8"}),
        ("dimensions", {"dimensions": 0}),
        ("input_type", {"extra_body": {"input_type": "query"}}),
    ]
    for param, values in cases:
        with pytest.raises(openai.BadRequestError) as caught:
            await embed(
                service, **{"given": "Hello", **{("given" if k == "input" else k): v for k, v in values.items()}}
            )
        assert caught.value.param is not None
        assert caught.value.param.partition("[")[0] == param
    assert model.requests == []


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (400, "invalid_request", 400),
        (401, "model_error", 502),
        (429, "model_rate_limit", 429),
        (500, "model_error", 502),
    ],
)
async def test_errors_of_the_endpoint(serve: Serve, model: ModelServer, status: int, code: str, told: int) -> None:
    service = await serve(embeddings_model="small")
    model.embedded = lambda _: Failure(status, "the key sk-server is wrong")
    with pytest.raises(openai.APIStatusError) as caught:
        await embed(service)
    assert (caught.value.status_code, caught.value.code) == (told, code)
    assert "sk-server" not in str(caught.value.body)


@pytest.mark.parametrize(
    "answer",
    [{}, {"data": []}, {"data": [{"index": 1, "embedding": [1.0]}]}, {"data": [{"index": 0, "embedding": "?"}]}],
)
async def test_an_endpoint_that_answers_something_else(
    serve: Serve, model: ModelServer, answer: dict[str, Any]
) -> None:
    service = await serve(embeddings_model="small")
    model.embedded = lambda _: answer
    with pytest.raises(openai.APIStatusError) as caught:
        await embed(service)
    assert (caught.value.status_code, caught.value.code) == (502, "model_error")


async def _dribble(writer: asyncio.StreamWriter) -> None:
    """An answer that never ends, a byte at a time: no time-out between two bytes notices."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n")
    with contextlib.suppress(OSError):
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def test_an_endpoint_that_hangs_or_is_gone(serve: Serve) -> None:
    served: list[asyncio.Task[Any]] = []

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.append(task)
        await _dribble(writer)

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as endpoint:
        url = f"http://127.0.0.1:{endpoint.sockets[0].getsockname()[1]}/v1"
        service = await serve(embeddings_model="small", embeddings_base_url=url, model_timeout=0.3)
        async with asyncio.timeout(60):
            # More than are asked at a time: those that wait are told, too.
            told = await asyncio.gather(*(embed(service) for _ in range(20)), return_exceptions=True)
        errors = [error for error in told if isinstance(error, openai.APIStatusError)]
        assert len(errors) == 20
        assert {(error.status_code, error.code) for error in errors} == {(504, "model_timeout")}
        await asyncio.wait(served)  # all of them were left
    with pytest.raises(openai.APIStatusError) as gone:
        await embed(service)
    assert (gone.value.status_code, gone.value.code) == (502, "model_error")


@settings(deadline=None)
@given(
    st.lists(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=4), min_size=1, max_size=4)
)
def test_both_encodings_say_the_same(vectors: list[list[float]]) -> None:
    data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    texts = [str(index) for index in range(len(vectors))]
    answer = orjson.dumps({"data": data[::-1], "usage": {"prompt_tokens": 3}})
    packed, tokens = read_answer(answer, EmbeddingsRequest(texts, "base64"), "m")
    numbers, again = read_answer(packed, EmbeddingsRequest(texts, "float"), "m")
    assert [each["embedding"] for each in orjson.loads(numbers)["data"]] == vectors
    assert tokens == again == 3
