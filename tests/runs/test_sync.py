"""`DrSai.sync`: the same calls without asyncio, from threads, notebooks and interrupted programs."""

from __future__ import annotations

import asyncio
import re
import runpy
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response, TaskResult
from autogen_agentchat.messages import TextMessage

from drsai_backend import DrSai
from drsai_backend.datamodel import RunStatus, Thread
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError, DrSaiError, NotFound, NotOpened, UnknownModel
from drsai_backend.runs import RunEnded
from drsai_backend.sync import SyncDrSai
from tests.support.commands import ROOT
from tests.support.threads import settings


class Waiting(BaseChatAgent):
    """Says nothing until it is cancelled."""

    def __init__(self, began: Callable[[], None]) -> None:
        super().__init__("waiting", "waits")
        self._began = began

    produced_message_types = (TextMessage,)

    async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
        self._began()
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        cancellation_token.link_future(waiting)
        await waiting
        raise AssertionError

    async def on_reset(self, cancellation_token: Any) -> None:
        pass


@pytest.fixture
def drsai(database_url: str) -> DrSai:
    return DrSai(database_url=database_url, settings=settings())


def test_the_stub_says_what_the_calls_are() -> None:
    """For editors and type checkers, which do not see what `__getattr__` finds."""
    made = runpy.run_path(str(ROOT / "docs/make_stub.py"))
    assert made["STUB"].read_text() == made["stub"](), "drsai_backend/sync.pyi is out of date: run `make stub`"


def test_all_calls(drsai: DrSai):
    with drsai.sync as sync:
        assert sync is drsai.sync
        assert {"run", "user", "tools", "open"} <= {*dir(sync)}
        result = sync.user("ada").run("writers", "Write about rain.", thread_id="t")
        assert result.status is RunStatus.COMPLETED
        *messages, last = sync.user("ada").run_stream("writers", "Now snow.", thread_id="t")
        assert isinstance(last, TaskResult)
        assert last.messages[-1].id in {getattr(message, "id", None) for message in messages}
        handle = sync.user("ada").start("assistant", "hello", thread_id="u")
        assert isinstance([*handle.events()][-1], RunEnded)
        assert handle.wait().status is RunStatus.COMPLETED
        assert [done.seq for done in handle.transcript()] == [1, 2]
        assert handle.poll() == []
        assert {thread.thread_id for thread in sync.user("ada").list_threads().items} == {"t", "u"}
        assert [run.run_id for run in sync.user("ada").list_runs("u").items] == [handle.run_id]
        assert sync.user("ada").get_run(handle.run_id).status is RunStatus.COMPLETED
        assert len(sync.user("ada").list_messages("t")) == sync.user("ada").get_thread("t").message_count
        sync.user("ada").delete_thread("u")
        assert len(sync.db.get(Thread)) == 1
        with pytest.raises(UnknownModel):
            sync.run("nobody", "hello")
    assert not any(thread.name == "drsai" for thread in threading.enumerate())


def test_files_and_tools(drsai: DrSai):
    ann = Owner("default", "ann")
    with drsai.sync as sync:
        info = sync.files.create(ann, "a.bin", iter([b"one, ", b"", b"two"]))
        assert sync.files.read(ann, info.file_id) == b"one, two"
        _, place = sync.files.open(ann, info.file_id)
        assert b"".join(sync.files.stream(place, 1, 4)) == b"ne,"
        sync.files.delete(ann, info.file_id)
        assert sync.files.list(ann).items == []

        acme, config = (
            sync.user("ann", tenant="acme").tools,
            {"description": "x", "endpoint": {"url": "https://a.example/"}},
        )
        assert [acme.put("x", config).version for _ in range(2)] == [1, 2]
        assert [tool.name for tool in acme.list().items] == ["x"]
        assert acme.statistics("x").calls == 0
        for call in (sync.tools.get, sync.tools.delete, sync.tools.statistics):
            with pytest.raises(NotFound):
                call("x")  # another tenant's
        with pytest.raises(NotFound):
            sync.tools.invoke("x", {})
        acme.delete("x")
        assert acme.list().items == []


def test_not_open_and_closed(drsai: DrSai):
    with pytest.raises(NotOpened, match=r"with DrSai\(\.\.\.\)\.sync as drsai"):
        drsai.sync.run("writers", "rain")
    with drsai.sync as sync, pytest.raises(ConfigurationError, match="open already, in another event loop"):
        sync.open()
    for call in (lambda: sync.run("writers", "rain"), lambda: [*sync.run_stream("writers", "rain")]):
        with pytest.raises(NotOpened, match="was closed"):
            call()
    with pytest.raises(ConfigurationError, match="make a new one"):
        sync.open()
    sync.close()
    assert not any(thread.name == "drsai" for thread in threading.enumerate())


