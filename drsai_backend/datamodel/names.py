"""What a user or a thread may be called, whoever brings the name: a request, a header, or a file."""

from __future__ import annotations

from typing import Final

from drsai_backend.errors import InvalidRequest

_LONGEST: Final = 255


def check_name(value: str, param: str) -> str:
    """A user or thread id: 1 to 255 printable characters, no space at either end.

    Raises:
        InvalidRequest: it is not; `param` is the field it came in.
    """
    if not 1 <= len(value) <= _LONGEST:
        raise InvalidRequest(f"`{param}` must have 1 to {_LONGEST} characters", param=param)
    if not value.isprintable() or value[0] == " " or value[-1] == " ":
        raise InvalidRequest(f"`{param}` must be printable and must not begin or end with a space", param=param)
    return value
