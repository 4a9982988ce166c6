"""Conversion makes definitions from the formats of others. What has no place here is named; a secret is never
written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, cast

from drsai_backend.definitions.check import check, suggestion
from drsai_backend.definitions.convert import books, entity, functions
from drsai_backend.definitions.convert.base import Draft, Format, agent_name
from drsai_backend.definitions.convert.tools import ANY_SERVER
from drsai_backend.definitions.convert.writing import Converted, escaped, halves, write_data
from drsai_backend.definitions.schema import Definitions
from drsai_backend.definitions.source import DefinitionError, FieldPath, Problem, Source, parse, read_text
from drsai_backend.explain import did_you_mean
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.http.tool import PREFIX
from drsai_backend.tools.literals import MAX_SECRETS, Secrets, TooManySecrets

__all__ = ["FORMATS", "Converted", "convert", "convert_file"]

FORMATS: Final = {each.name: each for each in (entity.FORMAT, functions.FORMAT, books.FORMAT)}
_JSON: Final = re.compile(r'("(?:\\.|[^"\\])*"?)|\t|(?<![\w.])(-?\d+(?:\.\d+)?)[eE]([+-]?)(\d+)')


def convert_file(file: str, format: str | None = None) -> Converted:
    """A file of others as a definition.

    Args:
        file: YAML or JSON.
        format: of `FORMATS`; None: found out by the fields that it has.

    Raises:
        DefinitionError: all that is wrong, each with file, line and field.
    """
    return convert(read_text(file), file, format)


def convert(text: str, file: str = "", format: str | None = None) -> Converted:
    """`convert_file` of a text; `file` is what it is called in messages."""
    source = parse(_as_yaml(text), file, of="an agent's fields")
    found = _format(source, format)
    if any(True for _ in halves(source.data)):
        raise DefinitionError([Problem("has half a character (\\ud83d without its other half)", (), file)])
    try:
        secrets = Secrets(source.data)
    except TooManySecrets:
        raise DefinitionError([Problem(f"holds more than {MAX_SECRETS} secrets", (), file)]) from None
    draft = Draft(source, secrets, agent_name(Path(file).stem, "agent"))
    found.convert(draft)
    model = draft.agent.get("model")
    if isinstance(model, dict) and list(cast("JsonObject", model)) == ["profile"]:
        draft.agent["model"] = model["profile"]
        draft.origins["model",] = draft.origins["model", "profile"]
    data: JsonObject = {"agents": {draft.name: draft.agent}}
    return Converted(
        found.name,
        file,
        data,
        _checked(draft, data),
        {"profiles": {draft.profile["model"]: draft.profile}} if "model" in draft.profile else {},
        tuple(draft.notes),
        dict(_variables(draft, data)),
    )


def _as_yaml(text: str) -> str:
    """JSON as YAML reads it: without tabs, and with numbers whose exponents have a sign and whose bases a point."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text

    def write(found: re.Match[str]) -> str:
        if found[1] is not None:
            return escaped(found[1])
        if found[2] is None:
            return " "
        return f"{found[2]}{'' if '.' in found[2] else '.0'}e{found[3] or '+'}{found[4]}"

    return _JSON.sub(write, text)


def _format(source: Source, wanted: str | None) -> Format:
    if wanted is not None:
        if wanted not in FORMATS:
            text = f"there is no format {wanted!r}{suggestion(wanted, FORMATS)}"
            raise DefinitionError([Problem(text, (), source.file)])
        return FORMATS[wanted]
    keys = source.data.keys()
    if keys & {"agents", "teams", "serve"} and not keys & {"llm", "basic_settings"}:
        raise DefinitionError([source.problem("is a file of definitions already: `drsai agents validate` checks it")])
    if "component_type" in keys or {"provider", "config"} <= keys:
        raise DefinitionError([source.problem("is a component config of AutoGen: `drsai serve` takes it as it is")])
    fitting = [each for each in FORMATS.values() if keys & set(each.marks)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = " or ".join(each.name for each in fitting)
        raise DefinitionError([source.problem(f"could be {names}: say which with --from")])
    marks = {mark: each for each in FORMATS.values() for mark in each.marks}
    for key in keys:
        if near := did_you_mean(key, marks):
            raise DefinitionError([source.problem(f"there is no such field{near}", (key,))])
    known = "; ".join(f"{each.name} ({each.about})" for each in FORMATS.values())
    raise DefinitionError([source.problem(f"is of no format that is known: {known}")])


def _checked(draft: Draft, data: Mapping[str, object]) -> Definitions:
    """The definitions, read as their reader will. What is wrong is told of the source."""
    variables = {name: f"${{{name}}}" for name in draft.secrets.found}
    definitions, wrong = check(parse(write_data(data), draft.source.file, variables).data, ANY_SERVER)
    if wrong or definitions is None:
        raise DefinitionError([draft.problem(message, _origin(draft, path[2:])) for path, message in wrong])
    return definitions


def _origin(draft: Draft, path: FieldPath) -> FieldPath:
    """Return where in the source a field of the agent comes from."""
    for length in range(len(path), 0, -1):
        if path[:length] in draft.origins:
            return (*draft.origins[path[:length]], *path[length:])
    return path


def _variables(draft: Draft, data: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the environment variable that a secret is to be put into, and where it stood."""
    written = json.dumps(data, ensure_ascii=False)
    for name, path in draft.secrets.found.items():
        field = draft.problem("", path).field
        if f"{{secret:{name}}}" in written:
            yield f"{PREFIX}{name}", field
            if f"${{{name}}}" not in written and draft.profile.get("key_env") != name:
                continue
        yield name, field
