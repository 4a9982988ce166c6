"""The data model has the tables (SQLModel), their column types, and the lifecycle enum. Everything stored is declared
here."""

from drsai_backend.datamodel.access import ApiKey
from drsai_backend.datamodel.answers import AnsweredRequest, StoredAnswer
from drsai_backend.datamodel.audit import AuditEntry
from drsai_backend.datamodel.base import (
    SCHEMA_VERSION,
    JsonObject,
    Record,
    UTCDateTime,
    json_field,
    json_type,
    long_text,
    table_of,
    utcnow,
)
from drsai_backend.datamodel.budgets import BudgetRule, BudgetState
from drsai_backend.datamodel.documents import RegisteredTool, StoredConfig, StoredDefinition, ToolStatistic
from drsai_backend.datamodel.encrypted import EncryptionKey
from drsai_backend.datamodel.file import FileChunk, FileContent, StoredFile
from drsai_backend.datamodel.knowledge import KnowledgeBatch, KnowledgeFile, KnowledgeStore
from drsai_backend.datamodel.lifecycle import TRANSITIONS, RunStatus, check_transition
from drsai_backend.datamodel.limits import LimitRule, LimitState
from drsai_backend.datamodel.memory import MemoryPerson, StoredMemory
from drsai_backend.datamodel.run import JournalEntry, KeptCall, QueuedInput, Run, TeamResult, TurnStep, Worker
from drsai_backend.datamodel.search import EmbeddedText, SearchEntry, SearchIndex, SearchPosting, SearchVector
from drsai_backend.datamodel.sharing import Right, ThreadShare
from drsai_backend.datamodel.switches import Switch
from drsai_backend.datamodel.thread import (
    AgentJson,
    AutoGenMessage,
    PlanCheck,
    SingleTask,
    Tasks,
    Thread,
    ThreadBranch,
    ThreadField,
    ThreadSnapshot,
    UserInput,
)
from drsai_backend.datamodel.usage import UsageEntry
from drsai_backend.datamodel.webhook import RunWebhook, WebhookDelivery, WebhookSecret
from drsai_backend.datamodel.work import WorkJob

__all__ = [
    "SCHEMA_VERSION",
    "TRANSITIONS",
    "AgentJson",
    "AnsweredRequest",
    "ApiKey",
    "AuditEntry",
    "AutoGenMessage",
    "BudgetRule",
    "BudgetState",
    "EmbeddedText",
    "EncryptionKey",
    "FileChunk",
    "FileContent",
    "JournalEntry",
    "JsonObject",
    "KeptCall",
    "KnowledgeBatch",
    "KnowledgeFile",
    "KnowledgeStore",
    "LimitRule",
    "LimitState",
    "MemoryPerson",
    "PlanCheck",
    "QueuedInput",
    "Record",
    "RegisteredTool",
    "Right",
    "Run",
    "RunStatus",
    "RunWebhook",
    "SearchEntry",
    "SearchIndex",
    "SearchPosting",
    "SearchVector",
    "SingleTask",
    "StoredAnswer",
    "StoredConfig",
    "StoredDefinition",
    "StoredFile",
    "StoredMemory",
    "Switch",
    "Tasks",
    "TeamResult",
    "Thread",
    "ThreadBranch",
    "ThreadField",
    "ThreadShare",
    "ThreadSnapshot",
    "ToolStatistic",
    "TurnStep",
    "UTCDateTime",
    "UsageEntry",
    "UserInput",
    "WebhookDelivery",
    "WebhookSecret",
    "WorkJob",
    "Worker",
    "check_transition",
    "json_field",
    "json_type",
    "long_text",
    "table_of",
    "utcnow",
]
