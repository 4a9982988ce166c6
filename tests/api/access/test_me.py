"""`GET /v1/me`: who asks, and what they may do."""

from __future__ import annotations

from drsai_backend.access.principal import ROLES, Scope
from tests.api.access.conftest import World


async def test_it_says_who_asks(world: World) -> None:
    ann = (await world.ask("ann", "get", "/v1/me")).json()
    assert (ann["user"], ann["tenant"], ann["has_key"]) == ("ann", "acme", True)
    assert {*ROLES["user"]} <= {*map(Scope, ann["scopes"])}
    assert (await world.ask(Scope.CHAT, "get", "/v1/me")).json()["scopes"] == ["chat"]


async def test_admin_stands_for_all_but_what_is_the_servers(world: World) -> None:
    scopes = (await world.ask(Scope.ADMIN, "get", "/v1/me")).json()["scopes"]
    assert {*map(Scope, scopes)} == {*Scope} - {Scope.ACT_AS, Scope.METRICS_READ, Scope.CONFIG_ADMIN}


async def test_a_valid_key_is_needed(world: World) -> None:
    for who in (None, "expired", "revoked", "sk-unused"):
        response = await world.ask(who, "get", "/v1/me")
        assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key"), who


async def test_nobody_is_somebody_else_by_asking(world: World) -> None:
    assert (await world.ask("ann", "get", "/v1/me", params={"user": "bob"})).status_code == 403
