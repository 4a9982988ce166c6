"""The state of a thread is stored in parts: codec, journal, snapshot, and the fold of the two into a team's full
state."""

from drsai_backend.state.codec import FORMAT_VERSION, decode_state, encode_state
from drsai_backend.state.journal import (
    Document,
    Entry,
    Item,
    ResumeRecord,
    decode_document,
    encode_document,
    expand,
    fold,
)

__all__ = [
    "FORMAT_VERSION",
    "Document",
    "Entry",
    "Item",
    "ResumeRecord",
    "decode_document",
    "decode_state",
    "encode_document",
    "encode_state",
    "expand",
    "fold",
]
