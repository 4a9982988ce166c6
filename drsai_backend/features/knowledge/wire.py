"""The wire form of knowledge is OpenAI's: objects as its clients read them, and bodies as they send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field, StringConstraints

from drsai_backend.api.auth import Body
from drsai_backend.days import Day
from drsai_backend.errors import InvalidRequest
from drsai_backend.features.knowledge.base import (
    MAX_BATCH,
    MAX_FOUND,
    MAX_QUERIES,
    Chunking,
    FileBatch,
    FileCounts,
    Findings,
    NewFile,
    Passage,
    StoreFile,
    StoreInfo,
)
from drsai_backend.json_types import JsonObject

MAX_DAYS: Final = 365
Key: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=64)]
_Attribute: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^(?!drsai\.)")]
"""The key of an attribute: those that this server sets itself are no client's."""
_Text: TypeAlias = Annotated[str, StringConstraints(max_length=512)]
Name: TypeAlias = Annotated[str, StringConstraints(max_length=256)]
Metadata: TypeAlias = Annotated[dict[Key, _Text], Field(max_length=16)]
AttributesOf: TypeAlias = Annotated[dict[_Attribute, bool | float | _Text], Field(max_length=16)]
Asked: TypeAlias = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
FileName: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=255)]


class ExpiresAfter(Body):
    """When a store expires: so many days after it was last used."""

    anchor: Literal["last_active_at"]
    days: int = Field(ge=1, le=MAX_DAYS)


class Static(Body):
    """How files are cut, in tokens."""

    max_chunk_size_tokens: int = Field(ge=100, le=4096)
    chunk_overlap_tokens: int = Field(ge=0, le=2048)


class AutoStrategy(Body):
    """Files are cut as this server does it by itself."""

    type: Literal["auto"]


class StaticStrategy(Body):
    """Files are cut as the request says."""

    type: Literal["static"]
    static: Static


Strategy: TypeAlias = Annotated[AutoStrategy | StaticStrategy, Field(discriminator="type")]


class StoreBody(Body):
    """A store that is to be made."""

    name: Name | None = None
    description: Annotated[str, StringConstraints(max_length=1024)] | None = None
    file_ids: list[FileName] = Field(default_factory=list[FileName], max_length=MAX_BATCH)
    chunking_strategy: Strategy | None = None
    expires_after: ExpiresAfter | None = None
    metadata: Metadata | None = None


class StoreChangeBody(Body):
    """What of a store is to be changed; what is left out stays, and null is nothing."""

    name: Name | None = None
    description: Annotated[str, StringConstraints(max_length=1024)] | None = None
    expires_after: ExpiresAfter | None = None
    metadata: Metadata | None = None

    def changes(self) -> dict[str, object]:
        """Return what is given, by the names of a store's columns."""
        values: dict[str, object] = {
            "name": self.name or "",
            "description": self.description or "",
            "metadata": self.metadata or {},
            "expires_after": None if self.expires_after is None else self.expires_after.days,
        }
        names = {"expires_after": "expires_days"}
        return {names.get(name, name): values[name] for name in self.model_fields_set}


class FileBody(Body):
    """A file that is to be attached."""

    model_config = ConfigDict(regex_engine="python-re")

    file_id: FileName
    attributes: AttributesOf | None = None
    chunking_strategy: Strategy | None = None

    def new(self) -> NewFile:
        """Return it. Raises InvalidRequest: the overlap is too long."""
        return NewFile(
            file_id=self.file_id, attributes=self.attributes or {}, chunking=chunking_of(self.chunking_strategy)
        )


class FileChangeBody(Body):
    """The attributes that a file has from now on; null: none."""

    model_config = ConfigDict(regex_engine="python-re")

    attributes: AttributesOf | None


class BatchBody(Body):
    """Files that are to be attached at once: by their ids, alike, or each as it says itself."""

    model_config = ConfigDict(regex_engine="python-re")

    file_ids: list[FileName] | None = Field(default=None, min_length=1, max_length=MAX_BATCH)
    files: list[FileBody] | None = Field(default=None, min_length=1, max_length=MAX_BATCH)
    attributes: AttributesOf | None = None
    chunking_strategy: Strategy | None = None

    def new(self) -> list[NewFile]:
        """Return the files. Raises InvalidRequest: they are named in no way, or in both; an overlap is too long."""
        if (self.file_ids is None) == (self.files is None):
            raise InvalidRequest("`file_ids` or `files` is required, and not both", param="file_ids")
        if self.files is not None:
            return [each.new() for each in self.files]
        return alike(self.file_ids or (), self.attributes, self.chunking_strategy)


