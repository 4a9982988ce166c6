"""`/v1/runs`, and what can be done to a thread while or after it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, Literal, TypeVar

from fastapi import APIRouter, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from starlette.responses import Response

from drsai_backend.api._backend import Engine
from drsai_backend.api._objects import (
    INPUT_REQUEST_SCHEMA,
    RUN_SCHEMA,
    THREAD_SCHEMA,
    AfterRun,
    Limit,
    RunId,
    Status,
    ThreadId,
    User,
    answers,
    input_request_object,
    json_response,
    list_response,
    page_of,
    run_headers,
    run_object,
    thread_object,
)
from drsai_backend.api._objects import After as PageAfter
from drsai_backend.api.auth import USER_SCHEMA, check_name, user_of
from drsai_backend.api.body import Bodies
from drsai_backend.api.errors import refusal
from drsai_backend.api.runs.stream import LogResponse
from drsai_backend.api.runs.wire import LogWriter
from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import InvalidRequest
from drsai_backend.runs.events import Answer
from drsai_backend.runs.position import ENDED, PATTERN, Position
from drsai_backend.runs.views import ThreadDetail

_ID: Final = {"type": "string", "pattern": PATTERN}
After = Annotated[
    str | None,
    Query(description="`id` of the last event that was read.", json_schema_extra={"anyOf": [_ID]}),
]
LastEventId = Annotated[
    str | None,
    Header(
        description="The same; goes before `after`, where it is not empty.",
        json_schema_extra={"anyOf": [{"const": ""}, _ID]},
    ),
]

_STREAM: Final[dict[str, Any]] = {
    "description": "Events of the log, to its end.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


class ControlBody(BaseModel):
    """What a request that stops, pauses or resumes may say."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)

    user: Annotated[Any, WithJsonSchema(USER_SCHEMA)] = Field(
        default=None, description="Whose thread or run it is, as in a chat request."
    )


class InputBody(ControlBody):
    """An answer to an input request."""

    id: str = Field(min_length=1, max_length=255, description="`id` of the input request.")
    text: str | None = Field(default=None, description="The answer to a question, or the result of a tool call.")
    decision: Literal["approve", "deny", "edit", "run", "result", "stop"] | None = Field(
        default=None, description="What to do about a tool call."
    )
    reason: str | None = Field(default=None, description="Why it is denied; the agent reads it.")
    arguments: dict[str, Any] | None = Field(default=None, description="What to call the tool with instead.")
    stream: bool | None = Field(default=None, description="Send the run's events instead of the run.")

    def answer(self) -> Answer:
        if self.text is None and self.decision is None:
            raise InvalidRequest("`text` or `decision` is required", param="text")
        return Answer(self.id, self.text, self.decision, self.reason, self.arguments)


