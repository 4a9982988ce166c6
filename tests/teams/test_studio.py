"""What AutoGen Studio exports is served as it is; what cannot be built is told when the server starts."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient

from drsai_backend import DrSai, RunStatus
from drsai_backend.config import Settings
from drsai_backend.definitions import DefinitionPolicy, load
from drsai_backend.definitions.files import is_of_components
from drsai_backend.errors import ConfigurationError
from drsai_backend.teams.context import completed, problems
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def add(a: int, b: int) -> str:
    """The sum."""
    return str(a + b)


def team(label: str = "RoundRobin Team", base_url: str = "http://127.0.0.1:1") -> dict[str, Any]:
    """A team as Studio writes it: what AutoGen dumps, and a label."""
    client = OpenAIChatCompletionClient(model="gpt-4o-mini", api_key="sk-of-mine", base_url=base_url)
    tool = FunctionTool(add, "Adds.", name="add")
    agents = [AssistantAgent("assistant_agent", client, tools=[tool]), UserProxyAgent("user_proxy")]
    group = RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(2))
    return {**json.loads(group.dump_component().model_dump_json()), "label": label, "description": "One, and a person."}


def agent_of(config: dict[str, Any]) -> dict[str, Any]:
    """The first agent in it."""
    return config["config"]["participants"][0]


def gallery(*teams: dict[str, Any], agents: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    components = {"agents": list(agents), "models": [], "tools": [], "terminations": [], "teams": list(teams)}
    return {
        "id": "gallery_default",
        "name": "Mine",
        "url": None,
        "metadata": {"author": "me"},
        "components": components,
    }


def write(folder: Path, data: object, name: str = "export.json") -> str:
    (folder / name).write_text(json.dumps(data))
    return str(folder / name)


def settings() -> Settings:
    return Settings(demo_delay=0, openai_api_key=None, openai_base_url=None)


async def test_a_bare_component_is_served_under_its_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-here")
    with ModelServer() as server:
        teams = load(write(tmp_path, team(base_url=server.base_url)), DefinitionPolicy())
        async with DrSai(teams, "sqlite://", settings=settings()) as drsai:
            assert drsai.engine.teams.names() == ["RoundRobin-Team"]
            assert drsai.engine.teams.description("RoundRobin-Team") == "One, and a person."
            result = await drsai.run("RoundRobin-Team", "Hello", thread_id="t")
    assert result.status is RunStatus.COMPLETED
    assert [message["source"] for message in result.task_result["messages"]] == ["user", "assistant_agent"]


def test_the_file_names_what_has_no_label(tmp_path: Path) -> None:
    bare = {name: value for name, value in team().items() if name != "label"}
    assert list(load(write(tmp_path, bare, "crew of mine.json"), DefinitionPolicy())) == ["crew-of-mine"]


@pytest.mark.parametrize("form", ["a file", "an older file", "a row"])
def test_a_gallery_serves_its_teams(tmp_path: Path, form: str) -> None:
    given = gallery(team("Web Agent Team (Operator)"), team("专业 助手"), agents=(agent_of(team()),))
    if form == "a row":
        given = {"id": 1, "user_id": "me", "config": given}
    elif form != "a file":
        components = given.pop("components")
        given["items"] = {"teams": components.pop("teams"), "components": components}
    file = write(tmp_path, given)
    assert is_of_components(file)
    assert list(load(file, DefinitionPolicy())) == ["Web-Agent-Team-Operator", "专业-助手"]


def test_a_gallery_without_teams_serves_its_agents(tmp_path: Path) -> None:
    agent = agent_of(team())
    assert list(load(write(tmp_path, gallery(agents=(agent, agent))), DefinitionPolicy())) == [
        "AssistantAgent",
        "AssistantAgent-2",
    ]


def test_equal_labels_are_numbered(tmp_path: Path) -> None:
    named = load(write(tmp_path, gallery(team("a"), team("a 3"), team("a"), team("a"))), DefinitionPolicy())
    assert list(named) == ["a", "a-3", "a-2", "a-4"]


def test_teams_that_have_such_names_are_no_gallery(tmp_path: Path) -> None:
    named = {"components": team(), "items": team(), "config": team()}
    assert list(load(write(tmp_path, named), DefinitionPolicy())) == ["components", "items", "config"]


def test_a_key_of_asterisks_is_none() -> None:
    given = team()
    assert agent_of(given)["config"]["model_client"]["config"]["api_key"] == "**********", "or AutoGen dumps it"
    assert "api_key" not in agent_of(completed(given))["config"]["model_client"]["config"]
    agent_of(given)["config"]["model_client"]["config"]["api_key"] = "sk-1"
    assert agent_of(completed(given))["config"]["model_client"]["config"]["api_key"] == "sk-1"


def test_an_older_component_is_refused_with_its_field(tmp_path: Path) -> None:
    old = team()
    agent_of(old)["component_version"] = 1
    with pytest.raises(ConfigurationError, match=r"AssistantAgent: component_version: 1 is of an older .* write 2"):
        load(write(tmp_path, old), DefinitionPolicy())


def test_all_that_is_wrong_with_a_gallery_is_told_at_once(tmp_path: Path) -> None:
    one, two = team("one"), team("two")
    for each in (one, two):
        agent_of(each)["component_version"] = 1
    one["config"]["max_turn"] = 3
    with pytest.raises(ConfigurationError) as caught:
        load(write(tmp_path, gallery(one, two)), DefinitionPolicy())
    assert caught.value.message.count("component_version") == 2
    assert "max_turn: there is no such field; did you mean 'max_turns'?" in caught.value.message


class Reader(AssistantAgent):
    """One that reads its older configs."""

    component_provider_override: ClassVar[str] = f"{__name__}.Reader"

    @classmethod
    def _from_config_past_version(cls, config: dict[str, Any], version: int) -> Self:
        return cls._from_config(cls.component_config_schema.model_validate(config))


def test_an_older_component_of_a_class_that_reads_it_is_taken() -> None:
    old = copy.deepcopy(agent_of(team()))
    old |= {"component_version": 1, "provider": Reader.component_provider_override}
    assert problems(old) == []


async def test_all_that_cannot_be_built_is_told_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-here")
    broken = [team("one"), team("two"), team("good")]
    for each in broken[:2]:
        tool = agent_of(each)["config"]["workbench"][0]["config"]["tools"][0]
        tool["config"]["source_code"] = "def add(a: int) -> str:\n    return ("
    teams = load(write(tmp_path, gallery(*broken)), DefinitionPolicy())
    with pytest.raises(ConfigurationError) as caught:
        async with DrSai(teams, "sqlite://", settings=settings()):
            pass
    assert "team 'one' cannot be built: " in caught.value.message
    assert "team 'two' cannot be built: " in caught.value.message
    assert "good" not in caught.value.message


async def test_factories_in_python_are_not_called_at_the_start() -> None:
    called: list[int] = []
    async with DrSai({"mine": lambda: called.append(1)}, "sqlite://", settings=settings()):  # type: ignore[dict-item]
        pass
    assert called == []
