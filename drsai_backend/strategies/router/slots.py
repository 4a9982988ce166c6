"""Slots: what a person writes, read as a value of a type, or a sentence on what is wrong with it."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

from drsai_backend.strategies.router.patterns import Patience
from drsai_backend.strategies.router.words import plain, truth_of

SlotType: TypeAlias = Literal["text", "number", "integer", "boolean", "choice", "date", "email"]
MAX_TEXT: Final = 2000
"""Characters of a slot's text, unless it says less."""
_MAX_NUMBER: Final = 1e15
_NUMBER: Final = re.compile(r"(?<![\w.,])[-+]?\d[\d.,\u00a0\u202f']{0,30}(?![\w])")
_EMAIL: Final = re.compile(r"[A-Za-z0-9._%+\-]{1,64}@(?:[A-Za-z0-9\-]{1,63}\.){1,8}[A-Za-z]{2,24}")
_ISO: Final = re.compile(r"(?<!\d)(\d{4})\s?[-/.年]\s?(\d{1,2})\s?[-/.月]\s?(\d{1,2})日?(?!\d)")
_DOTTED: Final = re.compile(r"(?<!\d)(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{4})(?!\d)")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMED: Final = re.compile(
    rf"(?<!\w)(?:(\d{{1,2}})(?:st|nd|rd|th)?\s+)?({'|'.join(_MONTHS)})[a-z]*\.?\s+"
    r"(?:(\d{1,2})(?:st|nd|rd|th)?(?!\d),?\s+)?(\d{4})(?!\d)",
    re.IGNORECASE,
)
_DAYS: Final = {
    "day after tomorrow": 2, "übermorgen": 2, "après-demain": 2, "后天": 2, "послезавтра": 2,
    "tomorrow": 1, "morgen": 1, "demain": 1, "mañana": 1, "明天": 1, "завтра": 1,
    "today": 0, "heute": 0, "aujourd'hui": 0, "hoy": 0, "今天": 0, "сегодня": 0,
    "yesterday": -1, "gestern": -1, "hier": -1, "ayer": -1, "昨天": -1, "вчера": -1,
}  # fmt: skip


class SlotWords(Protocol):
    """What a slot says of its values (`schema.Ask`)."""

    @property
    def type(self) -> SlotType: ...
    @property
    def min(self) -> float | str | None: ...
    @property
    def max(self) -> float | str | None: ...
    @property
    def min_length(self) -> int: ...
    @property
    def max_length(self) -> int: ...
    @property
    def pattern(self) -> str | None: ...
    @property
    def synonyms(self) -> Mapping[str, Sequence[str]]: ...


class NotTaken(Exception):
    """A text is no value of a slot; the text of the exception says why, for the person who wrote it."""


def read(slot: SlotWords, text: str, today: dt.date) -> Any:
    """The value in a text.

    Args:
        today: what `tomorrow` counts from.

    Raises:
        NotTaken: there is none, or it is not allowed.
    """
    said = text.strip()
    if not said:
        raise NotTaken("Please write something.")
    match slot.type:
        case "number" | "integer":
            value: Any = _number(slot, said)
        case "boolean":
            value = truth_of(said)
            if value is None:
                raise NotTaken("Please answer yes or no.")
        case "choice":
            value = _choice(slot, said)
        case "date":
            value = _date(slot, said, today)
        case "email":
            found = _EMAIL.findall(said)
            if len(found) != 1:
                raise NotTaken("Please give one e-mail address, such as ann@example.org.")
            value = found[0]
        case "text":
            value = said
    if isinstance(value, str):
        _check_text(slot, value)
    return value


def _check_text(slot: SlotWords, value: str) -> None:
    if len(value) > slot.max_length:
        raise NotTaken(f"That is too long: at most {slot.max_length} characters.")
    if len(value) < slot.min_length:
        raise NotTaken(f"That is too short: at least {slot.min_length} characters.")
    if slot.pattern is not None and Patience().find(slot.pattern, value, whole=True) is None:
        raise NotTaken("That does not have the right form.")


