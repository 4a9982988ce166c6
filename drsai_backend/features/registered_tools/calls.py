"""The calls of `Caller.tools` are the verbs of `/v1/tools`, for programs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from autogen_core.tools import ToolResult
from pydantic import BaseModel, Field

from drsai_backend.access.principal import Principal
from drsai_backend.database.registered_tools import CallCounts, StoredTool
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page
from drsai_backend.tools.literals import masked
from drsai_backend.tools.registered.registry import ToolRegistry, ToolSpec
from drsai_backend.tools.registered.statistics import quantile


class ToolStatistics(BaseModel):
    """How a tool was called. A process adds its own calls every few seconds."""

    calls: int = 0
    failures: int = 0
    p50_seconds: float | None = Field(default=None, description="At most 20 % too high; null: there was no call.")
    p95_seconds: float | None = None
    since: datetime | None = None

    @classmethod
    def of(cls, counts: CallCounts | None) -> ToolStatistics:
        """Return the statistics of what was counted; None: nothing was."""
        known = counts or CallCounts()
        return cls(
            calls=known.calls,
            failures=known.failures,
            p50_seconds=quantile(known.buckets, 0.5),
            p95_seconds=quantile(known.buckets, 0.95),
            since=known.since,
        )


class ToolInfo(BaseModel):
    """A version of a registered tool. `secrets` has the names of its credentials; values are never shown."""

    name: str
    type: str
    version: int
    config: JsonObject
    secrets: list[str]
    created_at: datetime
    created_by: str


class ToolCalls:
    """The registered tools of a user's tenant.

    Args:
        registry: does what is asked.
        who: the user who asks.

    Raises (all calls with a name, but `put`):
        NotFound: the tenant has no such tool.
    """

    def __init__(self, registry: ToolRegistry, who: Principal) -> None:
        self._registry = registry
        self._who = who

    async def list(self, *, after: str | None = None, limit: int = 20) -> Page[ToolInfo]:
        """A page of the tools, by name. Raises InvalidRequest: `after` is no `next` of a page."""
        return (await self._registry.list(self._who, after, limit)).map(self._info)

    async def get(self, name: str) -> ToolInfo:
        """One tool, in the version that is served."""
        return self._info(await self._registry.get(self._who, name))

    async def put(
        self, name: str, config: JsonObject, *, secrets: Mapping[str, str] | None = None, type: str = "http"
    ) -> ToolInfo:
        """Register a tool, or another version of it. Every worker serves it within two seconds, to runs that begin
        after that.

        Args:
            name: what agents call it by.
            config: what it calls; docs/tools.md has the fields.
            secrets: credentials by name; they are stored as ciphertext. Those of the version before are not kept.
            type: the kind of tool.

        Raises:
            InvalidRequest: it cannot be used, or its peer refuses the credentials; nothing is stored then.
            Conflict: there are too many.
        """
        spec = ToolSpec(name, type, config, secrets or {})
        return self._info(await self._registry.register(self._who, spec, replaces=None))

    async def versions(self, name: str, *, after: str | None = None, limit: int = 20) -> Page[ToolInfo]:
        """A page of the versions of a tool that are kept, newest first. Raises InvalidRequest: `after` is no `next`."""
        return (await self._registry.versions(self._who, name, after, limit)).map(self._info)

    async def roll_back(self, name: str, version: int) -> ToolInfo:
        """Serve an older version of a tool again, with the credentials that it had: a new version, equal to it.

        Raises:
            NotFound: the version is not kept, too.
            InvalidRequest: it cannot be used any more, or its peer refuses the credentials; nothing is stored then.
        """
        return self._info(await self._registry.roll_back(self._who, name, version))

    async def delete(self, name: str) -> None:
        """Delete a tool. Runs that began with it keep it for 30 days."""
        await self._registry.unregister(self._who, name)

    async def invoke(self, name: str, arguments: JsonObject) -> ToolResult:
        """Call a tool outside any run, to try it. What goes wrong in it is a result with `is_error`."""
        return await self._registry.invoke(self._who, name, arguments)

    async def statistics(self, name: str) -> ToolStatistics:
        """Return how often a tool was called, how often that failed, and how long it took."""
        await self._registry.get(self._who, name)
        return ToolStatistics.of((await self._registry.counts(self._who, [name])).get(name))

    def _info(self, tool: StoredTool) -> ToolInfo:
        return ToolInfo(
            name=tool.name,
            type=tool.kind,
            version=tool.version,
            config=masked(tool.definition),
            secrets=self._registry.secret_names(tool),
            created_at=tool.created_at,
            created_by=tool.created_by,
        )
