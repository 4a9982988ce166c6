"""The workbench has the tools of MCP servers for agents: it is an AutoGen workbench."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, cast

from autogen_core import CancellationToken, Component
from autogen_core.tools import (
    ParametersSchema,
    TextResultContent,
    ToolResult,
    ToolSchema,
    Workbench,
)
from pydantic import BaseModel

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.errors import ConfigurationError, DrSaiError
from drsai_backend.explain import did_you_mean
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.base import ToolBase, ToolIdentity
from drsai_backend.tools.fixed import without, wrong_arguments
from drsai_backend.tools.marks import Approval, is_idempotent, requires_approval
from drsai_backend.tools.mcp.failures import ServerFailed
from drsai_backend.tools.mcp.host import McpHost, named_servers, pool
from drsai_backend.tools.mcp.pool import Pool
from drsai_backend.tools.mcp.servers import McpHttp, McpServers, McpSse, McpStdio
from drsai_backend.tools.options import ToolOptions
from drsai_backend.tools.results import ToolOutput, text_result, to_result
from drsai_backend.tools.running import ToolRun, current_tool_run

if TYPE_CHECKING:
    from mcp.client.client import Client

    from drsai_backend.tools.mcp.results import Part

log = logging.getLogger("drsai.tools.mcp")
T = TypeVar("T")

MAX_NAME: Final = 64
"""Characters of a tool's name, as model endpoints take them."""
PROGRESS_SECONDS: Final = 0.1
"""Between two notes of progress that are shown."""
MAX_PROGRESS: Final = 1_000
"""Characters of one."""
_UNUSABLE: Final = re.compile(r"[^A-Za-z0-9_-]")
_Extra = Literal["list_resources", "read_resource", "list_prompts", "get_prompt"]
_URI: Final = {"uri": {"type": "string", "description": "The resource, as it is listed."}}
_PROMPT: Final = {
    "name": {"type": "string", "description": "The prompt, as it is listed."},
    "arguments": {"type": "object", "description": "Its arguments.", "additionalProperties": {"type": "string"}},
}
_EXTRAS: Final[Mapping[_Extra, tuple[str, JsonObject, list[str]]]] = {
    "list_resources": ("List the resources of the server {0}.", {}, []),
    "read_resource": ("Read a resource of the server {0}.", _URI, ["uri"]),
    "list_prompts": ("List the prompts of the server {0}.", {}, []),
    "get_prompt": ("Get a prompt of the server {0}.", _PROMPT, ["name"]),
}


@dataclass(frozen=True, slots=True)
class _Offered:
    server: McpStdio | McpHttp | McpSse
    name: str
    """The server's own."""
    extra: _Extra | None = None
    is_repeatable: bool = False


def _which(offered: _Offered) -> tuple[str, str, _Extra | None]:
    return offered.server.name, offered.name, offered.extra


class _Progress:
    """Shows what a server tells of a call under way: not more often than people can read."""

    def __init__(self, run: ToolRun) -> None:
        self._emit = run.emit
        self._next = 0.0

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_SECONDS
            done = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
            self._emit(f"{done} {message[:MAX_PROGRESS]}" if message else done)


class _McpTool(ToolBase):
    """A tool of a server. The server checks its arguments, and the workbench bounds time and result."""

    def __init__(
        self, name: str, call: Callable[[str, JsonObject], Awaitable[ToolResult]], *, idempotent: bool
    ) -> None:
        options = ToolOptions(timeout=None, max_output=sys.maxsize, idempotent=idempotent)
        super().__init__(ToolIdentity(name), "", {}, options)
        self._call = call

    def check(self, arguments: Mapping[str, object]) -> JsonObject:
        """See `ToolBase.check`."""
        return dict(arguments)

    async def invoke(self, arguments: JsonObject, run: ToolRun) -> ToolOutput:
        """See `ToolBase.invoke`."""
        return await self._call(self.name, arguments)


class McpWorkbenchConfig(BaseModel):
    """The names of servers that the operator has configured."""

    servers: list[str]


