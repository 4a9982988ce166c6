"""The results of a client's tools belong to calls, and to a run that waits for them: both are found here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from drsai_backend.database import Database
from drsai_backend.database.runs.log import head_of_run
from drsai_backend.database.runs.reads import ThreadHead, read_head
from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import InvalidRequest, StaleAnswer
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.requests import Admitted, InputMessage
from drsai_backend.teams.client_tools.definitions import THE_USER_ADDS, ToolOutput, calls_of, run_of_call

_INSTEAD: Final = "send a message, or the whole conversation with the calls and their results"


async def waiting_for(database: Database, request: Admitted) -> tuple[Admitted, bool]:
    """A request that brings results, with the thread whose run waits for them: the ids of the calls lead to it. Where
    nothing here waits for them, they are a part of a history that was had elsewhere, and `tool_results` is empty.
    False: the thread is known, and may not wait for them (any more).

    Raises:
        StaleAnswer: the run has taken them already, and is at work.
        InvalidRequest: they are of several runs; `param` names the first that is not of the first one's.
    """
    results, named = request.ask.tool_results, request.where.thread_id
    run_id = run_of_call(results[0].call_id)
    for each in results:
        if run_of_call(each.call_id) != run_id:
            text = f"`{each.where}`: {each.call_id!r} is a call of another run than {results[0].call_id!r}"
            raise InvalidRequest(text, param=each.where)
    if run_id is not None:
        owner = request.where.owner_of(request.who)
        head = await database.read(lambda session: head_of_run(session, owner, run_id))
        if head is not None and head.run_id == run_id and named in (None, head.thread_id):
            if named is None and head.team not in (None, request.ask.team):
                return request.but(tool_results=()), True  # What another model's run has done is not done again.
            waits, is_at_work = _waits(head, request), head.status in (RunStatus.RUNNING, RunStatus.PAUSED)
            if waits or request.ask.origin.key is not None:
                # With a key, it may be a request that comes again; else the plan says that they were taken.
                return request.at(thread_id=head.thread_id), waits or is_at_work
            if is_at_work:
                raise stale_results(results)
    if named is not None:
        head = await database.read(lambda session: read_head(session, request.name))
        if head is not None:
            return request, _waits(head, request)  # They may have no ids.
    return request.but(tool_results=()), True


def check_shown(request: Admitted) -> None:
    """Raise InvalidRequest where results that nothing here waits for come without their calls: nobody would be told of
    them."""
    first = request.ask.tool_results[0]
    if not any(message.calls for message in request.ask.messages):
        call = repr(first.call_id or first.name)
        text = f"`{first.where}`: nothing here waits for the result of {call}: {_INSTEAD}"
        raise InvalidRequest(text, param=first.where)


def _waits(head: ThreadHead, request: Admitted) -> bool:
    """Whether a thread waits for one of the results that a request brings; the plan says what is wrong with the others,
    and with all of them where the request does not show what they are of."""
    calls = calls_of(head.input_request) if head.status is RunStatus.AWAITING_INPUT else ()
    ids = {"", *(call["id"] for call in calls)}
    is_bare = not any(each.calls for each in request.ask.messages)
    return bool(calls) and (is_bare or any(each.call_id in ids for each in request.ask.tool_results))


def match_results(
    question: Mapping[str, object], results: Sequence[ToolOutput], said: Sequence[InputMessage] = ()
) -> list[JsonObject]:
    """A result for each call of a question, in its order, as `Run.answers` keeps them.

    Args:
        said: what the user has said after the results. Nothing may stand between calls and results, and the turn
            continues with the results: it is added to the last one, in words that say whose they are.

    Raises:
        InvalidRequest: a result is missing, given twice, or of no call; `param` names its place.
    """
    calls = calls_of(question)
    by_id: dict[str, ToolOutput] = {}
    for result in results:
        call_id = result.call_id or _id_of(calls, result)
        if not any(call["id"] == call_id for call in calls):
            waited = ", ".join(repr(call["id"]) for call in calls)
            raise InvalidRequest(
                f"`{result.where}`: the run waits for no call {call_id!r}; it waits for {waited}", param=result.where
            )
        if call_id in by_id:
            raise InvalidRequest(f"`{result.where}`: {call_id!r} has a result already", param=result.where)
        by_id[call_id] = result
    missing = [f"{call['id']} ({call['name']})" for call in calls if call["id"] not in by_id]
    if missing:
        where = results[0].where.partition("[")[0] if results else "results"
        raise InvalidRequest(
            f"`{where}` has no result for {', '.join(missing)}: the run waits for one of each call; if a tool has "
            "failed, say so in its result",
            param=where,
        )
    matched: list[JsonObject] = []
    for call in calls:
        found = by_id[call["id"]]
        names = {"key": call["key"], "called": call["called"]}
        matched.append({**names, "content": found.content, "is_error": found.is_error})
    for message in said:
        if not isinstance(message.content, str):
            text = "images cannot follow the results of tools: send them with the next message"
            raise InvalidRequest(text, param="messages")
        if message.role == "user" and message.content.strip():
            matched[-1]["content"] += f"{THE_USER_ADDS}{message.content}"
    return matched


def _id_of(calls: Sequence[JsonObject], result: ToolOutput) -> str:
    """The id of the call of a tool with that name, where the client's API has no ids."""
    return next((call["id"] for call in calls if call["name"] == result.name), result.name or "")


def stale_results(results: Sequence[ToolOutput]) -> StaleAnswer:
    """The error where a run does not wait for results, or not any more."""
    first = results[0] if results else ToolOutput("", "")
    call = repr(first.call_id or first.name)
    return StaleAnswer(
        f"the thread does not wait for the result of {call}, or not any more: {_INSTEAD}", param=first.where
    )


def raw_results(question: Mapping[str, object], matched: Sequence[Mapping[str, object]]) -> list[JsonObject]:
    """The results as messages in OpenAI's shape, where they came otherwise."""
    pairs = zip(calls_of(question), matched, strict=True)
    return [{"role": "tool", "tool_call_id": call["id"], "content": result["content"]} for call, result in pairs]