class RankingOptions(Body):
    """How what is found is chosen."""

    ranker: FileName | None = Field(
        default=None,
        description="`none`, `auto` or `default-2024-11-15`: as passages were found; or the profile of a model.",
    )
    score_threshold: float | None = Field(default=None, ge=0, le=1)


class SearchBody(Body):
    """A search."""

    query: Asked | Annotated[list[Asked], Field(min_length=1, max_length=MAX_QUERIES)]
    filters: JsonObject | None = None
    max_num_results: int = Field(default=10, ge=1, le=MAX_FOUND)
    ranking_options: RankingOptions | None = None
    rewrite_query: bool = Field(default=False, description="The questions are searched as they are in any case.")
    on: Day | None = Field(default=None, description="The day from which *last week* is seen. Default: today, in UTC.")


def chunking_of(strategy: AutoStrategy | StaticStrategy | None) -> Chunking:
    """Return how a file is to be cut. Raises InvalidRequest: the overlap is too long."""
    if not isinstance(strategy, StaticStrategy):
        return Chunking()
    size, overlap = strategy.static.max_chunk_size_tokens, strategy.static.chunk_overlap_tokens
    if 2 * overlap > size:
        text = "`chunk_overlap_tokens` must be at most half of `max_chunk_size_tokens`"
        raise InvalidRequest(text, param="chunking_strategy.static.chunk_overlap_tokens")
    return Chunking(size=size, overlap=overlap)


def alike(
    file_ids: list[FileName] | tuple[()],
    attributes: Mapping[str, str | float | bool] | None,
    strategy: AutoStrategy | StaticStrategy | None,
) -> list[NewFile]:
    """Return files that are attached alike. Raises InvalidRequest: the overlap is too long."""
    chunking = chunking_of(strategy)
    return [NewFile(file_id=each, attributes=attributes or {}, chunking=chunking) for each in file_ids]


def store_object(store: StoreInfo) -> JsonObject:
    """A store, as OpenAI shows it."""
    days = store.expires_days
    return {
        "id": store.store_id,
        "object": "vector_store",
        "created_at": int(store.created_at.timestamp()),
        "name": store.name,
        "description": store.description,
        "usage_bytes": store.usage_bytes,
        "file_counts": counts_object(store.file_counts),
        "status": store.status,
        "expires_after": None if days is None else {"anchor": "last_active_at", "days": days},
        "expires_at": None if store.expires_at is None else int(store.expires_at.timestamp()),
        "last_active_at": int(store.last_active_at.timestamp()),
        "metadata": store.metadata,
        "chunks": store.chunks,
        "embedding_model": store.model,
        "embedding_anew": store.embedding_anew,
        "shared": store.shared,
    }


def counts_object(counts: FileCounts) -> JsonObject:
    """Files by status, and how many there are."""
    return {**counts.model_dump(), "total": counts.total}


def file_object(file: StoreFile) -> JsonObject:
    """A file of a store, as OpenAI shows it."""
    static = {"max_chunk_size_tokens": file.chunk_tokens, "chunk_overlap_tokens": file.overlap_tokens}
    return {
        "id": file.file_id,
        "object": "vector_store.file",
        "created_at": int(file.created_at.timestamp()),
        "usage_bytes": file.usage_bytes,
        "vector_store_id": file.store_id,
        "status": file.status,
        "last_error": None if file.error_code is None else {"code": file.error_code, "message": file.error},
        "chunking_strategy": {"type": "static", "static": static},
        "attributes": file.attributes,
        "filename": file.filename,
        "chunks": {"done": file.done, "total": file.chunks},
        "notes": file.notes,
    }


def batch_object(batch: FileBatch) -> JsonObject:
    """A batch of files, as OpenAI shows it."""
    return {
        "id": batch.batch_id,
        "object": "vector_store.files_batch",
        "created_at": int(batch.created_at.timestamp()),
        "vector_store_id": batch.store_id,
        "status": batch.status,
        "file_counts": counts_object(batch.file_counts),
    }


def findings_object(found: Findings) -> JsonObject:
    """Return what was found, as OpenAI shows it."""
    return {
        "object": "vector_store.search_results.page",
        "search_query": found.queries,
        "data": [_passage_object(each) for each in found.passages],
        "has_more": False,
        "next_page": None,
        "mode": found.mode,
        "notes": found.notes,
    }


