"""Registered HTTP tools have as config a `HttpToolConfig` without its name."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from drsai_backend.errors import InvalidRequest, ToolError
from drsai_backend.explain import explain
from drsai_backend.json_types import JsonObject
from drsai_backend.net.transport import Resolve
from drsai_backend.tools.http import HttpTool, HttpToolConfig
from drsai_backend.tools.http.placeholders import secrets_in
from drsai_backend.tools.registered.base import check_secrets


class HttpKind:
    """Endpoints of the internet.

    Args:
        allowed_addresses: networks that may be reached although they are not public.
        resolve: how host names are resolved; default: as the system does.
    """

    def __init__(self, allowed_addresses: tuple[str, ...] = (), resolve: Resolve | None = None) -> None:
        self._allowed = allowed_addresses
        self._resolve = resolve

    def check(self, name: str, config: JsonObject, secrets: Mapping[str, str]) -> JsonObject:
        """See `ToolKind.check`."""
        if "name" in config:
            raise InvalidRequest("`config.name`: the name is that of the tool; leave it out", param="config.name")
        try:
            checked = HttpToolConfig.model_validate({**config, "name": name})
        except ValidationError as error:
            wrong = next(explain(error, within=("config",)))
            raise InvalidRequest(str(wrong), param=wrong.place) from None
        check_secrets(secrets, checked.secret_names())
        headers = [each.headers for each in (checked.endpoint, checked.check) if each is not None]
        for key in secrets_in(headers):
            if any(ord(char) < 32 or ord(char) == 127 for char in secrets[key]):
                text = f"`secrets.{key}` goes into a header, and must not have line breaks or control characters"
                raise InvalidRequest(text, param="secrets")
        try:
            self._tool(checked, secrets)
        except InvalidRequest as error:
            error.param = f"config.{error.param}"
            raise
        return checked.model_dump(mode="json", exclude={"name"}, exclude_defaults=True)

    async def check_credentials(
        self, name: str, config: JsonObject, secrets: Mapping[str, str], *, tenant: str
    ) -> None:
        """See `ToolKind.check_credentials`."""
        try:
            await self.make(name, config, secrets, tenant=tenant).validate_credentials()
        except ToolError as error:
            raise InvalidRequest(f"the credentials were tried: {error.message}", param="config.check") from None

    def make(self, name: str, config: JsonObject, secrets: Mapping[str, str], *, tenant: str) -> HttpTool:
        """See `ToolKind.make`."""
        return self._tool(HttpToolConfig.model_validate({**config, "name": name}), secrets)

    def _tool(self, config: HttpToolConfig, secrets: Mapping[str, str]) -> HttpTool:
        return HttpTool(config, secrets, allowed_addresses=self._allowed, resolve=self._resolve)
