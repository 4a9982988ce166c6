"""Checks keep out secrets and what a message does not hold. No model is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from drsai_backend.errors import InvalidRequest
from drsai_backend.features.memory.base import MAX_TEXT, plain

_KEYS: Final = re.compile(
    r"""
      \b(?:sk|pk|rk|xox[abpr]|gh[pousr]|glpat|AIza|ya29|hf|npm|pypi|whsec|dop_v1|shpat)[-_.A-Za-z0-9]*[-_]?[A-Za-z0-9_-]{16,}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \beyJ[\w-]{8,}\.[\w-]{8,}
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY
    | \b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]+@
    | \b(?:password|passwort|passphrase|pin|api[ _-]?key|secret|token)\b\s*(?:is|ist|:|=|\uff1a)\s*\S+
    | (?:密码|口令|密钥)\s*(?:是|为|:|=|\uff1a)\s*\S+
    """,
    re.VERBOSE | re.IGNORECASE,
)
_RANDOM: Final = re.compile(r"[A-Za-z0-9+/_=-]{24,}")
_DIGITS: Final = re.compile(r"(?<![\d.])(?:\d(?:[ -]?\d){11,22}|\d{4}(?:[./]\d{4}){3})(?!\d)")
_CARD: Final = range(13, 20)
_RECALLED: Final = re.compile(r"\[memory\].*?(?:\[/memory\]|\Z)", re.DOTALL | re.IGNORECASE)
_DOCUMENT: Final = re.compile(
    r"(?:A file of the user's\.[^\n]{0,200}\n)?<document\b[^<>]*>.*?(?:</document>(?:\n\[[^\n]*\])*|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_FORGETS: Final = re.compile(r"\bforget\b|\bvergiss|忘(?:了|记|掉)|不要记", re.IGNORECASE)
_WORD: Final = re.compile(r"[^\W_]+(?:['\u2019][^\W\d_]+)?")
_EAST: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_LEAST_WORDS: Final = 2
_COMMON: Final = frozenset(
    (
        *("user", "users", "the", "their", "they", "has", "have", "had", "was", "were", "and", "for", "with", "from"),
        *("that", "this", "who", "whose", "his", "her", "its", "not", "are", "been", "about", "into", "than", "then"),
        *("she", "lives", "living", "works", "wants", "likes", "now"),
    )
)

_SAYS: Final = frozenset(("user's", "user\u2019s", "called", "named", "lives", "live", "himself", "herself"))
"""Words of facts for which people have others."""
_NOT: Final = re.compile(r"\b(?:not|no|never|none|nobody|cannot|without|stopped|nicht|kein\w*)\b|n['\u2019]t\b")
_ASKED: Final = frozenset(("forge", "forget", "pleas", "please", "remem", "remember"))


def secret_in(text: str) -> str | None:
    """Return what kind of secret a text seems to hold: `a key`, `a card number`; None: it holds none."""
    if _KEYS.search(text) or any(_is_random(found[0]) for found in _RANDOM.finditer(text)):
        return "a key or a password"
    if any(_is_card(re.sub(r"\D", "", found[0])) for found in _DIGITS.finditer(text)):
        return "a card number"
    return None


def _is_random(word: str) -> bool:
    """Whether a long word mixes cases and digits as words of languages do not."""
    mixed = sum(bool(re.search(kind, word)) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    changes = len(re.findall(r"[a-zA-Z][0-9]|[0-9][a-zA-Z]|[a-z][A-Z]", word))
    return mixed > 1 and changes * 6 >= len(word)


def _is_card(digits: str) -> bool:
    """Whether digits are as many as a card has, and pass Luhn's check."""
    if len(digits) not in _CARD or len(set(digits)) == 1:
        return False
    doubled = [int(each) * (1 + at % 2) for at, each in enumerate(reversed(digits))]
    return sum(each - 9 if each > 9 else each for each in doubled) % 10 == 0


def check_text(text: str) -> str:
    """Return a text as it is remembered, on one line.

    Raises:
        InvalidRequest: it is empty, too long, or seems to hold a secret. The error does not repeat it.
    """
    text = " ".join(text.split())
    if not text or len(text) > MAX_TEXT:
        raise InvalidRequest(f"`text` must have 1 to {MAX_TEXT} characters", param="text")
    if "\0" in text or any("\ud800" <= each <= "\udfff" for each in text):
        raise InvalidRequest("`text` must be Unicode without NUL characters", param="text")
    if (found := secret_in(text)) is not None:
        raise InvalidRequest(f"`text` seems to hold {found}, which is not remembered", param="text")
    return text


