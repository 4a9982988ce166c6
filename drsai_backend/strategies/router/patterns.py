"""Patterns are regular expressions that somebody else wrote: they are bounded, whatever the expression and the text
are."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import regex

_log = logging.getLogger("drsai.router")

MAX_PATTERN: Final = 500
"""Characters of a pattern."""
MAX_TEXT: Final = 4000
"""Characters of a text that are looked at."""
SECONDS: Final = 0.05
"""Processor time that all patterns together may take for one text: what they find is not to depend on how busy the
machine is."""


def wrong_with(pattern: str) -> str | None:
    """Return why a pattern cannot be used; None: it can."""
    import regex  # Few teams have patterns.

    try:
        _compiled(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        return f"{pattern!r} is no regular expression: {error}"
    return None


class Patience:
    """What is left of the time for one text."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._until = time.thread_time() + seconds

    def find(self, pattern: str, text: str, *, whole: bool = False) -> Mapping[str, str] | None:
        """The named groups of the first match; None: there is none, or it takes too long to tell.

        Args:
            whole: the pattern has to match all of the text.
        """
        compiled = _compiled(pattern)
        search = compiled.fullmatch if whole else compiled.search
        while (left := self._until - time.thread_time()) > 0:
            try:
                found = search(text[:MAX_TEXT], timeout=left)
                break
            except TimeoutError:
                pass  # It goes by the time of the process, of which other threads may have taken some.
        else:
            _log.warning("a pattern takes too long and is passed over", extra={"pattern": pattern})
            return None
        if found is None:
            return None
        groups: dict[str, str | None] = found.groupdict()
        return {name: value for name, value in groups.items() if value is not None}


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> regex.Pattern[str]:
    import regex

    return regex.compile(pattern, regex.IGNORECASE)
