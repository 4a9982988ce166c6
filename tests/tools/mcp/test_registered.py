"""MCP servers that tenants register over the API: checked, reached where they may be, served to agents, counted."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage

from drsai_backend import Answer as PersonsAnswer
from drsai_backend import DrSai, DrSaiAgent, RegisteredTools, RunContext, RunStatus
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel.owner import Owner
from drsai_backend.tools.mcp.host import McpHost
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import settings
from tests.tools.mcp.conftest import serving


def calls(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
    if isinstance(messages[-1], FunctionExecutionResultMessage):
        return messages[-1].content[0].content
    assert [tool["name"] for tool in options["tools"]] == ["numbers__double", "numbers__norm"]
    return [FunctionCall("c0", '{"number": 21}', "numbers__double")]


def clerk(context: RunContext) -> DrSaiAgent:
    return DrSaiAgent(
        "clerk", ScriptedClient(calls), workbench=[RegisteredTools(["numbers"])], reflect_on_tool_use=True
    )


class World:
    def __init__(self, drsai: DrSai, http: httpx.AsyncClient, keys: dict[str, str], port: int) -> None:
        self.drsai = drsai
        self._http = http
        self._keys = keys
        self.url = f"http://127.0.0.1:{port}/mcp"

    async def ask(self, method: str, path: str, body: Any = None, who: str = "ann") -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._keys[who]}"}
        return await self._http.request(method, f"/v1/tools{path}", json=body, headers=headers)

    async def register(self, secrets: dict[str, str] | None = None, name: str = "numbers", **config: Any) -> Any:
        body = {"name": name, "type": "mcp", "config": {"url": self.url, **config}, "secrets": secrets or {}}
        return await self.ask("POST", "", body)


@asynccontextmanager
async def opened(url: str, port: int, *, keys: bool = True, **values: Any) -> AsyncGenerator[World]:
    async with DrSai({"clerk": clerk}, url, settings=settings(**values)) as drsai:
        made = {
            who: (await drsai.keys.create(Owner(tenant, who), ["operator"])).key.get_secret_value()
            for who, tenant in (("ann", "acme"), ("eve", "other"))
            if keys
        }
        transport = httpx.ASGITransport(drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield World(drsai, http, made, port)


@pytest.fixture
async def world(database_url: str, port: int) -> AsyncGenerator[World]:
    async with opened(database_url, port, allowed_addresses=["127.0.0.0/8"]) as world:
        yield world


async def test_tenants_share_no_session(world: World) -> None:
    """What a server remembers of a session is for those who have spoken in it."""
    for who, sessions in (("ann", 1), ("eve", 2)):
        made = await world.ask("POST", "", {"name": "numbers", "type": "mcp", "config": {"url": world.url}}, who)
        assert made.status_code == 201, made.text
        called = await world.ask("POST", "/numbers__double/invoke", {"arguments": {"number": 4}}, who)
        assert called.json()["content"] == "8"
        assert world.drsai.mcp.pool.count == sessions


async def test_its_tools_are_served_to_agents(world: World) -> None:
    made = await world.register({"KEY": "hunter2"}, include=["double", "norm"], headers={"X-Key": "k {secret:KEY}"})
    assert made.status_code == 201, made.text
    assert (made.json()["type"], made.json()["secrets"]) == ("mcp", ["KEY"])
    assert "hunter2" not in made.text
    result = await world.drsai.user("ann", tenant="acme").run("clerk", "Twice 21?")
    assert result.text == "42"
    tried = await world.ask("POST", "/numbers__double/invoke", {"arguments": {"number": 4}})
    assert (tried.json()["content"], tried.json()["is_error"]) == ("8", False)
    await world.drsai.engine.tools.statistics.flush()
    assert (await world.ask("GET", "/numbers")).json()["statistics"]["calls"] == 2
    assert world.drsai.mcp.pool.count == 1, "all share one connection"


async def test_which_of_its_tools_must_be_said(world: World) -> None:
    await world.register(include=["double"])
    for name in ("numbers", "numbers__norm", "numbers__", "others__double"):
        tried = await world.ask("POST", f"/{name}/invoke", {"arguments": {"number": 4}})
        assert tried.status_code == 404, tried.text
    assert "numbers__double" in (await world.ask("POST", "/numbers/invoke", {})).text


async def test_of_another_tenant_there_is_none(world: World) -> None:
    await world.register()
    for method, path in (("GET", "/numbers"), ("DELETE", "/numbers"), ("POST", "/numbers__double/invoke")):
        answer = await world.ask(method, path, {"arguments": {"number": 4}} if method == "POST" else None, who="eve")
        assert answer.status_code == 404


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"command": "/bin/sh", "args": ["-c", "id"]}, "config.args", "a program is not started"),
    ({"command": "/bin/sh"}, "config.command", "DRSAI_MCP_SERVERS"),
    ({"url": "ftp://example.org/"}, "config.url", "http"),
    ({"url": "https://127.1.1.1.1/mcp"}, "config.url", ""),
    ({"header": {}}, "config.header", "Extra inputs"),
    ({"headers": {"K": "{secret:KEY}"}}, "secrets", "has no 'KEY'"),
    ({"headers": {"K": "{user}"}}, "config.headers", "{user}"),
    ({"timeout": 0}, "config.timeout", "greater than 0"),
    ({"timeout": True}, "config.timeout", "must be a number"),
]


@pytest.mark.parametrize(("config", "param", "said"), BAD)
async def test_what_cannot_be_registered(world: World, config: dict[str, Any], param: str, said: str) -> None:
    answer = await world.register(**config)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    assert said in answer.json()["error"]["message"]
    assert (await world.ask("GET", "")).json()["data"] == []


async def test_a_server_that_does_not_answer_is_not_registered(world: World) -> None:
    for url in ("http://127.0.0.1:9/mcp", world.url.replace("/mcp", "/nothing")):
        answer = await world.register(url=url)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "config.url"), answer.text
        assert "was tried" in answer.json()["error"]["message"]
    assert (await world.register(name="a" * 33)).json()["error"]["param"] == "name"


async def test_the_operators_environment_is_not_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a server of the operator's, `${NAME}` is a variable; in one of a tenant's it is what is written there."""
    from drsai_backend.tools.mcp import http
    from drsai_backend.tools.registered.mcp import McpKind

    monkeypatch.setenv("OPERATORS", "sk-operator")
    assert (await world.register(headers={"X-Key": "${OPERATORS}"})).status_code == 400
    secrets = {"KEY": "${OPERATORS}"}
    made = await world.register(secrets, headers={"X-Key": "{secret:KEY}"})
    assert made.status_code == 201, made.text
    workbench = McpKind(("127.0.0.0/8",), McpHost()).make("numbers", made.json()["config"], secrets, tenant="acme")
    [server] = workbench._servers.values()  # pyright: ignore[reportPrivateUsage]
    async with http._client(server) as client:  # type: ignore[arg-type]
        assert client.headers["x-key"] == "${OPERATORS}"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{}/mcp", "http://localhost:{}/mcp", "http://[::ffff:127.0.0.1]:{}/mcp"]
)
async def test_addresses_that_are_not_public(migrated_sqlite: str, port: int, url: str) -> None:
    """Neither when it is registered, nor later by a name whose address has changed."""
    async with opened(migrated_sqlite, port) as world:
        answer = await world.register(url=url.format(port).replace("http:", "https:"))
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "config.url"), answer.text
    async with opened(migrated_sqlite, port, allowed_addresses=["127.0.0.0/8", "::1/128"]) as world:
        assert (await world.register(include=["double", "norm"])).status_code == 201
    async with opened(migrated_sqlite, port, allowed_addresses=["10.0.0.0/8"]) as world:
        tried = await world.ask("POST", "/numbers__double/invoke", {"arguments": {"number": 4}})
        assert tried.status_code == 404, json.dumps(tried.json())
        assert "must not be reached" not in tried.text


async def test_a_turn_is_repeated_although_the_server_is_away(migrated_sqlite: str, unused_port: int) -> None:
    """Its tools are those that the model was told of; the call is an error, and the run ends well."""
    server = await serving(unused_port)
    try:
        async with opened(migrated_sqlite, unused_port, allowed_addresses=["127.0.0.0/8"]) as world:
            made = await world.register(include=["double", "norm"], requires_approval=True)
            assert made.status_code == 201, made.text
            asked = await world.drsai.user("ann", tenant="acme").run("clerk", "Twice 21?", thread_id="t")
            assert asked.input_request is not None, asked
    finally:
        server.kill()
        server.wait()
    async with opened(migrated_sqlite, unused_port, keys=False, allowed_addresses=["127.0.0.0/8"]) as world:
        answer = PersonsAnswer(str(asked.input_request["id"]), None, "approve")
        handle = await world.drsai.engine.answer(Principal("ann", "acme"), "t", answer)
        ended = await handle.wait()
        assert ended.status is RunStatus.COMPLETED, ended
        assert "numbers" in str((await world.drsai.user("ann", tenant="acme").list_messages("t"))[-1].content)
