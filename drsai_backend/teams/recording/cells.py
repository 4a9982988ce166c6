"""Cells: the parts of a live team that its state is made of, each able to say cheaply what has changed in it.

A team's state is large, and a turn changes little of it. Message lists of AutoGen's own classes only grow at their end
(or are cleared), so a cursor of length and last object finds the new items without looking at the old ones. Anything
not known to behave like that is asked for its whole state and stored whole when that has changed.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from operator import is_
from typing import Any, Protocol, cast

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, MessageFactory
from autogen_core import Image
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.model_context import ChatCompletionContextState
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage, UserMessage

from drsai_backend.models.images import with_images
from drsai_backend.state.codec import Exact, dump_exact, load_exact
from drsai_backend.state.journal import Entry, Item, Path, resolve
from drsai_backend.teams.messages import dump_of
from drsai_backend.teams.recording.base import Field

ContentKey = tuple[str | None, Any]

# Bytes, measured with tracemalloc (tests/runs/test_warm.py): a message with its places in the book, but for its
# content; what a model context holds of one beside the content, which they share; a pixel.
_MESSAGE, _CONTEXT, _PIXEL = 1_000, 500, 4
_CELL = 200
_OBJECT = 500
"""A tool call or a result of one, and whatever else is in a message."""


class MessageBook:
    """Which stored message an object in memory is, and which one a model-context message was made from."""

    __slots__ = ("_by_content", "_by_id", "weight")

    def __init__(self) -> None:
        self.weight = 0
        """About how many bytes the messages take."""
        # The objects are kept: an id says nothing once its object is gone.
        self._by_id: dict[int, tuple[int, Any]] = {}
        self._by_content: dict[ContentKey, tuple[int, Any]] = {}

    def add(self, seq: int, message: BaseChatMessage | BaseAgentEvent) -> None:
        """Message `seq`'s stored dump is exactly that of `message`."""
        content = getattr(message, "content", None)
        if id(message) not in self._by_id:
            self.weight += _MESSAGE + _weight_of(content)
        self._by_id[id(message)] = (seq, message)
        if isinstance(content, str):
            self._by_content[message.source, content] = (seq, message)
        elif isinstance(content, list):
            parts = _content_key(content)
            self._by_content[message.source, parts] = (seq, message)
            self._by_content[None, parts] = (seq, message)

    def seq_of(self, message: Any) -> int | None:
        found = self._by_id.get(id(message))
        return None if found is None else found[0]

    def message_item(self, message: Any) -> Item:
        """A message of the group chat in reference form."""
        found = self._by_id.get(id(message))
        return found[0] if found is not None else normalise(dump_of(message))

    def context_item(self, message: Any) -> Item:
        """A message of a model context in reference form."""
        kind = message.__class__
        if kind is UserMessage:
            found = self._by_content.get((message.source, _content_key(message.content)))
            if found is not None:
                return ["u", found[0]]
        elif kind is AssistantMessage:
            found = self._by_content.get((message.source, _content_key(message.content)))
            if found is not None:
                return ["a", found[0]] if message.thought is None else ["a", found[0], message.thought]
        elif kind is FunctionExecutionResultMessage:
            found = self._by_content.get((None, _content_key(message.content)))
            if found is not None:
                return ["f", found[0]]
        return normalise(message.model_dump())


def _weight_of(content: Any) -> int:
    """About how many bytes the content of a message takes."""
    if isinstance(content, str):
        return sys.getsizeof(content)
    if not isinstance(content, list):
        return _OBJECT
    weight = 0
    for part in cast("list[Any]", content):
        if isinstance(part, Image):
            weight += _OBJECT + part.image.width * part.image.height * _PIXEL
        elif isinstance(part, str):
            weight += sys.getsizeof(part)
        else:
            text = getattr(part, "arguments", None) or getattr(part, "content", None)
            weight += _OBJECT + (sys.getsizeof(text) if isinstance(text, str) else 0)
    return weight


def weight_of(cell: Cell, content: Any) -> int:
    """About how many bytes the content that a cell has released takes, the messages in its lists left out."""
    if isinstance(cell, ListCell):
        items = cast("list[Any]", content[0])
        return _CELL + len(items) * (_CONTEXT if cell.is_context else 8)
    if isinstance(cell, StateCell) and content is not None:
        return _CELL + sys.getsizeof(content[0])
    return _CELL


