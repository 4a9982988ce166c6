"""`Files` is the feature, of whose parts the application is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drsai_backend.features.base import Extension

if TYPE_CHECKING:
    from fastapi import APIRouter

    from drsai_backend.api.joining import Web


class Files(Extension):
    """Files of users."""

    name = "files"

    def routes(self, web: Web) -> APIRouter:
        from drsai_backend.features.files.routes import file_routes

        return file_routes(web.engine, web.bodies)
