"""A client that repeats its request gets one run, one answer and one side effect: with the official client at its
default retries, in the process that runs the thread and in another one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import openai
import pytest

from drsai_backend import AssistantAgent, RunContext, RunStatus, requires_approval
from drsai_backend.datamodel import Run
from tests.e2e.conftest import Serve, Service, listening
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall

pytestmark = pytest.mark.both_databases

RETRY = {"x-stainless-retry-count": "1"}


class Office:
    """A team with a tool that does something, and counts it."""

    def __init__(self, *, asks: bool = False) -> None:
        self.sent = 0
        self.asks = asks

    def __call__(self, context: RunContext) -> AssistantAgent:
        def send(to: str) -> str:
            """Send a mail."""
            self.sent += 1
            return f"sent to {to}"

        tool: Any = requires_approval(send) if self.asks else send
        client = context.model_client()
        return AssistantAgent("clerk", client, tools=[tool], reflect_on_tool_use=True, model_client_stream=True)


def mail(seconds: float) -> Callable[[ModelRequest], Reply]:
    """Calls the tool, then takes its time to say so."""

    def answer(request: ModelRequest) -> Reply:
        if request.messages[-1]["role"] == "user":
            return Reply(tool_calls=[ToolCall("send", {"to": "ada"})])
        return Reply("It is sent.", delay=seconds)

    return answer


def ask(text: str = "Send it.", **values: Any) -> dict[str, Any]:
    return {"model": "office", "messages": [{"role": "user", "content": text}], **values}


async def runs_of(service: Service) -> list[Run]:
    return await service.drsai.db.get(Run)


@asynccontextmanager
async def client_that_left(url: str, body: dict[str, Any], model: ModelServer) -> Any:
    """A request whose client goes away while the model works."""
    seen = len(model.requests)
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        task = asyncio.create_task(http.post("/chat/completions", json=body))
        async with asyncio.timeout(10):
            while len(model.requests) == seen:  # noqa: ASYNC110 - the model server is a thread of its own
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # its connection is looked at after 0.1 s
        task.cancel()
        await asyncio.wait([task])
    await asyncio.sleep(0.05)
    yield


@pytest.mark.parametrize("thread", [{}, {"thread_id": "t"}])
async def test_a_client_that_times_out_and_tries_again(
    serve: Serve, model: ModelServer, thread: dict[str, str]
) -> None:
    office = Office()
    model.script(None, mail(1.2))
    service = await serve({"office": office})
    async with (
        listening(service.drsai) as url,
        openai.AsyncOpenAI(api_key="k", base_url=url, timeout=0.5, max_retries=3) as client,
    ):
        answer = await client.chat.completions.create(**ask(), extra_body=thread)
    assert answer.choices[0].message.content == "It is sent."
    [run] = await runs_of(service)
    assert (run.status, office.sent, len(model.requests)) == (RunStatus.COMPLETED, 1, 2)
    assert answer.id == f"chatcmpl-{run.run_id}"


@pytest.mark.parametrize("stream", [False, True])
async def test_equal_requests(serve: Serve, model: ModelServer, *, stream: bool) -> None:
    """One whose client has left is joined by the next; while it listens, two people have said the same."""
    office = Office()
    model.script(None, mail(0.8))
    service = await serve({"office": office})
    body = ask(stream=stream)
    async with listening(service.drsai) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
        async with client_that_left(url, body, model):
            first, second = await asyncio.gather(*(http.post("/chat/completions", json=body) for _ in range(2)))
        assert "It is sent." in first.text
        assert "It is sent." in second.text
        # The one that came first has joined; the other met a client that listens.
        assert len(await runs_of(service)) == office.sent == 2
        assert first.headers["x-run-id"] != second.headers["x-run-id"]
        later = await http.post("/chat/completions", json=body)
        assert later.headers["x-run-id"] not in (first.headers["x-run-id"], second.headers["x-run-id"])
        # Who says that it is a repeat gets what there is, also after the run is over.
        again = await http.post("/chat/completions", json=body, headers=RETRY)
        assert again.headers["x-run-id"] == later.headers["x-run-id"]
        assert "It is sent." in again.text
    assert len(await runs_of(service)) == office.sent == 3


@pytest.mark.parametrize("thread", [{}, {"thread_id": "t"}])
async def test_a_repeat_that_another_process_gets(serve: Serve, model: ModelServer, thread: dict[str, str]) -> None:
    office = Office()
    model.script(None, mail(0.8))
    service, other = await serve({"office": office}), await serve({"office": office})
    async with listening(service.drsai) as url, client_that_left(url, ask(**thread), model):
        # Nobody else's, though the words are the same.
        for foreign in ({"user": "eve"}, {"thread_id": "another"}, {"temperature": 0.5}):
            await other.http.post("/v1/chat/completions", json=ask(**{**thread, **foreign}), headers=RETRY)
        mine = [run for run in await runs_of(service) if run.run_id]
        assert len(mine) == 4
        answer = await other.http.post("/v1/chat/completions", json=ask(**thread), headers=RETRY)
        assert answer.json()["choices"][0]["message"]["content"] == "It is sent."
        assert answer.json()["id"] == f"chatcmpl-{min(run.run_id for run in mine)}"
    assert len(await runs_of(service)) == office.sent == 4


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_an_approval_that_is_repeated(serve: Serve, model: ModelServer, where: str) -> None:
    """The answer's part of the run is told again, and nothing is approved twice."""
    office = Office(asks=True)
    model.script(None, mail(0.5))
    service = await serve({"office": office})
    other = service if where == "here" else await serve({"office": office})
    asked = await service.http.post("/v1/chat/completions", json=ask(thread_id="t"))
    assert asked.json()["drsai"]["status"] == "awaiting_input"
    approve = ask("approve", thread_id="t")
    async with listening(service.drsai) as url, client_that_left(url, approve, model):
        for _ in range(2):  # while it runs, and when it is over
            answer = await other.http.post("/v1/chat/completions", json=approve, headers=RETRY)
            assert answer.json()["choices"][0]["message"]["content"] == "It is sent."
            assert answer.json()["drsai"]["status"] == "completed"
    assert (len(await runs_of(service)), office.sent) == (1, 1)