def without_recalled(text: str) -> str:
    """Return what somebody has said without memories that were shown, and stand in it again."""
    return _RECALLED.sub(" ", text)


def own_words(text: str) -> str:
    """Return what somebody has said themselves of a message, without documents, what a chat window has found for it,
    and memories that were shown."""
    from drsai_backend.runs.messages import words_of

    return without_recalled(_DOCUMENT.sub(" ", words_of(_DOCUMENT.sub(" ", text))))


def asks_to_forget(text: str) -> bool:
    """Return whether a message may ask that something be forgotten."""
    return _FORGETS.search(text) is not None


def why_not_held(text: str, quote: str, message: str) -> str | None:
    """Return why a message does not hold what is said to be learnt from it; None: it does, as far as words tell.

    The quoted words stand in the message, and are more than one; the text shares a word with them; and each number and
    each name of the text stands in the message, and most of its other words; of East Asian text, most of its pairs of
    characters do. A message that denies what is quoted does not hold a text that does not.
    """
    said, quoted = plain(message), plain(quote)
    if not quoted or quoted not in said:
        return "the quoted words are not in the message"
    if len(_WORD.findall(quoted)) < _LEAST_WORDS and len(_EAST.findall(quoted)) < 2 * _LEAST_WORDS:
        return "one word is no quotation"
    if _denies(said, quoted) and not _NOT.search(plain(text)):
        return "the message denies it"
    known = {*_words(said)}
    if strange := next(
        (each for each in _names(text) if each not in known and (each.isdigit() or each not in said)), None
    ):
        return f"{strange!r} is not in the message"
    pairs = [each for each in _words(plain(text).removeprefix("用户")) if _EAST.search(each)]
    if pairs and 2 * sum(each in said for each in pairs) <= len(pairs):
        return "most of the text is not in the message"
    told = {each for each in _stems(plain(text)) if not _EAST.search(each)}
    if told and 2 * len(told & {*_stems(said)}) < len(told):
        return "most of the text is not in the message"
    if not {*_words(plain(text))} & {*_words(quoted)}:
        return "the text has nothing of the quoted words"
    return None


def _words(text: str) -> Iterator[str]:
    """Yield what of a plain text says something: longer words by their first five letters, so that endings do not
    count; numbers; and pairs of East Asian characters."""
    for word in _WORD.findall(text):
        if _EAST.search(word):
            yield from (word[at : at + 2] for at in range(max(len(word) - 1, 1)))
        elif word.isdigit() or (len(word) > 2 and word not in _COMMON):
            yield word if word.isdigit() else word[:5]
            yield word


def _stems(text: str) -> Iterator[str]:
    """Yield the first five letters of the words of a plain text that are neither common nor numbers."""
    for word in _WORD.findall(text):
        if len(word) > 2 and word not in _COMMON and word not in _SAYS and not word[0].isdigit():
            yield re.sub("['\u2019]s$", "", word)[:5]


def _denies(said: str, quoted: str) -> bool:
    """Return whether the clause of a quotation in a message says that something is not so."""
    at = said.index(quoted)
    before = re.split(r"[.!?;:,\n]", said[:at])[-1]
    after = re.split(r"[.!?;:,\n]", said[at + len(quoted) :])[0]
    return _NOT.search(before + quoted + after) is not None


def _names(text: str) -> Iterator[str]:
    """Yield the numbers of a text, and its words with a capital letter; of those that begin a sentence, the ones
    that are not common."""
    begins = True
    for found in re.finditer(r"[^\W_]+|[.!?]", text):
        word = found[0]
        if word in ".!?":
            begins = True
            continue
        is_common = len(word) < 3 or plain(word) in _COMMON if begins else len(word) < 2
        if word[0].isdigit() or (word[0].isupper() and not is_common):
            yield plain(word)
        begins = False


def share_of_words(words: str, text: str) -> float:
    """Return the part of what some words say that a text says, too: 0 to 1."""
    wanted = {each for each in _words(plain(words)) if each not in _ASKED}
    return len(wanted & {*_words(plain(text))}) / len(wanted) if wanted else 0.0
