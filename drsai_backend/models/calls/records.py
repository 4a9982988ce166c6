"""What one model call has used, and what a run keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from autogen_core.models import CreateResult, RequestUsage

from drsai_backend.models.answer import ModelAnswer
from drsai_backend.models.endpoints.answers import CallNotes, CallRecord


def spent(result: CreateResult, notes: CallNotes) -> tuple[RequestUsage, Mapping[str, int]]:
    """What a call has used, and the details of it: of the answer, and of attempts before it as far as their endpoints
    have said it."""
    if not notes.lost:
        return result.usage, notes.usage
    lost = notes.lost.copy()
    prompt = result.usage.prompt_tokens + lost.pop("prompt_tokens", 0)
    completion = result.usage.completion_tokens + lost.pop("completion_tokens", 0)
    lost.update(notes.usage)
    return RequestUsage(prompt_tokens=prompt, completion_tokens=completion), {k: n for k, n in lost.items() if n}


def record_of(
    agent: str,
    number: int,
    model: str,
    result: CreateResult,
    usage: RequestUsage,
    details: Mapping[str, int],
    seconds: float,
) -> CallRecord:
    """One call, for `Run.calls`: `number` is that of the answer in the agent's turn, `model` the name that the client
    has for it."""
    record: dict[str, object] = {"agent": agent, "step": f"m{number}"}
    if isinstance(result, ModelAnswer):
        record |= {"profile": result.profile, "model": result.model, "attempts": result.attempts}
    elif model:
        record["model"] = model
    if result.cached:
        record["cached"] = True
    counts = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens, **details}
    record |= {name: count for name, count in counts.items() if count}
    record["seconds"] = seconds
    return cast(CallRecord, record)
