"""What a user or a thread may be called, whoever brings the name: a request, a header, or a file."""

from __future__ import annotations

import re
from typing import Any, Final

from drsai_backend.errors import InvalidRequest

_LONGEST: Final = 255
# Controls, white space but the plain one, and characters that cannot be seen or turn the line around.
_BAD: Final = (
    r"\x00-\x1f\x7f-\xa0\xad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff9-\ufffb"
)
NAME_PATTERN: Final = rf"^[^ {_BAD}]([^{_BAD}]*[^ {_BAD}])?$"
"""What a name looks like: printable, no space at either end."""
NAME_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "minLength": 1,
    "maxLength": _LONGEST,
    "pattern": NAME_PATTERN,
}
_NAME: Final = re.compile(NAME_PATTERN)


def check_name(value: str, param: str) -> str:
    """A user or thread id: 1 to 255 printable characters, no space at either end.

    Raises:
        InvalidRequest: it is not; `param` is the field it came in.
    """
    if not 1 <= len(value) <= _LONGEST:
        raise InvalidRequest(f"`{param}` must have 1 to {_LONGEST} characters", param=param)
    if _NAME.fullmatch(value) is None:
        raise InvalidRequest(f"`{param}` must be printable and must not begin or end with a space", param=param)
    return value
