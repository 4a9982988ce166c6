"""What people write, read as values; patterns and conditions."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.strategies.router import Ask
from drsai_backend.strategies.router.flows.slots import NotTaken, read
from drsai_backend.strategies.router.flows.values import Comparison, filled, rendered
from drsai_backend.strategies.router.flows.words import LEAVE, RESUME, is_one_of, rest_after, truth_of
from drsai_backend.strategies.router.patterns import Patience

TODAY = dt.date(2026, 11, 23)
TAKEN: list[tuple[dict[str, Any], str, Any]] = [
    ({"type": "integer"}, "4", 4),
    ({"type": "integer"}, "about 12 of us", 12),
    ({"type": "integer"}, "1,000", 1000),
    ({"type": "integer"}, "1.000.000", 1_000_000),
    ({"type": "number"}, "12,50", 12.5),
    ({"type": "number"}, "-3.5 degrees", -3.5),
    ({"type": "number"}, "1.234,56 €", 1234.56),
    ({"type": "number"}, "1,234.56", 1234.56),
    ({"type": "boolean"}, "Yes, please!", True),
    ({"type": "boolean"}, "不", False),
    ({"type": "boolean"}, "是的。", True),
    ({"type": "boolean"}, "non", False),
    ({"type": "choice", "choices": ["red", "dark blue"]}, "Dark  Blue.", "dark blue"),
    ({"type": "choice", "choices": ["red", "dark blue"]}, "2", "dark blue"),
    ({"type": "choice", "choices": ["red", "dark blue"]}, "the red one", "red"),
    ({"type": "choice", "choices": {"terrace": ["outside", "户外"]}}, "我要户外的", "terrace"),
    ({"type": "date"}, "2026-12-01", "2026-12-01"),
    ({"type": "date"}, "on 1.12.2026", "2026-12-01"),
    ({"type": "date"}, "2026年12月1日", "2026-12-01"),
    ({"type": "date"}, "December 1st, 2026", "2026-12-01"),
    ({"type": "date"}, "1 Dec 2026", "2026-12-01"),
    ({"type": "date"}, "the day after tomorrow", "2026-11-25"),
    ({"type": "date", "min": "today"}, "heute", "2026-11-23"),
    ({"type": "email"}, "It is ann.lee@mail.example.org.", "ann.lee@mail.example.org"),
    ({"type": "text", "pattern": r"[A-Z]{2}\d+"}, "ab12", "ab12"),
]
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "integer"}, "some", "one number"),
    ({"type": "integer"}, "4 or 5", "one number"),
    ({"type": "integer"}, "4.5", "whole number"),
    ({"type": "integer", "max": 12}, "13", "at most 12"),
    ({"type": "number", "min": 0.5}, "0", "at least 0.5"),
    ({"type": "number"}, "9" * 30, "one number"),
    ({"type": "number"}, "1e999", "one number"),
    ({"type": "boolean"}, "maybe", "yes or no"),
    ({"type": "choice", "choices": ["red", "blue"]}, "red or blue", "one of: red, blue"),
    ({"type": "choice", "choices": ["red", "blue"]}, "3", "one of: red, blue"),
    ({"type": "date"}, "2026-02-30", "no such day"),
    ({"type": "date"}, "soon", "a date"),
    ({"type": "date", "min": "today"}, "yesterday", "not before 2026-11-23"),
    ({"type": "date", "max": "2026-12-01"}, "2026-12-02", "not after 2026-12-01"),
    ({"type": "email"}, "ann@home", "e-mail"),
    ({"type": "text", "max_length": 3}, "four", "at most 3"),
    ({"type": "text", "min_length": 3}, "ab", "at least 3"),
    ({"type": "text", "pattern": r"\d+"}, "12a", "right form"),
    ({"type": "text"}, "  ", "write something"),
]


def ask(**given: Any) -> Ask:
    return Ask.model_validate({"ask": "it", "prompt": "?", **given})


@pytest.mark.parametrize(("slot", "text", "value"), TAKEN)
def test_taken(slot: dict[str, Any], text: str, value: Any) -> None:
    found = read(ask(**slot), text, TODAY)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(("slot", "text", "why"), REFUSED)
def test_refused(slot: dict[str, Any], text: str, why: str) -> None:
    with pytest.raises(NotTaken, match=why):
        read(ask(**slot), text, TODAY)


@given(st.sampled_from(TAKEN), st.text(max_size=60) | st.text("0123456789.,-/年月日 @a", max_size=40))
def test_nothing_else_is_raised(case: tuple[dict[str, Any], str, Any], text: str) -> None:
    with contextlib.suppress(NotTaken):
        read(ask(**case[0]), text, TODAY)


def test_words() -> None:
    assert is_one_of("Never mind.", LEAVE)
    assert is_one_of("取消", LEAVE)
    assert not is_one_of("stop the music", LEAVE)
    assert rest_after("Continue the booking!", RESUME) == "the booking"
    assert rest_after("继续预订", RESUME) == "预订"
    assert rest_after("continues", RESUME) is None
    assert truth_of("no, thanks") is False
    assert truth_of("nobody") is None
    assert truth_of("Yes, but on Monday") is None
    assert truth_of("yes yes") is None
    assert truth_of("Ja, richtig. Danke!") is True
    assert truth_of("好的\uff0c谢谢") is True
    assert truth_of("please") is None


def test_a_pattern_without_end() -> None:
    """It is passed over, and the loop stands still for no longer than it may."""
    before = time.process_time()
    patience = Patience()
    assert patience.find(r"^(\w+\s?)+$", "a" * 3000 + "!") is None
    assert patience.find("a", "a") is None, "all patterns together"
    assert time.process_time() - before < 0.5
    assert Patience().find(r"(?P<day>\w+day)", "on Monday") == {"day": "Monday"}


def test_values_in_texts() -> None:
    slots = {"n": 3, "sure": True, "order": {"id": 7, "lines": [{"what": "tea"}]}, "none": None}
    text = "{{n}} {{ sure }} {{order.id}} {{order.lines.0.what}} {{none}}{{order.x.y}}{{sure.x}}"
    assert rendered(text, slots) == "3 yes 7 tea "
    given = {"n": "{{n}}", "text": "n={{n}}", "gone": "{{none}}", "all": ["{{order.id}}", {"deep": "{{sure}}"}]}
    assert filled(given, slots) == {"n": 3, "text": "n=3", "all": [7, {"deep": True}]}


def test_conditions() -> None:
    def holds(value: Any, **test: Any) -> bool:
        return Comparison.model_validate(test).holds(value)

    assert holds("Terrace", **{"is": "terrace"})
    assert holds(3, above=2, below=4, at_least=3, at_most=3)
    assert not holds(3, above=3)
    assert not holds(None, below=4)
    assert holds("2026-12-01", at_least="2026-11-30")
    assert holds(None, filled=False)
    assert holds(True, **{"is": True})
    assert not holds(1, **{"is": True})
    assert holds("b", one_of=["a", "b"], is_not="c")
