"""The routes of `/v1/threads`, `/v1/runs` and `/v1/input-requests` serve a user's own conversations, what runs on them
and asks, and what can be done about it. Those of others do not exist here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import (
    NamedUser,
    UserBody,
    allowed,
    allowed_caller,
    caller_of,
    described,
    named,
    read_body,
)
from drsai_backend.api.events import (
    AfterEvent,
    AfterStepEvent,
    LastEventId,
    LastStepEventId,
    LogResponse,
    RunFrames,
    StepFrames,
    log_stream,
    place_of,
    still_reads,
)
from drsai_backend.api.http.json import EVENTS, answers, deleted, deletion, json_response, page_of, page_response
from drsai_backend.api.http.once import IdempotencyKey, fingerprint_of
from drsai_backend.api.http.parameters import (
    After,
    AfterNumber,
    AfterStep,
    BranchNumber,
    Limit,
    RunId,
    Status,
    ThreadId,
    ThreadOwner,
    new_router,
)
from drsai_backend.api.joining import Web
from drsai_backend.api.objects import (
    INPUT_REQUEST_SCHEMA,
    MESSAGE_SCHEMA,
    RUN_SCHEMA,
    STEP_SCHEMA,
    SUMMARY_SCHEMA,
    THREAD_SCHEMA,
    input_request_object,
    message_object,
    run_headers,
    run_object,
    step_object,
    thread_object,
)
from drsai_backend.datamodel import Right, RunStatus
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Answer, Origin, Position
from drsai_backend.runs.events import ENDED
from drsai_backend.runs.steps.events import Mark
from drsai_backend.runs.steps.views import shortened
from drsai_backend.runs.threads.rights import Named
from drsai_backend.runs.threads.views import ThreadDetail
from drsai_backend.teams.client_tools.definitions import MAX_RESULT_BYTES, MAX_RESULTS, ToolOutput

Reader = Annotated[Principal, allowed(Scope.THREADS_READ)]
Editor = Annotated[Principal | None, allowed_caller(Scope.THREADS_WRITE)]
Deleter = Annotated[Principal, allowed(Scope.THREADS_DELETE)]
Chatter = Annotated[Principal | None, allowed_caller(Scope.CHAT)]
Canceller = Annotated[Principal | None, allowed_caller(Scope.RUNS_CANCEL)]
_LOG: Final = {"description": "Events of the log, to its end.", "content": EVENTS}


class _ThreadName(PathConvertor):
    """A thread by itself, and nothing of it: what else has a path of its own is answered there, or is a 405."""

    regex = ".+" + "".join(
        f"(?<!/{part})"
        for part in (
            *("messages", "runs", "events", "cancel", "pause", "resume", "retry", "input", "shares"),
            *("turns", "branches", "fork", "rewind", "history", "memory", "state"),
        )
    )


register_url_convertor("thread", _ThreadName())


class EditBody(UserBody):
    """What of a thread is to be replaced."""

    meta: JsonObject | None = Field(description="For programs of one's own, up to 64 KiB; null: nothing.")


class ResultBody(BaseModel):
    """The result of one call of a client's tool."""

    model_config = ConfigDict(strict=True, extra="forbid")

    id: str = Field(min_length=1, max_length=255, description="`id` of the call.")
    content: str = Field(max_length=MAX_RESULT_BYTES)
    is_error: bool = Field(default=False, description="The tool has failed, and `content` says how.")

    def output(self, index: int) -> ToolOutput:
        """It, as the one of that number in the request."""
        return ToolOutput(self.id, self.content, is_error=self.is_error, where=f"results[{index}].id")


_ANSWERS: Final[list[JsonObject]] = [
    {"required": [name], "properties": {name: {"type": kind}}}
    for name, kind in (("text", "string"), ("decision", "string"), ("results", "array"))
]


