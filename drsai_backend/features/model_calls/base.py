"""The base of model calls says what of a call is shown."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, Field, computed_field

PLACE: Final = r"^[0-9]{1,9}-[0-9]{1,9}$"
"""The id of a call among those of its run: the epoch in which it was made, and its number there."""
NOT_KEPT: Final = (
    "what the model was sent is not kept of this call: DRSAI_CALLS_KEEP=true keeps it of calls that are made from then "
    "on, for DRSAI_CALLS_KEEP_DAYS days; of one that is longer than 2 MiB it is never kept"
)


class ModelCall(BaseModel):
    """A model call of a run that was answered. What is not known of it is null, or 0."""

    call_id: str = Field(description="Of the call among those of its run: `1-2`.")
    run_id: str
    created_at: datetime = Field(description="When it was answered.")
    turn: int | None = Field(default=None, description="The thread's turn that it was made for.")
    agent: str | None = None
    tool: str | None = Field(default=None, description="The tool that has asked the model.")
    model: str | None = Field(default=None, description="Its name at the endpoint.")
    profile: str | None = Field(default=None, description="The model profile that gave the answer.")
    prompt_tokens: int
    completion_tokens: int
    seconds: float = Field(description="That the endpoint took.")
    is_kept: bool = Field(description="Whether what the model was sent and has answered is there.")

    @computed_field(description="When it was answered, in Unix milliseconds.")
    @property
    def answered_ms(self) -> int:
        """`created_at`, as exactly as a time line needs it."""
        return int(self.created_at.timestamp() * 1000)


class CallDetail(ModelCall):
    """A model call, with what the model was sent and has answered, where that is kept."""

    form: str | None = Field(
        default=None,
        description="Of the request: `openai` or `anthropic`, as the endpoint got it; or `autogen`, where the client "
        "does not say what it sends.",
    )
    request: Any = Field(default=None, description="What the model was sent: messages, tools, parameters.")
    answer: Any = Field(default=None, description="AutoGen's result: `content` is a text, or calls of tools.")
    left_out: int = Field(default=0, description="Images and the like in whose place the request has `[left out]`.")
    reason: str | None = Field(default=None, description="Why it is not kept, and how it would be.")
