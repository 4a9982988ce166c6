"""The shelf is where tools are found while a team is built."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from drsai_backend.access.principal import Principal
    from drsai_backend.config import Settings
    from drsai_backend.tools.base import ToolBase
    from drsai_backend.tools.registered.registry import ToolRegistry


class Shelf(Protocol):
    """What a team is built of: the `RunContext`.

    Attributes:
        principal: who asks.
        began_at: when the run began, where it is resumed.
        settings: those of the server.
        own_tools: tools of extensions by their names.
        tools: the registered ones of tenants.
    """

    principal: Principal
    began_at: datetime | None
    settings: Settings | None
    own_tools: Mapping[str, ToolBase]
    tools: ToolRegistry | None


shelf: Final[ContextVar[Shelf | None]] = ContextVar("shelf", default=None)
"""That of the team that is being built."""
