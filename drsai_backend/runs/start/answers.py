"""A person's answers to what a run waits for: whether they are in time, and what they say."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from drsai_backend.datamodel import utcnow
from drsai_backend.errors import InvalidRequest, StaleAnswer
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.events import Answer
from drsai_backend.teams.messages import UserInputReceivedEvent
from drsai_backend.teams.recording.recorder import dump_message, storable
from drsai_backend.teams.suspension import parse_decision

_DECISIONS: Final = {"approval": ("approve", "deny", "edit"), "tool_retry": ("run", "result", "stop")}


def check_current(question: JsonObject | None, answer: Answer) -> None:
    """Raises `StaleAnswer` unless `question`, which the thread waits for, is the one that is answered."""
    if question is None:
        raise StaleAnswer("the thread waits for no answer", param="id")
    if question["id"] != answer.request_id:
        raise StaleAnswer("this input request was answered already, or withdrawn", param="id")


def check_in_time(question: JsonObject) -> None:
    """Raises `StaleAnswer` when the question's deadline has passed."""
    deadline = question.get("deadline")
    if deadline is not None and datetime.fromisoformat(deadline) < utcnow():
        raise StaleAnswer("the time to answer this input request is over", param="id")


def text_of(answer: Answer) -> str:
    """The text of an answer to a question that wants one."""
    if answer.decision is not None:
        raise InvalidRequest("a question is answered by a text, not by a decision", param="decision")
    if not answer.content:
        raise InvalidRequest("the answer has no text", param="text")
    return answer.content


def answer_from_text(question: JsonObject, text: str) -> JsonObject:
    """What a plain chat message says to a question, as `Run.answers` keeps it.

    Raises:
        InvalidRequest: it is none of the choices; the message names them.
    """
    return {**_frame(question), **parse_decision(text, question)}


def answer_to(question: JsonObject, answer: Answer) -> JsonObject:
    """An explicit answer, as `Run.answers` keeps it.

    Raises:
        InvalidRequest: it does not fit the question; `param` names the field.
    """
    if question["type"] != "approval":
        return _from_text(question, text_of(answer))
    known = _DECISIONS[question["kind"]]
    if answer.decision is None:
        if answer.content is None:
            raise InvalidRequest(f"`decision` is required: {', '.join(known)}", param="decision")
        return _from_text(question, answer.content)
    if answer.decision not in known:
        raise InvalidRequest(f"`decision` must be one of {', '.join(known)}", param="decision")
    if answer.decision == "edit" and answer.arguments is None:
        raise InvalidRequest("`arguments`, an object, are what the tool is to be called with", param="arguments")
    if answer.decision == "result" and answer.content is None:
        raise InvalidRequest("`text` is the result to continue with", param="text")
    return {
        **_frame(question),
        "decision": answer.decision,
        "reason": answer.reason,
        "arguments": answer.arguments,
        "content": answer.content,
    }


def received(question: JsonObject, user_id: str, answer: JsonObject) -> UserInputReceivedEvent:
    """The message that keeps an answer: `content`, and of a decision what else `Run.answers` has of it."""
    decision = answer.get("decision") or "answer"
    arguments: JsonObject | None = answer.get("arguments")
    tool: JsonObject | None = question.get("tool")
    if decision in ("approve", "run") and tool is not None:
        arguments = tool["arguments"]
    return UserInputReceivedEvent(
        content=answer.get("content") or "",
        decision=decision,
        user_id=user_id,
        reason=answer.get("reason"),
        arguments=arguments,
        input_request=question,
    )


def unanswered(question: JsonObject, decision: Literal["expired", "withdrawn"], user_id: str | None) -> str:
    """The message that says that a question has no answer, as JSON text."""
    event = UserInputReceivedEvent(content="", decision=decision, user_id=user_id, input_request=question)
    return storable(dump_message(event))


def _frame(question: JsonObject) -> JsonObject:
    key = question.get("key")
    return {"source": question["source"], **({} if key is None else {"key": key})}


def _from_text(question: JsonObject, text: str) -> JsonObject:
    try:
        return answer_from_text(question, text)
    except InvalidRequest as error:
        raise InvalidRequest(error.message, param="text") from None
