"""Runs are made of teams on threads: here are the engine, what it is asked and what it tells. Start reading at
`runs.engine`."""

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
from drsai_backend.runs.recovery.recovery import WorkerNotifier
from drsai_backend.runs.requests import Answer, Ask, How, InputMessage, OnBusy, OnQuestion, Origin, Where
from drsai_backend.teams.replay.steps import ToolEvent, ToolFinished, ToolPartial, ToolStarted

RunHandle = Handle  # The name of earlier releases.
Waker = WorkerNotifier  # The name of earlier releases.

__all__ = [
    "Answer",
    "Ask",
    "Engine",
    "Handle",
    "How",
    "InputMessage",
    "Logged",
    "MessageDone",
    "ModelParams",
    "OnBusy",
    "OnQuestion",
    "Origin",
    "Position",
    "QueuedBehind",
    "RunEnded",
    "RunEvent",
    "RunHandle",
    "RunStarted",
    "TextDelta",
    "ThoughtDelta",
    "ToolEvent",
    "ToolFinished",
    "ToolPartial",
    "ToolStarted",
    "Waker",
    "Where",
    "WorkerNotifier",
]
