"""The journal has what one turn added to a thread's state, small and independent of the state's length.

A **document** is the state of a thread in compact form. It has

- `skeleton`: a dict with two keys, `state` (what `team.save_state()` returns, with the message lists left empty) and
  `extras` (what `save_state()` leaves out and a team needs all the same);
- `cells`: paths into the skeleton, numbered by their position. A cell is a list of messages or a single value;
- `lists`: for every list cell its items, in **reference form** (below);
- `resume`: the resume record of the last boundary.

An **entry** either brings a whole new document (`doc`: a thread's first turn, or a team that has been changed) or
changes cells of the last one: `set` a value, `extend` a list, `replace` a list. It always brings the resume record.
`fold` applies entries to a document; `expand` turns a document into the state that `team.load_state()` takes.

Reference form: messages of a thread are stored once, as rows numbered by `seq`. A state repeats each of them in the
manager's thread, in every participant's buffer and, in another shape, in every agent's model context. An item is

| item | stands for |
| --- | --- |
| `12` | the dump of message 12, as it is |
| `["u", 12]` | `UserMessage` with content and source of message 12 |
| `["a", 12]`, `["a", 12, "thought"]` | `AssistantMessage` likewise |
| `["f", 12]` | `FunctionExecutionResultMessage` with the content of message 12 |
| `{…}` | itself: anything that matches none of these |

A **short** entry is the same in fewer bytes: messages are numbered from the last one that the state takes in, which
is 0, the one before it -1. So the entries of a thread are much alike, and like the words behind which the codec
deflates them.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, Field, InstanceOf, StrictBool, StrictInt, StrictStr, TypeAdapter, ValidationError

from drsai_backend.errors import DamagedState
from drsai_backend.json_types import JsonObject
from drsai_backend.state.codec import FORMAT_VERSION, MAX_JSON_BYTES, SHORT_VERSION, decode_value, encode_value

Item: TypeAlias = int | list[Any] | JsonObject
Path: TypeAlias = tuple[str, ...]
# Each item is looked at when it is resolved; here it would cost a copy of every list.
_Items: TypeAlias = InstanceOf[list[Item]]
_Cell: TypeAlias = Annotated[int, Field(ge=0)]
_Path: TypeAlias = Annotated[tuple[StrictStr, ...], Field(min_length=1)]
_SHORT: Final = "RFMC"
"""What payloads of `SHORT_VERSION` begin with."""


@dataclass(slots=True)
class ResumeRecord:
    """What `save_state()` leaves out and a cut run needs to continue.

    Attributes:
        pending: names of the participants whose requests are held at the boundary, in order. None: the run had ended,
            and messages stored after it are the task of the next one.
        last_seq: the newest message that the state takes in. Messages stored after it are a task that no turn has taken
            up yet.
        paused: the agents were told of a pause (`on_pause`) and not yet of its end.
        conditions: per team (outermost first, depth first) what its termination condition has counted so far, as
            `drsai_backend.teams` captures it.
    """

    pending: list[StrictStr] | None = None
    conditions: list[JsonObject | None] = field(default_factory=list)
    last_seq: Annotated[StrictInt, Field(validation_alias="seq")] = 0
    paused: StrictBool = False

    def to_json(self) -> JsonObject:
        record: JsonObject = {"seq": self.last_seq}
        if self.pending is not None:
            record["pending"] = self.pending
        if any(self.conditions):
            record["conditions"] = self.conditions
        if self.paused:
            record["paused"] = True
        return record


@dataclass(slots=True)
class Document:
    """The state of a thread in compact form; see the module's docstring."""

    skeleton: dict[str, JsonObject]
    cells: list[_Path]
    lists: dict[_Cell, _Items]
    resume: ResumeRecord = field(default_factory=ResumeRecord)

    def to_json(self) -> JsonObject:
        return {
            "skeleton": self.skeleton,
            "cells": [list(path) for path in self.cells],
            "lists": {str(cell): items for cell, items in self.lists.items()},
            "resume": self.resume.to_json(),
        }


def _sound(document: Document) -> Document:
    if not document.skeleton.keys() >= {"state", "extras"} or any(n >= len(document.cells) for n in document.lists):
        raise ValueError("not a document")
    return document


_SoundDocument: TypeAlias = Annotated[Document, AfterValidator(_sound)]


@dataclass(slots=True)
class Entry:
    """What one turn changed. `doc` replaces everything; otherwise the three dicts change cells by number."""

    resume: Annotated[ResumeRecord, Field(validation_alias="r")]
    doc: Annotated[_SoundDocument | None, Field(validation_alias="d")] = None
    set: Annotated[dict[_Cell, object], Field(validation_alias="s")] = field(default_factory=dict)
    extend: Annotated[dict[_Cell, _Items], Field(validation_alias="x")] = field(default_factory=dict)
    replace: Annotated[dict[_Cell, _Items], Field(validation_alias="w")] = field(default_factory=dict)

    def encode(self, *, short: bool = False) -> str:
        """The payload of a `JournalEntry` row."""
        value: JsonObject = {"r": self.resume.to_json()}
        if self.doc is not None:
            return encode_value({"d": self.doc.to_json(), **value})
        if self.set:
            value["s"] = {str(cell): content for cell, content in self.set.items()}
        by = -self.resume.last_seq
        for key, cells in (("x", self.extend), ("w", self.replace)):
            if cells:
                value[key] = {str(n): _counted(items, by) if short and items else items for n, items in cells.items()}
        return encode_value(value, SHORT_VERSION if short else FORMAT_VERSION)

    @classmethod
    def decode(cls, payload: str) -> Entry:
        """The entry of a payload. StateError: damaged, or written by a later version."""
        try:
            entry = _entries.validate_python(decode_value(payload))
            for cells in (entry.extend, entry.replace) if payload.startswith(_SHORT) else ():
                cells |= {cell: _counted(items, entry.resume.last_seq) for cell, items in cells.items()}
            return entry
        except (ValidationError, LookupError, TypeError):
            raise DamagedState("a journal entry does not have the shape of one", param="state") from None


