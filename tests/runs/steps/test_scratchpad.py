"""The steps of a run as the text of a prompt."""

from __future__ import annotations

from typing import Any

import pytest

from drsai_backend.runs.steps.scratchpad import scratchpad
from drsai_backend.runs.steps.views import RunStep


def step(position: int, **values: Any) -> RunStep:
    return RunStep(position=position, run_id="r", source="ann", **values)


CALL = step(1, thought="Where?", tool="look", input='{"at": "here"}', observation="é" * 10)
ANSWER = step(2, thought="Enough.", text="Here.")
WHOLE = f"""Thought: Where?
Action: look
Action Input: {{"at": "here"}}
Observation: {"é" * 10}

Thought: Enough.
Answer: Here."""


def test_all_of_it() -> None:
    assert scratchpad([CALL, ANSWER]) == WHOLE
    assert scratchpad([]) == ""
    assert scratchpad([step(1, error="The run was stopped.")]) == "Error: The run was stopped."


def test_what_is_kept_within_bounds() -> None:
    assert scratchpad([CALL, ANSWER], max_characters=len(WHOLE)) == WHOLE
    newest = "(1 earlier step left out)\n\nThought: Enough.\nAnswer: Here."
    assert scratchpad([CALL, ANSWER], max_characters=len(WHOLE) - 1) == newest
    assert scratchpad([CALL, ANSWER], max_tokens=len(WHOLE.encode()) // 4) == newest
    assert scratchpad([CALL, CALL, ANSWER], max_tokens=20).startswith("(2 earlier steps left out)")
    assert scratchpad([ANSWER], max_characters=7) == "Thought"
    assert scratchpad([step(1, text="é" * 9)], max_tokens=3) == "Answer: éé"
    assert "ééé\n[7 more characters]" in scratchpad([CALL], max_observation=3)
    with pytest.raises(ValueError, match="max_tokens"):
        scratchpad([], max_tokens=0)
