"""Plan decides what a request means for its thread, and what a person's answer says to the question that it waits
for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Final, Literal

import orjson
from autogen_core import Image

from drsai_backend.database.runs.reads import ThreadHead
from drsai_backend.database.runs.values import StepRow
from drsai_backend.datamodel import RunStatus, utcnow
from drsai_backend.datamodel.base import JsonText
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import InvalidRequest, OtherModel, StaleAnswer
from drsai_backend.json_types import DEEPEST, JsonObject, is_deep
from drsai_backend.runs.history.digest import Conversation, seed_of
from drsai_backend.runs.history.hidden import hidden_in
from drsai_backend.runs.messages import first_new, new_messages, system_text
from drsai_backend.runs.requests import Answer, Ask, InputMessage, KnownHistory, NoAnswer, Placed
from drsai_backend.runs.start.read import StoredThread
from drsai_backend.runs.start.results import match_results, raw_results, stale_results
from drsai_backend.runs.threads.rights import check_may_answer
from drsai_backend.teams.client_tools.definitions import ToolOutput, calls_of
from drsai_backend.teams.kept_calls import kept_calls
from drsai_backend.teams.messages import Message, UserInputReceivedEvent, dump_of
from drsai_backend.teams.recording.recorder import dump_message, storable
from drsai_backend.teams.suspension import parse_decision

# How many of the user's newest texts a warm thread remembers, to recognise a history that is sent again.
KNOWN_TEXTS = 100
_NOT_THERE: Final = (
    "the answer that `messages` ends with cannot be continued on this thread, which stands elsewhere, waits for a "
    "person, or is another model's: send the whole conversation, or add a message that asks for it, such as 'Continue.'"
)
_DECISIONS: Final = {"approval": ("approve", "deny", "edit"), "tool_retry": ("run", "result", "stop")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a request means for its thread.

    `new` are the messages to take, `raw` the same in OpenAI's shape. `resumes`: the run that is there (`run_id`) is
    resumed; with `keep_run` its team knows what it had under way. `answers`: what people have said to the questions of
    the turn in flight, which is repeated; None: the messages are the task. `received` keeps what was answered.
    `system` is the client's system message, `texts` are the newest texts of the user. `author`: the user who has sent
    `new`, where the thread is another's. `conversation` is what the client has, `new` included. `is_moved`: the thread
    was another team's, and this one begins with its history. `hidden` are the thread's hidden words with these (see
    `runs.history.hidden`); None: they are not known.
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
    conversation: Conversation
    is_moved: bool = False
    hidden: frozenset[bytes] | None = None


def plan_resumed(thread: StoredThread) -> Plan:
    """Return how a run that was cut, or paused, is resumed where it stood."""
    return Plan(
        run_id=thread.head.run_id,
        resumes=True,
        answers=_answers_so_far(thread),
        system=thread.system_text,
        texts=thread.user_texts[-KNOWN_TEXTS:],
        conversation=_known_conversation(thread),
    )


def plan(given: Placed, thread: StoredThread | None, *, may_move: bool) -> Plan:
    """Decide what a request adds to its thread. `may_move`: a thread may go over to another team.

    Raises:
        InvalidRequest: nothing new in `messages`, or the answer is none to its question.
        OtherModel: the thread is another team's, and waits for an answer, or may not go over.
        Conflict: the question was answered already, or is another one, or its time is over.
        Forbidden: it is not for who asks to answer.
    """
    if given.ask.answer is not None:
        return _plan_answer(given, given.ask.answer, thread)
    if given.ask.tool_results and thread is not None:
        return _plan_results(given, thread, given.ask.tool_results)
    if thread is None:
        return _plan_new(given)
    sent = given.ask.messages
    known_texts = thread.user_texts
    known_system, is_known = thread.system_text, thread.is_known
    if given.ask.continues is not None and is_known and given.known is None:
        raise InvalidRequest(_NOT_THERE, param="messages")
    if given.known is not None and is_known:
        new, raw = _after(given, given.known, known_system)
    elif any(message.message is not None for message in sent):
        new, raw = list(sent), given.ask.raw_messages
    else:
        new = new_messages(sent, known_texts, known=is_known, last_system=known_system)
        raw = given.ask.raw_messages[first_new(sent, known_texts, known=is_known) :]
    system = _system_text(given)
    if system is None:
        system = known_system
    texts = [*known_texts, *(message.text for message in new if message.role == "user")][-KNOWN_TEXTS:]
    conversation = _conversation(given, thread, new)
    head = thread.head
    waits = head.status is RunStatus.AWAITING_INPUT
    is_other = head.team not in (None, given.ask.team)
    is_moved = is_other and (bool(head.turn) or waits or thread.has_answers)
    if is_moved and (waits or not may_move):
        raise _other_model(head, given.ask.team)
    answers, event = _reply(given, thread, new[-1].text) if waits else (None, None)
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
        author=given.author,
        conversation=conversation,
        is_moved=is_moved,
        hidden=None if waits else _hidden(given, thread, new),
    )


def _reply(given: Placed, thread: StoredThread, text: str) -> tuple[list[JsonObject] | None, UserInputReceivedEvent]:
    """Return what a message says to the question that its thread waits for, as `Plan.answers` and `Plan.received`.
    Raises as `plan`."""
    question, user_id = thread.head.input_request or {}, given.who.user_id
    if calls_of(question):
        raise InvalidRequest("the run waits for the results of its client's tools", param="messages")
    check_may_answer(given.who, question, thread.steered_by)
    _check_in_time(question)
    if question.get("kind") == "handoff":
        return None, _received(question, user_id, {"content": text})
    answer = _answer_from_text(question, text)
    return [*_answers_so_far(thread), answer], _received(question, user_id, answer)


def _plan_new(given: Placed) -> Plan:
    """Return what a request means for a thread that is none yet, and so is one's own: all of it is new."""
    ask, sent = given.ask, given.ask.messages
    if not any(message.message is not None for message in sent):
        first_new(sent, (), known=False)
    if given.known is None:
        conversation = Conversation(seed_of(given.name.owner, ask.team)).hear(sent)
    else:
        conversation = given.known.conversation.copy()
    return Plan(
        new=sent,
        raw=list(ask.raw_messages),
        system=_system_text(given),
        texts=[message.text for message in sent if message.role == "user"][-KNOWN_TEXTS:],
        conversation=conversation,
        hidden=hidden_in(sent),
    )


