"""What becomes of a request that is sent more than once, or refused, where no thread is named: one run, and no threads
that nobody asked for."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from drsai_backend import AssistantAgent, DrSai, RunStatus, Thread
from drsai_backend.database.runs import repeats
from drsai_backend.datamodel import Run
from drsai_backend.errors import DatabaseUnavailable
from tests.support.scripted import ScriptedClient
from tests.support.threads import settings as settings_with
from tests.support.threads import until

URL = "/v1/chat/completions"
RETRY = {"x-stainless-retry-count": "1"}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LOOK: Any = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}]


class Process:
    """One process of a service whose team `ann` repeats what it is told; all have the same model."""

    def __init__(self, drsai: DrSai, model: ScriptedClient) -> None:
        self.drsai = drsai
        self.model = model
        self.app: Any = drsai.app()
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app=self.app), base_url="http://test", timeout=30)

    async def ask(self, *texts: Any, headers: dict[str, str] | None = None, **values: Any) -> httpx.Response:
        return await self.http.post(URL, json=body(*texts, **values), headers=headers or {})

    async def threads(self) -> list[Thread]:
        return await self.drsai.db.get(Thread, load_state=False)

    async def runs(self) -> list[Run]:
        return await self.drsai.db.get(Run)


def body(*texts: Any, **values: Any) -> dict[str, Any]:
    said = [{"role": "assistant" if number % 2 else "user", "content": text} for number, text in enumerate(texts)]
    return {"model": "ann", "messages": said, **values}


Make = Callable[..., Awaitable[Process]]


@pytest.fixture
async def make(database_url: str) -> AsyncIterator[Make]:
    async with AsyncExitStack() as stack:
        model = ScriptedClient(lambda messages, _: f"to {messages[-1].content}")

        async def made(**values: Any) -> Process:
            drsai = DrSai({"ann": lambda: AssistantAgent("ann", model)}, database_url, settings=settings_with(**values))
            process = Process(await stack.enter_async_context(drsai), model)
            await stack.enter_async_context(process.http)
            return process

        yield made


class Connection:
    """A request straight to the application, whose client may leave."""

    def __init__(self, process: Process, headers: dict[str, str] | None = None, **values: Any) -> None:
        self._text = json.dumps(body("Do it.", **values)).encode()
        self._left, self._read = asyncio.Event(), False
        self.answer = b""
        given = {"host": "test", "content-type": "application/json", **(headers or {})}
        pairs = [(name.encode(), value.encode()) for name, value in given.items()]
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": URL}
        rest = {"scheme": "http", "raw_path": URL.encode(), "query_string": b"", "root_path": "", "headers": pairs}
        ends = {"client": ("127.0.0.1", 1), "server": ("test", 80)}
        self.task = asyncio.create_task(process.app({**scope, **rest, **ends}, self._receive, self._send))

    async def leave(self) -> None:
        self._left.set()
        await self.task

    async def _receive(self) -> dict[str, Any]:
        if not self._read:
            self._read = True
            return {"type": "http.request", "body": self._text, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.answer += message.get("body", b"")


FIRST = ("hello",)
FOREIGN = ("before", "was said", "hello")
PASSED = ("one", "to one", "else")
"""An earlier point of a conversation that continues elsewhere: a fork."""
HEAD = ("one", "to one", "two", "to two", "three")


@pytest.mark.parametrize("texts", [FIRST, FOREIGN, PASSED, HEAD], ids=["first", "foreign", "passed", "head"])
async def test_a_key_makes_one_run_where_no_thread_is_named(make: Make, texts: tuple[str, ...]) -> None:
    """At the same moment and later, in two processes."""
    processes = [await make(), await make()]
    await processes[0].ask("one")
    await processes[0].ask("one", "to one", "two")
    before = len(await processes[0].runs())
    key = {"Idempotency-Key": "k"}
    tries = [processes[number % 2].ask(*texts, headers=key) for number in range(4)]
    answers = [*await asyncio.gather(*tries), await processes[1].ask(*texts, headers=key)]
    assert [each.status_code for each in answers] == [200] * 5
    assert len({each.headers["x-run-id"] for each in answers}) == 1
    assert len(await processes[0].runs()) == before + 1
    assert len(await processes[0].threads()) == (1 if texts is HEAD else 2)
    changed = await processes[1].ask(*texts[:-1], "another", headers=key)
    assert (changed.status_code, changed.json()["error"]["code"]) == (409, "idempotency_mismatch")


async def test_what_is_refused_leaves_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a fork nor a rewound thread, however often it is tried."""
    process = await make()
    await process.ask("one")
    await process.ask("one", "to one", "two")
    window = {"X-OpenWebUI-Chat-Id": "w"}
    await process.ask("one", headers=window)
    await process.ask("one", "to one", "two", headers=window)
    tool = {"type": "function", "function": {"name": "look"}}
    for wrong in (
        {"messages": body("one", "to one", LOOK)["messages"]},
        {"response_format": {"type": "json_object"}, "tools": [tool], "tool_choice": "required"},
    ):
        for headers in ({}, window):
            answer = await process.ask("one", "to one", "else", headers=headers, **wrong)
            assert answer.status_code == 400, answer.text

    async def away(*_: Any, **__: Any) -> Any:
        raise DatabaseUnavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(process.drsai.engine._starter, "start", away)
        assert (await process.ask("one", "to one", "else")).status_code == 503
    threads = await process.threads()
    assert [len(each.messages) for each in threads] == [4, 4]
    assert [each.branch for each in threads] == [None, None]
    assert (await process.ask("one", "to one", "else")).status_code == 200
    assert len(await process.threads()) == 3


