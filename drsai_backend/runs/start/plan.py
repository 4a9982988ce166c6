"""Plan: what a request means for its thread, and what a person's answer says to the question that it waits for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

import orjson
from autogen_core import Image

from drsai_backend.datamodel import RunStatus, utcnow
from drsai_backend.errors import InvalidRequest, StaleAnswer
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.events import Answer, InputMessage, NoAnswer, RunRequest
from drsai_backend.runs.messages import first_new, new_messages, system_text
from drsai_backend.runs.start.read import StoredThread
from drsai_backend.runs.threads.rights import check_may_answer
from drsai_backend.teams.messages import UserInputReceivedEvent, dump_of
from drsai_backend.teams.recording.recorder import dump_message, storable
from drsai_backend.teams.suspension import parse_decision

# How many of the user's newest texts a warm thread remembers, to recognise a history that is sent again.
KNOWN_TEXTS = 100
_DECISIONS: Final = {"approval": ("approve", "deny", "edit"), "tool_retry": ("run", "result", "stop")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a request means for its thread.

    `new` are the messages to take, `raw` the same in OpenAI's shape. `resumes`: the run that is there (`run_id`) is
    resumed; with `keep_run` its team knows what it had under way. `answers`: what people have said to the questions of
    the turn in flight, which is repeated; None: the messages are the task. `received` keeps what was answered.
    `system` is the client's system message, `texts` are the newest texts of the user. `author`: the user who has sent
    `new`, where the thread is another's.
    """

    new: Sequence[InputMessage] = ()
    raw: Sequence[JsonObject] = ()
    run_id: str | None = None
    resumes: bool = False
    keep_run: bool = True
    answers: list[JsonObject] | None = None
    received: UserInputReceivedEvent | None = None
    system: str | None = None
    texts: Sequence[str] = ()
    author: str | None = None


def plan_resumed(thread: StoredThread) -> Plan:
    """How a run that was cut, or paused, is resumed where it stood."""
    return Plan(
        run_id=thread.head.run_id,
        resumes=True,
        answers=_answers_so_far(thread),
        system=thread.system_text,
        texts=thread.user_texts[-KNOWN_TEXTS:],
    )


def plan(request: RunRequest, thread: StoredThread | None) -> Plan:
    """Decide what a request adds to its thread.

    Raises:
        InvalidRequest: nothing new in `messages`, the thread is another team's, or the answer is none to its question.
        Conflict: the question was answered already, or is another one, or its time is over.
        Forbidden: it is not for who asks to answer.
    """
    if request.answer is not None:
        return _plan_answer(request, request.answer, thread)
    sent = request.messages
    known_texts = [] if thread is None else thread.user_texts
    known_system = None if thread is None else thread.system_text
    is_known = thread is not None and thread.head.last_seq > 0
    if any(message.message is not None for message in sent):
        new, raw = list(sent), request.raw_messages
    else:
        new = new_messages(sent, known_texts, known=is_known, last_system=known_system)
        raw = request.raw_messages[first_new(sent, known_texts, known=is_known) :]
    system = system_text(sent)
    if system is None:
        system = known_system
    texts = [*known_texts, *(message.text for message in new if message.role == "user")][-KNOWN_TEXTS:]
    if thread is None:
        return Plan(new=new, raw=list(raw), system=system, texts=texts)  # A new thread is one's own.
    head = thread.head
    waits = head.status is RunStatus.AWAITING_INPUT
    if head.team is not None and head.team != request.team and (head.turn or waits):
        raise InvalidRequest(
            f"thread {head.thread_id!r} is a conversation with model {head.team!r}; start a new thread to talk to "
            f"{request.team!r}",
            param="model",
        )
    answers, event = None, None
    if waits:
        question, text = head.input_request or {}, new[-1].text
        check_may_answer(request.principal, question, thread.steered_by)
        _check_in_time(question)
        user_id = request.principal.user_id
        if question.get("kind") == "handoff":
            event = _received(question, user_id, {"content": text})
        else:
            answer = _answer_from_text(question, text)
            answers, event = [*_answers_so_far(thread), answer], _received(question, user_id, answer)
    return Plan(
        new=new,
        raw=list(raw),
        run_id=head.run_id if waits else None,
        resumes=waits,
        keep_run=head.status not in (RunStatus.ERROR, RunStatus.STOPPED, RunStatus.PAUSED),
        answers=answers,
        received=event,
        system=system,
        texts=texts,
        author=request.author,
    )


