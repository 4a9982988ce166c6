"""What is shown of stored threads: small read models, for the API and the command line."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from drsai_backend.datamodel import RunStatus


class ThreadSummary(BaseModel):
    """A thread as a list shows it. Times are aware and in UTC."""

    thread_id: str
    title: str | None = Field(default=None, description="The first words of the first user message.")
    status: RunStatus
    team: str | None = Field(default=None, description="Model id of the team that ran last.")
    created_at: datetime
    updated_at: datetime
    message_count: int = 0


class ThreadDetail(ThreadSummary):
    """A thread with everything short that is known of it; its messages and state are read apart."""

    error_message: str | None = None
    input_request: dict[str, Any] | None = None
    team_result: dict[str, Any] | None = None
    tasks: list[dict[str, Any]] | dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    run_id: str | None = Field(default=None, description="The latest run.")


class ThreadPage(BaseModel):
    """A page of a user's threads, newest first. `next` is the `after` of the following page; None: there is none."""

    items: list[ThreadSummary]
    next: str | None = None


class StoredMessage(BaseModel):
    """A message of a thread. `content` is its text form, `message` the full AutoGen dump."""

    seq: int
    id: str | None = Field(default=None, description="AutoGen's message id.")
    source: str
    type: str
    content: str
    created_at: datetime
    run_id: str | None = None
    message: dict[str, Any]
