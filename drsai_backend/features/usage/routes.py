"""The route `GET /v1/usage` says what model calls have used: one's own, or those of all users of the tenant."""

from __future__ import annotations

from typing import Annotated, Final, cast

from fastapi import APIRouter, Query
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import allowed
from drsai_backend.api.http.json import answers, page_of, page_response
from drsai_backend.api.http.parameters import LAST_MOMENT, Limit, after_of, moment_of, name_of, new_router
from drsai_backend.api.joining import Web
from drsai_backend.errors import InvalidRequest
from drsai_backend.features.usage.base import GROUPS, Counted, GroupBy, UsageSum
from drsai_backend.features.usage.extension import Usage
from drsai_backend.json_types import JsonObject

Reader = Annotated[Principal, allowed(Scope.THREADS_READ, named=False)]
_CURSOR: Final = r"^[A-Za-z0-9_-]{1,4000}$"
_BY: Final = rf"^({'|'.join(GROUPS)})(,({'|'.join(GROUPS)})){{0,11}}$"


From = Annotated[
    int | None, Query(alias="from", ge=0, le=LAST_MOMENT, description="Unix seconds: answered then, or later.")
]
To = Annotated[int | None, Query(alias="to", ge=0, le=LAST_MOMENT, description="Unix seconds: answered before then.")]
OfModel = Annotated[str | None, *name_of("model", "Only of this model, by its name at the endpoint.")]
OfTeam = Annotated[str | None, *name_of("team", "Only of runs of this team.")]
OfThread = Annotated[str | None, *name_of("thread", "Only of runs on this thread.")]
OfRun = Annotated[str | None, *name_of("run", "Only of this run.")]
OfKind = Annotated[str | None, *name_of("kind", "Only of this kind: `run`, or what calls beside runs are for.")]
OfUser = Annotated[
    str | None,
    *name_of("user", "Only what this user has asked for. Another one than oneself needs the scope `usage:read`."),
]
By = Annotated[
    str, Query(pattern=_BY, description=f"By what it is summed: one or several of {', '.join(GROUPS)}, with commas.")
]
AfterSum = Annotated[str | None, after_of(_CURSOR)]

_COUNT: Final = {"type": "integer", "minimum": 0}
_TEXT: Final = {"type": "string", "description": "Of what it is the sum, where it is grouped by this; empty: of none."}
_SUM: Final[JsonObject] = {
    "type": "object",
    "required": [
        *("id", "object", "calls", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens"),
        *("total_tokens", "seconds", "cost", "unpriced_calls", "currency"),
    ],
    "properties": {
        "id": {"type": "string", "description": "Of this sum among those of the report."},
        "object": {"const": "usage.sum"},
        **{name: _TEXT for name in GROUPS if name not in ("day", "turn")},
        "day": {"type": "string", "format": "date", "description": "In UTC."},
        "turn": {"type": "integer"},
        **dict.fromkeys(("calls", "prompt_tokens", "completion_tokens", "total_tokens", "unpriced_calls"), _COUNT),
        "cached_tokens": {**_COUNT, "description": "Of the prompts' tokens."},
        "reasoning_tokens": {**_COUNT, "description": "Of the completions' tokens."},
        "seconds": {"type": "number", "description": "That the endpoints took, one call after the other."},
        "cost": {"type": ["number", "null"], "description": "Of the calls with a known price; null: there are none."},
        "currency": {"type": "string"},
    },
}


def routes(usage: Usage, web: Web) -> APIRouter:
    """Return the routes. With `usage:read` they show what all users of the tenant have used, and else one's own."""
    router = new_router("/v1/usage", tags=["usage"])

    @router.get("", responses=answers(200, page_of(_SUM)))
    async def get_usage(  # noqa: PLR0913 - the parameters of a route
        who: Reader,
        group_by: By = "day",
        since: From = None,
        until: To = None,
        user: OfUser = None,
        model: OfModel = None,
        team: OfTeam = None,
        thread: OfThread = None,
        run: OfRun = None,
        kind: OfKind = None,
        limit: Limit = 20,
        after: AfterSum = None,
    ) -> Response:
        """What model calls have used and cost, summed. Yours; with the scope `usage:read` those of all users of the
        tenant."""
        # A gateway that acts as somebody shows them their own.
        sees_all = who.acted_by is None and who.may(Scope.USAGE_READ)
        if user not in (None, who.user_id) and not sees_all:
            who.require(Scope.USAGE_READ)
            user = who.user_id
        of = Counted(
            since=moment_of(since),
            until=moment_of(until),
            tenant=who.tenant,
            user=user if sees_all else who.user_id,
            model=model,
            team=team,
            thread=thread,
            run=run,
            kind=kind,
        )
        by = cast("list[GroupBy]", group_by.split(","))
        if len({*by}) < len(by):
            raise InvalidRequest("a group is named more than once", param="group_by")
        return page_response(await usage.report(of, by, after, limit), _shown)

    return router


def _shown(item: UsageSum) -> JsonObject:
    fields = item.model_dump(mode="json")
    return {"object": "usage.sum", **{k: v for k, v in fields.items() if v is not None or k not in GROUPS}}
