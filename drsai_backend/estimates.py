"""Estimates of tokens need no vocabulary, and are the same on every machine."""

from __future__ import annotations


def estimate_text(text: str) -> int:
    """Estimated tokens of a text: utf-8 bytes / 4, rounded up."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4
