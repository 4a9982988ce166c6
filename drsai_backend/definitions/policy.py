"""The policy of definitions is what the operator lets them use, and what their agents may be called."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from drsai_backend.config import Settings
from drsai_backend.tools.builtin.table import NAMES

NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
"""What AutoGen takes for the name of an agent."""


@dataclass(frozen=True, slots=True)
class DefinitionPolicy:
    """What the operator lets definitions use.

    Attributes:
        python: packages and modules whose functions may be tools.
        allowed_addresses: networks that HTTP tools may reach although they are not public.
        builtin: the names of tools that come along, with the package or with extensions.
        mcp: gives the names of the MCP servers that there are; None: that is not known.
        tries: functions are imported, and tools with options made, to see whether they can be, and a team that nothing
            can end is refused; not where what is read was stored.
        settings: where options of tools come from that a definition leaves open; default: the environment.
    """

    python: Sequence[str] = ()
    allowed_addresses: tuple[str, ...] = ()
    builtin: Collection[str] = NAMES
    mcp: Callable[[], Collection[str]] | None = None
    tries: bool = True
    settings: Settings | None = None

    @classmethod
    def of(cls, settings: Settings, own_tools: Iterable[str] = ()) -> DefinitionPolicy:
        """Return what the settings say, and the tools of extensions."""
        addresses = tuple(map(str, settings.allowed_addresses))
        return cls(tuple(settings.definition_packages), addresses, (*NAMES, *own_tools), settings=settings)


NOTHING_ALLOWED: Final = DefinitionPolicy()
Means = DefinitionPolicy  # The name of earlier releases.