def _counted(items: list[Any], by: int) -> list[Any]:
    """Items whose messages have other numbers. LookupError, TypeError: one is none."""
    counted = items[:]
    for place, item in enumerate(items):
        if type(item) is int:
            counted[place] = item + by
        elif type(item) is not dict:
            counted[place] = [item[0], item[1] + by, *item[2:]]
    return counted


_documents: TypeAdapter[Document] = TypeAdapter(_SoundDocument)
_entries: TypeAdapter[Entry] = TypeAdapter(Entry)


def encode_document(document: Document) -> str:
    """The payload of a `ThreadSnapshot` row."""
    return encode_value(document.to_json())


def decode_document(payload: str, *, limit: int = MAX_JSON_BYTES) -> Document:
    """The document of a snapshot, of at most `limit` bytes of JSON. StateError: damaged, or of a later version."""
    try:
        return _documents.validate_python(decode_value(payload, limit=limit))
    except ValidationError:
        raise DamagedState("a snapshot does not have the shape of one", param="state") from None


def fold(document: Document | None, entries: Iterable[Entry]) -> Document | None:
    """The document after `entries`, oldest first; changes `document` where it can. DamagedState: one does not fit."""
    for entry in entries:
        if entry.doc is not None:
            document = entry.doc
        elif document is None:
            raise DamagedState("the journal does not begin with a whole document", param="state")
        else:
            _apply(document, entry)
        document.resume = entry.resume
    return document


def _apply(document: Document, entry: Entry) -> None:
    try:
        for cell, value in entry.set.items():
            if cell in document.lists:
                raise KeyError(cell)
            put(document.skeleton, document.cells[cell], value)
        for cell, items in entry.extend.items():
            document.lists[cell].extend(items)
        for cell, items in entry.replace.items():
            if cell not in document.lists:
                raise KeyError(cell)
            document.lists[cell] = items
    except (KeyError, IndexError, TypeError, AttributeError):
        raise DamagedState("a journal entry names a part of the state that is not there", param="state") from None


def put(tree: JsonObject, path: Path, value: object) -> None:
    """Set `value` at `path`. Raises KeyError where a parent is missing."""
    for name in path[:-1]:
        tree = tree[name]
    tree[path[-1]] = value


def expand(document: Document, configs: Mapping[int, JsonObject]) -> tuple[JsonObject, JsonObject]:
    """The full state and the extras. `configs` maps seq to the stored message dump.

    Message dumps are shared between the lists of the result, not copied: treat it as read-only.

    Raises:
        DamagedState: a message that the state refers to is missing.
    """
    try:
        tree = copy.deepcopy(document.skeleton)
        for cell, items in document.lists.items():
            put(tree, document.cells[cell], [resolve(item, configs) for item in items])
        return tree["state"], tree["extras"]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise DamagedState("the state refers to a message that is not stored", param="messages") from None
    except RecursionError:
        raise DamagedState("the state is nested too deeply", param="state") from None


def resolve(item: Item, configs: Mapping[int, JsonObject]) -> JsonObject:
    """Return what an item in reference form stands for. KeyError, IndexError, TypeError, ValueError: nothing."""
    if isinstance(item, int):
        return configs[item]
    if isinstance(item, dict):
        return item
    config = configs[item[1]]
    match item[0]:
        case "u":
            return {"content": config["content"], "source": config["source"], "type": "UserMessage"}
        case "a":
            said = {"content": config["content"], "thought": item[2] if len(item) > 2 else None}
            return {**said, "source": config["source"], "type": "AssistantMessage"}
        case "f":
            return {"content": config["content"], "type": "FunctionExecutionResultMessage"}
        case kind:
            raise ValueError(kind)


def renumber(document: Document, numbers: Sequence[int]) -> Document:
    """The document for messages that are numbered 1, 2, 3 …; `numbers` are those they have in it, ascending.

    Raises:
        DamagedState: it refers to another message.
    """
    places = {number: place for place, number in enumerate(numbers, 1)}

    def moved(item: Item) -> Item:
        if isinstance(item, dict):
            return item
        return places[item] if isinstance(item, int) else [item[0], places[item[1]], *item[2:]]

    try:
        lists = {cell: [moved(item) for item in items] for cell, items in document.lists.items()}
    except (KeyError, IndexError, TypeError):
        raise DamagedState("the state refers to a message that is not stored", param="messages") from None
    resume = replace(document.resume, last_seq=bisect_right(numbers, document.resume.last_seq))
    return replace(document, lists=lists, resume=resume)
