"""The tables (SQLModel), their column types, and the lifecycle enum. Everything stored is declared here."""

from drsai_backend.datamodel.base import SCHEMA_VERSION, Record, json_field, long_text
from drsai_backend.datamodel.enums import TRANSITIONS, RunStatus, check_transition
from drsai_backend.datamodel.message import AutoGenMessage
from drsai_backend.datamodel.result import TeamResult
from drsai_backend.datamodel.run import JournalEntry, QueuedInput, Run, TurnStep
from drsai_backend.datamodel.tasks import AgentJson, PlanCheck, SingleTask, Tasks
from drsai_backend.datamodel.thread import Thread, ThreadField, ThreadSnapshot
from drsai_backend.datamodel.types import UTCDateTime, json_type, utcnow
from drsai_backend.datamodel.user_input import UserInput

__all__ = [
    "SCHEMA_VERSION",
    "TRANSITIONS",
    "AgentJson",
    "AutoGenMessage",
    "JournalEntry",
    "PlanCheck",
    "QueuedInput",
    "Record",
    "Run",
    "RunStatus",
    "SingleTask",
    "Tasks",
    "TeamResult",
    "Thread",
    "ThreadField",
    "ThreadSnapshot",
    "TurnStep",
    "UTCDateTime",
    "UserInput",
    "check_transition",
    "json_field",
    "json_type",
    "long_text",
    "utcnow",
]
