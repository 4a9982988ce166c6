"""Credentials in headers of registered tools are named, never written out; those of older releases are masked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.datamodel import RegisteredTool, table_of
from drsai_backend.tools.http.hiding import SHOWN
from drsai_backend.tools.literals import masked
from tests.tools.http.conftest import Site, site
from tests.tools.registered.test_registry import World, config, opened

__all__ = ["site"]
OLD = "Bearer planted-7f3a91"


@pytest.fixture
async def world(migrated_sqlite: str) -> AsyncIterator[World]:
    async with opened(migrated_sqlite) as made:
        yield made


def _with(site: Site, headers: dict[str, str], **values: Any) -> dict[str, Any]:
    return config(site, endpoint={"url": f"{site.url}/w/{{city}}", "headers": headers}, **values)


async def _stored_by_an_older_release(world: World, site: Site, headers: dict[str, str]) -> None:
    made = await world.ask("POST", "", {"name": "weather", "config": _with(site, {})})
    assert made.status_code == 201, made.text

    def write(session: Session) -> None:
        tool = table_of(RegisteredTool)
        session.connection().execute(sa.update(tool).values(definition=_with(site, headers)))

    await world.drsai.database.write(write)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", OLD),
        ("authorization", "Basic dXNlcjpwYXNz"),
        ("X-API-Key", "k7"),
        ("Api-Key", "k7 {city}"),
        ("Cookie", "session=abc"),
        ("X-Auth-Token", "t7"),
        ("Ocp-Apim-Subscription-Key", "17"),
        ("X-Any", "sk-abcdefghijklmnop12"),
        ("X-Any", "ghp_abcdefghijklmnop {secret:KEY}"),
        ("X-Any", "9f86d081884c7d659a2feaa0c55ad015"),
    ],
)
@pytest.mark.parametrize("where", ["endpoint", "check", "mcp"])
async def test_a_literal_credential_is_refused(world: World, site: Site, name: str, value: str, where: str) -> None:
    secrets = {"KEY": "hunter2"} if "{secret" in value else {}
    value = value.replace(" {city}", "") if where != "endpoint" else value
    if where == "mcp":
        body = {"name": "weather", "type": "mcp", "config": {"url": site.url, "headers": {name: value}}}
    elif where == "check":
        check = {"url": f"{site.url}/me", "headers": {name: value}}
        body = {"name": "weather", "config": _with(site, {}, check=check)}
    else:
        body = {"name": "weather", "config": _with(site, {name: value})}
    refused = await world.ask("POST", "", {**body, "secrets": secrets})
    error = refused.json()["error"]
    param = f"config.{'' if where == 'mcp' else where + '.'}headers.{name}"
    assert (refused.status_code, error["code"], error["param"]) == (400, "invalid_request", param)
    assert "{secret:NAME}" in error["message"]
    assert value not in refused.text
    assert (await world.ask("GET", "/weather")).status_code == 404


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", "Bearer {secret:KEY}"),
        ("X-API-Key", "{secret:KEY}"),
        ("Cookie", "session={secret:KEY}; theme=dark"),
        ("X-User", "{userId} {secret:KEY}"),
        ("Authorization", "Bearer {city}"),
        ("Accept", "application/vnd.github+json"),
        ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64)"),
        ("X-Tenant", "123e4567-e89b-12d3-a456-426614174000"),
        ("Idempotency-Key", "{callId}"),
    ],
)
async def test_what_is_no_credential_or_names_one(world: World, site: Site, name: str, value: str) -> None:
    secrets = {"KEY": "hunter2"} if "{secret" in value else {}
    body = {"name": "weather", "config": _with(site, {name: value}), "secrets": secrets}
    made = await world.ask("POST", "", body)
    assert made.status_code == 201, made.text
    assert made.json()["config"]["endpoint"]["headers"] == {name: value}


async def test_a_stored_one_works_and_is_masked(world: World, site: Site) -> None:
    await _stored_by_an_older_release(world, site, {"Authorization": OLD, "Accept": "text/plain"})
    shown = await world.ask("GET", "/weather")
    assert shown.json()["config"]["endpoint"]["headers"] == {"Authorization": SHOWN, "Accept": "text/plain"}
    listed = await world.ask("GET", "")
    told = world.drsai.user("ann", tenant="acme").tools
    everywhere = [shown.text, listed.text, str(await told.get("weather"))]
    everywhere += [str(await told.list()), str(await world.drsai.audit.list(tenant="acme"))]
    for each in everywhere:
        assert "planted" not in each
    # What was shown is written as it is, changed elsewhere.
    changed: dict[str, Any] = {**shown.json()["config"], "description": "More."}
    changed["endpoint"]["headers"]["AUTHORIZATION"] = changed["endpoint"]["headers"].pop("Authorization")
    for expected in (1, 2):
        assert (await world.ask("GET", "/weather")).json()["version"] == expected
        called = await world.ask("POST", "/weather/invoke", {"arguments": {"city": "Rome"}})
        assert not called.json()["is_error"], called.text
        assert site.requests[-1].headers["authorization"] == OLD
        replaced = await world.ask("PUT", "/weather", {"config": changed})
        assert replaced.status_code == 200, replaced.text
        assert "planted" not in replaced.text
    assert (await world.ask("GET", "/weather")).json()["config"]["description"] == "More."


async def test_a_mask_stands_for_nothing_else(world: World, site: Site) -> None:
    """What is stored goes to no other server, nor into another header; and a mask alone is no credential."""
    await _stored_by_an_older_release(world, site, {"Authorization": OLD})
    elsewhere = _with(site, {"Authorization": SHOWN})
    elsewhere["endpoint"]["url"] = "https://evil.example/w/{city}"
    for changed in (elsewhere, _with(site, {"X-Token": SHOWN})):
        refused = await world.ask("PUT", "/weather", {"config": changed})
        assert (refused.status_code, "{secret:NAME}" in refused.text) == (400, True), refused.text
    new = {"name": "other", "config": _with(site, {"Authorization": SHOWN})}
    assert (await world.ask("POST", "", new)).status_code == 400
    as_mcp = {"type": "mcp", "config": {"url": site.url, "headers": {"Authorization": SHOWN}}}
    assert (await world.ask("PUT", "/weather", as_mcp)).status_code == 400
    assert (await world.ask("GET", "/weather")).json()["version"] == 1


def test_odd_configs_are_shown_as_they_are() -> None:
    odds: list[dict[str, Any]] = [
        {},
        {"endpoint": None},
        {"endpoint": {"headers": None}},
        {"headers": []},
        {"check": "x"},
    ]
    for odd in odds:
        assert masked(odd) == odd
