"""Fold a journal into a document, and a document into the state that `team.load_state()` takes."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from drsai_backend.errors import DamagedState
from drsai_backend.state.journal import Document, Entry, Item, Path


def fold(document: Document | None, entries: Iterable[Entry]) -> Document | None:
    """The document after `entries`, oldest first. Changes and returns `document` where it can.

    Raises:
        DamagedState: an entry does not fit what it follows.
    """
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


def put(tree: dict[str, Any], path: Path, value: Any) -> None:
    """Set `value` at `path`. Raises KeyError where a parent is missing."""
    for name in path[:-1]:
        tree = tree[name]
    tree[path[-1]] = value


def expand(document: Document, configs: Mapping[int, dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
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


def resolve(item: Item, configs: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """What an item in reference form stands for.

    Raises:
        KeyError, IndexError, TypeError, ValueError: it refers to nothing, or is no item.
    """
    if isinstance(item, int):
        return configs[item]
    if isinstance(item, dict):
        return item
    config = configs[item[1]]
    match item[0]:
        case "u":
            return {"content": config["content"], "source": config["source"], "type": "UserMessage"}
        case "a":
            return {
                "content": config["content"],
                "thought": item[2] if len(item) > 2 else None,
                "source": config["source"],
                "type": "AssistantMessage",
            }
        case "f":
            return {"content": config["content"], "type": "FunctionExecutionResultMessage"}
        case kind:
            raise ValueError(kind)
