"""Services are what the operator has set, search engines and the weather: they are asked for JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, cast

import httpx

from drsai_backend.errors import ConfigurationError, ToolError
from drsai_backend.json_types import JsonObject
from drsai_backend.net.addresses import Reachable
from drsai_backend.tools.http.sending import Sender

_ANYWHERE: Final = Reachable(("0.0.0.0/0", "::/0"))
"""The operator names the address, and it may be one of their own network. No redirect leads away from there."""
MAX_BYTES: Final = 2_000_000


def endpoint(option: str, url: str) -> str:
    """The URL of a service without a slash at its end.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo or parsed.query or parsed.fragment:
        raise ConfigurationError(f"{option}: it must be http:// or https://, a host and perhaps a path")
    return url.rstrip("/")


async def ask(
    name: str,
    url: str,
    query: Mapping[str, str | int | float] | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    body: Mapping[str, object] | None = None,
    timeout: float,
) -> JsonObject:
    """The JSON object that a service answers with: to a GET, or, with a `body`, to a POST.

    Args:
        name: of the service, for the texts.
        timeout: seconds without a byte.

    Raises:
        ToolError: it did not answer with one. The text holds neither the URL nor a key.
    """
    sender = Sender(name=name, reachable=_ANYWHERE, timeout=timeout, max_bytes=MAX_BYTES, redirects=0)
    sent = httpx.URL(url, params=query) if query else httpx.URL(url)
    accepted = {"accept": "application/json", **(headers or {})}
    if body is None:
        answer = await sender.send("GET", sent, accepted)
    else:
        content = json.dumps(body, ensure_ascii=False).encode()
        answer = await sender.send("POST", sent, {**accepted, "content-type": "application/json"}, content)
    _check_status(name, answer.response)
    try:
        found: object = json.loads(answer.content)
    except (ValueError, RecursionError):
        raise ToolError(f"{name} answered with what is no JSON.") from None
    if not isinstance(found, dict):
        raise ToolError(f"{name} answered with JSON of another form than it is known for.")
    return cast("JsonObject", found)


def rows(name: str, found: Mapping[str, object], *path: str, optional: bool = False) -> list[JsonObject]:
    """The objects of the list at `path`. `optional`: where nothing is there, they are none.

    Raises:
        ToolError: something else is there.
    """
    value: object = cast("object", found)
    for key in path:
        value = cast("JsonObject", value).get(key) if isinstance(value, dict) else None
    if value is None and optional:
        return []
    if not isinstance(value, list):
        raise ToolError(f"{name} answered with JSON of another form than it is known for.")
    return [cast("JsonObject", each) for each in cast("list[object]", value) if isinstance(each, dict)]


def _check_status(name: str, response: httpx.Response) -> None:
    status = response.status_code
    if response.is_success:
        return
    if status == 429:
        wait = response.headers.get("retry-after", "")
        when = f"in {wait} seconds" if re.fullmatch(r"\d{1,6}", wait) else "later"
        raise ToolError(f"{name} takes no more requests for now (429). Try again {when}, or do without it.")
    if status in (401, 403):
        raise ToolError(f"{name} refuses this server ({status}): its operator has to see to the key. Do without it.")
    raise ToolError(f"{name} answered with an error ({status}).")
