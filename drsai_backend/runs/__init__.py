"""Runs of teams on threads: the engine, what it is asked and what it tells. Start reading at `runs.engine`."""

from drsai_backend.models import ModelParams
from drsai_backend.runs.engine import Engine
from drsai_backend.runs.events import (
    Logged,
    MessageDone,
    Position,
    QueuedBehind,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ThoughtDelta,
)
from drsai_backend.runs.feed.handle import Handle
from drsai_backend.runs.recovery.recovery import Waker
from drsai_backend.runs.requests import Answer, InputMessage, OnBusy, OnQuestion, RunRequest
from drsai_backend.teams.replay.steps import ToolEvent, ToolFinished, ToolPartial, ToolStarted

RunHandle = Handle  # The name of earlier releases.

__all__ = [
    "Answer",
    "Engine",
    "Handle",
    "InputMessage",
    "Logged",
    "MessageDone",
    "ModelParams",
    "OnBusy",
    "OnQuestion",
    "Position",
    "QueuedBehind",
    "RunEnded",
    "RunEvent",
    "RunHandle",
    "RunRequest",
    "RunStarted",
    "TextDelta",
    "ThoughtDelta",
    "ToolEvent",
    "ToolFinished",
    "ToolPartial",
    "ToolStarted",
    "Waker",
]
