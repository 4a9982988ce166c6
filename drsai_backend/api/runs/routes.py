"""`/v1/runs` and `/v1/input-requests`: a user's own runs, in all threads, and the questions that they ask."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from drsai_backend.api.auth import ANONYMOUS, NamedUser, User, UserBody, described, read_body
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.http.json import answers, json_response, list_response, page_of
from drsai_backend.api.http.parameters import After, AfterRun, Limit, RunId, Status
from drsai_backend.api.objects import INPUT_REQUEST_SCHEMA, RUN_SCHEMA, input_request_object, run_headers, run_object
from drsai_backend.api.runs.events import LogResponse
from drsai_backend.datamodel import RunStatus
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Engine, Position
from drsai_backend.runs.events import ENDED, PATTERN

_ID: Final = {"type": "string", "pattern": PATTERN}
AfterEvent = Annotated[
    str | None, Query(description="`id` of the last event that was read.", json_schema_extra={"anyOf": [_ID]})
]
LastEventId = Annotated[
    str | None,
    Header(
        description="The same; goes before `after`, where it is not empty.",
        json_schema_extra={"anyOf": [{"const": ""}, _ID]},
    ),
]
EVENTS: Final[JsonObject] = {
    "description": "Events of the log, to its end.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


def run_routes(engine: Engine, bodies: Bodies, *, ping: float) -> APIRouter:
    """`ping`: seconds of silence after which a stream sends a comment."""
    router = APIRouter(prefix="/v1", tags=["runs"])

    @router.get("/runs", responses=answers(200, page_of(RUN_SCHEMA)))
    async def list_all_runs(
        user: User = ANONYMOUS, limit: Limit = 20, after: AfterRun = None, status: Status = None
    ) -> Response:
        """The user's runs in all threads, newest first."""
        page = await engine.list_runs(user, None, after=after, limit=limit, status=status)
        return list_response([run_object(item) for item in page.items], page.next)

    @router.get("/input-requests", responses=answers(200, page_of(INPUT_REQUEST_SCHEMA)))
    async def list_input_requests(user: User = ANONYMOUS, limit: Limit = 20, after: After = None) -> Response:
        """The questions that wait for the user, in all threads, newest first."""
        page = await engine.list_input_requests(user, after=after, limit=limit)
        return list_response([input_request_object(item) for item in page.items], page.next)

    @router.get("/runs/{run_id}", responses=answers(200, RUN_SCHEMA))
    async def get_run(run_id: RunId, user: User = ANONYMOUS) -> Response:
        """A run, live or over."""
        return json_response(run_object(await engine.get_run(user, run_id)))

    @router.get("/runs/{run_id}/events", responses={200: EVENTS, 204: {"description": "All is read."}})
    async def follow(
        run_id: RunId, user: User = ANONYMOUS, after: AfterEvent = None, last_event_id: LastEventId = None
    ) -> Response:
        """What a run tells, as server-sent events, to its end or to the question it waits with."""
        return await follow_run(engine, user, run_id, position_of(after, last_event_id), ping=ping)

    @router.post("/runs/{run_id}/cancel", responses=answers(200, RUN_SCHEMA), openapi_extra=described(UserBody))
    async def cancel_run(request: Request, run_id: RunId, user: NamedUser = None) -> Response:
        """Stop a run, whether it is live, waits for a person or waits in the queue."""
        _, user_id = await read_body(bodies, request, UserBody, user)
        return json_response(run_object(await engine.cancel_run(user_id, run_id)))

    return router


async def follow_run(engine: Engine, user_id: str, run_id: str, after: Position | None, *, ping: float) -> Response:
    """What a run tells after a position, to its end."""
    run = await engine.get_run(user_id, run_id)
    over = after is not None and after.n == ENDED and run.status not in (RunStatus.CREATED, RunStatus.RUNNING)
    log, headers = engine.follow_run(user_id, run_id, after), run_headers(run.thread_id, run.run_id)
    return LogResponse(log, run.thread_id, after, headers, ping=ping, over=over)


def position_of(after: str | None, last_event_id: str | None) -> Position | None:
    """Where a reader stands. A browser that connects again asks for the same address: its header is the newer one."""
    if last_event_id:
        return Position.parse(last_event_id, "Last-Event-ID")
    return None if after is None else Position.parse(after)
