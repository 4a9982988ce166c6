"""Malformed answers in the form of ReAct, in two languages: they are read as a person would, whole and streamed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from drsai_backend.models.endpoints.thoughts import split
from drsai_backend.models.text_calls.parsing import TextStep, parse_step
from drsai_backend.models.text_calls.streaming import StepStream

CORPUS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "corpus/react.yaml").read_text(encoding="utf-8"))
READ: dict[str, Any] = CORPUS["read"]


def meaning(step: TextStep) -> Any:
    """A step as the corpus writes it."""
    if step.action is None:
        return step.answer
    try:
        return {step.action: json.loads(step.arguments)}
    except ValueError:
        return {step.action: step.arguments}


def test_the_corpus_is_as_large_as_it_is_said_to_be() -> None:
    assert len(READ) >= 280


def test_each_is_read_as_a_person_would() -> None:
    found = {text: meaning(parse_step(text, CORPUS["tools"])) for text in READ}
    wrong = {text: (found[text], wanted) for text, wanted in READ.items() if found[text] != wanted}
    assert not wrong, "read, and what a person would read"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_stream_shows_nothing_else(size: int) -> None:
    """However it is cut: the answer alone, and nothing where there is none."""
    wrong: dict[str, tuple[str, Any]] = {}
    for text, wanted in READ.items():
        step, stream = parse_step(text, CORPUS["tools"]), StepStream()
        shown = [stream.feed(text[place : place + size]) for place in range(0, len(text), size)] + [stream.end()]
        said = split([*shown, stream.close(step.answer, step.thought)])[1]
        if said.strip() != (wanted.strip() if isinstance(wanted, str) else ""):
            wrong[text] = said, wanted
    assert not wrong, "shown, and what a person would read"
