"""The served teams as tools of an MCP server, asked by the `mcp` package's own client: over HTTP, and over stdio."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from drsai_backend import DrSai, requires_approval
from drsai_backend.api.http import stream
from drsai_backend.datamodel.owner import Owner
from tests.support.scripted import ScriptedClient
from tests.support.teams.crew import Crew
from tests.support.threads import settings


@asynccontextmanager
async def client(app: Any, key: str | None = None, mode: str = "auto") -> AsyncIterator[Client]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), headers=headers, timeout=30) as http,
        Client(streamable_http_client("http://test/mcp", http_client=http), mode=mode) as made,
    ):
        yield made


@pytest.fixture
async def drsai(migrated_sqlite: str) -> AsyncIterator[DrSai]:
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    def payer() -> AssistantAgent:
        """Pays."""

        def rule(messages: Any, options: Any) -> Any:
            if type(messages[-1]).__name__ == "UserMessage":
                return [FunctionCall(id="c1", name="pay", arguments='{"amount": 7}')]
            return f"done: {messages[-1].content[0].content}"

        return AssistantAgent("payer", ScriptedClient(rule), tools=[requires_approval(pay)], reflect_on_tool_use=True)

    def echo() -> AssistantAgent:
        """Says it again."""
        return AssistantAgent("echo", ScriptedClient(lambda messages, options: f"You said {messages[-1].content}."))

    def slow() -> AssistantAgent:
        """Takes its time."""
        return AssistantAgent("slow", ScriptedClient(lambda messages, options: "at last", delay=0.6))

    async with DrSai({"echo": echo, "the/payer": payer, "slow": slow}, migrated_sqlite, settings=settings()) as made:
        yield made


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_conversation(drsai: DrSai, mode: str) -> None:
    async with client(drsai.app(), mode=mode) as asked:
        tools = {tool.name: tool for tool in (await asked.list_tools()).tools}
        assert {name: tool.description for name, tool in tools.items()} == {
            "echo": "Says it again.",
            "the_payer": "Pays.",
            "slow": "Takes its time.",
        }
        first = await asked.call_tool("echo", {"message": "hello", "idempotency_key": "k"})
        assert not first.is_error
        told = first.structured_content
        assert (told["text"], told["status"]) == ("You said hello.", "completed")
        assert (await asked.call_tool("echo", {"message": "hello", "idempotency_key": "k"})).structured_content == told
        where = {"thread_id": told["thread_id"]}
        again = await asked.call_tool("echo", {"message": "more", **where})
        assert again.structured_content["text"] == "You said more."
        left = await asked.call_tool("echo", {"message": "last", "wait_seconds": 0, **where})
        assert left.structured_content["status"] == "running"
        assert (await asked.call_tool("echo", where)).structured_content["text"] == "You said last."
        for wrong, code in (
            ({}, "invalid_request"),
            ({"message": "a", "answer": "b"}, "invalid_request"),
            ({"messages": "a"}, "invalid_request"),
            ({"message": "a", "wait_seconds": True}, "invalid_request"),
            ({"thread_id": "unknown"}, "not_found"),
            ({"message": "a", "thread_id": "two\nlines"}, "invalid_request"),
            ({"message": "a", "thread_id": "\x1b[2J"}, "invalid_request"),
            ({"message": "a", "idempotency_key": " k"}, "invalid_request"),
            ({"answer": "b", **where}, "input_request_stale"),
        ):
            refused = await asked.call_tool("echo", wrong)
            assert refused.is_error
            assert refused.structured_content["error"]["code"] == code, wrong
        for more in ({}, {"idempotency_key": "k"}):  # A team that is not listed.
            refused = await asked.call_tool("engine:simple", {"message": "a", **more})
            assert refused.structured_content["error"]["code"] == "not_found"
        with pytest.raises(MCPError):  # No body of any route may hold that.
            await asked.call_tool("echo", {"message": "a\0"})


async def test_a_question_and_its_answer(drsai: DrSai) -> None:
    async with client(drsai.app()) as asked:
        waits = await asked.call_tool("the_payer", {"message": "pay"})
        told = waits.structured_content
        assert told["status"] == "awaiting_input"
        assert '"approve", "deny: the reason"' in waits.content[-1].text
        where = {"thread_id": told["thread_id"]}
        assert (await asked.call_tool("the_payer", {"answer": "perhaps", **where})).is_error
        done = await asked.call_tool("the_payer", {"answer": "approve", **where})
        assert done.structured_content["text"] == "done: paid 7"
        waits = await asked.call_tool("the_payer", {"message": "pay"})
        where = {"thread_id": waits.structured_content["thread_id"]}
        done = await asked.call_tool("the_payer", {"answer": "deny: too much", **where})
        assert "too much" in done.structured_content["text"]


async def test_an_answer_with_a_key_is_taken_once(drsai: DrSai) -> None:
    """Its repeat hears what followed it, also when the thread asks nothing any more, or something else."""
    async with client(drsai.app()) as asked:
        waits = await asked.call_tool("the_payer", {"message": "pay"})
        where = {"thread_id": waits.structured_content["thread_id"]}
        answer = {"answer": '{"decision": "approve"}', "idempotency_key": "k", **where}
        first = await asked.call_tool("the_payer", answer)
        assert first.structured_content["text"] == "done: paid 7"
        assert (await asked.call_tool("the_payer", answer)).structured_content == first.structured_content
        other = await asked.call_tool("the_payer", {**answer, "answer": "deny"})
        assert other.structured_content["error"]["code"] == "idempotency_mismatch"
        late = await asked.call_tool("the_payer", {**answer, "idempotency_key": "another"})
        assert late.structured_content["error"]["code"] == "input_request_stale"
        assert late.structured_content["error"]["param"] == "answer"
        again = await asked.call_tool("the_payer", {"message": "pay", **where})
        assert again.structured_content["status"] == "awaiting_input"
        assert (await asked.call_tool("the_payer", answer)).structured_content == first.structured_content
        still = await asked.call_tool("the_payer", where)
        assert still.structured_content["status"] == "awaiting_input"


async def test_a_client_that_leaves_asks_again(drsai: DrSai) -> None:
    async with client(drsai.app()) as asked:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await asked.call_tool("slow", {"message": "hello", "thread_id": "t"})
    async with client(drsai.app()) as asked:
        told = (await asked.call_tool("slow", {"thread_id": "t"})).structured_content
        assert (told["text"], told["status"]) == ("at last", "completed")
    assert (await drsai.get_thread("t")).message_count == 2


async def test_two_tenants(drsai: DrSai) -> None:
    """Both have a key, and each tries to read, continue and answer what is the other's."""
    keys = [
        (await drsai.keys.create(Owner(tenant, "ann"), ["chat"])).key.get_secret_value() for tenant in ("acme", "other")
    ]
    app = drsai.app()
    async with client(app, keys[0]) as ann, client(app, keys[1]) as eve:
        waits = (await ann.call_tool("the_payer", {"message": "pay", "thread_id": "t"})).structured_content
        assert waits["status"] == "awaiting_input"
        for attempt in ({}, {"answer": "approve"}):
            refused = await eve.call_tool("the_payer", {"thread_id": "t", **attempt})
            assert refused.structured_content["error"]["code"] == "not_found"
        own = await eve.call_tool("echo", {"message": "mine", "thread_id": "t"})  # a thread of eve's own, of that name
        assert own.structured_content["text"] == "You said mine."
        still = (await ann.call_tool("the_payer", {"thread_id": "t"})).structured_content
        assert still["status"] == "awaiting_input"
        assert still["run_id"] == waits["run_id"]


