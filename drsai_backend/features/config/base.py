"""The base of config says what is shown of an environment."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from drsai_backend.json_types import JsonObject


class ConfigInfo(BaseModel):
    """A version of what is stored for an environment."""

    environment: str
    version: int = Field(description="0: nothing was ever stored.")
    values: JsonObject = Field(description="All settings that are stored, by name.")
    changed: JsonObject = Field(
        default_factory=JsonObject, description="What this version has changed; null: it is stored no more."
    )
    restores: int | None = Field(default=None, description="The older version that it is equal to, if made of one.")
    set_at: datetime | None = None
    set_by: str = Field(default="", description="The user; `(cli)` is the command line, `(program)` a program.")
