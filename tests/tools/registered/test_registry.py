"""Tools that tenants register over the API: checked, kept with versions, served to agents, called and counted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend import DrSai, DrSaiAgent, RegisteredTools, RunContext
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError
from drsai_backend.tools import Approval, ToolBase, call_tool
from drsai_backend.tools.fixed import FixedTool
from drsai_backend.tools.registered.registry import ToolSpec
from drsai_backend.tools.registered.statistics import bucket_of, quantile
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import settings
from tests.tools.http.conftest import Said, Site, site

__all__ = ["site"]
WHO = Principal("ann", tenant="acme", scopes=frozenset(Scope))


def config(site: Site, path: str = "/w/{city}", **values: Any) -> dict[str, Any]:
    return {
        "description": "The weather.",
        "parameters": [{"name": "city", "type": "string", "required": True}],
        "endpoint": {"url": site.url + path, "headers": {"K": "{secret:KEY}"}},
        **values,
    }


def calls(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
    if isinstance(messages[-1], FunctionExecutionResultMessage):
        return messages[-1].content[0].content
    return [FunctionCall("c0", '{"city": "Rome"}', "weather")]


def clerk(context: RunContext) -> DrSaiAgent:
    tools = RegisteredTools(["weather"])
    return DrSaiAgent("clerk", ScriptedClient(calls), workbench=[tools], reflect_on_tool_use=True)


class World:
    """A server and its admin."""

    def __init__(self, drsai: DrSai, http: httpx.AsyncClient, keys: dict[str, str]) -> None:
        self.drsai = drsai
        self._http = http
        self._keys = keys

    async def ask(self, method: str, path: str, body: Any = None, who: str = "ann") -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._keys[who]}"}
        return await self._http.request(method, f"/v1/tools{path}", json=body, headers=headers)

    async def put_in(self, site: Site, **values: Any) -> httpx.Response:
        body = {"name": "weather", "config": config(site, **values), "secrets": {"KEY": "hunter2"}}
        return await self.ask("POST", "", body)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[World]:
    async with DrSai({"clerk": clerk}, url, settings=settings(allowed_addresses=["127.0.0.0/8"])) as drsai:
        names = {"ann": ("acme", "operator"), "bob": ("acme", "user"), "eve": ("other", "operator")}
        keys = {
            who: (await drsai.keys.create(Owner(tenant, who), [role])).key.get_secret_value()
            for who, (tenant, role) in names.items()
        }
        transport = httpx.ASGITransport(drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield World(drsai, http, keys)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with opened(database_url) as world:
        yield world


async def test_the_life_of_a_tool(world: World, site: Site) -> None:
    made = await world.put_in(site)
    assert made.status_code == 201, made.text
    tool = made.json()
    assert (tool["id"], tool["type"], tool["version"], tool["secrets"]) == ("weather", "http", 1, ["KEY"])
    assert "hunter2" not in made.text
    assert site.requests == []
    again = await world.put_in(site)
    assert (again.status_code, again.json()["error"]["param"]) == (409, "name")

    site.answer = lambda sent: Said("sun")
    tried = await world.ask("POST", "/weather/invoke", {"arguments": {"city": "Rome"}})
    assert (tried.json()["content"], tried.json()["is_error"]) == ("sun", False)
    assert (site.requests[-1].path, site.requests[-1].headers["k"]) == ("/w/Rome", "hunter2")
    wrong = await world.ask("POST", "/weather/invoke", {"arguments": {"city": "Ro\0me"}})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "arguments.city"), "as in every body"
    wrong = await world.ask("POST", "/weather/invoke", {"arguments": {}})
    assert wrong.json()["is_error"]
    assert "city" in wrong.json()["content"]

    changed = await world.ask("PUT", "/weather", {"config": config(site, "/x/{city}"), "secrets": {"KEY": "hunter3"}})
    assert changed.json()["version"] == 2
    await world.ask("POST", "/weather/invoke", {"arguments": {"city": "Rome"}})
    assert (site.requests[-1].path, site.requests[-1].headers["k"]) == ("/x/Rome", "hunter3")
    site.answer = lambda sent: Said("no", status=400)
    await world.ask("POST", "/weather/invoke", {"arguments": {"city": "Rome"}})
    await world.drsai.engine.tools.statistics.flush()
    [listed] = (await world.ask("GET", "")).json()["data"]
    counted = listed["statistics"]
    assert (counted["calls"], counted["failures"]) == (3, 1)
    assert 0 < counted["p50_seconds"] <= counted["p95_seconds"] < 30

    assert (await world.ask("DELETE", "/weather")).json()["deleted"] is True
    for method, path in (("GET", "/weather"), ("DELETE", "/weather"), ("POST", "/weather/invoke")):
        assert (await world.ask(method, path, {} if method == "POST" else None)).status_code == 404
    assert (await world.put_in(site)).json()["version"] == 3


async def test_whose_it_is(world: World, site: Site) -> None:
    await world.put_in(site)
    assert (await world.ask("GET", "/weather", who="bob")).status_code == 200
    assert (await world.ask("DELETE", "/weather", who="bob")).status_code == 403
    assert (await world.ask("POST", "/weather/invoke", {}, who="bob")).status_code == 403
    for method in ("GET", "DELETE"):
        assert (await world.ask(method, "/weather", who="eve")).status_code == 404
    assert (await world.ask("GET", "", who="eve")).json()["data"] == []


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"name": "a b"}, "name"),
        ({"secrets": {}}, "secrets"),
        ({"secrets": {"KEY": "k", "MORE": "m"}}, "secrets"),
        ({"secrets": {"KEY": "k\n"}}, "secrets"),
        ({"config": {"description": "x"}}, "config.endpoint"),
        ({"config": {"name": "x", "description": "x", "endpoint": {"url": "https://a.example/"}}}, "config.name"),
        (
            {"config": {"description": "x", "endpoint": {"url": "https://10.0.0.1/"}}, "secrets": {}},
            "config.endpoint.url",
        ),
        ({"config": {"description": "x" * 70_000}}, "config"),
        ({"type": "stdio"}, "type"),
    ],
    ids=str,
)
async def test_tools_that_cannot_be(world: World, site: Site, change: dict[str, Any], param: str) -> None:
    body = {"name": "weather", "config": config(site), "secrets": {"KEY": "k"}, **change}
    refused = await world.ask("POST", "", body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.text
    assert (await world.ask("GET", "")).json()["data"] == []


async def test_credentials_are_tried(world: World, site: Site) -> None:
    site.answer = lambda sent: Said("who are you?", status=401 if sent.path == "/me" else 200)
    check = {"check": {"url": f"{site.url}/me", "headers": {"K": "{secret:KEY}"}}}
    refused = await world.put_in(site, **check)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "config.check")
    assert "401" in refused.text
    assert "hunter2" not in refused.text
    site.answer = lambda sent: Said("ok")
    assert (await world.put_in(site, **check)).status_code == 201
    assert site.requests[-1].headers["k"] == "hunter2"


async def test_agents_call_it_in_runs(world: World, site: Site) -> None:
    site.answer = lambda sent: Said("sun")
    await world.put_in(site)
    result = await world.drsai.user("ann", tenant="acme").run("clerk", "The weather?")
    assert result.task_result["messages"][-1]["content"] == "sun"
    await world.ask("PUT", "/weather", {"config": config(site, "/y/{city}"), "secrets": {"KEY": "k"}})
    await world.drsai.user("ann", tenant="acme").run("clerk", "The weather?")
    assert [sent.path for sent in site.requests] == ["/w/Rome", "/y/Rome"]
    with pytest.raises(Exception, match="there is no tool 'weather'"):
        await world.drsai.user("eve", tenant="other").run("clerk", "The weather?")


async def test_what_a_definition_fixes_of_it(world: World, site: Site) -> None:
    """Its default is sent, an argument is the definition's, and who approves a call is asked."""
    days = {"name": "days", "type": "integer", "default": 3}
    city = {"name": "city", "type": "string", "required": True}
    made = await world.put_in(
        site,
        parameters=[city, days],
        endpoint={"url": site.url + "/{city}", "query": {"days": "{days}"}, "headers": {"K": "{secret:KEY}"}},
        requires_approval={"by": "user:boss", "deadline": 60},
    )
    assert made.status_code == 201, made.text
    registry = world.drsai.engine.tools
    stored = (await registry.find("acme", ["weather"]))["weather"]
    assert stored.definition["requires_approval"] == {"by": "user:boss", "deadline": "PT1M"}
    tool = registry.make("acme", stored)
    assert isinstance(tool, ToolBase)
    assert tool.options.approval({}) == Approval("user:boss", None, timedelta(seconds=60))
    fixed = FixedTool(tool, {"city": "Oslo"}, approval=True)
    assert fixed.options.approval({}) == tool.options.approval({}), "its own goes first"
    assert [*fixed.schema["parameters"]["properties"]] == ["days"]
    assert not (await call_tool(fixed, {"city": "Rome"})).is_error
    assert (site.requests[-1].path, site.requests[-1].query) == ("/Oslo", [("days", "3")])


