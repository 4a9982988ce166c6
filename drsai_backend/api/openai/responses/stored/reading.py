"""The items of requests are read here: with those that are only named, and those that wait for a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from drsai_backend.access.principal import Principal
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.openai.responses.request import items
from drsai_backend.api.openai.responses.request.body import InputBody
from drsai_backend.api.openai.responses.request.inputs import is_heavy, placed
from drsai_backend.api.openai.responses.request.items import Placed, ReadItems, read_items
from drsai_backend.api.openai.responses.stored.named import with_named
from drsai_backend.api.openai.responses.stored.places import Continued
from drsai_backend.api.openai.responses.stored.stored import find
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Engine

NOTED: Final = "noted"
"""The field of an item that waits which has the files that came with it, as metadata; no client sets it."""


@dataclass(frozen=True, slots=True)
class ItemReader:
    """Reads items, for one engine. `max_items`: most of a request."""

    engine: Engine
    bodies: Bodies
    max_items: int

    async def read(self, given: Sequence[Placed], *, were_added: bool = False) -> ReadItems:
        """The input that items are, none of which is only named. Arguments and what is raised: `items.read_items`."""
        reading = partial(read_items, given, were_added=were_added)
        return await self.bodies.off_loop(reading) if is_heavy(given) else reading()

    async def waiting(self, place: Continued) -> ReadItems:
        """The items that were added to a conversation since its last run."""
        if not place.waiting:
            return ReadItems()
        body = InputBody.model_validate({"model": "-", "input": [each["item"] for each in place.waiting]})
        read = await self.read(placed(body.input, "items"), were_added=True)
        noted = {f"items[{at}]": each["item"].get(NOTED, {}) for at, each in enumerate(place.waiting)}
        read.messages = [
            replace(each, noted=noted.get(path, {})) for each, path in zip(read.messages, read.paths, strict=True)
        ]
        return read

    def expand(self, who: Principal, given: Sequence[Placed]) -> AbstractAsyncContextManager[list[Placed]]:
        """The items, with what others only name: see `named.with_named`."""
        return with_named(self.engine, self.bodies, who, given, self.max_items)

    async def check(self, given: Sequence[Placed]) -> None:
        """Raise InvalidRequest where one of the items cannot be used; `param` names it."""
        read = await self.read(given)
        for path, message in zip(read.paths, read.messages, strict=True):
            if message.is_empty and message.role != "tool" and not message.calls:
                raise InvalidRequest(f"`{path}.content` must not be empty", param=f"{path}.content")

    async def item_of(self, who: Principal, thread_id: str, item_id: str) -> JsonObject | None:
        """The item of that id, as a response of the thread has given it out; None: there is none."""
        try:
            stored = await find(self.engine, who, items.response_id(items.run_of_item(item_id)))
        except NotFound:
            return None
        if stored.request.head.thread_id != thread_id:
            return None
        return next((each for each in (*stored.input_items(), *stored.output()) if each["id"] == item_id), None)
