"""Where teams are read from, and how they are built."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, Team, TerminationCondition
from autogen_agentchat.conditions import (
    ExternalTermination,
    FunctionCallTermination,
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    StopMessageTermination,
    TextMentionTermination,
    TextMessageTermination,
    TimeoutTermination,
    TokenUsageTermination,
)
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat
from pydantic import SecretStr

from drsai_backend.access.principal import Principal
from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError, InvalidRequest, TeamBuildError, UnknownModel
from drsai_backend.models import (
    DefaultModelClient,
    DemoChatCompletionClient,
    ModelClientFactory,
    ModelParams,
    UsageMeter,
)
from drsai_backend.teams.context import RunContext, build_team
from drsai_backend.teams.registry import TeamRegistry, load_teams
from tests.support.model_server import ModelServer

DEMO: dict[str, Any] = {"provider": "drsai_backend.models.DemoChatCompletionClient", "config": {"delay": 0}}
AGENT = "autogen_agentchat.agents.AssistantAgent"
HAND_WRITTEN = """
teams:
  pair:
    provider: autogen_agentchat.teams.RoundRobinGroupChat
    description: Two who talk.
    config:
      participants:
        - provider: autogen_agentchat.agents.AssistantAgent
          config: {name: one}
        - provider: autogen_agentchat.agents.AssistantAgent
          config:
            name: two
            model_client: {provider: drsai_backend.models.DefaultModelClient, config: {model: big}}
      termination_condition:
        provider: autogen_agentchat.conditions.MaxMessageTermination
        config: {max_messages: 3}
