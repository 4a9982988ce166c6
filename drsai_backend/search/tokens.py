"""Tokens are what keywords find a text by: English words without their endings, pairs of Chinese, Japanese and Korean
characters, numbers, and the parts of identifiers; all of them in one text.

They are our own, because neither database's would be the same on the other one. An index says by `FORM` which it has.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from typing import Any, Final

FORM: Final = 1
"""The version of the tokens, and of the blocks of the postings."""
_LONGEST: Final = 64
"""Characters of a token; what is behind them does not tell words apart."""

_CJK: Final = (
    r"\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Characters that are written without spaces, as between brackets of an expression."""
_FIRST_CJK: Final = "\u1100"
"""The first of them: a piece that is less has none."""
_RUN: Final = re.compile(f"[{_CJK}]")
_PIECE: Final = re.compile(rf"[{_CJK}]+|\d+(?:[.,]\d+)+|[^\W{_CJK}]+(?:['\u2019][^\W\d_{_CJK}]+)?")
"""What a text has that is found: a run of characters that are written without spaces, a number, a word."""
_PART: Final = re.compile(r"\d+|[^\W\d_]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_stemming: Final = threading.Lock()
"""A stemmer has the word in itself: of two threads, each would change what the other one cuts."""
STOP: Final = (
    "a an and are as at be been but by did do does for from had has have he her his how i if in into is it its me my "
    "no not of on or our she so than that the their them then there these they this to was we were what when where "
    "which who whom whose why will with would you your"
)
"""Words of a query that are left out where it has others: nearly every text has them."""


def tokens(text: str) -> Iterator[str]:
    """The tokens of a text, in order, those of a part twice where it is an identifier: as a whole and by its parts."""
    return chain.from_iterable(map(_tokens, _pieces(text)))


def _pieces(text: str) -> list[str]:
    return _PIECE.findall(unicodedata.normalize("NFKC", text))


def _tokens(piece: str) -> Iterator[str]:
    if _RUN.match(piece):
        return (piece[at : at + 2] for at in range(max(1, len(piece) - 1)))
    if "." in piece or "," in piece:
        return iter([piece.replace(",", "")[:_LONGEST]])
    return _words(piece)


def _words(word: str) -> Iterator[str]:
    if word.isalpha() and (word.islower() or word[1:].islower() or word.isupper()):
        yield _stemmed(word.lower()[:_LONGEST])
        return
    word = word.replace("\u2019", "'")
    parts = _PART.findall(_HUMP.sub("_", word)) if "'" not in word else [word]
    if len(parts) > 1:
        yield word.lower()[:_LONGEST]
    for part in parts:
        yield _stemmed(part.lower()[:_LONGEST])


def terms(text: str) -> Counter[int]:
    """The tokens of a text as they are stored, 64-bit digests, and how often each is in it."""
    return Counter(chain.from_iterable(map(_terms, _pieces(text))))


def _terms(piece: str) -> tuple[int, ...]:
    # Words come again, in whatever text; runs do not, and what is long would fill the memory.
    return _known(piece) if piece < _FIRST_CJK and len(piece) <= _LONGEST else _digests(piece)


def _digests(piece: str) -> tuple[int, ...]:
    return tuple(map(_digest, _tokens(piece)))


_known: Final = lru_cache(maxsize=20_000)(_digests)


def asked(text: str, most: int) -> list[int]:
    """The terms that a query looks for, in their order: up to `most`, without words that nearly every text has, unless
    it has no other."""
    found = [*dict.fromkeys(tokens(text))]
    stop = {_stemmed(word) for word in STOP.split(" ")}
    return sorted(map(_digest, ([each for each in found if each not in stop] or found)[:most]))


@lru_cache(maxsize=20_000)
def _stemmed(word: str) -> str:
    with _stemming:
        return _stem()(word)


@lru_cache(maxsize=1)
def _stem() -> Callable[[str], str]:
    from snowballstemmer.english_stemmer import EnglishStemmer

    stemmer: Any = EnglishStemmer()
    return stemmer.stemWord


@lru_cache(maxsize=20_000)
def _digest(token: str) -> int:
    return int.from_bytes(blake2b(token.encode(), digest_size=8).digest(), "little", signed=True)
