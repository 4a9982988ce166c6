"""The time, anywhere."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime


def current_time(time_zone: str = "UTC") -> str:
    """The current date and time in a time zone, named like "Europe/Berlin", "Asia/Tokyo" or "UTC". A city works too."""
    name = _zone_name(time_zone.strip() or "UTC")
    local = datetime.now(UTC if name == "UTC" else zoneinfo.ZoneInfo(name))
    return f"{local:%A, %Y-%m-%d %H:%M:%S} {name} (UTC{local:%z})"


def _zone_name(asked: str) -> str:
    if asked.upper() in {"UTC", "GMT", "Z"}:
        return "UTC"
    known = zoneinfo.available_timezones()
    if not known:
        raise ValueError("this machine has no time zone data (install the package tzdata); only UTC is available")
    wanted = asked.replace(" ", "_").lower()
    matches = [name for name in known if name.lower() == wanted or name.lower().rsplit("/", 1)[-1] == wanted]
    if not matches:
        raise ValueError(f"unknown time zone: {asked}. Give a name like Europe/Berlin")
    # "Jamaica" is itself a zone and the end of "America/Jamaica"; the exact name goes first.
    return min(matches, key=lambda name: (name.lower() != wanted, name.count("/"), name))
