"""Rows of knowledge are read and written by synchronous functions of a `Session`: `stores`, their `files`, and
`indexing`, which has their chunks. What the verbs need of them is here, and imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drsai_backend.lazily import lazily

if TYPE_CHECKING:
    from drsai_backend.database.pages import Listing
    from drsai_backend.features.knowledge.rows.files import (
        all_of,
        attach,
        attach_batch,
        cancel_batch,
        content_of,
        create_with,
        detach,
        forget_file,
        list_files,
        put,
        read_batch,
        read_file,
        set_file_attributes,
    )
    from drsai_backend.features.knowledge.rows.indexing import failed_for_good, lock_store_of, reindex, reindexing
    from drsai_backend.features.knowledge.rows.stores import (
        delete_part,
        delete_store,
        ensure_store,
        expire,
        list_stores,
        read_store,
        resolve,
        shown,
        update_store,
    )

__all__ = [
    "Listing",
    "all_of",
    "attach",
    "attach_batch",
    "cancel_batch",
    "content_of",
    "create_with",
    "delete_part",
    "delete_store",
    "detach",
    "ensure_store",
    "expire",
    "failed_for_good",
    "forget_file",
    "list_files",
    "list_stores",
    "lock_store_of",
    "put",
    "read_batch",
    "read_file",
    "read_store",
    "reindex",
    "reindexing",
    "resolve",
    "set_file_attributes",
    "shown",
    "update_store",
]

__getattr__ = lazily(
    __name__,
    {
        "files": "all_of attach attach_batch cancel_batch content_of create_with detach forget_file list_files put "
        "read_batch read_file set_file_attributes",
        "indexing": "failed_for_good lock_store_of reindex reindexing",
        "stores": "Listing delete_part delete_store ensure_store expire list_stores read_store resolve shown "
        "update_store",
    },
)
