"""MCP servers are told by the operator, in code or in a file. A component config only names them."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, Self, TypeAlias, cast

from pydantic import (
    AnyHttpUrl,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from drsai_backend.errors import ConfigurationError
from drsai_backend.explain import IS_NUMBER, did_you_mean, explain
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.marks import Approval
from drsai_backend.tools.options import MAX_OUTPUT

_log = logging.getLogger(__name__)
_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9-]*(_[A-Za-z0-9-]+)*$"
_PLACEHOLDER: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MANY: Final = 4_194_304


def _without_slips(given: object, about: ValidationInfo) -> object:
    """An approval without what is no key of one, which is warned of: earlier releases passed it over, and a server of
    theirs is served on."""
    if not isinstance(given, dict):
        return given
    approval, known = cast(JsonObject, given), list(Approval.__dataclass_fields__)
    for name in filter(lambda each: each not in known, approval):
        near, server = did_you_mean(str(name), known) or f"; there are {', '.join(known)}", about.data.get("name")
        _log.warning("the MCP server %r: requires_approval.%s: there is no such field%s", server, name, near)
    return {name: value for name, value in approval.items() if name in known}


class OAuthClient(BaseModel):
    """OAuth client credentials of a server.

    Attributes:
        client_id: who this client is to the authorization server.
        client_secret: `${NAME}` is taken from the environment.
        issuer: the authorization server's issuer URL. The secret is sent to no other.
        scope: scopes to ask for, separated by blanks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    client_id: str
    client_secret: str = Field(repr=False)
    issuer: str
    scope: str | None = None


class _Server(BaseModel):
    """What all servers have.

    Attributes:
        name: before the names of its tools, as `name__tool`: letters, digits, `-` and single `_`.
        enabled: False: it is asked nothing, and offers nothing; who names it is as well without it.
        include: tools that are offered, by the server's own names; None: all.
        exclude: tools that are not.
        arguments: of a tool, by the server's own name, those that are given at each call: the model neither sees nor
            changes them.
        timeout: seconds that a call, a list or a read may take.
        connect_timeout: seconds until the server has said what it can do.
        max_bytes: bytes that one answer may have.
        max_output: characters of it that the model gets; of a longer one the whole is kept as a file.
        permission: the scope that who asks needs for its tools; None: none.
        requires_approval: a person approves each call.
        idempotent: calls may be made twice: after a crash they are repeated without asking a person.
        trust_hints: believe what the server says of its tools: read-only and idempotent ones may be called twice.
        required: a list of tools fails while the server cannot be reached. Default: its tools are left out, with a
            warning in the log.
        resources: offer `name__list_resources` and `name__read_resource` as tools.
        prompts: offer `name__list_prompts` and `name__get_prompt` as tools.
        backup: the server that stands for this one while it cannot be reached. Its name does not matter.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=_NAME, max_length=32)
    enabled: bool = True
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    arguments: Mapping[str, JsonObject] = Field(default_factory=dict)
    timeout: Annotated[float, Field(gt=0, le=3600), IS_NUMBER] = 30.0
    connect_timeout: Annotated[float, Field(gt=0, le=600), IS_NUMBER] = 15.0
    max_bytes: Annotated[int, Field(ge=1024), IS_NUMBER] = _MANY
    max_output: Annotated[int, Field(ge=100), IS_NUMBER] = MAX_OUTPUT
    permission: str | None = None
    requires_approval: Annotated[bool | Approval, BeforeValidator(_without_slips)] = False
    idempotent: bool = False
    trust_hints: bool = False
    required: bool = False
    resources: bool = False
    prompts: bool = False
    backup: McpServer | None = None

    @model_validator(mode="after")
    def _has_one_backup(self) -> Self:
        if self.backup is not None and self.backup.backup is not None:
            raise ValueError("a backup has no backup itself")
        return self

    @property
    def key(self) -> str:
        """What makes two of them one connection: all that says how it is made."""
        of_offer = {"include", "exclude", "permission", "requires_approval", "idempotent", "trust_hints", "required"}
        of_results = {"arguments", "enabled", "timeout", "max_output", "resources", "prompts"}
        return self.model_dump_json(exclude={*of_offer, *of_results, "name", "backup"})

    def offers(self, tool: str) -> bool:
        """Whether a tool of that name is to be shown."""
        return self.enabled and tool not in self.exclude and (self.include is None or tool in self.include)


class McpStdio(_Server):
    """A server that is a program of this machine: it is started, and asked by its standard input.

    Attributes:
        command, args: what is started.
        env: its environment, beside PATH, HOME and the like. `${NAME}` is taken from this process's.
        cwd: its folder; default: this process's.
    """

    transport: Literal["stdio"] = "stdio"
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict, repr=False)
    cwd: str | None = None


class _Remote(_Server):
    """A server that is asked over HTTP.

    Attributes:
        url: where.
        headers: sent with every request. `${NAME}` is taken from the environment.
        oauth: how a token is got for it.
        allowed_addresses: of a server that somebody else than the operator names: addresses that are not public and may
            be reached all the same. All others that are not public may not, and headers are sent as they are. None: it
            is the operator's, and may be anywhere.
        tenant: of a server that a tenant has registered. Tenants share no sessions: a server may remember in them.
    """

    url: AnyHttpUrl
    headers: Mapping[str, str] = Field(default_factory=dict, repr=False)
    oauth: OAuthClient | None = None
    tenant: str | None = None
    allowed_addresses: tuple[str, ...] | None = None


class McpHttp(_Remote):
    """A server that is asked by streamable HTTP."""

    transport: Literal["http"] = "http"


class McpSse(_Remote):
    """A server that is asked by HTTP and answers by server-sent events, as MCP was until 2025."""

    transport: Literal["sse"] = "sse"


McpServer: TypeAlias = Annotated[McpStdio | McpHttp | McpSse, Field(discriminator="transport")]
for _kind in (_Server, McpStdio, _Remote, McpHttp, McpSse):
    _kind.model_rebuild()
_READ: Final[TypeAdapter[McpStdio | McpHttp | McpSse]] = TypeAdapter(McpServer)
_TRANSPORTS: Final = {"streamable-http": "http", "streamable_http": "http", "streamableHttp": "http"}


def tenant_of(server: McpStdio | McpHttp | McpSse) -> str | None:
    """Return whose a server is; None: the operator's, as all programs are."""
    return None if isinstance(server, McpStdio) else server.tenant


