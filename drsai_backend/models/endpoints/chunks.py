"""Answers and chunks in OpenAI's form: JSON that orjson reads, with the attributes of the package's own models.

The package walks each chunk by its type hints, which costs several times of all else that is done with it. What is read
is the same: the fields of its models, None where they are not there, `model_extra` for what it does not name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar, Final, Self, cast, get_args

import orjson
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

from drsai_backend.json_types import JsonObject

_BLANK: Final = b"\n\n"
_FIELD: Final = b"data:"


class Part:
    """A JSON object with attributes."""

    _names: ClassVar[frozenset[str]]
    _parts: ClassVar[tuple[tuple[str, type[Part]], ...]]

    def __new__(cls, data: Any) -> Self:
        """What is no object stays as it is: whoever reads it finds that it is not what it should be."""
        if not isinstance(data, dict):
            return data
        made = object.__new__(cls)
        made.__dict__ = fields = cast(JsonObject, data)
        for name, kind in cls._parts:
            value: Any = fields.get(name)
            if value is not None:
                fields[name] = [*map(kind, cast("list[Any]", value))] if isinstance(value, list) else kind(value)
        return made

    @property
    def model_extra(self) -> JsonObject:
        """The fields that the package does not name."""
        fields = vars(self)
        return {name: fields[name] for name in fields.keys() - self._names}

    def model_dump(self) -> JsonObject:
        """The object as it came, with what was set since."""
        return {name: _plain(value) for name, value in vars(self).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in cast("list[Any]", value)]
    return value.model_dump() if isinstance(value, Part) else value


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models_in(each)


def _part_of(*models: type[BaseModel]) -> type[Part]:
    """The class for a model of the package, or for what may be one of several."""
    fields = {name: field for model in models for name, field in model.model_fields.items()}
    nested = {name: [*_models_in(field.annotation)] for name, field in fields.items()}
    parts = tuple((name, _part_of(*inner)) for name, inner in nested.items() if inner)
    return type(models[0].__name__, (Part,), {**dict.fromkeys(fields), "_names": frozenset(fields), "_parts": parts})


_ANSWER: Final = _part_of(ChatCompletion)
_CHUNK: Final = _part_of(ChatCompletionChunk)


def answer_of(body: bytes) -> ChatCompletion:
    """A whole answer.

    Raises:
        ValueError: the body is no JSON.
    """
    return cast(ChatCompletion, _ANSWER(loads(body)))


def chunk_of(data: JsonObject) -> ChatCompletionChunk:
    """A piece of an answer."""
    return cast(ChatCompletionChunk, _CHUNK(data))


def loads(data: bytes) -> Any:
    """JSON as the package reads it: also with NaN, or with half of a surrogate pair, which orjson refuses.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data.decode())


def events_in(block: bytes) -> list[bytes]:
    """The data of the events in a block of a stream; those without data and a last one that is not whole are none."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    *events, _ = block.split(_BLANK)
    found = [
        b"\n".join([line[len(_FIELD) :].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(_FIELD)])
        for event in events
    ]
    return [data for data in found if data]
