"""A form (`multipart/form-data`) brings an upload as clients send it: it is parsed while it arrives, and its file
handed on part by part."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from drsai_backend.api.http.errors import UnsupportedMediaType
from drsai_backend.errors import InvalidRequest

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_FIELD: Final = 4096
"""Bytes that a field may have that is no file."""
_MAX_PARTS: Final = 16
_MAX_HEADERS: Final = 8192
_STEP: Final = 64 * 1024


@dataclass
class Form:
    """The fields of a form, and the file in it, as far as it has arrived.

    Attributes:
        fields: texts by name.
        filename, media_type: of the file; None: there is none yet, or it says no type.
    """

    content_type: str
    fields: dict[str, str] = field(default_factory=dict[str, str])
    filename: str | None = None
    media_type: str | None = None

    async def file(self, parts: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """The bytes of the file, from those of the body.

        Raises:
            UnsupportedMediaType: it is no form.
            InvalidRequest: it is a broken one, or has what is not known here.
        """
        reader = _Reader(self)
        kind, options = parse_options_header(self.content_type)
        boundary = options.get(b"boundary")
        if kind != b"multipart/form-data" or not boundary:
            raise UnsupportedMediaType("send the file as `multipart/form-data`, with its boundary")
        try:
            parser = MultipartParser(boundary, reader.callbacks())
            async for part in parts:
                for start in range(0, len(part), _STEP):
                    parser.write(part[start : start + _STEP])
                    if reader.found:
                        yield bytes(reader.found)
                        reader.found.clear()
            parser.finalize()
        except FormParserError:
            raise InvalidRequest("the body is no valid form (multipart/form-data)") from None
        if not reader.whole:
            raise InvalidRequest("the body ends in the middle of the form")
        if self.filename is None:
            raise InvalidRequest("`file` is required: the file itself, with its name", param="file")


class _Reader:
    """What the parser tells."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._headers: dict[str, bytes] = {}
        self._name = bytearray()
        self._value = bytearray()
        self._parts = 0
        self._field: str | None = None  # None: the file
        self.found = bytearray()
        self.whole = False

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._all,
        }

    def _begin(self) -> None:
        self._parts += 1
        self._headers = {}
        self._value.clear()
        if self._parts > _MAX_PARTS:
            raise InvalidRequest(f"the form has more than {_MAX_PARTS} fields")

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._header(self._name, data[start:end])

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._header(self._value, data[start:end])

    def _header(self, to: bytearray, data: bytes) -> None:
        to += data
        if len(to) > _MAX_HEADERS:
            raise InvalidRequest(f"a header of the form has more than {_MAX_HEADERS} bytes")

    def _header_end(self) -> None:
        self._headers[self._name.decode("latin-1").lower()] = bytes(self._value)
        self._name.clear()
        self._value.clear()

    def _headers_end(self) -> None:
        _, options = parse_options_header(self._headers.get("content-disposition", b""))
        name = _text(options.get(b"name", b""), "a name")
        known = self._form.fields.keys() | (set[str]() if self._form.filename is None else {"file"})
        if name in known:
            raise InvalidRequest(f"`{name}` is given more than once", param=name)
        self._value.clear()
        if name != "file":
            self._field = name
            return
        if b"filename" not in options:
            raise InvalidRequest("`file` must be a file with a name (`filename`)", param="file")
        self._field = None
        self._form.filename = _text(options[b"filename"], "file")
        self._form.media_type = self._headers.get("content-type", b"").decode("latin-1") or None

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._field is None:
            self.found += data[start:end]
            return
        self._value += data[start:end]
        if len(self._value) > MAX_FIELD:
            raise InvalidRequest(f"`{self._field}` has more than {MAX_FIELD} bytes", param=self._field)

    def _end(self) -> None:
        if self._field is not None:
            self._form.fields[self._field] = _text(self._value, self._field)
            self._value.clear()

    def _all(self) -> None:
        self.whole = True


def _text(data: bytes | bytearray, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"`{name}` must be UTF-8", param=name) from None
