"""A failure of a call says whether another endpoint should be asked, and when this one may be asked again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from drsai_backend.net.retry_after import pause_of

Kind: TypeAlias = Literal["timeout", "rate_limit", "server", "connection", "overflow", "truncated", "busy", "open"]
"""Why a call came to nothing. `overflow`: the request is too long for the model. `truncated`: the answer broke off
before anything of it was shown. `busy`: the profile's own limits leave no room in time. `open`: its endpoint is left
alone for now."""

_OVERFLOW: Final = re.compile(
    r"context_length_exceeded|maximum context length|context (window|length|size)[^.]{0,60}(exceed|full|too|limit)"
    r"|exceeds?[^.]{0,60}context|(prompt|input|request)( \w+)? is too long|too many (input )?tokens"
    r"|range of input length|reduce the length of the (messages|prompt)"
    r"|larger than the max(imum)? (supported )?context",
    re.IGNORECASE,
)
_BY_NAME: Final[dict[str, Kind]] = {
    "Truncated": "truncated",
    "EndpointFailed": "truncated",
    "Busy": "busy",
    "APITimeoutError": "timeout",
    "TimeoutException": "timeout",
    "TimeoutError": "timeout",
    "APIConnectionError": "connection",
    "TransportError": "connection",
    "ConnectionError": "connection",
}
"""By name: the packages of providers are extras, and each has such classes of its own."""
_BY_TYPE: Final[dict[object, Kind | None]] = {
    "rate_limit_error": "rate_limit",
    "timeout_error": "timeout",
    **dict.fromkeys(("invalid_request_error", "authentication_error", "permission_error", "not_found_error")),
}
"""Of Anthropic's errors that come in a stream; None: they are the request's, or the operator's."""
_BY_STATUS: Final[dict[int, Kind]] = {408: "timeout", 429: "rate_limit", 504: "timeout"}


class Truncated(Exception):
    """An answer broke off, and nothing of it was shown."""


class Busy(Exception):
    """The limits of a profile leave no room in time."""


@dataclass(frozen=True, slots=True)
class Failure:
    """`retry_after`: seconds that the endpoint asks to be left alone for; `status`: that of its answer, if there is
    one."""

    kind: Kind
    retry_after: float | None = None
    status: int | None = None

    @property
    def is_of_endpoint(self) -> bool:
        """Whether it says something of the endpoint, and not of this request only."""
        return self.kind not in ("overflow", "busy", "open")

    def text(self) -> str:
        """Return the failure in a few words, without anything that an endpoint has said."""
        words = {
            "timeout": "no answer in time",
            "rate_limit": "its rate limit is used up",
            "server": "an error of the server",
            "connection": "cannot be reached",
            "overflow": "the request is too long",
            "truncated": "the answer broke off",
            "busy": "its limits leave no room",
            "open": "left alone for a while after failures",
        }
        return words[self.kind] + (f" (HTTP {self.status})" if self.status is not None else "")


def failure_of(error: BaseException) -> Failure | None:
    """Return why a call has failed; None: asking again or elsewhere would not help, or must not be tried."""
    names = {cls.__name__ for cls in type(error).__mro__}
    name = next((each for each in _BY_NAME if each in names), None)
    if name is not None:
        return Failure(_BY_NAME[name])
    status: object = getattr(error, "status_code", None)
    is_overflow = _OVERFLOW.search(f"{error} {getattr(error, 'code', '')}") is not None
    if not isinstance(status, int):
        return Failure("overflow" if is_overflow else "server") if "APIError" in names else None
    if status < 400:  # It was told in a stream, which had begun as an answer.
        kind = "overflow" if is_overflow else _BY_TYPE.get(getattr(error, "type", None), "server")
        return None if kind is None else Failure(kind)
    if status == 413 or (is_overflow and (status in (400, 422) or status >= 500)):
        return Failure("overflow", None, status)
    if status in _BY_STATUS or status >= 500:
        return Failure(_BY_STATUS.get(status, "server"), _retry_after(error), status)
    return None


def _retry_after(error: BaseException) -> float | None:
    headers: object = getattr(getattr(error, "response", None), "headers", None)
    return pause_of(cast("Mapping[str, str]", headers)) if hasattr(headers, "get") else None
