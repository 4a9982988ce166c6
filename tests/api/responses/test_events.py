"""The events of a response: the grammar, and numbers that are the same for every reader."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from autogen_agentchat.messages import TextMessage, ThoughtEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend.api.openai.responses.events import EventWriter, after
from drsai_backend.api.openai.responses.wire import Subject
from drsai_backend.datamodel import RunStatus
from drsai_backend.runs import MessageDone, RunEnded, RunEvent, RunStarted, TextDelta
from tests.support.open_responses import RESPONSE, check, check_events

USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
COMPLETED = RunEnded(RunStatus.COMPLETED, "done", USAGE, 0.25)


def writer(speakers: int = 1, **record: Any) -> EventWriter:
    return EventWriter(Subject("run_1", 1_700_000_000, "team", "t", record), speakers)


def written(events: list[RunEvent], speakers: int = 1) -> list[Any]:
    told = writer(speakers)
    return [*told.opening(), *(each for event in events for each in told.take(event))]


def said(source: str, text: str, seq: int, *, shown: bool = True) -> MessageDone:
    return MessageDone(seq, TextMessage(source=source, content=text), shown)


def thought(source: str, text: str, seq: int) -> MessageDone:
    return MessageDone(seq, ThoughtEvent(source=source, content=text), shown=False)


def kinds(events: list[Any]) -> list[str]:
    return [each["type"].removeprefix("response.") for each in events]


def test_a_lone_agents_answer() -> None:
    events = written(
        [
            said("user", "Hi", 1, shown=False),
            TextDelta("a", "Hel"),
            TextDelta("a", "lo"),
            said("a", "Hello", 2),
            COMPLETED,
        ]
    )
    assert kinds(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    response = check_events(events)
    assert response["output"][0]["content"][0]["text"] == "Hello"
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (7, 5)


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[str, str, str]]:
    """Of each message: who says it, its text, and what was thought before."""
    texts = st.text("ab \n*", min_size=1, max_size=12)
    one = st.tuples(st.sampled_from(["ann", "bob"]), texts, st.sampled_from(["", "hm"]))
    return draw(st.lists(one, min_size=1, max_size=5))


def stored(messages: list[tuple[str, str, str]]) -> list[RunEvent]:
    events: list[RunEvent] = []
    for seq, (source, text, thinks) in enumerate(messages):
        if thinks:
            events.append(thought(source, thinks, 2 * seq + 1))
        events.append(said(source, text, 2 * seq + 2))
    return [*events, COMPLETED]


@settings(deadline=None)
@given(conversations(), st.data())
def test_a_reader_continues_anywhere_after_any_event(messages: list[tuple[str, str, str]], data: st.DataObject) -> None:
    """One has streamed the response as it was produced, the other reads what is stored: with what the first has told up
    to any event, what the second tells after it makes the same texts, and each end is told once."""
    live: list[RunEvent] = []
    for event, (source, text, _) in zip(
        [each for each in stored(messages) if isinstance(each, MessageDone) and each.shown], messages, strict=True
    ):
        cuts = sorted(data.draw(st.sets(st.integers(1, len(text)), max_size=3)) | {0, len(text)})
        live += [TextDelta(source, text[a:b]) for a, b in pairwise(cuts)]
        live += [each for each in stored(messages) if isinstance(each, MessageDone) and each.seq == event.seq - 1]
        live.append(event)
    streamed, whole = written([*live, COMPLETED], 2), written(stored(messages), 2)
    first, second = check_events(streamed), check_events(whole)
    assert first["output"] == second["output"]
    place = data.draw(st.integers(0, len(streamed) - 1))
    number = streamed[place]["sequence_number"]
    both = [*streamed[: place + 1], *after(whole, number)]
    check_events(both)
    assert after(streamed, number) == streamed[place + 1 :]


def test_the_texts_of_all_items_are_the_text_of_a_chat_completion() -> None:
    events = written([said("ann", "One.", 1), said("bob", "Two.", 2), COMPLETED], 2)
    texts = [item["content"][0]["text"] for item in check_events(events)["output"]]
    assert "".join(texts) == "**ann**\n\nOne.\n\n**bob**\n\nTwo."


def test_speakers_of_one_turn_are_told_one_after_the_other() -> None:
    events = written(
        [
            TextDelta("ann", "A"),
            TextDelta("bob", "B"),
            TextDelta("ann", "a"),
            said("bob", "Bb", 1),
            said("ann", "Aa", 2),
            COMPLETED,
        ],
        2,
    )
    texts = [item["content"][0]["text"] for item in check_events(events)["output"]]
    assert texts == ["**ann**\n\nAa", "\n\n**bob**\n\nBb"]


def test_a_repeated_turn_that_says_the_same_continues_its_item() -> None:
    events = written(
        [
            RunStarted("run_1", "t", 1),
            TextDelta("a", "Hel"),
            RunStarted("run_1", "t", 2),
            TextDelta("a", "Hello"),
            said("a", "Hello", 2),
            COMPLETED,
        ]
    )
    assert [each["delta"] for each in events if each["type"] == "response.output_text.delta"] == ["Hel", "lo"]
    assert len(check_events(events)["output"]) == 1


def test_a_repeated_turn_that_says_something_else_is_an_item_of_its_own() -> None:
    """What nobody said in the end is closed as incomplete, and is no part of the answer."""
    events = written(
        [
            TextDelta("a", "Hel"),
            RunStarted("run_1", "t", 2),
            TextDelta("a", "Bye"),
            said("a", "Bye", 2),
            said("a", "Now.", 3),
            COMPLETED,
        ]
    )
    response = check_events(events)
    done = [each["item"] for each in events if each["type"] == "response.output_item.done"]
    assert [item["status"] for item in done] == ["incomplete", "completed", "completed"]
    assert [item["content"][0]["text"].strip() for item in response["output"]] == ["Bye", "Now."]
    # A reader that continues elsewhere after the first answer misses nothing.
    number = next(each["sequence_number"] for each in events if each.get("item") == done[1] and "done" in each["type"])
    rest = after(written([said("a", "Bye", 2), said("a", "Now.", 3), COMPLETED]), number)
    assert kinds(rest)[0] == "output_item.added"
    assert rest[-1]["type"] == "response.completed"


@pytest.mark.parametrize(
    ("ended", "status", "kind", "reason"),
    [
        (RunEnded(RunStatus.STOPPED), "cancelled", "incomplete", None),
        (RunEnded(RunStatus.STOPPED, stop_code="max_turns"), "incomplete", "incomplete", "max_turns"),
        (RunEnded(RunStatus.STOPPED, stop_code="max_run_tokens"), "incomplete", "incomplete", "max_output_tokens"),
        (RunEnded(RunStatus.PAUSED), "incomplete", "incomplete", "paused"),
        (RunEnded(RunStatus.ERROR, error_code="timeout", error_message="too slow"), "failed", "failed", None),
    ],
)
def test_how_a_response_ends(ended: RunEnded, status: str, kind: str, reason: str | None) -> None:
    events = written([TextDelta("a", "Hel"), ended])
    last = events[-1]
    check(last["response"], RESPONSE)
    assert (last["type"], last["response"]["status"]) == (f"response.{kind}", status)
    assert (last["response"]["incomplete_details"] or {}).get("reason") == reason
    assert last["response"]["drsai"]["error_code"] == ended.error_code
    assert (last["response"]["error"] or {}).get("code") == (ended.error_code and "server_error")
    assert last["response"]["output"] == []  # It was not stored.


def test_a_run_that_continues_elsewhere_ends_the_stream_with_an_error() -> None:
    events = written(
        [TextDelta("a", "Hel"), RunEnded(RunStatus.RUNNING, error_code="shutting_down", error_message="x")]
    )
    assert (events[-1]["type"], events[-1]["error"]["code"]) == ("error", "shutting_down")


def test_an_approval_is_an_item() -> None:
    asked = {
        "id": "q1",
        "type": "approval",
        "kind": "approval",
        "source": "clerk",
        "prompt": "May I?",
        "tool": {"name": "pay", "arguments": {"euros": 5}, "call_id": "c"},
    }
    response = written([RunEnded(RunStatus.AWAITING_INPUT, input_request=asked)])[-1]["response"]
    [text, item] = response["output"]
    assert text["content"][0]["text"] == "May I?"
    assert item == {
        "type": "mcp_approval_request",
        "id": "mcpr_1_q1",
        "server_label": "clerk",
        "name": "pay",
        "arguments": '{"euros":5}',
    }
    assert response["status"] == "completed"


def test_a_text_in_a_form_has_no_headings() -> None:
    told = writer(2, text={"format": {"type": "json_object"}})
    events = [each for event in (said("ann", "{}", 1), COMPLETED) for each in told.take(event)]
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "{}"