def run_routes(engine: Engine, bodies: Bodies, *, ping: float) -> APIRouter:
    """`ping`: seconds of silence after which a stream sends a comment."""
    router = APIRouter(prefix="/v1", tags=["runs"])

    async def read(request: Request, kind: type[_Body], user: str | None) -> tuple[_Body, str]:
        """The body of a request, and whose it is."""
        async with bodies.read(request.scope, request.receive, optional=kind is ControlBody) as fields:
            try:
                body = kind.model_validate(fields)
            except ValidationError as error:
                raise refusal(error) from None
        named = [user_of(value) for value in (user, body.user) if value is not None]
        if len(set(named)) > 1:
            raise InvalidRequest("`user` in the query and in the body are different", param="user")
        return body, named[0] if named else user_of(None)

    async def follow_run(user_id: str, run_id: str, after: Position | None) -> Response:
        run = await engine.get_run(user_id, check_name(run_id, "run_id"))
        over = after is not None and after.n == ENDED and run.status not in _UNDER_WAY
        log = engine.follow_run(user_id, run_id, after)
        return LogResponse(
            log, LogWriter(run.thread_id, after), run_headers(run.thread_id, run.run_id), ping=ping, over=over
        )

    # --- runs ---------------------------------------------------------------------------------------------------

    @router.get("/runs", responses=answers(200, page_of(RUN_SCHEMA)))
    async def list_all_runs(
        user: User = None, limit: Limit = 20, after: AfterRun = None, status: Status = None
    ) -> Response:
        """The user's runs in all threads, newest first."""
        page = await engine.list_runs(user_of(user), None, after=after, limit=limit, status=status)
        return list_response([run_object(item) for item in page.items], page.next)

    @router.get("/input-requests", responses=answers(200, page_of(INPUT_REQUEST_SCHEMA)))
    async def list_input_requests(user: User = None, limit: Limit = 20, after: PageAfter = None) -> Response:
        """The questions that wait for the user, in all threads, newest first."""
        page = await engine.list_input_requests(user_of(user), after=after, limit=limit)
        return list_response([input_request_object(item) for item in page.items], page.next)

    @router.get("/runs/{run_id}", responses=answers(200, RUN_SCHEMA))
    async def get_run(run_id: RunId, user: User = None) -> Response:
        """A run, live or over."""
        return json_response(run_object(await engine.get_run(user_of(user), check_name(run_id, "run_id"))))

    @router.get("/runs/{run_id}/events", responses={200: _STREAM, 204: {"description": "All is read."}})
    async def follow(
        run_id: RunId, user: User = None, after: After = None, last_event_id: LastEventId = None
    ) -> Response:
        """What a run tells, as server-sent events, to its end or to the question it waits with."""
        return await follow_run(user_of(user), run_id, _position(after, last_event_id))

    @router.post("/runs/{run_id}/cancel", responses=answers(200, RUN_SCHEMA), openapi_extra=_body(ControlBody))
    async def cancel_run(request: Request, run_id: RunId, user: User = None) -> Response:
        """Stop a run, whether it is live, waits for a person or waits in the queue."""
        _, user_id = await read(request, ControlBody, user)
        return json_response(run_object(await engine.cancel_run(user_id, check_name(run_id, "run_id"))))

    # --- threads ------------------------------------------------------------------------------------------------

    @router.get("/threads/{thread_id:path}/runs", responses=answers(200, page_of(RUN_SCHEMA)))
    async def list_runs(
        thread_id: ThreadId,
        user: User = None,
        limit: Limit = 20,
        after: AfterRun = None,
        status: Status = None,
    ) -> Response:
        """The runs of a thread, newest first."""
        thread_id = check_name(thread_id, "thread_id")
        page = await engine.list_runs(user_of(user), thread_id, after=after, limit=limit, status=status)
        return list_response([run_object(item) for item in page.items], page.next)

    @router.get(
        "/threads/{thread_id:path}/events", responses={200: _STREAM, 204: {"description": "This server stops."}}
    )
    async def follow_thread(
        thread_id: ThreadId, user: User = None, after: After = None, last_event_id: LastEventId = None
    ) -> Response:
        """What all runs of a thread tell, as server-sent events, until the client leaves."""
        position, user_id = _position(after, last_event_id), user_of(user)
        # Before the stream: once it is open, it is too late for an error status.
        await engine.check_thread(user_id, check_name(thread_id, "thread_id"))
        log = engine.follow_thread(user_id, thread_id, position)
        headers = [(b"x-thread-id", thread_id.encode())]
        return LogResponse(log, LogWriter(thread_id, position), headers, ping=ping)

    def control(name: str, act: Callable[[str, str], Awaitable[ThreadDetail]], summary: str) -> None:
        async def endpoint(request: Request, thread_id: ThreadId, user: User = None) -> Response:
            _, user_id = await read(request, ControlBody, user)
            return json_response(thread_object(await act(user_id, check_name(thread_id, "thread_id"))))

        router.add_api_route(
            f"/threads/{{thread_id:path}}/{name}",
            endpoint,
            methods=["POST"],
            name=f"{name}_thread",
            description=summary,
            responses=answers(200, THREAD_SCHEMA),
            openapi_extra=_body(ControlBody),
        )

    control("cancel", engine.cancel, "Stop what a thread does, at once; its finished turns stay.")
    control("pause", engine.pause, "Pause a thread's run at its next turn boundary.")
    control("resume", engine.resume, "Go on with a paused run.")

    @router.post(
        "/threads/{thread_id:path}/input",
        status_code=202,
        responses={**answers(202, RUN_SCHEMA), 200: _STREAM},
        openapi_extra=_body(InputBody),
    )
    async def answer_input(
        request: Request, thread_id: ThreadId, user: User = None, after: After = None, last_event_id: LastEventId = None
    ) -> Response:
        """Answer what a thread waits for. The run goes on; with `stream`, its events follow."""
        body, user_id = await read(request, InputBody, user)
        await engine.check_thread(user_id, check_name(thread_id, "thread_id"))
        answer = body.answer()
        position = _position(after, last_event_id)
        if body.stream and position is None:
            # Whoever answers knows what was said before. The epoch is not known here; 0 is before all of them.
            position = Position((await engine.get_thread(user_id, thread_id)).message_count)
        handle = await engine.answer(user_id, thread_id, answer)
        if body.stream:
            return await follow_run(user_id, handle.run_id, position)
        response = json_response(run_object(await engine.get_run(user_id, handle.run_id)), 202)
        response.raw_headers.extend(run_headers(handle.thread_id, handle.run_id))
        return response

    return router


_Body = TypeVar("_Body", bound=ControlBody)
_UNDER_WAY: Final = (RunStatus.CREATED, RunStatus.RUNNING)


def _position(after: str | None, last_event_id: str | None) -> Position | None:
    """Where a reader stands. A browser that connects again asks for the same address: its header is the newer one."""
    if last_event_id:
        return Position.parse(last_event_id, "Last-Event-ID")
    return None if after is None else Position.parse(after)


def _body(kind: type[BaseModel]) -> dict[str, Any]:
    """A request's body in the OpenAPI document: it is read by hand, as a chat request's is."""
    schema = kind.model_json_schema()
    required = bool(schema.get("required"))
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}
