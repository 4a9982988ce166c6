"""Days that texts name become words, English and Chinese, as seen from a day."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.days import days_in, words_of

SATURDAY = date(2023, 5, 20)
LAST_WEEK = "20230508 20230509 20230510 20230511 20230512 20230513 20230514"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What did she do last week?", LAST_WEEK),
        ("Yesterday, and two days ago.", "20230519 20230518"),
        ("It was on 8 May 2023, at 1 pm.", "20230508"),
        ("May 9th, and Jan. 3, 2022", "20230509 20220103"),
        ("in May", "202305"),
        ("in June", "202206"),
        ("in June 2021", "202106"),
        ("last month", "202304"),
        ("a month ago", "202304"),
        ("3 years ago", "2020"),
        ("last Saturday", "20230513"),
        ("last Friday", "20230519"),
        ("next Monday", "20230522"),
        ("last weekend", "20230513 20230514"),
        ("at 2023-05-08T12:00", "20230508"),
        ("2023年5月8日", "20230508"),
        ("5月8日", "20230508"),
        ("上周我做了什么", LAST_WEEK),
        ("上星期三", "20230510"),
        ("上个月", "202304"),
        ("三天前和昨天", "20230517 20230519"),
        ("两个月前", "202303"),
        ("30 February", ""),
        ("You may 3 times march on, in 12 years", ""),
        ("version 1.2-3", ""),
    ],
)
def test_days_that_are_named(text: str, words: str) -> None:
    assert days_in(text, SATURDAY) == words


def test_last_month_in_january_is_of_the_year_before() -> None:
    assert days_in("last month", date(2023, 1, 31)) == "202212"
    assert days_in("next month", date(2023, 12, 31)) == "202401"


def test_a_day_has_words() -> None:
    assert words_of(SATURDAY) == "20230520 202305 May 2023"


@given(
    st.lists(
        st.sampled_from(
            ["last", "next", "week", "month", "999", "years", "ago", "32", "May", "0", "上", "周", "日", "年", "-", "."]
        )
        | st.text()
    ).map(" ".join),
    st.dates(),
)
def test_any_text_can_be_read_on_any_day(text: str, on: date) -> None:
    assert all(word.isdigit() for word in days_in(text, on).split())
