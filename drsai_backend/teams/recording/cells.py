"""Cells are the parts of a live team that its state is made of, each able to say cheaply what has changed in it.

A team's state is large, and a turn changes little of it. Message lists of AutoGen's own classes only grow at their end
(or are cleared), so a cursor of length and last object finds the new items without looking at the old ones. Anything
not known to behave like that is asked for its whole state and stored whole when that has changed.

A cell's `path` is its place in the document's skeleton. Its methods:

- `whole`: the full content, for a new document, in reference form if it is a list. Moves the cursor to now.
- `delta`: writes what changed since the cursor into an entry, and moves the cursor to now. To be awaited if it must.
- `restore`: takes a stored content, and moves the cursor there.
- `release`: the content as it is now, as objects, and the cursor; not a copy. `adopt`, of the same cell of another
  team, takes them.
"""

from __future__ import annotations

import base64
import gc
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from operator import is_
from typing import Any, Final, Protocol, TypeAlias, cast

from autogen_agentchat.messages import MessageFactory
from autogen_core import Image
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.model_context import ChatCompletionContextState
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage, LLMMessage, UserMessage

from drsai_backend.errors import DamagedState, StateError
from drsai_backend.json_types import JsonObject
from drsai_backend.models.images import with_images
from drsai_backend.state.codec import Exact, dump_exact, load_exact, not_json
from drsai_backend.state.journal import Entry, Item, Path, resolve
from drsai_backend.teams.messages import Message, create_message, dump_of, loader, misfit
from drsai_backend.teams.recording.base import Field

# Bytes, measured with tracemalloc (tests/runs/test_warm.py): a message with its places in the book, but for its
# content; what a model context holds of one beside the content, which they share; a pixel.
_MESSAGE, _CONTEXT, _PIXEL = 1_000, 500, 4
_CELL = 200
_OBJECT = 500
"""A tool call or a result of one, and whatever else is in a message."""


@dataclass(slots=True, eq=False)
class MessageBook:
    """Which stored message an object in memory is, and which one a model-context message was made from."""

    weight: int = 0
    """About how many bytes the messages take."""
    # The objects are kept: an id says nothing once its object is gone.
    _by_id: dict[int, tuple[int, Message]] = field(default_factory=dict)
    _by_content: dict[tuple[str | None, object], tuple[int, Message]] = field(default_factory=dict)

    def add(self, seq: int, message: Message) -> None:
        """Message `seq`'s stored dump is exactly that of `message`."""
        content = getattr(message, "content", None)
        if id(message) not in self._by_id:
            self.weight += _MESSAGE + _weight_of(content)
        self._by_id[id(message)] = (seq, message)
        if isinstance(content, str):
            self._by_content[message.source, content] = (seq, message)
        elif isinstance(content, list):
            parts = _content_key(cast("list[object]", content))
            self._by_content[message.source, parts] = (seq, message)
            self._by_content[None, parts] = (seq, message)

    def add_all(self, messages: Mapping[int, Message]) -> None:
        """`add` many, by their numbers: of those with a text, which nearly all are, without a call for each."""
        for key, numbered in zip(map(id, messages.values()), messages.items(), strict=True):
            seq, message = numbered
            content = getattr(message, "content", None)
            if content.__class__ is not str or key in self._by_id:
                self.add(seq, message)
            else:
                self._by_id[key] = self._by_content[message.source, content] = numbered
                self.weight += _MESSAGE + sys.getsizeof(content)

    def message_item(self, message: Message) -> Item:
        """A message of the group chat in reference form."""
        found = self._by_id.get(id(message))
        return found[0] if found is not None else normalise(dump_of(message))

    def context_item(self, message: LLMMessage) -> Item:
        """A message of a model context in reference form."""
        if type(message) is UserMessage:
            found = self._by_content.get((message.source, _content_key(message.content)))
            if found is not None:
                return ["u", found[0]]
        elif type(message) is AssistantMessage:
            found = self._by_content.get((message.source, _content_key(message.content)))
            if found is not None:
                return ["a", found[0]] if message.thought is None else ["a", found[0], message.thought]
        elif type(message) is FunctionExecutionResultMessage:
            found = self._by_content.get((None, _content_key(message.content)))
            if found is not None:
                return ["f", found[0]]
        return normalise(message.model_dump())


def _weight_of(content: object) -> int:
    """About how many bytes the content of a message takes."""
    if isinstance(content, str):
        return sys.getsizeof(content)
    if not isinstance(content, list):
        return _OBJECT
    weight = 0
    for part in cast("list[object]", content):
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
        return _CELL + len(content[0]) * (_CONTEXT if cell.is_context else 8)
    return _CELL + (sys.getsizeof(content[0]) if isinstance(cell, StateCell) else 0)


def _content_key(content: str | Sequence[object]) -> object:
    """Text by value; tool calls, results and images by identity: AutoGen hands the same objects on."""
    if isinstance(content, str):
        return content
    return tuple(part if isinstance(part, str) else id(part) for part in content)


# What their constructors call: a long thread has thousands of them.
_USER, _ASSISTANT = (kind.__pydantic_validator__.validate_python for kind in (UserMessage, AssistantMessage))


