"""The base of search says what is stored, what is asked and what is found."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from drsai_backend.datamodel.owner import Owner
from drsai_backend.json_types import JsonObject

if TYPE_CHECKING:
    from drsai_backend.search.filters import Filter

MAX_ENTRIES: Final = 1_000
"""Entries, or names of them, that one call takes."""
MAX_INDEXES: Final = 64
"""Indexes that are searched at once."""
MAX_TEXT: Final = 200_000
"""Characters of an entry."""
MAX_NAME: Final = 256
"""Characters of the name of an entry, and of a family."""
MAX_QUERY: Final = 8_192
"""Characters of a query that are looked at; what is behind them is left out."""
MAX_FOUND: Final = 100
"""Hits that a query may ask for."""
MAX_TERMS: Final = 256
"""Terms of a query that are looked for."""
MAX_DIMENSIONS: Final = 4_096
"""Numbers of a vector."""

Mode: TypeAlias = Literal["keyword", "vector", "hybrid"]


@dataclass(frozen=True, slots=True)
class Index:
    """An index as it is now.

    Attributes:
        owner: whose it is; an empty user: it is for all of the tenant.
        kind: of which feature, and of what.
        model: of its vectors; None: it has none, and is found by keywords alone.
        dimensions: of its vectors.
        entries: how many it has.
    """

    id: int
    owner: Owner
    kind: str
    model: str | None
    dimensions: int | None
    entries: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A text to be found.

    Attributes:
        ref: its name, unique in its index: up to 256 characters.
        text: what is searched and shown: 1 to 200,000 characters.
        family: what it is removed with, such as the id of its file.
        attributes: what filters look at: names with texts, numbers and booleans.
        place: where it stands, for citations: page, headings. Only kept.
        context: text that is searched with it and not shown, such as headings, the speaker, the lines before.
    """

    ref: str
    text: str
    family: str = ""
    attributes: Mapping[str, str | float | bool] = field(default_factory=dict[str, "str | float | bool"])
    place: JsonObject = field(default_factory=dict)
    context: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """What is searched for.

    Attributes:
        text: of the question; its first 8,192 characters count.
        vector: of the question, as `Embedder.embed` gives it; None: it is searched by keywords alone.
        top_k: how many hits at most, 1 to 100.
        mode: by what. `vector` and `hybrid` become `keyword` where there is no vector, which `Found.notes` says.
        filters: which entries are looked at; None: all.
        without: families that are passed by.
        score_threshold: the lowest cosine of a hit; None: any. It is left out, with a note, where no vectors
            are searched, and a hit that has no vector passes.
        on: the day on which it is asked, from which `last week` is seen; None: today, in UTC.
    """

    text: str
    vector: bytes | None = None
    top_k: int = 10
    mode: Mode = "hybrid"
    filters: Filter | None = None
    score_threshold: float | None = None
    on: date | None = None
    without: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that was found.

    Attributes:
        index: the index that has it.
        score: by which hits are sorted: BM25 by keywords, the cosine by vectors, a fused rank by both. Comparable in
            one answer only.
        keyword_rank: its place by keywords, from 1; None: not among those found by keywords.
        cosine: of its vector and the question's; None: it was not compared.
    """

    index: int
    ref: str
    family: str
    text: str
    score: float
    attributes: JsonObject
    place: JsonObject
    keyword_rank: int | None = None
    cosine: float | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to a query.

    Attributes:
        hits: the best first; of equal scores, the one of the lower `ref` first.
        mode: by what it was searched in fact.
        notes: sentences for the user: what was asked and could not be done.
    """

    hits: Sequence[Hit]
    mode: Mode
    notes: Sequence[str] = ()
