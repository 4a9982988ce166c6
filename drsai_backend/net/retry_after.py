"""`Retry-After` is for how long a peer that has too much to do asks to be left alone."""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Mapping


def pause_of(headers: Mapping[str, str]) -> float | None:
    """Seconds, from the headers `retry-after-ms` and `Retry-After` (seconds or a date); None: they say nothing."""
    milliseconds, text = headers.get("retry-after-ms"), headers.get("retry-after")
    for value, unit in ((milliseconds, 1000.0), (text, 1.0)):
        try:
            if value is not None and math.isfinite(seconds := float(value) / unit) and seconds >= 0:
                return seconds
        except ValueError:
            continue
    try:
        parsed = email.utils.parsedate_tz(text) if text is not None else None
        return None if parsed is None else max(0.0, email.utils.mktime_tz(parsed) - time.time())
    except (ValueError, OverflowError):  # a date that no calendar has
        return None
