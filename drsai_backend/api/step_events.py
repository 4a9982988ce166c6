"""The steps of a run as server-sent events: the other way to read its log. The ids are of another form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Annotated, Final

from fastapi import Header, Query

from drsai_backend.api.events import LogStream
from drsai_backend.api.http.errors import error_body
from drsai_backend.api.http.stream import Headers
from drsai_backend.api.objects import step_object
from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import RunFailed
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.steps.events import (
    STEP_PATTERN,
    LoggedStep,
    Mark,
    StepCalled,
    StepEnded,
    StepEvent,
    StepReturned,
    StepsEnded,
    StepStarted,
    StepsVoid,
    StepThought,
)
from drsai_backend.runs.steps.views import shortened

_ID: Final = {"type": "string", "pattern": STEP_PATTERN}
AfterStepEvent = Annotated[
    str | None, Query(description="`id` of the last event that was read.", json_schema_extra={"anyOf": [_ID]})
]
LastStepEventId = Annotated[
    str | None,
    Header(
        description="The same; goes before `after`, where it is not empty.",
        json_schema_extra={"anyOf": [{"const": ""}, _ID]},
    ),
]


class StepLogResponse(LogStream[LoggedStep]):
    """Server-sent events of the steps of a run, as `LogResponse`."""

    def __init__(
        self,
        log: AsyncIterator[LoggedStep],
        thread_id: str,
        headers: Headers,
        still: Callable[[], Awaitable[None]],
        *,
        ping: float,
    ) -> None:
        # A run whose steps are all told says nothing, and that is a 204.
        super().__init__(log, thread_id, headers, still, ping=ping, over=True)

    def told(self, logged: LoggedStep) -> Iterable[bytes]:
        """The frames of an event."""
        position, run_id, event = logged
        if isinstance(event, StepsEnded):
            yield from self._end(position, run_id, event)
            return
        yield self.frame(position, run_id, *fields_of(event))

    def _end(self, position: Mark, run_id: str, ended: StepsEnded) -> Iterable[bytes]:
        # Without an id: who reads again after it gets it again with the end.
        if ended.status is RunStatus.ERROR:
            error = RunFailed(ended.error_message or "the run failed")
            yield self.frame(None, run_id, "error", error_body(error))
        elif ended.status is RunStatus.AWAITING_INPUT:
            yield self.frame(None, run_id, "input_request", {"input_request": ended.input_request})
        fields = {
            "status": ended.status.value,
            "stop_reason": ended.stop_reason,
            "stop_code": ended.stop_code,
            "usage": ended.usage,
            "duration": round(ended.seconds, 3),
        }
        yield self.frame(position, run_id, "end", fields)


def fields_of(event: StepEvent) -> tuple[str, JsonObject]:
    """The name and the fields of an event that is not an end."""
    if isinstance(event, StepsVoid):
        return "steps_void", {"after": event.after}
    if isinstance(event, StepsEnded):
        raise TypeError("an end is told in another way")
    step = shortened(event.step)
    where: JsonObject = {"position": step.position, "source": step.source}
    match event:
        case StepStarted():
            started = None if step.started_at is None else int(step.started_at.timestamp())
            return "step_start", {**where, "started_at": started, "model": step.model}
        case StepThought():
            return "thought", {**where, "text": step.thought}
        case StepCalled():
            return "tool_call", {**where, "call_id": step.call_id, "name": step.tool, "arguments": step.input}
        case StepReturned():
            call = {"call_id": step.call_id, "name": step.tool}
            return "tool_result", {**where, **call, "result": step.observation, "is_error": step.is_error}
        case StepEnded():
            return "step_end", {**where, "step": step_object(step)}


def mark_of(after: str | None, last_event_id: str | None) -> Mark | None:
    """Where a reader of steps stands, as `position_of`."""
    if last_event_id:
        return Mark.parse(last_event_id, "Last-Event-ID")
    return None if after is None else Mark.parse(after)
