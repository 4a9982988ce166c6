"""What a reader sees: never mixed, never twice, and the same text streamed or whole."""

from __future__ import annotations

import json
import re
from typing import Any

from autogen_agentchat.messages import HandoffMessage, ThoughtEvent
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.api.openai.chat.wire import ChunkWriter, CompletionWriter
from drsai_backend.api.openai.speech import Speech
from drsai_backend.datamodel import RunStatus
from drsai_backend.runs.events import MessageDone, RunEnded, RunEvent, RunStarted, TextDelta
from tests.api.scripts import COMPLETED, said, spoken


class Handle:
    """What the writers read of a run."""

    run_id, thread_id, team, created = "r", "t", "team", 1

    def __init__(self, speakers: int) -> None:
        self.speakers = speakers


def text_of(events: list[RunEvent], *, marks: bool = False) -> str:
    return "".join(pieces(events, marks=marks))


def pieces(events: list[RunEvent], *, marks: bool = False) -> list[str]:
    speech = Speech(marks=marks)
    shown: list[str] = []
    for event in events:
        if isinstance(event, TextDelta):
            shown += [piece.text for piece in speech.delta(event)]
        elif isinstance(event, MessageDone):
            shown += [piece.text for piece in speech.done(event)]
        elif isinstance(event, RunStarted):
            shown += [piece.text for piece in speech.restart()]
        else:
            shown += [piece.text for piece in speech.end()]
    return shown


def frames_of(batches: list[list[RunEvent]], speakers: int) -> list[dict[str, Any]]:
    writer = ChunkWriter(Handle(speakers), include_usage=False)  # type: ignore[arg-type]
    blob = writer.opening() + b"".join(writer.frames(batch) for batch in batches)
    blocks = blob.decode().split("\n\n")[:-1]
    return [json.loads(block.removeprefix("data: ")) for block in blocks if block != "data: [DONE]"]


# A message of a random run: who says it, in which pieces, how it is stored.
texts = st.text(st.sampled_from("ab \n*é"), min_size=1, max_size=4)
spoken_messages = st.tuples(
    st.sampled_from(["ann", "bob", "cid"]),
    st.lists(texts, min_size=1, max_size=4),
    st.booleans(),  # streamed
    st.booleans(),  # deltas name their message
    st.sampled_from(["same", "more", "other", "hidden", "never"]),  # how what is stored relates to the deltas
)


@st.composite
def turns(draw: st.DrawFn, outcomes: tuple[str, ...] = ("same", "more", "other", "hidden", "never")) -> list[RunEvent]:
    """The events of one turn: its speakers' deltas interleave, then its messages are stored."""
    messages = draw(
        st.lists(
            spoken_messages.filter(lambda message: message[4] in outcomes),
            max_size=3,
            unique_by=lambda message: message[0],
        )
    )
    number = draw(st.integers(0, 10**9))
    queues: list[list[RunEvent]] = []
    stored: list[RunEvent] = []
    for index, (source, parts, streamed, named, outcome) in enumerate(messages):
        message_id = f"m{number}-{index}"
        if streamed:
            queues.append([TextDelta(source, part, message_id if named else None) for part in parts])
        text = "".join(parts) + {"more": " more", "other": "another"}.get(outcome, "")
        if outcome == "other":
            text = text[::-1]
        if outcome != "never":
            stored.append(said(source, text, 1, shown=outcome != "hidden", id=message_id))
    events: list[RunEvent] = []
    while queues := [queue for queue in queues if queue]:
        events.append(draw(st.sampled_from(queues)).pop(0))
    return events + draw(st.permutations(stored))


@st.composite
def runs(draw: st.DrawFn, **options: Any) -> list[RunEvent]:
    return [event for turn in draw(st.lists(turns(**options), max_size=4)) for event in turn]


endings = st.sampled_from(
    [
        COMPLETED,
        RunEnded(RunStatus.STOPPED),
        RunEnded(RunStatus.AWAITING_INPUT, input_request={"prompt": "Which?", "source": "bob"}),
    ]
)


