"""Runs of teams on threads: the engine, what it is asked and what it tells. Start reading at `runs.engine`."""

from drsai_backend.models import ModelParams
from drsai_backend.runs._live import RunHandle
from drsai_backend.runs.engine import Engine
from drsai_backend.runs.events import InputMessage, MessageDone, RunEnded, RunEvent, RunRequest, TextDelta

__all__ = [
    "Engine",
    "InputMessage",
    "MessageDone",
    "ModelParams",
    "RunEnded",
    "RunEvent",
    "RunHandle",
    "RunRequest",
    "TextDelta",
]
