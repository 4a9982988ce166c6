"""The client's tools beside an agent's own, whatever is called and wherever the turn is cut."""

from __future__ import annotations

from autogen_core import FunctionCall
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.teams.test_client_tools import done_once, rounds


@settings(max_examples=60, deadline=None)
@given(rounds, st.integers(1, 3), st.integers(0, 1000), st.booleans())
def test_everything_is_done_once(script: list[list[FunctionCall]], own_rounds: int, place: int, durable: bool) -> None:
    done_once(script, own_rounds, place, durable)
