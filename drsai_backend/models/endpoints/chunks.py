"""Chunks are answers and their pieces: JSON that orjson reads, with the attributes of a package's own models.

The packages walk each piece by its type hints, which costs several times of all else that is done with it. What is read
is the same: the fields of their models, None where they are not there, `model_extra` for what they do not name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import ClassVar, Final, Literal, Self, cast, get_args, get_origin

import orjson
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

from drsai_backend.json_types import JsonObject

_BLANK: Final = b"\n\n"


class Part:
    """A JSON object with attributes, which passes for a model of the package where that is asked for its class."""

    __slots__ = ("__dict__", "_request_id", "_workspace_id")  # The last two are set beside the fields of an answer.
    _names: ClassVar[frozenset[str]]
    _parts: ClassVar[tuple[tuple[str, Callable[[object], object]], ...]]

    def __new__(cls, data: object) -> Self:
        """Return what is no object stays as it is: whoever reads it finds that it is not what it should be."""
        if not isinstance(data, dict):
            return cast("Self", data)
        made = object.__new__(cls)
        made.__dict__ = fields = cast(JsonObject, data)
        for name, kind in cls._parts:
            value: object = fields.get(name)
            if value is not None:
                fields[name] = [*map(kind, cast("list[object]", value))] if isinstance(value, list) else kind(value)
        return made

    @property
    def model_extra(self) -> JsonObject:
        """The fields that the package does not name."""
        fields = vars(self)
        return {name: fields[name] for name in fields.keys() - self._names}

    def model_dump(self) -> JsonObject:
        """The object as it came, with what was set since."""
        return {name: _plain(value) for name, value in vars(self).items()}


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(each) for each in cast("list[object]", value)]
    return value.model_dump() if isinstance(value, Part) else value


def models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """The models that a value of a type may be made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from models_in(each)


@cache
def part_of(*models: type[BaseModel]) -> Callable[[object], object]:
    """Return what makes a part for a model of a package, or for the one of several that the part's `type` names."""
    if len(models) == 1:
        return _class_of(models[0])
    kinds = {name: part_of(model) for model in reversed(models) for name in (*_types_of(model), None)}

    def made(data: object) -> object:
        kind: object = cast(JsonObject, data).get("type") if isinstance(data, dict) else None
        return kinds.get(kind if isinstance(kind, str) else None, kinds[None])(cast(object, data))

    return made


def _class_of(model: type[BaseModel]) -> type[Part]:
    fields = model.model_fields
    nested = {name: [*models_in(field.annotation)] for name, field in fields.items()}
    parts = tuple((name, part_of(*inner)) for name, inner in nested.items() if inner)
    passes = {"__class__": model, "__pydantic_decorators__": None}  # pydantic 2.12 asks for the second one first
    return type(
        model.__name__, (Part,), {**dict.fromkeys(fields), **passes, "_names": frozenset(fields), "_parts": parts}
    )


def _types_of(model: type[BaseModel]) -> tuple[str, ...]:
    """The values of its field `type`."""
    field = model.model_fields.get("type")
    return get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else ()


_ANSWER: Final = part_of(ChatCompletion)
_CHUNK: Final = part_of(ChatCompletionChunk)


def answer_of(body: bytes) -> ChatCompletion:
    """A whole answer.

    Raises:
        ValueError: the body is no JSON.
    """
    return cast(ChatCompletion, _ANSWER(loads(body)))


def chunk_of(data: Mapping[str, object]) -> ChatCompletionChunk:
    """A piece of an answer."""
    return cast(ChatCompletionChunk, _CHUNK(data))


def loads(data: bytes) -> object:
    """JSON as the package reads it: also with NaN, or with half of a surrogate pair, which orjson refuses.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data.decode())


def events_in(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The names and the data of the events in a block of a stream, empty where there is none; a last event that is not
    whole is none."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    *events, _ = block.split(_BLANK)
    for event in events:
        name = data = b""
        for line in event.split(b"\n"):
            field, _, value = line.partition(b":")
            if field == b"data":
                data = b"%b\n%b" % (data, value) if data else value.removeprefix(b" ")
            elif field == b"event":
                name = value.removeprefix(b" ")
        yield name, data
