"""Writing makes a converted definition a file: YAML whose comments say what has no place in it, or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

import yaml

from drsai_backend.definitions.schema import Definitions
from drsai_backend.definitions.source import Problem
from drsai_backend.json_types import JsonObject

_WIDTH: Final = 118


@dataclass(frozen=True, slots=True)
class Converted:
    """What a file of others comes to.

    Attributes:
        format: the format that it was read as.
        source: the file.
        data: the definitions as a file says them: `${NAME}` is an environment variable.
        definitions: the same, checked; a secret in a text stands there as `${NAME}`.
        profiles: what a file of model profiles (`DRSAI_MODELS`) has to say; {}: nothing.
        notes: what has no place, or is said in another way, each with file, line and field.
        secrets: by the environment variable that a secret is to be put into, the field that it stood in.
    """

    format: str
    source: str
    data: JsonObject
    definitions: Definitions
    profiles: JsonObject
    notes: tuple[Problem, ...]
    secrets: dict[str, str]

    def yaml(self) -> str:
        """A file of definitions, with comments."""
        lines = [f"From {self.source} ({self.format}), by `drsai agents convert`."]
        if self.notes:
            lines += ["", "What is not as it was:", *(f"- {each}" for each in self.notes)]
        if self.secrets:
            lines += ["", "Secrets are not written here. Set these environment variables:"]
            lines += [f"- {name}: the value of {field}" for name, field in self.secrets.items()]
        if self.profiles:
            lines += ["", "How the model is reached belongs into the file of model profiles (DRSAI_MODELS):"]
            lines += [f"    {line}" for line in _dump(self.profiles).splitlines()]
        head = "".join(f"# {_visible(line)}".rstrip() + "\n" for line in lines)
        return head + _dump(self.data)

    def json(self) -> str:
        """A file of definitions. JSON has no comments."""
        return escaped(json.dumps(self.data, ensure_ascii=False, indent=2)) + "\n"


def write_data(data: Mapping[str, object]) -> str:
    """Data as YAML."""
    return _dump(data)


def escaped(text: str) -> str:
    """JSON without the characters that YAML does not take, or takes for the end of a line."""
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(each if each.isprintable() or each in "\n\r\t" else _escape(each) for each in text)


def halves(data: object) -> Iterator[str]:
    """Texts that no file in UTF-8 can hold."""
    if isinstance(data, str):
        if re.search("[\ud800-\udfff]", data):
            yield data
    elif isinstance(data, dict):
        for key, value in cast("JsonObject", data).items():
            yield from halves(key)
            yield from halves(value)
    elif isinstance(data, list):
        for value in cast("list[object]", data):
            yield from halves(value)


def _visible(text: str) -> str:
    """A line that stays one, whatever others wrote into it."""
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def _escape(character: str) -> str:
    """Return it as JSON writes it."""
    return json.dumps(character)[1:-1] if ord(character) > 127 else f"\\u{ord(character):04x}"


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Whoever reads the file reads prompts in it. Some other characters would be line ends, too.
    style = ("|" if "\n" in text else None) if text.replace("\n", "").isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)  # pyright: ignore[reportUnknownMemberType]


_Dumper.add_representer(str, _text)


def _dump(data: Mapping[str, object]) -> str:
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)  # pyright: ignore[reportUnknownMemberType]
