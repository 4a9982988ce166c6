"""An HTTP tool makes its request of a call's arguments, sends it to an address that may be reached, and answers within
bounds."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import httpx

from drsai_backend.errors import ToolError, TransientToolError
from drsai_backend.json_types import JsonObject
from drsai_backend.net.addresses import Reachable
from drsai_backend.net.retry_after import pause_of
from drsai_backend.net.transport import Resolve
from drsai_backend.tools.apart import ApartError, apart
from drsai_backend.tools.base import ToolBase, ToolIdentity
from drsai_backend.tools.http.config import HttpEndpoint, HttpToolConfig
from drsai_backend.tools.http.hiding import Hiding
from drsai_backend.tools.http.placeholders import CONTEXT, Values, context_values
from drsai_backend.tools.http.sending import SAFE, Answer, Sender
from drsai_backend.tools.options import ToolOptions
from drsai_backend.tools.results import FileOutput, ToolOutput
from drsai_backend.tools.running import ToolRun
from drsai_backend.tools.threads import in_thread

PREFIX: Final = "DRSAI_TOOL_SECRET_"
"""`{secret:KEY}` of a tool that the operator configures is this and `KEY`, in the environment."""
_AWAY: Final = (408, 425, 429, 500, 502, 503, 504)
"""Answers that may be another one soon."""
_SHOWN: Final = 500
_LONG: Final = 65_536
"""Bytes of an answer that is read in a thread."""
_PICKING: Final = Path(__file__).with_name("inside_jsonpath.py")
_MEMORY: Final = 1 << 30


def environment_secrets() -> dict[str, str]:
    """The credentials that the operator has set: environment variables that begin with `DRSAI_TOOL_SECRET_`."""
    return {name.removeprefix(PREFIX): value for name, value in os.environ.items() if name.startswith(PREFIX)}


class HttpTool(ToolBase):
    """A tool that sends a request.

    Args:
        config: what is sent where; or the same as a mapping.
        secrets: credentials by name; default: `environment_secrets()`.
        allowed_addresses: networks (`10.0.0.0/8`) or addresses that may be reached although they are not public.
        resolve: how host names are resolved; default: as the system does.

    Raises:
        pydantic.ValidationError: the config is none; a ValueError, whose text names the field.
        InvalidRequest: the URL cannot be called; `RefusedAddress` where its host is an address that is not public.
    """

    def __init__(
        self,
        config: HttpToolConfig | Mapping[str, object],
        secrets: Mapping[str, str] | None = None,
        *,
        allowed_addresses: tuple[str, ...] = (),
        resolve: Resolve | None = None,
    ) -> None:
        self.config = config if isinstance(config, HttpToolConfig) else HttpToolConfig.model_validate(config)
        self._secrets = environment_secrets() if secrets is None else dict(secrets)
        self._hiding = Hiding(self._secrets.values())
        self._reachable = Reachable(allowed_addresses)
        self._resolve = resolve
        for name, endpoint in (("endpoint.url", self.config.endpoint), ("check.url", self.config.check)):
            if endpoint is not None:
                self._reachable.check_url(_origin(endpoint.url), name)
        options = ToolOptions(
            timeout=self.config.endpoint.timeout,
            retries=self.config.retries if self.config.is_safe else 0,
            idempotent=self.config.is_safe if self.config.idempotent is None else self.config.idempotent,
            requires_approval=self.config.requires_approval,
            max_output=self.config.max_output,
        )
        identity = ToolIdentity(self.config.name, labels=("http",))
        super().__init__(identity, self.config.description, self.config.schema_of_parameters(), options)

    async def validate_credentials(self) -> None:
        """Send the config's `check`. Raises ToolError: it is not answered with 2xx."""
        if missing := sorted(self.config.secret_names() - self._secrets.keys()):
            raise ToolError(f"The credential {missing[0]} is not given.")
        if self.config.check is not None:
            try:
                async with asyncio.timeout(self.config.check.timeout):
                    await self._send(self.config.check, Values(self.config.context_vars, self._secrets))
            except TimeoutError:
                raise ToolError(f"{self.name} did not answer in time.") from None

    async def invoke(self, arguments: JsonObject, run: ToolRun) -> ToolOutput:
        """Send the request; the answer, or what the config's JSONPath finds in it."""
        answer = await self._send(
            # What the system fills in is never the model's, also where the system does not know it.
            self.config.endpoint,
            Values(_own(arguments) | self.config.context_vars | context_values(run), self._secrets),
        )
        if _is_json(answer.kind) and (path := self.config.result) is not None:
            content = await self._picked(path, answer)
            read = partial(self._hidden, content)
            return read() if len(content) <= _LONG else await in_thread(read)
        read = partial(self._read, answer)
        return read() if len(answer.content) <= _LONG else await in_thread(read)

    def _read(self, answer: Answer) -> ToolOutput:
        kind = answer.kind
        if _is_json(kind):
            return self._hiding.json(answer.content.decode("utf-8", "replace"))
        if kind.startswith("text/") or not kind or kind in ("application/xml", "application/x-www-form-urlencoded"):
            return self._hiding.text(answer.text)
        file = answer.as_file()
        return FileOutput(self._hiding.text(file.name), self._hiding.data(file.data), self._hiding.text(kind))

    async def _picked(self, path: str, answer: Answer) -> bytes:
        """Return what a path finds in an answer, as JSON."""
        data, seconds = path.encode() + b"\0" + answer.content, self.config.endpoint.timeout
        try:
            return await apart(_PICKING, data, seconds=seconds, memory=_MEMORY, most=2 * self.config.max_bytes)
        except ApartError as error:
            if error.late:
                raise ToolError(f"What is wanted of the answer was not found within {seconds:g} seconds.") from None
            raise ToolError(f"{self.name} answered with JSON that cannot be read.") from None

    def _hidden(self, found: bytes) -> ToolOutput:
        text = found.decode()
        return self._hiding.value(json.loads(text)) if text[0] in '"n' else self._hiding.json(text)

    async def _send(self, endpoint: HttpEndpoint, values: Values) -> Answer:
        try:
            url, headers, content = self._filled(endpoint, values)
        except UnicodeError:
            raise ToolError("The arguments have characters that cannot be sent. Leave them out.") from None
        except httpx.InvalidURL:
            raise ToolError("The arguments make an address that is too long, or is none. Send shorter ones.") from None
        sender = Sender(
            name=self.name,
            reachable=self._reachable,
            resolve=self._resolve,
            timeout=endpoint.timeout,
            max_bytes=self.config.max_bytes,
        )
        answer = await sender.send(endpoint.method, url, headers, content)
        self._check_status(answer, endpoint)
        return answer

    def _filled(self, endpoint: HttpEndpoint, values: Values) -> tuple[httpx.URL, dict[str, bytes], bytes | None]:
        """URL, headers and body of a request."""
        url = httpx.URL(values.url(endpoint.url))
        if pairs := values.query(endpoint.query):
            url = url.copy_merge_params(httpx.QueryParams(tuple(pairs)))
        filled = {name: values.header(name, template) for name, template in endpoint.headers.items()}
        headers = {name: value.encode() for name, value in filled.items() if value is not None}
        body = values.body(endpoint.body)
        if body is None:
            return url, headers, None
        if not any(name.lower() == "content-type" for name in headers):
            headers["content-type"] = b"application/json"
        return url, headers, json.dumps(body, ensure_ascii=False).encode()

    def _check_status(self, answer: Answer, endpoint: HttpEndpoint) -> None:
        response = answer.response
        if response.is_success:
            return
        begin = Answer(response, answer.content[: 100 * _SHOWN])
        said = self._hiding.text(begin.text)[:_SHOWN].strip()
        reason = self._hiding.text(response.reason_phrase)
        text = f"{self.name} answered with {response.status_code} {reason}" + (f": {said}" if said else "")
        pause = pause_of(response.headers)
        if pause:
            text += f"\nIt wants to be asked again after {pause:.0f} s."
        if response.status_code in _AWAY and endpoint.method in SAFE:
            raise TransientToolError(text, after=pause or 0.0)
        raise ToolError(text)


def _is_json(kind: str) -> bool:
    return kind == "application/json" or kind.endswith("+json")


def _own(arguments: Mapping[str, object]) -> JsonObject:
    """The arguments that a model may give."""
    return {name: value for name, value in arguments.items() if name not in CONTEXT}


def _origin(url: str) -> str:
    """A URL's scheme and host, before anything is filled in."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].partition('?')[0]}"
