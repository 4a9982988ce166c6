"""Slots make a value of a type from what a person writes, or a sentence on what is wrong with it."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from drsai_backend.strategies.router.flows.dates import NoSuchDay, date_in
from drsai_backend.strategies.router.flows.quantities import amount_in
from drsai_backend.strategies.router.flows.words import plain, says_nothing, truth_of, without_word
from drsai_backend.strategies.router.patterns import Patience

if TYPE_CHECKING:
    from drsai_backend.strategies.router.flows.schema import Ask

SlotType: TypeAlias = Literal["text", "number", "integer", "boolean", "choice", "date", "email"]
MAX_TEXT: Final = 2000
"""Characters of a slot's text, unless it says less."""
_MAX_NUMBER: Final = 10**15
_PLACES: Final = 6
"""Decimals of a number, beyond which it is no answer: an hour is no number of days."""
_EMAIL: Final = re.compile(r"[A-Za-z0-9._%+\-]{1,64}@(?:[A-Za-z0-9\-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w@])")
_EMAIL_WORDS: Final = re.compile(rf"<?{_EMAIL.pattern}>?|e-mail", re.IGNORECASE)
_ORDINALS: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_NTH: Final = re.compile(
    rf"(?:\b(?:({'|'.join(_ORDINALS)})|option|number|choice|no\.)|#|选项?|第|号) ?(?:one\b)?", re.IGNORECASE
)


class NotTaken(Exception):
    """A text is no value of a slot; the text of the exception says why, for the person who wrote it."""


def read(slot: Ask, text: str, today: dt.date) -> object:
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
            value: object = _number(slot, said)
        case "boolean":
            value = truth_of(said)
            if value is None:
                raise NotTaken("Please answer yes or no.")
        case "choice":
            value = _choice(slot, said)
        case "date":
            value = _date(slot, said, today)
        case "email":
            value = _email(slot, said)
        case "text":
            value = said
    if isinstance(value, str):
        _check_text(slot, value)
    return value


def _check_text(slot: Ask, value: str) -> None:
    if len(value) > slot.max_length:
        raise NotTaken(f"That is too long: at most {slot.max_length} characters.")
    if len(value) < slot.min_length:
        raise NotTaken(f"That is too short: at least {slot.min_length} characters.")
    if slot.pattern is not None and Patience().find(slot.pattern, value, whole=True) is None:
        raise NotTaken("That does not have the right form.")


def _about(slot: Ask) -> str:
    return f"{slot.prompt} {slot.called}"


def _number(slot: Ask, said: str) -> int | float:
    amount = amount_in(said, slot.prompt, slot.called)
    if amount is None or abs(amount) > _MAX_NUMBER or (amount * 10**_PLACES).denominator > 1:
        raise NotTaken("Please give one number.")
    if slot.type == "integer" and amount.denominator > 1:
        raise NotTaken("Please give a whole number.")
    value = int(amount) if amount.denominator == 1 else float(amount)
    if isinstance(slot.min, (int, float)) and value < slot.min:
        raise NotTaken(f"Please give a number of at least {slot.min:g}.")
    if isinstance(slot.max, (int, float)) and value > slot.max:
        raise NotTaken(f"Please give a number of at most {slot.max:g}.")
    return value


def _choice(slot: Ask, said: str) -> str:
    words = {plain(word): value for value, others in slot.synonyms.items() for word in (value, *others)}
    if (exact := words.get(plain(said))) is not None:
        return exact
    names = list(slot.synonyms)
    number = amount_in(_NTH.sub(_nth, said), slot.prompt)
    if number is not None and number.denominator == 1 and 1 <= number <= len(names):
        return names[int(number) - 1]
    rest = plain(said)
    inside: set[str] = set()
    for word in sorted(words, key=len, reverse=True):
        left = without_word(rest, word)
        if left != rest:
            rest, inside = left, inside | {words[word]}
    if len(inside) == 1 and says_nothing(rest, _about(slot)):
        return inside.pop()
    raise NotTaken(f"Please choose one of: {', '.join(names)}.")


def _email(slot: Ask, said: str) -> str:
    found = _EMAIL.findall(said)
    if len(found) != 1 or not says_nothing(_EMAIL_WORDS.sub(" ", said), _about(slot)):
        raise NotTaken("Please give one e-mail address, such as ann@example.org.")
    return found[0]


def _nth(found: re.Match[str]) -> str:
    return f"{_ORDINALS.index(found[1].lower()) + 1} " if found[1] else " "


def _date(slot: Ask, said: str, today: dt.date) -> str:
    try:
        value = date_in(said, today, _about(slot))
    except NoSuchDay as error:
        raise NotTaken(str(error)) from None
    if value is None:
        raise NotTaken(f"Please give a date, such as {today.isoformat()}.")
    if isinstance(slot.min, str) and value < (earliest := _bound(slot.min, today)):
        raise NotTaken(f"Please give a date not before {earliest.isoformat()}.")
    if isinstance(slot.max, str) and value > (latest := _bound(slot.max, today)):
        raise NotTaken(f"Please give a date not after {latest.isoformat()}.")
    return value.isoformat()


def _bound(text: str, today: dt.date) -> dt.date:
    return today if text == "today" else dt.date.fromisoformat(text)


def is_date_bound(text: object) -> bool:
    """Whether it can be the `min` or `max` of a date: `today`, or a day as 2026-03-01."""
    try:
        return isinstance(text, str) and bool(_bound(text, dt.date.min))
    except ValueError:
        return False
