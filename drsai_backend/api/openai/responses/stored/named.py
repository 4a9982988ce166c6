"""Named items are those that a request does not hold itself: items that were given out, by their ids, and compactions.
What they bring counts as if the request had held it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from drsai_backend.access.principal import Principal
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.http.json import dumps
from drsai_backend.api.openai.responses.request import items
from drsai_backend.api.openai.responses.request.body import (
    CallOutputItem,
    CompactionItem,
    CustomCallItem,
    FunctionCallItem,
    Item,
    MessageItem,
    ReferenceItem,
)
from drsai_backend.api.openai.responses.request.compaction import open_compaction, unseal
from drsai_backend.api.openai.responses.request.items import Placed
from drsai_backend.api.openai.responses.stored.stored import find_known
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Engine

_READ_TOGETHER: Final = 5
"""Responses that are read in one go: each may be long, and a transaction does not last long."""
_NOT_AGAIN: Final = ("rs", "fs", "mcpr", "mcpa")
"""What the ids of other items begin with that are given out: models are not shown them again."""
_SHOWN_AGAIN: Final[dict[str, type[MessageItem | FunctionCallItem | CustomCallItem | CallOutputItem]]] = {
    "message": MessageItem,
    "function_call": FunctionCallItem,
    "function_call_output": CallOutputItem,
    "custom_tool_call": CustomCallItem,
    "custom_tool_call_output": CallOutputItem,
}
"""What may be named: of other items, models are not shown anything again."""


@asynccontextmanager
async def with_named(
    engine: Engine, bodies: Bodies, who: Principal, given: Sequence[Placed], max_items: int
) -> AsyncGenerator[list[Placed]]:
    """The items of a request, with those in place that others only name. What is named counts among all bodies under
    way until the context is left.

    Raises:
        InvalidRequest: one names what is not there for who asks; or with it, they are more than `max_items`, or what is
            named has more bytes, as JSON, than a body may have. `param` names it.
        Overloaded: too much is under way.
    """
    with ExitStack() as held:
        yield await _Naming(engine, bodies, who, max_items, held).items(given)


@dataclass
class _Naming:
    """Looks up what one request names. `count`: items so far; `size`: bytes of those that were named, each as often as
    it is; `held`: what these count for."""

    engine: Engine
    bodies: Bodies
    who: Principal
    max_items: int
    held: ExitStack
    count: int = 0
    size: int = 0
    packed: dict[str, list[Item]] = field(default_factory=dict[str, list[Item]])
    """The items of compactions that were opened, by their sealed texts."""

    async def items(self, given: Sequence[Placed]) -> list[Placed]:
        """See `with_named`."""
        self.count = sum(not isinstance(item, CompactionItem) for _, item in given)
        named = await self._given_out(_places_of(given))
        found: list[Placed] = []
        for path, item in given:
            if isinstance(item, ReferenceItem):
                found += [(path, named[item.id])] if _is_shown(item) else []
            elif isinstance(item, CompactionItem):
                found += [(path, each) for each in await self._opened(path, item.encrypted_content)]
            else:
                found.append((path, item))
        return found

    async def _given_out(self, places: Mapping[str, Sequence[str]]) -> dict[str, Item]:
        """Items by their ids. `places`: where each is named."""
        responses: dict[str, list[str]] = {}
        for item_id in places:
            responses.setdefault(items.response_id(items.run_of_item(item_id)), []).append(item_id)
        ids, found = list(responses), dict[str, Item]()
        for at in range(0, len(ids), _READ_TOGETHER):
            some = ids[at : at + _READ_TOGETHER]
            known = await self._of_responses(some, {item_id for each in some for item_id in responses[each]})
            for item_id in (item_id for each in some for item_id in responses[each]):
                found[item_id] = self._counted(known.get(item_id), item_id, places[item_id])
        return found

    async def _of_responses(self, responses: Sequence[str], wanted: set[str]) -> dict[str, JsonObject]:
        return {
            item["id"]: item
            for stored in await find_known(self.engine, self.who, responses)
            if stored.is_shown
            for item in (*stored.input_items(), *stored.output())
            if item["id"] in wanted
        }

    def _counted(self, item: JsonObject | None, item_id: str, paths: Iterable[str]) -> Item:
        """An item that was given out, counted at each place where it is named."""
        size = 0 if item is None else len(dumps(item))
        for path in paths:
            if item is None or item["type"] not in _SHOWN_AGAIN:
                raise InvalidRequest(f"`{path}.id`: there is no item {item_id!r}", param=f"{path}.id")
            self._add(path, size)
        assert item is not None
        return _SHOWN_AGAIN[item["type"]].model_validate(item)

    async def _opened(self, path: str, sealed: str) -> list[Item]:
        off_loop = self.bodies.off_loop
        packed, size = await off_loop(partial(unseal, self.engine.db.secrets, sealed, path))
        self._add(path, size)
        if sealed not in self.packed:
            self.packed[sealed] = await off_loop(partial(open_compaction, self.who.owner, packed, path))
        self.count += len(self.packed[sealed])
        if self.count > self.max_items:
            text = (
                f"`{path}`: with what is in it, the items are more than the {self.max_items} that this server accepts"
            )
            raise InvalidRequest(text, param=path)
        return self.packed[sealed]

    def _add(self, path: str, size: int) -> None:
        """Count what the item at that place brings. Raises InvalidRequest, and Overloaded."""
        self.size += size
        if self.size > self.bodies.limit:
            text = f"`{path}`: with it, what the items name has more than the {self.bodies.limit} bytes of a body"
            raise InvalidRequest(text, param=path)
        self.held.close()
        self.held.enter_context(self.bodies.held(self.size))


def _is_shown(item: ReferenceItem) -> bool:
    """Whether it names what models are shown again."""
    return item.id.partition("_")[0] not in _NOT_AGAIN


def _places_of(given: Sequence[Placed]) -> dict[str, list[str]]:
    """Return where items that were given out are named, by their ids."""
    places: dict[str, list[str]] = {}
    for path, item in given:
        if isinstance(item, ReferenceItem) and _is_shown(item):
            places.setdefault(item.id, []).append(path)
    return places
