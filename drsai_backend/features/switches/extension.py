"""`Switches` is the feature: what other processes have switched off is known here within two seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drsai_backend.features.switches.switching import Switching

if TYPE_CHECKING:
    from fastapi import APIRouter

    from drsai_backend.api.joining import Web
    from drsai_backend.runs import Engine


class Switches(Switching):
    """Switches, with their routes, that follow what other processes do."""

    def routes(self, web: Web) -> APIRouter:
        from drsai_backend.features.switches.routes import switch_routes

        return switch_routes(self, web)

    async def refresh(self) -> None:
        """Learn what is off."""
        await self._followed.refresh()

    async def open(self, engine: Engine) -> None:
        """Learn what is off, and look for changes from now on."""
        await self.host.watch.begin(self._followed)

    async def close(self) -> None:
        await self.host.watch.end(self._followed)