async def test_what_is_refused_before_it_is_read(drsai: DrSai) -> None:
    reader = (await drsai.keys.create(Owner("acme", "ann"), ["threads:read"])).key.get_secret_value()
    app = drsai.app()
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as http:
        assert (await http.post("/mcp", json=body)).status_code == 401
        headers = {"Authorization": f"Bearer {reader}"}
        assert (await http.post("/mcp", json=body, headers=headers)).status_code == 403
        assert (await http.get("/mcp", headers=headers)).status_code == 405
        chatter = (await drsai.keys.create(Owner("acme", "ann"), ["chat"])).key.get_secret_value()
        headers = {"Authorization": f"Bearer {chatter}", "Content-Type": "application/json"}
        large = b'{"a": "' + b"x" * (drsai.settings.max_body_bytes + 1) + b'"}'
        assert (await http.post("/mcp", content=large, headers=headers)).status_code == 413
        assert (await http.post("/mcp", content=b"{", headers=headers)).status_code == 400


def text_of(key: Any) -> str:
    return key.key.get_secret_value()


@asynccontextmanager
async def held(url: str, **more: Any) -> AsyncIterator[tuple[Crew, DrSai, list[Any]]]:
    """A team that answers when it is let, and two keys of ann."""
    crew = Crew()
    crew.ann.hold()
    async with DrSai({"crew": crew}, url, settings=settings(**more)) as made:
        made.keys.stale_seconds = 0
        yield crew, made, [await made.keys.create(Owner("acme", "ann"), ["chat"]) for _ in range(2)]
        crew.ann.release()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_large_message_counts_until_it_is_read(database_url: str, mode: str) -> None:
    size = {"max_body_bytes": 400_000, "max_bodies_bytes": 400_000}
    async with (
        held(database_url, **size) as (crew, drsai, keys),
        client(drsai.app(), text_of(keys[0]), mode) as asked,
        asyncio.timeout(30),
    ):
        waits = asyncio.create_task(asked.call_tool("crew", {"message": "x" * 300_000}))
        await crew.ann.asked.wait()
        again = await asked.call_tool("crew", {"message": "y" * 300_000, "wait_seconds": 0})
        assert again.structured_content["status"] == "running"
        crew.ann.release()
        assert (await waits).structured_content["status"] == "completed"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_answer_whose_key_is_revoked_is_cut_and_its_run_goes_on(
    database_url: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.05)
    async with held(database_url) as (crew, drsai, keys), asyncio.timeout(30):
        app = drsai.app()
        async with client(app, text_of(keys[0]), mode) as asked, client(app, text_of(keys[1]), mode) as kept:
            waits = asyncio.create_task(asked.call_tool("crew", {"message": "hello", "thread_id": "t"}))
            await crew.ann.asked.wait()
            hears = asyncio.create_task(kept.call_tool("crew", {"thread_id": "t"}))
            await asyncio.sleep(0.3)
            assert not waits.done()
            assert not hears.done()
            await drsai.keys.revoke("acme", keys[0].info.key_id)
            with pytest.raises(MCPError) as raised:
                await waits
            if mode == "legacy":  # The other one has no status yet, and becomes a 401.
                assert raised.value.error.data == {"code": "invalid_api_key"}
            crew.ann.release()
            assert (await hears).structured_content["status"] == "completed"


