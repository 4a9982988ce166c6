"""The result of a run, as stored in `Thread.team_result` and returned by `DrSai.run`."""

from typing import Any

from pydantic import BaseModel, Field


class TeamResult(BaseModel):
    """What a run produced.

    `task_result` is AutoGen's `TaskResult` as JSON: `{"messages": [...], "stop_reason": ...}` with every message of the
    run in order, the user's included. `usage` sums all model calls (`prompt_tokens`, `completion_tokens`,
    `total_tokens`); `duration` is in seconds.
    """

    task_result: dict[str, Any]
    usage: dict[str, int] = Field(default_factory=dict)
    duration: float = 0.0
    files: list[dict[str, Any]] = Field(default_factory=list)
