"""Encodings of texts are told by marks, by what is valid, and by the language that comes of it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Final

from drsai_backend.documents.languages import ENCODINGS, WIDE, Language, Sample
from drsai_backend.errors import DocumentUnsupported

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_AS_BROWSERS: Final = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
"""What pages mean that declare an encoding of which theirs has more characters."""
_SAMPLE: Final = 200_000
"""Bytes that are looked at for what is no text."""
_FOREIGN_SAMPLE: Final = 50_000
"""Bytes of lines beyond ASCII by which the encoding is told."""
_FOREIGN: Final = re.compile(rb"[^\n]?[\x80-\xff][^\n]*\n?")
_JIS: Final = re.compile(rb"\x1b\$[@B]")
_BROKEN_FEW: Final = 3
"""A text is UTF-8 with broken bytes where so many characters are whole for each broken one. By accident, fewer are."""
_MOST_BITS: Final = 5.7
"""Bits of a byte from which on it is no UTF-16 of a language, but of no text."""
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
    if _is_odd(text):
        raise DocumentUnsupported("the file is no text, and of no other kind that is read here")
    return text


def _is_odd(text: str) -> bool:
    return len(_ODD.findall(text[:_SAMPLE])) > _MOST_ODD * min(len(text), _SAMPLE) + 1


def _decoded(data: bytes, declared: str | None) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    # ASCII in UTF-16 is valid UTF-8, with NULs.
    if _is_odd(data[:_SAMPLE].decode("latin-1")):
        encoding, bits = _likely(data[:_FOREIGN_SAMPLE], WIDE)
        is_text = bits < _MOST_BITS * min(len(data), _FOREIGN_SAMPLE)
        return data.decode(encoding if is_text else "latin-1", "replace")
    text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd") - data.count("\ufffd".encode())
    if not broken:
        return data.decode("iso2022_jp", "replace") if _JIS.search(data) else text
    whole = len(text) - len(text.encode("ascii", "ignore")) - broken
    if whole >= _BROKEN_FEW * broken:
        return text
    if declared and (believed := _believed(data, declared)):
        return believed
    return data.decode(_likely(_foreign(data), ENCODINGS)[0], "replace")


def _believed(data: bytes, declared: str) -> str | None:
    try:
        name = codecs.lookup(declared).name
        return None if name.startswith("utf") else data.decode(_AS_BROWSERS.get(name, name))
    except (UnicodeError, LookupError):
        return None


def _foreign(data: bytes) -> bytes:
    """Lines from their first byte on that is none of ASCII, and the one before."""
    lines, size = list[bytes](), 0
    for found in _FOREIGN.finditer(data):
        lines.append(found[0][: _FOREIGN_SAMPLE - size])
        size += len(lines[-1])
        if size >= _FOREIGN_SAMPLE:
            break
    return b"".join(lines)


def _likely(sample: bytes, encodings: Mapping[str, tuple[float, Sequence[Language]]]) -> tuple[str, float]:
    """Return the encoding of whose languages a text is most, and the bits that it takes."""
    costs: dict[str, float] = {}
    for encoding, (unlikely, languages) in encodings.items():
        # It may be cut in the middle of a character.
        text = Sample(codecs.getincrementaldecoder(encoding)("replace").decode(sample))
        costs[encoding] = unlikely + min(map(text.cost, languages))
    return min(costs.items(), key=itemgetter(1))