def _plan_answer(request: RunRequest, answer: Answer, thread: StoredThread | None) -> Plan:
    question = None if thread is None else thread.head.input_request
    _check_current(question, answer)
    assert thread is not None
    assert question is not None
    if isinstance(answer, NoAnswer):
        return _plan_denied(answer, question, thread)
    who = request.principal
    check_may_answer(who, question, thread.steered_by)
    _check_in_time(question)
    head = thread.head
    if question.get("kind") == "handoff":
        text = _text_of(answer)
        return Plan(
            new=[InputMessage("user", text)],
            raw=[{"role": "user", "content": text}],
            run_id=head.run_id,
            resumes=True,
            received=_received(question, who.user_id, {"content": text}),
            system=thread.system_text,
            texts=[*thread.user_texts, text][-KNOWN_TEXTS:],
            author=request.author,
        )
    given = _answer_to(question, answer)
    return Plan(
        run_id=head.run_id,
        resumes=True,
        answers=[*_answers_so_far(thread), given],
        received=_received(question, who.user_id, given),
        system=thread.system_text,
        texts=thread.user_texts,
    )


def _plan_denied(answer: NoAnswer, question: JsonObject, thread: StoredThread) -> Plan:
    """The run of an approval that nobody has answered in time is resumed, with the call denied."""
    given = {**_frame(question), "decision": "deny", "reason": answer.reason, "arguments": None, "content": ""}
    return Plan(
        run_id=thread.head.run_id,
        resumes=True,
        answers=[*_answers_so_far(thread), given],
        received=_received(question, None, {**given, "decision": "expired"}),
        system=thread.system_text,
        texts=thread.user_texts,
    )


def _answers_so_far(thread: StoredThread) -> list[JsonObject]:
    return [] if thread.run is None else list(thread.run["answers"] or [])


def _check_current(question: JsonObject | None, answer: Answer) -> None:
    """Raises `StaleAnswer` unless `question`, which the thread waits for, is the one that is answered."""
    if question is None:
        raise StaleAnswer("the thread waits for no answer", param="id")
    if question["id"] != answer.request_id:
        raise StaleAnswer("this input request was answered already, or withdrawn", param="id")


def _check_in_time(question: JsonObject) -> None:
    """Raises `StaleAnswer` when the question's deadline has passed."""
    deadline = question.get("deadline")
    if deadline is not None and datetime.fromisoformat(deadline) < utcnow():
        raise StaleAnswer("the time to answer this input request is over", param="id")


def _text_of(answer: Answer) -> str:
    """The text of an answer to a question that wants one."""
    if answer.decision is not None:
        raise InvalidRequest("a question is answered by a text, not by a decision", param="decision")
    if not answer.content:
        raise InvalidRequest("the answer has no text", param="text")
    return answer.content


def _answer_from_text(question: JsonObject, text: str) -> JsonObject:
    """What a plain chat message says to a question, as `Run.answers` keeps it.

    Raises:
        InvalidRequest: it is none of the choices; the message names them.
    """
    return {**_frame(question), **parse_decision(text, question)}


def _answer_to(question: JsonObject, answer: Answer) -> JsonObject:
    """An explicit answer, as `Run.answers` keeps it.

    Raises:
        InvalidRequest: it does not fit the question; `param` names the field.
    """
    if question["type"] != "approval":
        return _from_text(question, _text_of(answer))
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


def _received(question: JsonObject, user_id: str | None, answer: JsonObject) -> UserInputReceivedEvent:
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
        return _answer_from_text(question, text)
    except InvalidRequest as error:
        raise InvalidRequest(error.message, param="text") from None


def fingerprint(request: RunRequest) -> str:
    """SHA-256 over what makes a request the same request."""
    texts = [
        [each.role, each.text] if each.message is None else [each.role, dump_of(each.message)]
        for each in request.messages
    ]
    value = [request.team, *request.name[1:], texts, request.params.create_args(), request.extra]
    digest = hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=str))
    for index, message in enumerate(request.messages):
        for place, part in enumerate(message.content):
            if isinstance(part, Image):
                picture = part.image
                digest.update(f"{index}.{place} {picture.mode} {picture.size}".encode() + picture.tobytes())
    return digest.hexdigest()