async def test_a_run_that_was_joined_is_not_stopped_with_its_first_client(make: Make) -> None:
    process = await make(on_disconnect="cancel")
    process.model.hold()
    first = Connection(process)
    await process.model.asked.wait()
    second = Connection(process, RETRY)
    attempts = process.drsai.engine.repeats._waiting

    async def have_joined() -> bool:
        return [each.listeners for found in attempts.values() for each in found] == [2]

    await until(have_joined)
    await first.leave()
    process.model.release()
    await second.task
    assert json.loads(second.answer)["choices"][0]["message"]["content"] == "to Do it."
    assert [run.status for run in await process.runs()] == [RunStatus.COMPLETED]
    # The last one that leaves does stop it.
    process.model.hold()
    third = Connection(process, thread_id="other")
    await process.model.asked.wait()
    await third.leave()
    assert [run.status for run in await process.runs()] == [RunStatus.COMPLETED, RunStatus.STOPPED]


async def test_of_runs_whose_clients_left_nothing_but_their_names_is_kept(make: Make) -> None:
    process = await make()
    process.model.hold()
    gone = Connection(process)
    await process.model.asked.wait()
    await gone.leave()
    [live] = map(weakref.ref, process.drsai.engine._running._live_runs())
    process.model.release()
    await until(lambda: _are_over(process))
    gc.collect()
    assert live() is None
    for _ in range(2):
        again = await process.ask("Do it.", headers=RETRY)
        assert again.json()["choices"][0]["message"]["content"] == "to Do it."
    assert len(await process.runs()) == 1


async def _are_over(process: Process) -> bool:
    return all(run.status.is_final for run in await process.runs()) and not process.drsai.engine._running.count


async def test_how_far_back_another_process_looks(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    here, elsewhere = await make(), await make()
    told = [(await here.ask(text)).headers["x-run-id"] for text in ("a", "b", "c")]
    monkeypatch.setattr(repeats, "_LOOKED_AT", 2)
    found = [(await elsewhere.ask(text, headers=RETRY)).headers["x-run-id"] for text in ("c", "b", "a")]
    assert found[:2] == told[:0:-1]
    assert found[2] not in told


async def test_what_cannot_be_in_the_background(make: Make) -> None:
    process = await make()
    for policy in ("reject", "interrupt", "steer"):
        refused = await process.ask("x", background=True, on_busy=policy, thread_id="t")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "on_busy")
    assert not await process.runs()