def _passage_object(passage: Passage) -> JsonObject:
    same = ("file_id", "filename", "score", "attributes", "page", "headings", "cosine", "place")
    return {**{name: getattr(passage, name) for name in same}, "content": [{"type": "text", "text": passage.text}]}


_NUMBER: Final = {"type": "integer", "minimum": 0}
_TIME: Final = {"type": ["integer", "null"], "description": "Unix time in seconds."}
_TEXT: Final = {"type": "string"}
_COUNTS: Final = {
    "type": "object",
    "required": ["in_progress", "completed", "failed", "cancelled", "total"],
    "properties": dict.fromkeys(("in_progress", "completed", "failed", "cancelled", "total"), _NUMBER),
}
_ATTRIBUTES: Final = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
_PART: Final[JsonObject] = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": _TEXT},
}
_STATUS: Final = {"enum": ["in_progress", "completed", "failed", "cancelled"]}


def _schema(kind: str, properties: JsonObject) -> JsonObject:
    shown: JsonObject = {"id": _TEXT, "object": {"const": kind}, "created_at": _TIME, **properties}
    return {"type": "object", "required": [*shown], "properties": shown}


STORE: Final = _schema(
    "vector_store",
    {
        "name": _TEXT,
        "description": _TEXT,
        "usage_bytes": {**_NUMBER, "description": "Of the text of its chunks."},
        "file_counts": _COUNTS,
        "status": {"enum": ["in_progress", "completed", "expired"]},
        "expires_after": {
            "type": ["object", "null"],
            "required": ["anchor", "days"],
            "properties": {"anchor": {"const": "last_active_at"}, "days": _NUMBER},
        },
        "expires_at": _TIME,
        "last_active_at": _TIME,
        "metadata": {"type": "object", "additionalProperties": _TEXT},
        "chunks": _NUMBER,
        "embedding_model": {"type": ["string", "null"], "description": "Null: keywords find all."},
        "embedding_anew": {"type": ["string", "null"], "description": "The model that takes its place."},
        "shared": {"type": "boolean", "description": "It is for all users of the tenant, and none changes it."},
    },
)
FILE: Final = _schema(
    "vector_store.file",
    {
        "usage_bytes": _NUMBER,
        "vector_store_id": _TEXT,
        "status": _STATUS,
        "last_error": {
            "type": ["object", "null"],
            "required": ["code", "message"],
            "properties": {"code": _TEXT, "message": _TEXT},
            "description": "Why it has failed.",
        },
        "chunking_strategy": {"type": "object"},
        "attributes": _ATTRIBUTES,
        "filename": _TEXT,
        "chunks": {
            "type": "object",
            "required": ["done", "total"],
            "properties": {"done": _NUMBER, "total": _NUMBER},
            "description": "How many there are (`total`), and can be found (`done`).",
        },
        "notes": {"type": "array", "items": _TEXT, "description": "What of it could not be read."},
    },
)
BATCH: Final = _schema(
    "vector_store.files_batch", {"vector_store_id": _TEXT, "status": _STATUS, "file_counts": _COUNTS}
)
CONTENT: Final = {
    "type": "object",
    "required": ["object", "data", "has_more", "next_page"],
    "properties": {
        "object": {"const": "vector_store.file_content.page"},
        "data": {
            "type": "array",
            "items": {
                **_PART,
                "properties": {
                    **_PART["properties"],
                    "place": {
                        "type": "integer",
                        "description": "Later parts have more; passages say theirs.",
                    },
                },
            },
        },
        "has_more": {"const": False},
        "next_page": {"type": "null"},
    },
}
FINDINGS: Final = {
    "type": "object",
    "required": ["object", "search_query", "data", "has_more", "next_page", "mode", "notes"],
    "properties": {
        "object": {"const": "vector_store.search_results.page"},
        "search_query": {"type": "array", "items": _TEXT},
        "data": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["file_id", "filename", "score", "attributes", "content"],
                "properties": {
                    "file_id": _TEXT,
                    "filename": _TEXT,
                    "score": {"type": "number"},
                    "attributes": _ATTRIBUTES,
                    "page": {"type": ["integer", "null"]},
                    "headings": {"type": "array", "items": _TEXT},
                    "cosine": {"type": ["number", "null"]},
                    "place": {"type": "integer", "description": "Of the part of the file's content that it is."},
                    "content": {"type": "array", "items": _PART},
                },
            },
        },
        "has_more": {"const": False},
        "next_page": {"type": "null"},
        "mode": {"enum": ["keyword", "vector", "hybrid"]},
        "notes": {"type": "array", "items": _TEXT, "description": "What was asked and could not be done."},
    },
}
