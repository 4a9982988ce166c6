"""The routes of `/api/v1/agent` serve tasks and their streams, and the list of tools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal, TypeAlias, get_args

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import allowed, described, read_fields
from drsai_backend.api.engine.errors import DetailRoute
from drsai_backend.api.engine.tasks import STATES, ExecuteBody, TaskEvent, Tasks, statistics, summary
from drsai_backend.api.events import AfterStepEvent, LastStepEventId, LogResponse, log_stream, place_of, still_reads
from drsai_backend.api.http.json import EVENTS, answers, dumps, json_response
from drsai_backend.api.http.once import IdempotencyKey
from drsai_backend.api.http.parameters import AfterNumber, Limit, known_parameters
from drsai_backend.api.http.stream import ClientLeft, Watch
from drsai_backend.api.joining import Web
from drsai_backend.api.objects import run_headers
from drsai_backend.datamodel.thread import NAME_SCHEMA
from drsai_backend.days import Moment
from drsai_backend.definitions.modes import TEAMS, mode_of, modes_of
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.feed.handle import Handle
from drsai_backend.runs.steps.events import Mark
from drsai_backend.runs.threads.queries import RunFilter

PREFIX: Final = "/api/v1/agent"
DAYS: Final = 7
"""How long a task is listed."""
Chatter = Annotated[Principal, allowed(Scope.CHAT)]
Reader = Annotated[Principal, allowed(Scope.THREADS_READ)]
TaskId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA)]
State: TypeAlias = Literal["pending", "running", "awaiting_input", "paused", "success", "cancelled", "failed"]
assert {*get_args(State)} == {*STATES.values()}
_MOMENT: Final = "Such as `2026-01-31T12:00:00Z`."


Tenant = Annotated[str | None, Query(max_length=64, description="That of who asks; no other one.")]
_TEXT: Final = {"type": ["string", "null"]}
_STEP: Final = {
    "type": "object",
    "required": ["step", "thought", "action", "action_input", "observation", "error", "final_answer"],
    "properties": {
        "step": {"type": "integer", "minimum": 1},
        **dict.fromkeys(("source", "thought", "action", "action_input", "observation", "content", "error"), _TEXT),
        "final_answer": _TEXT,
    },
}
_SUMMARY: Final[JsonObject] = {
    "type": "object",
    "required": ["task_id", "task", "mode", "status", "conversation_id", "execution_time", "created_at"],
    "properties": {
        **{name: {"type": "string"} for name in ("task_id", "task", "mode", "conversation_id", "created_at")},
        "status": {"enum": [*STATES.values(), "max_steps_reached"]},
        "execution_time": {"type": "number", "description": "Seconds that it ran."},
        "finished_at": _TEXT,
        "usage": {"type": ["object", "null"]},
        "error": _TEXT,
        "input_request": {"type": ["object", "null"], "description": "What a person is asked, when it waits."},
    },
}
_TASK: Final = {
    "type": "object",
    "required": [*_SUMMARY["required"], "steps", "step_count", "tool_call_count", "final_answer"],
    "properties": {
        **_SUMMARY["properties"],
        "steps": {"type": "array", "items": _STEP},
        "step_count": {"type": "integer", "minimum": 0},
        "tool_call_count": {"type": "integer", "minimum": 0},
        "final_answer": {"type": "string"},
    },
}
_LIST: Final = {
    "type": "object",
    "required": ["tasks", "total", "next"],
    "properties": {
        "tasks": {"type": "array", "items": _SUMMARY},
        "total": {"type": "integer", "description": "Of this page."},
        "next": _TEXT,
    },
}
_TOOLS: Final = {
    "type": "object",
    "required": ["tools", "total"],
    "properties": {"tools": {"type": "array", "items": {"type": "object"}}, "total": {"type": "integer"}},
}
_COUNTS: Final = {
    "total": {"type": "integer", "minimum": 0},
    "by_status": {"type": "object", "description": "Tasks by status.", "additionalProperties": {"type": "integer"}},
    "success_rate": {
        "type": ["number", "null"],
        "description": "Of the tasks that are over, those that are a success, 0 to 1; null: none is over.",
    },
    "mean_time": {
        "type": ["number", "null"],
        "description": "Seconds that tasks ran which are over, on average; null: none is.",
    },
}
_STATS: Final = {
    "type": "object",
    "required": [*_COUNTS, "by_mode"],
    "properties": {
        **_COUNTS,
        "by_mode": {
            "type": "object",
            "description": "The same by mode.",
            "additionalProperties": {"type": "object", "required": [*_COUNTS], "properties": _COUNTS},
        },
    },
}
_STREAM: Final = {"description": "The events of the task, to its end.", "content": EVENTS}


_DONE: Final = b"data: [DONE]\n\n"


def _frames(told: TaskEvent) -> Iterator[bytes]:
    """Server-sent events whose data alone says what they are. Of the events of one place, only the last one has its
    id: who read the others alone reads them again."""
    *before, newest = map(dumps, told.objects)
    for each in before:
        yield b"data: %b\n\n" % each
    place = "" if told.position is None else f"id: {told.position}\n"
    yield b"%bdata: %b\n\n" % (place.encode(), newest)
    if told.last:
        yield _DONE


def _listed(since: datetime | None, until: datetime | None) -> RunFilter:
    """The tasks that are listed, of those that were made in a time."""
    now = datetime.now(UTC)
    oldest = now - timedelta(days=DAYS)
    first = oldest if since is None else max(since, oldest)
    return RunFilter(TEAMS, None, first, None if until is None else min(max(until, oldest), now))


async def _end(handle: Handle, watch: Watch) -> None:
    """Wait for a task's end. Raises ClientDisconnect, and why who waits may not read it any more."""
    try:
        with watch:
            await handle.wait()
    except ClientLeft:
        raise ClientDisconnect from None