def _number(slot: SlotWords, said: str) -> int | float:
    found = _NUMBER.findall(said)
    if len(found) != 1:
        raise NotTaken("Please give one number.")
    value = _as_number(found[0])
    if value is None or not math.isfinite(value) or abs(value) > _MAX_NUMBER:
        raise NotTaken("Please give one number.")
    if slot.type == "integer":
        if value != int(value):
            raise NotTaken("Please give a whole number.")
        value = int(value)
    if isinstance(slot.min, (int, float)) and value < slot.min:
        raise NotTaken(f"Please give a number of at least {slot.min:g}.")
    if isinstance(slot.max, (int, float)) and value > slot.max:
        raise NotTaken(f"Please give a number of at most {slot.max:g}.")
    return value


def _as_number(text: str) -> int | float | None:
    """A number with its groups (1,000 or 1.000.000 or 1 000) and its decimals (1.5 or 1,5)."""
    text = re.sub(r"[\u00a0\u202f']", "", text).rstrip(".,")
    marks = [each for each in text if each in ".,"]
    if marks:
        last = marks[-1]
        is_group = len(set(marks)) == 1 and bool(re.fullmatch(r"[-+]?\d{1,3}([.,]\d{3})+", text))
        if is_group and (last == "," or len(marks) > 1):
            text = text.replace(last, "")
        else:
            other = "," if last == "." else "."
            text = text.replace(other, "")
            if text.count(last) > 1:
                return None
            text = text.replace(last, ".")
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return None


def _choice(slot: SlotWords, said: str) -> str:
    words = {plain(word): value for value, others in slot.synonyms.items() for word in (value, *others)}
    if (exact := words.get(plain(said))) is not None:
        return exact
    names = list(slot.synonyms)
    if said.rstrip(".)").isdecimal() and 1 <= int(said.rstrip(".)")[:4]) <= len(names):
        return names[int(said.rstrip(".)")[:4]) - 1]
    text = f" {plain(said)} "
    inside = {value for word, value in words.items() if _has_word(text, word)}
    if len(inside) == 1:
        return inside.pop()
    raise NotTaken(f"Please choose one of: {', '.join(names)}.")


def _has_word(text: str, word: str) -> bool:
    if not word:
        return False
    if ord(word[0]) > 0x2E80:  # written without blanks between words
        return word in text
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def _date(slot: SlotWords, said: str, today: dt.date) -> str:
    found = set(_dates(said, today))
    if len(found) != 1:
        raise NotTaken(f"Please give a date, such as {today.isoformat()}.")
    value = found.pop()
    if isinstance(slot.min, str) and value < (earliest := _bound(slot.min, today)):
        raise NotTaken(f"Please give a date not before {earliest.isoformat()}.")
    if isinstance(slot.max, str) and value > (latest := _bound(slot.max, today)):
        raise NotTaken(f"Please give a date not after {latest.isoformat()}.")
    return value.isoformat()


def _dates(said: str, today: dt.date) -> list[dt.date]:
    parts = [(int(y), int(m), int(d)) for y, m, d in _ISO.findall(said)]
    parts += [(int(y), int(m), int(d)) for d, m, y in _DOTTED.findall(said)]
    for before, month, after, year in _NAMED.findall(said):
        if bool(before) != bool(after):
            parts.append((int(year), _MONTHS.index(month.lower()) + 1, int(before or after)))
    found: list[dt.date] = []
    for year, month, day in parts:
        try:
            found.append(dt.date(year, month, day))
        except ValueError:
            raise NotTaken(f"There is no such day: {year:04d}-{month:02d}-{day:02d}.") from None
    text = f" {plain(said)} "
    for word, days in _DAYS.items():
        if _has_word(text, word):
            found.append(today + dt.timedelta(days=days))
            break
    return found


def _bound(text: str, today: dt.date) -> dt.date:
    return today if text == "today" else dt.date.fromisoformat(text)


def is_date_bound(text: object) -> bool:
    """Whether it can be the `min` or `max` of a date: `today`, or a day as 2026-03-01."""
    try:
        return isinstance(text, str) and bool(_bound(text, dt.date.min))
    except ValueError:
        return False
