"""A kind of registered tool does for the registry what is declared here. It is a module of this folder and an entry of
the registry's `kinds`; `http.py` is the example."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Protocol

from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.base import ToolBase

if TYPE_CHECKING:
    from drsai_backend.tools.mcp.workbench import McpWorkbench


class ToolKind(Protocol):
    """One kind of tools, `http` say."""

    def check(self, name: str, config: JsonObject, secrets: Mapping[str, str]) -> JsonObject:
        """The config as it is to be stored: complete, and with no credential in it.

        Raises:
            InvalidRequest: it cannot be used; `param` is the field, from `config` on.
        """
        ...

    async def check_credentials(
        self, name: str, config: JsonObject, secrets: Mapping[str, str], *, tenant: str
    ) -> None:
        """Ask the peer whether the credentials are good, where the config says how.

        Raises:
            InvalidRequest: it says that they are not, or does not answer.
        """
        ...

    def make(
        self, name: str, config: JsonObject, secrets: Mapping[str, str], *, tenant: str
    ) -> ToolBase | McpWorkbench:
        """The tool of a tenant, of a config that `check` has made; or, of a kind that stands for several, what has
        these, with names that begin with `name__`. Tenants share no connection that remembers anything."""
        ...


def check_secrets(secrets: Mapping[str, str], named: Set[str]) -> None:
    """Raise InvalidRequest where a config names a credential that is not given, or one is given that it does not
    name."""
    if missing := sorted(named - secrets.keys()):
        raise InvalidRequest(f"`secrets` has no {missing[0]!r}, which `config` names", param="secrets")
    if unused := sorted(secrets.keys() - named):
        raise InvalidRequest(f"`secrets.{unused[0]}` is not named in `config`", param="secrets")
