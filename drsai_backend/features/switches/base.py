"""The base of switches says what is shown of something that is switched off, and what can be."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pydantic import BaseModel, Field

from drsai_backend.access.switchboard import SwitchKind

LONGEST: Final = 500
"""Characters of a message."""


class SwitchInfo(BaseModel):
    """Something that is switched off."""

    kind: SwitchKind
    name: str = Field(description="Of the team, model, tool, tenant or worker; of all, empty.")
    tenant: str = Field(description="In which it is off; empty: in all.")
    message: str = Field(description="What who asks for it is told.")
    until: datetime | None = Field(default=None, description="When it is on again by itself; null: never.")
    set_at: datetime
