"""The items of requests are read here: with those that are only named, and those that wait for a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from drsai_backend.access.principal import Principal
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.openai.responses.request import items
from drsai_backend.api.openai.responses.request.body import (
    CallOutputItem,
    CompactionItem,
    CustomCallItem,
    FunctionCallItem,
    InputBody,
    Item,
    MessageItem,
    ReferenceItem,
)
from drsai_backend.api.openai.responses.request.compaction import open_compaction
from drsai_backend.api.openai.responses.request.inputs import is_heavy, placed
from drsai_backend.api.openai.responses.request.items import Placed, ReadItems, read_items
from drsai_backend.api.openai.responses.stored.places import Continued
from drsai_backend.api.openai.responses.stored.stored import find, find_known
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Engine

NOTED: Final = "noted"
"""The field of an item that waits which has the files that came with it, as metadata; no client sets it."""


@dataclass(frozen=True, slots=True)
class ItemReader:
    """Reads items, for one engine."""

    engine: Engine
    bodies: Bodies

    async def read(self, given: Sequence[Placed]) -> ReadItems:
        """The input that items are, none of which is only named. Raises as `items.read_items`."""
        return await self.bodies.off_loop(partial(read_items, given)) if is_heavy(given) else read_items(given)

    async def waiting(self, place: Continued) -> ReadItems:
        """The items that were added to a conversation since its last run."""
        if not place.waiting:
            return ReadItems()
        body = InputBody.model_validate({"model": "-", "input": [each["item"] for each in place.waiting]})
        read = await self.read(placed(body.input, "items"))
        noted = {f"items[{at}]": each["item"].get(NOTED, {}) for at, each in enumerate(place.waiting)}
        read.messages = [
            replace(each, noted=noted.get(path, {})) for each, path in zip(read.messages, read.paths, strict=True)
        ]
        return read

    async def expand(self, who: Principal, given: Sequence[Placed]) -> list[Placed]:
        """The items, with what others only name: items that were given out, and compactions."""
        found: list[Placed] = []
        named = [
            item.id
            for _, item in given
            if isinstance(item, ReferenceItem) and item.id.partition("_")[0] not in _NOT_AGAIN
        ]
        known = await self._given_out(who, named) if named else {}
        for path, item in given:
            if isinstance(item, ReferenceItem):
                found += [(path, each) for each in _referred(item.id, path, known)]
            elif isinstance(item, CompactionItem):
                shown = open_compaction(self.engine.db.secrets, who.owner, item.encrypted_content, f"{path}")
                found += [(path, each) for each in shown]
            else:
                found.append((path, item))
        return found

    async def _given_out(self, who: Principal, named: Sequence[str]) -> dict[str, JsonObject]:
        """The items of all responses that items of these ids are of, by their ids."""
        responses = list(dict.fromkeys(items.response_id(_run_of(item_id)) for item_id in named))
        known: dict[str, JsonObject] = {}
        for at in range(0, len(responses), _READ_TOGETHER):
            for stored in await find_known(self.engine, who, responses[at : at + _READ_TOGETHER]):
                if stored.is_shown:
                    known.update({item["id"]: item for item in (*stored.input_items(), *stored.output())})
        return known

    async def check(self, given: Sequence[Placed]) -> None:
        """Raise InvalidRequest where one of the items cannot be used; `param` names it."""
        read = await self.read(given)
        for path, message in zip(read.paths, read.messages, strict=True):
            if message.is_empty and message.role != "tool" and not message.calls:
                raise InvalidRequest(f"`{path}.content` must not be empty", param=f"{path}.content")

    async def item_of(self, who: Principal, thread_id: str, item_id: str) -> JsonObject | None:
        """The item of that id, as a response of the thread has given it out; None: there is none."""
        try:
            stored = await find(self.engine, who, items.response_id(_run_of(item_id)))
        except NotFound:
            return None
        if stored.request.head.thread_id != thread_id:
            return None
        return next((each for each in (*stored.input_items(), *stored.output()) if each["id"] == item_id), None)


def _run_of(item_id: str) -> str:
    """The id of the run that an item is of: it is part of the item's."""
    return items.RUN + item_id.partition("_")[2].partition("_")[0]


def _referred(item_id: str, path: str, known: Mapping[str, JsonObject]) -> list[Item]:
    """The item of that id; nothing for one that models are not shown again. Raises InvalidRequest: there is none."""
    if item_id.partition("_")[0] in _NOT_AGAIN:
        return []
    item = known.get(item_id)
    if item is None or item["type"] not in _SHOWN_AGAIN:
        raise InvalidRequest(f"`{path}.id`: there is no item {item_id!r}", param=f"{path}.id")
    return [_SHOWN_AGAIN[item["type"]].model_validate(item)]


_READ_TOGETHER = 50
"""Responses that are read in one go: a transaction does not last long."""
_NOT_AGAIN = ("rs", "mcpr")
_SHOWN_AGAIN: dict[str, type[MessageItem | FunctionCallItem | CustomCallItem | CallOutputItem]] = {
    "message": MessageItem,
    "function_call": FunctionCallItem,
    "function_call_output": CallOutputItem,
    "custom_tool_call": CustomCallItem,
    "custom_tool_call_output": CallOutputItem,
}
"""What may be named: of other items, models are not shown anything again."""
