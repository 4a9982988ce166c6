"""The base of conversions says what a format of others is, and makes a definition of it, field by field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from drsai_backend.definitions.check import explained
from drsai_backend.definitions.schema import MAX_TOOLS
from drsai_backend.definitions.source import DefinitionError, FieldPath, Problem, Source
from drsai_backend.explain import did_you_mean
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.literals import Secrets

_SHOWN: Final = 400
"""Characters of a value in a note."""
_VARIABLE: Final = re.compile(r"\{\{\s*([A-Za-z_][\w.]*)\s*\}\}", re.ASCII)
_EXPANDED: Final = re.compile(r"\$(?:\$|\{)")
P = TypeVar("P", bound=BaseModel)


class Theirs(BaseModel):
    """A part of a format of others. What it does not know is not wrong: it is told that it has no place."""

    model_config = ConfigDict(extra="allow", strict=True)


@dataclass(frozen=True, slots=True)
class Format:
    """A format of others.

    Attributes:
        name: as `--from` takes it.
        about: one line for users.
        marks: fields at the top that tell it from others.
        convert: puts what is said in its place.
    """

    name: str
    about: str
    marks: tuple[str, ...]
    convert: Callable[[Draft], None]


@dataclass
class Draft:
    """A definition in the making. Whatever of the source is looked at is put in place or named.

    Attributes:
        source: what was read.
        secrets: those in it.
        name: of the agent.
        agent: its definition, as a file says it.
        profile: of the model, as a file of profiles says it.
        notes: what has no place here, or is said in another way.
        origins: by a path in the agent's definition, the path in the source.
    """

    source: Source
    secrets: Secrets
    name: str
    agent: JsonObject = field(default_factory=dict)
    profile: JsonObject = field(default_factory=dict)
    notes: list[Problem] = field(default_factory=list[Problem])
    origins: dict[FieldPath, FieldPath] = field(default_factory=dict[FieldPath, FieldPath])

    def call(self, name: str, description: str | None, origin: FieldPath) -> None:
        """Name the agent as the source does, as far as that can be an agent's name here; what of it is in other letters
        is told by the description."""
        self.name = agent_name(self.secrets.hidden(name, origin), self.name)
        if self.name != name:
            self.note(f"{name!r} cannot be an agent's name here: it is called {self.name!r}", origin)
        if description or not name.isascii():
            shown = (name, description) if not name.isascii() else (description,)
            self.put("description", ": ".join(filter(None, shown)), (*origin[:-1], "description"))

    def read(self, kind: type[P]) -> P:
        """The source, checked. Raises DefinitionError: all that is wrong with its form."""
        try:
            return kind.model_validate(self.source.data)
        except ValidationError as error:
            wrong = explained(error, self.source.data, kind)
            raise DefinitionError([self.problem(message, path) for path, message in wrong]) from None

    def problem(self, message: str, path: FieldPath) -> Problem:
        """A problem at a path of the source, without the secrets in it."""
        shown = tuple(self.secrets.hidden(each) if isinstance(each, str) else each for each in path)
        found = self.source.problem(self.secrets.hidden(message), path)
        return Problem(found.message, shown, found.file, found.line)

    def put(self, into: str, value: object, origin: FieldPath) -> None:
        """A field of the agent; `model.seed` is one of its model. Texts are written as a file says them."""
        target = tuple(into.split("."))
        holder = self.agent
        for step in target[:-1]:
            holder = cast("JsonObject", holder.setdefault(step, {}))
        holder[target[-1]] = self.plain(value, origin)
        self.origins[target] = origin

    def add_tool(self, tool: object, origin: FieldPath) -> None:
        """A tool of the agent, as a file says it (its texts are not changed)."""
        tools = cast("list[object]", self.agent.setdefault("tools", []))
        if len(tools) == MAX_TOOLS:
            raise DefinitionError([self.problem(f"an agent may have {MAX_TOOLS} tools, and there are more", origin)])
        if tool not in tools:
            tools.append(tool)
            self.origins["tools", len(tools) - 1] = origin

    def plain(self, value: object, origin: FieldPath) -> object:
        """A value as a file says it: secrets are named, and a dollar stays one."""
        if isinstance(value, str):
            return self.text(value, origin)
        if isinstance(value, Mapping):
            named = cast("Mapping[str, object]", value)
            return {self.secrets.hidden(key): self.plain(each, (*origin, key)) for key, each in named.items()}
        if isinstance(value, list):
            return [self.plain(each, (*origin, index)) for index, each in enumerate(cast("list[object]", value))]
        return value

    def text(self, value: str, origin: FieldPath) -> str:
        """A text as a file says it."""
        pieces = list(self.secrets.parts(value, origin))
        if not any(secret for secret, _ in pieces) and not _EXPANDED.search(value):
            return value
        return "".join(f"${{{piece}}}" if secret else piece.replace("$", "$$") for secret, piece in pieces)

    def prompt(self, value: str, origin: FieldPath) -> str:
        """A prompt. `{{name}}` was filled in by somebody else; here the request's context may do it."""
        names = dict.fromkeys(_VARIABLE.findall(value))
        for name in names:
            ours = f"{{{{context.{name.replace('.', '_')}}}}}"
            self.note(f"the variable {{{{{name}}}}} is written {ours}: the request's `context` fills it in", origin)
        return _VARIABLE.sub(lambda found: f"{{{{context.{found[1].replace('.', '_')}}}}}", value)

    def note(self, message: str, origin: FieldPath) -> None:
        """Say of a field what its user should know."""
        self.notes.append(self.problem(message, origin))

    def homeless(self, value: object, origin: FieldPath, hint: str = "") -> None:
        """Name a field that has no place here, with its value."""
        self.note(
            f"has no place in a definition{f': {hint}' if hint else ''} (it was {self._shown(value, origin)})", origin
        )

    def holds_secret(self, value: object, origin: FieldPath) -> bool:
        """Whether there is a secret in a value."""
        return self._hidden(value, origin) != value

    def _shown(self, value: object, origin: FieldPath) -> str:
        """A value for a message: in one line, bounded, without secrets."""
        hidden = json.dumps(self._hidden(value, origin), ensure_ascii=False)
        return hidden if len(hidden) <= _SHOWN else f"{hidden[:_SHOWN]}…"

    def _hidden(self, value: object, path: FieldPath) -> object:
        if isinstance(value, Mapping):
            named = cast("Mapping[str, object]", value)
            return {self.secrets.hidden(key): self._hidden(each, (*path, key)) for key, each in named.items()}
        if isinstance(value, list):
            return [self._hidden(each, (*path, index)) for index, each in enumerate(cast("list[object]", value))]
        if isinstance(value, str):
            return self.secrets.hidden(value, path)
        name = self.secrets.at(path)
        return value if name is None else f"${{{name}}}"

    def rest(self, part: BaseModel, origin: FieldPath = ()) -> None:
        """Name what a part of the source says beyond its format."""
        known = type(part).model_fields
        for name, value in (part.model_extra or {}).items():
            self.homeless(value, (*origin, name), did_you_mean(name, known).removeprefix("; "))


def agent_name(wanted: str, instead: str) -> str:
    """Return what AutoGen takes for a name, made of one that people wrote."""
    for text in (wanted, instead):
        name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:64]
        if name:
            return name if not name[0].isdigit() else f"agent_{name}"[:64]
    return "agent"
