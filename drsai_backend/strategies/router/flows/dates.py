"""Dates are days as people write them: dates in figures and with names of months, and days counted from today.

A text is read as a whole or not at all, as quantities are. A day that may be one of two (03/04/2026, Friday, the 1st)
is none.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

from drsai_backend.strategies.router.flows.quantities import number_of
from drsai_backend.strategies.router.flows.words import says_nothing, widened, without_word

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH: Final = rf"(?<!\w)(?P<named>{'|'.join(_MONTHS)})[a-z]{{0,6}}\.?,?"
_NTH: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?(?!\d)"
_YEAR: Final = r"(?P<year>\d{4})(?!\d)"
_DATES: Final = [
    re.compile(each)
    for each in (
        rf"(?<!\d){_YEAR} ?[-/.年] ?"
        r"(?P<month>\d{1,2}) ?[-/.月] ?(?P<day>\d{1,2})(?:t[0:]{5,8}z?|(?!\d)) ?[日号]?",
        r"(?<!\d)(?P<year>(?:19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)(?!\d)",
        r"(?<!\d)(?P<day>\d{1,2})\. ?(?P<month>\d{1,2})\. ?(?P<year>\d{4})(?!\d)",
        r"(?<!\d)(?P<day>\d{1,2})/(?P<month>\d{1,2})/(?P<year>\d{4})(?!\d)",
        rf"(?<!\w){_NTH}(?: of)?[ -]{_MONTH}[ -]{_YEAR}",
        rf"{_MONTH} {_NTH},? {_YEAR}",
        r"(?P<from_year>[今明后去])年(?P<month>\d{1,2})月(?P<day>\d{1,2})[日号]?",
        r"(?P<from_month>上|这|本|下)个?月(?P<day>\d{1,2})[日号]",
        r"(?P<from_week>上上|上|这|本|下下|下)个?(?:周|星期|礼拜)(?P<weekday>[一二三四五六日天])",
        r"(?<!\w)in (?P<count>\w+) (?P<weeks>days?|weeks?)(?!\w)",
        r"(?<!\w)(?P<count>\w+) (?P<weeks>days?|weeks?) (?:from (?:now|today)|(?P<ago>ago))(?!\w)",
        r"(?P<count>\d+) ?(?P<weeks>天|日|周|个?星期|个?礼拜)(?:[之以]?后|(?P<ago>[之以]?前))",
    )
]
_SHIFTS: Final = {"上上": -2, "上": -1, "去": -1, "今": 0, "这": 0, "本": 0, "下": 1, "明": 1, "下下": 2, "后": 2}
_DAYS: Final = {
    "day after tomorrow": 2, "übermorgen": 2, "après-demain": 2, "pasado mañana": 2, "послезавтра": 2, "后天": 2,
    "tomorrow": 1, "morgen": 1, "demain": 1, "mañana": 1, "明天": 1, "明日": 1, "завтра": 1,
    "today": 0, "heute": 0, "aujourd'hui": 0, "hoy": 0, "今天": 0, "今日": 0, "сегодня": 0,
    "yesterday": -1, "gestern": -1, "hier": -1, "ayer": -1, "昨天": -1, "昨日": -1, "вчера": -1,
    "day before yesterday": -2, "vorgestern": -2, "avant-hier": -2, "anteayer": -2, "позавчера": -2, "前天": -2,
    "大后天": 3, "大前天": -3,
}  # fmt: skip
_WEEKDAYS: Final = "一二三四五六日"
_WEEKDAY: Final = re.compile(
    r"\b(?P<name>mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\b|(?:周|星期|礼拜)(?P<weekday>[一二三四五六日天])"
)
_FIGURES: Final = re.compile("[〇零一二两三四五六七八九十]+(?=[年月日号天周个])")


class NoSuchDay(ValueError):
    """A date names a day that the calendar does not have; the text says which."""


def date_in(text: str, today: dt.date, about: str) -> dt.date | None:
    """The one day that a text says; None: it says none, several, or more than that.

    Args:
        text: what a person has written.
        today: what `tomorrow` counts from.
        about: what they were asked.

    Raises:
        NoSuchDay: it is a date, but of no day.
    """
    rest = _FIGURES.sub(_in_figures, widened(text))
    found: list[dt.date | None] = []
    for pattern in _DATES:
        for each in pattern.finditer(rest):
            found.append(_day(each, today))
        rest = pattern.sub(" ", rest)
    for word in sorted(_DAYS, key=len, reverse=True):
        left = without_word(rest, word)
        found += [today + dt.timedelta(days=_DAYS[word])] * (left != rest)
        rest = left
    value = found[0] if len(found) == 1 else None
    weekday = _WEEKDAY.search(rest)
    if value is None or (weekday is not None and value.weekday() != _weekday(weekday)):
        return None
    return value if says_nothing(_WEEKDAY.sub(" ", rest), about) else None


def _in_figures(found: re.Match[str]) -> str:
    number = number_of(list(found[0]))
    return found[0] if number is None else str(number)


def _weekday(found: re.Match[str]) -> int:
    groups = found.groupdict()
    if groups.get("name"):
        return ("mon", "tue", "wed", "thu", "fri", "sat", "sun").index(groups["name"])
    return _WEEKDAYS.index(groups["weekday"].replace("天", "日"))


def _day(found: re.Match[str], today: dt.date) -> dt.date | None:
    part = found.groupdict()
    if part.get("weekday"):
        monday = today - dt.timedelta(days=today.weekday())
        return monday + dt.timedelta(days=_weekday(found), weeks=_SHIFTS[part["from_week"]])
    if part.get("count"):
        count = number_of([part["count"]])
        if count is None or count.denominator > 1 or count > 3660:
            return None
        days = int(count) * (1 if part["weeks"][0] in "d天日" else 7)
        return today + dt.timedelta(days=-days if part.get("ago") else days)
    month = _MONTHS.index(part["named"]) + 1 if part.get("named") else int(part.get("month") or today.month)
    year, day = int(part.get("year") or today.year), int(part["day"])
    if "/" in found[0] and found[0].index("/") < 3:
        if month <= 12 and day <= 12 and month != day:
            return None
        month, day = min(month, day), max(month, day)
    year += _SHIFTS[part["from_year"]] if part.get("from_year") else 0
    if part.get("from_month"):
        year, month = divmod(year * 12 + month - 1 + _SHIFTS[part["from_month"]], 12)
        month += 1
    try:
        return dt.date(year, month, day)
    except ValueError:
        raise NoSuchDay(f"There is no such day: {year:04d}-{month:02d}-{day:02d}.") from None
