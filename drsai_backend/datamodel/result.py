"""The result of a run, as stored in `Thread.team_result` and returned by `DrSai.run`."""

import json
from typing import Any, Self, cast

from pydantic import BaseModel, Field, PrivateAttr

from drsai_backend.datamodel.enums import RunStatus


class TeamResult(BaseModel):
    """What a run produced.

    `task_result` is AutoGen's `TaskResult` as JSON: `{"messages": [...], "stop_reason": ...}` with every message of the
    run in order, the user's included. `usage` sums all model calls (`prompt_tokens`, `completion_tokens`,
    `total_tokens`); `duration` is in seconds. `files` is for programs of one's own: no run fills it. What `DrSai.run`
    returns also says where it happened, with what `status`, and, when the run waits for a person, what was asked
    (`input_request`, as in `RunEnded`); with `queued_behind` by that run: this one's message still waits in the queue.
    """

    task_result: dict[str, Any]
    usage: dict[str, int] = Field(default_factory=dict)
    duration: float = 0.0
    files: list[dict[str, Any]] = Field(default_factory=list)
    thread_id: str | None = None
    run_id: str | None = None
    status: RunStatus | None = None
    input_request: dict[str, Any] | None = None
    queued_behind: str | None = None

    _output: BaseModel | None = PrivateAttr(default=None)

    @property
    def text(self) -> str:
        """The content of the last chat message that is not the user's, as text; empty when there is none.

        A structured answer is its JSON, or what its format string makes of it; of several parts, the text ones.
        """
        for message in reversed(self.task_result.get("messages", [])):
            if message.get("source") != "user" and not str(message.get("type", "")).endswith("Event"):
                return _text(message.get("content"), message.get("format_string"))
        return ""

    @property
    def output(self) -> BaseModel | None:
        """The answer as an object of the agent's `output_content_type`; None when it is not a structured one.

        What `DrSai.run` returns has it; a result that was read from the database has not.
        """
        return self._output

    def with_output(self, output: BaseModel | None) -> Self:
        """This result, which it changes, with that `output`."""
        self._output = output
        return self


def _text(content: Any, format_string: str | None) -> str:
    match content:
        case str():
            return content
        case list():
            return "\n\n".join(part for part in cast("list[Any]", content) if isinstance(part, str))
        case dict() if format_string is not None:
            return format_string.format(**cast("dict[str, Any]", content))
        case None:
            return ""
        case _:
            return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
