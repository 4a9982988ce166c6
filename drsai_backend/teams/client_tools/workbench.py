"""The workbench puts a client's tools into the hands of the answering agent.

They are a workbench beside the agent's own. Its calls go nowhere: all of one answer become one question, which ends the
process's part of the run (`calls`). When the results are there, the turn is repeated, and the agent
is given them as those of any tool.
"""

from __future__ import annotations

# Private: an agent's workbenches, handoffs and the bound of its loop. tests/teams/test_upstream_agents.py.
# pyright: reportPrivateUsage=false
import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

from autogen_agentchat.agents import AssistantAgent
from autogen_core import CancellationToken
from autogen_core.tools import ToolResult, ToolSchema, Workbench
from pydantic import BaseModel

from drsai_backend.json_types import JsonObject
from drsai_backend.models.calls.requests import OfferedTool
from drsai_backend.teams.client_tools.calls import ClientCall, ClientCalls
from drsai_backend.teams.client_tools.definitions import ClientTool, ClientTools
from drsai_backend.teams.replay.tool_calls import ToolCalls
from drsai_backend.teams.replay.workbench import RecordedWorkbench

_LONGEST: Final = 64
_UNUSUAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_REPAIRS: Final = 3
"""How often in a row a model may call a client's tool with arguments that are no JSON."""
_NONE: Final = ClientTools(())


def give_tools(agent: AssistantAgent, given: ClientTools | None, calls: ToolCalls) -> ClientWorkbench:
    """Put a client's tools beside those of an agent, whose calls are recorded already. What it returns is to be asked
    about each request to the agent's model (`ClientWorkbench.offer`)."""
    # Each stands for a workbench of another class, and says that it is one.
    own = cast("Sequence[RecordedWorkbench]", agent._workbench)
    workbench = ClientWorkbench(given or _NONE, own, list(agent._handoffs), ClientCalls(calls))
    setattr(agent, "_workbench", [*agent._workbench, workbench])  # noqa: B010 - it may be a list of a type of its own
    agent._max_tool_iterations = Rounds(agent._max_tool_iterations, workbench)
    return workbench


def has_client_tools(agent: object) -> bool:
    """Whether an agent was given a client's tools."""
    workbenches: Sequence[object] = getattr(agent, "_workbench", None) or ()
    return any(isinstance(workbench, ClientWorkbench) for workbench in workbenches)


class ClientWorkbench(Workbench):
    """The tools of a run's client. One that is called as one of the agent's own gets another name for the model."""

    component_type = "workbench"
    component_config_schema = BaseModel

    def __init__(
        self, given: ClientTools, own: Sequence[RecordedWorkbench], handoffs: Sequence[str], calls: ClientCalls
    ) -> None:
        self._given = given
        self._own = own
        self._handoffs = handoffs
        self._calls = calls
        self._taken: set[str] | None = None
        self._shown: list[OfferedTool] = []
        self._kinds: dict[str, ClientTool] = {}
        self._demands = 1 + _REPAIRS if given.choice == "required" else 0
        self._called = False
        self._rounds = self._repaired = 0

    async def list_tools(self) -> list[ToolSchema]:
        """The offered tools, and those that were called in the turn that is repeated: the agent looks for them here.
        Its own workbenches are listed before."""
        taken = {*self._handoffs, *(str(tool["name"]) for bench in self._own for tool in bench.listed)}
        if taken != self._taken:
            self._taken, self._shown = taken, self._named(taken)
        return cast("list[ToolSchema]", self._shown)

    def _named(self, taken: set[str]) -> list[OfferedTool]:
        shown: list[OfferedTool] = []
        self._kinds = {}
        for tool in self._given.offered:
            name = self._free(tool.name, taken | self._kinds.keys())
            self._kinds[name] = tool
            schema = {"name": name, "description": tool.description, "parameters": tool.schema, "strict": tool.strict}
            shown.append(OfferedTool(schema, is_active=True))
        for name in self._calls.answered_names() - self._kinds.keys():
            shown.append(OfferedTool({"name": name}, is_active=False))
        return shown

    @staticmethod
    def _free(name: str, taken: set[str]) -> str:
        name = _UNUSUAL.sub("_", name)[:_LONGEST]  # what endpoints take as a name
        number, found = 1, name
        while found in taken:
            suffix = "_of_client" if number == 1 else f"_of_client_{number}"
            found = name[: _LONGEST - len(suffix)] + suffix
            number += 1
        return found

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """See `ClientCalls.ask`."""
        self._called = True
        tool = self._kinds.get(name) or ClientTool(name)
        call = ClientCall(name, tool.name, tool.kind, arguments or {}, call_id, cancellation_token)
        return await self._calls.ask(call)

    def offer(self, options: JsonObject) -> JsonObject:
        """The options of a request to the agent's model with the client's wishes in them: which tools it sees, whether
        it has to call one, whether it may call several."""
        tools: Sequence[object] = options.get("tools") or ()
        active = [tool for tool in tools if isinstance(tool, OfferedTool) and tool.is_active]
        if self._demands and active:
            # Its own tools are left out of this one: it is a client's tool that has to be called.
            self._demands -= 1
            options = {**options, "tools": active, "tool_choice": "required"}
        elif any(isinstance(tool, OfferedTool) and not tool.is_active for tool in tools):
            options = {**options, "tools": [t for t in tools if not isinstance(t, OfferedTool) or t.is_active]}
        if active and self._given.parallel is False:
            extra: JsonObject = {"parallel_tool_calls": False, **options.get("extra_create_args", {})}
            options = {**options, "extra_create_args": extra}
        return options

    def is_last_round(self, iteration: int, own: int) -> bool:
        """Tell `Rounds` whether the agent's loop ends after its round `iteration`, where it has tool calls of its own
        for `own` rounds."""
        if iteration == 0:
            self._rounds = 0
        called, self._called = self._called, False
        if called:
            self._repaired = 0
        elif self._repaired < _REPAIRS and self._calls.last_called() & self._kinds.keys():
            self._repaired += 1
            called = True
        self._rounds += called
        return not called and iteration - self._rounds >= own - 1

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def reset(self) -> None: ...

    async def save_state(self) -> Mapping[str, object]:
        return {}

    async def load_state(self, state: Mapping[str, object]) -> None: ...


class Rounds(int):
    """An agent's `max_tool_iterations` that does not count the rounds in which it called a client's tools: the model is
    always asked what to make of their results.

    `AssistantAgent` uses the number twice: `range(number)`, and `iteration == number - 1` after each round.
    """

    _own: int
    _workbench: ClientWorkbench

    def __new__(cls, own: int, workbench: ClientWorkbench) -> Rounds:
        made = super().__new__(cls, 2**31)
        made._own, made._workbench = own, workbench
        return made

    def __sub__(self, other: int) -> _Last:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _Last(self._own, self._workbench)


class _Last:
    """The number of the last round, which is known only once that round is over."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, own: int, workbench: ClientWorkbench) -> None:
        self._own = own
        self._workbench = workbench

    def __eq__(self, iteration: object) -> bool:
        return self._workbench.is_last_round(cast(int, iteration), self._own)
