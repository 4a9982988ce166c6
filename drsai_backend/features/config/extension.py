"""`Config` is the feature: what is stored for the environment of a process holds there within two seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drsai_backend.features.config.configuring import Configuring

if TYPE_CHECKING:
    from fastapi import APIRouter

    from drsai_backend.api.joining import Web
    from drsai_backend.runs import Engine


class Config(Configuring):
    """Stored settings, with their routes, that follow what other processes do."""

    def routes(self, web: Web) -> APIRouter:
        from drsai_backend.features.config.routes import config_routes

        return config_routes(self, web)

    async def open(self, engine: Engine) -> None:
        """Go by what is stored, and look for changes from now on."""
        self.host.on_settings.append(lambda _: engine.catalog.settings_changed())
        await super().open(engine)
