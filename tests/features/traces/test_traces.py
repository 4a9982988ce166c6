"""What a collector gets of requests and runs: spans of one trace, each in the one that it is a part of."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from autogen_agentchat.tools import AgentTool
from fastapi import FastAPI
from opentelemetry import context as contexts
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from pydantic import SecretStr
from starlette.types import ASGIApp, Receive, Scope, Send

from drsai_backend import AssistantAgent, DrSai, RoundRobinGroupChat, RunContext, RunStatus
from drsai_backend.errors import ConfigurationError
from drsai_backend.log_context import AddIds
from drsai_backend.tools.mcp import McpStdio, McpWorkbench
from tests.features.traces.collector import Collector, Span
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import settings

TRACE, CLIENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE}-{CLIENT}-01"}
Make = Callable[..., DrSai]


def answer(request: ModelRequest) -> Reply | Failure:
    if "fail" in request.last:
        return Failure(500)
    if request.tools and request.messages[-1]["role"] == "user":
        return Reply("", tool_calls=[ToolCall(request.tools[0], _arguments(request.tools[0]))])
    return Reply(f"The answer: {request.last}", prompt_tokens=100, completion_tokens=10)


def _arguments(tool: str) -> dict[str, Any]:
    return {"look": {"place": "the planted place"}, "helper": {"task": "Help."}}.get(tool, {})


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(answer, strict=False) as server:
        yield server


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


async def look(place: str) -> str:
    """Look somewhere."""
    if "nowhere" in place:
        raise ValueError("there is nothing")
    return f"the planted result of {place}"


def plain(context: RunContext) -> AssistantAgent:
    return AssistantAgent("ann", context.model_client())


def pair(context: RunContext) -> RoundRobinGroupChat:
    members: list[Any] = [AssistantAgent(name, context.model_client()) for name in ("ann", "bob")]
    return RoundRobinGroupChat(members, max_turns=2)


def looking(context: RunContext) -> AssistantAgent:
    return AssistantAgent("ann", context.model_client(), tools=[look], reflect_on_tool_use=True)


def asking(context: RunContext) -> AssistantAgent:
    """Has an agent for a tool."""
    helper = AgentTool(AssistantAgent("helper", context.model_client(), description="Helps."))
    return AssistantAgent("ann", context.model_client(), tools=[helper], reflect_on_tool_use=True)


def calling(context: RunContext) -> AssistantAgent:
    """Has the tool of an MCP server."""
    server = McpStdio(name="n", command=sys.executable, args=(str(Path(__file__).parent / "mcp_server.py"),))
    workbench = McpWorkbench([server])
    return AssistantAgent("ann", context.model_client(), workbench=workbench, reflect_on_tool_use=True)


TEAMS = {"plain": plain, "pair": pair, "looking": looking, "asking": asking, "calling": calling}


@pytest.fixture
def make(database_url: str, model: ModelServer, collector: Collector) -> Make:
    def made(**values: Any) -> DrSai:
        endpoint = {"openai_base_url": model.base_url, "openai_api_key": SecretStr("k"), "model": "gpt-4o-mini"}
        given = {**endpoint, "model_max_retries": 0, "otlp_endpoint": collector.url, **values}
        return DrSai(TEAMS, database_url, settings=settings(**given))

    return made


@asynccontextmanager
async def asked(drsai: DrSai) -> AsyncIterator[httpx.AsyncClient]:
    """Whoever asks while a `DrSai` is open. All spans have arrived behind this."""
    async with drsai:
        transport = httpx.ASGITransport(app=drsai.app(is_open=True))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield http


async def chat(http: httpx.AsyncClient, team: str, text: str = "Hello.", **headers: str) -> httpx.Response:
    body = {"model": team, "messages": [{"role": "user", "content": text}]}
    return await http.post("/v1/chat/completions", json=body, headers=headers)


def header(span: Span) -> str:
    return f"00-{span.trace}-{span.id}-01"


@pytest.mark.parametrize("calls_keep", [[], ["*"]], ids=["plain", "kept"])
async def test_a_request_is_one_trace_down_to_its_tool(
    make: Make, model: ModelServer, collector: Collector, calls_keep: list[str]
) -> None:
    """It is the same where what models are sent is kept."""
    async with asked(make(calls_keep=calls_keep)) as http:
        told = await chat(http, "looking", **PARENT, **{"x-request-id": "req-1"})
        assert told.status_code == 200, told.text
    request, run = collector.one("POST /v1/chat/completions"), collector.one("invoke_agent looking")
    turn, tool = collector.one("turn"), collector.one("execute_tool look")
    calls = collector.named("chat gpt-4o-mini")
    assert {each.trace for each in collector.spans} == {TRACE}
    parents = (request.parent, run.parent, turn.parent, tool.parent, [each.parent for each in calls])
    assert parents == (CLIENT, request.id, run.id, turn.id, [turn.id] * 2)
    assert [each.headers["traceparent"] for each in model.requests] == [header(each) for each in calls]
    assert all(each.began <= each.ended for each in collector.spans)
    assert calls[0].ended <= tool.ended <= calls[1].ended <= turn.ended <= run.ended <= request.ended
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "drsai.request.id": "req-1",
    }
    assert run.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "looking",
        "gen_ai.conversation.id": told.json()["thread_id"],
        "drsai.run.id": told.json()["drsai"]["run_id"],
        "drsai.run.attempt": 1,
        "drsai.run.status": "completed",
        "drsai.tenant": "default",
        "user.id": "anonymous",
        "gen_ai.usage.input_tokens": 110,
        "gen_ai.usage.output_tokens": 15,
    }
    assert calls[1].attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.agent.name": "ann",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 10,
    }
    assert tool.attributes.items() >= {"gen_ai.tool.name": "look", "gen_ai.agent.name": "ann"}.items()
    assert run.of["service.name"] == "drsai"


async def test_each_turn_is_a_span_and_a_model_that_a_tool_asks_is_in_it(make: Make, collector: Collector) -> None:
    async with asked(make()) as http:
        assert (await chat(http, "pair")).status_code == 200
        assert (await chat(http, "asking")).status_code == 200
    two, one = collector.named("invoke_agent pair"), collector.one("invoke_agent asking")
    turns = [each for each in collector.named("turn") if each.parent == two[0].id]
    calls = collector.named("chat gpt-4o-mini")
    assert [each.parent for each in calls if each.trace == two[0].trace] == [each.id for each in turns]
    assert len(turns) == 2
    tool, [turn] = (
        collector.one("execute_tool helper"),
        [each for each in collector.named("turn") if each.parent == one.id],
    )
    inner = [(each.attributes["gen_ai.agent.name"], each.parent) for each in calls if each.trace == one.trace]
    assert inner == [("ann", turn.id), ("helper", tool.id), ("ann", turn.id)]


async def test_an_mcp_server_is_told_the_span_of_the_call(make: Make, collector: Collector) -> None:
    async with asked(make()) as http:
        told = (await chat(http, "calling", **PARENT)).json()["choices"][0]["message"]["content"]
    tool = collector.one("execute_tool n__span")
    assert f"{TRACE} {tool.id}" in told


async def test_what_has_failed_says_so(make: Make, collector: Collector) -> None:
    async with asked(make()) as http:
        assert (await chat(http, "plain", "fail")).status_code >= 400
        assert (await http.get("/v1/threads/nothing")).status_code == 404
        assert (await http.get("/healthz")).status_code == 200
    run, call = collector.one("invoke_agent plain"), collector.one("chat gpt-4o-mini")
    assert call.has_failed
    assert run.has_failed
    assert call.attributes["error.type"] == run.attributes["error.type"] != ""
    assert run.attributes["drsai.run.status"] == "error"
    assert not collector.one("GET /v1/threads/{thread_id}").has_failed
    assert [each.name for each in collector.spans if "healthz" in each.name] == []


@pytest.mark.parametrize("wanted", [False, True])
async def test_no_text_is_told_unless_it_is_wanted(
    make: Make, model: ModelServer, collector: Collector, wanted: bool
) -> None:
    async with asked(make(traces_content=wanted, log_users="none")) as http:
        assert (await chat(http, "looking", "The planted question.")).status_code == 200
    sent = b"".join(collector.bodies)
    assert (b"planted" in sent) is wanted
    assert b"anonymous" not in sent
    if wanted:
        run, tool = collector.one("invoke_agent looking"), collector.one("execute_tool look")
        heard, said = (json.loads(run.attributes[f"gen_ai.{name}.messages"]) for name in ("input", "output"))
        assert heard == [{"role": "user", "parts": [{"type": "text", "content": "The planted question."}]}]
        assert said[-1]["parts"][0]["content"].startswith("The answer: ")
        assert json.loads(tool.attributes["gen_ai.tool.call.arguments"]) == {"place": "the planted place"}
        assert tool.attributes["gen_ai.tool.call.result"] == "the planted result of the planted place"


async def test_an_input_that_waits_is_of_the_trace_of_its_request(make: Make, collector: Collector) -> None:
    async with asked(make()) as http:
        body = {"model": "plain", "background": True, "messages": [{"role": "user", "content": "Hello."}]}
        told = await http.post("/v1/chat/completions", json=body, headers=PARENT)
        assert told.status_code == 202
        async with http.stream("GET", f"/v1/runs/{told.json()['id']}/events") as events:
            async for _ in events.aiter_bytes():
                pass
    assert collector.one("invoke_agent plain").parent == collector.one("POST /v1/chat/completions").id


async def test_runs_that_follow_each_other_on_a_thread_are_of_their_own_requests(
    make: Make, model: ModelServer, collector: Collector
) -> None:
    """The second begins in the task of the first one, when that has ended."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def slow(request: ModelRequest) -> Reply:
        if request.last == "First.":
            loop.call_soon_threadsafe(begun.set)
            await asyncio.to_thread(asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result)
        return Reply("Said.")

    model.script(None, slow)
    async with asked(make()) as http:
        body = {"model": "plain", "thread_id": "t", "messages": [{"role": "user", "content": "First."}]}
        first = asyncio.create_task(http.post("/v1/chat/completions", json=body, headers=PARENT))
        await begun.wait()
        later = {**body, "messages": [{"role": "user", "content": "Second."}], "background": True}
        told = await http.post("/v1/chat/completions", json=later)
        assert told.status_code == 202
        go_on.set()
        assert (await first).status_code == 200
        async with http.stream("GET", f"/v1/runs/{told.json()['id']}/events") as events:
            async for _ in events.aiter_bytes():
                pass
    requests = {each.id: each.trace for each in collector.named("POST /v1/chat/completions")}
    runs = collector.named("invoke_agent plain")
    assert [requests[each.parent] for each in runs] == [each.trace for each in runs]
    assert [each.trace == TRACE for each in runs] == [True, False]


