"""The journal: what one turn added to a thread's state, small and independent of the state's length.

A **document** is the state of a thread in compact form. It has

- `skeleton`: a dict with two keys, `state` (what `team.save_state()` returns, with the message lists left empty) and
  `extras` (what `save_state()` leaves out and a team needs all the same);
- `cells`: paths into the skeleton, numbered by their position. A cell is a list of messages or a single value;
- `lists`: for every list cell its items, in **reference form** (below);
- `resume`: the resume record of the last boundary.

An **entry** either brings a whole new document (`doc`: a thread's first turn, or a team that has been changed) or
changes cells of the last one: `set` a value, `extend` a list, `replace` a list. It always brings the resume record.

Reference form: messages of a thread are stored once, as rows numbered by `seq`. A state repeats each of them in the
manager's thread, in every participant's buffer and, in another shape, in every agent's model context. An item is

| item | stands for |
| --- | --- |
| `12` | the dump of message 12, as it is |
| `["u", 12]` | `UserMessage` with content and source of message 12 |
| `["a", 12]`, `["a", 12, "thought"]` | `AssistantMessage` likewise |
| `["f", 12]` | `FunctionExecutionResultMessage` with the content of message 12 |
| `{…}` | itself: anything that matches none of these |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from drsai_backend.errors import DamagedState
from drsai_backend.state.bounds import MAX_JSON_BYTES
from drsai_backend.state.codec import decode_value, encode_value

Item: TypeAlias = int | list[Any] | dict[str, Any]
Path: TypeAlias = tuple[str, ...]


@dataclass(slots=True)
class ResumeRecord:
    """What `save_state()` leaves out and a cut run needs to go on.

    Attributes:
        pending: names of the participants whose requests are held at the boundary, in order. None: the run had ended,
            and messages stored after it are the task of the next one.
        last_seq: the newest message that the state takes in. Messages stored after it are a task that no turn has taken
            up yet.
        paused: the agents were told of a pause (`on_pause`) and not yet of its end.
        conditions: per team (outermost first, depth first) what its termination condition has counted so far, as
            `drsai_backend.teams` captures it.
    """

    pending: list[str] | None = None
    conditions: list[Any] = field(default_factory=list)
    last_seq: int = 0
    paused: bool = False

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {"seq": self.last_seq}
        if self.pending is not None:
            record["pending"] = self.pending
        if any(self.conditions):
            record["conditions"] = self.conditions
        if self.paused:
            record["paused"] = True
        return record

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> ResumeRecord:
        pending, conditions, seq = record.get("pending"), record.get("conditions", []), record["seq"]
        if not (pending is None or _list_of(str, pending)) or type(seq) is not int:
            raise TypeError("not a resume record")
        if not _list_of((dict, type(None)), conditions):
            raise TypeError("not a resume record")
        return cls(pending, conditions, seq, record.get("paused", False) is True)


@dataclass(slots=True)
class Document:
    """The state of a thread in compact form; see the module's docstring."""

    skeleton: dict[str, Any]
    cells: list[Path]
    lists: dict[int, list[Item]]
    resume: ResumeRecord = field(default_factory=ResumeRecord)

    def to_json(self) -> dict[str, Any]:
        return {
            "skeleton": self.skeleton,
            "cells": [list(path) for path in self.cells],
            "lists": {str(cell): items for cell, items in self.lists.items()},
            "resume": self.resume.to_json(),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Document:
        cells, lists, skeleton = value["cells"], _numbered(value["lists"]), value["skeleton"]
        sound = (
            _list_of(list, cells)
            and all(path and _list_of(str, path) for path in cells)
            and _list_of(list, [*lists.values()])
            and _list_of(dict, [skeleton["state"], skeleton["extras"]])
            and all(cell < len(cells) for cell in lists)
        )
        if not sound:
            raise TypeError("not a document")
        return cls(skeleton, [tuple(path) for path in cells], lists, ResumeRecord.from_json(value["resume"]))


@dataclass(slots=True)
class Entry:
    """What one turn changed. `doc` replaces everything; otherwise the three dicts change cells by number."""

    resume: ResumeRecord
    doc: Document | None = None
    set: dict[int, Any] = field(default_factory=dict)
    extend: dict[int, list[Item]] = field(default_factory=dict)
    replace: dict[int, list[Item]] = field(default_factory=dict)

    def encode(self) -> str:
        """The payload of a `JournalEntry` row."""
        if self.doc is not None:
            return encode_value({"d": self.doc.to_json(), "r": self.resume.to_json()})
        value: dict[str, Any] = {"r": self.resume.to_json()}
        for key, cells in (("s", self.set), ("x", self.extend), ("w", self.replace)):
            if cells:
                value[key] = {str(cell): content for cell, content in cells.items()}
        return encode_value(value)

    @classmethod
    def decode(cls, payload: str) -> Entry:
        """The entry of a payload.

        Raises:
            StateError: damaged, or written by a later version.
        """
        value = decode_value(payload)
        try:
            resume = ResumeRecord.from_json(value["r"])
            if "d" in value:
                return cls(resume, doc=Document.from_json(value["d"]))
            parts = [_numbered(value.get(key, {})) for key in "sxw"]
            if not _list_of(list, [*parts[1].values(), *parts[2].values()]):
                raise TypeError("not a list")
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DamagedState("a journal entry does not have the shape of one", param="state") from None
        return cls(resume, None, *parts)


def encode_document(document: Document) -> str:
    """The payload of a `ThreadSnapshot` row."""
    return encode_value(document.to_json())


def decode_document(payload: str, *, limit: int = MAX_JSON_BYTES) -> Document:
    """The document of a snapshot, of at most `limit` bytes of JSON.

    Raises:
        StateError: damaged, or written by a later version.
    """
    value = decode_value(payload, limit=limit)
    try:
        return Document.from_json(value)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DamagedState("a snapshot does not have the shape of one", param="state") from None


def _numbered(cells: dict[str, Any]) -> dict[int, Any]:
    numbered = {int(cell): content for cell, content in cells.items()}
    if any(cell < 0 for cell in numbered):
        raise ValueError("not the number of a cell")
    return numbered


def _list_of(kind: type | tuple[type, ...], value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in cast(list[Any], value))
