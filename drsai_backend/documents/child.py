"""The child is the program in which the reader has a file read (`tools.apart`): a request and bytes in, JSON out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drsai_backend.errors import DocumentUnreadable


def main(data: bytes) -> bytes:
    """Read a file.

    Args:
        data: a line of JSON (`name`, `media_type`, `limits`, `most` bytes of the answer; `size` and `overlap` for
            chunks), and the content of the file.

    Returns:
        `{"read": Document}` or `{"chunked": ChunkedDocument}`, or `{"code": …, "message": …}` of a DocumentUnreadable.
    """
    # This package is not among what `apart` hands on where the server was started in its folder.
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    from drsai_backend.errors import DocumentTooLarge, DocumentUnreadable

    try:
        return _read(data)
    except DocumentUnreadable as error:
        return _refused(error)
    except MemoryError:
        return _refused(DocumentTooLarge("the file needs more memory than the reading of one file may use; split it"))
    except Exception:  # noqa: BLE001 - whatever a foreign file does to the libraries that read it
        return _refused(DocumentUnreadable("the file is broken: its reader could not make sense of it"))


def _read(data: bytes) -> bytes:
    from drsai_backend.documents.base import ChunkedDocument, ReadLimits
    from drsai_backend.documents.chunking import chunk
    from drsai_backend.documents.extraction import extract
    from drsai_backend.errors import DocumentTooLarge

    start = data.index(b"\n")
    asked: dict[str, Any] = json.loads(data[:start])
    read = extract(asked["name"], data[start + 1 :], asked["media_type"], ReadLimits(**asked["limits"]))
    answer: dict[str, object] = {"read": read}
    if asked["size"]:
        chunks = chunk(read, asked["size"], asked["overlap"])
        answer = {"chunked": ChunkedDocument(read.name, read.media_type, chunks, read.pages, read.metadata, read.notes)}
    # Names of files may have halves of surrogates, as Python reads them where they are no UTF-8.
    made = json.dumps(answer, ensure_ascii=False, default=_fields).encode("utf-8", "replace")
    if len(made) > asked["most"]:
        raise DocumentTooLarge("the file has more text than one file may have; split it")
    return made


def _fields(value: Any) -> dict[str, Any]:
    """The fields of one of our dataclasses. `dataclasses.asdict` takes ten times as long."""
    return {name: getattr(value, name) for name in value.__slots__}


def _refused(error: DocumentUnreadable) -> bytes:
    return json.dumps({"code": error.code, "message": error.message}).encode()
