"""The routes of `/v1/budgets` show admins what was set for their tenant, and set what its users, keys and threads may
spend."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from drsai_backend.api.auth import described, read_fields
from drsai_backend.api.http.json import answers, deleted, deletion, json_response, page_of, page_response
from drsai_backend.api.http.parameters import AfterNumber, Limit, new_router
from drsai_backend.api.joining import Web
from drsai_backend.features.budgets.base import MEASURES, MOST, BudgetFields
from drsai_backend.features.budgets.extension import Budgets
from drsai_backend.features.rules.routes import Admin, OfKey, OfUser, RuleBody, named, schema_of, shown
from drsai_backend.json_types import JsonObject

_TOKENS: Final = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": MOST}, {"type": "null"}]}
_COST: Final = {"anyOf": [{"type": "number", "minimum": 0, "maximum": MOST}, {"type": "null"}]}
_BUDGET: Final[JsonObject] = schema_of(
    "budget",
    {
        "tokens_day": {**_TOKENS, "description": "Of model calls, in a day. null: as the settings say; 0: no budget."},
        "tokens_month": {**_TOKENS, "description": "In a month."},
        "cost_day": {**_COST, "description": "In a day, in the currency of the prices."},
        "cost_month": {**_COST, "description": "In a month."},
    },
    {
        "used": {
            "type": "object",
            "description": "What is used of the day and of the month that it is now.",
            "required": [*MEASURES],
            "properties": {name: {"type": "number"} for name in MEASURES},
        },
    },
    Budgets.kinds,
)
_shown: Final = partial(shown, noun="budget")
_THREAD: Final = "`USER/THREAD`, in which a `/` of an id is `%2F`, and a `%` is `%25`."
_LONGEST: Final = 3 * (2 * 255) + 1
OfThread = Annotated[
    str | None, Query(min_length=3, max_length=_LONGEST, description=f"What was set for this thread, {_THREAD}")
]


class BudgetBody(BudgetFields, RuleBody):
    """What a user, a key or a thread may spend from now on, in place of what was set before."""

    thread: str | None = Field(
        default=None, min_length=3, max_length=_LONGEST, description=f"Or this thread, {_THREAD}"
    )


def routes(budgets: Budgets, web: Web) -> APIRouter:
    """Return the routes. What a tenant and all together may spend, the command line sets: an admin here is a
    tenant's."""
    router = new_router("/v1/budgets", tags=["budgets"])

    @router.get("", responses=answers(200, page_of(_BUDGET)))
    async def list_budgets(who: Admin, limit: Limit = 20, after: AfterNumber = None) -> Response:
        """What was set for the tenant, its users, keys and threads, the newest first, with what is used of it."""
        return page_response(await budgets.list(who.tenant, after, limit), _shown)

    @router.put("", responses=answers(200, _BUDGET), openapi_extra=described(BudgetBody))
    async def set_budget(request: Request, who: Admin) -> Response:
        """Set what a user, a key or a thread may spend, in place of what was set before. All workers go by it within
        two seconds."""
        body = await read_fields(web.bodies, request, BudgetBody)
        (kind, name), said = body.whose, body.model_dump(include={*MEASURES})
        return json_response(_shown(await budgets.set(kind, name, tenant=who.tenant, **said, actor=who.actor)))

    @router.delete("", responses=answers(200, deletion("budget.deleted", always=False)))
    async def remove_budget(
        who: Admin, of_user: OfUser = None, of_key: OfKey = None, of_thread: OfThread = None
    ) -> Response:
        """Have the settings hold again for a user, a key or a thread. Where nothing was set, `deleted` is false."""
        kind, name = named({"user": of_user, "key": of_key, "thread": of_thread}, "of_")
        was_set = await budgets.remove(kind, name, tenant=who.tenant, actor=who.actor)
        return deleted(f"{kind} {name}", "budget.deleted", was_there=was_set)

    return router
