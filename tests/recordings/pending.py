"""Which replays wait for a part of the server that is not there yet, by what is looked at.

A scene is taken out of these when the part is there: then its test passes, which is reported as an error until it is.
"""

from __future__ import annotations

ANSWERS: dict[str, str] = {}
"""Every request is answered as it was."""

SEEN: dict[str, str] = {}
"""The model sees what the window shows."""

HOUSEKEEPING: dict[str, str] = {}
"""Housekeeping is one plain model call, and no conversation."""

THREADS: dict[str, str] = {}
"""A chat is a thread, though nothing but its history says which."""