class InputBody(UserBody):
    """An answer to an input request."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [*_ANSWERS]})

    id: str = Field(min_length=1, max_length=255, description="`id` of the input request.")
    text: str | None = Field(default=None, description="The answer to a question, or the result of a tool call.")
    decision: Literal["approve", "deny", "edit", "run", "result", "stop"] | None = Field(
        default=None, description="What to do about a tool call."
    )
    reason: str | None = Field(default=None, description="Why it is denied; the agent reads it.")
    arguments: JsonObject | None = Field(default=None, description="What to call the tool with instead.")
    results: list[ResultBody] | None = Field(
        default=None,
        max_length=MAX_RESULTS,
        description="What the client's tools have returned, for all calls at once.",
    )
    stream: bool | None = Field(default=None, description="Send the run's events instead of the run.")


def routes(web: Web) -> APIRouter:
    router = _run_routes(web)
    router.routes.extend(_thread_routes(web).routes)
    router.routes.extend(_steering_routes(web).routes)
    return router


def _thread_routes(web: Web) -> APIRouter:
    router = new_router("/v1/threads", tags=["threads"])
    engine = web.engine

    @router.get("", responses=answers(200, page_of(SUMMARY_SCHEMA)))
    async def list_threads(
        who: Reader,
        limit: Limit = 20,
        after: After = None,
        status: Status = None,
        shared: Annotated[bool, Query(description="Those that others share with the user instead.")] = False,
    ) -> Response:
        """The user's threads, or those that are shared with them, newest first."""
        if shared:
            found = await engine.list_shared_threads(who, after=after, limit=limit, status=status)
            return page_response(found, thread_object)
        page = await engine.list_threads(who, after=after, limit=limit, status=status)
        return page_response(page, thread_object)

    @router.get("/{thread_id:thread}", responses=answers(200, THREAD_SCHEMA))
    async def get_thread(thread_id: ThreadId, who: Reader, owner: ThreadOwner = None) -> Response:
        """A thread, without its messages and state."""
        return json_response(thread_object(await engine.get_thread(who, named(who, thread_id, owner))))

    @router.patch("/{thread_id:thread}", responses=answers(200, THREAD_SCHEMA), openapi_extra=described(EditBody))
    async def edit_thread(
        request: Request, thread_id: ThreadId, caller: Editor, user: NamedUser = None, owner: ThreadOwner = None
    ) -> Response:
        """Replace what programs keep of a thread (`meta`), also while a run is live."""
        body, who = await read_body(web.bodies, request, EditBody, caller, user)
        return json_response(thread_object(await engine.set_meta(who, named(who, thread_id, owner), body.meta)))

    @router.delete("/{thread_id:thread}", responses=answers(200, deletion("thread.deleted")))
    async def delete_thread(thread_id: ThreadId, who: Deleter) -> Response:
        """Delete a thread with all that belongs to it. 409 while a run is live."""
        await engine.delete_thread(who, thread_id)
        return deleted(thread_id, "thread.deleted")

    @router.get("/{thread_id:path}/messages", responses=answers(200, page_of(MESSAGE_SCHEMA)))
    async def list_messages(
        thread_id: ThreadId,
        who: Reader,
        owner: ThreadOwner = None,
        after: Annotated[int, Query(ge=0, le=2**31 - 1, description="The `seq` to continue after.")] = 0,
        limit: Limit = 100,
        branch: BranchNumber = None,
    ) -> Response:
        """The messages of a thread, oldest first."""
        thread = named(who, thread_id, owner)
        page = await engine.page_of_messages(who, thread, after=after, limit=limit, branch=branch)
        return page_response(page, message_object)

    @router.get("/{thread_id:path}/runs", responses=answers(200, page_of(RUN_SCHEMA)))
    async def list_runs(
        thread_id: ThreadId,
        who: Reader,
        owner: ThreadOwner = None,
        limit: Limit = 20,
        after: AfterNumber = None,
        status: Status = None,
    ) -> Response:
        """The runs of a thread, newest first."""
        page = await engine.list_runs(who, named(who, thread_id, owner), after=after, limit=limit, status=status)
        return page_response(page, run_object)

    @router.get("/{thread_id:path}/events", responses={200: _LOG, 204: {"description": "This server stops."}})
    async def follow_thread(
        request: Request,
        thread_id: ThreadId,
        who: Reader,
        owner: ThreadOwner = None,
        after: AfterEvent = None,
        last_event_id: LastEventId = None,
    ) -> Response:
        """What all runs of a thread tell, as server-sent events, until the client leaves."""
        position = place_of(Position.parse, after, last_event_id)
        # Before the stream: once it is open, it is too late for an error status.
        thread = named(who, thread_id, owner)
        await engine.check_thread(who, thread)
        log, headers = engine.follow_thread(who, thread, position), [(b"x-thread-id", thread_id.encode())]
        still = still_reads(engine, thread, request, Scope.THREADS_READ, who)
        held = web.access.streaming(who)
        return LogResponse(log, RunFrames(thread_id, position).told, log_stream(held, headers, still, web.ping))

    return router


