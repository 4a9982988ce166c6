"""Forms are messages as endpoints take them, kept from call to call in memory.

AutoGen converts all of a context for each call, and all of it is encoded again. Here a message is converted and encoded
once; a call joins the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import orjson
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage, LLMMessage
from pydantic import BaseModel

from drsai_backend.json_types import JsonObject
from drsai_backend.models.images import EncodedImage

_FORM: Final = 800
"""Bytes that a form takes beside its content and its encoded content."""
Convert: TypeAlias = Callable[[LLMMessage], Sequence[Mapping[str, object]]]


class Form(JsonObject):
    """A message as an endpoint takes it; `encoded` is its JSON."""

    __slots__ = ("encoded",)

    def __init__(self, message: Mapping[str, object]) -> None:
        super().__init__(message)
        self.encoded = encoded(message)


class MessageForms:
    """The forms of messages, those that were not asked for the longest first to go.

    Args:
        most: bound of what they take, in bytes; 0 keeps none.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._new: dict[Hashable, tuple[list[Form], int]] = {}
        self._old: dict[Hashable, tuple[list[Form], int]] = {}
        self._size = 0

    def of(self, messages: Sequence[LLMMessage], rules: str, convert: Convert) -> list[Form]:
        """The forms of messages, one or several each.

        Args:
            messages: what is sent.
            rules: tells apart how clients convert.
            convert: makes those of a message that are not known.
        """
        forms: list[Form] = []
        for message in messages:
            key = _key(message, rules)
            found = self._new.get(key)
            if found is None:
                found = self._old.get(key) or _made(message, convert)
                if key is not None:
                    self._keep(key, found)
            forms += found[0]
        return forms

    def _keep(self, key: Hashable, found: tuple[list[Form], int]) -> None:
        """Keep it in two generations of half the bytes each, the older of which goes as a whole."""
        if found[1] > self.most // 2:
            return
        if self._size + found[1] > self.most // 2:
            self._old, self._new, self._size = self._new, {}, 0
        self._new[key] = found
        self._size += found[1]


def _made(message: LLMMessage, convert: Convert) -> tuple[list[Form], int]:
    forms = [Form(each) for each in convert(message)]
    return forms, sum(_FORM + 2 * len(form.encoded) for form in forms)


def _key(message: LLMMessage, rules: str) -> Hashable | None:
    """Return what a message's form depends on; None: it is not kept."""
    content: Any = message.content
    head = rules, type(message), getattr(message, "source", None)
    if isinstance(content, str):
        return *head, content
    if isinstance(message, FunctionExecutionResultMessage):
        return *head, *[(each.call_id, each.content) for each in message.content]
    if isinstance(message, AssistantMessage):
        return *head, (message.thought,), *[(each.id, each.name, each.arguments) for each in content]
    if all(isinstance(each, str | EncodedImage) for each in content):
        return *head, None, *[each if isinstance(each, str) else (each.to_base64(),) for each in content]
    return None


def dumps(body: Mapping[str, object]) -> bytes:
    """A request's body; what is known of its messages is not encoded again."""
    return b"{%b}" % b",".join([b"%b:%b" % (encoded(name), _field(value)) for name, value in body.items()])


def _field(value: object) -> bytes:
    if not isinstance(value, list):
        return encoded(value)
    items = cast("list[object]", value)
    return b"[%b]" % b",".join([each.encoded if isinstance(each, Form) else encoded(each) for each in items])


def encoded(value: object) -> bytes:
    """JSON, with pydantic's models as the packages send them, and what orjson refuses: numbers of any length, and texts
    with halves of characters, which are sent as they are stored (`json_types.storable_text`)."""
    try:
        return orjson.dumps(value, default=_plain)
    except orjson.JSONEncodeError:
        return json.dumps(value, default=_plain, ensure_ascii=False).encode(errors="replace")


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    raise TypeError(f"{type(value).__name__} cannot be sent")
