"""The registry has the teams that can be asked, by name, and where they are read from."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import cast

from autogen_agentchat.base import ChatAgent, Team

from drsai_backend.errors import ConfigurationError, UnknownModel
from drsai_backend.explain import why_not_imported
from drsai_backend.json_types import JsonObject
from drsai_backend.teams.context import TeamFactory, problems, takes_context
from drsai_backend.teams.options import KEYS, NO_OPTIONS, TeamOptions, options_of

_NAME = re.compile(r"[\w][\w.:/@+-]{0,127}")
_FORM = "a .py file, a module (`package.module` or `package.module:attribute`), or a .yaml or .json file"


@dataclass(frozen=True, slots=True)
class RegisteredTeam:
    """A team's name, its factory, one line about it, and what it says of itself."""

    name: str
    factory: TeamFactory
    description: str
    options: TeamOptions = NO_OPTIONS
    is_listed: bool = True

    @classmethod
    def of(
        cls, name: str, factory: TeamFactory, description: str | None = None, *, is_listed: bool = True
    ) -> RegisteredTeam:
        """The team of a factory. The description is the first line of the factory's docstring when omitted."""
        return cls(name, factory, description or _describe(factory), options_of(factory), is_listed)


class TeamRegistry:
    """Team factories by name, in the order they were added. `created` is the registry's own age, in Unix seconds."""

    def __init__(self, teams: Mapping[str, TeamFactory] | None = None) -> None:
        self.created = int(time.time())
        self._teams: dict[str, RegisteredTeam] = {}
        for name, factory in (teams or {}).items():
            self.add(name, factory)

    def add(self, name: str, factory: TeamFactory, description: str | None = None, *, is_listed: bool = True) -> None:
        """Offer a team under a name. The description is the first line of the factory's docstring when omitted. One
        that is not listed is found by `get`, and no client is told of it as a model.

        Raises:
            ConfigurationError: the name or the factory cannot be used, or the name is taken.
        """
        if name in self._teams:
            raise ConfigurationError(f"there are two teams of the name {name}")
        for problem in factory_problems(name, factory):
            raise ConfigurationError(f"team {name!r}: {problem}")
        self._teams[name] = RegisteredTeam.of(name, factory, description, is_listed=is_listed)

    def names(self) -> list[str]:
        """The names of those that are listed, in order."""
        return [name for name, team in self._teams.items() if team.is_listed]

    def get(self, name: str) -> RegisteredTeam:
        """The team of that name.

        Raises:
            UnknownModel: there is none; the message names those there are.
        """
        try:
            return self._teams[name]
        except KeyError:
            known = ", ".join(self.names()) or "none"
            raise UnknownModel(f"unknown model {name!r}; available: {known}", param="model") from None

    def description(self, name: str) -> str:
        """One line about a team; may be empty. Raises `UnknownModel`."""
        return self.get(name).description

    def __iter__(self) -> Iterator[str]:
        """The names of all, also of those that are not listed."""
        return iter(self._teams)

    def __contains__(self, name: object) -> bool:
        return name in self._teams

    def __len__(self) -> int:
        return len(self._teams)


def load_teams(target: str) -> dict[str, TeamFactory]:
    """Read team factories.

    Args:
        target: a path to a .py file or the name of a module, exposing `teams: dict[str, factory]` (another attribute
            after a colon: `pkg.mod:my_teams`); or a .yaml, .yml or .json file of AutoGen component configs, either
            `{"teams": {name: config}}` or `{name: config}`, or what AutoGen Studio exports (`exported`). A .py file's
            folder, or the current one for a module, is put on `sys.path`, so that it can import its neighbours.

    Raises:
        ConfigurationError: names the file or module, the team and the reason.
    """
    path, _, attribute = target.rpartition(":") if re.search(r":[A-Za-z_]\w*$", target) else (target, "", "")
    if path.endswith((".yaml", ".yml", ".json")):
        found = _read_configs(target if not attribute else path)
    else:
        found = getattr(read_module(path), attribute or "teams", None)
        if found is None:
            raise ConfigurationError(f"{path} has no `{attribute or 'teams'}`: a dict of team names and factories")
    if not isinstance(found, Mapping):
        kind = "missing" if found is None else f"a {type(found).__name__}"
        raise ConfigurationError(f"{target}: `teams` is {kind}, and must be a dict of names and factories")
    teams = cast("Mapping[object, TeamFactory]", found)
    if not teams:
        raise ConfigurationError(f"{target} has no teams")
    wrong = [f"team {name!r}: {each}" for name, factory in teams.items() for each in factory_problems(name, factory)]
    if wrong:
        raise ConfigurationError(f"{target}: {'; '.join(wrong)}")
    return cast("dict[str, TeamFactory]", dict(teams))


