"""Registered tools, for an agent: `workbench=RegisteredTools(["weather"])` in a team factory or a component config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from autogen_core import CancellationToken, Component
from autogen_core.tools import TextResultContent, ToolResult, ToolSchema, Workbench
from pydantic import BaseModel

from drsai_backend.errors import ConfigurationError
from drsai_backend.tools.registered.registry import ToolRegistry


@dataclass(frozen=True, slots=True)
class Registered:
    """Where a team that is being built finds registered tools: those of a tenant, as they were when its run began."""

    registry: ToolRegistry
    tenant: str
    at: datetime | None = None


registered: ContextVar[Registered | None] = ContextVar("registered", default=None)
"""Set while a team is built."""


class RegisteredToolsConfig(BaseModel):
    """The config of `RegisteredTools`: the names, as they were registered."""

    names: list[str]


class RegisteredTools(Workbench, Component[RegisteredToolsConfig]):
    """The tools of these names that the tenant of who asks has registered (`POST /v1/tools`).

    They are looked up when the agent lists them first, and stay as they are then until the run's end: a run that is
    resumed finds them as they were when it began.

    Args:
        names: as they were registered. An MCP server's tools are called `name__tool`.

    Raises:
        ConfigurationError: made outside a team factory.
        NotFound: in `list_tools`: the tenant has none of a name.
    """

    component_config_schema = RegisteredToolsConfig
    component_provider_override = "drsai_backend.RegisteredTools"
    component_type = "workbench"

    def __init__(self, names: Sequence[str]) -> None:
        found = registered.get()
        if found is None:
            raise ConfigurationError("RegisteredTools is made by a team factory: outside a run there is no tenant")
        self._where = found
        self._names = list(dict.fromkeys(names))
        self._open: dict[str, Workbench] = {}
        self._owner: dict[str, str] = {}

    async def list_tools(self) -> list[ToolSchema]:
        """See `autogen_core.tools.Workbench.list_tools`."""
        await self.start()
        tools: list[ToolSchema] = []
        for name, workbench in self._open.items():
            for tool in await workbench.list_tools():
                self._owner[tool["name"]] = name
                tools.append(tool)
        return tools

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """See `autogen_core.tools.Workbench.call_tool`."""
        if name not in self._owner:
            await self.list_tools()
        owner = self._owner.get(name)
        if owner is None:
            text = f"There is no tool {name}. There are: {', '.join(self._owner)}."
            return ToolResult(name=name, result=[TextResultContent(content=text)], is_error=True)
        where = self._where
        return await where.registry.call(
            self._open[owner], where.tenant, owner, name, arguments or {}, cancellation_token, call_id
        )

    async def start(self) -> None:
        """Look the tools up, and start what serves them."""
        if self._open or not self._names:
            return
        found = await self._where.registry.find(self._where.tenant, self._names, self._where.at)
        for name in self._names:
            workbench = self._where.registry.open(found[name])
            await workbench.start()
            self._open[name] = workbench

    async def stop(self) -> None:
        """Stop what serves them."""
        while self._open:
            _, workbench = self._open.popitem()
            await workbench.stop()

    async def reset(self) -> None:
        """Nothing: no tool keeps a state here."""

    async def save_state(self) -> Mapping[str, Any]:
        """Nothing: the tools are found again by the run's time."""
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing."""

    def marked(self, name: str) -> tuple[object, ...]:
        """The tool of a name and its workbench, for the marks on them: who approves a call, may it be repeated."""
        owner = self._open.get(self._owner.get(name, ""))
        return () if owner is None else (owner,)

    def _to_config(self) -> RegisteredToolsConfig:
        return RegisteredToolsConfig(names=self._names)

    @classmethod
    def _from_config(cls, config: RegisteredToolsConfig) -> RegisteredTools:
        return cls(config.names)
