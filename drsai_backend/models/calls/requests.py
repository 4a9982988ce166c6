"""Requests to a model are kept, so that they can be compared with those of a turn that is repeated."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from autogen_core.models import CreateResult, LLMMessage
from autogen_core.tools import Tool, ToolSchema

from drsai_backend.json_types import JsonObject

_LAST = 32
_IMAGE: Final = re.compile(r"(?<=<autogen_core\._image\.Image object) at 0x[0-9a-fA-F]+")
"""An image in the text of a conversation that AutoGen's selector asks with: its address is this process's."""


class OfferedTool(JsonObject):
    """A tool of the run's client, as AutoGen's `ToolSchema`. It is no part of a request's digest, as the request that
    brings the result of a call may offer others. `is_active=False`: it may not be called any more."""

    def __init__(self, schema: Mapping[str, object], *, is_active: bool) -> None:
        super().__init__(schema)
        self.is_active = is_active


def tool_name(tool: Tool | ToolSchema) -> str:
    """Return the name by which a model knows a tool."""
    return tool["name"] if isinstance(tool, Mapping) else tool.name


Digested: TypeAlias = dict[int, tuple[LLMMessage, str]]
"""The messages of a request as JSON, each with the object, by whose id it is found."""

_KNOWN = frozenset({"tools", "tool_choice", "json_output", "extra_create_args", "cancellation_token"})


@dataclass(slots=True)  # frozen, it takes twice as long to make, for every call
class ModelRequest:
    """One request to a model. It refers to the last messages only, and copies nothing."""

    count: int
    last: tuple[LLMMessage, ...]
    options: JsonObject
    """As those of `autogen_core.models.ChatCompletionClient.create`."""

    @classmethod
    def of(cls, messages: Sequence[LLMMessage], options: JsonObject) -> ModelRequest:
        """The request of one call."""
        return cls(len(messages), tuple(messages[-_LAST:]), options)

    def digest(self, known: Digested) -> str:
        """A hash that is the same in another process that asks the same.

        It takes in the number of messages and the last 32 of them, so that it costs the same however long the thread
        is; the agent's tools with their schemas, the form of the answer and the agent's own arguments. Models, sampling
        parameters and keys are not part of it, nor are tools of the client.

        Args:
            known: the messages of the agent's request before, which are not made JSON again, as messages never change;
                then those of this one.
        """
        options = self.options
        output, choice = options.get("json_output"), options.get("tool_choice", "auto")
        more = {name: value for name, value in options.items() if name not in _KNOWN}
        ids = [*map(id, self.last)]
        texts = [
            known[key] if key in known else (each, _dump(each.model_dump(mode="json")))
            for key, each in zip(ids, self.last, strict=True)
        ]
        known.clear()
        known.update(zip(ids, texts, strict=True))
        # In the order of the keys.
        first: JsonObject = {
            "choice": choice if isinstance(choice, str) else choice.name,
            "count": self.count,
            "extra": {**options.get("extra_create_args", {}), **more},
        }
        last: JsonObject = {
            "output": output.__qualname__ if isinstance(output, type) else output,
            "tools": [
                tool if isinstance(tool, Mapping) else tool.schema
                for tool in options.get("tools", ())
                if not isinstance(tool, OfferedTool)
            ],
        }
        messages = ", ".join([text for _, text in texts])
        return _digest(f'{_dump(first)[:-1]}, "messages": [{messages}], {_dump(last)[1:]}')


def digest_of(value: object) -> str:
    """A hash of JSON; what JSON does not know counts by its class.

    Characters that a database cannot hold count as what stands for them in stored messages: where a turn is repeated,
    the messages before it may be the stored ones.
    """
    return _digest(_dump(value))


def _dump(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=lambda odd: type(odd).__qualname__)


def _digest(text: str) -> str:
    data = _IMAGE.sub("", text).replace("\\u0000", "\ufffd").encode("utf-8", "replace")
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class AnswerSteps(Protocol):
    """Remembers the answers of a model in the turn in flight; see `drsai_backend.teams.replay.steps`."""

    def next_answer(self, request: ModelRequest) -> tuple[int, CreateResult | None]:
        """Number of the answer that is asked for now, and the answer, where it is recorded."""
        ...

    def not_answered(self, number: int) -> None:
        """The model gave no answer: the next one has this number."""
        ...

    async def answered(self, number: int, request: ModelRequest, result: CreateResult) -> None:
        """Record a fresh answer."""
        ...
