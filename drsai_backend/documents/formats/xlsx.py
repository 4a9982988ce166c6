"""Workbooks have sheets: each is a section with the tables that empty rows part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias
from xml.etree.ElementTree import Element

from drsai_backend.documents.draft import Draft, repeated
from drsai_backend.documents.formats.package import RELATION_ID, Package, Tree, sheet

_Shown: TypeAlias = Literal["date", "elapsed", "percent"]
_WORKBOOK: Final = "xl/workbook.xml"
_FIRST_DAY: Final = datetime(1899, 12, 30)
_FIRST_DAY_1904: Final = datetime(1904, 1, 1)
"""Day 0 of Excel, and of workbooks that say `date1904`, as those that Excel made on a Mac."""
_DATES: Final = frozenset((*range(14, 23), *range(27, 37), 45, 47, *range(50, 59)))
"""Formats of dates and times that need no text, those of Chinese and Japanese among them."""
_ELAPSED: Final = re.compile(r"\[[hms]+\]", re.IGNORECASE)
_OF_A_DATE: Final = re.compile(r"[ymdhs年月日]", re.IGNORECASE)
_NO_FORMAT: Final = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.')
_LONGEST_FORMAT: Final = 200
_ESCAPED: Final = re.compile("_x([0-9A-Fa-f]{4})_")
_MERGED: Final = re.compile(r"([A-Z]{1,3})(\d{1,7}):[A-Z]{1,3}(\d{1,7})")
_COLUMN: Final = re.compile(r"[A-Z]{1,3}")


def read(content: bytes, draft: Draft) -> None:
    """Read a workbook: of formulas, the values that were stored."""
    package = Package(content, draft)
    parts = package.related(_WORKBOOK)
    workbook = package.xml(_WORKBOOK)
    sheets = [each for list_ in workbook if list_.tag == sheet("sheets") for each in list_]
    is_1904 = any(each.get("date1904") in ("1", "true") for each in workbook if each.tag == sheet("workbookPr"))
    draft.allow_pages(len(sheets), "sheets")
    strings: list[str] = []
    package.xml("xl/sharedStrings.xml", Tree(sheet("si"), lambda each: strings.append(_text(each))))
    rows = _Rows(draft, strings, _styles(package), _FIRST_DAY_1904 if is_1904 else _FIRST_DAY)
    for each in sheets:
        draft.add("heading", each.get("name", ""), level=1)
        part = package.xml(parts.get(each.get(RELATION_ID, ""), ""), Tree(sheet("row"), rows.take))
        rows.end([merged.get("ref", "") for list_ in part if list_.tag == sheet("mergeCells") for merged in list_])
    if draft.blocks and all(block.kind == "heading" for block in draft.blocks):
        draft.blocks.clear()  # The names of sheets without a cell are no text.


class _Rows:
    """Gathers the rows of a sheet. `styles`: what numbers are by the number of their style."""

    def __init__(self, draft: Draft, strings: list[str], styles: dict[str, _Shown], first_day: datetime) -> None:
        self._draft, self._strings, self._styles, self._first_day = draft, strings, styles, first_day
        self._rows: dict[int, dict[str, str]] = {}
        self._number = 0

    def take(self, row: Element) -> None:
        """Take a row."""
        self._number = int(row.get("r", self._number + 1))
        cells: dict[str, str] = {}
        for place, cell in enumerate(row):
            if text := self._value(cell).strip():
                found = _COLUMN.match(cell.get("r", ""))
                cells[found[0] if found else f"{place:05}"] = text
        if cells:
            self._rows.setdefault(self._number, {}).update(cells)

    def end(self, merged: Sequence[str]) -> None:
        """Add the tables, which empty rows part. Columns in which nothing stands are left out.

        Args:
            merged: where cells go over several rows (`A2:A5`): each of these has the text.
        """
        rows, self._rows, self._number = self._rows, {}, 0
        cells = 0
        for found in filter(None, map(_MERGED.fullmatch, merged)):
            first, last = int(found[2]), int(found[3])
            if text := repeated(rows.get(first, {}).get(found[1], "")):
                cells += min(last - first, len(rows))
                self._draft.allow_text(cells)
                for number in range(first + 1, last + 1) if last - first < len(rows) else [*rows]:
                    if first < number <= last and number in rows:
                        rows[number].setdefault(found[1], text)
        table: list[dict[str, str]] = []
        for number, row in rows.items():
            table.append(row)
            if number + 1 not in rows:
                self._add(table)
                table = []

    def _add(self, rows: Sequence[dict[str, str]]) -> None:
        columns = sorted({column for row in rows for column in row}, key=lambda each: (len(each), each))
        self._draft.allow_text(len(columns) * len(rows))
        self._draft.table([[row.get(column, "") for column in columns] for row in rows])

    def _value(self, cell: Element) -> str:
        kind = cell.get("t", "n")
        stored = cell.find(sheet("v"))
        value = "" if stored is None else stored.text or ""
        if kind == "inlineStr":
            return _text(cell)
        if kind == "s":
            return self._strings[int(value)] if value.isdecimal() and int(value) < len(self._strings) else ""
        if kind == "b":
            return "TRUE" if value == "1" else "FALSE"
        if kind == "n" and value:
            with suppress(ValueError, OverflowError):
                return self._number_of(value, self._styles.get(cell.get("s", "")))
        return _unescaped(value)

    def _number_of(self, value: str, shown: _Shown | None) -> str:
        number = float(value)
        if shown == "date" and number >= 0:
            return _date(self._first_day, number)
        if shown == "elapsed" and number >= 0:
            minutes, seconds = divmod(round(number * 86_400), 60)
            return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
        if shown == "percent":
            return f"{number * 100:.12g}%"
        # Excel shows 15 digits: 0.1 + 0.2 is 0.3 there.
        return value if value.lstrip("-").isdecimal() else f"{number:.15g}"


def _text(element: Element) -> str:
    """The text of a string, without the readings that Japanese ones may have."""
    texts = (each.text or "" for part in element if part.tag != sheet("rPh") for each in part.iter(sheet("t")))
    return _unescaped("".join(texts))


def _unescaped(text: str) -> str:
    """A text whose control characters are written as `_x000D_`."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text) if "_x" in text else text


