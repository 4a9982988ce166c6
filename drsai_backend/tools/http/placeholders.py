"""Placeholders stand in what an HTTP tool sends: each value is encoded for the place where it lands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import quote

from drsai_backend.access.principal import Principal
from drsai_backend.errors import ToolError
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.running import ToolRun

CONTEXT: Final = {
    "dialogId": "thread_id",
    "threadId": "thread_id",
    "tenantId": "tenant",
    "userId": "user_id",
    "runId": "run_id",
    "agentName": "agent",
    "callId": "call_id",
}
"""Variables that the system fills in."""
_TOKEN: Final = re.compile(r"\{\{|\}\}|\{(secret:)?([A-Za-z_][A-Za-z0-9_.-]*)\}")
_MISSING: Final = object()


def names_in(texts: object) -> Iterator[str]:
    """The arguments and variables that are named."""
    return (name for is_secret, name in _tokens(texts) if not is_secret)


def secrets_in(texts: object) -> Iterator[str]:
    """The credentials that are named."""
    return (name for is_secret, name in _tokens(texts) if is_secret)


def _tokens(value: object) -> Iterator[tuple[bool, str]]:
    if isinstance(value, str):
        for found in _TOKEN.finditer(value):
            if found.group(2):
                yield bool(found.group(1)), found.group(2)
    elif isinstance(value, Mapping):
        for item in cast("Mapping[str, object]", value).values():
            yield from _tokens(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _tokens(item)


def context_values(run: ToolRun) -> JsonObject:
    """The variables of a call; those that nobody knows, outside a run, are left out."""
    who = run.get(Principal)
    values: JsonObject = {"agent": run.agent or None, "call_id": run.call_id or None}
    if who is not None:
        values |= {"tenant": who.tenant, "user_id": who.user_id}
    for part in run.provided.values():
        for name in ("thread_id", "run_id"):
            if (value := getattr(part, name, None)) is not None:
                values[name] = value
    return {name: values[source] for name, source in CONTEXT.items() if values.get(source) is not None}


@dataclass(frozen=True, slots=True)
class Values:
    """What placeholders stand for.

    Args:
        arguments: of the call, and the variables of the context.
        secrets: credentials by name.
    """

    arguments: Mapping[str, object]
    secrets: Mapping[str, str]

    def url(self, template: str) -> str:
        """A URL. Raises ToolError: a value is missing, or would change the path."""
        return _TOKEN.sub(lambda found: self._in_url(found), template)

    def header(self, name: str, template: str) -> str | None:
        """A header's value; None: its one argument was not given. Raises ToolError for what no header can hold."""
        value = self.json(template)
        if value is None or value is _MISSING:
            return None
        text = value if isinstance(value, str) else json.dumps(value)
        # A line break would begin another header, or the body.
        if any(ord(char) < 32 or ord(char) == 127 for char in text):
            raise ToolError(f"The header {name} cannot hold line breaks or control characters. Leave them out.")
        return text

    def query(self, template: Mapping[str, object]) -> list[tuple[str, str]]:
        """Pairs of a query: a list is repeated, what was not given is left out."""
        pairs: list[tuple[str, str]] = []
        for name, each in template.items():
            value = self.json(each)
            for item in cast("list[object]", value) if isinstance(value, list) else [value]:
                if item is not None and item is not _MISSING:
                    pairs.append((name, item if isinstance(item, str) else json.dumps(item)))
        return pairs

    def body(self, template: object) -> object:
        """A JSON body. What was not given is left out of its object or list."""
        value = self.json(template)
        return None if value is _MISSING else value

    def json(self, template: object) -> object:
        """JSON with its texts filled in; a lone placeholder keeps its value's type."""
        if isinstance(template, str):
            alone = _TOKEN.fullmatch(template)
            if alone is not None and alone.group(2):
                return self._find(alone)
            return _TOKEN.sub(self._in_text, template)
        if isinstance(template, Mapping):
            filled = {key: self.json(value) for key, value in cast("JsonObject", template).items()}
            return {key: value for key, value in filled.items() if value is not _MISSING}
        if isinstance(template, list):
            items = [self.json(item) for item in cast("list[object]", template)]
            return [item for item in items if item is not _MISSING]
        return template

    def _find(self, found: re.Match[str]) -> object:
        name = found.group(2)
        if not found.group(1):
            return self.arguments.get(name, _MISSING)
        if name not in self.secrets:
            raise ToolError(f"The credential {name} of this tool is not set on this server. Do without the tool.")
        return self.secrets[name]

    def _in_text(self, found: re.Match[str]) -> str:
        if not found.group(2):
            return found.group()[0]
        value = self._find(found)
        if value is _MISSING or value is None:
            return ""
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def _in_url(self, found: re.Match[str]) -> str:
        if not found.group(2):
            return quote(found.group()[0], safe="")
        value = self._find(found)
        if value is _MISSING or value is None or value == "":
            raise ToolError(f"`{found.group(2)}` is part of the address that is called: give it.")
        text = value if isinstance(value, str) else json.dumps(value)
        if text in (".", ".."):
            raise ToolError(f"`{found.group(2)}` must not be {text!r}: it would change which address is called.")
        return quote(text, safe="")
