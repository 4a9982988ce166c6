"""Files of definitions are of three kinds: several that include each other, one of AutoGen's component configs, or
Python."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from drsai_backend.definitions.build import factories
from drsai_backend.definitions.check import at, check
from drsai_backend.definitions.effects import without_effect
from drsai_backend.definitions.policy import DefinitionPolicy
from drsai_backend.definitions.schema import Definitions
from drsai_backend.definitions.source import WORDS, DefinitionError, FieldPath, Problem, Source, read_file
from drsai_backend.errors import ConfigurationError
from drsai_backend.json_types import JsonObject
from drsai_backend.teams.context import TeamFactory
from drsai_backend.teams.registry import exported, load_teams
from drsai_backend.tools.builtin import NAMES

_log = logging.getLogger("drsai.definitions")
_SECTIONS: Final = ("agents", "teams", "tools")
_MAX_FILES: Final = 100


def load(target: str, means: DefinitionPolicy) -> dict[str, TeamFactory]:
    """The team factories of a file or module, by name.

    Args:
        target: a .yaml, .yml or .json file of definitions; or what `teams.registry.load_teams` reads.

    Raises:
        ConfigurationError: it cannot be used; a `DefinitionError` says all that is wrong with definitions.
    """
    if not target.endswith((".yaml", ".yml", ".json")) or is_of_components(target):
        return load_teams(target)
    return dict(factories(_read(target, means, os.environ), means))


def load_all(targets: Sequence[str], means: DefinitionPolicy) -> dict[str, TeamFactory]:
    """The team factories of several files and modules, by name.

    Raises:
        DefinitionError: it says all that is wrong with any of them; also where two of them have a team of one name.
    """
    found: dict[str, tuple[str, TeamFactory]] = {}
    wrong: list[Problem] = []
    for target in targets:
        try:
            loaded = load(target, means)
        except ConfigurationError as error:
            wrong += error.problems if isinstance(error, DefinitionError) else [Problem(error.message)]
            continue
        wrong += [Problem(f"{target}: {found[name][0]} has a team {name!r}, too") for name in loaded if name in found]
        found |= {name: (target, factory) for name, factory in loaded.items()}
    if wrong:
        raise DefinitionError(wrong)
    return {name: factory for name, (_, factory) in found.items()}


def is_of_components(file: str) -> bool:
    """Whether a file holds AutoGen's component configs and no definitions: the first thing in it that is named has a
    `provider`, or AutoGen Studio has exported it. Raises DefinitionError: it cannot be read."""
    source = read_file(file, None)
    data, named = source.data, cast("object", source.data.get("teams", source.data))
    of_parts = "agents" not in data and isinstance(named, Mapping)
    first: object = next(iter(cast("Mapping[str, object]", named).values()), None) if of_parts else None
    found = exported(data) is not None or (isinstance(first, Mapping) and "provider" in first)
    if found and source.problems:
        raise DefinitionError(source.problems)
    return found


def read_definitions(
    file: str,
    python: Collection[str] = (),
    environment: Mapping[str, str] | None = None,
    *,
    builtin: Collection[str] = NAMES,
    mcp: Callable[[], Collection[str]] | None = None,
) -> Definitions:
    """The definitions of a file, with those that it includes.

    Functions that it names are imported; the folder of the file is importable then, after all others. What has no
    effect is told in the log.

    Args:
        python: packages and modules whose functions may be tools.
        environment: what `${NAME}` stands for; default: the process's.
        builtin: the names of tools that come along.
        mcp: gives the names of the MCP servers that there are; None: that is not known.

    Raises:
        DefinitionError: all that is wrong, each with file, line and field.
    """
    return _read(
        file, DefinitionPolicy(tuple(python), (), builtin, mcp), os.environ if environment is None else environment
    )


def _read(file: str, means: DefinitionPolicy, environment: Mapping[str, str]) -> Definitions:
    folder = os.path.dirname(os.path.abspath(file))
    if means.python and folder not in sys.path:
        sys.path.append(folder)  # Last: a file of its own called json.py must replace nothing.
    sources, problems = _read_all(file, environment)
    data, doubles, origins = _merged(sources)

    def told(said: tuple[FieldPath, str]) -> Problem:
        path, message = said
        return (origins.get(path[:2]) or origins.get(path[:1]) or sources[0]).problem(message, path)

    words = {path: word for each in sources for path, word in each.words.items()}
    definitions, wrong = _checked(data, means, words)
    # What is in a field that could not be read, or missing because of one, is not told beside it.
    unread = {(each.file, each.path) for each in problems}
    found = [each for each in map(told, wrong) if each.path or not unread]
    ways = [{(each.file, each.path[:length]) for length in range(len(each.path) + 1)} for each in found]
    problems += [*doubles, *(each for each, way in zip(found, ways, strict=True) if unread.isdisjoint(way))]
    if problems or definitions is None:
        raise DefinitionError(sorted(problems, key=lambda each: (each.file != file, each.file, each.line or 0)))
    for name, agent in definitions.agents.items():
        if agent.knowledge is not None:
            agent.knowledge.read_from(os.path.dirname(os.path.abspath(origins["agents", name].file)))
    text = "{0} is read as {1}, and YAML 1.2 has it as a text: write {1}, or put it in quotes"
    read = ((path, text.format(word, WORDS[word.lower()])) for path, word in words.items())
    for each in (*read, *without_effect(definitions)):
        _log.warning("%s", told(each))
    return definitions


def _checked(
    data: JsonObject, means: DefinitionPolicy, words: dict[FieldPath, str]
) -> tuple[Definitions | None, list[tuple[FieldPath, str]]]:
    """`check`, with the texts that YAML 1.2 has for `words` where no truth value may be; those are taken out of it."""
    found = check(data, means)
    texts = [path for path, _ in found[1] if path in words]
    for path in texts:
        at(data, path[:-1])[path[-1]] = words.pop(path)
    return check(data, means) if texts else found


def as_written(file: str, means: DefinitionPolicy, environment: Mapping[str, str] | None = None) -> JsonObject:
    """Return what `read_definitions` reads, as data to be shown: a text that came from the environment is as the file
    has it (`${NAME}`), as it may be a secret. Arguments and errors as there."""
    environment = os.environ if environment is None else environment
    found = _read(file, means, environment)
    data = found.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for source in _read_all(file, environment)[0]:
        for (*way, last), (value, written) in source.written.items():
            with suppress(KeyError, IndexError, TypeError):
                holder = at(data, way)
                if holder[last] == value:
                    holder[last] = written
    return data


def _read_all(file: str, environment: Mapping[str, str]) -> tuple[list[Source], list[Problem]]:
    """The file, and all that it includes, each once; and what could not be read of them.

    Raises:
        DefinitionError: one of them cannot be read at all: what it defines is not known.
    """
    found: dict[Path, Source] = {}
    waiting = [(file, None)]
    problems: list[Problem] = []
    unread = False
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
            unread = True
            continue
        found[path] = source
        problems += source.problems
        included: object = source.data.pop("include", [])
        if not isinstance(included, list) or not all(isinstance(each, str) for each in included):  # pyright: ignore[reportUnknownVariableType]
            problems.append(source.problem("must be a list of files", ("include",)))
            unread = True
            continue
        waiting += [
            (os.path.join(os.path.dirname(name), each), source.problem("", ("include", index)))
            for index, each in enumerate(cast("list[str]", included))
        ]
    if unread:
        raise DefinitionError(problems)
    return list(found.values()), problems


def _included(problem: Problem, asked_by: Problem) -> Problem:
    if problem.line is not None:
        return problem
    return Problem(f"{problem.file}: {problem.message}", asked_by.path, asked_by.file, asked_by.line)


def _merged(sources: list[Source]) -> tuple[JsonObject, list[Problem], dict[FieldPath, Source]]:
    """Return all of them as one, what two of them define, and where each named part comes from."""
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