def test_from_several_threads(drsai: DrSai):
    with drsai.sync as sync:
        texts: dict[int, str] = {}
        threads = [
            threading.Thread(target=lambda n=n: texts.update({n: sync.run("assistant", f"number {n}").text}))
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(re.search(rf"\b{number}\b", text) for number, text in texts.items())
    assert len(texts) == 8


async def test_inside_a_running_event_loop(drsai: DrSai):
    """As in a notebook, which is an event loop."""
    with drsai.sync as sync:
        assert sync.run("assistant", "hello").text


async def test_beside_the_event_loop_that_opened_it(drsai: DrSai):
    async with drsai:
        with pytest.raises(ConfigurationError, match="`await` its own calls"):
            drsai.sync.run("assistant", "hello")
        assert (await asyncio.to_thread(drsai.sync.run, "assistant", "hello")).text
        messages = await asyncio.to_thread(lambda: [*drsai.sync.run_stream("assistant", "hello")])
        assert isinstance(messages[-1], TaskResult)


@pytest.fixture
def sigint() -> Iterator[None]:
    """SIGINT interrupts, also where the tests are a shell's background job, which inherits it as ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "call",
    [
        lambda sync: sync.user("ada").run("waiting", "hello", thread_id="t"),
        lambda sync: list(sync.user("ada").run_stream("waiting", "hello", thread_id="t")),
    ],
    ids=["run", "run_stream"],
)
def test_an_interrupted_call_stops_its_run(database_url: str, sigint: None, call: Callable[[SyncDrSai], Any]):
    def interrupt() -> None:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # type: ignore[arg-type]

    drsai = DrSai({"waiting": lambda: Waiting(interrupt)}, database_url, settings=settings())
    with drsai.sync as sync:
        with pytest.raises(KeyboardInterrupt):
            call(sync)
        handle = sync.user("ada").list_runs("t").items[0]
        assert handle.status is RunStatus.STOPPED


@pytest.mark.parametrize("at", [0, 1])
def test_interrupted_while_a_call_is_handed_over(database_url: str, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Ctrl-C comes when the event loop has the call already, and the caller does not know it yet."""
    began = threading.Event()
    drsai = DrSai({"waiting": lambda: Waiting(began.set)}, database_url, settings=settings())
    with drsai.sync as sync:
        loop = drsai.engine.lifecycle.loop
        assert loop is not None
        hand_over, calls = loop.call_soon_threadsafe, 0

        def interrupted(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            handle = hand_over(*arguments, **options)
            if threading.current_thread() is threading.main_thread():
                calls += 1
                if calls == at + 1:
                    raise KeyboardInterrupt
            return handle

        monkeypatch.setattr(loop, "call_soon_threadsafe", interrupted)
        stream = sync.user("ada").run_stream("waiting", "hello", thread_id="t")
        with pytest.raises(KeyboardInterrupt):
            list(stream)
        for run in sync.user("ada").list_runs("t").items if at else ():
            assert run.status is RunStatus.STOPPED


def test_a_stream_that_is_left_stops_its_run(database_url: str):
    began = threading.Event()
    drsai = DrSai({"waiting": lambda: Waiting(began.set)}, database_url, settings=settings())
    with drsai.sync as sync:
        stream = sync.user("ada").run_stream("waiting", "hello", thread_id="t")
        assert next(stream).content == "hello"  # type: ignore[union-attr]
        began.wait(10)
        stream.close()  # type: ignore[attr-defined]
        assert sync.user("ada").get_thread("t").status is RunStatus.STOPPED


def test_closed_while_others_wait(database_url: str):
    began = threading.Event()
    drsai = DrSai({"waiting": lambda: Waiting(began.set)}, database_url, settings=settings(shutdown_grace_seconds=0))
    outcome: list[Any] = []

    def wait() -> None:
        try:
            outcome.append(drsai.sync.run("waiting", "hello").status)
        except DrSaiError as error:
            outcome.append(type(error))

    thread = threading.Thread(target=wait)
    with drsai.sync:
        thread.start()
        began.wait(10)
    thread.join(10)
    # It is handed over: the next process resumes it.
    assert outcome in ([RunStatus.RUNNING], [NotOpened])


async def test_an_iterator_that_is_no_generator(drsai: DrSai):
    class Numbers(AsyncIterator[int]):
        def __init__(self) -> None:
            self.n = 0

        async def __anext__(self) -> int:
            self.n += 1
            if self.n > 3:
                raise StopAsyncIteration
            return self.n

    with drsai.sync as sync:
        assert list(sync.iterate(Numbers)) == [1, 2, 3]
