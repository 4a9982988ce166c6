"""Which built-in tools an agent has: those that are named for it, set up by the server's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drsai_backend import DrSai, RunContext
from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError
from drsai_backend.tools import is_idempotent
from drsai_backend.tools.builtin import NAMES, BuiltinTools, builtin_tools
from tests.support.model_server import ModelServer, Reply, ToolCall
from tests.support.threads import settings as for_tests
from tests.tools.builtin.calling import said


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(_env_file=None, search_provider="searxng", search_url="http://[::1]:1", file_folders=[tmp_path])


def test_all_by_name(settings: Settings) -> None:
    tools = builtin_tools(NAMES, settings)
    assert [tool.name for tool in tools] == list(NAMES)
    assert all(tool.description and is_idempotent(tool) for tool in tools)
    assert builtin_tools([]) == []
    assert [tool.name for tool in builtin_tools(["weather", "calculator", "weather"])] == ["weather", "calculator"]


@pytest.mark.parametrize(
    ("names", "options", "text"),
    [
        (
            ["web_serch"],
            {},
            "there is no built-in tool 'web_serch'; did you mean 'web_search'? There are: ask_person, ",
        ),
        (["xyz"], {}, "there is no built-in tool 'xyz'. There are: "),
        (["calculator"], {"calculatr": {}}, "did you mean 'calculator'?"),
        (["calculator"], {"weather": {}}, "options for 'weather', which is not among the tools that are named"),
        (["calculator"], {"calculator": {"x": 1}}, "calculator: it has no options"),
        (["weather"], {"weather": {"timeout": True}}, "weather: timeout must be a number"),
        (["weather"], {"weather": {"unit": "x"}}, "weather: it has no option 'unit'. It has: url, "),
    ],
)
def test_mistakes_are_named(names: list[str], options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        builtin_tools(names, **options)
    assert text in str(error.value)


async def test_refusals_are_for_the_model(settings: Settings) -> None:
    calculator, convert = builtin_tools(["calculator", "convert_units"])
    assert await said(calculator, expression="9**9**9") == "! the power is too large"
    assert await said(convert, value=1, from_unit="kg", to_unit="m") == "! cannot convert kg to m"
    assert await said(convert, value="nan", from_unit="kg", to_unit="g") == "! the value is not a number"


def _reply(request: Any) -> Reply:
    results = [each["content"] for each in request.messages if each["role"] == "tool"]
    if results:
        return Reply(f"It says: {results[-1]}")
    return Reply("", tool_calls=[ToolCall("file_reader", {"path": "a.txt"}, "call_0")])


@pytest.mark.parametrize("kind", ["factory", "config", "assistant"])
async def test_in_a_run_they_follow_the_servers_settings(tmp_path: Path, kind: str) -> None:
    """In a factory, in a component config, and in the assistant that is served without any."""
    (tmp_path / "a.txt").write_text("hello", encoding="utf-8")

    def factory(context: RunContext) -> Any:
        from drsai_backend import DrSaiAgent

        tools = builtin_tools(["file_reader"])
        return DrSaiAgent("clerk", context.model_client(), tools=[*tools], reflect_on_tool_use=True)

    config = {
        "provider": "drsai_backend.AssistantAgent",
        "config": {
            "name": "clerk",
            "workbench": [
                {
                    "provider": "drsai_backend.BuiltinTools",
                    "config": {"names": ["file_reader"], "options": {"file_reader": {"timeout": 5}}},
                }
            ],
            "reflect_on_tool_use": True,
        },
    }
    teams: Any = {"factory": {"clerk": factory}, "config": {"clerk": config}, "assistant": None}[kind]
    with ModelServer() as server:
        server.script(None, _reply)
        values = {"openai_base_url": server.base_url, "file_folders": [tmp_path], "assistant_tools": ["file_reader"]}
        async with DrSai(teams, "sqlite://", settings=for_tests(**values)) as drsai:
            result = await drsai.run("assistant" if teams is None else "clerk", "Read it.")
    assert result.task_result["messages"][-1]["content"] == "It says: hello"
    assert server.requests[0].tools == ["file_reader"]


def test_the_assistant_is_told_of_a_mistake_at_the_start() -> None:
    with pytest.raises(ConfigurationError, match=r"web_search: provider: .*DRSAI_SEARCH_PROVIDER"):
        DrSai(database_url="sqlite://", settings=for_tests(assistant_tools="web_search"))


def test_a_workbench_is_a_component(settings: Settings) -> None:
    workbench = BuiltinTools(["weather"], {"weather": {"units": "imperial"}})
    dumped = workbench.dump_component()
    assert dumped.provider == "drsai_backend.BuiltinTools"
    again = BuiltinTools.load_component(dumped)
    assert again.dump_component().config == dumped.config
    with pytest.raises(ConfigurationError, match="did you mean 'weather'"):
        BuiltinTools(["wether"])
