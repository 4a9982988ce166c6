"""`UserAccounts` is the feature, of whose parts the application is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drsai_backend.features.base import Extension

if TYPE_CHECKING:
    from fastapi import APIRouter

    from drsai_backend.api.joining import Web


class UserAccounts(Extension):
    """Users: listed, and deleted with all that is theirs."""

    name = "users"

    def routes(self, web: Web) -> APIRouter | None:
        from drsai_backend.features.users.routes import user_routes
        from drsai_backend.features.users.users import Users

        return None if web.keys is None else user_routes(Users(web.engine, web.keys, self.host.settings))