def _steering_routes(web: Web) -> APIRouter:
    """Return what can be done about what runs on a thread."""
    router = new_router("/v1/threads", tags=["threads"])
    engine, bodies = web.engine, web.bodies

    def control(
        name: str, act: Callable[[Principal, Named], Awaitable[ThreadDetail]], scope: Scope, summary: str
    ) -> None:
        asking = Depends(caller_of(scope))

        async def endpoint(
            request: Request,
            thread_id: ThreadId,
            caller: Principal | None = asking,
            user: NamedUser = None,
            owner: ThreadOwner = None,
        ) -> Response:
            _, who = await read_body(bodies, request, UserBody, caller, user)
            return json_response(thread_object(await act(who, named(who, thread_id, owner))))

        router.add_api_route(
            f"/{{thread_id:path}}/{name}",
            endpoint,
            methods=["POST"],
            name=f"{name}_thread",
            description=summary,
            responses=answers(200, THREAD_SCHEMA),
            openapi_extra=described(UserBody),
        )

    control("cancel", engine.cancel, Scope.RUNS_CANCEL, "Stop what a thread does, at once; its finished turns stay.")
    control("pause", engine.pause, Scope.THREADS_WRITE, "Pause a thread's run at its next turn boundary.")
    control("resume", engine.resume, Scope.THREADS_WRITE, "Resume a paused run.")
    control("retry", engine.retry, Scope.THREADS_WRITE, "Run a run that has failed again, from the turn that failed.")

    @router.post(
        "/{thread_id:path}/input",
        status_code=202,
        responses={**answers(202, RUN_SCHEMA), 200: _LOG},
        openapi_extra=described(InputBody),
    )
    async def answer_input(  # noqa: PLR0913 - the parameters of a route
        request: Request,
        thread_id: ThreadId,
        caller: Chatter,
        user: NamedUser = None,
        owner: ThreadOwner = None,
        after: AfterEvent = None,
        last_event_id: LastEventId = None,
        key: IdempotencyKey = None,
    ) -> Response:
        """Answer what a thread waits for. The run is resumed; with `stream`, its events follow."""
        body, who = await read_body(bodies, request, InputBody, caller, user)
        thread = named(who, thread_id, owner)
        # Whoever is asked by name need not have the right to read the thread, and then is not shown its events.
        await engine.check_thread(who, thread, Right.READ if body.stream else Right.ANSWER)
        if body.text is None and body.decision is None and body.results is None:
            raise InvalidRequest("`text`, `decision` or `results` is required", param="text")
        position = place_of(Position.parse, after, last_event_id)
        if body.stream and position is None:
            # Whoever answers knows what was said before. The epoch is not known here; 0 is before all of them.
            position = Position((await engine.get_thread(who, thread)).message_count)
        results = None if body.results is None else [each.output(n) for n, each in enumerate(body.results)]
        answer = Answer(body.id, body.text, body.decision, body.reason, body.arguments, results)
        said = None if key is None else fingerprint_of(request, body)
        with ExitStack() as held:
            if body.stream:
                held.enter_context(web.access.streaming(who))  # Before the answer is stored.
            handle = await engine.answer(who, thread, answer, origin=Origin(key, fingerprint=said))
            if body.stream:
                return await _follow_run(web, request, Scope.CHAT, who, handle.run_id, position, held)
        response = json_response(run_object(await engine.run_answered(handle)), 202)
        response.raw_headers.extend(run_headers(handle.thread_id, handle.run_id))
        return response

    return router


