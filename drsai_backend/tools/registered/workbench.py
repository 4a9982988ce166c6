"""The workbench gives registered tools to an agent: `workbench=RegisteredTools(["weather"])` in a team factory or a
component config."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from autogen_core import CancellationToken, Component
from autogen_core.tools import ToolResult, ToolSchema, Workbench
from pydantic import BaseModel

from drsai_backend.errors import ConfigurationError
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.calling import call_tool
from drsai_backend.tools.registered.counted import CountedTools
from drsai_backend.tools.registered.registry import SEPARATOR
from drsai_backend.tools.results import text_result
from drsai_backend.tools.running import ToolRun, current_tool_run
from drsai_backend.tools.shelf import shelf

Fix: TypeAlias = Callable[[ToolBase], ToolBase]


class RegisteredToolsConfig(BaseModel):
    """The config of `RegisteredTools`: the names, as they were registered."""

    names: list[str]


class RegisteredTools(Workbench, Component[RegisteredToolsConfig]):
    """The tools of these names that the tenant of who asks has registered (`POST /v1/tools`).

    They are looked up when the agent lists them first, and stay as they are then until the run's end: a run that is
    resumed finds them as they were when it began.

    Args:
        names: as they were registered.
        fixed: for some of them, what makes the tool that the agent gets. It is no part of the component config.

    Raises:
        ConfigurationError: made outside a team factory; or in `list_tools`, a tool does not take what is fixed of it.
        NotFound: in `list_tools`: the tenant has none of a name.
    """

    component_config_schema = RegisteredToolsConfig
    component_provider_override = "drsai_backend.RegisteredTools"
    component_type = "workbench"

    def __init__(self, names: Sequence[str], fixed: Mapping[str, Fix] | None = None) -> None:
        found = shelf.get()
        if found is None or found.tools is None:
            raise ConfigurationError("RegisteredTools is made by a team factory: outside a run there is no tenant")
        self._registry, self._tenant, self._at = found.tools, found.principal.tenant, found.began_at
        self._names, self._fixed = list(dict.fromkeys(names)), dict(fixed or {})
        self._tools: dict[str, ToolBase] | None = None
        self._servers: dict[str, CountedTools] = {}

    async def list_tools(self) -> list[ToolSchema]:
        """See `autogen_core.tools.Workbench.list_tools`."""
        own = await self._find()
        lists = await asyncio.gather(*(server.list_tools() for server in self._servers.values()))
        # A tool may have been registered by the name that one of a server's has.
        others = [schema for each in lists for schema in each if schema["name"] not in own]
        return [*(tool.schema for tool in own.values()), *others]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """See `autogen_core.tools.Workbench.call_tool`."""
        tools = await self._find()
        if (tool := self.find_tool(name)) is None:
            return text_result(name, f"There is no tool {name}. There are: {', '.join(tools)}.", is_error=True)
        return await call_tool(tool, arguments or {}, current_tool_run() or ToolRun(call_id=call_id or ""))

    async def _find(self) -> dict[str, ToolBase]:
        if self._tools is None:
            found = await self._registry.find(self._tenant, self._names, self._at)
            made = {name: self._registry.make(self._tenant, found[name]) for name in self._names}
            self._servers = {name: each for name, each in made.items() if not isinstance(each, ToolBase)}
            self._tools = {name: self._fix(name, each) for name, each in made.items() if isinstance(each, ToolBase)}
        return self._tools

    async def asks_servers(self) -> bool:
        """Whether some of the tools are a server's, which may have others tomorrow."""
        await self._find()
        return bool(self._servers)

    def find_tool(self, name: str) -> ToolBase | None:
        """The tool of a name, where it was looked up: it says who approves a call, and whether it may be repeated."""
        server, inner, _ = name.partition(SEPARATOR)
        if (tool := (self._tools or {}).get(name)) is None and inner and server in self._servers:
            tool = self._fix(server, self._servers[server].find_tool(name))
        return tool

    def _fix(self, name: str, tool: ToolBase) -> ToolBase:
        return self._fixed[name](tool) if name in self._fixed else tool

    async def start(self) -> None:
        """Do nothing: the tools hold nothing open."""

    async def stop(self) -> None:
        """Do nothing: the tools hold nothing open."""

    async def reset(self) -> None:
        """Do nothing: no tool keeps a state here."""

    async def save_state(self) -> Mapping[str, object]:
        """Return nothing: the tools are found again by the run's time."""
        return {}

    async def load_state(self, state: Mapping[str, object]) -> None:
        """Do nothing."""

    def _to_config(self) -> RegisteredToolsConfig:
        return RegisteredToolsConfig(names=self._names)

    @classmethod
    def _from_config(cls, config: RegisteredToolsConfig) -> RegisteredTools:
        return cls(config.names)
