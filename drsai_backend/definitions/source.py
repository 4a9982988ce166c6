"""The source of definitions is a file as it is written: its data, and on which line each part of it stands."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import yaml

from drsai_backend.errors import ConfigurationError
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.literals import FieldPath

MAX_BYTES: Final = 1_000_000
"""Of a file."""
_MAX_NODES: Final = 100_000
"""Of a document with its aliases written out: a few lines may stand for billions."""
_HALF: Final = re.compile("[\ud800-\udfff]")
_VARIABLE: Final = re.compile(r"\$(\$|\{([A-Za-z_]\w*)(?::-([^}]{0,200}))?\})")
"""A default is bounded, as each `${` without an end is looked at up to there."""
_MAX_DEPTH: Final = 50
_MAX_DIGITS: Final = 18
"""Of a whole number: what fits into 64 bits, as JSON's readers and databases have them."""
_MAX_PROBLEMS: Final = 50
_MAX_MESSAGE: Final = 1_000
"""Characters that are told of a problem: what it quotes may be a megabyte."""
_TAGS: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("map", "seq"))
WORDS: Final = {"yes": "true", "no": "false", "on": "true", "off": "false"}
"""What YAML 1.1 reads as true or false and YAML 1.2 as text."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a definition, and where.

    Attributes:
        message: a sentence, without the place.
        path: of the field.
        file: as it was named; "": there is none.
        line: counted from 1; None: not known.
    """

    message: str
    path: FieldPath = ()
    file: str = ""
    line: int | None = None

    @property
    def field(self) -> str:
        """The field as a person writes it: `agents.writer.tools[0]`."""
        text = ""
        for step in self.path:
            text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
        return text

    def __str__(self) -> str:
        place = self.file + ("" if self.line is None else f":{self.line}")
        return ": ".join(shortened(each) for each in (place, self.field, self.message) if each)


def shortened(text: str) -> str:
    """The text, of a long one beginning and end."""
    half = _MAX_MESSAGE // 2
    return text if len(text) <= _MAX_MESSAGE else f"{text[:half]} … {text[-half:]}"


class DefinitionError(ConfigurationError):
    """A definition cannot be used. `problems` says what is wrong with it: all, or the first 50."""

    def __init__(self, problems: list[Problem]) -> None:
        if len(problems) > _MAX_PROBLEMS:
            more = Problem(f"there is more that is wrong: these are the first {_MAX_PROBLEMS}", (), problems[0].file)
            problems = [*problems[:_MAX_PROBLEMS], more]
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(slots=True)
class Source:
    """A file that was read.

    Attributes:
        file: as it was named.
        data: what is in it.
        lines: of each path, where it begins.
        written: of each text that came from the environment, its value and how it is written in the file: what is there
            may be a secret, and is told nobody.
        words: of each value that YAML 1.1 reads as true or false and YAML 1.2 as text, how it is written (`no`).
        problems: what could not be read; the data are without it.
    """

    file: str
    data: JsonObject = field(default_factory=dict)
    lines: dict[FieldPath, int] = field(default_factory=dict[FieldPath, int])
    written: dict[FieldPath, tuple[str, str]] = field(default_factory=dict[FieldPath, tuple[str, str]])
    words: dict[FieldPath, str] = field(default_factory=dict[FieldPath, str])
    problems: list[Problem] = field(default_factory=list[Problem])

    def problem(self, message: str, path: FieldPath = ()) -> Problem:
        """A problem at a path; of what is missing, at what it is missing in."""
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        for place, (value, written) in self.written.items():
            if place[: len(path)] == path and value:
                message = message.replace(repr(value), repr(written)).replace(value, written)
        return Problem(message, path, self.file, self.lines.get(known))


def parse(
    text: str, file: str, environment: Mapping[str, str] | None = None, *, of: str = "`agents`, `teams`, …"
) -> Source:
    """YAML, of which JSON is a part, as data with lines.

    Args:
        environment: what `${NAME}` and `${NAME:-default}` stand for; `$$` is a dollar. None: they stand for themselves.
        of: what it should be a mapping of, for who wrote something else.

    Raises:
        DefinitionError: it is no YAML, no mapping, has a key twice or one that is no text, or a variable is not set.
    """
    source = _read(text, file, environment, of)
    if source.problems:
        raise DefinitionError(source.problems)
    return source


