"""The base of memory says what a memory is, and what may be stored."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import BaseModel, Field

from drsai_backend.datamodel.owner import Owner

KIND: Final = "memory"
"""Of the search indexes, and of the jobs."""
MAX_TEXT: Final = 1_000
"""Characters of a memory."""
MAX_PAST: Final = 20_000
"""Versions of a person's memories that are over, and kept; the oldest go first."""
MAX_MEMORIES: Final = 5_000
"""Current memories of a user."""
STORED_FROM: Final = 0.6
"""The least importance of what is stored of a run."""
UNKNOWN: Final = 0.5
"""The importance of what could not be judged."""

MemoryKind: TypeAlias = Literal["fact", "preference", "episode"]
Origin: TypeAlias = Literal["run", "api", "tool"]
Level: TypeAlias = Literal["team", "tenant"]
"""By whom something is remembered that all users share: the runs of one team, or of all."""
ID: Final = r"^mem_[0-9a-f]{24}$"
"""What the name of a memory looks like."""
VERSION: Final = r"^memv_[0-9a-f]{24}$"
"""What the name of a version looks like."""
# Its length apart: a pattern that counts letters of all languages takes 60 ms and 6 MB to be prepared.
ScopeName: TypeAlias = Annotated[str, Field(max_length=64, pattern=r"^[\w.: -]*$")]
"""The name of a scope; empty: for all agents."""
KINDS: Final[Sequence[MemoryKind]] = get_args(MemoryKind)


class Source(BaseModel):
    """The words of a message from which a memory was learnt."""

    thread_id: str
    run_id: str
    seq: int = Field(description="The number of the message in the thread.")
    quote: str
    user_id: str | None = Field(default=None, description="Whose thread it is, where it is another user's.")
    said_by: str | None = Field(default=None, description="Who has said it, of what is shared.")


class MemoryInfo(BaseModel):
    """A version of a memory. Times are aware and in UTC."""

    memory_id: str = Field(description="`mem_…`: of all its versions.")
    version_id: str
    shared: bool = Field(default=False, description="It belongs to all users of the tenant.")
    scope: str = Field(description="Empty: for all agents; else the name under which some keep it.")
    kind: MemoryKind
    text: str
    importance: float = Field(description="0 to 1.")
    origin: Origin
    sources: list[Source]
    valid_from: datetime = Field(description="Since when it is true.")
    valid_to: datetime | None = Field(default=None, description="Until when it was.")
    created_at: datetime
    expired_at: datetime | None = Field(default=None, description="When it was believed no more; null: it is current.")
    ended_by: Literal["update", "invalidate"] | None = None
    uses: int = Field(description="How often agents were shown it.")
    used_at: datetime | None = None


class Remembered(BaseModel):
    """A memory that was found, and how well it fits the question: `score` compares those of one answer."""

    memory: MemoryInfo
    score: float
    days_ago: int = Field(description="Since it was learnt.")


class FoundMemories(BaseModel):
    """What was found for a question, the best first, and what could not be done for it, in sentences."""

    items: list[Remembered]
    notes: list[str] = Field(default_factory=list)
    left_out: list[tuple[datetime, datetime]] = Field(
        default_factory=list[tuple[datetime, datetime]],
        description="The times of which nothing is known, as the thread was rewound, or is a fork: after the first "
        "moment, up to the last.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMemory:
    """Something to be remembered.

    Attributes:
        text: 1 to 1,000 characters, on one line.
        kind: what it is.
        importance: 0 to 1.
        origin: who says so.
        scope: empty: for all agents.
        sources: of what is learnt from a run.
        valid_from: since when it is true; None: now.
    """

    text: str
    kind: MemoryKind = "fact"
    importance: float = 0.8
    origin: Origin = "api"
    scope: str = ""
    sources: Sequence[Source] = ()
    valid_from: datetime | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """A message of a person's: its number in the thread, its text and when it came."""

    seq: int
    text: str
    at: datetime


def shared_by(tenant: str) -> Owner:
    """Return the owner of what all users of a tenant share: a tenant without a user."""
    return Owner(tenant, "")


def plain(text: str) -> str:
    """Return a text as texts are compared here: NFKC, without case, with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def digest_of(text: str) -> str:
    """Return what two texts have in common that are remembered once."""
    return hashlib.sha256(plain(text).rstrip(".!。").encode("utf-8", "replace")).hexdigest()
