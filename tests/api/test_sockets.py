"""What all WebSockets have in common: messages one after the other, errors that are told, a heartbeat, and an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from drsai_backend.access.principal import Principal
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.http.sockets import SocketEndpoint, SocketSession
from drsai_backend.errors import Conflict, Unauthenticated
from drsai_backend.json_types import JsonObject
from tests.support.websocket import Socket, connected


class Access:
    """Lets everybody in, until it is told not to."""

    error: Exception | None = None

    async def authenticate(self, *_: object) -> Principal:
        if self.error is not None:
            raise self.error
        return Principal("ann")

    check_again = authenticate


class Engine:
    def check_open(self) -> None:
        pass


class Session(SocketSession):
    """Says what it is told, or raises it."""

    closed = 0

    async def answer(self, caller: Principal | None, body: JsonObject, about: JsonObject) -> None:
        about["of"] = body["say"]
        if body["say"] == "conflict":
            raise Conflict("no")
        if body["say"] == "bug":
            raise ZeroDivisionError
        await self.write({"said": body["say"], "by": caller and caller.user_id})

    def heartbeat(self) -> JsonObject:
        return {"type": "beat"}

    async def close(self) -> None:
        Session.closed += 1


@pytest.fixture(autouse=True)
def none_closed() -> None:
    Session.closed = 0


def web(access: Access) -> Any:
    settings = SimpleNamespace(cors_origins=[])
    return SimpleNamespace(engine=Engine(), bodies=Bodies(1000, 1000), access=access, hosts=None, settings=settings)


@asynccontextmanager
async def opened(access: Access | None = None, **bounds: float) -> AsyncGenerator[Socket]:
    async with connected(SocketEndpoint(Session, web(access or Access()), **bounds), "/") as socket:
        yield socket
    assert Session.closed == 1


async def test_messages_are_answered_one_after_the_other_and_errors_are_told() -> None:
    async with opened() as socket:
        for each in ("a", "conflict", "bug", "b"):
            await socket.say({"say": each})
        await socket.say("no JSON")
        told = [await socket.hear() for _ in range(5)]
    assert told[0] == {"said": "a", "by": "ann"}
    assert [(each["status"], each["of"], each["error"]["message"]) for each in told[1:3]] == [
        (409, "conflict", "no"),
        (500, "bug", "something went wrong here; the log has it"),
    ]
    assert told[3] == {"said": "b", "by": "ann"}
    assert (told[4]["status"], "of" in told[4]) == (400, False)


async def test_a_key_that_holds_no_more_ends_it() -> None:
    async with opened(access := Access()) as socket:
        access.error = Unauthenticated("revoked")
        await socket.say({"say": "a"})
        assert (await socket.hear())["status"] == 401
        assert await socket.hear() is None
        assert socket.closed == 1008


async def test_it_beats_while_there_is_nothing_to_say_and_lasts_for_so_long() -> None:
    async with opened(heartbeat=0.05, seconds=0.3) as socket:
        assert await socket.hear() == {"type": "beat"}
        async with asyncio.timeout(5):
            while (told := await socket.hear())["type"] == "beat":
                pass
        assert told["error"]["code"] == "websocket_connection_limit_reached"
        assert await socket.hear() is None
        assert socket.closed == 1008


async def test_it_beats_as_often_while_it_has_much_to_say() -> None:
    async with opened(heartbeat=0.1) as socket:
        async with asyncio.timeout(5):
            told: list[Any] = []
            while told.count({"type": "beat"}) < 3:
                await socket.say({"say": "a"})
                told.append(await socket.hear())
                await asyncio.sleep(0.01)
    assert {"said": "a", "by": "ann"} in told


async def test_what_is_heard_in_time_is_answered_to_its_end() -> None:
    """The bound is for the connection, not for the answer."""

    class Slow(Session):
        async def answer(self, caller: Principal | None, body: JsonObject, about: JsonObject) -> None:
            await asyncio.sleep(0.2)
            await super().answer(caller, body, about)

    async with connected(SocketEndpoint(Slow, web(Access()), seconds=0.1), "/") as socket:
        await socket.say({"say": "a"})
        assert (await socket.hear())["said"] == "a"
        assert (await socket.hear())["error"]["code"] == "websocket_connection_limit_reached"


async def test_messages_count_among_all_bodies_until_they_are_admitted() -> None:
    admit, end = asyncio.Event(), asyncio.Event()

    class Slow(Session):
        async def answer(self, caller: Principal | None, body: JsonObject, about: JsonObject) -> None:
            await admit.wait()
            self.admitted()
            await self.write({"type": "admitted"})
            await end.wait()
            await super().answer(caller, body, about)

    large = {"say": "a", "more": "x" * 100_000}
    shared = web(Access())
    shared.bodies = Bodies(150_000, 150_000)
    endpoint = SocketEndpoint(Slow, shared)
    async with connected(endpoint, "/") as first, connected(endpoint, "/") as second:
        await first.say(large)
        await asyncio.sleep(0.1)
        await second.say(large)
        told = await second.hear()
        assert (told["status"], told["error"]["code"]) == (503, "overloaded")
        admit.set()
        assert await first.hear() == {"type": "admitted"}
        for _ in range(2):  # All is given back each time.
            end.clear()
            await second.say(large)
            assert await second.hear() == {"type": "admitted"}
            end.set()
            assert (await second.hear())["said"] == "a"
        assert (await first.hear())["said"] == "a"
