"""What we rely on in the private parts of AutoGen's agents, contexts and tools, as `test_upstream` has it of teams."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from autogen_agentchat import state as states
from autogen_agentchat.agents import (
    AssistantAgent,
    BaseChatAgent,
    CodeExecutorAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.agents._user_proxy_agent import cancellable_input
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import BaseAgent
from autogen_core.models import AssistantMessage, FunctionExecutionResult, FunctionExecutionResultMessage, UserMessage
from autogen_core.tools import BaseTool, FunctionTool, StaticStreamWorkbench, StaticWorkbench

from drsai_backend.agents.tool_tasks import ALL_CALLS, ONE_CALL
from drsai_backend.teams.recording.structure import APPEND_ONLY_CONTEXTS
from drsai_backend.teams.replay.workbench import RecordedWorkbench
from tests.support.scripted import ScriptedClient, counting
from tests.support.teams.scenarios import add, agent, round_robin, society
from tests.teams.test_upstream import parameters


@pytest.mark.parametrize("context", APPEND_ONLY_CONTEXTS, ids=lambda context: context.__name__)
async def test_contexts_only_append(context: Any) -> None:
    arguments: dict[str, dict[str, Any]] = {
        "BufferedChatCompletionContext": {"buffer_size": 2},
        "HeadAndTailChatCompletionContext": {"head_size": 1, "tail_size": 1},
        "TokenLimitedChatCompletionContext": {
            "model_client": ScriptedClient(counting("x")),
            "token_limit": 3,
        },
        "EphemeralOutputsContext": {"ephemeral": {"add": 1}},
        "TokenBufferedContext": {"max_tokens": 9},
        "CompactionContext": {"max_tokens": 9_000, "model_client": ScriptedClient(counting("x"))},
    }
    live = context(**arguments.get(context.__name__, {}))
    messages = [UserMessage(content=f"message {n}", source="user") for n in range(9)]
    for message in messages:
        await live.add_message(message)
        await live.get_messages()
    assert [id(each) for each in live._messages] == [id(each) for each in messages], "messages are kept as they are"
    assert set(await live.save_state()) == {"messages"}


def test_model_messages_have_no_other_fields() -> None:
    """`MessageBook.context_item` and `fold._resolve` write them in short."""
    fields = {
        UserMessage: {"content", "source", "type"},
        AssistantMessage: {"content", "thought", "source", "type"},
        FunctionExecutionResultMessage: {"content", "type"},
        FunctionExecutionResult: {"content", "name", "call_id", "is_error"},
    }
    for message, expected in fields.items():
        assert set(message.model_fields) == expected, f"{message.__name__} has other fields: state/fold.py"


async def test_who_saves_what() -> None:
    """`_structure._agent` knows these classes by their `save_state`."""
    ann = agent("ann", False)
    assert set(await ann.save_state()) == {"type", "version", "llm_context"}
    assert set(states.SocietyOfMindAgentState.model_fields) == {"type", "version", "inner_team_state"}
    for cls in (CodeExecutorAgent, MessageFilterAgent, UserProxyAgent):
        assert cls.save_state is BaseChatAgent.save_state, f"{cls.__name__} saves a state of its own now"
    assert set(await UserProxyAgent("human").save_state()) == {"type", "version"}
    assert "_model_context" in inspect.getsource(CodeExecutorAgent.__init__)
    mind = society(False)._participants[0]
    assert isinstance(mind, SocietyOfMindAgent)
    assert {"_team", "_model_context"} <= set(vars(mind))
    assert "_wrapped_agent" in vars(MessageFilterAgent("ann", ann, MessageFilterConfig(per_source=[])))
    with pytest.warns(UserWarning, match="not implemented"):
        assert await BaseAgent.save_state(ann) == {}  # type: ignore[arg-type]


def test_where_the_tools_of_an_agent_are() -> None:
    ann = agent("ann", False, tools=[add])
    [workbench] = ann._workbench
    assert isinstance(workbench, StaticWorkbench)
    assert [tool.name for tool in workbench._tools] == ["add"]
    assert FunctionTool.save_state_json is BaseTool.save_state_json
    for tool in (AgentTool(ann), TeamTool(round_robin(False), "team", "a team")):
        assert type(tool).save_state_json is not BaseTool.save_state_json
        assert "_task_runner" in vars(tool)


def test_how_an_assistant_runs_its_tools() -> None:
    """`_orphans` looks for these functions and their locals."""
    source = inspect.getsource(AssistantAgent._process_model_result)
    function = ALL_CALLS.rpartition(".")[2]
    assert f"async def {function}(" in source, "the task of all tool calls has another name: teams/_orphans.py"
    for text in ("stream_queue.put_nowait(None)", "cancellation_token=cancellation_token", "event is None"):
        assert text in source, f"{text!r} is gone: teams/_orphans.py"
    assert AssistantAgent._execute_tool_call.__qualname__ == ONE_CALL
    assert "cancellation_token" in inspect.signature(AssistantAgent._execute_tool_call).parameters


def test_how_an_assistant_counts_its_rounds() -> None:
    """`client_tools.workbench.Rounds` is that number."""
    source = inspect.getsource(AssistantAgent._process_model_result)
    uses = [line.strip() for line in source.splitlines() if "max_tool_iterations" in line]
    assert uses == [
        "max_tool_iterations: int,",
        "for loop_iteration in range(max_tool_iterations):",
        "if loop_iteration == max_tool_iterations - 1:",
    ]
    taken = inspect.getsource(AssistantAgent.on_messages_stream)
    assert "max_tool_iterations = self._max_tool_iterations" in taken
    assert "_handoffs" in vars(agent("ann", False))


def test_how_an_assistant_calls_a_workbench() -> None:
    """`_workbench.RecordedWorkbench` stands between them; `_orphans` knows the calls of one answer by their queue."""
    source = inspect.getsource(AssistantAgent._execute_tool_call)
    for text in (
        "isinstance(wb, StaticStreamWorkbench)",
        "wb.call_tool_stream(",
        "wb.call_tool(",
        "call_id=tool_call.id",
    ):
        assert text in source, f"{text!r} is gone: teams/_workbench.py"
    assert "stream" in inspect.signature(AssistantAgent._execute_tool_call).parameters
    assert "workbench = self._workbench" in inspect.getsource(AssistantAgent.on_messages_stream)
    assert "model_client = self._model_client" in inspect.getsource(AssistantAgent.on_messages_stream)
    assert parameters(StaticWorkbench.call_tool) == parameters(StaticStreamWorkbench.call_tool_stream)
    assert parameters(StaticWorkbench.call_tool) == parameters(RecordedWorkbench.call_tool)
    assert {"_override_name_to_original", "_tools"} <= vars(StaticWorkbench([])).keys()
    assert StaticStreamWorkbench.list_tools is StaticWorkbench.list_tools
    assert FunctionTool.schema is BaseTool.schema, "teams/replay/workbench.py describes a function once"
    assert "_func" in vars(FunctionTool(add, description="adds")), "agents/_policy.py looks for marks there"


def test_how_a_person_is_asked_by_default() -> None:
    proxy = UserProxyAgent("human")
    assert proxy.input_func is cancellable_input, "UserProxyAgent has another default: runs/_inject.py"
    assert "_is_async" in vars(proxy)
