"""Conversations that look alike and are two people's: whoever names no thread gets no word of another one."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drsai_backend import DrSai, DrSaiAgent, RunContext
from drsai_backend.datamodel.owner import Owner
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import settings as settings_with

PORTAL = Owner("default", "portal")
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
FOUND = "### Task:\nAnswer the question.\n<context>\n{}\n</context>\n\n{}"
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def answer(asked: ModelRequest) -> Any:
    """Equal for all chats: it repeats nothing of what it was told."""
    last = asked.messages[-1]
    if "look" in asked.tools and last["role"] == "user":
        return Reply(tool_calls=[ToolCall("look", {}, f"call{asked.number}")])
    return f"A{sum(each['role'] == 'assistant' for each in asked.messages)}"


def agent(context: RunContext) -> DrSaiAgent:
    return DrSaiAgent("ann", context.model_client("gpt-4o-mini"))


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@asynccontextmanager
async def serving(
    url: str, server: ModelServer, count: int = 1, **values: Any
) -> AsyncIterator[list[httpx.AsyncClient]]:
    server.clear()
    server.script(None, answer)
    async with AsyncExitStack() as stack:
        clients: list[httpx.AsyncClient] = []
        for _ in range(count):
            given = settings_with(openai_base_url=server.base_url, openai_api_key="k", **values)
            drsai = DrSai(
                {"team": lambda context: DrSaiAgent("ann", context.model_client("gpt-4o-mini"))}, url, settings=given
            )
            app = httpx.ASGITransport(app=(await stack.enter_async_context(drsai)).app())
            clients.append(httpx.AsyncClient(transport=app, base_url="http://127.0.0.1", timeout=60))
        yield clients


@dataclass
class Chat:
    """A chat window that names no thread. `system` and `document` go with what it sends, and are not shown later."""

    http: httpx.AsyncClient
    path: str = CHAT
    values: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    thread: str | None = None
    imported: bool = False

    async def say(self, text: str, system: str | None = None, document: str | None = None, **values: Any) -> None:
        asked = text if document is None else FOUND.format(document, text)
        sent = [*self.messages, {"role": "user", "content": asked}]
        body: dict[str, Any] = {"model": "team", **self.values, **values}
        if self.path == CHAT:
            body["messages"] = [*([] if system is None else [{"role": "system", "content": system}]), *sent]
        elif self.path == MESSAGES:
            body |= {"messages": sent, "max_tokens": 99, **({} if system is None else {"system": system})}
        else:
            body |= {"input": sent, **({} if system is None else {"instructions": system})}
        response = await self.http.post(self.path, json=body)
        assert response.status_code == 200, response.text
        self.thread, self.imported = response.headers["x-thread-id"], response.headers.get("x-thread") == "imported"
        said = response.json()
        if self.path == CHAT:
            text_of = said["choices"][0]["message"]["content"]
        else:
            text_of = (said["content"] if self.path == MESSAGES else said["output"][0]["content"])[0]["text"]
        self.messages += [{"role": "user", "content": text}, {"role": "assistant", "content": text_of}]


def texts(server: ModelServer) -> str:
    return str(server.requests[-1].messages)


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
async def test_what_one_of_many_people_has_told_reaches_no_other(
    migrated_sqlite: str, server: ModelServer, path: str
) -> None:
    async with serving(migrated_sqlite, server) as [http]:
        bob, ann, eve = (Chat(http, path) for _ in range(3))
        await bob.say("Q")
        await ann.say("Q", system="I am Ann, PIN 4711")
        await eve.say("Q", document="The secret is 0815")
        assert [each.imported for each in (bob, ann, eve)] == [False] * 3
        mine = [each.thread for each in (bob, ann, eve)]
        assert len({*mine}) == 3
        await bob.say("What do you know about me?")
        assert "4711" not in texts(server)
        assert "0815" not in texts(server)
        await ann.say("And me?", system="I am Ann, PIN 4711")
        assert texts(server).count("4711") == 1
        # Each keeps its own, though they begin alike. Eve's client has left the document out: it may be anybody's.
        assert [bob.thread, ann.thread] == mine[:2]
        assert [bob.imported, ann.imported] == [False] * 2
        await eve.say("And?")
        assert eve.thread not in mine
        assert "0815" not in texts(server)
        # Ann's client forgets who she is: it is imported, and from then on her own again.
        await ann.say("Who am I?")
        assert ann.imported
        assert "4711" not in texts(server)
        thread = ann.thread
        await ann.say("Really?")
        assert (ann.thread, ann.imported) == (thread, False)


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_what_one_person_has_told_stays_theirs(migrated_sqlite: str, server: ModelServer, where: str) -> None:
    """Their client drops the document that it has found; the thread has it. A system message holds while it is sent."""
    async with serving(migrated_sqlite, server, 2) as [http, other]:
        ann = Chat(http, values={"user": "ann"})
        await ann.say("Q", system="Speak Latin", document="The secret is 0815")
        thread = ann.thread
        ann.http = http if where == "here" else other
        await ann.say("And?")
        assert (ann.thread, ann.imported) == (thread, False)
        assert "0815" in texts(server)
        assert "Latin" not in texts(server)
        # Of what looks alike, the one is meant that was told the same.
        again = Chat(http, values={"user": "ann"})
        await again.say("Q", system="Speak Greek")
        twin = Chat(http, values={"user": "ann"})
        await twin.say("Q", system="Speak Dutch")
        await again.say("And?", system="Speak Greek")
        assert "Dutch" not in texts(server)
        assert len({thread, again.thread, twin.thread}) == 3


async def test_a_key_of_a_gateway_is_many_people(migrated_sqlite: str, server: ModelServer) -> None:
    async with serving(migrated_sqlite, server) as [http]:
        async with DrSai({}, migrated_sqlite, settings=settings_with(), worker=False) as drsai:
            made = [await drsai.keys.create(PORTAL, scopes) for scopes in (["user", "act-as"], ["user"])]
        gateway, plain = (each.key.get_secret_value() for each in made)
        for key, known in ((gateway, {}), (plain, {"user": "end user 7"}), (plain, {}), (gateway, {"user": "bob"})):
            http.headers["authorization"] = f"Bearer {key}"
            chat = Chat(http, values=known)
            await chat.say("Q", document="The secret is 0815")
            await chat.say("And?")
            is_one = known == {} if key == plain else bool(known)
            assert chat.imported is not is_one, (key == plain, known)


@pytest.mark.parametrize("resent", ["system", "folded", "results", "calls"])
async def test_all_that_clients_send_and_digests_leave_out(
    migrated_sqlite: str, server: ModelServer, resent: str
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"for": "0815"}'}}
    history: dict[str, list[dict[str, Any]]] = {
        "system": [{"role": "developer", "content": "0815"}],
        "folded": [{"role": "assistant", "content": "<details>0815</details>"}],
        "results": [{**call, "function": {**call["function"], "arguments": "{}"}}],
        "calls": [call],
    }
    before: list[dict[str, Any]] = history[resent]
    if "function" in before[0]:
        result = {"role": "tool", "tool_call_id": "c1", "content": "0815" if resent == "results" else "x"}
        before = [{"role": "assistant", "content": None, "tool_calls": before}, result]
    async with serving(migrated_sqlite, server) as [http]:
        ann, bob = Chat(http), Chat(http)
        ann.messages = [{"role": "user", "content": "Q"}, *before, {"role": "assistant", "content": "A"}]
        with_tool = {"tools": [TOOL], "tool_choice": "none"}
        await ann.say("More", **with_tool)
        assert "0815" in texts(server)
        bob.messages = [each for each in ann.messages if each in ({"role": "user", "content": "Q"}, *ann.messages[-3:])]
        await bob.say("Mine", **with_tool)
        assert "0815" not in texts(server)
        assert bob.thread != ann.thread
        thread = ann.thread
        await ann.say("And?", **with_tool)
        assert ann.thread == thread


secrets = st.sampled_from([None, "system", "document", "tool"])
steps = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(["Q", "R"]), secrets, st.booleans()), min_size=2, max_size=7
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_no_model_request_of_one_client_holds_a_text_that_only_the_other_sent(
    sqlite_template: bytes, server: ModelServer, said: list[tuple[int, str, str | None, bool]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "a.db"
        file.write_bytes(sqlite_template)
        asyncio.run(_two_clients(f"sqlite:///{file}", server, said))


async def _two_clients(url: str, server: ModelServer, said: list[tuple[int, str, str | None, bool]]) -> None:
    async with serving(url, server, 2) as http:
        chats = [Chat(http[0]), Chat(http[0])]
        for number, (who, text, how, moves) in enumerate(said):
            chat, secret = chats[who], f"secret {number} of {who}"
            chat.http = http[moves]
            if how == "tool":
                call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
                chat.messages += [
                    {"role": "user", "content": text},
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": f"c{number}", "content": secret},
                    {"role": "assistant", "content": "A"},
                ]
            named = {how: secret} if how in ("system", "document") else {}
            await chat.say(text, **named, tools=[TOOL], tool_choice="none")
            assert f"of {1 - who}" not in texts(server)
