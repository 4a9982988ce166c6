"""Strategies are known by name before any of them is imported: the names are those of the schema."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import ValidationError

from drsai_backend.definitions import AgentDefinition
from drsai_backend.strategies import COMPLETE, NAMES, Strategy


def test_the_names_are_those_of_the_schema() -> None:
    assert [each.model_fields["kind"].default for each in get_args(Strategy)] == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_complete_ones_need_to_be_told_nothing_more(name: str) -> None:
    try:
        AgentDefinition.model_validate({"prompt": "You work.", "strategy": name})
    except ValidationError:
        assert name not in COMPLETE
    else:
        assert name in COMPLETE