def factory_problems(name: object, factory: object) -> Iterable[str]:
    """Return why a team cannot be offered, one sentence each; nothing when it can. Nothing is built."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield "a name is up to 128 letters, digits and _ . : / @ + - (not first)"
    if isinstance(factory, ChatAgent | Team):
        yield (
            f"this is a {type(factory).__name__}, which all threads would share; give a function that builds one "
            "(`lambda: ...`)"
        )
    elif isinstance(factory, Mapping):
        yield from problems(_of_autogen(cast("JsonObject", factory)))
        try:
            options_of(cast("object", factory))
        except ValueError as error:
            yield str(error)
    elif not callable(factory):
        yield f"{type(factory).__name__} is neither a callable nor a component config"
    else:
        try:
            takes_context(factory)
        except TypeError as error:
            yield str(error)


def _of_autogen(config: Mapping[str, object]) -> JsonObject:
    """A component config is AutoGen's; the keys of options beside it are ours."""
    return {name: value for name, value in config.items() if name not in KEYS}


def _describe(factory: TeamFactory) -> str:
    if isinstance(factory, Mapping):
        config = cast("JsonObject", factory)
        text = config.get("description") or config["config"].get("description") or ""
    else:
        text = getattr(factory, "__doc__", None) or ""
    return str(text).strip().split("\n", 1)[0].strip()


def read_module(target: str) -> ModuleType:
    """A module by its name, or that of a .py file; see `load_teams`."""
    path = Path(target)
    if path.suffix == ".py":
        if not path.is_file():
            raise ConfigurationError(f"there is no file {target}")
        return _run_file(path.resolve())
    if path.is_file() or not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", target):
        raise ConfigurationError(f"cannot read teams from {target!r}: expected {_FORM}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(target)
    except Exception as error:
        raise _unreadable(target, error) from error


def _run_file(path: Path) -> ModuleType:
    # A name of its own per path, so that two files called teams.py do not replace each other or an installed module.
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} is not a Python file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last: a file of its own called json.py must replace nothing
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and component configs look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _unreadable(str(path), error) from error
    return module


def _unreadable(target: str, error: Exception) -> ConfigurationError:
    """Foreign code was run and may raise anything: the one error that callers know, with the cause kept."""
    return ConfigurationError(f"{target} cannot be imported: {type(error).__name__}: {why_not_imported(error)}")


def _read_configs(target: str) -> object:
    import yaml

    path = Path(target)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError(f"there is no file {target}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{target} cannot be read: {error}") from error
    try:
        data: object = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError(f"{target} is not valid {path.suffix[1:].upper()}: {reason}") from error
    if isinstance(data, Mapping):
        content = cast("JsonObject", data)
        if (parts := exported(content)) is not None:
            return _by_label(parts, path.stem)
        beside = sorted(set(content) - {"teams"})
        if isinstance(content.get("teams"), Mapping) and beside:
            raise ConfigurationError(
                f"{target}: {', '.join(beside)}: what stands beside `teams` is not read; move it in"
            )
        return content.get("teams", content)
    return data


# --- exports of AutoGen Studio ---------------------------------------------------------------------------------------


def exported(content: JsonObject) -> list[JsonObject] | None:
    """Return the teams of an export of AutoGen Studio, or its agents where it has no team; None: it is no such export.
    It is one bare component, or a gallery: its file, an older one (with `items`), or its row."""
    if isinstance(content.get("provider"), str):
        return [content]
    for outer in (content, content.get("items"), content.get("config")):
        components = cast("JsonObject", outer).get("components") if isinstance(outer, Mapping) else None
        if isinstance(components, Mapping):
            parts = cast("JsonObject", components)
            found = cast("JsonObject", outer).get("teams") or parts.get("teams") or parts.get("agents")
            if isinstance(found, list) and all(isinstance(each, Mapping) for each in cast("list[object]", found)):
                return cast("list[JsonObject]", found)
    return None


def _by_label(parts: list[JsonObject], stem: str) -> dict[str, JsonObject]:
    """Name each by its label, in letters that a model's name may have; equal ones are numbered."""
    teams: dict[str, JsonObject] = {}
    for part in parts:
        label = re.sub(r"[^\w.]+", "-", str(part.get("label") or stem)).strip("-.") or "team"
        numbered = (f"{label}-{number}" for number in count(2))
        teams[label if label not in teams else next(each for each in numbered if each not in teams)] = part
    return teams