def _hidden(given: Placed, thread: StoredThread, new: Sequence[InputMessage]) -> frozenset[bytes] | None:
    before = None if thread.warm is None else thread.warm.hidden
    if given.known is not None and given.known.hidden is not None:
        before = given.known.hidden
    return None if before is None else before | hidden_in(new)


def _after(
    given: Placed, known: KnownHistory, known_system: str | None
) -> tuple[list[InputMessage], Sequence[JsonObject]]:
    """Return what of a request is new to a thread that knows the messages before, and the same in OpenAI's shape."""
    sent, start = given.ask.messages, known.new_from
    # It need not stand among what is new.
    is_changed = _system_text(given) not in (None, known_system or "")
    changed = [sent[index] for index in known.systems] or [InputMessage("system", "")] if is_changed else []
    return [*changed, *(each for each in sent[start:] if each.role != "system")], given.ask.raw_messages[start:]


def _system_text(given: Placed) -> str | None:
    """Do as `system_text`, without looking for them again in a history that was digested. A client that names no thread
    sends all that holds: "", where it sends none."""
    sent, known = given.ask.messages, given.known
    if known is None:
        return system_text(sent)
    text = system_text([sent[index] for index in known.systems])
    return "" if text is None and known.by_words else text


def _conversation(given: Placed, thread: StoredThread, new: Sequence[InputMessage]) -> Conversation:
    if given.known is not None:
        return given.known.conversation.copy()
    return _known_conversation(thread).heard(new)


def _known_conversation(thread: StoredThread) -> Conversation:
    assert thread.conversation is not None, "it is left out only where the request brings it"
    return thread.conversation


def _plan_answer(given: Placed, answer: Answer, thread: StoredThread | None) -> Plan:
    question = None if thread is None else thread.head.input_request
    _check_current(question, answer)
    assert thread is not None
    assert question is not None
    if isinstance(answer, NoAnswer):
        return _plan_denied(answer, question, thread)
    who = given.who
    check_may_answer(who, question, thread.steered_by)
    _check_in_time(question)
    head = thread.head
    if question.get("kind") == "client_tool":
        if answer.results is None:
            raise InvalidRequest("`results` is required: those of the calls that the run waits for", param="results")
        return _plan_results(given, thread, answer.results)
    if answer.results is not None:
        raise InvalidRequest("this question is not answered by results of tools", param="results")
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
            author=given.author,
            conversation=_conversation(given, thread, [InputMessage("user", text)]),
        )
    reply = _answer_to(question, answer)
    said = [InputMessage("user", reply.get("content") or "")]
    return Plan(
        run_id=head.run_id,
        resumes=True,
        answers=[*_answers_so_far(thread), reply],
        received=_received(question, who.user_id, reply),
        system=thread.system_text,
        texts=thread.user_texts,
        conversation=_conversation(given, thread, said),
    )


