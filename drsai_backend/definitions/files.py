"""Definitions from files: several that include each other, one of AutoGen's component configs, or Python."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import reduce
from itertools import islice
from operator import getitem
from pathlib import Path
from typing import Any, Final, cast

from drsai_backend.definitions.build import factories
from drsai_backend.definitions.check import MOST_WRONG, parse_definitions, wrong_names
from drsai_backend.definitions.means import Means
from drsai_backend.definitions.schema import Definitions
from drsai_backend.definitions.source import DefinitionError, FieldPath, Problem, Source, read_file
from drsai_backend.json_types import JsonObject
from drsai_backend.teams.context import TeamFactory
from drsai_backend.teams.registry import load_teams
from drsai_backend.tools.builtin import NAMES

_SECTIONS: Final = ("agents", "teams", "tools")
_MAX_FILES: Final = 100


def load(target: str, means: Means) -> dict[str, TeamFactory]:
    """The team factories of a file or module, by name.

    Args:
        target: a .yaml, .yml or .json file of definitions; or what `teams.registry.load_teams` reads.

    Raises:
        ConfigurationError: it cannot be used; a `DefinitionError` says all that is wrong with definitions.
    """
    if not target.endswith((".yaml", ".yml", ".json")):
        return load_teams(target)
    if is_of_components(target):
        return load_teams(target)
    return dict(factories(read_definitions(target, means.python, builtin=means.builtin), means))


def is_of_components(file: str) -> bool:
    """Whether a file holds AutoGen's component configs and no definitions: the first thing in it that is named has a
    `provider`. Raises DefinitionError: it cannot be read."""
    data = read_file(file, None).data
    if isinstance(data.get("provider"), str):
        return True
    named: object = data.get("teams", data)
    if "agents" in data or not isinstance(named, Mapping):
        return False
    first: object = next(iter(cast("Mapping[str, object]", named).values()), None)
    return isinstance(first, Mapping) and "provider" in first


def read_definitions(
    file: str,
    python: Collection[str] = (),
    environment: Mapping[str, str] | None = None,
    *,
    builtin: Collection[str] = NAMES,
) -> Definitions:
    """The definitions of a file, with those that it includes.

    Args:
        python: packages and modules whose functions may be tools.
        environment: what `${NAME}` stands for; default: the process's.
        builtin: the names of tools that come along.

    Raises:
        DefinitionError: all that is wrong, each with file, line and field.
    """
    sources = _read_all(file, os.environ if environment is None else environment)
    data, problems, origins = _merged(sources)
    definitions, wrong = parse_definitions(data)
    if definitions is not None:
        wrong = list(islice(wrong_names(definitions, builtin, python), MOST_WRONG))
    problems += [_origin(path, origins, sources[0]).problem(message, path) for path, message in wrong]
    if problems or definitions is None:
        raise DefinitionError(sorted(problems, key=lambda each: (each.file != file, each.file, each.line or 0)))
    return definitions


def as_written(file: str, means: Means, environment: Mapping[str, str] | None = None) -> JsonObject:
    """What `read_definitions` reads, as data to be shown: a text that came from the environment is as the file has it
    (`${NAME}`), as it may be a secret. Arguments and errors as there."""
    environment = os.environ if environment is None else environment
    found = read_definitions(file, means.python, environment, builtin=means.builtin)
    data = found.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for source in _read_all(file, environment):
        for (*way, last), (value, written) in source.written.items():
            with suppress(KeyError, IndexError, TypeError):
                holder = reduce(getitem, way, cast("Any", data))
                if holder[last] == value:
                    holder[last] = written
    return data


def _read_all(file: str, environment: Mapping[str, str]) -> list[Source]:
    """The file, and all that it includes, each once."""
    found: dict[Path, Source] = {}
    waiting = [(file, None)]
    problems: list[Problem] = []
    while waiting:
        name, asked_by = waiting.pop(0)
        path = Path(os.path.realpath(name)) if "\0" not in name else Path(name)
        if path in found:
            continue
        if len(found) == _MAX_FILES:
            raise DefinitionError([Problem(f"includes more than {_MAX_FILES} files", ("include",), file)])
        try:
            source = read_file(name, environment)
        except DefinitionError as error:
            problems += error.problems if asked_by is None else [_included(each, asked_by) for each in error.problems]
            continue
        found[path] = source
        included: object = source.data.pop("include", [])
        if not isinstance(included, list) or not all(isinstance(each, str) for each in included):  # pyright: ignore[reportUnknownVariableType]
            problems.append(source.problem("must be a list of files", ("include",)))
            continue
        waiting += [
            (os.path.join(os.path.dirname(name), each), source.problem("", ("include", index)))
            for index, each in enumerate(cast("list[str]", included))
        ]
    if problems:
        raise DefinitionError(problems)
    return list(found.values())


def _included(problem: Problem, asked_by: Problem) -> Problem:
    if problem.line is not None:
        return problem
    return Problem(f"{problem.file}: {problem.message}", asked_by.path, asked_by.file, asked_by.line)


def _merged(sources: list[Source]) -> tuple[JsonObject, list[Problem], dict[FieldPath, Source]]:
    """All of them as one, what two of them define, and where each named part comes from."""
    data: JsonObject = {}
    problems: list[Problem] = []
    origins: dict[FieldPath, Source] = {}
    for source in sources:
        for section, given in source.data.items():
            if section not in _SECTIONS or not isinstance(given, Mapping):
                if section not in data:
                    data[section], origins[section,] = given, source
                elif section != "serve":  # An included file's own is for when it is served itself.
                    problems.append(source.problem(f"is in {origins[section,].file}, too", (section,)))
                continue
            into = data.setdefault(section, {})
            if not isinstance(into, dict):
                problems.append(source.problem("must be a mapping, as it is here", (section,)))
                continue
            for name, value in cast("JsonObject", given).items():
                if name in into:
                    other = origins[section, name].file
                    problems.append(source.problem(f"is defined in {other}, too", (section, name)))
                    continue
                into[name], origins[section, name] = value, source
    return data, problems, origins


def _origin(path: FieldPath, origins: Mapping[FieldPath, Source], first: Source) -> Source:
    return origins.get(path[:2]) or origins.get(path[:1]) or first