@given(runs(), endings, st.sampled_from([1, 3]), st.data())
def test_the_whole_answer_is_what_is_stored(
    events: list[RunEvent], ended: RunEnded, speakers: int, data: st.DataObject
) -> None:
    events = [*events, ended]
    whole = CompletionWriter(Handle(speakers))  # type: ignore[arg-type]
    whole.take(events)
    body = whole.body(ended)
    stored = [event for event in events if not isinstance(event, TextDelta)]
    again = CompletionWriter(Handle(speakers))  # type: ignore[arg-type]
    again.take(stored)
    assert again.body(ended) == body, "however it came to be"
    assert frames_of([stored], speakers)[-1]["drsai"] == body["drsai"]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=5)))
    batches = [events[start:end] for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True)]
    frames = frames_of(batches, speakers)
    deltas = [frame["choices"][0]["delta"] for frame in frames]
    streamed = frames_of([stored], speakers)
    text = "".join(frame["choices"][0]["delta"].get("content", "") for frame in streamed)
    assert text == body["choices"][0]["message"]["content"]
    assert [delta.get("role") for delta in deltas] == ["assistant", *[None] * (len(deltas) - 1)]
    assert [frame["choices"][0]["finish_reason"] for frame in frames] == [*[None] * (len(frames) - 1), "stop"]
    assert all(delta.keys() == {"content"} for delta in deltas[1:-1])
    assert all(("drsai" in frame) == (speakers > 1) for frame in frames[1:-1])
    assert frames[-1]["drsai"] == body["drsai"]


@given(runs(outcomes=("same", "more")))
def test_every_message_is_shown_once_and_unmixed(events: list[RunEvent]) -> None:
    shown = text_of([*events, COMPLETED], marks=True)
    blocks = [
        f"**{event.message.source}**\n\n{event.message.to_text()}"
        for event in events
        if isinstance(event, MessageDone) and event.message.to_text()
    ]
    # Blocks come in the order in which they were begun, so only the set of them is known.
    rest = shown
    for block in sorted(blocks, key=len, reverse=True):
        assert block in rest
        rest = rest.replace(block, "", 1)
    assert rest.strip() == ""


@given(runs(outcomes=("same",)))
def test_the_first_speaker_is_heard_at_once(events: list[RunEvent]) -> None:
    if events and isinstance(events[0], TextDelta):
        assert pieces(events[:1], marks=True) == [f"**{events[0].source}**\n\n{events[0].text}"]


def test_speakers_at_once_take_turns() -> None:
    events: list[RunEvent] = [
        TextDelta("ann", "a1 "),
        TextDelta("bob", "b1 "),
        TextDelta("ann", "a2"),
        TextDelta("bob", "b2"),
        said("bob", "b1 b2"),
        said("ann", "a1 a2"),
        COMPLETED,
    ]
    assert pieces(events, marks=True) == ["**ann**\n\na1 ", "a2", "\n\n**bob**\n\nb1 b2"]


def test_a_speaker_that_goes_on_lets_the_next_one_in() -> None:
    events: list[RunEvent] = [
        TextDelta("ann", "first", "m1"),
        TextDelta("bob", "waits", "m2"),
        TextDelta("ann", "second", "m3"),
        TextDelta("bob", " no more", "m2"),
        said("ann", "first", id="m1"),
        said("bob", "waits no more", id="m2"),
        said("ann", "second", id="m3"),
    ]
    assert pieces(events) == ["first", "\n\nwaits", " no more", "\n\nsecond"]


def test_a_message_that_was_streamed_is_not_said_again() -> None:
    assert text_of(spoken("ann", "one ", "two")) == "one two"
    assert text_of([TextDelta("ann", "one "), said("ann", "one two")]) == "one two"


def test_a_thought_before_a_tool_call_stays_apart_from_the_answer() -> None:
    events: list[RunEvent] = [
        TextDelta("ann", "Let me look.", "m1"),
        TextDelta("ann", "It is 4.", "m2"),
        MessageDone(2, ThoughtEvent(source="ann", content="Let me look.", id="m1"), False),
        said("ann", "It is 4.", id="m2"),
    ]
    assert text_of(events) == "Let me look.\n\nIt is 4."


