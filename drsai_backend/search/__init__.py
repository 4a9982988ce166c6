"""Search finds texts by keywords, by vectors and by both, in the database, on SQLite and PostgreSQL alike.

`base` has what is stored, asked and found; `indexes` stores; `search` finds; `embedding` makes vectors of texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drsai_backend.lazily import lazily

if TYPE_CHECKING:
    from drsai_backend.search.base import Entry, Found, Hit, Index, Mode, Query
    from drsai_backend.search.embedding import Embedder
    from drsai_backend.search.filters import NOT_EXACT, Filter, is_exact, parse_filter
    from drsai_backend.search.hnsw import speed_up
    from drsai_backend.search.indexes import (
        Prepared,
        add,
        create_index,
        drop_index,
        find_index,
        prepare,
        read_entries,
        remove,
        remove_family,
        sample,
        set_attributes,
    )
    from drsai_backend.search.search import Search

__all__ = [
    "NOT_EXACT",
    "Embedder",
    "Entry",
    "Filter",
    "Found",
    "Hit",
    "Index",
    "Mode",
    "Prepared",
    "Query",
    "Search",
    "add",
    "create_index",
    "drop_index",
    "find_index",
    "is_exact",
    "parse_filter",
    "prepare",
    "read_entries",
    "remove",
    "remove_family",
    "sample",
    "set_attributes",
    "speed_up",
]

__getattr__ = lazily(
    __name__,
    {
        "base": "Entry Found Hit Index Mode Query",
        "embedding": "Embedder",
        "filters": "Filter is_exact NOT_EXACT parse_filter",
        "hnsw": "speed_up",
        "indexes": "add create_index drop_index find_index prepare Prepared read_entries remove remove_family "
        "sample set_attributes",
        "search": "Search",
    },
)
