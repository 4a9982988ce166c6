"""What all users of a tenant share is learnt where the settings say so, shown to all, and changed by few."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from drsai_backend import DrSai
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import TeamBuildError
from drsai_backend.features.memory.base import NewMemory, shared_by
from drsai_backend.features.memory.extension import Memory
from tests.features.memory.learning import ANN, current, learnt
from tests.features.memory.test_recall import Listener
from tests.support.model_server import ModelServer
from tests.support.threads import LATE, settings

BOB = Owner("default", "bob")
ALL = shared_by("default")
WORK = "common work"
"""In the prompt that asks for what is to be shared."""
RELEASE = "We release Harbour on Friday."


def work(request: Any) -> str:
    """Find the release, and invent another."""
    words = {"complexity": 0.3, "density": 0.9, "emotion": 0.6, "intent": 0.9}
    facts = [
        {"text": text, "message": 1, "quote": quote, **words}
        for text, quote in ((RELEASE, "release Harbour on Friday"), ("We release Atlantis.", "release Atlantis"))
    ]
    return json.dumps({"facts": facts if "Harbour" in request.last else []})


@pytest.mark.parametrize("level", ["team", "tenant"])
async def test_what_is_said_to_a_team_is_known_to_all_its_users(
    make: Callable[..., DrSai], model: ModelServer, level: str
) -> None:
    crew, other = Listener(), Listener()
    teams = {"crew": crew, "other": other}
    async with make(teams, memory_shared={"crew": level, **({"other": level} if level == "tenant" else {})}) as drsai:
        model.script(WORK, work)
        memory = drsai.extension(Memory)
        await drsai.user("ann").run("other", "I live in Lisbon.", thread_id="t")
        await drsai.user("ann").run("crew", f"{RELEASE} I work at Fado Foods.", thread_id="t")
        await learnt(drsai)
        assert await current(drsai) == ["The user lives in Lisbon.", "The user works at Fado Foods."]
        assert await current(drsai, ALL) == [RELEASE]
        [shared] = [each async for each in memory.every(ALL)]
        assert (shared.shared, shared.scope, shared.sources[0].said_by) == (
            True,
            "crew" if level == "team" else "",
            "ann",
        )
        for name in teams:
            await drsai.user("bob").run(name, "When do we release Harbour? Where do I live?", thread_id=name)
        known = f"- {RELEASE} (fact, known to all users, said by ann, since "
        assert known in crew.shown[-1]
        assert (known in other.shown[-1]) is (level == "tenant")
        assert "Lisbon" not in crew.shown[-1] + other.shown[-1]
        assert "Harbour" not in str([each async for each in memory.every(BOB)])
        # Ann is shown both what is hers and what all share, and each counts as used.
        await drsai.user("ann").run("crew", "When is the release of Harbour? Where do I live?", thread_id="u")
        assert known in crew.shown[-1]
        assert "The user lives in Lisbon. (fact, since " in crew.shown[-1]
        assert [each.uses async for each in memory.every(ALL)] == [{"team": 2, "tenant": 3}[level]]


async def test_who_has_said_something_to_all_may_forget_it_and_it_goes_with_them(
    make: Callable[..., DrSai], model: ModelServer
) -> None:
    async with make(memory_shared={"assistant": "team"}) as drsai:
        model.script(WORK, work)
        memory = drsai.extension(Memory)
        await drsai.user("ann").run("assistant", RELEASE, thread_id="t")
        await learnt(drsai)
        await memory.add(ALL, NewMemory(text="The office has a green door."))
        assert await memory.forget("the release of Harbour on Friday", Principal("bob")) == (
            "Nothing like that is remembered."
        )
        assert RELEASE in await memory.forget("release Harbour on Friday", Principal("ann"))
        await drsai.user("ann").run("assistant", f"Again: {RELEASE}", thread_id="u")
        await learnt(drsai)
        assert RELEASE in await current(drsai, ALL)
        files = await drsai.database.read(lambda session: [*memory.export_user(session, ANN)])
        assert [(name, RELEASE.encode() in content) for name, content in files] == [("shared.jsonl", True)]
        assert await drsai.database.read(lambda session: [*memory.export_user(session, BOB)]) == []
        await drsai.users.delete(ANN)
        assert await current(drsai, ALL) == ["The office has a green door."]


async def test_whoever_may_be_many_people_reads_what_is_shared_and_teaches_nothing(
    make: Callable[..., DrSai], model: ModelServer
) -> None:
    ear = Listener()
    async with make({"ear": ear}, memory_shared={"ear": "tenant"}) as drsai:
        model.script(WORK, work)
        await drsai.extension(Memory).add(ALL, NewMemory(text="The office has a green door."))
        await drsai.run("ear", f"{RELEASE} Which door has the office?", thread_id="t")
        await learnt(drsai)
        assert "green door" in ear.shown[0]
        assert await current(drsai, ALL) == ["The office has a green door."]


async def asked_for(drsai: DrSai, shared: str, name: str = "helper") -> None:
    """Store a definition for the tenant which asks for what is shared."""
    given = {"agents": {name: {"prompt": "Help.", "memory": {"shared": shared}}}}
    await drsai.user("ann").agents.put(name, given, visibility="tenant")


@pytest.mark.parametrize("shared", ["team", "tenant"])
async def test_a_definition_asks_for_it_as_far_as_the_settings_allow(
    make: Callable[..., DrSai], model: ModelServer, tmp_path: Path, shared: str
) -> None:
    given: dict[str, Any] = {
        "lead": {"prompt": "Lead.", "memory": {"shared": shared}},
        "mute": {"prompt": "Hush.", "memory": {}},
    }
    team = {"kind": "round_robin", "participants": ["lead", "mute"], "max_turns": 2}
    file = tmp_path / "team.yaml"
    file.write_text(json.dumps({"agents": given, "teams": {"crew": team}, "serve": ["crew", "mute"]}))
    async with make(str(file), memory_shared={"*": shared}) as drsai:
        model.script(WORK, work)
        for name in ("crew", "helper"):
            await asked_for(drsai, shared)
            await drsai.user("ann").run("mute", RELEASE, thread_id=f"mute, {name}")
            await learnt(drsai)
            assert await current(drsai, ALL) == []
            await drsai.user("ann").run(name, RELEASE, thread_id=name)
            await learnt(drsai)
            [known] = [each async for each in drsai.extension(Memory).every(ALL)]
            assert (known.text, known.scope) == (RELEASE, name if shared == "team" else "")
            model.requests.clear()
            await drsai.user("bob").run(name, "When do we release Harbour?", thread_id=name)
            by_prompt = {each.system.split("\n")[0]: RELEASE in str(each.body) for each in model.requests}
            assert by_prompt.pop({"crew": "Lead.", "helper": "Help."}[name])
            assert not by_prompt.pop("Hush.", False)
            await drsai.extension(Memory).delete_all(ALL)


@pytest.mark.parametrize("allowed", [{}, {"*": "team"}, {"*": "tenant", "helper": "team"}])
async def test_a_definition_that_asks_for_more_is_not_run(make: Callable[..., DrSai], allowed: dict[str, str]) -> None:
    async with make(memory_shared=allowed) as drsai:
        await asked_for(drsai, "tenant")
        with pytest.raises(TeamBuildError, match=r"`shared: tenant` is not allowed for 'helper': DRSAI_MEMORY_SHARED"):
            await drsai.user("ann").run("helper", RELEASE, thread_id="t")
        assert (await drsai.user("ann").list_threads()).items == []


async def test_what_a_run_asked_for_is_learnt_though_its_definition_has_changed(
    make: Callable[..., DrSai], model: ModelServer
) -> None:
    """And by whichever process comes to it."""
    async with make(memory_shared={"*": "team"}) as drsai:
        await asked_for(drsai, "team")
    async with make(memory_shared={"*": "team"}, **LATE) as drsai:  # It looks for no job in time.
        await drsai.user("ann").run("helper", RELEASE, thread_id="t")
        await drsai.user("ann").agents.put("helper", {"agents": {"helper": {}}}, visibility="tenant", version=1)
    model.script(WORK, work)
    async with make(memory_shared={"*": "team"}) as drsai:
        await learnt(drsai)
        assert await current(drsai, ALL) == [RELEASE]


async def test_who_may_read_and_change_what_is_shared(database_url: str) -> None:
    async with DrSai(None, database_url, settings=settings(**LATE, auth="required")) as drsai:
        keys = {
            "ann": await drsai.keys.create(ANN, ["user"]),
            "operator": await drsai.keys.create(Owner("default", "olga"), ["operator"]),
            "elsewhere": await drsai.keys.create(Owner("other", "eve"), ["operator"]),
            "deaf": await drsai.keys.create(ANN, ["chat"]),
        }
        transport = httpx.ASGITransport(drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:

            async def ask(who: str, method: str, path: str, **more: Any) -> httpx.Response:
                headers = {"Authorization": f"Bearer {keys[who].key.get_secret_value()}"}
                return await http.request(method, f"/v1/memories{path}", headers=headers, **more)

            shared = {"params": {"shared": "true"}}
            said = {"json": {"text": "The office has a green door.", "shared": True}}
            assert (await ask("ann", "POST", "", **said)).json()["error"]["code"] == "insufficient_scope"
            made = (await ask("operator", "POST", "", **said)).json()
            assert made["shared"] is True
            path = f"/{made['id']}"
            for place in ("", "/search?query=door", "/export", path, f"{path}/history"):
                mark = "&" if "?" in place else "?"
                assert "green door" in (await ask("ann", "GET", f"{place}{mark}shared=true")).text, place
                assert "green door" not in (await ask("ann", "GET", place)).text, place
                assert "green door" not in (await ask("elsewhere", "GET", f"{place}{mark}shared=true")).text, place
                assert (await ask("deaf", "GET", f"{place}{mark}shared=true")).status_code == 403
            for method, place, more in (
                ("PATCH", path, {"json": {"importance": 0.9}}),
                ("DELETE", path, {}),
                ("DELETE", "", {}),
            ):
                refused = await ask("ann", method, place, **shared, **more)
                assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_scope")
            changed = (await ask("operator", "PATCH", path, **shared, json={"importance": 0.9})).json()
            assert (changed["text"], changed["importance"]) == (made["text"], 0.9)
            assert (await ask("elsewhere", "DELETE", path, **shared)).status_code == 404
            assert (await ask("elsewhere", "DELETE", "", **shared)).json()["versions"] == 0
            assert (await ask("operator", "DELETE", path, **shared)).status_code == 200