async def test_a_resumed_run_finds_it_as_it_was(world: World, site: Site) -> None:
    await world.put_in(site)
    registry = world.drsai.engine.tools
    first = await registry.get(WHO, "weather")
    at = first.created_at
    await registry.register(WHO, ToolSpec("weather", "http", config(site, "/z/{city}"), {"KEY": "k"}), replaces=True)
    await registry.unregister(WHO, "weather")
    found = (await registry.find("acme", ["weather"], at))["weather"]
    assert (found.version, found.definition) == (1, first.definition)


async def test_another_process_serves_a_change_within_two_seconds(world: World, site: Site, database_url: str) -> None:
    await world.put_in(site)
    async with opened(database_url) as other:
        registry = other.drsai.engine.tools
        assert (await registry.find("acme", ["weather"]))["weather"].version == 1
        await world.ask("PUT", "/weather", {"config": config(site, "/y/{city}"), "secrets": {"KEY": "k"}})
        for name in registry._recent._known:
            ends, tool = registry._recent._known[name]
            registry._recent._known[name] = (ends - 1.0, tool)  # A second goes by.
        assert (await registry.find("acme", ["weather"]))["weather"].version == 2


def test_outside_a_team_factory() -> None:
    with pytest.raises(ConfigurationError, match="made by a team factory"):
        RegisteredTools(["weather"])


@given(st.lists(st.floats(0, 2000), min_size=1), st.sampled_from([0.5, 0.95]))
def test_a_quantile_is_at_most_a_fifth_too_high(seconds: list[float], share: float) -> None:
    buckets: dict[int, int] = {}
    for each in seconds:
        buckets[bucket_of(each)] = buckets.get(bucket_of(each), 0) + 1
    exact = sorted(seconds)[-(-len(seconds) * round(share * 100) // 100) - 1]
    found = quantile(buckets, share)
    assert found is not None
    assert exact * 0.999 <= found <= max(0.001, exact * 1.2001)
