"""A year of somebody's life, with changes of mind and many other memories: what is current is recalled, what is over is
not. And whatever a model invents, what is learnt names a message and holds words of it."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.memory import asked, live
from drsai_backend import DrSai
from drsai_backend.features.memory.base import STORED_FROM, Said, Source, plain
from drsai_backend.features.memory.extraction import Candidate, checked
from tests.support.threads import LATE, settings


async def test_a_year_with_changes_of_mind_and_other_memories(database_url: str) -> None:
    async with DrSai(None, database_url, settings=settings(**LATE)) as drsai:
        await live(drsai, 100)
        shares, missed, over = await asked(drsai)
    assert (missed, over) == ([], 0)
    assert shares[1] >= 0.85


WORDS = (
    "I",
    "live",
    "in",
    "Porto",
    "Lisbon",
    "work",
    "at",
    "Harbour",
    "Labs",
    "not",
    "never",
    "7",
    "42",
    "dogs",
    "tea",
)
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)
SURE = st.fixed_dictionaries(dict.fromkeys(("complexity", "density", "emotion", "intent"), st.floats(0.7, 1)))
UNSURE = st.fixed_dictionaries(
    dict.fromkeys(
        ("complexity", "density", "emotion", "intent"),
        st.one_of(st.none(), st.floats(-1, 2), st.sampled_from(["high", True, 1])),
    )
)


@st.composite
def invented(draw: st.DrawFn) -> tuple[list[Said], Candidate]:
    """Draw messages and what a model says of them: its words and quotations are of them, or not."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    messages = [Said(10 + seq, text, at) for seq, text in enumerate(draw(st.lists(TEXTS, min_size=1, max_size=3)))]
    of_messages = st.sampled_from([each.text for each in messages])
    candidate = Candidate.model_validate(
        {
            "text": draw(st.one_of(TEXTS, of_messages.map(lambda text: f"The user: {text}"))),
            "message": draw(st.one_of(st.integers(1, len(messages)), st.integers(-1, 4))),
            "quote": draw(st.one_of(TEXTS, of_messages, of_messages.map(lambda text: text[3:]))),
            **draw(st.one_of(SURE, UNSURE)),
        }
    )
    return messages, candidate


@given(invented())
def test_what_is_learnt_is_held_by_the_message_that_it_names(given: tuple[list[Said], Candidate]) -> None:
    messages, candidate = given
    new = checked(candidate, messages, Source(thread_id="t", run_id="r", seq=0, quote=""))
    if new is None:
        return
    [source] = new.sources
    [message] = [each for each in messages if each.seq == source.seq]
    assert source.quote == candidate.quote
    assert plain(source.quote) in plain(message.text)
    assert new.importance >= STORED_FROM
    assert all(
        isinstance(getattr(candidate, name), float | int) for name in ("complexity", "density", "emotion", "intent")
    )
    said = plain(message.text).split()
    assert all(
        word in said for word in plain(new.text).split() if word.isdigit() or word in ("porto", "lisbon", "labs")
    )
    if {"not", "never"} & {*plain(source.quote).split()}:
        assert {"not", "never"} & {*plain(new.text).split()}
