"""The routes of `/v1/config` show what is stored of settings, change it, and show and restore what was stored."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import Body, allowed, described, read_fields
from drsai_backend.api.http.json import answers, deleted, deletion, json_response, page_of, page_response
from drsai_backend.api.http.once import Once, plain
from drsai_backend.api.http.parameters import Limit, after_of, new_router
from drsai_backend.api.joining import Web
from drsai_backend.api.objects import fields_of, schema_of
from drsai_backend.config.live import LIVE
from drsai_backend.config.settings import ENVIRONMENT
from drsai_backend.database.documents import VERSION_PATTERN
from drsai_backend.features.config.base import ConfigInfo
from drsai_backend.features.config.extension import Config
from drsai_backend.json_types import JsonObject

Admin = Annotated[Principal, allowed(Scope.CONFIG_ADMIN, named=False)]
Environment = Annotated[
    str, Path(json_schema_extra={"pattern": ENVIRONMENT}, description="As servers have it in DRSAI_ENVIRONMENT.")
]
After = Annotated[str | None, after_of(ENVIRONMENT)]
AfterVersion = Annotated[str | None, after_of(VERSION_PATTERN)]
Version = Annotated[int | None, Query(ge=1, le=2**31 - 1, description="An older version; default: what holds.")]
Replaced = Annotated[int | None, Query(ge=1, le=2**31 - 1, description="The version that holds now, or 409.")]
_CONFIG: Final = schema_of(ConfigInfo, "config")
_IN_FULL: Final = schema_of(
    ConfigInfo, "config", settable={"type": "array", "items": {"type": "string"}, "description": "What can be stored."}
)
_EXPECTED: Final = "The version that holds now, 0 for none; 409 if it is another. null: whichever."


class ConfigBody(Body):
    """Settings that are stored from now on, beside those that are stored already."""

    values: JsonObject = Field(
        min_length=1,
        max_length=100,
        description="By name; null: stored no more.",
        json_schema_extra={"propertyNames": {"enum": [*LIVE]}},
    )
    version: int | None = Field(default=None, ge=0, le=2**31 - 1, description=_EXPECTED)


class RollbackBody(Body):
    """Which version is to hold again."""

    to: int = Field(ge=1, le=2**31 - 1, description="The number of the older version.")
    version: int | None = Field(default=None, ge=0, le=2**31 - 1, description=_EXPECTED)


def routes(config: Config, web: Web) -> APIRouter:
    """Return the routes. Settings are of all tenants, and so is the scope, which no role has."""
    router = new_router("/v1/config", tags=["config"])

    @router.get("", responses=answers(200, page_of(_CONFIG)))
    async def list_configs(who: Admin, limit: Limit = 20, after: After = None) -> Response:
        """What is stored of settings, an environment each, by name."""
        return page_response(await config.list(after, limit), _shown)

    @router.get("/{environment}", responses=answers(200, _IN_FULL))
    async def get_config(environment: Environment, who: Admin, version: Version = None) -> Response:
        """What is stored for an environment, or an older version of it, and what can be stored."""
        return json_response({**_shown(await config.get(environment, version)), "settable": [*LIVE]})

    @router.patch("/{environment}", responses=answers(200, _CONFIG), openapi_extra=described(ConfigBody))
    async def set_config(environment: Environment, request: Request, who: Admin) -> Response:
        """Store settings. All servers and workers of the environment go by them within two seconds."""
        body = await read_fields(web.bodies, request, ConfigBody)
        made = await config.set(body.values, environment, version=body.version, actor=who.actor)
        return json_response(_shown(made))

    @router.delete("/{environment}", responses=answers(200, deletion("config.deleted")))
    async def delete_config(environment: Environment, who: Admin, version: Replaced = None) -> Response:
        """Delete all that was stored for an environment, its history included. 409 for the one of this server."""
        await config.delete(environment, version=version, actor=who.actor)
        return deleted(environment, "config.deleted")

    @router.get("/{environment}/versions", responses=answers(200, page_of(_CONFIG)))
    async def list_config_versions(
        environment: Environment, who: Admin, limit: Limit = 20, after: AfterVersion = None
    ) -> Response:
        """What was stored for an environment, newest first."""
        return page_response(await config.history(environment, after, limit), _shown)

    @router.post("/{environment}/rollback", responses=answers(200, _CONFIG), openapi_extra=described(RollbackBody))
    async def roll_config_back(environment: Environment, request: Request, who: Admin, once: Once) -> Response:
        """Have an older version hold again: it becomes a new one, unless it holds already."""
        body = await read_fields(web.bodies, request, RollbackBody)

        def make() -> Awaitable[ConfigInfo]:
            return config.roll_back(body.to, environment, version=body.version, actor=who.actor)

        return await once(who, body, make, plain(_shown))

    return router


def _shown(info: ConfigInfo) -> JsonObject:
    return {"id": info.environment, "object": "config", **fields_of(info)}