class McpWorkbench(Workbench, Component[McpWorkbenchConfig]):
    """The tools of one or several MCP servers, named `server__tool`.

    It holds nothing open: a `DrSai` has one connection to each server, which all its runs and workbenches share. So one
    workbench may be made for every run, or for all. Used without `DrSai`, `async with workbench:` closes the
    connections at its end.

    Args:
        servers: `McpStdio`, `McpHttp` and `McpSse`, or names of those that the operator has configured.
        principal: who asks, for servers with a `permission`, where no run of `DrSai` tells it. Such a server's tools
            are refused to nobody known.
        host: whose connections are used; default: those of the `DrSai` whose run calls.

    Raises:
        ConfigurationError: a name that nobody has configured, or two servers of one name.

    As a component config it has names only, so that no config can start a program::

        provider: drsai_backend.tools.mcp.McpWorkbench
        config: {servers: [files, search]}
    """

    component_config_schema = McpWorkbenchConfig
    component_provider_override = "drsai_backend.tools.mcp.McpWorkbench"

    def __init__(
        self,
        servers: Sequence[McpStdio | McpHttp | McpSse | str],
        *,
        principal: Principal | None = None,
        host: McpHost | None = None,
    ) -> None:
        known = named_servers()
        found = [known.named(each) if isinstance(each, str) else each for each in servers]
        self._servers = {server.name: server for server in McpServers(found)}
        if not self._servers:
            raise ConfigurationError("an McpWorkbench needs a server at least")
        for server in found:
            if server.permission is not None and server.permission not in set(Scope):
                raise ConfigurationError(f"the MCP server {server.name!r}: permission: there is no such scope")
        self._principal = principal
        self._offered: dict[str, _Offered] = {}
        self._lists: dict[str, list[ToolSchema]] = {}
        self._host = host
        self._held: Pool | None = None

    @property
    def servers(self) -> Sequence[McpStdio | McpHttp | McpSse]:
        """Those whose tools these are."""
        return [*self._servers.values()]

    @property
    def _pool(self) -> Pool:
        return pool() if self._host is None else self._host.pool

    # --- AutoGen's workbench -------------------------------------------------------------------------------------

    async def list_tools(self) -> list[ToolSchema]:
        """The tools of all servers that can be reached; of another one the last that it had, or `server__unavailable`,
        whose description says that they are missing.

        Raises:
            ServerFailed: one that is `required` cannot be.
            ConfigurationError: a tool does not take the `arguments` that are fixed for it, or is not there.
        """
        lists = await asyncio.gather(*(self._list(each) for each in self._servers.values() if each.enabled))
        return [schema for each in lists for schema in each]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Call a tool. Whatever goes wrong is a result with `is_error`, within the server's time-outs."""
        task = asyncio.ensure_future(self._call(name, dict(arguments or {})))
        if cancellation_token is not None:
            cancellation_token.link_future(task)
        try:
            return await task
        finally:
            task.cancel()

    async def start(self) -> None:
        """Keep connections open until `stop`. Calls do not need it."""
        if self._held is None:
            self._held = self._pool.hold()

    async def stop(self) -> None:
        """Close the connections, unless others use them."""
        held, self._held = self._held, None
        if held is not None:
            await held.let_go()

    async def reset(self) -> None:
        """Do nothing: it has no state."""

    async def save_state(self) -> Mapping[str, object]:
        """Return nothing."""
        return {}

    async def load_state(self, state: Mapping[str, object]) -> None:
        """Do nothing."""

    def _to_config(self) -> McpWorkbenchConfig:
        known = named_servers()
        for name, server in self._servers.items():
            if known.named(name) != server:
                raise ConfigurationError(f"the MCP server {name!r} is another one than the configured one of that name")
        return McpWorkbenchConfig(servers=[*self._servers])

    @classmethod
    def _from_config(cls, config: McpWorkbenchConfig) -> Self:
        return cls(config.servers)

    # --- what recorded runs ask ----------------------------------------------------------------------------------

    def find_tool(self, name: str) -> ToolBase:
        """The tool of a name, with the marks that its server gives it: whether a person approves its calls, whether
        they may be repeated."""
        offered, again = self._find(name), is_idempotent(self)
        if offered is not None:
            again = again or offered.server.idempotent or offered.extra is not None or offered.is_repeatable
        tool = _McpTool(name, self.call_tool, idempotent=again)
        if offered is not None and (wanted := offered.server.requires_approval):
            by = wanted if isinstance(wanted, Approval) else Approval()
            requires_approval(by=by.by, not_by=by.not_by, deadline=by.deadline)(tool)
        return tool

    async def asks_servers(self) -> bool:
        """Whether the tools are a server's, which may have others tomorrow."""
        return True

    # --- lists ---------------------------------------------------------------------------------------------------

    async def _list(self, server: McpStdio | McpHttp | McpSse) -> list[ToolSchema]:
        try:
            tools = await self._read(server, None)
        except ServerFailed as error:
            if server.required:
                raise
            log.warning("%s; agents are offered %s", error, "what it had" if server.name in self._lists else "none")
            if server.name in self._lists:
                return self._lists[server.name]
            # The model is told, so that it can say so.
            text = f"Not a tool: the tools of {server.name} are missing, as {error}. Say so where they are needed."
            return [ToolSchema(name=self._name(_Offered(server, "unavailable")), description=text)]
        named = {tool.name: tool for tool in tools}  # Endpoints refuse a request with two tools of one name.
        _check_arguments(server, {name: tool.input_schema for name, tool in named.items()})
        found: list[ToolSchema] = []
        for tool in named.values():
            if server.offers(tool.name):
                hints = tool.annotations
                repeatable = bool(
                    server.trust_hints and hints is not None and (hints.read_only_hint or hints.idempotent_hint)
                )
                offered = _Offered(server, tool.name, is_repeatable=repeatable)
                shown = self._name(offered)
                parameters = cast(ParametersSchema, without(tool.input_schema, server.arguments.get(tool.name, {})))
                found.append(ToolSchema(name=shown, description=tool.description or "", parameters=parameters))
        for extra, (text, properties, required) in _EXTRAS.items():
            if server.resources if "resource" in extra else server.prompts:
                shown = self._name(_Offered(server, extra, extra))
                schema = ParametersSchema(type="object", properties=properties, required=required)
                found.append(ToolSchema(name=shown, description=text.format(server.name), parameters=schema))
        self._lists[server.name] = found
        return found

    def _name(self, offered: _Offered) -> str:
        """A name that endpoints take, and no other tool of this workbench has."""
        plain = f"{offered.server.name}__{offered.name}"
        shown = _UNUSABLE.sub("_", plain)
        holder = self._offered.get(shown)
        taken = holder is not None and _which(holder) != _which(offered)
        if len(shown) > MAX_NAME or taken:
            digest = hashlib.sha256(plain.encode()).hexdigest()[:8]
            shown = f"{shown[: MAX_NAME - 9]}_{digest}"
        self._offered[shown] = offered
        return shown

    def _find(self, shown: str) -> _Offered | None:
        if (offered := self._offered.get(shown)) is not None:
            return offered
        server_name, _, tool = shown.partition("__")
        server = self._servers.get(server_name)
        return None if server is None or not tool or not server.offers(tool) else _Offered(server, tool)

    async def _read(self, server: McpStdio | McpHttp | McpSse, send: Callable[[Client], Awaitable[Any]] | None) -> Any:
        """Return what the server answers to a read; its tools where `send` is None. Once more by another connection if
        the first is lost."""
        for is_last in (False, True):
            async with self._pool.connection(server) as connection:
                try:
                    if send is None:
                        return await connection.tools(server.timeout)
                    return await connection.request(send, server.timeout)
                except ServerFailed as error:
                    if is_last or not error.is_lost:
                        raise
        raise AssertionError

    # --- calls ---------------------------------------------------------------------------------------------------

    async def _call(self, name: str, arguments: JsonObject) -> ToolResult:
        offered = self._find(name)
        if offered is None:
            return text_result(name, f"there is no tool {name!r}", is_error=True)
        server = offered.server
        if server.permission is not None and not self._may(server.permission):
            text = f"{name} needs the scope {server.permission}, which who asks does not have"
            return text_result(name, text, is_error=True)
        run = current_tool_run() or ToolRun()
        from drsai_backend.tools.mcp.results import of_call

        try:
            if offered.extra is not None:
                parts, is_error = await self._extra(server, offered.extra, arguments), False
            else:
                shown, whole = _Progress(run), {**arguments, **server.arguments.get(offered.name, {})}
                async with self._pool.connection(server) as connection:
                    until = asyncio.get_running_loop().time() + server.timeout
                    result = await connection.request(
                        lambda client: client.call_tool(offered.name, whole, progress_callback=shown),
                        server.timeout,
                    )
                parts, is_error = await _in_time(server, until, of_call(result)), bool(result.is_error)
            if not parts:
                return ToolResult(name=name, result=[], is_error=is_error)
            made = await to_result(name, parts, run, server.max_output)
        except ServerFailed as error:
            return text_result(name, str(error), is_error=True)
        except DrSaiError as error:
            return text_result(name, error.message, is_error=True)
        return made.model_copy(update={"is_error": is_error})

    def _may(self, scope: str) -> bool:
        """Whether who asks has a scope. Nobody known has none."""
        run = current_tool_run()
        if self._principal is not None or run is None or run.allows is None:
            return self._principal is not None and self._principal.may(Scope(scope))
        return run.allows(scope)

    async def _extra(self, server: McpStdio | McpHttp | McpSse, extra: _Extra, arguments: JsonObject) -> list[Part]:
        from drsai_backend.tools.mcp.results import of_prompt, of_resource

        async def in_time(reading: Awaitable[list[Part]]) -> list[Part]:
            return await _in_time(server, asyncio.get_running_loop().time() + server.timeout, reading)

        for field in _EXTRAS[extra][2]:
            if not isinstance(arguments.get(field), str):
                raise ServerFailed(f"the argument `{field}` must be a string")
        match extra:
            case "list_resources":
                listed = await self._read(server, lambda client: client.list_resources())
                rows = [_row(each, "uri", "name", "description", "mime_type") for each in listed.resources]
                templates = await self._read(server, lambda client: client.list_resource_templates())
                rows += [_row(each, "uri_template", "name", "description") for each in templates.resource_templates]
            case "read_resource":
                found = await self._read(server, lambda client: client.read_resource(arguments["uri"]))
                return await in_time(of_resource(found))
            case "list_prompts":
                listed = await self._read(server, lambda client: client.list_prompts())
                rows = [_row(each, "name", "description", "arguments") for each in listed.prompts]
            case "get_prompt":
                more = cast(JsonObject, arguments.get("arguments") or {})
                given = {key: str(value) for key, value in more.items()}
                name = arguments["name"]
                found = await self._read(server, lambda client: client.get_prompt(name, given))
                return await in_time(of_prompt(found))
        return [TextResultContent(content=json.dumps(rows, ensure_ascii=False))]


async def _in_time(server: McpStdio | McpHttp | McpSse, until: float, reading: Awaitable[list[Part]]) -> list[Part]:
    """Return the parts that are read of an answer. Raises ServerFailed: not until then, a time of the event loop's."""
    try:
        async with asyncio.timeout_at(until):
            return await reading
    except TimeoutError:
        text = f"{server.name} answered with what cannot be read within {server.timeout:g} seconds"
        raise ServerFailed(text) from None


def _check_arguments(server: McpStdio | McpHttp | McpSse, tools: Mapping[str, JsonObject]) -> None:
    """Raise ConfigurationError where what is fixed could not be given: else a model would choose it."""
    for tool, arguments in server.arguments.items():
        where = f"the MCP server {server.name!r}: arguments.{tool}"
        if tool not in tools:
            raise ConfigurationError(f"{where}: it has no such tool{did_you_mean(tool, tools)}")
        for name, sentence in wrong_arguments(tools[tool], arguments):
            raise ConfigurationError(f"{where}.{name}: {sentence}")


def _row(listed: BaseModel, *fields: str) -> JsonObject:
    return listed.model_dump(mode="json", include=set(fields), exclude_none=True)