async def test_a_run_that_failed_is_not_run_again(serve: Serve, model: ModelServer) -> None:
    """By its status, for clients that repeat 5xx whatever they are told; and by joining for those that say so."""
    model.script(None, [Failure(500)])
    service = await serve({"office": Office()})
    failed = await service.http.post("/v1/chat/completions", json=ask())
    assert failed.status_code not in (408, 409, 429)
    assert failed.status_code < 500
    again = await service.http.post("/v1/chat/completions", json=ask(), headers=RETRY)
    assert (again.status_code, again.json()) == (failed.status_code, failed.json())
    assert len(await runs_of(service)) == 1


async def test_what_is_not_joined(serve: Serve, model: ModelServer) -> None:
    """A run that was stopped since its client left; and none at all where that is turned off."""
    model.script(None, mail(0.6))
    async with AsyncExitStack() as stack:
        service = await serve({"office": Office()})
        url = await stack.enter_async_context(listening(service.drsai))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=60))
        leaving = ask(on_disconnect="cancel", thread_id="t")
        async with client_that_left(url, leaving, model):
            answer = await http.post("/chat/completions", json=leaving, headers=RETRY)
            assert answer.json()["choices"][0]["message"]["content"] == "It is sent."
        off = await serve({"office": Office()}, join_repeats="off")
        first = await off.http.post("/v1/chat/completions", json=ask())
        second = await off.http.post("/v1/chat/completions", json=ask(), headers=RETRY)
        assert first.headers["x-run-id"] != second.headers["x-run-id"]
        always = await serve({"office": Office()}, join_repeats="always")
        both = await asyncio.gather(*(always.http.post("/v1/chat/completions", json=ask("Now.")) for _ in range(2)))
        assert len({each.headers["x-run-id"] for each in both}) == 1
        keyed = {**RETRY, "Idempotency-Key": "k"}
        named = await always.http.post("/v1/chat/completions", json=ask("Now.", thread_id="t"), headers=keyed)
        assert named.headers["x-run-id"] != both[0].headers["x-run-id"]
    statuses = [run.status for run in await runs_of(service)]
    assert sorted(status.value for status in statuses) == ["completed"] * 5 + ["stopped"]