def _plan_results(given: Placed, thread: StoredThread, results: Sequence[ToolOutput]) -> Plan:
    """The run that waits for the client's tools is resumed with their results.

    Raises:
        StaleAnswer: it does not wait for these any more.
        OtherModel: it is another team's.
        InvalidRequest: one is missing, or is of no call.
        Forbidden: it is not for who asks to bring them.
    """
    question = thread.head.input_request or {}
    if thread.head.status is not RunStatus.AWAITING_INPUT or not calls_of(question):
        raise stale_results(results)
    if thread.head.team not in (None, given.ask.team):
        # It would begin its turn anew, and do again what that one's agents have done.
        raise _other_model(thread.head, given.ask.team)
    check_may_answer(given.who, question, thread.steered_by)
    _check_in_time(question)
    sent = given.ask.messages
    said = list(takewhile(lambda message: message.role != "tool", reversed(sent)))[::-1]
    matched = match_results(question, results, said)
    system = system_text(sent)
    returned: JsonObject = {"results": [each["content"] for each in matched]}
    told = [text for text in (question.get("thought"), question.get("content")) if text]
    texts = [each.text for each in said if each.role == "user" and each.text.strip()]
    return Plan(
        raw=list(given.ask.raw_messages[-len(results) - len(said) :]) or raw_results(question, matched),
        run_id=thread.head.run_id,
        resumes=True,
        answers=[*_answers_so_far(thread), {**_frame(question), "content": "", "results": matched, "told": told}],
        received=_received(
            question,
            given.who.user_id,
            {"content": "\n\n".join(texts), "decision": "results", "arguments": returned},
        ),
        system=thread.system_text if system is None else system,
        texts=thread.user_texts[-KNOWN_TEXTS:],
        conversation=_conversation(given, thread, said),
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
        conversation=_known_conversation(thread),
    )


def _answers_so_far(thread: StoredThread) -> list[JsonObject]:
    return [] if thread.run is None else list(thread.run["answers"] or [])


def _check_current(question: Mapping[str, object] | None, answer: Answer) -> None:
    """Raise `StaleAnswer` unless `question`, which the thread waits for, is the one that is answered."""
    if question is None:
        raise StaleAnswer("the thread waits for no answer", param="id")
    if question["id"] != answer.request_id:
        raise StaleAnswer("this input request was answered already, or withdrawn", param="id")


def _other_model(head: ThreadHead, asked: str) -> OtherModel:
    """The error where another team is asked than the thread's, which waits for an answer, or may not go over."""
    text = f"is a conversation with model {head.team!r}; start a new thread to talk to {asked!r}"
    if head.status is RunStatus.AWAITING_INPUT:
        text = f"waits for an answer to model {head.team!r}: answer it there, or cancel its run"
    return OtherModel(f"thread {head.thread_id!r} {text}", param="model")


def _check_in_time(question: JsonObject) -> None:
    """Raise `StaleAnswer` when the question's deadline has passed."""
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


def _answer_from_text(question: Mapping[str, object], text: str) -> JsonObject:
    """Return what a plain chat message says to a question, as `Run.answers` keeps it.

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
    if is_deep(answer.arguments):
        raise InvalidRequest(f"`arguments` is nested deeper than {DEEPEST} levels", param="arguments")
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


def last_messages(
    decision: Literal["expired", "withdrawn"],
    user_id: str | None,
    question: JsonObject | None,
    steps: Sequence[StepRow],
) -> list[JsonText]:
    """The last messages of a run that nobody holds, as dumps: the calls of its turn in flight, of which `steps` is what
    is recorded, and the one that says that its question has no answer."""
    last: list[Message] = [*kept_calls(steps)]
    if question is not None:
        last.append(UserInputReceivedEvent(content="", decision=decision, user_id=user_id, input_request=question))
    return [JsonText(storable(dump_message(each))) for each in last]


def _frame(question: Mapping[str, object]) -> JsonObject:
    return {name: value for name in ("source", "key", "place") if (value := question.get(name)) is not None}


def _from_text(question: Mapping[str, object], text: str) -> JsonObject:
    try:
        return _answer_from_text(question, text)
    except InvalidRequest as error:
        raise InvalidRequest(error.message, param="text") from None


def fingerprint(ask: Ask, name: ThreadName) -> str:
    """Return what makes a request the same request: SHA-256 over it, unless it brings something of its own."""
    if ask.origin.fingerprint is not None:
        return ask.origin.fingerprint
    texts = [
        [each.role, each.text if each.message is None else dump_of(each.message), *([each.name] if each.name else ())]
        for each in ask.messages
    ]
    value: list[object] = [ask.team, *name[1:], texts, ask.params.create_args(), ask.extra]
    if ask.client_tools is not None or ask.tool_results:
        tools = None if ask.client_tools is None else ask.client_tools.to_json()
        value += [tools, [[each.call_id, each.name, each.content, each.is_error] for each in ask.tool_results]]
    if ask.continues is not None:
        value.append({"continues": ask.continues})
    value += [] if ask.shown is None else [{"shown": ask.shown}]
    digest = hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=str))
    for index, message in enumerate(ask.messages):
        for place, part in enumerate(() if isinstance(message.content, str) else message.content):
            if isinstance(part, Image):
                # Not its pixels: to decode an image takes seconds.
                digest.update(f"{index}.{place} {part.to_base64()}".encode())
    return digest.hexdigest()
