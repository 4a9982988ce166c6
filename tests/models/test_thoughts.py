"""What a model thinks is told apart from its answer, however its text is cut."""

from __future__ import annotations

import itertools

import pytest
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.models.answer import ReasonedResult
from drsai_backend.models.endpoints.thoughts import ThoughtSplitter, split, with_thought

words = st.text(st.sampled_from("ab <>/think\n"), max_size=30)


@st.composite
def cut(draw: st.DrawFn, text: st.SearchStrategy[str]) -> list[str]:
    whole = draw(text)
    places = sorted(draw(st.sets(st.integers(0, len(whole)), max_size=8)) | {0, len(whole)})
    return [whole[start:end] for start, end in itertools.pairwise(places)] or [whole]


@given(cut(words))
def test_how_a_text_is_cut_makes_no_difference(pieces: list[str]) -> None:
    assert split(pieces) == split(["".join(pieces)])


@given(cut(words.map(lambda text: f"<think>{text}")))
def test_what_is_known_is_told_in_order(pieces: list[str]) -> None:
    splitter = ThoughtSplitter()
    parts = [part for piece in pieces for part in splitter.feed(piece)] + splitter.end()
    assert all(text for _, text in parts)
    assert [is_thought for is_thought, _ in parts] == sorted((is_thought for is_thought, _ in parts), reverse=True)


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("<think>\nHmm. \n</think>\n\nYes.", "Hmm.", "Yes."),
        ("\n<think>Hmm.</think>", "Hmm.", ""),
        ("<think>cut off", "cut off", ""),
        ("<think></think>Yes.", None, "Yes."),
        ("I <think> so</think>.", None, "I <think> so</think>."),
        ("<thinking>no", None, "<thinking>no"),
        ("  indented", None, "  indented"),
        ("", None, ""),
        ("<think>a < b</think>c </think>", "a < b", "c </think>"),
    ],
)
def test_thought_and_answer(text: str, thought: str | None, answer: str) -> None:
    assert split([text]) == split(text) == (thought, answer)


def test_a_thought_that_was_streamed_keeps_its_letters() -> None:
    """AutoGen strips the letters of the mark off both ends."""
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    damaged = CreateResult(finish_reason="stop", content="Yes.", usage=usage, cached=False, thought=" i")
    kept = with_thought(damaged, ["<think>", "think i think", "</think>", "Yes."])
    assert (kept.thought, kept.content) == ("think i think", "Yes.")
    whole = CreateResult(finish_reason="stop", content="<think>Hm</think>Yes.", usage=usage, cached=False)
    assert (with_thought(whole).thought, with_thought(whole).content) == ("Hm", "Yes.")
    plain = CreateResult(finish_reason="stop", content="Yes.", usage=usage, cached=False)
    assert with_thought(plain, ["Yes."]) is plain


@given(cut(words.map(lambda text: f"<think>{text}")))
def test_beside_calls_what_is_thought_is_told_apart_from_what_is_said(pieces: list[str]) -> None:
    """Of a stream, whose result has the text alone, and of a whole answer, whose text has all of it."""
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    calls = [FunctionCall("1", "{}", "add")]
    made = CreateResult(
        finish_reason="function_calls", content=calls, usage=usage, cached=False, thought="".join(pieces)
    )
    thought, said = split(pieces)
    for result in (with_thought(made, pieces), with_thought(made)):
        if thought is None:
            assert result is made
            continue
        assert isinstance(result, ReasonedResult)
        assert (result.reasoning, result.thought, result.content) == (thought, said or None, calls)
        assert with_thought(result, ["<think>else</think>"]) is result
