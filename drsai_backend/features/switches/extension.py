"""`Switches` is the feature: what other processes have switched off is known here within two seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drsai_backend.features.switches.switching import Switching

if TYPE_CHECKING:
    from fastapi import APIRouter

    from drsai_backend.api.joining import Web


class Switches(Switching):
    """Switches, with their routes, that follow what other processes do."""

    def routes(self, web: Web) -> APIRouter:
        from drsai_backend.features.switches.routes import switch_routes

        return switch_routes(self, web)