def _content_key(content: Any) -> Any:
    """Text by value; tool calls, results and images by identity: AutoGen hands the same objects on."""
    if isinstance(content, str):
        return content
    return tuple(part if isinstance(part, str) else id(part) for part in content)


class MessageObjects:
    """Makes the objects that lists in reference form stand for. `made` has those of stored messages, by number."""

    __slots__ = ("_configs", "made")

    def __init__(self, configs: Mapping[int, dict[str, Any]]) -> None:
        self._configs = configs
        self.made: dict[int, Any] = {}

    def message(self, item: Item, factory: MessageFactory) -> Any:
        """A message of the group chat. The same number gives the same object.

        Raises:
            KeyError, IndexError, TypeError, ValueError: the item refers to nothing, or is none. So do the others.
        """
        if not isinstance(item, int):
            return factory.create(with_images(cast("dict[str, Any]", item)))
        made = self.made.get(item)
        if made is None:
            made = self.made[item] = factory.create(with_images(self._configs[item]))
        return made

    def context_message(self, item: Item) -> Any:
        """A message of a model context. It shares the content of the message it was made from."""
        made = self.made.get(item[1]) if isinstance(item, list) else None
        if made is None:
            return ChatCompletionContextState.model_validate(
                {"messages": [with_images(resolve(item, self._configs))]}
            ).messages[0]
        assert isinstance(item, list)
        match item[0]:
            case "u":
                return UserMessage(content=made.content, source=made.source)
            case "a":
                thought = item[2] if len(item) > 2 else None
                return AssistantMessage(content=made.content, source=made.source, thought=thought)
            case "f":
                return FunctionExecutionResultMessage(content=made.content)
            case kind:
                raise ValueError(kind)


def normalise(value: Any) -> Any:
    """The value as JSON would give it back."""
    return load_exact(dump_exact(value))


class Cell(Protocol):
    """A part of the state. `path` is its place in the document's skeleton."""

    path: Path

    async def whole(self, book: MessageBook) -> Any:
        """The full content, for a new document, in reference form if it is a list. Moves the cursor to now."""
        ...

    def delta(self, number: int, book: MessageBook, entry: Entry) -> Awaitable[None] | None:
        """Write what changed since the cursor into `entry`, and move the cursor to now. To be awaited if it must."""
        ...

    def release(self) -> Any:
        """The content as it is now, as objects, for `adopt` of the same cell of another team. Not a copy."""
        ...

    async def adopt(self, content: Any) -> None:
        """Take what `release` gave, with its cursor."""
        ...


class ListCell:
    """A list attribute that only grows at its end, or is cleared."""

    __slots__ = ("_factory", "_last", "_length", "attribute", "owner", "path")

    def __init__(self, path: Path, owner: Any, attribute: str, factory: MessageFactory | None) -> None:
        self.path = path
        self.owner = owner
        self.attribute = attribute
        self._factory = factory
        """None: a list of model-context messages."""
        self._length = 0
        self._last: Any = None

    @property
    def items(self) -> list[Any]:
        items: list[Any] = getattr(self.owner, self.attribute)
        return items

    def _encoder(self, book: MessageBook) -> Callable[[Any], Item]:
        return book.context_item if self._factory is None else book.message_item

    def _mark(self) -> None:
        items = self.items
        self._length = len(items)
        self._last = items[-1] if items else None

    async def whole(self, book: MessageBook) -> list[Item]:
        return self._whole(book)

    def _whole(self, book: MessageBook) -> list[Item]:
        encode = self._encoder(book)
        found = [encode(item) for item in self.items]
        self._mark()
        return found

    def delta(self, number: int, book: MessageBook, entry: Entry) -> None:
        items = self.items
        length = self._length
        if len(items) >= length and (length == 0 or items[length - 1] is self._last):
            if len(items) > length:
                encode = self._encoder(book)
                entry.extend[number] = [encode(item) for item in items[length:]]
                self._mark()
            return
        entry.replace[number] = self._whole(book)

    def release(self) -> Any:
        return self.items, self._length, self._last

    async def adopt(self, content: Any) -> None:
        items, self._length, self._last = content
        setattr(self.owner, self.attribute, items)

    @property
    def is_context(self) -> bool:
        """Whether it lists a model context's messages, and not the group chat's."""
        return self._factory is None

    def fill(self, items: list[Item], messages: MessageObjects) -> None:
        """Take a list in reference form as the content, which is what is stored."""
        if self._factory is None:
            content: list[Any] = [messages.context_message(item) for item in items]
        else:
            content = [messages.message(item, self._factory) for item in items]
        setattr(self.owner, self.attribute, content)
        self._mark()


