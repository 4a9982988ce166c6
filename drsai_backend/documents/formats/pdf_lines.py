"""Lines of a PDF become paragraphs, headings, lists and tables, as far as places and sizes of letters tell."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from math import atan2, cos, degrees, hypot, radians, sin
from typing import Final, cast
from unicodedata import normalize

from drsai_backend.documents.draft import Draft, clean, one_line

_HEADING: Final = 1.15
"""A line in letters that are so many times larger than most is a heading."""
_LONGEST_HEADING: Final = 200
_GAP: Final = 1.3
"""A paragraph ends where the next line is so many times further away than most are."""
_INDENT: Final = 0.8
"""Or where it begins so many times the size of letters more to the right."""
_CELL_GAP: Final = 1.2
"""Cells of a table are so many times the size of letters apart, or more."""
_WIDTH: Final = 0.55
"""Width of a letter, about, as a part of its size; of Chinese ones, 1."""
_BULLET: Final = re.compile(r"[•◦▪‣●○■–\-*·]\s+")  # noqa: RUF001 - dashes are meant
_NUMBERED: Final = re.compile(r"\(?\d{1,3}[.)]\s+\S")
_WIDE: Final = re.compile("[\u2e80-\u9fff\uac00-\ud7a3\uff00-\uffef]")
_BROKEN_WORD: Final = re.compile(r"[^\W\d_]{2}(-| ?[\xad\u2010])$")
_LIGATURES: Final = re.compile("[\ufb00-\ufb06\ufb50-\ufdff\ufe70-\ufefc]")
"""Letters joined, and Arabic ones as they are drawn: a text has the letters that they stand for."""
_TURN: Final = 15
"""Degrees by which lines are turned are multiples of it: a page that was scanned is a little askew."""
_RIGHT_TO_LEFT: Final = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_LEFT_TO_RIGHT: Final = re.compile(r"[^\W_]")


@dataclass(slots=True)
class Line:
    """A line of a page.

    Attributes:
        page: its number.
        x, y: where it begins, in points from the lower left corner, on a page that is turned as its text is.
        turn: degrees by which its text is turned.
        size: of most of its letters.
        parts: its texts and where each begins.
        text: all of them, once the line is whole.
    """

    page: int
    x: float = 0.0
    y: float = 0.0
    turn: int = 0
    size: float = 0.0
    parts: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    text: str = ""

    def cells(self) -> list[tuple[float, str]]:
        """Return its texts that stand apart, and where each begins."""
        cells: list[tuple[float, str]] = []
        end = 0.0
        for x, text in self.parts:
            if cells and x - end < _CELL_GAP * self.size:
                cells[-1] = (cells[-1][0], cells[-1][1] + text)
            else:
                cells.append((x, text))
            end = x + self.size * sum(1.0 if _WIDE.match(each) else _WIDTH for each in text.strip())
        return cells


class Lines:
    """Gathers the lines of a page, in the order in which they stand in the file.

    Attributes:
        unknown: there are letters of fonts that do not say which they are.
    """

    def __init__(self, page: int) -> None:
        self.unknown = False
        self._page = page
        self._lines: list[Line] = []
        self._line = Line(page)

    def take(self, text: str, cm: Sequence[float], tm: Sequence[float], font: object, size: float) -> None:
        """Take what pypdf hands on: a text, the two matrices that place it, its font."""
        self.unknown = self.unknown or (bool(text.strip()) and _is_unknown(font))
        # A soft hyphen of a page is drawn.
        text = _LIGATURES.sub(lambda each: normalize("NFKC", each[0]), text.replace("\xad", "\u2010"))
        first, *others = clean(text).split("\n")
        self._add(first, cm, tm, size)
        for each in others:
            self._end()
            self._add(each, cm, tm, size)

    def done(self) -> list[Line]:
        """Return the lines that have text."""
        self._end()
        return self._lines

    def _add(self, text: str, cm: Sequence[float], tm: Sequence[float], size: float) -> None:
        line = self._line
        if not text or not (line.parts or text.strip()):
            return
        across, up = tm[4] * cm[0] + tm[5] * cm[2] + cm[4], tm[4] * cm[1] + tm[5] * cm[3] + cm[5]
        turned = degrees(atan2(tm[0] * cm[1] + tm[1] * cm[3], tm[0] * cm[0] + tm[1] * cm[2]))
        turned = round(turned / _TURN) * _TURN % 360
        turn = radians(turned)
        x = across * cos(turn) + up * sin(turn)
        if not line.parts:
            line.x, line.y, line.turn = x, up * cos(turn) - across * sin(turn), turned
        if len(text.strip()) > 1 or not line.size:
            line.size = max(line.size, round(abs(size) * hypot(tm[2], tm[3]) * hypot(cm[2], cm[3]), 1))
        line.parts.append((x, text))

    def _end(self) -> None:
        if self._line.parts:
            self._line.text = _text_of(self._line.parts).strip()
            self._lines.append(self._line)
        self._line = Line(self._page)


def _is_unknown(font: object) -> bool:
    """Whether the codes of a font are numbers of its glyphs, and it does not say which letters these are."""
    about = cast("dict[str, object]", font) if isinstance(font, dict) else {}
    return about.get("/Encoding") in ("/Identity-H", "/Identity-V") and "/ToUnicode" not in about


def _text_of(parts: Sequence[tuple[float, str]]) -> str:
    """The parts of a line as it is read: of Hebrew and Arabic from the right, but for numbers and words of others."""
    text = "".join(text for _, text in parts)
    if len(_RIGHT_TO_LEFT.findall(text)) * 2 <= len(_LEFT_TO_RIGHT.findall(text)):
        return text
    placed = sorted(parts, key=lambda each: -each[0])
    runs = groupby(placed, lambda each: not _RIGHT_TO_LEFT.search(each[1]) and bool(_LEFT_TO_RIGHT.search(each[1])))
    ordered = list[str]()
    for is_left, run in runs:
        texts = [each for _, each in run]
        if is_left:
            # What is right of it, such as a space, is read before it.
            whole = "".join(reversed(texts))
            core = whole.strip()
            start = whole.index(core)
            texts = [whole[start + len(core) :], core, whole[:start]]
        ordered += texts
    return one_line("".join(ordered))


def add_blocks(lines: Sequence[Line], outline: Mapping[str, int], draft: Draft) -> None:
    """Add the blocks that lines are.

    Args:
        outline: levels of titles, in the form of `title_key`.
    """
    level_of = _levels(lines, outline)
    leading = _common(round((a.y - b.y) / (a.size or 1), 1) for a, b in pairwise(lines) if a.page == b.page) or 1.2
    start = 0
    while start < len(lines):
        line = lines[start]
        level = level_of(line)
        if level:
            end = _until(lines, start, lambda a, b: level_of(a) == level_of(b) and not _apart(a, b, 1.4))
            draft.add("heading", _joined(lines[start:end]), level=level, page=line.page)
        elif (end := _table_end(lines, start)) > start + 1:
            draft.table([[text for _, text in each.cells()] for each in lines[start:end]], page=line.page)
        else:
            end = _until(lines, start, lambda a, b: not level_of(b) and not _parted(a, b, leading))
            text = _joined(lines[start:end])
            bullet = _BULLET.match(text)
            kind = "list" if bullet or _NUMBERED.match(text) else "paragraph"
            draft.add(kind, f"- {text[bullet.end() :]}" if bullet else text, page=line.page)
        start = end


def title_key(title: str) -> str:
    """Return a title in the form in which titles are compared."""
    return re.sub(r"\s+", "", title).casefold()


def _levels(lines: Sequence[Line], outline: Mapping[str, int]) -> Callable[[Line], int]:
    """Return what tells the level of a line; 0: it is no heading."""
    sizes: Counter[float] = Counter()
    for line in lines:
        sizes[line.size] += len(line.text)
    body = max(sizes, key=lambda each: sizes[each], default=0.0)
    larger = sorted((size for size in sizes if size >= body * _HEADING), reverse=True)
    ranks = {size: min(rank, 6) for rank, size in enumerate(larger, 1)}

    def level_of(line: Line) -> int:
        text = line.text
        if len(text) > _LONGEST_HEADING or not any(each.isalpha() for each in text):
            return 0
        return outline.get(title_key(text)) or ranks.get(line.size, 0)

    return level_of


def _until(lines: Sequence[Line], start: int, goes_on: Callable[[Line, Line], bool]) -> int:
    end = start + 1
    while end < len(lines) and goes_on(lines[end - 1], lines[end]):
        end += 1
    return end


def _apart(before: Line, line: Line, leading: float) -> bool:
    """Whether a line does not stand below another one at the usual distance."""
    if (before.page, before.turn) != (line.page, line.turn):
        return True
    return not 0 <= before.y - line.y <= leading * max(before.size, line.size) * _GAP


def _parted(before: Line, line: Line, leading: float) -> bool:
    """Whether a line begins a paragraph."""
    if _BULLET.match(line.text) or _NUMBERED.match(line.text):
        return True
    if _apart(before, line, leading):
        # A sentence continues in the next column or on the next page.
        jumps = before.page != line.page or line.y > before.y
        return not (jumps and before.turn == line.turn and before.text[-1:].isalpha() and line.text[:1].islower())
    return line.x - before.x > _INDENT * line.size and not _RIGHT_TO_LEFT.match(line.text)


def _table_end(lines: Sequence[Line], start: int) -> int:
    """The number of the line behind the table that begins with a line: its lines have cells at the same places."""
    places = [x for x, _ in lines[start].cells()]

    def is_row(before: Line, line: Line) -> bool:
        cells = [x for x, _ in line.cells()]
        slack = 2 * line.size
        return (
            before.page == line.page
            and len(cells) == len(places)
            and all(abs(a - b) < slack for a, b in zip(cells, places, strict=True))
        )

    return _until(lines, start, is_row) if len(places) > 1 else start


def _joined(lines: Sequence[Line]) -> str:
    """The text of lines as one: words that a line's end breaks are whole, and Chinese has no spaces."""
    parts: list[str] = []
    for line in lines:
        before, after = parts[-1] if parts else "", line.text
        if _BROKEN_WORD.search(before) and after[:1].islower():
            parts[-1] = before[:-1].rstrip()
        elif before and not (_WIDE.match(before[-1]) and _WIDE.match(after)):
            parts.append(" ")
        parts.append(after)
    return "".join(parts)


def _common(values: Iterator[float]) -> float | None:
    """The most frequent one of the distances that may be those of lines."""
    counted = Counter(value for value in values if 0.8 <= value <= 3)
    return max(counted, key=lambda each: counted[each], default=None)