def test_an_answer_stored_under_another_id_than_its_deltas() -> None:
    """AutoGen does that when the model reasons: the thought takes the id of the stream."""
    events: list[RunEvent] = [
        TextDelta("ann", "<think>hm</think>", "m1"),
        TextDelta("ann", "It is 4.", "m1"),
        MessageDone(2, ThoughtEvent(source="ann", content="hm", id="m1"), False),
        said("ann", "It is 4.", id="m2"),
    ]
    assert text_of(events) == "<think>hm</think>It is 4."


def test_a_handoff_lets_the_next_agent_be_heard_live() -> None:
    handoff = HandoffMessage(source="ann", target="bob", content="transferred")
    events: list[RunEvent] = [TextDelta("ann", "Over to bob."), MessageDone(2, handoff, False), TextDelta("bob", "Hi")]
    assert text_of(events) == "Over to bob.\n\nHi"


def test_text_of_a_turn_that_was_not_stored_is_not_given_out_late() -> None:
    events: list[RunEvent] = [TextDelta("ann", "live"), TextDelta("bob", "held back"), RunEnded(RunStatus.STOPPED)]
    assert text_of(events) == "live"


def test_a_changed_text_is_added() -> None:
    assert text_of([TextDelta("ann", "draft"), said("ann", "final")]) == "draft\n\nfinal"
    assert text_of([TextDelta("ann", "draft", "m1"), said("ann", "final", id="m1")]) == "draft\n\nfinal"


# --- turns that are repeated ------------------------------------------------------------------------------------------


def again(attempt: int = 2) -> RunStarted:
    return RunStarted("r", "team", attempt)


def test_a_repeated_turn_goes_on_where_its_text_was_cut() -> None:
    events: list[RunEvent] = [TextDelta("ann", "It is "), TextDelta("ann", "fo"), again()]
    events += spoken("ann", "It", " is four", ".")
    assert pieces(events, marks=True) == ["**ann**\n\nIt is ", "fo", "ur", "."]
    assert text_of([*events[:3], said("ann", "It is four.")]) == "It is four."


def test_a_repeated_turn_that_says_something_else_is_a_new_block() -> None:
    events: list[RunEvent] = [TextDelta("ann", "It is fo"), again(), *spoken("ann", "It is", " five.")]
    assert pieces(events) == ["It is fo", "\n\nIt is five."]
    assert text_of([*events[:2], said("ann", "It is five.")]) == "It is fo\n\nIt is five."


def test_a_shorter_message_is_not_taken_for_what_was_shown() -> None:
    assert text_of([TextDelta("ann", "Yes and no"), again(), *spoken("ann", "Yes")]) == "Yes and no\n\nYes"


def test_text_that_was_held_back_when_the_turn_was_cut_is_forgotten() -> None:
    events: list[RunEvent] = [
        TextDelta("ann", "a1"),
        TextDelta("bob", "b1"),
        again(),
        TextDelta("bob", "b2"),
        TextDelta("ann", "a1 more"),
        said("bob", "b2"),
        said("ann", "a1 more"),
    ]
    # The rest of what ann had begun comes after bob, who spoke in between.
    assert text_of(events, marks=True) == "**ann**\n\na1\n\n**bob**\n\nb2\n\n**ann**\n\n more"


def test_what_was_cut_twice_is_shown_once() -> None:
    events: list[RunEvent] = [
        *(TextDelta("ann", "one "), again(), TextDelta("ann", "one two "), again(3), TextDelta("ann", "one"), again(4)),
        *spoken("ann", "one two three"),
    ]
    assert text_of(events) == "one two three"


def test_a_thought_that_was_shown_is_not_shown_again() -> None:
    events: list[RunEvent] = [
        TextDelta("ann", "Let me look.", "m1"),
        TextDelta("ann", "It ", "m2"),
        again(),
        TextDelta("ann", "Let me look.", "m3"),
        TextDelta("ann", "It is 4.", "m4"),
        MessageDone(2, ThoughtEvent(source="ann", content="Let me look.", id="m3"), False),
        said("ann", "It is 4.", id="m4"),
    ]
    assert text_of(events) == "Let me look.\n\nIt is 4."


