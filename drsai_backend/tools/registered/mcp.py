"""A registered MCP server gives all its tools, as `name__tool`.

Only servers that are asked by streamable HTTP: one that is a program would be started here, by whoever registers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drsai_backend.errors import InvalidRequest, RefusedAddress, ToolError
from drsai_backend.explain import IS_NUMBER, explain
from drsai_backend.json_types import JsonObject
from drsai_backend.net.addresses import Reachable
from drsai_backend.tools.http.placeholders import Values, names_in, secrets_in
from drsai_backend.tools.marks import ApprovalChoice
from drsai_backend.tools.mcp import McpHttp, McpWorkbench
from drsai_backend.tools.mcp.failures import ServerFailed
from drsai_backend.tools.mcp.host import McpHost
from drsai_backend.tools.registered.base import check_secrets

_PROGRAM = frozenset(("command", "args", "env", "cwd"))


class McpToolConfig(BaseModel):
    """An MCP server, as somebody registers it.

    Attributes:
        url: where it is asked by streamable HTTP.
        headers: sent with every request; `{secret:KEY}` is a credential.
        include: tools that are offered, by the server's own names; None: all.
        exclude: tools that are not.
        timeout: seconds that a call or a list may take.
        requires_approval: a person approves each call; an object of `by`, `not_by`, `deadline` says who.
        idempotent: calls may be made twice: after a crash they are repeated without asking a person.
        resources: offer `name__list_resources` and `name__read_resource` as tools.
        prompts: offer `name__list_prompts` and `name__get_prompt` as tools.
    """

    model_config = ConfigDict(extra="forbid")

    url: str = Field(min_length=1, max_length=2000)
    headers: dict[str, str] = Field(default_factory=dict, max_length=50)
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    timeout: Annotated[float, Field(gt=0, le=300), IS_NUMBER] = 30.0
    requires_approval: ApprovalChoice = False
    idempotent: bool = False
    resources: bool = False
    prompts: bool = False


class McpKind:
    """MCP servers of the internet.

    Args:
        allowed_addresses: networks that may be reached although they are not public.
        host: whose connections are used.
    """

    def __init__(self, allowed_addresses: tuple[str, ...], host: McpHost) -> None:
        self._host = host
        self._allowed = allowed_addresses
        self._reachable = Reachable(allowed_addresses)

    def check(self, name: str, config: JsonObject, secrets: Mapping[str, str]) -> JsonObject:
        """See `ToolKind.check`."""
        if program := sorted(_PROGRAM & config.keys()):
            text = f"`config.{program[0]}`: a program is not started for who registers a tool; its operator may"
            raise InvalidRequest(f"{text} (DRSAI_MCP_SERVERS). Give a `url`", param=f"config.{program[0]}")
        try:
            checked = McpToolConfig.model_validate(config)
        except ValidationError as error:
            wrong = next(explain(error, within=("config",)))
            raise InvalidRequest(str(wrong), param=wrong.place) from None
        check_secrets(secrets, set(secrets_in([checked.headers])))
        if others := sorted(names_in([checked.headers])):
            text = f"the placeholder {{{others[0]}}} is no credential; there is nothing else to fill in"
            raise InvalidRequest(f"`config.headers`: {text}", param="config.headers")
        try:
            self._reachable.check_url(checked.url, "config.url")
        except RefusedAddress as error:
            error.param = "config.url"
            raise
        self._server(name, checked, secrets)
        return checked.model_dump(mode="json", exclude_defaults=True)

    async def check_credentials(
        self, name: str, config: JsonObject, secrets: Mapping[str, str], *, tenant: str
    ) -> None:
        """Connect, and list the server's tools. See `ToolKind.check_credentials`."""
        server = self._server(name, McpToolConfig.model_validate(config), secrets, tenant)
        workbench = McpWorkbench([server.model_copy(update={"required": True})], host=self._host)
        try:
            await workbench.list_tools()
        except ServerFailed as error:
            raise InvalidRequest(f"the server was tried: {error}", param="config.url") from None

    def make(self, name: str, config: JsonObject, secrets: Mapping[str, str], *, tenant: str) -> McpWorkbench:
        """See `ToolKind.make`."""
        server = self._server(name, McpToolConfig.model_validate(config), secrets, tenant)
        return McpWorkbench([server], host=self._host)

    def _server(self, name: str, config: McpToolConfig, secrets: Mapping[str, str], tenant: str = "") -> McpHttp:
        values = Values({}, secrets)
        try:
            headers = {key: values.header(key, text) or "" for key, text in config.headers.items()}
        except ToolError as error:
            raise InvalidRequest(f"`config.headers`: {error.message}", param="config.headers") from None
        fields: JsonObject = {**config.model_dump(exclude={"headers"}), "headers": headers}
        try:
            return McpHttp(name=name, allowed_addresses=self._allowed, tenant=tenant, **fields)
        except ValidationError as error:
            wrong = next(explain(error, within=("config",)))
            if wrong.path == ("config", "name"):
                text = "`name` of an MCP server is at most 32 letters, digits, `-` and single `_`"
                raise InvalidRequest(text, param="name") from None
            raise InvalidRequest(str(wrong), param=wrong.place) from None
