"""The path of a stored run, counted in calls of Python and C over all threads: it does not grow with the thread,
whichever team, context and API. Where a client sends the whole history each time, it grows by what a message's text
takes to be read."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from autogen_agentchat.base import Handoff
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import BaseGroupChat, DiGraphBuilder
from autogen_core import FunctionCall
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    HeadAndTailChatCompletionContext,
    UnboundedChatCompletionContext,
)

import drsai_backend
from drsai_backend import DrSai, DrSaiAgent, PlanExecuteTeam, ReflexionTeam, RunContext, RunStatus
from drsai_backend.agents.contexts import CompactionContext, EphemeralOutputsContext, TokenBufferedContext
from drsai_backend.runs import InputMessage
from tests.api.engine.conftest import OneModel
from tests.support.asks import asks
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import settings

FEW, MANY = 30, 130
"""Runs of a thread, where every context that has a bound has reached it."""
BUDGET = {False: 4_500, True: 5_400}
"""Calls of a run of two turns on SQLite, with whole answers and with answers in some ten pieces; they were 4,358 and
5,224 when this was written, on CPython 3.11."""
METRICS = 320
"""Calls more of such a run with metrics on; they were 306 and 308 when this was written."""
BOUNDED = 620
"""Calls more of a request of a chat with limits and budgets of its user, tenant and all; they were 598 when this was
written."""
_WHOSE = ("user", "tenant", "all")
BOUNDS: dict[str, Any] = {
    **{f"limit_{whose}": {"requests": 10**6, "tokens": 10**9, "runs": 10**6} for whose in _WHOSE},
    **{f"budget_{whose}": {"tokens_day": 10**9, "tokens_month": 10**9, "cost_month": 10**6} for whose in _WHOSE},
}
AT_ONCE = {1: 7_150, 32: 7_950}
"""Calls of a streamed request of a new thread, by how many there are at once: what the application takes of it, with
metrics on, and HTTP itself left out. They were 6,860 and 7,490 when this was written."""
WRITES = 8
"""Most writes of an answer of some twenty pieces that come without a wait, however many answers there are at once."""
A_MESSAGE = {"chat": 8, "anthropic": 45}
"""Calls that a message more of a history takes which a client sends with each request."""
A_COLD_MESSAGE = 16
"""Calls that a message more of a thread of two agents takes which this process does not know; they were 11 when this
was written, and some more for what the journal holds since the last snapshot."""
TOOL_CALLS = 50
"""Of one turn."""
A_TOOL_CALL = 3_000
"""Calls from one tool call to the next, of a function; they were 2,500 when this was written."""
ANSWER = "The answer to a question, in some words that come piece by piece, ten of them."


def grew(few: Sequence[int], many: Sequence[int]) -> bool:
    """Whether the least of many is more than the first of few, and 5 %."""
    return min(many) > few[0] * 1.05


class Calls:
    """Counts calls in all threads that begin while it stands, between `begin` and the end of the block."""

    def __init__(self) -> None:
        self.count = 0
        self._counts = False
        self._within = ""

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        if self._counts and event in ("call", "c_call") and frame.f_code.co_filename.startswith(self._within):
            self.count += 1

    @contextmanager
    def counted(self, within: str = "") -> Generator[None]:
        """`within`: only of files there, and what they call of C."""
        self.count, self._counts, self._within = 0, True, within
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._counts = False

    async def of(self, run: Callable[[], Awaitable[None]], sizes: Sequence[int]) -> list[int]:
        """The calls of a run behind so many others."""
        counts: list[int] = []
        done = 0
        for size in sizes:
            while done < size:
                await run()
                done += 1
            tries: list[int] = []
            # Some runs write a snapshot, or meet the heartbeat; many do where the machine stood still meanwhile.
            while len(tries) < 5 or (len(tries) < 20 and grew(counts or tries, tries)):
                with self.counted():
                    await run()
                done += 1
                tries.append(self.count)
            counts.append(min(tries))
        return counts


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    calls = Calls()
    threading.setprofile(calls)
    yield calls
    threading.setprofile(None)


def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
    told = f"{messages[0].content}{messages[-1].content}"
    if "You make the plan" in told:
        return json.dumps({"steps": [{"id": "1", "do": "a", "needs": []}]})
    if "is_request_satisfied" in told:
        asked = ("is_request_satisfied", "is_in_loop", "is_progress_being_made")
        ledger = dict.fromkeys(asked, True) | {"next_speaker": "ann", "instruction_or_question": "Go."}
        return json.dumps({name: {"reason": "So.", "answer": value} for name, value in ledger.items()})
    return ANSWER


def judge(*_: Any) -> Answer:
    return json.dumps({"score": 0.9, "reasons": "Good.", "reflection": ""})


def shortly(*_: Any) -> Answer:
    return "In short."


def pair(make: Callable[[], ChatCompletionContext] = UnboundedChatCompletionContext, **options: Any) -> BaseGroupChat:
    client = ScriptedClient(rule, vision=True, piece=8)
    agents: list[Any] = [
        drsai_backend.AssistantAgent(name, client, model_context=make(), **options) for name in ("ann", "bob")
    ]
    return drsai_backend.RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(3))


def agents() -> list[Any]:
    return [
        drsai_backend.AssistantAgent(name, ScriptedClient(rule, vision=True), description=name)
        for name in ("ann", "bob")
    ]


def chosen(*_: Any) -> Answer:
    return "bob"


def selector() -> BaseGroupChat:
    chooser = ScriptedClient(chosen)
    return drsai_backend.SelectorGroupChat(agents(), chooser, termination_condition=MaxMessageTermination(3))


def swarm() -> BaseGroupChat:
    """Ann hands over to bob in each run."""

    def hands_over(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return [FunctionCall("1", "{}", "transfer_to_bob")]

    def hands_back(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return [FunctionCall("2", "{}", "transfer_to_ann")]

    ann = drsai_backend.AssistantAgent("ann", ScriptedClient(hands_over), handoffs=[Handoff(target="bob")])
    bob = drsai_backend.AssistantAgent("bob", ScriptedClient(hands_back), handoffs=[Handoff(target="ann")])
    return drsai_backend.Swarm([ann, bob], max_turns=2)


def graph() -> BaseGroupChat:
    ann, bob = agents()
    edges = DiGraphBuilder().add_node(ann).add_node(bob).add_edge(ann, bob).build()
    return drsai_backend.GraphFlow([ann, bob], graph=edges)


def magentic() -> BaseGroupChat:
    return drsai_backend.MagenticOneGroupChat(agents(), ScriptedClient(rule), max_turns=3)


def look(place: str = "here") -> str:
    """Look somewhere."""
    return f"What is {place}: {ANSWER}"


def looking() -> DrSaiAgent:
    """Calls a tool in each run, of whose outputs only two stay."""

    def looks(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        is_asked = type(messages[-1]).__name__ == "UserMessage"
        return [FunctionCall("1", "{}", "look")] if is_asked else ANSWER

    shown = EphemeralOutputsContext({"look": 2})
    return DrSaiAgent("ann", ScriptedClient(looks), tools=[look], model_context=shown, reflect_on_tool_use=True)


TEAMS: dict[str, Callable[[], Any]] = {
    "agent": lambda: DrSaiAgent("ann", ScriptedClient(rule, vision=True), system_message="Help."),
    "unbounded": pair,
    "streamed": lambda: pair(model_client_stream=True),
    "buffered": lambda: pair(lambda: BufferedChatCompletionContext(10)),
    "head_and_tail": lambda: pair(lambda: HeadAndTailChatCompletionContext(2, 8)),
    "ephemeral": looking,
    "token_buffered": lambda: pair(lambda: TokenBufferedContext(300)),
    "compaction": lambda: pair(lambda: CompactionContext(300, ScriptedClient(shortly))),
    "selector": selector,
    "swarm": swarm,
    "graph": graph,
    "magentic": magentic,
    "plan_execute": lambda: PlanExecuteTeam(ScriptedClient(rule), [], name="team"),
    "reflexion": lambda: ReflexionTeam(TEAMS["agent"](), ScriptedClient(judge), name="team"),
}


@asynccontextmanager
async def opened(url: str, **values: Any) -> AsyncIterator[DrSai]:
    def factory(make: Callable[[], Any]) -> Callable[[RunContext], Any]:
        return lambda context: make()

    teams = {name: factory(make) for name, make in TEAMS.items()}
    model = OneModel(ScriptedClient(rule))
    async with DrSai(teams, url, settings=settings(**values), model_provider=model) as drsai:
        yield drsai


@pytest.fixture
async def drsai(migrated_sqlite: str, calls: Calls) -> AsyncIterator[DrSai]:
    """Begins its threads when their calls are counted already."""
    async with opened(migrated_sqlite) as drsai:
        yield drsai


@pytest.mark.parametrize("team", TEAMS)
async def test_a_long_thread_costs_no_more_calls_than_a_short_one(drsai: DrSai, calls: Calls, team: str) -> None:
    """Of every model call of a model that sees, too: what a context holds of images is asked in C."""

    async def run() -> None:
        asked = asks(team, [InputMessage("user", "Next.")], thread_id="t", stream=team == "streamed")
        assert (await (await drsai.engine.start(*asked)).wait()).status is RunStatus.COMPLETED

    few, many = await calls.of(run, (FEW, MANY))
    assert many <= few * 1.05
    if team in ("unbounded", "streamed"):
        assert few < BUDGET[team == "streamed"]


@pytest.mark.parametrize("team", ["unbounded", "streamed"])
async def test_metrics_cost_a_run_few_calls(migrated_sqlite: str, calls: Calls, team: str) -> None:
    """Some for each run, turn and model call, and none for a piece of text."""
    async with opened(migrated_sqlite, metrics=True) as drsai:

        async def run() -> None:
            asked = asks(team, [InputMessage("user", "Next.")], thread_id="t", stream=team == "streamed")
            assert (await (await drsai.engine.start(*asked)).wait()).status is RunStatus.COMPLETED

        [few] = await calls.of(run, [FEW])
        assert few < BUDGET[team == "streamed"] + METRICS


@pytest.mark.parametrize("is_on", [False, True])
async def test_no_function_of_a_feature_is_called_for_a_piece_of_text(
    migrated_sqlite: str, calls: Calls, is_on: bool
) -> None:
    """With metrics, only what is sent of an answer passes by, which is several pieces at once."""
    of_features = str(Path(drsai_backend.__file__).parent / "features")
    pieces, counts = [2, 2, 200], list[int]()

    def said(*_: Any) -> Answer:
        return "A piece." * pieces[len(counts)]

    def streaming(_: RunContext) -> DrSaiAgent:
        return DrSaiAgent("ann", ScriptedClient(said, piece=8), model_client_stream=True)

    given = settings(usage=is_on, metrics=is_on)
    async with DrSai({"agent": streaming}, migrated_sqlite, settings=given) as drsai:
        client = Client(http_of(drsai))
        while len(counts) < len(pieces):
            with calls.counted(within=of_features):
                await client.chat(stream=True)
            counts.append(calls.count)
    assert counts[2] - counts[1] < (100 if is_on else 1)


async def test_limits_and_budgets_cost_a_request_few_calls(migrated_sqlite: str, calls: Calls) -> None:
    async def of(**values: Any) -> int:
        async with opened(migrated_sqlite, **values) as drsai:
            [few] = await calls.of(Client(http_of(drsai)).chat, [FEW])
        return few

    assert await of(**BOUNDS) - await of() < BOUNDED


async def test_a_tool_call_costs_no_more_beside_many_tasks(drsai: DrSai, calls: Calls) -> None:
    """To find the tasks of an agent's calls is to look at all tasks of the process."""

    async def run() -> None:
        asked = asks("ephemeral", [InputMessage("user", "Next.")], thread_id="t")
        assert (await (await drsai.engine.start(*asked)).wait()).status is RunStatus.COMPLETED

    [alone] = await calls.of(run, [FEW])
    others = [asyncio.create_task(asyncio.sleep(3600)) for _ in range(500)]
    [beside] = await calls.of(run, [0])
    for task in others:
        task.cancel()
    assert beside <= alone * 1.05


