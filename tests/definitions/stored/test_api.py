"""Definitions over the API: stored, asked by name, changed, rolled back; by whom and for whom."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from types import ModuleType
from typing import Any

import pytest

from drsai_backend.database.documents import OF_ALL
from drsai_backend.datamodel.owner import Owner
from drsai_backend.definitions import json_schema
from drsai_backend.features.knowledge.base import NewStore
from drsai_backend.features.knowledge.extension import Knowledge
from tests.definitions.stored.conftest import World, agent, opened


async def test_the_life_of_a_definition(world: World) -> None:
    made = await world.put(prompt="v1")
    assert made.status_code == 201, made.text
    shown = made.json()
    assert (shown["id"], shown["object"], shown["version"], shown["visibility"]) == ("helper", "agent", 1, "user")
    assert shown["definition"] == agent(prompt="v1")
    assert await world.says() == "v1"
    again = await world.put()
    assert (again.status_code, again.json()["error"]["param"]) == (409, "name")

    changed = await world.ask("PUT", "/helper", {"definition": agent(prompt="v2"), "version": 1})
    assert changed.json()["version"] == 2
    assert await world.says() == "v2"
    late = await world.ask("PUT", "/helper", {"definition": agent(prompt="v3"), "version": 1})
    assert (late.status_code, late.json()["error"]["param"]) == (409, "version")

    back = await world.ask("POST", "/helper/rollback", {"to": 1})
    assert (back.json()["version"], back.json()["restores"]) == (3, 1)
    assert await world.says() == "v1"
    versions = (await world.ask("GET", "/helper/versions")).json()["data"]
    assert [(each["version"], each["is_served"], each["created_by"]) for each in versions] == [
        (3, True, "ann"),
        (2, False, "ann"),
        (1, False, "ann"),
    ]
    assert (await world.ask("GET", "/helper?version=2")).json()["definition"] == agent(prompt="v2")
    assert (await world.ask("POST", "/helper/rollback", {"to": 9})).status_code == 404
    assert (await world.ask("POST", "/helper/rollback", {"to": 3})).status_code == 409

    assert (await world.ask("DELETE", "/helper?version=2")).status_code == 409
    assert (await world.ask("DELETE", "/helper")).json()["deleted"] is True
    for method, path in (("GET", "/helper"), ("DELETE", "/helper"), ("GET", "/helper/versions")):
        assert (await world.ask(method, path)).status_code == 404
    assert (await world.ask("PUT", "/helper", {"definition": agent()})).status_code == 404
    body = {"model": "helper", "messages": [{"role": "user", "content": "x"}]}
    gone = await world.call("POST", "/v1/chat/completions", body)
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "model_not_found")
    assert (await world.put()).json()["version"] == 4


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/messages/count_tokens"])
async def test_a_name_that_is_anothers_is_a_name_that_is_none(world: World, path: str) -> None:
    """Whatever else the request says, and also of who is of the same tenant."""
    assert (await world.put("merger")).status_code == 201
    for who in ("eve", "bob"):
        for rest in ({}, {"messages": "nonsense"}, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9}):
            theirs = await world.call("POST", path, {"model": "merger", **rest}, who)
            none = await world.call("POST", path, {"model": "nobody", **rest}, who)
            assert theirs.status_code == none.status_code == 404, (rest, theirs.text)
            messages = [each.json()["error"]["message"] for each in (theirs, none)]
            assert messages[0].replace("merger", "nobody") == messages[1]


async def test_who_sees_and_changes_what(world: World) -> None:
    await world.put(prompt="ann's")
    for who in ("bob", "cat", "eve"):
        for path in ("/helper", "/helper/versions"):
            assert (await world.ask("GET", path, who=who)).status_code == 404
    assert (await world.ask("DELETE", "/helper", who="eve")).status_code == 404
    assert (await world.put(who="bob")).json()["error"]["code"] == "insufficient_scope"

    refused = await world.put(prompt="all of acme's", visibility="tenant")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_scope")
    made = await world.put(prompt="all of acme's", visibility="tenant", who="root")
    assert made.status_code == 201
    for_all = await world.put(visibility="all", who="root")
    assert (for_all.status_code, for_all.json()["error"]["param"]) == (403, "visibility")
    # Theirs goes before their tenant's, and nobody else has either.
    assert [await world.says(who=who) for who in ("ann", "bob")] == ["ann's", "all of acme's"]
    assert (await world.ask("GET", "/helper", who="eve")).status_code == 404
    shown = await world.ask("GET", "/helper?visibility=tenant")
    assert shown.json()["definition"] == agent(prompt="all of acme's")
    listed = (await world.ask("GET", "")).json()["data"]
    assert [(each["id"], each["visibility"]) for each in listed] == [("helper", "user"), ("helper", "tenant")]

    models = [each["id"] for each in (await world.call("GET", "/v1/models", who="bob")).json()["data"]]
    assert models == ["house", "helper"]
    assert [each["id"] for each in (await world.call("GET", "/v1/models", who="eve")).json()["data"]] == ["house"]
    assert (await world.call("GET", "/v1/models/helper", who="eve")).status_code == 404
    assert (await world.call("GET", "/v1/models/helper", who="bob")).status_code == 200


async def test_the_operators_names_are_taken(world: World) -> None:
    refused = await world.put("house")
    assert (refused.status_code, refused.json()["error"]["param"]) == (409, "name")
    assert await world.says("house") == "the house"


async def test_validate_only_stores_nothing(world: World) -> None:
    good = await world.put(validate_only=True)
    assert (good.status_code, good.json()) == (200, {"id": "helper", "object": "agent.checked", "valid": True})
    assert (await world.ask("GET", "/helper")).status_code == 404
    bad = await world.ask("POST", "", {"name": "helper", "definition": agent(tools=["clok"]), "validate_only": True})
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "definition.agents.helper.tools[0]")


HTTP: dict[str, Any] = {"http": {"name": "t", "description": "d", "endpoint": {"url": "https://a.example/"}}}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "definition.agents.helper.promt": ({"agents": {"helper": {"promt": "x"}}}, "did you mean 'prompt'?"),
    "definition": ({"agents": {"help": {}}}, "did you mean 'help'?"),
    "definition.include": ({**agent(), "include": ["other.yaml"]}, "is for files"),
    "definition.agents.helper.prompt": (agent(prompt="${HOME}"), "variables of the environment are for files"),
    "definition.serve": ({**agent(), "serve": []}, "must be left out"),
    "definition.agents.helper.tools[0].python": (agent(tools=[{"python": "os:system"}]), "os may not be named"),
    "definition.agents.helper.permissions": (agent(permissions=["chta"]), "must be a scope"),
    "definition.agents.helper.tools[0].http": (agent(tools=[HTTP]), "name it here as {registered: t}"),
    "definition.agents.helper.knowledge.files": (
        agent(knowledge={"files": ["/etc"], "stores": ["handbook"]}),
        "are the operator's, paths and URLs: upload your own",
    ),
    "definition.tools.page.http": ({**agent(tools=["page"]), "tools": {"page": HTTP}}, "register the tool"),
}


@pytest.mark.parametrize("field", WRONG)
async def test_what_is_wrong_is_said_with_its_field(sqlite_world: World, field: str) -> None:
    definition, text = WRONG[field]
    refused = await sqlite_world.ask("POST", "", {"name": "helper", "definition": definition})
    assert refused.status_code == 400, refused.text
    error: dict[str, Any] = refused.json()["error"]
    assert error["param"] == field
    assert text in error["message"]


async def test_permissions(world: World) -> None:
    definition = agent(prompt="secret", permissions=["agents:write", "chat"])
    body = {"name": "helper", "definition": definition, "visibility": "tenant"}
    assert (await world.ask("POST", "", body, "root")).status_code == 201
    assert await world.says(who="ann") == "secret"
    asked = {"model": "helper", "messages": [{"role": "user", "content": "x"}]}
    refused = await world.call("POST", "/v1/chat/completions", asked, "bob")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_scope")
    for path, body in (
        ("/v1/responses", {"model": "helper", "input": "x"}),
        ("/v1/messages", {"model": "helper", "max_tokens": 9, "messages": asked["messages"]}),
    ):
        assert (await world.call("POST", path, body, "bob")).status_code == 403
        assert (await world.call("POST", path, body, "eve")).status_code == 404
        assert (await world.call("POST", path, body, "ann")).status_code == 200
    assert [each["id"] for each in (await world.call("GET", "/v1/models", who="bob")).json()["data"]] == ["house"]


async def test_the_schema(sqlite_world: World) -> None:
    schema = (await sqlite_world.ask("GET", "/schema")).json()
    assert "agents" in schema["properties"]
    refused = await sqlite_world.put("schema")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "name")


def test_the_schema_in_the_wheel() -> None:
    """`make schema` makes it."""
    assert json.loads((files("drsai_backend.definitions") / "schema.json").read_text("utf-8")) == json_schema()


async def test_pages(world: World) -> None:
    for number in range(5):
        await world.put(f"a{number}")
    first = (await world.ask("GET", "?limit=3")).json()
    assert first["has_more"] is True
    second = (await world.ask("GET", f"?limit=3&after={first['next']}")).json()
    assert [each["id"] for each in (*first["data"], *second["data"])] == [f"a{number}" for number in range(5)]
    assert second["has_more"] is False

    for number in range(2, 5):
        await world.ask("PUT", "/a0", {"definition": agent("a0", prompt=str(number))})
    first = (await world.ask("GET", "/a0/versions?limit=3")).json()
    second = (await world.ask("GET", f"/a0/versions?limit=3&after={first['next']}")).json()
    assert [each["version"] for each in (*first["data"], *second["data"])] == [4, 3, 2, 1]
    assert (first["has_more"], second["has_more"]) == (True, False)
    wrong = await world.ask("GET", "/a0/versions?after=x")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "after")


async def test_what_has_no_effect_is_told_where_nothing_is_stored(world: World) -> None:
    given = agent(prompt="Hi.", tool_choice="required")
    body: dict[str, Any] = {"name": "helper", "definition": given, "validate_only": True}
    told = (await world.ask("POST", "", body)).json()
    assert told.pop("warnings") == [
        "`definition.agents.helper.tool_choice` has no effect: the agent has no tools of its own"
    ]
    assert told == {"id": "helper", "object": "agent.checked", "valid": True}
    assert (await world.ask("POST", "", {**body, "validate_only": False})).status_code == 201, "it worked, and does"


async def test_a_store_that_is_not_there_yet_is_told_where_nothing_is_stored(world: World) -> None:
    """For a user their own or the tenant's; for a tenant the tenant's; for all, each tenant has its own."""
    given = agent(knowledge=["handbook", "leave"])
    knowledge = world.drsai.extension(Knowledge)

    async def told(visibility: str, who: str = "root") -> list[str]:
        body = {"name": "helper", "definition": given, "visibility": visibility, "validate_only": True}
        return (await world.ask("POST", "", body, who)).json().get("warnings", [])

    where, why = (
        "`definition.agents.helper.knowledge.stores[{}]` names no store that is there yet",
        "there is no vector store",
    )
    missing = [f"{where.format(number)}: {why} {name!r}" for number, name in enumerate(("handbook", "leave"))]
    assert await told("user") == await told("tenant") == missing
    await knowledge.create(Owner("acme", "root"), NewStore(name="handbook"))
    await knowledge.create(Owner("acme", ""), NewStore(name="leave"))
    await knowledge.create(OF_ALL, NewStore(name="handbook"))
    assert (await told("user"), await told("tenant"), await told("user", "ann")) == ([], missing[:1], missing[:1])
    assert await told("user", "eve") == missing, "nothing of another tenant"
    await knowledge.create(Owner("acme", "root"), NewStore(name="handbook"))
    assert ["there are 2 vector stores" in each for each in await told("user")] == [True]
    checked = await world.drsai.agents.put("helper", given, visibility="all", validate_only=True)
    assert checked is None
    assert (await world.ask("POST", "", {"name": "helper", "definition": given}, "eve")).status_code == 201


async def test_all_that_is_wrong_is_told_at_once(world: World) -> None:
    given = {"agents": {"helper": {"promt": "Hi.", "tools": ["calculater", {"mcp": "filez"}]}}, "serve": ["other"]}
    refused = await world.ask("POST", "", {"name": "helper", "definition": given})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == "definition.agents.helper.promt"
    assert error["message"] == (
        "`definition.agents.helper.promt` there is no such field; did you mean 'prompt'?; "
        "`definition.agents.helper.tools[0]` there is no tool 'calculater'; did you mean 'calculator'?; "
        "`definition.agents.helper.tools[1].mcp` there is no MCP server 'filez': DRSAI_MCP_SERVERS names none; "
        "`definition.serve[0]` there is no agent or team 'other' (there are helper)"
    )


async def test_a_function_is_there_when_it_is_stored_and_not_asked_for_when_it_is_not_used(
    migrated_sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that lacks it serves what needs none of it."""
    lab = ModuleType("lab_live")
    exec("def measure(at: str) -> str: return at", lab.__dict__)
    monkeypatch.setitem(sys.modules, "lab_live", lab)
    given = agent(prompt="I need none.")
    given["agents"]["other"] = {"tools": [{"python": "lab_live:measure"}, {"python": "lab_live:weigh"}]}
    async with opened(migrated_sqlite, definition_packages=["lab_live"]) as world:
        refused = await world.ask("POST", "", {"name": "helper", "definition": given})
        assert (refused.status_code, refused.json()["error"]["message"]) == (
            400,
            "`definition.agents.other.tools[1].python` the tool lab_live:weigh cannot be imported: AttributeError: "
            "module 'lab_live' has no attribute 'weigh'",
        )
        del given["agents"]["other"]["tools"][1]
        assert (await world.ask("POST", "", {"name": "helper", "definition": given})).status_code == 201
        assert await world.says() == "I need none."
    monkeypatch.delattr(lab, "measure")
    async with opened(migrated_sqlite, definition_packages=["lab_live"]) as world:
        assert await world.says() == "I need none."
