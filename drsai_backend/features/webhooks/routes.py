"""The routes of `/v1/webhooks` show what was told to webhooks, repeat it, and make the secret that signs it."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import allowed
from drsai_backend.api.http.json import answers, page_of, page_response
from drsai_backend.api.http.once import Once, plain
from drsai_backend.api.http.parameters import AfterNumber, DeliveryId, Limit, new_router
from drsai_backend.api.joining import Web
from drsai_backend.api.objects import fields_of
from drsai_backend.database.webhook_views import DeliveryInfo
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Forbidden
from drsai_backend.json_types import JsonObject
from drsai_backend.webhooks.webhooks import NewSecret

Reader = Annotated[Principal, allowed(Scope.WEBHOOKS_READ)]
Writer = Annotated[Principal, allowed(Scope.WEBHOOKS_WRITE)]

_TIME: Final = {"type": ["integer", "null"]}
_DELIVERY: Final = {
    "type": "object",
    "required": ["id", "object", "type", "run_id", "url", "created_at", "attempts", "state"],
    "properties": {
        "id": {"type": "string", "description": "`webhook-id`: the same in all attempts."},
        "object": {"const": "webhook.delivery"},
        "type": {"type": "string", "description": "What happened: `run.completed`, `run.failed` …"},
        "run_id": {"type": "string"},
        "url": {"type": "string"},
        "created_at": {"type": "integer", "description": "Unix time in seconds, as all that end in `_at`."},
        "attempts": {"type": "integer", "minimum": 0},
        "next_at": {**_TIME, "description": "When it is sent again, at the earliest; null: it is over."},
        "delivered_at": _TIME,
        "status_code": {"type": ["integer", "null"], "description": "What was answered to the last attempt."},
        "error": {"type": ["string", "null"], "description": "Why the last attempt failed."},
        "state": {"enum": ["pending", "delivered", "given_up"]},
    },
}
_SECRET: Final = {
    "type": "object",
    "required": ["object", "user", "secret", "created_at", "previous_until"],
    "properties": {
        "object": {"const": "webhook.secret"},
        "user": {"type": "string", "description": "Whose webhooks it signs."},
        "secret": {"type": "string", "description": "`whsec_…`: in this answer, and never again."},
        "created_at": {"type": "integer", "description": "Unix time in seconds."},
        "previous_until": {**_TIME, "description": "Until when the secret before signs, too; null: there was none."},
    },
}


def routes(web: Web) -> APIRouter:
    """Return the routes. Whoever asks here sees what they have asked to be told."""
    webhooks = web.engine.webhooks
    router = new_router("/v1/webhooks", tags=["webhooks"])

    @router.get("/deliveries", responses=answers(200, page_of(_DELIVERY)))
    async def list_deliveries(who: Reader, limit: Limit = 20, after: AfterNumber = None) -> Response:
        """The events that were, or are to be, sent to webhooks, newest first."""
        return page_response(await webhooks.list(who.owner, after, limit), _object)

    @router.post("/deliveries/{delivery_id}/retry", responses=answers(200, _DELIVERY))
    async def retry_delivery(delivery_id: DeliveryId, who: Writer, once: Once) -> Response:
        """Send an event now, and repeat it as a new one: one that was given up, or has arrived, too."""
        return await once(who, None, lambda: webhooks.retry(who.owner, delivery_id), plain(_object))

    @router.post("/secret", status_code=201, responses=answers(201, _SECRET))
    async def make_secret(who: Writer, once: Once) -> Response:
        """Make the secret that signs your webhooks, or another one in its place: for a day both sign. The answer is the
        only place where it is ever shown."""
        if who.acted_by is not None:
            raise Forbidden("the secret that signs is the gateway's: it makes one where it acts as nobody")
        owner = who.owner
        return await once(
            who, None, lambda: webhooks.make_secret(owner, actor=who.actor), plain(partial(_shown, owner))
        )

    return router


def _shown(owner: Owner, made: NewSecret) -> JsonObject:
    until = made.previous_until
    return {
        "object": "webhook.secret",
        "user": owner.user_id,
        "secret": made.secret.get_secret_value(),
        "created_at": int(made.created_at.timestamp()),
        "previous_until": None if until is None else int(until.timestamp()),
    }


def _object(info: DeliveryInfo) -> JsonObject:
    """An event for a webhook."""
    fields = fields_of(info)
    return {"id": fields.pop("event_id"), "object": "webhook.delivery", **fields}