@dataclass(slots=True, eq=False)
class MessageObjects:
    """Makes the objects that lists in reference form stand for. `made` has those of stored messages, by number."""

    _configs: Mapping[int, JsonObject]
    made: dict[int, Any] = field(default_factory=dict)

    def messages(self, items: Sequence[Item], factory: MessageFactory) -> list[Message]:
        """Return the messages of a list of the group chat. The same number gives the same object.

        Raises:
            KeyError, IndexError, TypeError, ValueError: an item refers to nothing, or is none. So does the other.
        """
        loads: dict[object, Callable[[JsonObject], Message]] = {}
        made = self.made
        for item in items:
            if type(item) is not int or item in made:
                continue
            config = self._configs[item]
            kind = config.get("type")
            if kind not in loads:
                loads[kind] = loader(factory, kind)
            try:
                made[item] = loads[kind](config)
            except (ValueError, TypeError, KeyError):
                made[item] = create_message(factory, config, item)  # It says which one it is.
        return [
            made[item] if type(item) is int else factory.create(with_images(cast("JsonObject", item))) for item in items
        ]

    def context_messages(self, items: Sequence[Item]) -> list[LLMMessage]:
        """Return the messages of a model context. Of those that are made of a message with a text, without a call for
        each: a long thread has thousands. Raises as `messages`."""
        made, found = self.made, list[LLMMessage]()
        for item in items:
            if type(item) is list and item[1] in made:
                kind, message = item[0], made[item[1]]
                if kind == "u":
                    found.append(_USER({"content": message.content, "source": message.source}))
                    continue
                if kind == "a" and not item[2:]:
                    found.append(_ASSISTANT({"content": message.content, "source": message.source}))
                    continue
            found.append(self.context_message(item))
        return found

    def context_message(self, item: Item) -> LLMMessage:
        """A message of a model context. It shares the content of the message it was made from."""
        made = self.made.get(item[1]) if isinstance(item, list) else None
        if made is None:
            return ChatCompletionContextState.model_validate(
                {"messages": [with_images(resolve(item, self._configs))]}
            ).messages[0]
        assert isinstance(item, list)
        match item[0]:
            case "u":
                return _USER({"content": made.content, "source": made.source})
            case "a":
                thought = item[2] if len(item) > 2 else None
                return _ASSISTANT({"content": made.content, "source": made.source, "thought": thought})
            case "f":
                return FunctionExecutionResultMessage(content=made.content)
            case kind:
                raise ValueError(kind)


@contextmanager
def _uncollected() -> Generator[None]:
    """Keep the garbage collector away. Of the objects that a long thread is made into none is garbage, and they are so
    many that it would look through all that the process has, which takes longer than to make them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_FRAME: Final = frozenset({"state", "extras", "agent_states", "agent_state"})


def part_of(path: Path) -> str:
    """Return whose part of the state a path leads to, and which, by the names of agents and teams:
    `ann/llm_context`."""
    return "/".join(name for name in "/".join(path).split("/") if name not in _FRAME)


@contextmanager
def _naming(path: Path, value: object) -> Generator[None]:
    """Name the path around what makes JSON of a value there. Raises StateError, which says what of it is none."""
    try:
        yield
    except (TypeError, ValueError, RecursionError) as error:
        text = f"the state of {part_of(path)!r} cannot be stored: {not_json(value)}, which is no JSON"
        raise StateError(text, param="state") from error


@contextmanager
def fitting(path: Path) -> Generator[None]:
    """Name the path around what loads the stored part there. Raises DamagedState, which says whose it is, and which
    field."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        text = f"the state of {part_of(path)!r} does not fit any more: {misfit(error)}"
        raise DamagedState(text, param="state") from error


def normalise(value: object) -> Any:
    """The value as JSON would give it back."""
    return load_exact(dump_exact(value))


@dataclass(slots=True, eq=False)
class ListCell:
    """A list attribute that only grows at its end, or is cleared. `factory`: None for model-context messages."""

    path: Path
    owner: object
    attribute: str
    factory: MessageFactory | None
    _length: int = field(default=0, init=False)
    _last: object = field(default=None, init=False)

    @property
    def items(self) -> Sequence[object]:
        items: Sequence[object] = getattr(self.owner, self.attribute)
        return items

    @property
    def is_context(self) -> bool:
        """Whether it lists a model context's messages, and not the group chat's."""
        return self.factory is None

    def _encoder(self, book: MessageBook) -> Callable[[Any], Item]:
        return book.context_item if self.factory is None else book.message_item

    def _mark(self) -> None:
        items = self.items
        self._length = len(items)
        self._last = items[-1] if items else None

    def whole(self, book: MessageBook) -> list[Item]:
        encode = self._encoder(book)
        with _naming(self.path, self.items):
            found = [encode(item) for item in self.items]
        self._mark()
        return found

    def delta(self, number: int, book: MessageBook, entry: Entry) -> None:
        items = self.items
        length = self._length
        if len(items) >= length and (length == 0 or items[length - 1] is self._last):
            if len(items) > length:
                encode = self._encoder(book)
                with _naming(self.path, items[length:]):
                    entry.extend[number] = [encode(item) for item in items[length:]]
                self._mark()
            return
        entry.replace[number] = self.whole(book)

    def release(self) -> tuple[Sequence[object], int, object]:
        return self.items, self._length, self._last

    async def adopt(self, content: tuple[Sequence[object], int, object]) -> None:
        items, self._length, self._last = content
        self._put(items)

    def _put(self, items: Sequence[object]) -> None:
        setattr(self.owner, self.attribute, items)

    def _decoded(self, items: list[Item], messages: MessageObjects) -> Sequence[object]:
        if self.factory is None:
            return messages.context_messages(items)
        return messages.messages(items, self.factory)

    def restore(self, items: list[Item], messages: MessageObjects) -> None:
        with _uncollected():
            self._put(self._decoded(items, messages))
        self._mark()


