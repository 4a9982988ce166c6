"""Runs of teams on threads: the engine, what it is asked and what it tells. Start reading at `runs.engine`."""

from drsai_backend.models import ModelParams
from drsai_backend.runs.engine import Engine, Handle
from drsai_backend.runs.events import (
    Answer,
    InputMessage,
    Logged,
    MessageDone,
    OnBusy,
    OnQuestion,
    Position,
    QueuedBehind,
    RunEnded,
    RunEvent,
    RunRequest,
    RunStarted,
    TextDelta,
)
from drsai_backend.runs.feed.live_run import RunHandle
from drsai_backend.runs.recovery.recovery import Waker
from drsai_backend.teams.replay.steps import ToolEvent, ToolFinished, ToolStarted

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
    "ToolEvent",
    "ToolFinished",
    "ToolStarted",
    "Waker",
]
