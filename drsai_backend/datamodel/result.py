"""The result of a run, as stored in `Thread.team_result` and returned by `DrSai.run`."""

from typing import Any

from pydantic import BaseModel, Field

from drsai_backend.datamodel.enums import RunStatus


class TeamResult(BaseModel):
    """What a run produced.

    `task_result` is AutoGen's `TaskResult` as JSON: `{"messages": [...], "stop_reason": ...}` with every message of the
    run in order, the user's included. `usage` sums all model calls (`prompt_tokens`, `completion_tokens`,
    `total_tokens`); `duration` is in seconds. What `DrSai.run` returns also says where it happened and, when the run
    waits for a person, what was asked.
    """

    task_result: dict[str, Any]
    usage: dict[str, int] = Field(default_factory=dict)
    duration: float = 0.0
    files: list[dict[str, Any]] = Field(default_factory=list)
    thread_id: str | None = None
    run_id: str | None = None
    status: RunStatus | None = None
    input_request: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The content of the run's last chat message, as text; empty when there is none."""
        for message in reversed(self.task_result.get("messages", [])):
            if isinstance(message.get("content"), str) and not str(message.get("type", "")).endswith("Event"):
                return message["content"]
        return ""
