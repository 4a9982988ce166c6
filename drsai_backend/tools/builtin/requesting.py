"""Requesting (`http_request`) sends a request that the model writes, within what the operator allows."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import httpx

from drsai_backend.errors import ConfigurationError, ToolError
from drsai_backend.json_types import JsonObject
from drsai_backend.net.addresses import MAX_URL, Reachable
from drsai_backend.net.transport import Resolve
from drsai_backend.tools.base import ToolBase, ToolIdentity
from drsai_backend.tools.http.sending import SAFE, Answer, Sender, check_headers
from drsai_backend.tools.options import ApprovalRule, ToolOptions
from drsai_backend.tools.results import ToolOutput
from drsai_backend.tools.running import ToolRun

Method: TypeAlias = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
MAX_BODY: Final = 100_000
_TEXTS: Final = (
    "",
    "application/json",
    "application/xml",
    "application/javascript",
    "application/x-www-form-urlencoded",
)
_SHOWN: Final = ("content-type", "content-length", "last-modified", "etag", "location", "retry-after", "allow")
"""Headers of an answer that the model sees."""


class _HttpRequest(ToolBase):
    def __init__(
        self, methods: Sequence[str], hosts: Sequence[str] | None, sender: Sender, options: ToolOptions
    ) -> None:
        properties: JsonObject = {
            "url": {"type": "string", "maxLength": MAX_URL, "description": "the whole URL, https://…"},
            "method": {"type": "string", "enum": list(methods), "default": methods[0]},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 50},
        }
        if set(methods) - set(SAFE):
            text = "sent as it is; set a content-type header"
            properties["body"] = {"type": "string", "maxLength": MAX_BODY, "description": text}
        schema = {"type": "object", "properties": properties, "required": ["url"], "additionalProperties": False}
        description = "Send an HTTP request; gives the status, some headers and the body of the answer."
        if hosts is not None:
            description += f" Hosts that may be asked: {', '.join(hosts) or 'none'}."
        super().__init__(ToolIdentity("http_request"), description, schema, options)
        self._method: str = methods[0]
        self._hosts = hosts
        self._sender = sender

    async def invoke(self, arguments: JsonObject, run: ToolRun) -> ToolOutput:
        """Send the request. An answer of any status is a result."""
        headers: Mapping[str, str] = arguments.get("headers") or {}
        method: str = arguments.get("method", self._method)
        body: str | None = arguments.get("body")
        try:
            check_headers(headers)
            encoded = {name: value.encode() for name, value in headers.items()}
            content = None if body is None else body.encode()
        except ValueError as error:  # A UnicodeError, too: half a character.
            text = "it has characters that cannot be sent" if isinstance(error, UnicodeError) else str(error)
            raise ToolError(f"The request cannot be sent: {text}. Change it.") from None
        if body is not None and method in SAFE:
            raise ToolError(f"A {method} request has no body: leave it out, or choose another method.")
        url = parsed(arguments["url"])
        self._check_host(url)
        answer = await self._sender.send(method, url, encoded, content)
        return _told(answer)

    def _check_host(self, url: httpx.URL) -> None:
        if self._hosts is not None and not any(fnmatch.fnmatchcase(url.host, each.lower()) for each in self._hosts):
            raise ToolError(f"The host {url.host!r} may not be asked. May be asked: {', '.join(self._hosts)}.")


def http_request(  # noqa: PLR0913 - a tool's options
    *,
    methods: Sequence[Method] = SAFE,
    hosts: Sequence[str] | None = None,
    requires_approval: ApprovalRule | Literal["unsafe"] = "unsafe",
    allowed_addresses: Sequence[str] = (),
    max_bytes: int = 1_000_000,
    timeout: float = 30.0,
    resolve: Resolve | None = None,
) -> ToolBase:
    """A tool that sends a request of the model. A public host is reached by https alone.

    With no other methods than GET and HEAD, a call that was cut off is repeated; else a person is asked about it.

    Args:
        methods: those that may be used; the first is the default.
        hosts: those that may be asked, as `api.example.org` or `*.example.org`; None: all public ones. With hosts, no
            redirect is followed.
        requires_approval: "unsafe": a person approves whatever is neither GET nor HEAD; else as in `ToolOptions`.
        allowed_addresses: networks and addresses that may be reached although they are not public.
        max_bytes: of an answer.
        timeout: seconds of a call.
        resolve: how host names are resolved; default: as the system does.

    Raises:
        ConfigurationError: an option cannot be used.
    """
    unknown = [each for each in methods if each not in _METHODS]
    if unknown or not methods:
        raise ConfigurationError(f"methods: one or more of {', '.join(_METHODS)}")
    if isinstance(hosts, str) or any("/" in each for each in hosts or ()):
        raise ConfigurationError("hosts: a list of hosts such as api.example.org, without scheme or path")

    def is_unsafe(arguments: Mapping[str, object]) -> bool:
        return arguments.get("method", methods[0]) not in SAFE

    if isinstance(requires_approval, str) and requires_approval != "unsafe":
        raise ConfigurationError('requires_approval: "unsafe", true, false, or a rule')
    rule = is_unsafe if requires_approval == "unsafe" else requires_approval
    options = ToolOptions(timeout=timeout, idempotent=set(methods) <= set(SAFE), requires_approval=rule)
    sender = Sender(
        name="The request",
        reachable=networks(allowed_addresses),
        resolve=resolve,
        timeout=timeout,
        max_bytes=max_bytes,
        redirects=5 if hosts is None else 0,
    )
    return _HttpRequest(methods, hosts, sender, options)


def networks(allowed: Sequence[str]) -> Reachable:
    """Return what may be reached. Raises ConfigurationError: one of them is neither a network nor an address."""
    try:
        return Reachable(allowed)
    except ValueError:
        raise ConfigurationError("allowed_addresses: networks (10.0.0.0/8) and addresses (::1)") from None


def parsed(url: str) -> httpx.URL:
    """A URL of the model, without its fragment. Raises ToolError: it is none."""
    try:
        return httpx.URL(url.strip()).copy_with(fragment=None)
    except (httpx.InvalidURL, ValueError):
        raise ToolError("`url` is no URL. Give the whole of it, as https://example.org/page.") from None


def _told(answer: Answer) -> ToolOutput:
    response = answer.response
    lines = [f"{response.status_code} {response.reason_phrase}".strip()]
    lines += [f"{name}: {response.headers[name]}" for name in _SHOWN if name in response.headers]
    head = "\n".join(lines)
    if not answer.content:
        return head
    if is_text(answer.kind):
        return f"{head}\n\n{answer.text}"
    return [head, answer.as_file()]


def is_text(kind: str) -> bool:
    """Whether a media type is one of text; "", too."""
    return kind in _TEXTS or kind.startswith("text/") or kind.endswith(("+json", "+xml"))
