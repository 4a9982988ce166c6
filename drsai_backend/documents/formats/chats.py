"""Chats are read as turns, each with its speaker, under headings that are the days: from JSON as most programs export
them, and from text whose lines begin with a time and a name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple, cast

from drsai_backend.days import days_in
from drsai_backend.documents.draft import Draft, one_line
from drsai_backend.json_types import JsonObject

_WHO: Final = ("speaker", "role", "author", "from", "sender", "user", "source")
_WHAT: Final = ("text", "content", "message", "body")
_WHEN: Final = ("time", "timestamp", "date", "datetime", "created_at", "sent_at", "create_time", "ts")
_DEEP: Final = 4
"""Levels of JSON in which a chat is looked for."""
_LONGEST_NAME: Final = 80
_LINE: Final = re.compile(
    r"\[?(?P<day>\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}),?[ T]+\d{1,2}:\d\d(?::\d\d)?(?: ?[AaPp][Mm])?\]?(?: -)? "
    r"(?P<who>[^:\n]{1,80}): (?P<text>.*)"
)
_LEAST: Final = 3
"""Turns that a text has which is a chat."""


class Turn(NamedTuple):
    """What somebody said; `day`: None where nothing tells when."""

    who: str
    text: str
    day: date | None


def add_turns(turns: Sequence[Turn], draft: Draft, level: int = 1) -> None:
    """Add turns, with a heading of this level where a day begins."""
    before: date | None = None
    for each in turns:
        if each.day is not None and each.day != before:
            draft.add("heading", each.day.isoformat(), level=level)
        before = each.day or before
        draft.add("turn", f"{one_line(each.who)[:_LONGEST_NAME]}: {each.text}")


def turns_of_text(text: str) -> list[Turn] | None:
    """Return the turns of a text; None: it is no chat. Lines without a time belong to the turn before."""
    lines = [each for each in text.split("\n") if each.strip()]
    if not lines or not _LINE.match(lines[0]):
        return None
    found = [_LINE.match(each) for each in lines]
    if sum(each is not None for each in found) < max(_LEAST, len(lines) / 2):
        return None
    days = _days([each["day"] for each in found if each])
    turns: list[Turn] = []
    for line, match in zip(lines, found, strict=True):
        if match:
            turns.append(Turn(match["who"], match["text"], days[match["day"]]))
        else:
            turns[-1] = turns[-1]._replace(text=f"{turns[-1].text}\n{line}")
    return turns


def _days(given: Sequence[str]) -> dict[str, date | None]:
    """Return what dates mean: `08/05/2023` is of May, unless one of them could not be."""
    numbers = {each: [int(part) for part in re.split(r"[-/.]", each)] for each in given}
    month_first = any(parts[1] > 12 for parts in numbers.values() if parts[0] <= 31)
    days: dict[str, date | None] = {}
    for each, (first, second, third) in numbers.items():
        year, month, day = (first, second, third) if first > 31 else (third, second, first)
        if month_first and first <= 31:
            month, day = first, second
        try:
            days[each] = date(year + 2000 * (year < 100), month, day)
        except ValueError:
            days[each] = None
    return days


def holds_chat(value: object, deep: int = _DEEP) -> bool:
    """Whether JSON has a chat in it."""
    return deep > 0 and (
        turns_of(value) is not None or any(holds_chat(each, deep - 1) for _, each in members_of(value))
    )


def members_of(value: object) -> Iterator[tuple[str, object]]:
    """Yield the members of an object or a list of JSON, by their names; those of a list have none."""
    if isinstance(value, dict):
        yield from cast("JsonObject", value).items()
    elif isinstance(value, list):
        yield from (("", each) for each in cast("list[object]", value))


def turns_of(value: object, beside: str = "") -> list[Turn] | None:
    """Return the turns of a list of JSON; None: it is no chat. `beside`: a text that tells when that was."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    turns = [_turn(cast("JsonObject", each), beside) for each in items if isinstance(each, dict)]
    said = [each for each in turns if each is not None and each.text]
    return said if len(items) > 1 and len(turns) == len(items) == sum(map(bool, turns)) and said else None


def _turn(item: JsonObject, beside: str) -> Turn | None:
    """Return a turn; one of which nothing is text has the text ""; None: it is none."""
    who = next((item[each] for each in _WHO if each in item), None)
    name = cast("JsonObject", who).get("name", cast("JsonObject", who).get("role")) if isinstance(who, dict) else who
    key = next((each for each in _WHAT if each in item), None)
    if not isinstance(name, str) or not name or key is None:
        return None
    given = item[key]
    parts = [given] if isinstance(given, str) else [each for _, each in members_of(given)]
    words = [cast("JsonObject", part).get("text") if isinstance(part, dict) else part for part in parts]
    when = next((item[each] for each in _WHEN if each in item), beside)
    return Turn(name, "\n".join(each for each in words if isinstance(each, str)).strip(), _day(when))


def _day(given: Any) -> date | None:
    """Return the day of a time: seconds or milliseconds since 1970, ISO 8601, or words (`1 pm on 8 May, 2023`)."""
    try:
        if isinstance(given, int | float) or re.fullmatch(r"\d{9,13}(\.\d+)?", str(given)):
            seconds = float(given)
            return datetime.fromtimestamp(seconds / (1000 if seconds > 1e11 else 1), UTC).date()
        named = days_in(str(given)[:100], date.max).split(" ")[0]
        return date(int(named[:4]), int(named[4:6]), int(named[6:8])) if len(named) == 8 else None
    except (ValueError, OverflowError, OSError):
        return None
