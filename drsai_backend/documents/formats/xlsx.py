"""Workbooks have sheets: each is a section with the tables that empty rows part."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final
from xml.etree.ElementTree import Element

from drsai_backend.documents.draft import Draft
from drsai_backend.documents.formats.package import RELATION_ID, Package, Tree, sheet

_WORKBOOK: Final = "xl/workbook.xml"
_FIRST_DAY: Final = datetime(1899, 12, 30)
_FIRST_DAY_1904: Final = datetime(1904, 1, 1)
"""Day 0 of Excel, and of workbooks that say `date1904`, as those that Excel made on a Mac."""
_DATES: Final = frozenset((*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)))
"""Formats of dates and times that need no text, those of Chinese and Japanese among them."""
_OF_A_DATE: Final = re.compile(r"[ymdhs年月日]", re.IGNORECASE)
_NO_FORMAT: Final = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.')
_LONGEST_FORMAT: Final = 200
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
    rows = _Rows(draft, strings, _date_styles(package), _FIRST_DAY_1904 if is_1904 else _FIRST_DAY)
    for each in sheets:
        draft.add("heading", each.get("name", ""), level=1)
        package.xml(parts.get(each.get(RELATION_ID, ""), ""), Tree(sheet("row"), rows.take))
        rows.end()
    if draft.blocks and all(block.kind == "heading" for block in draft.blocks):
        draft.blocks.clear()  # The names of sheets without a cell are no text.


class _Rows:
    """Gathers the rows of a table."""

    def __init__(self, draft: Draft, strings: list[str], dates: frozenset[str], first_day: datetime) -> None:
        self._draft, self._strings, self._dates, self._first_day = draft, strings, dates, first_day
        self._rows: list[dict[str, str]] = []
        self._number = 0

    def take(self, row: Element) -> None:
        """Take a row. One that does not follow upon the last one begins a table."""
        number = int(row.get("r", self._number + 1))
        if number != self._number + 1:
            self.end()
        cells: dict[str, str] = {}
        for place, cell in enumerate(row):
            if text := self._value(cell).strip():
                found = _COLUMN.match(cell.get("r", ""))
                cells[found[0] if found else f"{place:05}"] = text
        if cells:
            self._rows.append(cells)
        else:
            self.end()
        self._number = number

    def end(self) -> None:
        """Add the table. Columns in which nothing stands are left out."""
        columns = sorted({column for row in self._rows for column in row}, key=lambda each: (len(each), each))
        rows, self._rows, self._number = self._rows, [], 0
        self._draft.allow_cells(len(columns) * len(rows))
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
        if kind == "n" and value and cell.get("s", "") in self._dates:
            with suppress(ValueError, OverflowError):
                return _date(self._first_day, float(value))
        return value


def _text(element: Element) -> str:
    """The text of a string, without the readings that Japanese ones may have."""
    return "".join(each.text or "" for part in element if part.tag != sheet("rPh") for each in part.iter(sheet("t")))


def _date(first: datetime, days: float) -> str:
    at = first + timedelta(seconds=round(days * 86_400))
    if days < 1:
        return at.strftime("%H:%M:%S")
    return at.strftime("%Y-%m-%d" if days == int(days) else "%Y-%m-%d %H:%M")


def _date_styles(package: Package) -> frozenset[str]:
    """The numbers of the styles of cells that are dates."""
    dates = {str(number) for number in _DATES}
    styles: set[str] = set()
    for group in package.xml("xl/styles.xml"):
        if group.tag == sheet("numFmts"):
            for each in group:
                if _OF_A_DATE.search(_NO_FORMAT.sub("", each.get("formatCode", "")[:_LONGEST_FORMAT])):
                    dates.add(each.get("numFmtId", ""))
        elif group.tag == sheet("cellXfs"):
            styles |= {str(number) for number, each in enumerate(group) if each.get("numFmtId", "") in dates}
    return frozenset(styles)