def _read(text: str, file: str, environment: Mapping[str, str] | None, of: str = "`agents`, `teams`, …") -> Source:
    """`parse`, but for what is wrong with single fields: that is in `problems`."""
    try:
        node = cast("yaml.Node | None", yaml.compose(text, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        raise DefinitionError([Problem(f"is not valid YAML: {error.problem}", (), file, line)]) from None
    except yaml.YAMLError as error:
        raise DefinitionError([Problem(f"is not valid YAML: {error}", (), file)]) from None
    except RecursionError:
        raise DefinitionError([Problem("is nested too deeply", (), file)]) from None
    reader = _Reader(Source(file), os.environ if environment is None else environment, expands=environment is not None)
    if not isinstance(node, yaml.MappingNode):
        raise DefinitionError([Problem(f"must be a mapping of {of}", (), file, 1)])
    reader.source.data = cast("JsonObject", reader.read(node, ()))
    return reader.source


class _Reader:
    def __init__(self, source: Source, environment: Mapping[str, str], *, expands: bool) -> None:
        self.source = source
        self.problems = source.problems
        self._environment = environment
        self._expands = expands
        self._scalars = yaml.SafeLoader("")
        self._count = 0
        self._within: list[yaml.Node] = []

    def read(self, node: yaml.Node, path: FieldPath) -> object:
        self._count += 1
        if self._count > _MAX_NODES or any(each is node for each in self._within):
            raise DefinitionError([Problem("has too many parts", path, self.source.file, node.start_mark.line + 1)])
        self.source.lines[path] = node.start_mark.line + 1
        if len(self._within) > _MAX_DEPTH:
            raise DefinitionError([self.source.problem("is nested too deeply", path)])
        if isinstance(node, yaml.ScalarNode):
            value: object = self._scalar(node, path)
            if isinstance(value, str):
                return self._expanded(_joined(value), path)
            if isinstance(value, bool) and str(node.value).lower() in WORDS:
                self.source.words[path] = str(node.value)
            return self._plain(value, str(node.value))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        if node.tag not in _TAGS:
            self.problems.append(self.source.problem(f"cannot be read as {node.tag}", path))
        self._within.append(node)
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.read(each, (*path, index)) for index, each in enumerate(node.value)]
            return self._mapping(cast("yaml.MappingNode", node), path)
        finally:
            self._within.pop()

    def _mapping(self, node: yaml.MappingNode, path: FieldPath) -> JsonObject:
        found: JsonObject = {}
        for key_node, value in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == "tag:yaml.org,2002:merge":
                text = "`<<` is not known here: write the fields out, or use an alias for a whole value"
                self.problems.append(Problem(text, path, self.source.file, line))
                continue
            key: object = self._scalar(key_node, path) if isinstance(key_node, yaml.ScalarNode) else None
            if isinstance(key, bool) and key_node.value.lower() in WORDS:
                key = key_node.value  # No key was ever true or false.
            if not isinstance(key, str):
                written = key_node.value if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
                text = f"a key must be a text: put {written} in quotes"
                self.problems.append(Problem(text, path, self.source.file, line))
                continue
            if key in found:
                self.problems.append(Problem("is there twice", (*path, key), self.source.file, line))
                continue
            found[key] = self.read(value, (*path, key))
            self.source.lines[*path, key] = line
        return found

    def _scalar(self, node: yaml.ScalarNode, path: FieldPath) -> object:
        """The value; what is no value of its tag (`!!int x`), too large or not finite is a problem, and None."""
        try:
            value = cast("object", self._scalars.construct_object(node))  # pyright: ignore[reportUnknownMemberType]
        except (yaml.YAMLError, ValueError, KeyError, AttributeError, TypeError):
            kind = str(node.tag).replace("tag:yaml.org,2002:", "!!")
            self.problems.append(self.source.problem(f"cannot be read as {kind}: put a text in quotes", path))
            return None
        if isinstance(value, float) and not math.isfinite(value):
            self.problems.append(self.source.problem("must be a finite number", path))
            return None
        if isinstance(value, int) and abs(value) >= 10**_MAX_DIGITS:
            self.problems.append(self.source.problem(f"must have at most {_MAX_DIGITS} digits", path))
            return None
        return value

    @staticmethod
    def _plain(value: object, written: str) -> object:
        """YAML reads some words as dates; JSON has none."""
        return value if value is None or isinstance(value, bool | int | float) else written

    def _expanded(self, text: str, path: FieldPath) -> str:
        if not self._expands or "$" not in text:
            return text

        def value(found: re.Match[str]) -> str:
            if found[1] == "$":
                return "$"
            default = cast("str | None", found[3])
            set_to = self._environment.get(found[2], default)
            if set_to is None:
                self.problems.append(self.source.problem(f"the environment variable {found[2]} is not set", path))
            return set_to or ""

        expanded = _VARIABLE.sub(value, text)
        if expanded != text:
            self.source.written[path] = expanded, text
        return expanded


def _joined(text: str) -> str:
    """JSON writes an emoji as two halves (`\\ud83d\\ude00`), which YAML leaves apart. A half alone stays."""
    if not _HALF.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def read_file(file: str, environment: Mapping[str, str] | None) -> Source:
    """A file as data with lines. What is wrong with single fields is in `problems`.

    Raises:
        DefinitionError: it cannot be read, is no YAML or no mapping.
    """
    text = read_text(file)
    try:
        return _read(text, file, environment)
    except DefinitionError:
        if file.endswith(".py"):  # What YAML makes of it says nothing.
            told = (
                "is Python: definitions are YAML or JSON (.yaml, .yml, .json); `drsai doctor` looks at teams in Python"
            )
            raise DefinitionError([Problem(told, (), file)]) from None
        raise


def read_text(file: str) -> str:
    """The text of a file. Raises DefinitionError: it cannot be read, is too long, or is no UTF-8 text."""
    path = Path(file)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DefinitionError([Problem("is no file", (), file)])
        with path.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise DefinitionError([Problem("there is no such file", (), file)]) from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "this is no name of a file"
        raise DefinitionError([Problem(f"cannot be read: {why}", (), file)]) from None
    if len(data) > MAX_BYTES:
        size = path.stat().st_size
        raise DefinitionError([Problem(f"has {size} bytes, and may have {MAX_BYTES}", (), file)])
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DefinitionError([Problem("is no UTF-8 text", (), file)]) from None
