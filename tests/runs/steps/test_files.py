"""Files that tools keep in a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat
from autogen_core import FunctionCall

from drsai_backend.datamodel.file import files_of
from drsai_backend.tools import ToolRun, tool
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import Make


async def test_calls_of_one_id_keep_files_of_their_own(make: Make) -> None:
    """A model may number the calls of each of its answers from 0 on."""
    numbers = iter("abcd")

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        results = 0
        for message in reversed(messages):
            if isinstance(message.content, str):
                break
            results += message.type == "FunctionExecutionResultMessage"
        return "Done." if results == 2 else [FunctionCall("call_0", json.dumps({"name": next(numbers)}), "report")]

    @tool
    async def report(name: str, run: ToolRun) -> str:
        """Makes a report."""
        assert run.files is not None
        return (await run.files.save(f"{name}.txt", name.encode(), "text/plain")).name

    def team() -> BaseGroupChat:
        ann = AssistantAgent("ann", ScriptedClient(rule), tools=[report], max_tool_iterations=3)
        return RoundRobinGroupChat([ann], max_turns=2)

    drsai = await make({"team": team})
    result = await drsai.run("team", "Begin.", thread_id="t")
    events = [each for each in result.task_result["messages"] if each["type"] == "ToolCallExecutionEvent"]
    assert [[each["content"] for each in event["content"]] for event in events] == [[f"{name}.txt"] for name in "abcd"]
    assert [[each.filename for each in files_of(event)] for event in events] == [[f"{name}.txt"] for name in "abcd"]
