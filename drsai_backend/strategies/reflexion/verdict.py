"""A verdict is what a judge says of an attempt; it is read from what the judge's model has said."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast
from unicodedata import normalize

from drsai_backend.json_types import JsonObject

MOST: Final = 4_000
"""Characters of reasons, and of a reflection, that are kept."""
_READ: Final = 20_000
"""Characters of an answer that are looked at."""
_STARTS: Final = 50
"""Braces of an answer at which a JSON object may begin."""
_SPOKEN: Final = re.compile(
    r"(?:(?<![a-z])(?:score|rating)(?![a-z])|得分|总分|评分)"
    r"(?:\W{0,4}\((?:from )?0 ?(?:-|to|到|至) ?1\))?"
    r"(?:[^\w\n.+-]|(?:is|of)\s|[为是])*+([+-]?\.?\d[^\n]{0,60})",
    re.IGNORECASE,
)
"""What is called a score, to the end of the line. Its scale may stand in brackets behind the name."""
_CLAUSE: Final = re.compile(
    r"[;。!?})\]\"<|]|,(?!\s*(?:\d|满分))|\.(?!\d)| - (?!\d)|\s(?:because|since|as|but|and)\b|因为", re.IGNORECASE
)
"""Where what is said of a score ends."""
_NUMBER: Final = re.compile(
    r"([+-]?(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9}))\s*"
    r"(?:(%)|分?\s*(?:/|of|out of|[,(]?\s*满分)\s*(\d{1,3}(?:\.0)?)\s*分?\)?|分)?[.*\s]*",
    re.IGNORECASE,
)

SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "score": {"type": "number", "description": "From 0 (of no use) to 1 (nothing is wrong or missing)."},
        "reasons": {"type": "string", "description": "Why this score."},
        "reflection": {"type": "string", "description": "What the next attempt has to do differently."},
    },
    "required": ["score", "reasons", "reflection"],
    "additionalProperties": False,
}


class NoVerdict(ValueError):
    """An answer gives no score; says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge says of an attempt.

    Attributes:
        score: 0 to 1.
        reasons: why.
        reflection: what the next attempt has to do differently; "": nothing was said of it.
    """

    score: float
    reasons: str = ""
    reflection: str = ""

    def told(self) -> str:
        """Return a text for the reader of the thoughts, and for the one who makes the next attempt."""
        lines = [f"Score: {self.score:.2f}"]
        lines += [f"Reasons: {self.reasons}"] if self.reasons else []
        lines += [f"Reflection: {self.reflection}"] if self.reflection else []
        return "\n".join(lines)


def read_verdict(text: str) -> Verdict:
    """The verdict in an answer: a JSON object, wherever it is in the text, else a score in words.

    Raises:
        NoVerdict: there is no score from 0 to 1 in it.
    """
    text = text[:_READ]
    problem = ""
    for found in _objects(text):
        given = next((found[name] for name in ("score", "rating") if name in found), None)
        if given is None:
            continue
        try:
            score = _score(given)
        except NoVerdict as error:
            problem = str(error)
            continue
        return Verdict(score, _text(found.get("reasons", found.get("reason"))), _text(found.get("reflection")))
    spoken: set[float] = set()
    if not problem:
        spoken = {_score(_CLAUSE.split(found[1], 1)[0]) for found in _SPOKEN.finditer(normalize("NFKC", text))}
    if len(spoken) == 1:
        return Verdict(spoken.pop(), _text(text))
    problem = "it gives several scores" if spoken else problem
    raise NoVerdict(problem or "it has no JSON object with `score`")


def _objects(text: str) -> Iterator[JsonObject]:
    decoder = json.JSONDecoder()
    place = -1
    for _ in range(_STARTS):
        place = text.find("{", place + 1)
        if place < 0:
            return
        try:
            found, _ = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield cast("JsonObject", found)


def _score(given: object) -> float:
    """A number, or a text such as `0.8`, `80%`, `8/10`, `8分, 满分10分`."""
    if isinstance(given, str):
        found = _NUMBER.fullmatch(normalize("NFKC", given[:200]).strip())
        if found is None:
            raise NoVerdict(f"`score` is no number: {given[:50]!r}")
        number = float(found[1]) / (100 if found[2] else float(found[3] or 1) or 1)
    elif isinstance(given, bool) or not isinstance(given, (int, float)):
        raise NoVerdict("`score` is no number")
    else:
        number = float(given) if abs(given) < 1e9 else math.inf
    if not 0 <= number <= 1:
        raise NoVerdict(f"`score` must be from 0 to 1, and is {str(given)[:50]}")
    return number


def _text(given: object) -> str:
    if given is None:
        return ""
    if isinstance(given, list):
        given = "\n".join(f"- {each}" for each in cast("list[object]", given))
    return str(given).strip()[:MOST]
