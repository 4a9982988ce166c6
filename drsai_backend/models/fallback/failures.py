"""What a failed call says: whether another endpoint should be asked, and when this one may be asked again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from drsai_backend.errors import EndpointFailed
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
_TIMEOUTS: Final = frozenset({"APITimeoutError", "TimeoutException", "TimeoutError"})
_CONNECTIONS: Final = frozenset({"APIConnectionError", "TransportError", "ConnectionError"})


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
        """In a few words, without anything that an endpoint has said."""
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
    """Why a call has failed; None: asking again or elsewhere would not help, or must not be tried."""
    if isinstance(error, Truncated | EndpointFailed):
        return Failure("truncated")
    if isinstance(error, Busy):
        return Failure("busy")
    if not isinstance(error, Exception):
        return None
    # By name: the packages of providers are extras, and each has such classes of its own.
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & _TIMEOUTS:
        return Failure("timeout")
    if names & _CONNECTIONS:
        return Failure("connection")
    status: object = getattr(error, "status_code", None)
    if not isinstance(status, int):
        if "APIError" not in names:
            return None
        text = f"{error} {getattr(error, 'code', '')}"
        return Failure("overflow" if _OVERFLOW.search(text) else "server")
    if status == 429:
        return Failure("rate_limit", _retry_after(error), status)
    if status in (400, 413, 422) or status >= 500:
        text = f"{error} {getattr(error, 'code', '')}"
        if status == 413 or _OVERFLOW.search(text):
            return Failure("overflow", None, status)
    if status == 408 or status >= 500:
        return Failure("timeout" if status in (408, 504) else "server", _retry_after(error), status)
    return None


def _retry_after(error: BaseException) -> float | None:
    headers: object = getattr(getattr(error, "response", None), "headers", None)
    return pause_of(cast("Mapping[str, str]", headers)) if hasattr(headers, "get") else None
