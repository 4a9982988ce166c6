"""An answer tells the caller of a team's tool what was said, or the question that the run waits with, and how to
continue."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, cast

from mcp_types import CallToolResult, TextContent

from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import DrSaiError
from drsai_backend.json_types import MOST_ZEROS, JsonObject, zeros_of
from drsai_backend.runs.events import MessageDone, RunEnded

_HOW: Final = {
    "approve": '`answer`: "approve", "deny: the reason", or {"decision": "edit", "arguments": {…}}',
    "run": '`answer`: "run", "stop", or {"decision": "result", "text": "its result"}',
}


def told(
    said: Sequence[MessageDone], ended: RunEnded | None, *, tool: str, thread_id: str, run_id: str
) -> CallToolResult:
    """The result of a call.

    Args:
        said: the messages of the run that were heard so far.
        ended: how it has ended; None: it has not, yet.
    """
    text = "\n\n".join(
        done.message.to_text() for done in said if done.shown or (ended is not None and done.seq == ended.shown)
    )
    status = RunStatus.RUNNING if ended is None else ended.status
    again = f"call {tool} again with thread_id {thread_id!r}"
    question = None if ended is None else ended.input_request
    if status is RunStatus.RUNNING:
        note = f"The run is not over yet. To go on waiting, {again} and no message."
    elif status is RunStatus.AWAITING_INPUT and question is not None:
        answer = f"To answer, {again} and {how_to_answer(question)}."
        wait = f"To see whether it is decided, {again} and no message."
        note = f"The team asks: {question.get('prompt', '')}\n{wait if question.get('for_others') else answer}"
    elif status is RunStatus.ERROR and ended is not None:
        note = f"The run failed: {ended.error_message or ended.error_code}. To try again, {again} and a message."
    elif status is RunStatus.STOPPED and ended is not None:
        note = f"The run was stopped: {ended.stop_reason}. To continue, {again} and a message."
    elif status is RunStatus.PAUSED:
        note = f"The run is paused. To resume it, {again} and a message."
    else:
        note = f"To continue this conversation, {again} and a message."
    data: JsonObject = {"thread_id": thread_id, "run_id": run_id, "status": status.value, "text": text}
    if question is not None:
        data["input_request"] = question
    content = [TextContent(type="text", text=part) for part in (text, note) if part]
    return CallToolResult(content=[*content], structured_content=data, is_error=status is RunStatus.ERROR)


def how_to_answer(question: Mapping[str, object]) -> str:
    """The argument that answers a question, in words."""
    choices = _choices(question)
    return next((how for choice, how in _HOW.items() if choice in choices), "`answer`: your answer")


def refused(error: DrSaiError) -> CallToolResult:
    """The result of a call that could not be served."""
    field = "" if error.param is None else f" ({error.param})"
    data = {"error": {"code": error.code, "message": error.message, "param": error.param}}
    text = TextContent(type="text", text=f"{error.code}{field}: {error.message}")
    return CallToolResult(content=[text], structured_content=data, is_error=True)


def decision_of(given: str, question: Mapping[str, object]) -> JsonObject:
    """Return what the text of an answer says to a question: the fields of an `Answer`. "deny: too late" is a decision
    with its reason, JSON an object of the fields, where the question wants a decision."""
    choices = _choices(question)
    if question.get("type") != "approval":
        return {"content": given}
    if given.lstrip().startswith("{") and zeros_of(given.encode(errors="replace")) <= MOST_ZEROS:
        try:
            fields = json.loads(given)
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict):
            return cast(JsonObject, fields)
    word, _, rest = given.partition(":")
    word = word.strip().lower()
    if word not in choices:
        return {"decision": given}  # Whoever reads it says which there are.
    return {"decision": word, **({"reason": rest.strip()} if rest.strip() else {})}


def _choices(question: Mapping[str, object]) -> list[str]:
    return cast("list[str]", question.get("choices") or [])