def test_a_later_turn_is_not_taken_for_the_repeated_one() -> None:
    events: list[RunEvent] = [
        *(TextDelta("ann", "I"), again(), *spoken("bob", "Me first.")),
        *spoken("ann", "In short: no."),
    ]
    assert text_of(events) == "I\n\nMe first.\n\nIn short: no."
    events = [TextDelta("ann", "I"), again(), said("ann", "You."), said("ann", "In short: no.")]
    assert text_of(events) == "I\n\nYou.\n\nIn short: no."


def test_the_start_of_a_run_changes_nothing() -> None:
    events: list[RunEvent] = [again(1), *spoken("ann", "one ", "two"), again(2), *spoken("ann", "one ", "two")]
    assert text_of(events) == "one two\n\none two"


def test_what_is_not_streamed_leaves_out_what_was_cut() -> None:
    whole = CompletionWriter(Handle(1))  # type: ignore[arg-type]
    whole.take([said("ann", "One."), TextDelta("ann", "tw"), again(), *spoken("ann", "Second."), COMPLETED])
    assert whole.body(COMPLETED)["choices"][0]["message"]["content"] == "One.\n\nSecond."


@st.composite
def cut_turns(draw: st.DrawFn, *, changed: bool) -> tuple[list[RunEvent], list[tuple[str, str]]]:
    """A run whose turns are cut and repeated, and what was stored of it: each word is said by nobody else. With
    `changed`, an attempt says other words than the one before, though they may begin alike."""
    words = iter(f"<{number}>" for number in range(10_000))
    events: list[RunEvent] = []
    stored: list[tuple[str, str]] = []
    attempt = 1
    for number in range(draw(st.integers(1, 3))):
        sources = draw(st.lists(st.sampled_from(["ann", "bob", "cid"]), min_size=1, max_size=3, unique=True))
        texts = {source: [next(words) for _ in range(draw(st.integers(1, 3)))] for source in sources}
        for cut in [*[True] * draw(st.integers(0, 2)), False]:
            queues = {
                source: [TextDelta(source, word, f"{number}-{attempt}-{source}") for word in texts[source]]
                for source in sources
                if draw(st.booleans())
            }
            deltas: list[RunEvent] = []
            while queues := {source: queue for source, queue in queues.items() if queue}:
                deltas.append(queues[draw(st.sampled_from(sorted(queues)))].pop(0))
            if cut:
                attempt += 1
                events += [*deltas[: draw(st.integers(0, len(deltas)))], again(attempt)]
                if changed:
                    texts = {source: [said[0], next(words)] for source, said in texts.items()}
                continue
            events += deltas
            for source in draw(st.permutations(sources)):
                text = "".join(texts[source])
                events.append(said(source, text, id=f"{number}-{attempt}-{source}"))
                stored.append((source, text))
    return [*events, COMPLETED], stored


@given(cut_turns(changed=False))
def test_a_turn_that_repeats_itself_is_shown_once(run: tuple[list[RunEvent], list[tuple[str, str]]]) -> None:
    events, stored = run
    shown = text_of(events, marks=True)
    for _, text in stored:
        places = [shown.find(word) for word in text.replace("><", ">\n<").split("\n")]
        assert -1 not in places
        assert places == sorted(places)
    assert all(shown.count(word) == 1 for word in re.findall(r"<\d+>", shown))


@given(cut_turns(changed=True))
def test_a_turn_that_comes_out_differently_is_whole(run: tuple[list[RunEvent], list[tuple[str, str]]]) -> None:
    events, stored = run
    shown = text_of(events, marks=True)
    for source, text in stored:
        first, rest = text[: text.index(">") + 1], text[text.index(">") + 1 :]
        whole = f"**{source}**\n\n{text}"
        if shown.count(whole) == 1:
            continue
        # Its first word was the last thing that was shown, or shown by itself: then only the rest follows.
        assert shown.count(rest) == 1
        assert first in shown[: shown.index(rest)]


@given(cut_turns(changed=True), st.data())
def test_the_answer_does_not_depend_on_what_is_ready_at_once(
    run: tuple[list[RunEvent], list[tuple[str, str]]], data: st.DataObject
) -> None:
    events, _ = run
    at = data.draw(st.integers(0, len(events)))
    assert frames_of([events], 3) == frames_of([events[:at], events[at:]], 3)
