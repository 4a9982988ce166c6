"""Threads, messages and runs as JSON, in OpenAI's manner: `id`, `object`, times in Unix seconds."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pydantic import BaseModel

from drsai_backend.database.api_keys import KeyInfo
from drsai_backend.database.webhook_views import DeliveryInfo
from drsai_backend.datamodel import RunStatus
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.feed.feed import Handle
from drsai_backend.runs.steps.views import RunStep
from drsai_backend.runs.threads.travel import BranchView, TurnView
from drsai_backend.runs.threads.views import (
    InputRequestView,
    RunView,
    ShareView,
    StoredMessage,
    ThreadDetail,
    ThreadSummary,
)


def thread_object(thread: ThreadSummary) -> JsonObject:
    return {"id": thread.thread_id, "object": "thread", **_fields(thread)}


def share_object(thread_id: str, share: ShareView) -> JsonObject:
    whom = f"role:{share.with_role}" if share.with_user is None else f"user:{share.with_user}"
    return {"id": whom, "object": "thread.share", "thread_id": thread_id, **_fields(share)}


def turn_object(turn: TurnView) -> JsonObject:
    return {"id": str(turn.turn), "object": "thread.turn", **_fields(turn)}


def branch_object(branch: BranchView) -> JsonObject:
    return {"id": str(branch.number), "object": "thread.branch", **_fields(branch)}


def message_object(message: StoredMessage) -> JsonObject:
    return {"object": "thread.message", **_fields(message)}


def step_object(step: RunStep) -> JsonObject:
    return {"id": f"{step.run_id}.{step.position}", "object": "thread.run.step", **_fields(step)}


def run_object(run: RunView) -> JsonObject:
    return {"id": run.run_id, "object": "thread.run", **_fields(run)}


def key_object(info: KeyInfo) -> JsonObject:
    """An API key, without the key."""
    fields = _fields(info)
    return {"id": fields.pop("key_id"), "object": "api_key", "user": fields.pop("user_id"), **fields}


def delivery_object(info: DeliveryInfo) -> JsonObject:
    """An event for a webhook."""
    fields = _fields(info)
    return {"id": fields.pop("event_id"), "object": "webhook.delivery", **fields}


def input_request_object(view: InputRequestView) -> JsonObject:
    """A question, with the thread and the run that ask it."""
    fields = view.model_dump(mode="json")
    return {"object": "input_request", **fields.pop("input_request"), **fields}


def _fields(view: BaseModel) -> JsonObject:
    fields = view.model_dump(mode="json")
    return fields | {name: int(value.timestamp()) for name, value in view if isinstance(value, datetime)}


def run_headers(thread_id: str, run_id: str) -> list[tuple[bytes, bytes]]:
    """The headers that name a run and its thread."""
    return [(b"x-thread-id", thread_id.encode()), (b"x-run-id", run_id.encode())]


def headers_of_answer(handle: Handle) -> list[tuple[bytes, bytes]]:
    """`run_headers` of a run that was asked for now; they say as well that its history was imported, though there are
    conversations that look like it."""
    return [*run_headers(handle.thread_id, handle.run_id), *([(b"x-thread", b"imported")] if handle.imported else [])]


def _schema(view: type[BaseModel], kind: str, **head: JsonObject) -> JsonObject:
    """The JSON schema of an object made of `view`."""
    schema = view.model_json_schema(mode="serialization")
    schema.pop("$defs", None)
    fields: dict[str, JsonObject] = schema["properties"]
    for field in fields.values():
        for part in (field, *field.get("anyOf", ())):
            if part.get("format") == "date-time":
                del part["format"]
                part.update(type="integer", description="Unix time in seconds.")
            if part.pop("$ref", None) is not None:
                part.update(type="string", enum=[status.value for status in RunStatus])
    head = {"id": {"type": "string"}, **head, "object": {"const": kind}}
    return {**schema, "properties": {**head, **fields}, "required": [*head, *schema["required"]]}


RUN_SCHEMA: Final = _schema(RunView, "thread.run")
THREAD_SCHEMA: Final = _schema(ThreadDetail, "thread")
SUMMARY_SCHEMA: Final = _schema(ThreadSummary, "thread")
MESSAGE_SCHEMA: Final = _schema(StoredMessage, "thread.message", id={"type": ["string", "null"]})
STEP_SCHEMA: Final = _schema(RunStep, "thread.run.step")
TURN_SCHEMA: Final = _schema(TurnView, "thread.turn")
BRANCH_SCHEMA: Final = _schema(BranchView, "thread.branch")
SHARE_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "required": ["id", "object", "thread_id", "with_user", "with_role", "right", "created_at", "created_by"],
    "properties": {
        "id": {"type": "string", "description": "With whom: `user:bob` or `role:treasurer`."},
        "object": {"const": "thread.share"},
        "thread_id": {"type": "string"},
        "right": {"enum": ["read", "answer", "write"]},
        "created_at": {"type": "integer", "description": "Unix time in seconds."},
        "created_by": {"type": "string"},
    },
}
_TEXTS: Final = ("id", "type", "kind", "source", "prompt", "asked_at", "thread_id", "run_id", "owner")
INPUT_REQUEST_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "required": ["object", *_TEXTS],
    "properties": {"object": {"const": "input_request"}, **{key: {"type": "string"} for key in _TEXTS}},
}
