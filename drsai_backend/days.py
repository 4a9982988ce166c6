"""Days have words by which texts are found that name them: `8 May 2023`, and as it is seen from a day, `last week`.

Texts that were said on a day are stored with the words of that day, and of those that they name; a question is asked
with the words of those that it names. Both are English or Chinese, and words that name none are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Annotated, Final, TypeAlias

from pydantic import AwareDatetime, BeforeValidator

_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_COUNTS: Final = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7} | {
    each: at for at, each in enumerate("一二三四五六七八九十", 1)
}
_COUNTS["两"] = 2
_UNITS: Final = {
    "day": 1,
    "天": 1,
    "日": 1,
    "week": 7,
    "周": 7,
    "星期": 7,
    "month": 30,
    "个月": 30,
    "year": 365,
    "年": 365,
}
_NEAR: Final = {"today": 0, "tonight": 0, "yesterday": 1, "last night": 1, "tomorrow": -1}
_NEAR_CHINESE: Final = {"今天": 0, "昨天": 1, "昨晚": 1, "前天": 2, "明天": -1}
_MONTH: Final = "|".join(rf"{each}|{each[:3]}\.?" for each in _MONTHS)
_PATTERN: Final = re.compile(
    rf"""(?<!\d)(?P<year>\d{{4}})(?:[-/年]\s?)(?P<month>\d{{1,2}})(?:[-/月]\s?)(?P<day>\d{{1,2}})(?!\d)
    |(?<!\d)(?P<month_c>\d{{1,2}})月(?P<day_c>\d{{1,2}})[日号]
    |\b(?P<day_e>\d{{1,2}})(?:st|nd|rd|th)?\s(?:of\s)?(?P<month_e>{_MONTH})\b(?:,?\s(?P<year_e>\d{{4}}))?
    |\b(?P<month_a>{_MONTH})\s(?P<day_a>\d{{1,2}})(?:st|nd|rd|th)?\b(?!:)(?:,?\s(?P<year_a>\d{{4}}))?
    |\b(?:[Ii]n|[Dd]uring|[Ss]ince|[Oo]f|[Ll]ast|[Tt]his)\s(?P<month_only>{"|".join(_MONTHS)})\b(?:,?\s(?P<year_only>\d{{4}}))?
    |\b(?P<near>(?i:{"|".join(_NEAR)}))\b|(?P<near_c>{"|".join(_NEAR_CHINESE)})
    |\b(?P<count>(?i:\d{{1,3}}|an?|one|two|three|four|five|six|seven))\s(?P<unit>(?i:day|week|month|year))s?\s(?i:ago)\b
    |(?P<count_c>\d{{1,3}}|[一二两三四五六七八九十])个?(?P<unit_c>天|周|星期|月|年)(?:以)?前
    |\b(?P<which>(?i:last|this|next))\s(?P<span>(?i:weekend|week|month|{"|".join(_WEEKDAYS)}))\b
    |(?P<which_c>上|这|本|下)个?(?P<span_c>周末|(?:周|星期|礼拜)[一二三四五六日天]?|月)""",
    re.VERBOSE,
)
_MOST: Final = 20
"""Days that are looked for in a text."""


def _day(given: object) -> object:
    if not isinstance(given, str):
        return given
    if re.fullmatch(r"\d{4}-\d\d-\d\d", given) is None:
        raise ValueError("must be a day such as 2026-03-01")
    return date.fromisoformat(given)


def _moment(given: object) -> object:
    if isinstance(given, str) and given[4:5] != "-":  # Pydantic takes numbers for seconds since 1970.
        raise ValueError("must be a moment such as 2026-01-31T12:00:00Z")
    return given


Day: TypeAlias = Annotated[date, BeforeValidator(_day)]
Moment: TypeAlias = Annotated[AwareDatetime, BeforeValidator(_moment)]
"""As requests write them."""


def words_of(day: date) -> str:
    """Words of a day, by which texts that are of it are found: `20230508 202305 May 2023`."""
    return f"{day:%Y%m%d} {day:%Y%m} {_MONTHS[day.month - 1]} {day.year}"


def days_in(text: str, on: date) -> str:
    """Words of the days, and of the months, that a text names.

    Args:
        text: what is said.
        on: the day on which it is said, from which `yesterday` is seen. A day without a year is the last one of that
            date.

    Returns:
        As `20230501 20230502`, those of a month `202305`; "": it names none.
    """
    found: dict[str, None] = {}
    for at, match in enumerate(_PATTERN.finditer(text)):
        if at == _MOST:
            break
        try:
            found |= dict.fromkeys(_named({name: each for name, each in match.groupdict().items() if each}, on))
        except (ValueError, OverflowError):
            continue  # No day of any calendar, such as the 30th of February.
    return " ".join(found)


def _named(parts: dict[str, str], on: date) -> Iterator[str]:
    def given(name: str) -> str:
        return next((each for key, each in parts.items() if key.partition("_")[0] == name), "").lower()

    if month := given("month"):
        number = int(month) if month.isdigit() else _month(month)
        number_of_day = given("day")
        first = date(int(given("year") or on.year), number, int(number_of_day or 1))
        if not given("year") and first > on:
            first = first.replace(year=on.year - 1)
        yield f"{first:%Y%m%d}" if number_of_day else f"{first:%Y%m}"
    elif near := given("near"):
        yield f"{on - timedelta((_NEAR | _NEAR_CHINESE)[near]):%Y%m%d}"
    elif unit := given("unit"):
        count = given("count")
        many = int(count) if count.isdigit() else _COUNTS[count]
        then = on - timedelta(many * _UNITS["个月" if unit == "月" else unit])
        yield (
            f"{then:%Y%m}"
            if unit in ("month", "月")
            else f"{then:%Y%m%d}"
            if unit not in ("year", "年")
            else f"{then:%Y}"
        )
    else:
        yield from _span({"上": "last", "下": "next"}.get(which := given("which"), which), given("span"), on)


def _span(which: str, span: str, on: date) -> Iterator[str]:
    step = {"last": -1, "next": 1}.get(which, 0)
    if span in ("month", "月"):
        yield f"{date(on.year + (on.month - 1 + step) // 12, (on.month - 1 + step) % 12 + 1, 1):%Y%m}"
        return
    monday = on - timedelta(on.weekday()) + timedelta(7 * step)
    if span in _WEEKDAYS:  # The last one before this day, whichever week it is of.
        back = (on.weekday() - _WEEKDAYS.index(span)) % 7
        days = [on - timedelta(back or 7) if step < 0 else on + timedelta(7 - back if step > 0 else -back)]
    elif (last := span[-1:]) in (names := "一二三四五六日天") and span != "":
        days = [monday + timedelta(min(names.index(last), 6))]
    else:
        days = [monday + timedelta(at) for at in (range(5, 7) if span in ("weekend", "周末") else range(7))]
    yield from (f"{day:%Y%m%d}" for day in days)


def _month(name: str) -> int:
    return next(at for at, each in enumerate(_MONTHS, 1) if each.lower().startswith(name.rstrip(".")))