async def test_a_run_of_a_program_has_a_trace_that_is_made_of_its_id(make: Make, collector: Collector) -> None:
    async with make() as drsai:
        result = await drsai.run("plain", "Hello.")
        assert result.status is RunStatus.COMPLETED
    run = collector.one("invoke_agent plain")
    assert (run.parent, run.trace) == ("", hashlib.sha256(str(result.run_id).encode()).hexdigest()[:32])


async def test_a_mounted_application_is_in_the_span_of_the_program(make: Make, collector: Collector) -> None:
    class Instrumented:
        """As OpenTelemetry's middleware of the program's own does."""

        def __init__(self, app: ASGIApp) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            own = SpanContext(int(TRACE, 16), int("ab" * 8, 16), is_remote=False, trace_flags=TraceFlags(1))
            token = contexts.attach(set_span_in_context(NonRecordingSpan(own)))
            await self.app(scope, receive, send)
            contexts.detach(token)

    async with make() as drsai:
        outer = FastAPI()
        outer.mount("/ai", drsai.app(is_open=True))
        transport = httpx.ASGITransport(app=Instrumented(outer))
        async with httpx.AsyncClient(transport=transport, base_url="http://test/ai") as http:
            assert (await chat(http, "plain", **PARENT)).status_code == 200
    request = collector.one("POST /v1/chat/completions")
    assert (request.trace, request.parent) == (TRACE, "ab" * 8)


