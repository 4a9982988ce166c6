"""The routes of `/v1/runs/{run_id}/calls` show the model calls of a user's own runs; whoever else may read a thread is
not shown what its agents are told."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import allowed
from drsai_backend.api.http.json import answers, json_response, page_of, page_response
from drsai_backend.api.http.parameters import CallId, Limit, RunId, after_of, new_router
from drsai_backend.api.joining import Web
from drsai_backend.api.objects import fields_of, schema_of
from drsai_backend.features.model_calls.base import PLACE, CallDetail, ModelCall
from drsai_backend.features.model_calls.extension import ModelCalls
from drsai_backend.json_types import JsonObject

Reader = Annotated[Principal, allowed(Scope.THREADS_READ)]
AfterCall = Annotated[str | None, after_of(PLACE)]
_KIND: Final = "thread.run.call"


def routes(calls: ModelCalls, web: Web) -> APIRouter:
    """Return the routes."""
    router = new_router("/v1/runs", tags=["runs"])

    @router.get("/{run_id}/calls", responses=answers(200, page_of(schema_of(ModelCall, _KIND))))
    async def list_model_calls(run_id: RunId, who: Reader, limit: Limit = 20, after: AfterCall = None) -> Response:
        """The model calls of a run that were answered, in the order of their answers, and of which it is kept what the
        model was sent."""
        return page_response(await calls.list(who.owner, run_id, after, limit), _object)

    @router.get("/{run_id}/calls/{call_id}", responses=answers(200, schema_of(CallDetail, _KIND)))
    async def get_model_call(run_id: RunId, call_id: CallId, who: Reader) -> Response:
        """A model call, with what the model was sent and has answered, where that is kept."""
        return json_response(_object(await calls.get(who.owner, run_id, call_id)))

    return router


def _object(call: ModelCall) -> JsonObject:
    return {"id": call.call_id, "object": _KIND, **fields_of(call)}
