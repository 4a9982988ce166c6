"""Encodings of texts are told by marks, by what is valid, and by how common the characters are that come of it."""

from __future__ import annotations

import codecs
import re
from typing import Final

from drsai_backend.errors import DocumentUnsupported

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# The most frequent characters of Chinese in both scripts, punctuation, kana, Hangul, and the letters of Europe. A text
# that is decoded wrongly has hardly any of them.
_COMMON: Final = re.compile(
    "[的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事"
    "成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把机十民第公此"
    "已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代"
    "這個們來為國說時會對於著過發後裡種經麼學現當沒動還進樣開從實軍無與長機關點業將兩間問並應戰頭體見產話"
    "，。、；：？！（）《》「」『』“”‘’—…·　\u3041-\u30ff\uac00-\ud7a3"  # noqa: RUF001 - Chinese
    "äöüßéèêëàâáåãçñóòôõúùûíìîïæøœÄÖÜÉÈÀÅÇÑÓØ€£§°«»\u2013\u0430-\u044f]"
)
_LEGACY: Final = ("gb18030", "big5", "shift_jis", "euc_kr", "cp1252", "cp1251")
"""Encodings without marks, of equal ones the first wins."""
_SAMPLE: Final = 200_000
"""Bytes by which the encoding is told."""
_MOST_ODD: Final = 0.02
"""Share of control and replaced characters from which on it is no text."""
_ODD: Final = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffd]")


def decode(data: bytes, declared: str | None = None) -> str:
    """Return the text that bytes are.

    Args:
        declared: the encoding that they say of themselves; believed where they are valid in it, and no UTF-8.

    Raises:
        DocumentUnsupported: they are no text.
    """
    text = _decoded(data, declared)
    if len(_ODD.findall(text[:_SAMPLE])) > _MOST_ODD * min(len(text), _SAMPLE) + 1:
        raise DocumentUnsupported("the file is no text, and of no other kind that is read here")
    return text


def _decoded(data: bytes, declared: str | None) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    for encoding in filter(None, ("utf-8", _wide(data), declared)):
        try:
            return data.decode(encoding)
        except (UnicodeError, LookupError):
            continue
    return data.decode(_likely(data[:_SAMPLE]), "replace")


def _wide(data: bytes) -> str | None:
    """UTF-16 without a mark: of what is ASCII in it, each second byte is a NUL."""
    first, second = data[:_SAMPLE:2].count(0), data[1:_SAMPLE:2].count(0)
    least = min(len(data), _SAMPLE) // 50
    if max(first, second) <= least:
        return None
    if second > 4 * first:
        return "utf-16-le"
    return "utf-16-be" if first > 4 * second else None


def _likely(sample: bytes) -> str:
    scores = {"utf-8": _score(sample, "utf-8")}  # cut in a character, or with a few bytes that are broken
    for encoding in _LEGACY:
        scores[encoding] = _score(sample, encoding)
    return max(scores, key=lambda each: scores[each])


def _score(sample: bytes, encoding: str) -> float:
    """Share of common characters among those beyond ASCII, less the share of those that cannot be decoded."""
    foreign = re.sub("[\x00-\x7f]+", "", sample.decode(encoding, "replace"))
    if not foreign:
        return 0.0
    return (len(_COMMON.findall(foreign)) - 4 * foreign.count("\ufffd")) / len(foreign)