_CLEARED: JsonObject = {"cleared": True}


class MemoryCell(ListCell):
    """What a `ListMemory` was given since its factory made it; behind `_CLEARED` where its first contents are gone.

    So a factory that is changed later still decides what its memories begin with.
    """

    __slots__ = ("_first",)

    def __init__(self, path: Path, memory: ListMemory) -> None:
        super().__init__(path, memory, "content", None)
        self._first = tuple(memory.content)

    @property
    def items(self) -> Sequence[object]:
        contents, first = cast("ListMemory", self.owner).content, self._first
        if len(contents) >= len(first) and all(map(is_, contents, first)):
            return contents[len(first) :]
        return [_CLEARED, *contents]

    def _encoder(self, book: MessageBook) -> Callable[[Any], Item]:
        return memory_item

    def _put(self, items: Sequence[object]) -> None:
        cleared = items[:1] == [_CLEARED]
        content = cast("list[MemoryContent]", items)
        cast("ListMemory", self.owner).content = content[1:] if cleared else [*self._first, *content]

    def _decoded(self, items: list[Item], messages: MessageObjects) -> Sequence[object]:
        return [_CLEARED if item == _CLEARED else memory_content(cast("JsonObject", item)) for item in items]


def memory_item(content: object) -> Item:
    """A content of a memory as JSON."""
    if content is _CLEARED:
        return _CLEARED
    assert isinstance(content, MemoryContent)
    value = content.content
    if isinstance(value, Image):
        return {**content.model_dump(exclude={"content"}), "image": value.to_base64()}
    if isinstance(value, bytes):
        return {**content.model_dump(exclude={"content"}), "bytes": base64.b64encode(value).decode()}
    return normalise(content.model_dump())


def memory_content(item: JsonObject) -> MemoryContent:
    """The content that `memory_item` gave."""
    values = dict(item)
    if "image" in values:
        values["content"] = Image.from_base64(values.pop("image"))
    elif "bytes" in values:
        values["content"] = base64.b64decode(values.pop("bytes"))
    with suppress(ValueError):  # it is a text of the user's
        values["mime_type"] = MemoryMimeType(values["mime_type"])
    return MemoryContent.model_validate(values)


@dataclass(slots=True, eq=False)
class ValueCell:
    """A small value in an attribute."""

    path: Path
    owner: object
    field: Field
    _last: object = None

    async def whole(self) -> object:
        self._last = self._read()
        return self._last

    def _read(self) -> object:
        value = self.field.read(self.owner)
        if self.field.dump is None:
            return value
        with _naming(self.path, value):
            return load_exact(dump_exact(value))

    def delta(self, number: int, book: MessageBook, entry: Entry) -> None:
        value = self._read()
        if value != self._last:
            self._last = entry.set[number] = value

    def release(self) -> tuple[object, object]:
        return self.field.read(self.owner), self._last

    async def adopt(self, content: tuple[object, object]) -> None:
        value, self._last = content
        self.field.write(self.owner, value)

    async def restore(self, value: object) -> None:
        await self.adopt((deepcopy(value), value))


class Stateful(Protocol):
    """An agent, a team, a manager, a model context."""

    def save_state(self) -> Awaitable[Mapping[str, object]]: ...
    def load_state(self, state: Mapping[str, object]) -> Awaitable[None]: ...


@dataclass(slots=True, eq=False)
class StateCell:
    """Something foreign with `save_state` and `load_state`: stored whole whenever that has changed."""

    path: Path
    owner: Stateful
    _last: Exact = (b"", False)

    async def whole(self) -> object:
        self._last = await self._dumped()
        return load_exact(self._last)

    async def _dumped(self) -> Exact:
        state = await self.owner.save_state()
        with _naming(self.path, state):
            return dump_exact(state)

    async def delta(self, number: int, book: MessageBook, entry: Entry) -> None:
        data = await self._dumped()
        if data != self._last:
            self._last = data
            entry.set[number] = load_exact(data)

    def release(self) -> Exact:
        return self._last

    async def adopt(self, content: Exact) -> None:
        self._last = content
        await self.owner.load_state(load_exact(content))

    async def restore(self, value: object) -> None:
        await self.adopt(dump_exact(value))


Cell: TypeAlias = ListCell | ValueCell | StateCell