async def test_a_message_more_of_a_cold_thread_costs_few_calls(drsai: DrSai, calls: Calls) -> None:
    counts: list[int] = []
    done = 0
    for size in (FEW, MANY):
        tries: list[int] = []
        while done < size + 3:
            asked = asks("unbounded", [InputMessage("user", "Next.")], thread_id="t")
            if done < size:
                handle = await drsai.engine.start(*asked)
            else:
                drsai.engine._warm.clear()
                with calls.counted():
                    handle = await drsai.engine.start(*asked)
                tries.append(calls.count)
            assert (await handle.wait()).status is RunStatus.COMPLETED
            done += 1
        counts.append(min(tries))
    few, many = counts
    assert (many - few) / (3 * (MANY - FEW)) <= A_COLD_MESSAGE


async def test_a_late_tool_call_of_a_turn_costs_no_more_calls_than_an_early_one(
    migrated_sqlite: str, calls: Calls
) -> None:
    """From one call to the next, a result and an answer of the model are stored."""
    marks: list[int] = []

    def asks_again(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return [FunctionCall(str(len(marks)), "{}", "mark")] if len(marks) <= TOOL_CALLS else ANSWER

    async def mark() -> str:
        """Look at the count."""
        marks.append(calls.count)
        return ANSWER

    def agent(_: RunContext) -> DrSaiAgent:
        return DrSaiAgent("ann", ScriptedClient(asks_again), tools=[mark], max_tool_iterations=TOOL_CALLS + 2)

    async with DrSai({"agent": agent}, migrated_sqlite, settings=settings()) as drsai:
        asked = asks("agent", [InputMessage("user", "Next.")], thread_id="t")
        with calls.counted():
            assert (await (await drsai.engine.start(*asked)).wait()).status is RunStatus.COMPLETED
    spent = [after - before for before, after in pairwise(marks)]
    # Some meet the heartbeat.
    assert min(spent[-5:]) <= min(spent[2:7]) * 1.02
    assert min(spent) < A_TOOL_CALL


class Client:
    """Asks in several ways, always on one thread. `last` is what came of the request before."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.last: str | None = None
        self.history: list[dict[str, Any]] = []

    async def post(self, path: str, body: dict[str, Any], **headers: str) -> dict[str, Any]:
        response = await self._http.post(path, json=body, headers=headers)
        assert response.status_code in (200, 202), response.text
        return {} if "stream" in body else response.json()

    async def chat(self, **more: Any) -> None:
        await self.post("/v1/chat/completions", {**self._asked(), "thread_id": "t", **more})

    async def anthropic(self) -> None:
        await self.post("/v1/messages", {**self._asked(), "max_tokens": 500}, **{"x-thread-id": "t"})

    async def responses(self) -> None:
        before = {} if self.last is None else {"previous_response_id": self.last}
        self.last = (await self.post("/v1/responses", {"model": "agent", "input": "Next.", **before}))["id"]

    async def conversation(self) -> None:
        self.last = self.last or (await self.post("/v1/conversations", {}))["id"]
        await self.post("/v1/responses", {"model": "agent", "input": "Next.", "conversation": self.last})

    async def background(self) -> None:
        asked = {**self._asked(), "thread_id": "t", "background": True}
        run_id = (await self.post("/v1/chat/completions", asked))["id"]
        async with self._http.stream("GET", f"/v1/runs/{run_id}/events") as events:
            async for _ in events.aiter_bytes():
                pass

    def task(self, mode: str) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            body = {"task": "Next.", "mode": mode, "conversation_id": "t"}
            body |= {} if mode == "simple" else {"tools": []}
            assert (await self.post("/api/v1/agent/execute", body))["status"] == "success"

        return ask

    async def whole_chat(self) -> None:
        self.history.append({"role": "user", "content": f"Next {len(self.history)}."})
        told = await self.post("/v1/chat/completions", {"model": "agent", "messages": self.history})
        self.history.append({"role": "assistant", "content": told["choices"][0]["message"]["content"]})

    async def whole_anthropic(self) -> None:
        self.history.append({"role": "user", "content": f"Next {len(self.history)}."})
        told = await self.post("/v1/messages", {"model": "agent", "max_tokens": 500, "messages": self.history})
        self.history.append({"role": "assistant", "content": told["content"]})

    def _asked(self) -> dict[str, Any]:
        return {"model": "agent", "messages": [{"role": "user", "content": "Next."}]}


def http_of(drsai: DrSai) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=drsai.app(is_open=True))
    return httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60)


@pytest.fixture
async def client(drsai: DrSai) -> AsyncIterator[Client]:
    async with http_of(drsai) as http:
        yield Client(http)


WAYS = ("chat", "anthropic", "responses", "conversation", "background")
MODES = ("simple", "tools", "react", "reflexion", "plan_execute")


@pytest.mark.parametrize("way", [*WAYS, *(f"task in {mode}" for mode in MODES)])
async def test_nor_does_it_over_an_api(client: Client, calls: Calls, way: str) -> None:
    run = getattr(client, way) if way in WAYS else client.task(way.removeprefix("task in "))
    few, many = await calls.of(run, (FEW, MANY))
    # A run of the background is waited for, by whatever wakes its reader first.
    assert many <= few * (1.15 if way == "background" else 1.05)


@pytest.mark.parametrize("way", ["chat", "anthropic"])
async def test_a_message_more_of_a_history_costs_little(client: Client, calls: Calls, way: str) -> None:
    few, many = await calls.of(getattr(client, f"whole_{way}"), (FEW, MANY))
    assert (many - few) / (2 * (MANY - FEW)) <= A_MESSAGE[way]


class Request:
    """A streamed request of a new thread, as a server hands it to an application. `writes` counts the parts of its
    answer."""

    def __init__(self, number: int) -> None:
        asked = {"model": "streamed", "stream": True, "messages": [{"role": "user", "content": "Next."}]}
        self._body = json.dumps({**asked, "thread_id": f"t{number}"}).encode()
        self.writes, self.sent = 0, b""

    async def receive(self) -> dict[str, Any]:
        if not self._body:
            await asyncio.Future()  # The client stays.
        body, self._body = self._body, b""
        return {"type": "http.request", "body": body}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            self.writes += 1
            self.sent += message["body"]

    async def answered(self, app: Any) -> None:
        path, headers = "/v1/chat/completions", [(b"host", b"test"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
        await app({**scope, "client": ("127.0.0.1", 1), "server": ("test", 80)}, self.receive, self.send)
        assert self.sent.endswith(b"data: [DONE]\n\n")


async def test_a_request_costs_no_more_beside_many(migrated_sqlite: str, calls: Calls) -> None:
    """Over HTTP, with metrics on, as they are in a server. Answers that stream at once take turns: pieces that have
    come together are sent together, or each would cost a wait, a write and what has left the processor's caches."""
    number = 0
    async with opened(migrated_sqlite, metrics=True) as drsai:
        app = drsai.app(is_open=True)

        async def ask(count: int) -> list[Request]:
            nonlocal number
            number += count
            requests = [Request(each) for each in range(number - count, number)]
            await asyncio.gather(*(each.answered(app) for each in requests))
            return requests

        await ask(8)
        for count, most in AT_ONCE.items():
            tries: list[float] = []
            for _ in range(3):
                with calls.counted():
                    requests = await ask(count)
                tries.append(calls.count / count)
                assert max(each.writes for each in requests) <= WRITES
            assert min(tries) < most
