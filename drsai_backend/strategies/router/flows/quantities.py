"""Quantities are numbers as people write them in English and Chinese, with units of money, time, weight, length and
count.

A text is read as a whole or not at all: what is left of it has to say nothing (`words.says_nothing`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from drsai_backend.strategies.router.flows.words import says_nothing, widened


class Unit(NamedTuple):
    """A unit: what it measures (a currency, for money), and how many of the plainest unit of that it is."""

    kind: str
    size: Fraction


def _units(table: Mapping[str, str]) -> dict[str, Unit]:
    made = {key: Unit(key.split()[0], Fraction(key.split()[1])) for key in table}
    return {word: made[key] for key, words in table.items() for word in words.split("|")}


UNITS: Final = _units({
    "CNY 1": "元|块|圆|人民币|¥|yuan|rmb|cny",
    "CNY 1/10": "角|毛",
    "USD 1": "$|us$|usd|dollar|dollars|buck|bucks|美元|美金",
    "EUR 1": "€|eur|euro|euros|欧元",
    "GBP 1": "£|gbp|pound|pounds|英镑",
    "HKD 1": "hk$|hkd|港币|港元",
    "JPY 1": "jpy|yen|日元",
    "time 1": "day|days|d|天|日",
    "time 7": "week|weeks|周|星期|礼拜",
    "time 14": "fortnight|fortnights",
    "time 1/24": "hour|hours|hr|hrs|h|小时|钟头",
    "time 1/96": "刻钟",
    "time 1/1440": "minute|minutes|min|mins|m|分钟|分",
    "time 1/86400": "second|seconds|sec|secs|s|秒|秒钟",
    "months 1": "month|months|月",
    "months 12": "year|years|年",
    "weight 1": "kg|kilo|kilos|kilogram|kilograms|公斤|千克",
    "weight 1/2": "斤",
    "weight 1/1000": "g|gram|grams|克",
    "length 1": "metre|metres|meter|meters|米",
    "length 1000": "km|kilometre|kilometres|kilometer|kilometers|公里|千米",
    "length 1/100": "cm|厘米",
    "count 1": "个|人|位|名|件|次|people|persons|person|guests|guest|times|degrees|度",
    "% 1": "%|percent",
})  # fmt: skip
_CENT: Final = Unit("CNY", Fraction(1, 100))
_MONEY: Final = frozenset({"CNY", "USD", "EUR", "GBP", "HKD", "JPY"})
_ROW: Final = {each: value % 10 for value, each in enumerate("〇一二三四五六七八九零壹贰叁肆伍陆柒捌玖")}
_ONES: Final = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
_NAMES: Final = {
    **{each: Fraction(value) for each, value in {**_ROW, "两": 2, "俩": 2, "仨": 3, "a": 1, "an": 1}.items()},
    "half a": Fraction(1, 2),
    "half an": Fraction(1, 2),
    **{word: Fraction(value) for value, word in enumerate(_ONES)},
}
_TENS: Final[dict[str, int]] = dict(
    zip(("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"), range(20, 100, 10), strict=True)
)
_POWERS: Final = {
    "亿": 10**8, "million": 10**6, "万": 10**4, "w": 10**4, "thousand": 1000, "k": 1000, "千": 1000, "仟": 1000,
    "hundred": 100, "百": 100, "佰": 100, "dozen": 12, "十": 10, "拾": 10,
}  # fmt: skip
_LITERAL: Final = r"\d{1,3}(?: \d{3}){1,6}(?!\d)(?:[.,]\d{1,9})?|\d{1,30}(?:[.,']\d{1,30}){0,12}|[.,]\d{1,30}"
_POWER_WORD: Final = r"(?:hundred|dozen|thousand|million|k|w)(?![a-z])"
_UNIT: Final = rf"(?:{'|'.join(re.escape(each) for each in sorted(UNITS, key=len, reverse=True))})(?![a-z])"
_WORD: Final = (
    rf"{_LITERAL}|(?!一共)[{''.join(_ROW)}两俩仨点亿万千仟百佰十拾]|{_POWER_WORD}|half an?(?= {_POWER_WORD})|"
    rf"(?<![a-z])(?:(?:{'|'.join([*_TENS, *(each for each in _NAMES if len(each) > 2 and each.isalpha())])})(?![a-z])|"
    rf"(?<!half )an?(?= (?:{_POWER_WORD}|{_UNIT})))"
)
_NUMERAL: Final = re.compile(rf"(?<![a-z])(?:{_WORD})(?:(?: and |[ -]?)(?:{_WORD})){{0,40}}")
_MONEY_WORDS: Final = "|".join(
    re.escape(word) for word in sorted(UNITS, key=len, reverse=True) if UNITS[word].kind in {*_MONEY, "%"}
)
_QUANTITY: Final = re.compile(
    rf"(?:(?<=. )and )?(?:(?<![a-z])(?P<before>{_MONEY_WORDS}))? ?(?P<sign>(?<!\w)[-\u2212+]|minus |负|零下)?"
    rf"(?:<(?P<number>\d+)>|(?P<only>半|half an?))(?P<more> ?个 ?半| and a half)? ?个?"
    rf"[ -]?(?P<unit>{_UNIT})?(?:(?<=[^\d>])(?P<half>半| and a half)?)?"
)
_TIGHT: Final = re.compile(r"\b(cny|rmb|usd|eur|gbp|hkd|jpy)(?=\d)|(?<=\d)([a-z]+)(?=\d)")
_PIECE: Final = re.compile(rf"{_LITERAL}|half an?|[a-z]+|[^\sa-z-]")
_ASKED: Final = re.compile(rf"(?:how many|number of|in|\(|几|多少) ?个?({_UNIT})")


def amount_in(text: str, about: str, called: str = "") -> Fraction | None:
    """The one number that a text says, in the unit that is asked for; None: it says none, several, or more than that.

    Args:
        text: what a person has written.
        about: what they were asked; a unit in it, as in `How many days?`, is what is counted. Where none is in it,
            money and the plainest units (days, kilograms, metres, pieces) leave the number as it is.
        called: what the number is called; it may be a unit.
    """
    items = _items(widened(text), f"{about} {called}")
    if not items:
        return None
    asked = {UNITS[word] for word in [*_ASKED.findall(widened(about)), widened(called)] if word in UNITS}
    measured = [(number, unit) for number, unit in items if unit is not None and unit.kind != "count"]
    if not measured:
        return items[0][0] if len(items) == 1 else None
    kind = measured[0][1].kind
    if len(measured) < len(items) or any(unit.kind != kind for _, unit in measured):
        return None
    whole = sum((number * unit.size for number, unit in measured), Fraction(0))
    if asked:
        return next((whole / unit.size for unit in asked if unit.kind == kind), None)
    plain = kind in _MONEY or (len(items) == 1 and measured[0][1].size == 1 and kind != "months")
    return whole if plain else None


def _items(text: str, about: str) -> list[tuple[Fraction, Unit | None]] | None:
    """The quantities of a text, in order; None: it is not understood."""
    text = _TIGHT.sub(r" \g<0> ", text).replace("百分之", "%")
    numbers: list[Fraction] = []
    for found in _NUMERAL.finditer(text):
        number = number_of([word for word in _PIECE.findall(found[0]) if word != "and"])
        if number is None:
            return None
        numbers.append(number)
    places = iter(range(len(numbers)))
    text = _NUMERAL.sub(lambda _: f"<{next(places)}>", text)
    items: list[tuple[Fraction, Unit | None]] = []
    for found in _QUANTITY.finditer(text):
        unit = UNITS.get(found["unit"] or found["before"] or "")
        if (found["only"] and unit is None) or (found["before"] and unit != UNITS[found["before"]]):
            return None
        number = numbers[int(found["number"])] if found["number"] else Fraction(1, 2)
        number += Fraction(bool(found["more"] or found["half"]), 2)
        last = items[-1][1] if items else None
        if last is not None and last.kind in _MONEY and found["unit"] in (None, "分") and number < 10:
            number, unit = (number / 10, last) if unit is None else (number, _CENT)  # 三块五, 5角6分
        items.append((-number if found["sign"] and found["sign"] != "+" else number, unit))
    return items if says_nothing(_QUANTITY.sub(" ", text), about) else None


def number_of(words: Sequence[str]) -> Fraction | None:
    """The number that some words of a number are together; None: they are none."""
    for power in (each for each in _POWERS if each in words):
        at, size, chinese = words.index(power), _POWERS[power], power > "\u2e80"
        high = Fraction(1) if not at and power not in "亿万千仟百佰" else number_of(words[:at])
        after = words[at + 1 :]
        low = number_of(after) if after else Fraction(0)
        if high is None or low is None or low >= size or (chinese and high >= (10 if size <= 1000 else 10**4)):
            return None
        if chinese and len(after) == 1 and low < 10:
            low *= Fraction(size, 10)  # 两百五
        return high * size + low
    if not words:
        return None
    if "点" in words:
        whole, rest = number_of(words[: words.index("点")]), words[words.index("点") + 1 :]
        digits = "".join(str(_ROW[each]) for each in rest if each in _ROW)
        return whole + Fraction(f"0.{digits}") if whole is not None and digits and len(digits) == len(rest) else None
    if len(words) == 1:
        return _NAMES[words[0]] if words[0] in _NAMES else Fraction(_TENS.get(words[0], 0)) or _literal(words[0])
    if len(words) == 2 and words[0] in _TENS and 0 < _NAMES.get(words[1], 0) < 10 and words[1].isascii():
        return _TENS[words[0]] + _NAMES[words[1]]
    if _ROW.get(words[0]) == 0:
        return number_of(words[1:])
    is_row = len(words) > 2 and all(each in _ROW for each in words)  # two would be a guess: 五六百
    return Fraction("".join(str(_ROW[each]) for each in words)) if is_row else None


def _literal(text: str) -> Fraction | None:
    """A number with its groups (1,000 or 1.000.000 or 1 000) and its decimals (1.5 or 1,5)."""
    marks, text = re.sub(r"[\d ']", "", text), re.sub("[ ']", "", text)
    if re.fullmatch(r"\d{1,3}(,\d{3})+|\d{1,3}(\.\d{3}){2,}|\d{1,2}(,\d\d)+,\d{3}", text):
        return Fraction(re.sub("[.,]", "", text))
    if len(marks) > 1 and re.fullmatch(r"\d{1,3}(?:,\d{2,3})*,\d{3}\.\d+|\d{1,3}(?:\.\d{3})+,\d+", text) is None:
        return None
    return Fraction(text.replace("." if marks[-1:] == "," else ",", "").replace(",", "."))
