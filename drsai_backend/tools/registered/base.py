"""What a kind of tool has to be able to do for the registry. A kind is a module of this folder and an entry in
`registry.KINDS`; `http.py` is the example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from autogen_core.tools import Workbench

from drsai_backend.json_types import JsonObject


class ToolKind(Protocol):
    """One kind of tools, `http` say."""

    def check(self, name: str, config: JsonObject, secrets: Mapping[str, str]) -> JsonObject:
        """The config as it is to be stored: complete, and with no secret in it.

        Raises:
            InvalidRequest: it cannot be used; `param` is the field, from `config` on.
        """
        ...

    async def check_credentials(self, name: str, config: JsonObject, secrets: Mapping[str, str]) -> None:
        """Ask the peer whether the credentials are good, where the config says how.

        Raises:
            InvalidRequest: it says that they are not, or does not answer.
        """
        ...

    def open(self, name: str, config: JsonObject, secrets: Mapping[str, str]) -> Workbench:
        """What serves the tool. Whoever starts it stops it; it keeps no connection of its own while it is stopped."""
        ...
