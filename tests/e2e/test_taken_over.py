"""What comes from elsewhere is taken as it is: teams by their file, states of other systems, and notes of programs."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from autogen_agentchat.agents import AssistantAgent as StockAgent
from autogen_agentchat.teams import RoundRobinGroupChat as StockTeam

from drsai_backend import AssistantAgent, DrSai, RoundRobinGroupChat, RunContext, Thread, encode_state
from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError, InvalidRequest, NotFound
from drsai_backend.models import DemoChatCompletionClient


def _settings() -> Settings:
    return Settings(_env_file=None)  # pyright: ignore[reportCallIssue]


def lone(context: RunContext) -> RoundRobinGroupChat:
    return RoundRobinGroupChat([AssistantAgent("helper", context.model_client())], max_turns=1)


@pytest.mark.parametrize("kind", [str, Path])
async def test_teams_by_their_file(migrated_sqlite: str, tmp_path: Path, kind: Any) -> None:
    file = tmp_path / "team.yaml"
    file.write_text("agents:\n  poet: {prompt: Write.}\n")
    async with DrSai(kind(file), migrated_sqlite, settings=_settings()) as drsai:
        assert (await drsai.user("ada").run("poet", "Go.", thread_id="t")).text
    with pytest.raises(ConfigurationError, match=r"nowhere\.yaml"):
        DrSai(kind(tmp_path / "nowhere.yaml"), migrated_sqlite, settings=_settings())


async def _saved() -> dict[str, Any]:
    """The state of a team of AutoGen's own that has been told a name."""
    team = StockTeam([StockAgent("helper", DemoChatCompletionClient())], max_turns=1)
    await team.run(task="My name is Ada.")
    return dict(await team.save_state())


def _plain(state: dict[str, Any]) -> str:
    return base64.b64encode(json.dumps(state, indent=1).encode()).decode()


@pytest.mark.parametrize("encode", [encode_state, _plain])
async def test_a_saved_state_goes_on_as_a_thread(database_url: str, encode: Any) -> None:
    async with DrSai({"lone": lone}, database_url, settings=_settings()) as drsai:
        await drsai.db.upsert(Thread(user_id="ada", thread_id="t", state=encode(await _saved())))
        result = await drsai.user("ada").run("lone", "What is my name?", thread_id="t")
    assert "Ada" in result.text


async def test_notes_of_programs_over_http(database_url: str) -> None:
    async with DrSai({"lone": lone}, database_url, settings=_settings()) as drsai:
        ada = drsai.user("ada")
        await ada.run("lone", "Hello.", thread_id="a/b")
        transport = httpx.ASGITransport(drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", params={"user": "ada"}) as http:
            for meta in ({"project": "x", "n": [1, 2.5, None]}, {"other": 1}, None):
                answer = await http.patch("/v1/threads/a/b", json={"meta": meta})
                assert (answer.status_code, answer.json()["meta"]) == (200, meta), answer.text
                assert (await ada.get_thread("a/b")).meta == meta
            for body, param in (
                ({}, "meta"),
                ({"meta": [1]}, "meta"),
                ({"meta": {"x": "y" * 65536}}, "meta"),
                ({"title": "x", "meta": None}, "title"),
            ):
                answer = await http.patch("/v1/threads/a/b", json=body)
                assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
            assert (await http.patch("/v1/threads/none", json={"meta": {}})).status_code == 404
        assert (await ada.set_meta("a/b", {"k": "v"})).meta == {"k": "v"}
        with pytest.raises(InvalidRequest, match="NUL"):
            await ada.set_meta("a/b", {"k": "\x00"})
        with pytest.raises(NotFound):
            await drsai.user("eve").set_meta("a/b", {})
