"""The base of knowledge says what a store is, a file of it, and what is found in stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Final, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, Field

from drsai_backend.json_types import JsonObject
from drsai_backend.search.base import Mode

MAX_STORES: Final = 1_000
"""Stores of a user."""
OURS: Final = "drsai."
"""How attributes begin that no client sets."""
PATH: Final = "drsai.path"
"""The attribute that has the path or URL of a file which is kept as it is there."""
MAX_FILES: Final = 10_000
"""Files of a store."""
MAX_BATCH: Final = 2_000
"""Files that are attached at once."""
MAX_BYTES: Final = 1 << 30
"""Bytes of text that the chunks of a store have together."""
MAX_CHUNKS: Final = 200_000
"""Chunks of a store."""
MAX_FOUND: Final = 50
"""Passages that a search may ask for."""
MAX_QUERIES: Final = 8
"""Questions that one search may ask."""

NO_RANKERS: Final = (None, "none", "auto", "default-2024-11-15", "default_2024_08_21")
"""What OpenAI's clients say of a ranker where no model ranks."""

FileStatus: TypeAlias = Literal["in_progress", "completed", "failed", "cancelled"]
Attributes: TypeAlias = Mapping[str, str | float | bool]


class FileCounts(BaseModel):
    """Files by status."""

    in_progress: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def total(self) -> int:
        """How many there are."""
        return self.in_progress + self.completed + self.failed + self.cancelled


class StoreInfo(BaseModel):
    """A store. Times are aware and in UTC."""

    store_id: str = Field(description="`vs_…`, as clients name it.")
    name: str
    description: str = ""
    shared: bool = Field(default=False, description="It is for all users of the tenant, who read and do not change it.")
    status: Literal["in_progress", "completed", "expired"]
    file_counts: FileCounts
    usage_bytes: int = Field(description="Of the text of its chunks.")
    chunks: int
    metadata: dict[str, str]
    model: str | None = Field(
        default=None,
        description="Of its vectors, with their dimensions where those were asked for; null: it has none, and keywords "
        "find all.",
    )
    embedding_anew: str | None = Field(default=None, description="The model by which it is being embedded anew.")
    created_at: datetime
    last_active_at: datetime
    expires_days: int | None = Field(default=None, description="After so many days in which nobody uses it.")
    expires_at: datetime | None = None


class StoreFile(BaseModel):
    """A file of a store."""

    store_id: str
    file_id: str
    filename: str
    status: FileStatus
    error_code: Literal["server_error", "unsupported_file", "invalid_file"] | None = None
    error: str | None = Field(default=None, description="Why it has failed.")
    notes: list[str] = Field(default_factory=list, description="What of it could not be read.")
    attributes: dict[str, str | float | bool]
    chunk_tokens: int
    overlap_tokens: int
    usage_bytes: int = 0
    chunks: int = Field(default=0, description="How many it has, or is going to have.")
    done: int = Field(default=0, description="How many of them can be found by now.")
    created_at: datetime


class FileBatch(BaseModel):
    """Files that were attached to a store at once."""

    batch_id: str = Field(description="`vsfb_…`")
    store_id: str
    status: Literal["in_progress", "completed", "cancelled", "failed"]
    file_counts: FileCounts
    created_at: datetime


class Reindexing(BaseModel):
    """How far a store is embedded anew."""

    done: int = Field(description="Chunks that the new index has.")
    error: str | None = Field(default=None, description="Why the last attempt has failed.")


class Passage(BaseModel):
    """A chunk that was found.

    `score` sorts the passages of one answer: BM25 by keywords, a cosine by vectors, a fused rank by both.
    """

    store_id: str
    file_id: str
    filename: str
    text: str
    score: float
    attributes: dict[str, str | float | bool]
    page: int | None = Field(default=None, description="Of a PDF or a presentation, from 1.")
    headings: list[str] = Field(default_factory=list, description="Of the sections it is in, the outermost first.")
    cosine: float | None = Field(default=None, description="Of its vector and the question's.")
    place: int = Field(default=0, description="Of the part of the file's content that it is; later ones have more.")


class Part(NamedTuple):
    """What was read of a file, but for what the part before has already; `place` sorts the parts."""

    place: int
    text: str


class Findings(BaseModel):
    """The answer to a search: the best passage first; of equal scores, always in the same order."""

    queries: list[str]
    passages: list[Passage]
    mode: Mode = Field(description="By what was searched in fact.")
    notes: list[str] = Field(default_factory=list, description="What was asked and could not be done, in sentences.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunking:
    """How a file is cut: tokens of a chunk, 100 to 4096, and of what it repeats of the one before, at most half."""

    size: int = 800
    overlap: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStore:
    """A store that is to be made. `expires_days`: after so many days without use; None: never."""

    name: str = ""
    description: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    expires_days: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file that is to be attached to a store."""

    file_id: str
    attributes: Attributes = field(default_factory=dict[str, "str | float | bool"])
    chunking: Chunking = Chunking()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What stores are searched for.

    Attributes:
        queries: questions, 1 to 8, each of which is searched for; their passages are fused.
        top_k: how many passages at most, 1 to 50.
        mode: by what; hybrid is keywords alone where there are no vectors, which `Findings.notes` says.
        filters: which files are looked at, in OpenAI's grammar, as JSON; None: all.
        score_threshold: the lowest cosine of a passage; left out, with a note, where there are no vectors.
        ranker: the profile of a model that puts passages in order; one of `NO_RANKERS`: none does.
        on: the day on which it is asked, from which `last week` is seen; None: today, in UTC.
    """

    queries: Sequence[str]
    top_k: int = 10
    mode: Mode = "hybrid"
    filters: object = None
    score_threshold: float | None = None
    on: date | None = None
    ranker: str | None = None


def context_of(filename: str, place: JsonObject) -> str:
    """Return what is searched, and embedded, with a chunk: the name of its file, and the titles of its sections."""
    return "\n".join([filename, *place["headings"]])