"""


_MEANT = "system_mesage: there is no such field; did you mean 'system_message'?"


CONDITIONS: list[TerminationCondition] = [
    StopMessageTermination(),
    MaxMessageTermination(3),
    TextMentionTermination("stop"),
    TokenUsageTermination(max_total_token=9),
    TokenUsageTermination(max_prompt_token=9) | TimeoutTermination(3),
    HandoffTermination("user"),
    SourceMatchTermination(["a"]) & ExternalTermination(),
    TextMessageTermination(),
    FunctionCallTermination("f"),
]


@pytest.fixture(autouse=True)
def _clean_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def context(models: ModelClientFactory | None = None, **values: Any) -> RunContext:
    return RunContext(
        principal=Principal("u"),
        thread_id="t",
        run_id="r",
        input_values={},
        db_manager=None,  # type: ignore[arg-type]  # no factory here looks at it
        models=models or ModelClientFactory(Settings(openai_api_key=None, openai_base_url=None, demo_delay=0)),
        **values,
    )


def agent(name: str = "a") -> AssistantAgent:
    return AssistantAgent(name, DemoChatCompletionClient(delay=0))


def no_argument() -> AssistantAgent:
    """Takes nothing."""
    return agent()


def one_argument(context: RunContext) -> AssistantAgent:
    return AssistantAgent(context.thread_id, context.model_client())


async def asynchronous(context: RunContext) -> AssistantAgent:
    return one_argument(context)


def default_argument(context: RunContext | None = None) -> AssistantAgent:
    assert context is not None
    return agent()


class Callable_:
    def __call__(self, context: RunContext) -> Team:
        return RoundRobinGroupChat([one_argument(context), agent()])


FACTORIES = [
    no_argument,
    one_argument,
    asynchronous,
    default_argument,
    Callable_(),
    lambda: agent(),
    lambda *args: one_argument(*args),
    functools.partial(agent, "b"),
    functools.partial(lambda name, context: one_argument(context), "x"),
    {"provider": AGENT, "config": {"name": "c", "model_client": DEMO}},
    agent("d").dump_component().model_dump(),
]


@pytest.mark.parametrize("factory", FACTORIES)
async def test_every_kind_of_factory_builds_a_fresh_team(factory: Any) -> None:
    TeamRegistry({"team": factory})
    built = [await build_team(factory, context()) for _ in range(2)]
    assert all(isinstance(team, ChatAgent | Team) for team in built)
    assert built[0] is not built[1]


async def test_what_a_factory_raises_becomes_one_error() -> None:
    def broken() -> ChatAgent:
        raise KeyError("boom")

    with pytest.raises(TeamBuildError, match="its factory raised KeyError") as caught:
        await build_team(broken, context())
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(TeamBuildError, match="returned str, not an AutoGen agent or team"):
        await build_team(lambda: "text", context())  # type: ignore[arg-type,return-value]

    def refusing() -> ChatAgent:
        raise InvalidRequest("not today")

    with pytest.raises(InvalidRequest):
        await build_team(refusing, context())


async def test_the_context_makes_clients_with_the_requests_parameters_and_key() -> None:
    with ModelServer() as server:
        models = ModelClientFactory(Settings(openai_base_url=server.base_url, openai_api_key="sk-settings"))
        meter = UsageMeter()
        run = context(models, params=ModelParams(temperature=0.3), api_key=SecretStr("sk-request"), meter=meter)
        assert "sk-request" not in repr(run)

        def factory() -> ChatAgent:
            return AssistantAgent("a", DefaultModelClient())

        for team in (await build_team(one_argument, run), await build_team(factory, run)):
            await team.run(task="Hello")
        await models.close()
    assert [request.body["temperature"] for request in server.requests] == [0.3, 0.3]
    assert [request.api_key for request in server.requests] == ["sk-request", "sk-request"]
    assert (meter.calls, meter.prompt_tokens) == (2, 20)


def test_a_registry_keeps_the_order_and_describes() -> None:
    registry = TeamRegistry({"b": no_argument, "a": one_argument})
    registry.add("c", yaml.safe_load(HAND_WRITTEN)["teams"]["pair"])
    registry.add("d", one_argument, "Given.")
    assert registry.names() == ["b", "a", "c", "d"]
    assert [registry.description(name) for name in registry.names()] == [
        "Takes nothing.",
        "",
        "Two who talk.",
        "Given.",
    ]
    assert registry.get("b").factory is no_argument
    assert "b" in registry
    assert len(registry) == 4
    assert registry.created > 0


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(UnknownModel, match="'c'; available: b, a") as caught:
        TeamRegistry({"b": no_argument, "a": no_argument}).get("c")
    assert caught.value.param == "model"
    with pytest.raises(UnknownModel, match="available: none"):
        TeamRegistry().get("c")


def test_a_name_is_given_once() -> None:
    registry = TeamRegistry({"a": no_argument})
    with pytest.raises(ConfigurationError, match="two teams of the name a"):
        registry.add("a", no_argument)


def two_arguments(context: RunContext, more: int) -> ChatAgent:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("name", "factory", "reason"),
    [
        ("a", agent(), "all threads would share"),
        ("a", RoundRobinGroupChat([agent()]), "all threads would share"),
        ("a", 7, "neither a callable nor a component config"),
        ("a", two_arguments, "also needs more"),
        ("a b", no_argument, "a name is up to 128"),
        (7, no_argument, "a name is up to 128"),
        ("a", {"config": {}}, "no `provider`"),
        ("a", {"provider": AGENT}, "no `config`"),
        ("a", {"provider": "nowhere.Agent", "config": {}}, "No module named 'nowhere'"),
        ("a", {"provider": "autogen_agentchat.agents.Nobody", "config": {}}, "Nobody"),
        ("a", {"provider": "json.JSONDecoder", "config": {}}, "not an AutoGen component"),
        ("a", DEMO, "neither an agent nor a team"),
        ("a", {"provider": AGENT, "config": {}}, "name: Field required"),
        (
            "a",
            {"provider": AGENT, "config": {"name": "a", "model_client": {"provider": "x", "config": {}}}},
            "package.module.Class",
        ),
    ],
)
def test_a_mistake_names_the_team_and_the_reason(name: Any, factory: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        TeamRegistry({name: factory})
    assert repr(name) in caught.value.message
    assert reason in caught.value.message


def test_teams_of_a_python_file(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("NAME = 'x'\n")
    file = tmp_path / "some" / "teams.py"
    file.parent.mkdir()
    (file.parent / "near.py").write_text("NAME = 'y'\n")
    file.write_text("from near import NAME\ndef f():\n    'A team.'\nteams = {NAME: f}\nothers = {'z': f}\n")
    assert list(load_teams(str(file))) == ["y"]
    assert list(load_teams(f"{file}:others")) == ["z"]
    assert list(load_teams("some/teams.py")) == ["y"]


def test_teams_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "mod_one.py").write_text("teams = {'a': lambda: None}\nmore = {'b': lambda: None}\n")
    assert list(load_teams("mod_one")) == ["a"]
    assert list(load_teams("mod_one:more")) == ["b"]


def test_two_files_of_one_name_do_not_mix(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "json.py").write_text(f"teams = {{'{name}': lambda: None}}\n")
    assert list(load_teams("one/json.py")) == ["one"]
    assert list(load_teams("two/json.py")) == ["two"]
    assert json.loads("1") == 1


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("gone.py", None, "there is no file"),
        ("gone.yaml", None, "there is no file"),
        ("bad.py", "import nowhere_at_all", "ModuleNotFoundError"),
        ("bad.py", "def (", "SyntaxError"),
        ("bad.py", "x = 1", "has no `teams`"),
        ("bad.py", "teams = []", "`teams` is a list, and must be a dict"),
        ("bad.py", "teams = {}", "has no teams"),
        ("bad.py", "teams = {'a': 1}", "team 'a'"),
        ("bad.yaml", "a: [", "not valid YAML"),
        ("bad.yaml", "- a", "`teams` is a list, and must be a dict"),
        ("bad.yaml", "", "`teams` is missing, and must be a dict"),
        ("bad.yaml", f"provider: {AGENT}\nconfig: {{}}", "name: Field required"),
        ("bad.yaml", "teams: {a: 1}", "team 'a'"),
        ("bad.yaml", "teams: {a: {provider: x.Y, config: {}}}", "No module named 'x'"),
        ("bad.json", "{", "not valid JSON"),
        ("bad.yaml", HAND_WRITTEN + f"  lone: {{provider: {AGENT}, config: {{name: a, system_mesage: b}}}}", _MEANT),
        ("bad.yaml", HAND_WRITTEN.replace("max_messages: 3", "max_messages: 3, x: 1"), "x: there is no such field"),
        ("bad.yaml", HAND_WRITTEN.replace("description:", "descripton:"), "did you mean 'description'?"),
        ("bad.yaml", HAND_WRITTEN.replace("config: {name: one}", "config: {name: one}\n          lable: x"), "lable"),
        ("bad.yaml", HAND_WRITTEN + "other: {}", "beside `teams`"),
    ],
)
def test_a_mistake_in_a_file_names_the_file(tmp_path: Path, file: str, text: str | None, reason: str) -> None:
    if text is not None:
        (tmp_path / file).write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_teams(str(tmp_path / file))
    assert file in caught.value.message
    assert reason in caught.value.message


@pytest.mark.parametrize("target", ["", "no such module", "nowhere_at_all", "drsai_backend.nowhere", "json"])
def test_a_mistake_in_a_module_names_the_module(target: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_teams(target)
    assert (target or "''") in caught.value.message


async def test_a_hand_written_file_gets_the_runs_client(tmp_path: Path) -> None:
    (tmp_path / "teams.yaml").write_text(HAND_WRITTEN)
    factory = load_teams("teams.yaml")["pair"]
    with ModelServer() as server:
        models = ModelClientFactory(Settings(openai_base_url=server.base_url))
        run = context(models, params=ModelParams(temperature=0.3, seed=5))
        team = await build_team(factory, run)
        assert isinstance(team, BaseGroupChat)
        await team.run(task="Hello")
        await models.close()
    assert [request.model for request in server.requests] == ["gpt-4o-mini", "big"]
    assert all(request.body["temperature"] == 0.3 and request.body["seed"] == 5 for request in server.requests)
    assert run.meter.calls == 2


def test_a_dumped_team_loads_from_json(tmp_path: Path) -> None:
    dumped = RoundRobinGroupChat([agent("a"), agent("b")]).dump_component().model_dump()
    (tmp_path / "teams.json").write_text(json.dumps({"dumped": dumped}))
    assert list(load_teams("teams.json")) == ["dumped"]
    assert TeamRegistry(load_teams("teams.json")).description("dumped")


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda each: type(each).__name__)
async def test_every_condition_loads_from_its_own_dump(tmp_path: Path, condition: TerminationCondition) -> None:
    team = RoundRobinGroupChat([agent("a")], termination_condition=condition)
    (tmp_path / "teams.json").write_text(json.dumps({"dumped": team.dump_component().model_dump(exclude_none=True)}))
    loaded = await build_team(load_teams("teams.json")["dumped"], context())
    assert isinstance(loaded, BaseGroupChat)
    assert loaded.dump_component() == team.dump_component()