async def test_a_call_under_way_is_a_stream(database_url: str) -> None:
    async with (
        held(database_url, limit_user={"streams": 1}) as (crew, drsai, keys),
        client(drsai.app(), text_of(keys[0])) as asked,
        asyncio.timeout(30),
    ):
        waits = asyncio.create_task(asked.call_tool("crew", {"message": "hello"}))
        await crew.ann.asked.wait()
        with pytest.raises(MCPError):
            await asked.call_tool("crew", {"message": "hello"})
        assert [tool.name for tool in (await asked.list_tools()).tools] == ["crew"]
        crew.ann.release()
        assert (await waits).structured_content["status"] == "completed"
        assert not (await asked.call_tool("crew", {"message": "hello"})).is_error


async def test_over_stdio(tmp_path: Path) -> None:
    """`drsai mcp`, with the offline demo model."""
    where = f"sqlite:///{tmp_path / 'a.db'}"
    command = ["-m", "drsai_backend", "mcp", "--user", "ann", "--database-url", where, "--log-level", "error"]
    server = StdioServerParameters(command=sys.executable, args=command, env={"DRSAI_DEMO_DELAY": "0"})
    async with Client(server) as asked:
        assert {tool.name for tool in (await asked.list_tools()).tools} == {"assistant", "writers"}
        told = (await asked.call_tool("assistant", {"message": "hello"})).structured_content
        assert told["status"] == "completed"
    async with DrSai(None, where, settings=settings()) as drsai:
        assert (await drsai.user("ann").get_thread(told["thread_id"])).message_count == 2


async def test_without_its_package_it_says_what_to_install(drsai: DrSai, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.streamable_http_manager", None)  # as if it were not there
    transport = httpx2.ASGITransport(app=drsai.app())
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as http:
        answer = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert answer.status_code == 501
    error = answer.json()["error"]
    assert (error["code"], "pip install 'drsai-backend[mcp]'" in error["message"]) == ("not_installed", True)