_CLEARED: dict[str, Any] = {"cleared": True}


class MemoryCell(ListCell):
    """What a `ListMemory` was given since its factory made it; behind `_CLEARED` where its first contents are gone.

    So a factory that is changed later still decides what its memories begin with.
    """

    __slots__ = ("_first",)

    def __init__(self, path: Path, memory: ListMemory) -> None:
        super().__init__(path, memory, "content", None)
        self._first = tuple(memory.content)

    @property
    def items(self) -> list[Any]:
        contents, first = cast("ListMemory", self.owner).content, self._first
        if len(contents) >= len(first) and all(map(is_, contents, first)):
            return contents[len(first) :]
        return [_CLEARED, *contents]

    def _encoder(self, book: MessageBook) -> Callable[[Any], Item]:
        return _memory_item

    def _put(self, items: list[Any]) -> None:
        cleared = items[:1] == [_CLEARED]
        self.owner.content = items[1:] if cleared else [*self._first, *items]

    async def adopt(self, content: Any) -> None:
        items, self._length, self._last = content
        self._put(items)

    def fill(self, items: list[Item], messages: MessageObjects) -> None:
        self._put([_CLEARED if item == _CLEARED else _memory_content(cast("dict[str, Any]", item)) for item in items])
        self._mark()


def _memory_item(content: Any) -> Item:
    if content is _CLEARED:
        return _CLEARED
    assert isinstance(content, MemoryContent)
    value = content.content
    if isinstance(value, Image):
        return {**content.model_dump(exclude={"content"}), "image": value.to_base64()}
    if isinstance(value, bytes):
        return {**content.model_dump(exclude={"content"}), "bytes": base64.b64encode(value).decode()}
    return normalise(content.model_dump())


def _memory_content(item: dict[str, Any]) -> MemoryContent:
    values = dict(item)
    if "image" in values:
        values["content"] = Image.from_base64(values.pop("image"))
    elif "bytes" in values:
        values["content"] = base64.b64decode(values.pop("bytes"))
    with suppress(ValueError):  # it is a text of the user's
        values["mime_type"] = MemoryMimeType(values["mime_type"])
    return MemoryContent.model_validate(values)


class ValueCell:
    """A small value in an attribute."""

    __slots__ = ("_field", "_last", "_owner", "path")

    def __init__(self, path: Path, owner: Any, field: Field) -> None:
        self.path = path
        self._owner = owner
        self._field = field
        self._last: Any = None

    async def whole(self, book: MessageBook) -> Any:
        self._last = self._field.read(self._owner)
        return self._last

    def delta(self, number: int, book: MessageBook, entry: Entry) -> None:
        value = self._field.read(self._owner)
        if value != self._last:
            self._last = entry.set[number] = value

    def mark_stored(self, value: Any) -> None:
        """Move the cursor to `value`, which is what is stored."""
        self._last = value

    def release(self) -> Any:
        return self._field.read(self._owner), self._last

    async def adopt(self, content: Any) -> None:
        value, self._last = content
        self._field.write(self._owner, value)

    async def restore(self, value: Any) -> None:
        """Take `value`, as JSON, as the content."""
        self._field.write(self._owner, value)


class StateCell:
    """Something foreign with `save_state` and `load_state`: stored whole whenever that has changed."""

    __slots__ = ("_last", "owner", "path")

    def __init__(self, path: Path, owner: Any) -> None:
        self.path = path
        self.owner = owner
        self._last: Exact = (b"", False)

    async def whole(self, book: MessageBook) -> Any:
        self._last = dump_exact(await self.owner.save_state())
        return load_exact(self._last)

    async def delta(self, number: int, book: MessageBook, entry: Entry) -> None:
        data = dump_exact(await self.owner.save_state())
        if data != self._last:
            self._last = data
            entry.set[number] = load_exact(data)

    def mark_stored(self, value: Any) -> None:
        """Move the cursor to `value`, which is what is stored."""
        self._last = dump_exact(value)

    def release(self) -> Any:
        return self._last

    async def adopt(self, content: Any) -> None:
        self._last = content
        await self.owner.load_state(load_exact(content))

    async def restore(self, value: Any) -> None:
        """Take `value`, as JSON, as the content."""
        await self.owner.load_state(value)