def engine_routes(tasks: Tasks, web: Web) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix=PREFIX, tags=["agent"], route_class=DetailRoute, dependencies=[Depends(known_parameters)])
    engine, bodies = web.engine, web.bodies

    @router.post(
        "/execute",
        responses=answers(200, _TASK, "The task is over, or waits for a person."),
        openapi_extra=described(ExecuteBody),
    )
    async def execute(request: Request, who: Chatter, key: IdempotencyKey = None) -> Response:
        """Do a task, and tell how it went. Whoever leaves meanwhile finds it by its id later."""
        body = await read_fields(bodies, request, ExecuteBody)
        handle = await tasks.start(who, body, key)
        still = still_reads(engine, handle.name, request, Scope.CHAT, who)
        await _end(handle, Watch(request.receive, web.ping, still=still))
        answer = json_response(await tasks.whole(who, handle.run_id))
        answer.raw_headers.extend(run_headers(handle.thread_id, handle.run_id))
        return answer

    @router.post("/execute-stream", responses={200: _STREAM}, openapi_extra=described(ExecuteBody))
    async def execute_stream(request: Request, who: Chatter, key: IdempotencyKey = None) -> Response:
        """Do a task, and tell its steps as they come."""
        body = await read_fields(bodies, request, ExecuteBody)
        with ExitStack() as held:
            held.enter_context(web.access.streaming(who))  # Before the task is begun.
            handle = await tasks.start(who, body, key)
            still = still_reads(engine, handle.name, request, Scope.CHAT, who)
            stream = log_stream(held.pop_all(), run_headers(handle.thread_id, handle.run_id), still, web.ping)
            return LogResponse(tasks.begun(who, handle), _frames, stream, over=True)

    @router.get("/tools", responses=answers(200, _TOOLS))
    async def list_tools(who: Chatter) -> Response:
        """The tools that a task may name, and the modes."""
        found = await tasks.tools(who)
        return json_response({"tools": found, "total": len(found), "modes": modes_of(tasks.settings)})

    @router.get("/tasks", responses=answers(200, _LIST))
    async def list_tasks(  # noqa: PLR0913 - the parameters of a route
        who: Reader,
        limit: Limit = 50,
        after: AfterNumber = None,
        status: Annotated[State | None, Query(description="Only those of this status.")] = None,
        since: Annotated[Moment | None, Query(description=f"Only those made since then. {_MOMENT}")] = None,
        until: Annotated[Moment | None, Query(description=f"Only those made before then. {_MOMENT}")] = None,
        tenant_id: Tenant = None,
    ) -> Response:
        """The tasks of the last seven days, newest first."""
        tasks.check_tenant(who, tenant_id)
        wanted = [each for each, name in STATES.items() if name == status] if status else None
        only = _listed(since, until)._replace(statuses=wanted)
        page = await engine.list_runs(who, None, after=after, limit=limit, only=only)
        texts = await engine.first_texts(who.owner, [run.run_id for run in page.items])
        found = [summary(run, texts.get(run.run_id)) for run in page.items]
        return json_response({"tasks": found, "total": len(found), "next": page.next})

    @router.get("/stats", responses=answers(200, _STATS))
    async def get_stats(
        who: Reader,
        since: Annotated[Moment | None, Query(description=f"Only tasks made since then. {_MOMENT}")] = None,
        until: Annotated[Moment | None, Query(description=f"Only tasks made before then. {_MOMENT}")] = None,
        tenant_id: Tenant = None,
    ) -> Response:
        """How many of the tasks of the last seven days have succeeded, and how long they took, in all and by mode."""
        tasks.check_tenant(who, tenant_id)
        counts = await engine.statistics_of_runs(who, _listed(since, until))
        modes = {mode_of(each.team) or "": [other for other in counts if other.team == each.team] for each in counts}
        by_mode = {mode: statistics(of_mode) for mode, of_mode in modes.items()}
        return json_response({**statistics(counts), "by_mode": by_mode})

    @router.get("/tasks/{task_id}", responses=answers(200, _TASK))
    async def get_task(task_id: TaskId, who: Reader) -> Response:
        """A task with its steps, under way or over."""
        return json_response(await tasks.whole(who, task_id))

    @router.get("/tasks/{task_id}/stream", responses={200: _STREAM, 204: {"description": "All is read."}})
    async def follow_task(
        request: Request,
        task_id: TaskId,
        who: Reader,
        after: AfterStepEvent = None,
        last_event_id: LastStepEventId = None,
    ) -> Response:
        """What is told of a task after an event: how a stream that broke off is continued."""
        _, name = await tasks.find(who, task_id)
        log = tasks.events(who, task_id, place_of(Mark.parse, after, last_event_id))
        still = still_reads(engine, name, request, Scope.THREADS_READ, who)
        stream = log_stream(web.access.streaming(who), run_headers(name.thread_id, task_id), still, web.ping)
        return LogResponse(log, _frames, stream, over=True)

    @router.post("/tasks/{task_id}/cancel", responses=answers(200, _TASK))
    async def cancel_task(task_id: TaskId, who: Annotated[Principal, allowed(Scope.RUNS_CANCEL)]) -> Response:
        """Stop a task. What was done stays."""
        await tasks.find(who, task_id)
        await engine.cancel_run(who, task_id)
        return json_response(await tasks.whole(who, task_id))

    @router.post("/tasks/{task_id}/retry", responses=answers(200, _TASK))
    async def retry_task(task_id: TaskId, who: Annotated[Principal, allowed(Scope.THREADS_WRITE)]) -> Response:
        """Do a task that has failed again, from the step that failed. What was done is not done again."""
        _, name = await tasks.find(who, task_id)
        await engine.retry(who, name, task_id)
        return json_response(await tasks.whole(who, task_id))

    return router
