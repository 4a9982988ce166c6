"""The route `GET /v1/audit` tells the admins of a tenant what was done in it and by whom."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import allowed
from drsai_backend.api.http.json import answers, page_of, page_response
from drsai_backend.api.http.parameters import LAST_MOMENT, AfterNumber, Limit, moment_of, name_of, new_router
from drsai_backend.api.joining import Web
from drsai_backend.database.audit import AuditRecord
from drsai_backend.datamodel.audit import Action, By
from drsai_backend.features.audit.extension import Audit
from drsai_backend.json_types import JsonObject

Admin = Annotated[Principal, allowed(Scope.ADMIN, named=False)]
Of = Annotated[str | None, *name_of("user", "Only what this user did, or others did as them or to what is theirs.")]
OfAction = Annotated[
    str | None,
    Query(
        description="Only these acts: `thread.deleted`, or `thread` for all that is done to threads.",
        json_schema_extra={"anyOf": [{"enum": sorted({*Action, *(action.kind for action in Action)})}]},
    ),
]

OfThread = Annotated[str | None, *name_of("thread_id", "Only what was done to this thread, or to what belongs to it.")]
Moment = Annotated[int | None, Query(ge=0, le=LAST_MOMENT, description="Unix seconds: from then on, or before then.")]

_TEXT: Final = {"type": ["string", "null"]}
_ENTRY: Final = {
    "type": "object",
    "required": ["id", "object", "at", "by", "action", "kind", "subject"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "audit_entry"},
        "at": {"type": "integer", "description": "Unix seconds."},
        "by": {"enum": [*By]},
        "actor": {**_TEXT, "description": "The user who acted; null: a program or the command line."},
        "key_id": _TEXT,
        "acted_by": {**_TEXT, "description": "The user whose key acted as `actor`."},
        "action": {"enum": [*Action]},
        "kind": {"type": "string"},
        "subject": {"type": "string", "description": "The id of what it was done to."},
        "owner": {**_TEXT, "description": "The user whom that belongs to."},
        "thread_id": _TEXT,
        "detail": {"type": ["object", "null"], "additionalProperties": True},
        "request_id": _TEXT,
    },
}


def routes(log: Audit, web: Web) -> APIRouter:
    """Return the routes. Whoever asks here sees the log of their own tenant only."""
    router = new_router("/v1/audit", tags=["audit"])

    @router.get("", responses=answers(200, page_of(_ENTRY)))
    async def list_audit(  # noqa: PLR0913 - the parameters of a route
        who: Admin,
        user: Of = None,
        action: OfAction = None,
        thread_id: OfThread = None,
        since: Moment = None,
        until: Moment = None,
        limit: Limit = 20,
        after: AfterNumber = None,
    ) -> Response:
        """What was done in the tenant, newest first."""
        begin, end = moment_of(since), moment_of(until)
        page = await log.list(who.tenant, user, action, after, limit, thread_id=thread_id, since=begin, until=end)
        return page_response(page, _shown)

    return router


def _shown(item: AuditRecord) -> JsonObject:
    shown: JsonObject = item.model_dump(exclude={"tenant"})
    return {**shown, "id": str(item.id), "object": "audit_entry", "at": int(item.at.timestamp())}
