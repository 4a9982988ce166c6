"""JSON as Python holds it."""

from __future__ import annotations

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object of which no more is known: one that a client sent, an AutoGen dump, a JSON schema."""
