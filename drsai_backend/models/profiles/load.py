"""Loading takes profiles out of a YAML or JSON file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import cast

from pydantic import ValidationError

from drsai_backend.errors import ConfigurationError
from drsai_backend.explain import Wrong, explain
from drsai_backend.json_types import JsonObject
from drsai_backend.models.profiles.schema import KEYS, Profile, Profiles

_MAX_BYTES = 1024 * 1024


def load_profiles(path: Path | None, overrides: Mapping[str, object] = MappingProxyType({})) -> Profiles:
    """The profiles of a file: YAML, or JSON where its name ends in `.json`; None: there are none.

    Args:
        overrides: `profiles` and `default`, which win over those of the file. They may come from others than those who
            write files here, so they send no key to an address of their own: see `_problem`.

    Raises:
        ConfigurationError: it cannot be read, or a field cannot be used; the message names file and field.
    """
    content = None if path is None else read_document(path, "DRSAI_MODELS")
    profiles = profiles_of(content, str(path))
    if not overrides:
        return profiles
    where = "DRSAI_PROFILE_OVERRIDES"
    if others := overrides.keys() - {"profiles", "default"}:
        raise ConfigurationError(f"{where}: {min(others)}: there is no such field, but `profiles` and `default`")
    file, own = cast("JsonObject", content or {}), overrides.get("profiles", {})
    if isinstance(own, dict):
        own = {**file.get("profiles", {}), **cast("JsonObject", own)}
    found = profiles_of({**file, **overrides, "profiles": own}, where)
    for name, each in found.profiles.items():
        if each != profiles.profiles.get(name) and (problem := _problem(each, profiles.profiles.values())) is not None:
            raise ConfigurationError(f"{where}: profiles.{name}.{problem}")
    return found


def _problem(own: Profile, of_file: Iterable[Profile]) -> str | None:
    """Return the field of a profile that no file has which may not be so, and why; None: there is none. A key goes to
    its provider alone, or to where a profile of the file sends it."""
    known = {(each.provider, each.endpoint, each.key_env) for each in of_file}
    if (own.provider, own.endpoint, own.key_env) not in known:
        if own.key_env is not None and own.key_env not in KEYS.values():
            return "key_env: no profile of the file has its key there"
        if own.endpoint is not None and (own.key_env is not None or own.provider in KEYS):
            return "endpoint: no profile of the file sends its key there"
    hidden = {"extra_headers", "extra_query"}.intersection(own.parameters)
    return f"parameters: {min(hidden)} may hold a secret: give it in the file" if hidden else None


def read_document(path: Path, setting: str) -> object:
    """Return what a file says: YAML, or JSON where its name ends in `.json`.

    Raises:
        ConfigurationError: it cannot be read; the message begins with the setting that names it.
    """
    import yaml

    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigurationError(f"{setting}: {path} is larger than 1 MiB")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{setting}: {path} cannot be read: {reason}") from None
    try:
        content: object = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except ValueError as error:
        raise ConfigurationError(f"{setting}: {path} is no JSON: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise ConfigurationError(f"{setting}: {path} is no YAML{where}") from None
    return content


def keys_of(profiles: Profiles) -> list[str]:
    """The keys that the environment has for these profiles and for all providers, as they must never be shown."""
    variables = {*KEYS.values(), *(each.key_env for each in profiles.profiles.values())} - {None}
    found = (os.environ.get(str(name), "").strip() for name in sorted(map(str, variables)))
    return [key for key in found if key]


def profiles_of(content: object, where: str = "profiles") -> Profiles:
    """The profiles of what was read already.

    Raises:
        ConfigurationError: a field cannot be used; the message names it, after `where`.
    """
    try:
        return Profiles.model_validate({} if content is None else content)
    except ValidationError as error:
        raise ConfigurationError(f"{where}: {'; '.join(map(_named, explain(error)))}") from None


def _named(wrong: Wrong) -> str:
    field, text = wrong.place, wrong.text
    if wrong.type == "extra_forbidden":
        near = " (a key is named by `key_env`, the variable that it is in)" if "key" in field.rpartition(".")[2] else ""
        return f"{field}: there is no such field{near}"
    own, _, rest = text.partition(": ")
    if wrong.type == "value_error" and rest and " " not in own:  # It names the field itself.
        return f"{field}.{text}" if field else text
    return f"{field or 'the file'}: {text}"
