"""What people and models write where a flow asks: it is read as a person would read it, or asked again."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
import yaml

from drsai_backend.strategies.router import Ask
from drsai_backend.strategies.router.flows.slots import NotTaken, read

CORPUS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "corpus/slots.yaml").read_text(encoding="utf-8"))
TODAY = dt.date.fromisoformat(CORPUS["today"])


def taken(slot: Ask, text: str) -> Any:
    """The value in a text; None: it is asked again."""
    try:
        return read(slot, text, TODAY)
    except NotTaken:
        return None


def test_the_corpus_is_as_large_as_it_is_said_to_be() -> None:
    assert sum(len(group["read"]) for group in CORPUS["groups"]) >= 600


@pytest.mark.parametrize("group", CORPUS["groups"], ids=lambda group: group["name"])
def test_it_is_read_as_a_person_would(group: dict[str, Any]) -> None:
    slot = Ask.model_validate({"ask": "it", **group["slot"]})
    found = {text: taken(slot, text) for text in group["read"]}
    wrong = {text: (found[text], wanted) for text, wanted in group["read"].items() if found[text] != wanted}
    assert not wrong, "read, and what a person would read"
