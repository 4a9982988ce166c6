"""Answers that are kept: on SQLite, PostgreSQL and a real Redis."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from autogen_core import FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    UserMessage,
)
from PIL import Image as Picture

from drsai_backend.database import Database
from drsai_backend.datamodel.owner import Owner
from drsai_backend.models import Asker, ModelAnswer, ModelClientFactory
from drsai_backend.models.cache.base import AnswerStore
from drsai_backend.models.cache.cache import DatabaseAnswers
from drsai_backend.models.cache.in_redis import RedisAnswers
from drsai_backend.models.cache.request_key import request_key
from drsai_backend.models.profiles.schema import CacheBounds
from tests.models.profiles.conftest import MakeModels
from tests.support.model_server import Failure, ModelServer, Reply, ToolCall

Name = Callable[[str], str]
ANN, BOB, EVE = Owner("a", "ann"), Owner("a", "bob"), Owner("b", "eve")
CACHED: dict[str, Any] = {"retries": 0, "cache": {"ttl": 60}}


def asked(text: str = "Hello?") -> list[UserMessage]:
    return [UserMessage(content=text, source="user")]


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("WITHOUT redis-server: apt-get installs it, as .ci/run does")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("redis")
    options = ["--port", str(port), "--save", "", "--dir", str(folder), "--bind", "127.0.0.1"]
    process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 0.1).close()
                break
            except OSError:
                assert time.monotonic() < until, "redis-server does not listen"
                time.sleep(0.01)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def place(request: pytest.FixtureRequest) -> dict[str, str]:
    """Where answers are kept."""
    if request.param == "redis":
        return {"redis": request.getfixturevalue("redis_url")}
    kind = "migrated_sqlite" if request.param == "sqlite" else "migrated_postgres"
    return {"database": request.getfixturevalue(kind)}


@pytest.fixture
async def store(place: dict[str, str]) -> AsyncIterator[AnswerStore]:
    if "redis" in place:
        redis = RedisAnswers(place["redis"])
        await redis._redis.flushall()
        yield redis
        await redis.close()
        return
    async with Database(place["database"]) as database:
        yield DatabaseAnswers(database)


async def test_answers_are_kept_for_a_tenant_and_go_with_their_user(store: AnswerStore) -> None:
    bounds = CacheBounds()
    await store.put(ANN, "aa", "one", 60, bounds)
    await store.put(BOB, "aa", "two", 60, bounds)
    await store.put(BOB, "bb", "three", 60, bounds)
    await store.put(ANN, "cc", "over", 0.001, bounds)
    await asyncio.sleep(0.01)
    found = [await store.get(who, key) for who, key in ((BOB, "aa"), (ANN, "bb"), (EVE, "aa"), (ANN, "cc"))]
    assert found == ["one", "three", None, None]
    assert await store.forget(BOB) == 1
    assert [await store.get(ANN, "aa"), await store.get(ANN, "bb")] == ["one", None]


async def test_answers_are_bounded_by_number_and_bytes(store: AnswerStore) -> None:
    few, small = CacheBounds(max_entries=3), CacheBounds(max_bytes=1024)
    for number in range(17):  # as many as a process keeps between two looks, and one
        await store.put(ANN, f"{number:02x}", "x", 60 + number, few)
    kept = [number for number in range(17) if await store.get(ANN, f"{number:02x}")]
    assert kept == [14, 15, 16]
    for number in range(16):
        await store.put(EVE, f"{number:02x}", "x" * 400, 60 + number, small)
    await store.put(EVE, "ff", "x" * 400, 90, small)
    assert len([number for number in range(256) if await store.get(EVE, f"{number:02x}")]) <= 17


@pytest.fixture
async def cached(
    models: MakeModels, place: dict[str, str], store: AnswerStore
) -> AsyncIterator[Callable[..., ModelClientFactory]]:
    databases: list[Database] = []

    def make(**named: Any) -> ModelClientFactory:
        if "redis" in place:
            return models(url=place["redis"], **named)
        databases.append(Database(place["database"]))
        return models(database=databases[-1], **named)

    yield make
    for each in databases:
        await each.close()


async def test_an_equal_request_is_answered_without_asking(
    server: ModelServer, cached: Callable[..., ModelClientFactory], name: Name
) -> None:
    numbers = iter(range(100))
    server.script(name("m"), lambda _: f"answer number {next(numbers)}")
    profile = {"model": name("m"), **CACHED}
    factory = cached(fast=profile, other={**profile, "parameters": {"temperature": 0.5}}, off={"model": name("m")})
    ann, bob, eve = (factory.create("fast").bound(Asker(who)) for who in (ANN, BOB, EVE))  # type: ignore[attr-defined]
    first, again = await ann.create(asked()), await bob.create(asked())
    assert (first.content, first.cached, first.usage.prompt_tokens) == ("answer number 0", False, 10)
    assert (again.content, again.cached, again.usage.prompt_tokens) == ("answer number 0", True, 0)
    assert (again.profile, again.model, again.attempts) == ("fast", name("m"), 0)
    pieces = [item async for item in ann.create_stream(asked())]
    assert pieces[:-1] == ["answer", " number", " 0"]
    assert pieces[-1].cached
    others = [
        await eve.create(asked()),
        await ann.create(asked("Hallo?")),
        await ann.create(asked(), extra_create_args={"temperature": 0.1}),
        await ann.create(asked(), tools=[{"name": "t", "description": "", "parameters": {"type": "object"}}]),
        await factory.create("fast").bound(Asker(ANN, seed=7)).create(asked()),  # type: ignore[attr-defined]
        await factory.create("other").bound(Asker(ANN)).create(asked()),  # type: ignore[attr-defined]
        await factory.create("off").create(asked()),
        await factory.create("off").create(asked()),
    ]
    assert [each.content for each in others] == [f"answer number {number}" for number in range(1, 9)]


async def test_another_default_model_has_answers_of_its_own(
    cached: Callable[..., ModelClientFactory], server: ModelServer, name: Name
) -> None:
    """`DRSAI_MODEL`, which a profile of `provider: default` asks that names no model."""
    server.script(None, lambda request: request.model)
    profile = {"provider": "default", **CACHED}
    answers: list[tuple[object, bool]] = []
    for model in ("former", "newer", "newer"):
        client: Any = cached(model=name(model), any=profile).create("any")
        answer = await client.bound(Asker(ANN)).create(asked())
        answers.append((answer.content, answer.cached))
    assert answers == [(name("former"), False), (name("newer"), False), (name("newer"), True)]


async def test_equal_requests_at_once_ask_once(
    server: ModelServer, models: MakeModels, migrated_sqlite: str, name: Name
) -> None:
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def slow(_: Any) -> Any:
        loop.call_soon_threadsafe(started.set)
        await asyncio.sleep(0.1)
        return "once"

    server.script(name("m"), slow)
    async with Database(migrated_sqlite) as database:
        client = models(database=database, fast={"model": name("m"), **CACHED}).create("fast").bound(Asker(ANN))  # type: ignore[attr-defined]
        first = asyncio.create_task(client.create(asked()))
        await started.wait()
        rest = [asyncio.create_task(client.create(asked())) for _ in range(20)]
        answers = await asyncio.gather(first, *rest)
        assert [each.content for each in answers] == ["once"] * 21
        assert [each.cached for each in answers] == [False, *[True] * 20]
        assert len(server.requests) == 1
        leader = asyncio.create_task(client.create(asked("Other?")))
        started.clear()
        await started.wait()
        follower = asyncio.create_task(client.create(asked("Other?")))
        await asyncio.sleep(0)
        leader.cancel()
        assert (await follower).content == "once", "where the first is stopped, the next one asks"
        assert not (await follower).cached


async def test_what_is_kept(server: ModelServer, models: MakeModels, migrated_sqlite: str, name: Name) -> None:
    call, cut = Reply(tool_calls=[ToolCall("t", {"a": 1}, id="call_1")]), Reply("Cut", finish_reason="length")
    server.script(name("m"), [call, cut, "whole", Failure(500)])
    server.script(name("spare"), ["spare one", "spare two"])
    async with Database(migrated_sqlite) as database:
        factory = models(
            database=database,
            fast={"model": name("m"), **CACHED, "fallback": ["spare"]},
            spare={"model": name("spare"), "retries": 0},
        )
        client = factory.create("fast").bound(Asker(ANN))  # type: ignore[attr-defined]
        first, second = await client.create(asked("call")), await client.create(asked("call"))
        assert second.cached
        assert (second.content[0].name, second.content[0].arguments) == ("t", '{"a": 1}')  # type: ignore[union-attr]
        assert second.content[0].id != first.content[0].id, "ids are unique in a conversation"  # type: ignore[union-attr]
        assert (await client.create(asked("cut"))).content == "Cut"
        assert (await client.create(asked("cut"))).content == "whole", "what broke off is not kept"
        assert (await client.create(asked("spare"))).content == "spare one"
        server.script(name("m"), ["own"])
        assert (await client.create(asked("spare"))).content == "own", "a spare model's answer is its own"


def test_a_request_is_known_by_all_but_the_ids_of_calls() -> None:
    def told(call_id: str, result: str = "3", picture: str = "red") -> str | None:
        image = Image(Picture.new("RGB", (2, 2), picture))
        call = FunctionCall(call_id, "{}", "add")
        done = FunctionExecutionResult(content=result, name="add", call_id=call_id, is_error=False)
        messages = [
            UserMessage(content=["Add", image], source="user"),
            AssistantMessage(content=[call], source="a"),
            FunctionExecutionResultMessage(content=[done]),
        ]
        return request_key({"model": "m"}, messages, {})

    assert told("c1") == told("c2")
    assert len({told("c1"), told("c1", "4"), told("c1", picture="blue")}) == 3
    assert request_key({"model": object()}, asked(), {}) is None


async def test_nobody_in_particular_shares_answers_with_nobody(
    server: ModelServer, models: MakeModels, migrated_sqlite: str, name: Name
) -> None:
    server.script(name("m"), ["one", "two"])
    async with Database(migrated_sqlite) as database:
        client = models(database=database, fast={"model": name("m"), **CACHED}).create("fast")
        assert [(await client.create(asked())).content for _ in range(2)] == ["one", "two"]


async def test_a_store_that_is_away_is_none(server: ModelServer, models: MakeModels, name: Name) -> None:
    server.script(name("m"), ["one", "two"])
    client = models(url="redis://127.0.0.1:1/0", fast={"model": name("m"), **CACHED}).create("fast").bound(Asker(ANN))  # type: ignore[attr-defined]
    answers = [await client.create(asked()) for _ in range(2)]
    assert [each.content for each in answers if isinstance(each, ModelAnswer)] == ["one", "two"]


def test_a_url_that_is_none(models: MakeModels, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="DRSAI_MODEL_CACHE_URL must begin with redis://"):
        models(url="ftp://x", fast={"model": "m", **CACHED})
