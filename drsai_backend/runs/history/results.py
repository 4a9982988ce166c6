"""Results of a client's tools tell conversations apart whose texts, and so whose digests, are equal: what the tools
have returned is not for the other one's reader."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from drsai_backend.database.runs.history import are_on_thread, begins_of, containing
from drsai_backend.database.runs.paths import Line, branch_of, newest_message
from drsai_backend.database.runs.reads import read_head
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.messages import results_after
from drsai_backend.runs.requests import InputMessage
from drsai_backend.teams.client_tools.definitions import THE_USER_ADDS, calls_of, run_of_call
from drsai_backend.teams.imported import imported_results
from drsai_backend.teams.messages import is_received

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_MARKS: Final = ("drsai.tool_calls", "client_tool")
"""One of them is in each stored message that holds results."""


def brought(messages: Sequence[InputMessage]) -> dict[str, str]:
    """The results that a history shows with their calls, by the ids of these."""
    found: dict[str, str] = {}
    for index, message in enumerate(messages):
        if message.calls and (results := results_after(messages, index)).keys() == {call.id for call in message.calls}:
            found |= results
    return found


def asked_before(messages: Sequence[InputMessage]) -> int | None:
    """Return how many messages a history has up to the question whose turn its last results are of; the user may have
    said more after these. None: it shows no such question, or the results without their calls."""
    end, asked = len(messages), None
    while end:
        after = end
        while end and messages[end - 1].role in ("user", "system"):
            end -= 1
        if asked is not None:
            asked = after
        if not end or not (messages[end - 1].role == "tool" or messages[end - 1].calls):
            break  # The answer before that question.
        has_calls = False
        while end and messages[end - 1].role in ("tool", "assistant"):
            end -= 1
            has_calls = has_calls or bool(messages[end].calls)
        if not has_calls:
            return None
        asked = end
    is_asked = asked is not None and any(each.role == "user" and not each.is_empty for each in messages[end:asked])
    return asked if is_asked else None


def are_of(session: Session, line: Line, results: Mapping[str, str]) -> bool | None:
    """Whether a path has the results that a history brings: those of calls that were made here by their ids, others by
    what was returned. None: no results are stored there, as of a team that takes no tools."""
    ours = {call: run_of_call(call) for call in results}
    runs = {run_id for run_id in ours.values() if run_id is not None}
    if line.branch is None and None not in ours.values() and are_on_thread(session, line, runs):
        return True
    stored: dict[str, str] = {}
    for config in containing(session, line, _MARKS):
        stored |= _returned(config)
    if not stored:
        return None
    contents = {content.partition(THE_USER_ADDS)[0] for content in stored.values()}
    return all(
        call in stored if ours[call] is not None else content.partition(THE_USER_ADDS)[0] in contents
        for call, content in results.items()
    )


def are_of_first_run(session: Session, name: ThreadName, calls: Collection[str]) -> bool:
    """Whether a thread, or a branch of it, began with the run that has made one of these calls."""
    runs = {run_id for call in calls if (run_id := run_of_call(call)) is not None}
    head = read_head(session, name)
    return head is not None and any(
        not newest_message(session, Line(head.key, branch_of(session, head.key, "seq", seq), seq=seq - 1))
        for seq in begins_of(session, head.key, runs)
    )


def _returned(config: JsonObject) -> dict[str, str]:
    """The results that a stored message holds, by the ids of their calls."""
    if not is_received(config):
        return imported_results(config)
    given: JsonObject = config.get("arguments") or {}
    if config.get("decision") != "results":
        return {}
    calls = calls_of(config.get("input_request"))
    return {call["id"]: content for call, content in zip(calls, given.get("results", ()), strict=False)}