@pytest.mark.parametrize(
    "sent", ["", "00-nothing-of-it-01", f"00-{'0' * 32}-{CLIENT}-01", f"{PARENT['traceparent']}-x"]
)
async def test_what_is_no_trace_begins_one(make: Make, collector: Collector, sent: str) -> None:
    async with asked(make()) as http:
        assert (await chat(http, "plain", traceparent=sent)).status_code == 200
    request = collector.one("POST /v1/chat/completions")
    assert request.parent == ""
    assert request.trace != TRACE
    assert collector.one("invoke_agent plain").trace == request.trace


async def test_a_field_of_a_client_is_no_trace(make: Make) -> None:
    """What is stored under the name is a client's where nothing is traced."""
    async with asked(make(traces=False)) as http:
        body = {"model": "plain", "thread_id": "t", "messages": [{"role": "user", "content": "x"}], "drsai:trace": 7}
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 200


async def test_lines_of_the_log_name_the_trace(
    make: Make, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(AddIds())
    caplog.set_level(logging.INFO, "drsai.run")
    async with asked(make()) as http:
        await chat(http, "plain", **PARENT)
        await chat(http, "plain")
    ours = [record for record in caplog.records if record.name == "drsai.run"]
    assert [vars(record)["trace_id"] == TRACE for record in ours] == [True, True, False, False]
    assert vars(ours[-1])["trace_id"] == collector.named("invoke_agent plain")[-1].trace


async def test_a_collector_that_hangs_holds_nobody_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself, the SDK would wait for ten minutes here."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with Collector(hangs=True) as hanging:
        async with asyncio.timeout(60), asked(make(otlp_endpoint=hanging.url)) as http:
            assert (await chat(http, "looking")).status_code == 200
            assert await asyncio.to_thread(hanging.asked.wait, 30)
            assert (await chat(http, "pair")).status_code == 200


async def test_a_collector_that_is_not_there_holds_nobody_up(make: Make) -> None:
    async with asyncio.timeout(60), asked(make(otlp_endpoint="http://127.0.0.1:1")) as http:
        assert (await chat(http, "looking")).status_code == 200


async def test_off_nobody_is_told_anything(make: Make, model: ModelServer, collector: Collector) -> None:
    async with asked(make(traces=False)) as http:
        assert (await chat(http, "looking", **PARENT)).status_code == 200
    assert collector.spans == []
    assert [each for each in model.requests if "traceparent" in each.headers] == []


async def test_without_the_extra_only_who_asks_for_traces_is_refused(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "drsai_backend.features.traces.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    async with asked(make()) as http:
        assert (await chat(http, "plain")).status_code == 200
    assert next(record.getMessage() for record in caplog.records if record.name == "drsai.traces").startswith(
        "OTEL_EXPORTER_OTLP_ENDPOINT is set, but no traces are sent: "
    )
    with pytest.raises(ConfigurationError, match=r"DRSAI_TRACES: .*pip install 'drsai-backend\[otel\]'"):
        make(traces=True)
