"""The routes of `/v1/keys` show the admins of a tenant its API keys."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from drsai_backend.access.key_store import NewKey, read_scopes
from drsai_backend.access.principal import MAX_ROLES, OF_THE_SERVER, ROLES, Principal, Scope
from drsai_backend.api.auth import Body, allowed, described, read_fields
from drsai_backend.api.http.json import answers, json_response, page_of, page_response
from drsai_backend.api.http.once import Once, plain
from drsai_backend.api.http.parameters import AfterNumber, KeyId, Limit, name_of, new_router
from drsai_backend.api.joining import Web
from drsai_backend.api.objects import fields_of
from drsai_backend.database.api_keys import KeyInfo
from drsai_backend.datamodel.owner import Owner
from drsai_backend.datamodel.thread import NAME_SCHEMA
from drsai_backend.errors import InsufficientScope
from drsai_backend.json_types import JsonObject
from drsai_backend.net.addresses import CallableUrl
from drsai_backend.webhooks.webhooks import NewSecret

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Admin = Annotated[Principal, allowed(Scope.ADMIN, named=False)]
Of = Annotated[str | None, *name_of("user", "Only this user's.")]

_KEY: Final = {
    "type": "object",
    "required": ["id", "object"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "api_key"},
        "user": {"type": "string"},
        "tenant": {"type": "string"},
        "name": {"type": ["string", "null"], "description": "What people call it."},
        "scopes": {"type": "array", "items": {"type": "string"}},
        "roles": {"type": "array", "items": {"type": "string"}},
        "created_at": {"type": "integer", "description": "Unix time in seconds, as all that end in `_at`."},
        **{name: {"type": ["integer", "null"]} for name in ("expires_at", "last_used_at", "revoked_at")},
        "state": {"enum": ["active", "expired", "revoked"]},
        "webhook_url": {"type": ["string", "null"]},
        "key": {"type": "string", "description": "The key itself: in the answer that makes it, and never again."},
        "webhook_secret": {
            "type": "string",
            "description": "What signs the webhooks of its user, where this has made one: here, and never again.",
        },
    },
}


class KeyBody(Body):
    """What a new key is to be."""

    user: str = Field(description="Who asks with it: a user of your own tenant.", json_schema_extra=NAME_SCHEMA)
    scopes: list[str] = Field(
        default=["user"],
        min_length=1,
        max_length=64,
        description="Scopes, or roles: viewer, user, operator, admin.",
        json_schema_extra={
            "items": {"type": "string", "enum": [*ROLES, *(scope for scope in Scope if scope not in OF_THE_SERVER)]}
        },
    )
    roles: list[str] = Field(
        default=[],
        max_length=MAX_ROLES,
        description="Roles of your application, for approvals and shares. They allow nothing by themselves.",
        json_schema_extra={"items": NAME_SCHEMA},
    )
    name: str | None = Field(
        default=None, description="What people call it.", json_schema_extra={"anyOf": [NAME_SCHEMA, {"type": "null"}]}
    )
    expires_in_days: float | None = Field(
        default=None, ge=0.001, le=36500, description="Default: until it is revoked. A day has parts: 0.5."
    )
    webhook_url: CallableUrl | None = Field(
        default=None,
        description="Where its background runs are told of that name no `webhook_url` themselves.",
    )


class KeyWebhookBody(Body):
    """Where the background runs of a key are told of from now on."""

    webhook_url: CallableUrl | None = Field(description="null: nowhere.")


def routes(web: Web) -> APIRouter | None:
    """Return the routes. Whoever asks here sees and makes keys of their own tenant only."""
    keys, webhooks, bodies = web.keys, web.engine.webhooks, web.bodies
    if keys is None:
        return None
    router = new_router("/v1/keys", tags=["keys"])

    @router.post("", status_code=201, responses=answers(201, _KEY), openapi_extra=described(KeyBody))
    async def create_key(request: Request, who: Admin, once: Once) -> Response:
        """Make a key. The answer is the only place where it is ever shown."""
        body = await read_fields(bodies, request, KeyBody)
        expires = None if body.expires_in_days is None else timedelta(days=body.expires_in_days)
        for scope in read_scopes(body.scopes):
            if scope in OF_THE_SERVER:
                text = f"`{scope}` is not of a tenant: only `drsai keys add` gives it"
                raise InsufficientScope(text, scope=scope, param="scopes")
            who.require(scope)  # Nobody gives away what they have not.
        owner, url = Owner(who.tenant, body.user), body.webhook_url
        if url is not None:
            url = webhooks.check_url(url)
        actor = who.actor
        create = partial(
            keys.create, owner, body.scopes, body.name, expires, roles=body.roles, webhook_url=url, actor=actor
        )

        def show(session: Session, made: NewKey) -> JsonObject:
            secret = None if url is None else webhooks.secret_in(session, owner, actor)
            key = {"key": made.key.get_secret_value()}
            return {**_object(made.info), **key, **_new_secret(secret)}

        return await once(who, body, create, show)

    @router.get("", responses=answers(200, page_of(_KEY)))
    async def list_keys(who: Admin, user: Of = None, limit: Limit = 20, after: AfterNumber = None) -> Response:
        """The keys of the tenant, newest first."""
        return page_response(await keys.list(who.tenant, user, after, limit), _object)

    @router.delete("/{key_id}", responses=answers(200, _KEY))
    async def revoke_key(key_id: KeyId, who: Admin) -> Response:
        """End a key: it works nowhere any more within two seconds. One that was revoked before stays as it is."""
        return json_response(_object(await keys.revoke(who.tenant, key_id, actor=who.actor)))

    @router.post("/{key_id}/webhook", responses=answers(200, _KEY), openapi_extra=described(KeyWebhookBody))
    async def change_webhook(key_id: KeyId, request: Request, who: Admin, once: Once) -> Response:
        """Set or remove where the background runs of a key are told of. Where its user has no webhook secret yet, one
        is made, which only this answer shows."""
        body = await read_fields(bodies, request, KeyWebhookBody)
        return await once(
            who,
            body,
            lambda: webhooks.change_key(who.tenant, key_id, body.webhook_url, actor=who.actor),
            plain(_changed),
        )

    return router


def _changed(made: tuple[KeyInfo, NewSecret | None]) -> JsonObject:
    return {**_object(made[0]), **_new_secret(made[1])}


def _new_secret(made: NewSecret | None) -> JsonObject:
    return {} if made is None else {"webhook_secret": made.secret.get_secret_value()}


def _object(info: KeyInfo) -> JsonObject:
    """An API key, without the key."""
    fields = fields_of(info)
    return {"id": fields.pop("key_id"), "object": "api_key", "user": fields.pop("user_id"), **fields}
