"""Threads, messages and runs as JSON, in OpenAI's manner: `id`, `object`, times in Unix seconds; and lists of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Path, Query
from pydantic import BaseModel
from starlette.responses import Response

from drsai_backend.api._json import dumps
from drsai_backend.api.auth import NAME_SCHEMA
from drsai_backend.datamodel import RunStatus
from drsai_backend.runs.views import (
    CURSOR_PATTERN,
    InputRequestView,
    RunView,
    StoredMessage,
    ThreadDetail,
    ThreadSummary,
)

User = Annotated[
    str | None,
    Query(description="Whose threads and runs. Default: anonymous.", json_schema_extra={"anyOf": [NAME_SCHEMA]}),
]
ThreadId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA)]
RunId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA)]
Limit = Annotated[int, Query(ge=1, le=100)]


def _after(pattern: str) -> Any:
    shape = {"anyOf": [{"type": "string", "pattern": pattern}]}
    return Query(description="`next` of the page before.", json_schema_extra=shape)


After = Annotated[str | None, _after(CURSOR_PATTERN)]
AfterRun = Annotated[str | None, _after(r"^[0-9]{1,18}$")]
Status = Annotated[RunStatus | None, Query(description="Only those of this status.")]


def thread_object(thread: ThreadSummary) -> dict[str, Any]:
    return {"id": thread.thread_id, "object": "thread", **_fields(thread)}


def message_object(message: StoredMessage) -> dict[str, Any]:
    return {"object": "thread.message", **_fields(message)}


def run_object(run: RunView) -> dict[str, Any]:
    return {"id": run.run_id, "object": "thread.run", **_fields(run)}


def input_request_object(view: InputRequestView) -> dict[str, Any]:
    """A question, with the thread and the run that ask it."""
    fields = view.model_dump(mode="json")
    return {"object": "input_request", **fields.pop("input_request"), **fields}


def _fields(view: BaseModel) -> dict[str, Any]:
    fields = view.model_dump(mode="json")
    return fields | {name: int(value.timestamp()) for name, value in view if isinstance(value, datetime)}


def json_response(body: Any, status: int = 200) -> Response:
    return Response(dumps(body), status, media_type="application/json")


def list_response(data: list[dict[str, Any]], following: str | int | None) -> Response:
    """A page. `following` is the `after` of the next one; None: there is none."""
    body = {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": following is not None,
        "next": following,
    }
    return json_response(body)


def run_headers(thread_id: str, run_id: str) -> list[tuple[bytes, bytes]]:
    """The headers that name a run and its thread."""
    return [(b"x-thread-id", thread_id.encode()), (b"x-run-id", run_id.encode())]


def _schema(view: type[BaseModel], kind: str, **head: Any) -> dict[str, Any]:
    """The JSON schema of an object made of `view`."""
    schema = view.model_json_schema(mode="serialization")
    schema.pop("$defs", None)
    fields: Mapping[str, dict[str, Any]] = schema["properties"]
    for field in fields.values():
        for part in (field, *field.get("anyOf", ())):
            if part.get("format") == "date-time":
                del part["format"]
                part.update(type="integer", description="Unix time in seconds.")
            if part.pop("$ref", None) is not None:
                part.update(type="string", enum=[status.value for status in RunStatus])
    head = {"id": {"type": "string"}, **head, "object": {"const": kind}}
    return {**schema, "properties": {**head, **fields}, "required": [*head, *schema["required"]]}


def page_of(schema: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a page of such objects."""
    properties = {
        "object": {"const": "list"},
        "data": {"type": "array", "items": schema},
        "first_id": {"type": ["string", "null"]},
        "last_id": {"type": ["string", "null"]},
        "has_more": {"type": "boolean"},
        "next": {"type": ["string", "integer", "null"], "description": "`after` of the following page."},
    }
    return {"type": "object", "required": list(properties), "properties": properties}


def answers(status: int, schema: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    """What a route answers with when all is well, for the OpenAPI document."""
    return {status: {"description": "As it is now.", "content": {"application/json": {"schema": schema}}}}


RUN_SCHEMA: Final = _schema(RunView, "thread.run")
THREAD_SCHEMA: Final = _schema(ThreadDetail, "thread")
SUMMARY_SCHEMA: Final = _schema(ThreadSummary, "thread")
MESSAGE_SCHEMA: Final = _schema(StoredMessage, "thread.message", id={"type": ["string", "null"]})
INPUT_REQUEST_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["id", "object", "type", "kind", "source", "prompt", "asked_at", "thread_id", "run_id"],
    "properties": {
        "object": {"const": "input_request"},
        **{name: {"type": "string"} for name in ("id", "type", "kind", "source", "prompt", "asked_at")},
        **{name: {"type": "string"} for name in ("thread_id", "run_id")},
    },
}