def _date(first: datetime, days: float) -> str:
    at = first + timedelta(seconds=round(days * 86_400))
    if days < 1:
        return at.strftime("%H:%M:%S")
    if days == int(days):
        return at.strftime("%Y-%m-%d")
    return at.strftime("%Y-%m-%d %H:%M:%S" if at.second else "%Y-%m-%d %H:%M")


def _styles(package: Package) -> dict[str, _Shown]:
    """Return what numbers are in cells, by the numbers of their styles."""
    formats: dict[str, _Shown] = {"9": "percent", "10": "percent", "46": "elapsed"}
    for date in _DATES:
        formats[str(date)] = "date"
    styles: dict[str, _Shown] = {}
    for group in package.xml("xl/styles.xml"):
        if group.tag == sheet("numFmts"):
            for each in group:
                if shown := _shown_by(each.get("formatCode", "")[:_LONGEST_FORMAT]):
                    formats[each.get("numFmtId", "")] = shown
        elif group.tag == sheet("cellXfs"):
            for number, each in enumerate(group):
                if shown := formats.get(each.get("numFmtId", "")):
                    styles[str(number)] = shown
    return styles


def _shown_by(code: str) -> _Shown | None:
    """Return what a format makes of a number; None: a number."""
    plain = _NO_FORMAT.sub("", code)
    if _ELAPSED.search(code):
        return "elapsed"
    return "date" if _OF_A_DATE.search(plain) else "percent" if "%" in plain else None
