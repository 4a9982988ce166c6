"""A config is an HTTP tool as data."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from drsai_backend.errors import ConfigurationError
from drsai_backend.explain import IS_NUMBER
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.classes import parameters_schema
from drsai_backend.tools.http.placeholders import CONTEXT, names_in, secrets_in
from drsai_backend.tools.http.sending import SAFE, check_headers
from drsai_backend.tools.marks import ApprovalChoice

MAX_BYTES: Final = 1_000_000
"""Bytes of an answer that are read unless the config says otherwise."""
_BY_EXPRESSION: Final = ("match(", "search(", "=~")
"""Of JSONPath: regular expressions may take for ever."""
_QUOTED: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")


@lru_cache(maxsize=256)
def _schema_of(parameters: str, tool: str) -> str:
    """A registered tool is made for each run, and to check a long schema takes a second."""
    return json.dumps(parameters_schema(json.loads(parameters), tool))


class HttpEndpoint(BaseModel):
    """A request. Texts have placeholders: `{city}` is an argument, `{userId}` a variable of the context,
    `{secret:KEY}` a credential; `{{` and `}}` are braces.

    A text that is one placeholder alone keeps the value's type: `{"count": "{count}"}` sends a number.
    """

    model_config = ConfigDict(extra="forbid")

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    url: Annotated[str, Field(min_length=8, max_length=2048, description="Placeholders stand behind the host only.")]
    headers: dict[str, str] = {}
    query: dict[str, JsonValue] = {}
    body: JsonValue = Field(default=None, description="Sent as JSON; null: no body.")
    timeout: Annotated[float, Field(gt=0, le=300), IS_NUMBER] = Field(
        default=30.0, description="Seconds for the whole call."
    )

    @field_validator("url")
    @classmethod
    def _host_is_fixed(cls, url: str) -> str:
        origin = re.match(r"https?://[^/?#]+", url)
        if origin is None:
            raise ValueError("it must begin with https:// and a host")
        if "{" in origin.group():
            raise ValueError("a placeholder must not stand in the host: whoever fills it in would choose who is called")
        return url

    @field_validator("headers")
    @classmethod
    def _headers_can_be_sent(cls, headers: dict[str, str]) -> dict[str, str]:
        check_headers(headers)
        return headers

    def texts(self) -> list[object]:
        """Return all that may have placeholders."""
        return [self.url, self.headers, self.query, self.body]


class HttpToolConfig(BaseModel):
    """An HTTP tool.

    A variable of the context is filled in by the system and never by the model: `dialogId` (and `threadId`, the same),
    `tenantId`, `userId`, `runId`, `agentName`, `callId`.
    """

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: Annotated[str, Field(min_length=1, max_length=4000)]
    parameters: list[dict[str, object]] | dict[str, object] = Field(
        default=[], description="A JSON Schema of an object, or a list with `name`, `type`, `description`, `required`."
    )
    endpoint: HttpEndpoint
    result: str | None = Field(default=None, max_length=500, description="JSONPath of what is wanted of the answer.")
    retries: Annotated[int, Field(ge=0, le=5), IS_NUMBER] = Field(default=2, description="Of GET and HEAD alone.")
    idempotent: bool | None = Field(
        default=None, description="It may be sent again after a crash. Default: GET and HEAD may."
    )
    context_vars: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")], JsonValue] = Field(
        default={}, max_length=50, description="Variables of its own, with their values; never the model's."
    )
    requires_approval: ApprovalChoice = False
    max_bytes: Annotated[int, Field(ge=1, le=10_000_000), IS_NUMBER] = Field(
        default=MAX_BYTES, description="Of an answer; a longer one is refused."
    )
    max_output: Annotated[int, Field(ge=100, le=1_000_000), IS_NUMBER] = Field(
        default=50_000, description="Characters that the model gets."
    )
    check: HttpEndpoint | None = Field(
        default=None, description="A request that answers with 2xx when the credentials are good."
    )

    @field_validator("result")
    @classmethod
    def _is_path(cls, path: str | None) -> str | None:
        if path is not None:
            if any(each in path.replace(" ", "") for each in _BY_EXPRESSION):
                raise ValueError("regular expressions are not supported in it")
            plain = _QUOTED.sub("", path)
            if plain.count("..") + plain.count("?") > 2 or "$" in plain[1:]:
                # Each of them looks at all of the answer for each that the one before has found.
                raise ValueError("it may have two of `..` and `?` in all, and `$` at its beginning only")
            import jsonpath  # Few tools have one.

            try:
                jsonpath.compile(path)
            except jsonpath.JSONPathError as error:
                raise ValueError(f"it is no JSONPath: {error}") from None
        return path

    @model_validator(mode="after")
    def _names_are_known(self) -> HttpToolConfig:
        try:
            known = self.schema_of_parameters()["properties"].keys()
        except ConfigurationError as error:
            raise ValueError(f"`parameters`: {error.message}") from None
        if clash := sorted(known & CONTEXT.keys()):
            raise ValueError(f"`parameters`: {clash[0]} is filled in by the system; the model must not send it")
        own = self.context_vars.keys()
        if clash := sorted(own & (known | CONTEXT.keys())):
            whose = "a parameter, too" if clash[0] in known else "filled in by the system"
            raise ValueError(f"`context_vars`: {clash[0]} is {whose}: give it another name")
        for field, endpoint in (("endpoint", self.endpoint), ("check", self.check)):
            if endpoint is None:
                continue
            allowed = own | known | CONTEXT.keys() if field == "endpoint" else own
            for name in names_in(endpoint.texts()):
                if name not in allowed:
                    raise ValueError(f"`{field}`: the placeholder {{{name}}} is no parameter and no context variable")
        if unused := sorted(own - set(names_in([each.texts() for each in (self.endpoint, self.check) if each]))):
            raise ValueError(f"`context_vars`: {unused[0]} is nowhere: write {{{unused[0]}}} where it is to be sent")
        return self

    def schema_of_parameters(self) -> JsonObject:
        """The JSON Schema of the arguments. Raises ConfigurationError: they are none."""
        return json.loads(_schema_of(json.dumps(self.parameters), self.name))

    def secret_names(self) -> set[str]:
        """The credentials that it names."""
        texts = [*self.endpoint.texts(), *(self.check.texts() if self.check is not None else ())]
        return set(secrets_in(texts))

    @property
    def is_safe(self) -> bool:
        """Whether it changes nothing where it is sent to."""
        return self.endpoint.method in SAFE
