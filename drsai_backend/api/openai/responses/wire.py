"""The wire format of Responses has the response object.

Fields that OpenAI does not have, for programs: `drsai`, with `run_id`, `thread_id` and, once it is over, `status`,
`stop_reason`, `stop_code`, `duration` (seconds), `input_request` and `queued_behind`, as in an answer of Chat
Completions, and `error_code`, why it failed: `error.code` is one of OpenAI's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from drsai_backend.api.openai.responses.request.items import response_id
from drsai_backend.datamodel import RunStatus
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import RunEnded

OVER: Final = frozenset({"completed", "failed", "incomplete", "cancelled"})
_STATUS: Final = {
    RunStatus.COMPLETED: "completed",
    RunStatus.AWAITING_INPUT: "completed",
    RunStatus.PAUSED: "incomplete",
    RunStatus.STOPPED: "cancelled",
    RunStatus.ERROR: "failed",
    RunStatus.RUNNING: "in_progress",
    RunStatus.CREATED: "queued",
}
_ERRORS: Final = {"model_rate_limit": "rate_limit_exceeded"}
"""The code of a response's error, by this server's. OpenAI has no other that fits, so all others are `server_error`."""
_ECHOED: Final[JsonObject] = {
    "background": False,
    "conversation": None,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""What a response says of its request again, and what it says where the request said nothing."""
RESPONSE_SCHEMA: Final = {
    "type": "object",
    "required": ["id", "object", "created_at", "status", "model", "output", "error", "usage", *_ECHOED],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "response"},
        "created_at": {"type": "integer", "description": "Unix time in seconds."},
        "status": {"enum": sorted({*_STATUS.values()})},
        "model": {"type": "string"},
        "output": {"type": "array", "items": {"type": "object"}},
        "error": {"type": ["object", "null"]},
        "usage": {"type": ["object", "null"]},
    },
}


@dataclass(frozen=True, slots=True)
class Subject:
    """The response that is told of: its run (`run_id`, as the client was told it), when its request came (Unix time in
    seconds), the model, the thread, and what of the request is kept (`record`)."""

    run_id: str
    created: int
    model: str
    thread_id: str
    record: JsonObject

    @property
    def id(self) -> str:
        return response_id(self.run_id)


def status_of(ended: RunEnded) -> str:
    """The status of a response whose run, or its part, has ended so."""
    if ended.queued_behind is not None or incomplete_reason(ended) is not None:
        return "incomplete"
    return _STATUS[ended.status]


def incomplete_reason(ended: RunEnded) -> str | None:
    """Return why a response is incomplete; None: it is not."""
    if ended.queued_behind is not None:
        return "awaiting_input"
    if ended.status is RunStatus.PAUSED:
        return "paused"
    if ended.status is RunStatus.STOPPED and ended.stop_code is not None:
        return "max_output_tokens" if ended.stop_code == "max_run_tokens" else ended.stop_code
    if ended.status is not RunStatus.COMPLETED:
        return None
    return {"length": "max_output_tokens", "content_filter": "content_filter"}.get(ended.finish_reason)


def response_object(
    subject: Subject,
    status: str,
    output: Sequence[Mapping[str, object]],
    ended: RunEnded | None = None,
    *,
    completed_at: int | None = None,
) -> JsonObject:
    """The response as it is now; `ended`, once it is over."""
    record, reason = subject.record, None if ended is None else incomplete_reason(ended)
    failed = ended is not None and status == "failed"
    details = {"run_id": subject.run_id, "thread_id": subject.thread_id}
    if ended is not None:
        details |= {
            "status": ended.status.value,
            "stop_reason": ended.stop_reason,
            "stop_code": ended.stop_code,
            "duration": round(ended.duration, 3),
            "input_request": ended.input_request,
            "queued_behind": ended.queued_behind,
            "error_code": ended.error_code,
        }
    told = {name: record.get(name, default) for name, default in _ECHOED.items()}
    if ended is not None and ended.service_tier:
        told["service_tier"] = ended.service_tier
    return {
        "id": subject.id,
        "object": "response",
        "created_at": subject.created,
        "completed_at": completed_at if status == "completed" else None,
        "status": status,
        "error": _error(ended) if failed and ended is not None else None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "model": subject.model,
        "output": list(output),
        "usage": None if ended is None else usage_of(ended.used),
        **told,
        "drsai": details,
    }


def _error(ended: RunEnded) -> JsonObject:
    code = _ERRORS.get(ended.error_code or "", "server_error")
    return {"code": code, "message": ended.error_message or "the run failed"}


def usage_of(used: dict[str, int]) -> JsonObject:
    """Return what a run has used, in the words of Responses."""
    given, made = used.get("prompt_tokens", 0), used.get("completion_tokens", 0)
    return {
        "input_tokens": given,
        "input_tokens_details": {name: used.get(name, 0) for name in ("cached_tokens", "cache_write_tokens")},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": used.get("reasoning_tokens", 0)},
        "total_tokens": used.get("total_tokens", given + made),
    }
