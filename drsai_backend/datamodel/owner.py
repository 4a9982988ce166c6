"""Whose a row is."""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_TENANT: Final = "default"


class Owner(NamedTuple):
    """A user of a tenant. Rows of one are never seen by another, unless they are shared."""

    tenant: str
    user_id: str