def filled(text: str, what: str) -> str:
    """A text of a configuration, with `${NAME}` from the environment.

    Raises:
        ConfigurationError: the environment has no such variable; `what` names the field.
    """

    def value(found: re.Match[str]) -> str:
        if (said := os.environ.get(found[1])) is None:
            raise ConfigurationError(f"{what} needs the environment variable {found[1]}, which is not set")
        return said

    return _PLACEHOLDER.sub(value, text)


def read_server(name: str, fields: Mapping[str, object]) -> McpStdio | McpHttp | McpSse:
    """A server as configuration files have it: `command` and `args`, or a `url` and a `transport` (or `type`): `http`
    (the default), `sse`, `stdio`.

    Raises:
        ConfigurationError: it cannot be used; the text names the field.
    """
    given: JsonObject = {"name": name, **fields}
    transport = given.pop("type", None) or given.get("transport") or ("stdio" if "command" in given else "http")
    given["transport"] = _TRANSPORTS.get(str(transport), transport)
    if isinstance(backup := given.get("backup"), dict):
        given["backup"] = read_server(name, cast(JsonObject, backup))
    try:
        return _READ.validate_python(given)
    except ValidationError as error:
        wrong = next(explain(error))
        field = ".".join(map(str, wrong.path[1:])) or "transport"
        raise ConfigurationError(f"the MCP server {name!r}: {field}: {wrong.text}") from None


class McpServers:
    """The servers that an operator has named, by which component configs and definitions find theirs.

    Args:
        servers: those that there are.

    Raises:
        ConfigurationError: two have one name.
    """

    def __init__(self, servers: Sequence[McpStdio | McpHttp | McpSse] = ()) -> None:
        self._by_name: dict[str, McpStdio | McpHttp | McpSse] = {}
        for server in servers:
            self.add(server)

    def add(self, server: McpStdio | McpHttp | McpSse) -> None:
        """One more. The same one again does nothing.

        Raises:
            ConfigurationError: another one has the name.
        """
        if self._by_name.setdefault(server.name, server) != server:
            raise ConfigurationError(f"there is another MCP server with the name {server.name!r}")

    def named(self, name: str) -> McpStdio | McpHttp | McpSse:
        """The server of that name. Raises ConfigurationError where there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            known = ", ".join(sorted(self._by_name)) or "none"
            raise ConfigurationError(
                f"there is no MCP server {name!r}; the operator's (DRSAI_MCP_SERVERS) are: {known}"
            ) from None

    def __iter__(self) -> Iterator[McpStdio | McpHttp | McpSse]:
        return iter(self._by_name.values())

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read those of a YAML or JSON file: `{"mcpServers": {"files": {"command": …}, "search": {"url": …}}}`; the
        outer object may be left out, or be called `mcp_servers`. They may be a list, each with its `name`.

        Raises:
            ConfigurationError: the file cannot be read or used.
        """
        import yaml

        try:
            found: object = yaml.safe_load(Path(path).read_text("utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigurationError(f"DRSAI_MCP_SERVERS: {path} cannot be read: {why}") from None
        if isinstance(found, dict):
            named = cast(JsonObject, found)
            found = next((named[each] for each in ("mcpServers", "mcp_servers") if each in named), named)
        listed = cast(list[JsonObject], found if isinstance(found, list) else [])
        if listed and all(isinstance(each, dict) for each in cast(list[object], listed)):
            return cls([read_server(str(each.get("name", "")), each) for each in listed])
        if not isinstance(found, dict) or not all(isinstance(each, dict) for each in cast(JsonObject, found).values()):
            raise ConfigurationError(
                f"DRSAI_MCP_SERVERS: {path} must hold an object for each server, by name, or with its `name`"
            )
        return cls([read_server(str(name), fields) for name, fields in cast(dict[str, JsonObject], found).items()])
