"""The registry has the tools of a tenant that are made, changed and deleted over the API, and serves them to agents by
name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

from autogen_core.tools import ToolResult

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.database import DatabaseManager
from drsai_backend.database import registered_tools as stored
from drsai_backend.database.documents import NOBODY, Change
from drsai_backend.database.recent import Recent
from drsai_backend.database.registered_tools import CallCounts, StoredTool
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.calling import call_tool
from drsai_backend.tools.literals import checked
from drsai_backend.tools.mcp.servers import McpHttp, McpSse, McpStdio
from drsai_backend.tools.registered.base import ToolKind
from drsai_backend.tools.registered.counted import CountedTool, CountedTools
from drsai_backend.tools.registered.statistics import CallStatistics
from drsai_backend.tools.running import ToolRun, tool_run
from drsai_backend.tools.threads import in_thread

MAX_CONFIG: Final = 64 * 1024
"""Bytes of JSON that a config, and the credentials of a tool, may have."""
MAX_SECRETS: Final = 20
SEPARATOR: Final = "__"
"""Between the name of a server and that of a tool of it."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as somebody registers it.

    Attributes:
        name: letters, digits, `_`, `-`; at most 64.
        kind: `http` or `mcp`.
        config: what it calls. It has credentials only by name.
        secrets: the credentials by name; they are stored as ciphertext and never shown.
    """

    name: str
    kind: str
    config: JsonObject
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


class ToolRegistry:
    """The registered tools of a database. One object per process and event loop.

    Args:
        db: encrypts the credentials. Not closed by this object.
        kinds: what makes each kind that can be registered, by name: called when that is meant.
    """

    def __init__(self, db: DatabaseManager, kinds: Mapping[str, Callable[[], ToolKind]]) -> None:
        self._db = db
        self._kinds = kinds
        self._recent = Recent(db.database, stored.tools.find_each)
        self.statistics = CallStatistics(db.database)

    # --- the tools of a tenant -----------------------------------------------------------------------------------

    async def register(self, who: Principal, spec: ToolSpec, *, replaces: bool | None = False) -> StoredTool:
        """Check and store a tool: a new one, or another version of one that is there. Every worker serves it within
        two seconds, to runs that begin after that.

        Args:
            replaces: whether there must be one of that name; None: it is all the same.

        Raises:
            InsufficientScope: `who` lacks `tools:register`.
            InvalidRequest: it cannot be used, or its peer refuses the credentials; nothing is stored then.
            Conflict: there is a tool of that name (`replaces=False`), or there are too many.
            NotFound: there is none to be replaced.
        """
        who.require(Scope.TOOLS_REGISTER)
        kind = self._kind(spec.kind)
        self._check(spec)
        # In a thread: a config may have a long schema.
        owner = Owner(who.tenant, NOBODY)
        find = partial(stored.tools.find, places=[owner], names=[spec.name])
        replaced = None if replaces is False else (await self._db.database.read(find)).get(spec.name)
        if replaces and replaced is None:
            raise stored.tools.missing(spec.name)
        given = checked(spec.config, None if replaced is None else replaced.definition)
        config = await in_thread(partial(kind.check, spec.name, given, spec.secrets))
        await kind.check_credentials(spec.name, config, spec.secrets, tenant=who.tenant)
        sealed = self._db.secrets.encrypt(json.dumps(dict(spec.secrets))) if spec.secrets else None
        more = {"kind": spec.kind, "secrets": sealed}
        change = Change(owner, spec.name, config, who.user_id, who.actor, replaces=replaces, more=more)
        made = await self._db.database.act(partial(stored.tools.store, change=change))
        self._recent.forget((owner, spec.name))
        return made

    async def roll_back(self, who: Principal, name: str, version: int) -> StoredTool:
        """Serve an older version of a tool again, with its credentials, as a new version.

        Raises:
            InsufficientScope: `who` lacks `tools:register`.
            NotFound: the tenant has no such tool, or that version of it is not kept.
            InvalidRequest: as `register`.
        """
        who.require(Scope.TOOLS_REGISTER)
        places = stored.tools.places(who.owner)
        old = await self._db.database.read(partial(stored.tools.get, places=places, name=name, version=version))
        return await self.register(who, ToolSpec(name, old.kind, old.definition, self._secrets(old)), replaces=True)

    async def unregister(self, who: Principal, name: str) -> None:
        """Delete a tool. Runs that began with it keep it for 30 days.

        Raises:
            InsufficientScope: `who` lacks `tools:register`.
            NotFound: the tenant has no such tool.
        """
        who.require(Scope.TOOLS_REGISTER)
        owner = Owner(who.tenant, NOBODY)
        await self._db.database.write(partial(stored.tools.delete, owner=owner, name=name, actor=who.actor))
        self._recent.forget((owner, name))

    async def get(self, who: Principal, name: str) -> StoredTool:
        """A tool of the tenant. Raises NotFound: there is none of that name."""
        places = stored.tools.places(who.owner)
        return await self._db.database.read(partial(stored.tools.get, places=places, name=name))

    async def versions(self, who: Principal, name: str, after: str | None = None, limit: int = 20) -> Page[StoredTool]:
        """A page of the versions of a tool that are kept, newest first. Raises NotFound as `get` does, and
        InvalidRequest where `after` is no cursor."""
        read = partial(stored.tools.versions, places=stored.tools.places(who.owner), name=name)
        return await self._db.database.read(partial(read, after=after, limit=limit))

    async def list(self, who: Principal, after: str | None = None, limit: int = 20) -> Page[StoredTool]:
        """A page of the tenant's tools, by name. Raises InvalidRequest where `after` is no cursor."""
        places = stored.tools.places(who.owner)
        return await self._db.database.read(partial(stored.tools.served, places=places, after=after, limit=limit))

    async def counts(self, who: Principal, names: Collection[str]) -> dict[str, CallCounts]:
        """Return what is stored of the calls of these tools; a process adds its own every few seconds."""
        return await self._db.database.read(partial(stored.read_counts, tenant=who.tenant, names=names))

    def secret_names(self, tool: StoredTool) -> list[str]:
        """The names of its credentials."""
        return sorted(self._secrets(tool))

    async def invoke(self, who: Principal, name: str, arguments: JsonObject) -> ToolResult:
        """Call a tool outside a run, to try it. Nothing of it is stored but its statistics.

        Args:
            who: whose tenant's tool it is. Whoever tries a tool uses its credentials, so they need `tools:register`.
            arguments: by name.

        Raises:
            InsufficientScope: `who` lacks `tools:register`.
            NotFound: the tenant has no such tool; or it is a server, of whose tools none is named (`name__tool`).
        """
        who.require(Scope.TOOLS_REGISTER)
        run = ToolRun(provided={Principal: who})
        try:
            tool = self.make(who.tenant, await self.get(who, name))
        except NotFound:
            of, _, inner = name.partition(SEPARATOR)
            if not inner:
                raise
            tool = self.make(who.tenant, await self.get(who, of))
            if isinstance(tool, ToolBase):
                raise
        if not isinstance(tool, ToolBase):
            with tool_run(run):
                listed = [str(each["name"]) for each in await tool.list_tools()]
            if name not in listed:
                text = f"{name} has several tools, or none of that name: {', '.join(listed) or 'none'}"
                raise NotFound(f"{text}; invoke one of them", param="name")
            tool = tool.find_tool(name)
        return await call_tool(tool, arguments, run)

    async def server(self, who: Principal, name: str) -> McpStdio | McpHttp | McpSse:
        """A registered MCP server of the tenant, as runs ask it: with its credentials.

        Raises:
            InsufficientScope: `who` lacks `tools:register`.
            NotFound: the tenant has no MCP server of that name.
        """
        who.require(Scope.TOOLS_REGISTER)
        tool = await self.get(who, name)
        made = self._kind(tool.kind).make(name, tool.definition, self._secrets(tool), tenant=who.tenant)
        if isinstance(made, ToolBase):
            raise NotFound(f"{name!r} is a tool, and no MCP server")
        [server] = made.servers
        return server

    # --- serving ---------------------------------------------------------------------------------------------------

    async def find(self, tenant: str, names: Collection[str], at: datetime | None = None) -> dict[str, StoredTool]:
        """The tools of these names.

        Args:
            at: as they were then, for a run that began then and is resumed; None: as they are, at most a second ago.

        Raises:
            NotFound: the tenant has none of a name.
        """
        owner = Owner(tenant, NOBODY)
        if at is not None:
            find = partial(stored.tools.find, places=[owner], names=names, at=at)
            found = await self._db.database.read(find)
        else:
            recent = await self._recent.find([(owner, name) for name in names])
            found = {name: tool for (_, name), tool in recent.items()}
        for name in names:
            if name not in found:
                raise NotFound(f"there is no tool {name!r}: POST /v1/tools registers one", param="tools")
        return found

    def make(self, tenant: str, tool: StoredTool) -> ToolBase | CountedTools:
        """A tool that can be called, or several; the calls are counted."""
        made = self._kind(tool.kind).make(tool.name, tool.definition, self._secrets(tool), tenant=tenant)
        count = partial(self.statistics.count, tenant, tool.name)
        return CountedTool(made, count) if isinstance(made, ToolBase) else CountedTools(made, count)

    async def close(self) -> None:
        """Store the statistics."""
        await self.statistics.close()

    # --- parts -----------------------------------------------------------------------------------------------------

    def _kind(self, name: str) -> ToolKind:
        if name not in self._kinds:
            raise InvalidRequest(f"`type` must be one of {', '.join(self._kinds)}, not {name!r}", param="type")
        return self._kinds[name]()

    def _secrets(self, tool: StoredTool) -> dict[str, str]:
        return {} if tool.secrets is None else json.loads(self._db.secrets.decrypt(tool.secrets))

    def _check(self, spec: ToolSpec) -> None:
        if _NAME.fullmatch(spec.name) is None:
            text = "`name` must be 1 to 64 letters, digits, `_` and `-`"
            raise InvalidRequest(text, param="name")
        if len(json.dumps(spec.config)) > MAX_CONFIG:
            raise InvalidRequest(f"`config` is longer than {MAX_CONFIG} bytes of JSON", param="config")
        if len(spec.secrets) > MAX_SECRETS or len(json.dumps(dict(spec.secrets))) > MAX_CONFIG:
            text = f"`secrets` may have {MAX_SECRETS} entries and {MAX_CONFIG} bytes of JSON"
            raise InvalidRequest(text, param="secrets")
