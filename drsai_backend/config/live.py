"""Live settings may change while a process runs: what is stored for its environment wins over what it began with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue, ValidationError

from drsai_backend.config.settings import Settings
from drsai_backend.errors import InvalidRequest
from drsai_backend.explain import did_you_mean, explain
from drsai_backend.json_types import as_object

LIVE: Final = (
    "log_level",
    "max_turns",
    "max_run_seconds",
    "max_run_tokens",
    "client_tools",
    "on_disconnect",
    "on_question",
    "engine_mode",
    "engine_steps",
    "task_model",
    "task_seconds",
    "tool_timeouts",
    "profile_overrides",
    "price_overrides",
    "retention_days",
    "retention",
    "limit_process_runs",
    "limit_key",
    "limit_user",
    "limit_tenant",
    "limit_all",
    "budget_key",
    "budget_user",
    "budget_tenant",
    "budget_all",
    "budget_thread",
    "budget_message",
)
"""Settings that are read where they are used, or that somebody hears of. All others are read once, at the start."""


def read_live(name: str, value: object) -> JsonValue:
    """Return the value of a live setting as it is stored: JSON.

    Args:
        name: of the setting, as in `Settings`.
        value: as it is, or as its variable has it.

    Raises:
        InvalidRequest: there is no such setting, it needs a restart, or it cannot have that value; `param` is its name.
    """
    return _with(name, value).model_dump(mode="json", include={name})[name]


def read_environment(name: str) -> str:
    """Return the name of an environment. Raises InvalidRequest: no process can have it."""
    try:
        Settings.__pydantic_validator__.validate_assignment(Settings.model_construct(), "environment", name)
    except ValidationError as error:
        raise InvalidRequest(f"environment: {next(explain(error)).text}", param="environment") from None
    return name


def check_live(name: str) -> None:
    """Raise InvalidRequest where there is no such setting, or it needs a restart; `param` is its name."""
    if name not in LIVE:
        if name in Settings.model_fields:
            variable = f"DRSAI_{name.upper()}"
            raise InvalidRequest(f"{name} is read at the start: set {variable}, and restart the servers", param=name)
        raise InvalidRequest(f"there is no setting {name!r}{did_you_mean(name, Settings.model_fields)}", param=name)


def _with(name: str, value: object) -> Settings:
    """Return settings of which only that one counts. Errors as those of `read_live`."""
    check_live(name)
    if name != "profile_overrides" and _has_flag(value):  # A number may be given as text, and true is none.
        raise InvalidRequest(f"{name}: must not be, or hold, true or false", param=name)
    made = Settings.model_construct()
    try:
        Settings.__pydantic_validator__.validate_assignment(made, name, value)
    except ValidationError as error:
        raise InvalidRequest(f"{name}: {next(explain(error)).text}", param=name) from None
    return made


def _has_flag(value: object) -> bool:
    return isinstance(value, bool) or any(map(_has_flag, as_object(value).values()))


class LiveSettings:
    """The live settings of a process.

    Args:
        settings: those that it began with. What reads them has the values that hold now.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings, self._began = settings, settings.model_copy()

    def take(self, stored: Mapping[str, JsonValue]) -> set[str]:
        """Have stored values hold, and what the process began with where there is none.

        Returns:
            The names of what has changed.

        Raises:
            InvalidRequest: as `read_live`.
        """
        values = {name: getattr(self._began, name) for name in LIVE}
        values |= {name: getattr(_with(name, value), name) for name, value in stored.items()}
        changed = {name for name, value in values.items() if getattr(self._settings, name) != value}
        for name in changed:
            setattr(self._settings, name, values[name])
        return changed