def _run_routes(web: Web) -> APIRouter:
    router = new_router("/v1", tags=["runs"])
    engine, bodies = web.engine, web.bodies

    @router.get("/runs", responses=answers(200, page_of(RUN_SCHEMA)))
    async def list_all_runs(
        who: Reader, limit: Limit = 20, after: AfterNumber = None, status: Status = None
    ) -> Response:
        """The user's runs in all threads, newest first."""
        page = await engine.list_runs(who, None, after=after, limit=limit, status=status)
        return page_response(page, run_object)

    @router.get("/input-requests", responses=answers(200, page_of(INPUT_REQUEST_SCHEMA)))
    async def list_input_requests(who: Reader, limit: Limit = 20, after: After = None) -> Response:
        """The questions that wait for the user, in all threads, newest first."""
        return page_response(await engine.list_input_requests(who, after=after, limit=limit), input_request_object)

    @router.get("/runs/{run_id}", responses=answers(200, RUN_SCHEMA))
    async def get_run(run_id: RunId, who: Reader) -> Response:
        """A run, live or over."""
        return json_response(run_object(await engine.get_run(who, run_id)))

    @router.get("/runs/{run_id}/steps", responses=answers(200, page_of(STEP_SCHEMA)))
    async def list_steps(
        run_id: RunId,
        who: Reader,
        limit: Limit = 20,
        after: AfterStep = None,
        order: Annotated[Literal["asc", "desc"], Query(description="The oldest first, or the newest.")] = "asc",
    ) -> Response:
        """The steps of a run: calls of tools with what they returned, and answers. Long texts are cut."""
        page = await engine.list_steps(who, run_id, after=after, limit=limit, order=order)
        return page_response(page, lambda item: step_object(shortened(item)))

    @router.get("/runs/{run_id}/steps/events", responses={200: _LOG, 204: {"description": "All is read."}})
    async def follow_steps(
        request: Request,
        run_id: RunId,
        who: Reader,
        after: AfterStepEvent = None,
        last_event_id: LastStepEventId = None,
    ) -> Response:
        """The steps of a run as they come, as server-sent events, to its end or to the question it waits with."""
        mark = place_of(Mark.parse, after, last_event_id)
        run, owner = await engine.find_run(who, run_id)
        log, headers = engine.follow_steps(who, run_id, mark), run_headers(run.thread_id, run.run_id)
        still = still_reads(engine, owner.thread(run.thread_id), request, Scope.THREADS_READ, who)
        held = web.access.streaming(who)
        return LogResponse(log, StepFrames(run.thread_id).told, log_stream(held, headers, still, web.ping), over=True)

    @router.get("/runs/{run_id}/events", responses={200: _LOG, 204: {"description": "All is read."}})
    async def follow(
        request: Request,
        run_id: RunId,
        who: Reader,
        after: AfterEvent = None,
        last_event_id: LastEventId = None,
    ) -> Response:
        """What a run tells, as server-sent events, to its end or to the question it waits with."""
        position = place_of(Position.parse, after, last_event_id)
        return await _follow_run(web, request, Scope.THREADS_READ, who, run_id, position)

    @router.post("/runs/{run_id}/cancel", responses=answers(200, RUN_SCHEMA), openapi_extra=described(UserBody))
    async def cancel_run(request: Request, run_id: RunId, caller: Canceller, user: NamedUser = None) -> Response:
        """Stop a run, whether it is live, waits for a person or waits in the queue."""
        _, who = await read_body(bodies, request, UserBody, caller, user)
        return json_response(run_object(await engine.cancel_run(who, run_id)))

    return router


async def _follow_run(  # noqa: PLR0913 - each is another thing
    web: Web,
    request: Request,
    scope: Scope,
    who: Principal,
    run_id: str,
    after: Position | None,
    counted: ExitStack | None = None,
) -> Response:
    """Return what a run tells after a position, to its end, while the request has the scope. `counted`: the stream, as
    one that counts already; it is taken over."""
    engine = web.engine
    run, owner = await engine.find_run(who, run_id)
    over = after is not None and after.n == ENDED and run.status not in (RunStatus.CREATED, RunStatus.RUNNING)
    log, headers = engine.follow_run(who, run_id, after), run_headers(run.thread_id, run.run_id)
    still = still_reads(engine, owner.thread(run.thread_id), request, scope, who)
    held = web.access.streaming(who) if counted is None else counted.pop_all()
    return LogResponse(log, RunFrames(run.thread_id, after).told, log_stream(held, headers, still, web.ping), over=over)
