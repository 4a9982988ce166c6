"""Objects are threads, messages and runs as JSON, in OpenAI's manner: `id`, `object`, times in Unix seconds."""

from __future__ import annotations

from datetime import datetime
from typing import Final, get_args

from pydantic import BaseModel

from drsai_backend.json_types import JsonObject
from drsai_backend.runs.feed.handle import Handle
from drsai_backend.runs.steps.views import RunStep
from drsai_backend.runs.threads.views import (
    InputRequestView,
    RunView,
    StoredMessage,
    ThreadDetail,
    ThreadSummary,
)
from drsai_backend.teams.suspension import AskKind, AskType


def thread_object(thread: ThreadSummary) -> JsonObject:
    return {"id": thread.thread_id, "object": "thread", **fields_of(thread)}


def message_object(message: StoredMessage) -> JsonObject:
    return {"object": "thread.message", **fields_of(message)}


def step_object(step: RunStep) -> JsonObject:
    return {"id": f"{step.run_id}.{step.position}", "object": "thread.run.step", **fields_of(step)}


def run_object(run: RunView) -> JsonObject:
    return {"id": run.run_id, "object": "thread.run", **fields_of(run)}


def input_request_object(view: InputRequestView) -> JsonObject:
    """A question, with the thread and the run that ask it."""
    fields = view.model_dump(mode="json")
    return {"object": "input_request", **fields.pop("input_request"), **fields}


def fields_of(view: BaseModel) -> JsonObject:
    """The fields of a view as JSON, times in Unix seconds."""
    fields = view.model_dump(mode="json")
    return fields | {name: int(value.timestamp()) for name, value in view if isinstance(value, datetime)}


def run_headers(thread_id: str, run_id: str) -> list[tuple[bytes, bytes]]:
    """The headers that name a run and its thread."""
    return [(b"x-thread-id", thread_id.encode()), (b"x-run-id", run_id.encode())]


def headers_of_answer(handle: Handle) -> list[tuple[bytes, bytes]]:
    """`run_headers` of a run that was asked for now; they say as well that its history was imported, though there are
    conversations that look like it."""
    return [*run_headers(handle.thread_id, handle.run_id), *([(b"x-thread", b"imported")] if handle.imported else [])]


def schema_of(view: type[BaseModel], kind: str, **head: JsonObject) -> JsonObject:
    """The JSON schema of an object made of `view`; `head` are fields that it has besides."""
    schema = view.model_json_schema(mode="serialization")
    defined = schema.pop("$defs", {})
    fields: dict[str, JsonObject] = schema["properties"]
    for field in fields.values():
        if name := field.get("items", {}).get("$ref"):
            field["items"] = defined[name.rpartition("/")[2]]
        for part in (field, *field.get("anyOf", ())):
            if part.get("format") == "date-time":
                del part["format"]
                part.update(type="integer", description="Unix time in seconds.")
            if name := part.pop("$ref", None):
                part.update(type="string", enum=defined[name.rpartition("/")[2]]["enum"])
    head = {"id": {"type": "string"}, **head, "object": {"const": kind}}
    return {**schema, "properties": {**head, **fields}, "required": [*head, *schema["required"]]}


RUN_SCHEMA: Final = schema_of(RunView, "thread.run")
THREAD_SCHEMA: Final = schema_of(ThreadDetail, "thread")
SUMMARY_SCHEMA: Final = schema_of(ThreadSummary, "thread")
MESSAGE_SCHEMA: Final = schema_of(StoredMessage, "thread.message", id={"type": ["string", "null"]})
STEP_SCHEMA: Final = schema_of(RunStep, "thread.run.step")
_TEXTS: Final = ("id", "type", "kind", "source", "prompt", "asked_at", "thread_id", "run_id", "owner")
_CALL: Final[JsonObject] = {"name": {"type": "string"}, "arguments": {"type": "object", "additionalProperties": True}}
_CLIENT_CALL: Final[JsonObject] = {key: {"type": "string"} for key in ("id", "type", "name", "arguments")}
INPUT_REQUEST_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "required": ["object", *_TEXTS],
    "properties": {
        "object": {"const": "input_request"},
        **{key: {"type": "string"} for key in _TEXTS},
        "type": {"type": "string", "enum": [*get_args(AskType)]},
        "kind": {"type": "string", "enum": [*get_args(AskKind)]},
        "team": {"type": ["string", "null"]},
        "title": {"type": ["string", "null"], "description": "That of the thread."},
        "choices": {"type": ["array", "null"], "items": {"type": "string"}},
        "deadline": {"type": ["string", "null"]},
        "tool": {
            "type": ["object", "null"],
            "required": [*_CALL],
            "properties": {**_CALL, "call_id": {"type": "string"}},
        },
        "tool_calls": {
            "type": "array",
            "items": {"type": "object", "required": [*_CLIENT_CALL], "properties": _CLIENT_CALL},
        },
        "content": {"type": ["string", "null"]},
        **{key: {"type": "string"} for key in ("key", "place", "thought", "said_before", "number", "by", "asker")},
        "not_by": {"const": "asker"},
        "for_others": {"const": True},
    },
}
