"""The table has the built-in tools by their names: as a list, and as a workbench that component configs can name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from autogen_core.tools import StaticStreamWorkbench
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError, ToolError
from drsai_backend.explain import did_you_mean, explain
from drsai_backend.lazily import imported
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.function import tool
from drsai_backend.tools.marks import Approval, ApprovalChoice
from drsai_backend.tools.shelf import shelf

# Each module is imported when its tool is first named: some bring libraries along that others do not need.
_FUNCTIONS: Final = {
    "calculator": "builtin.calculator",
    "convert_units": "builtin.measures",
    "current_time": "builtin.measures",
}
_FACTORIES: Final = {
    "ask_person": "builtin.asking",
    "code_interpreter": "code",
    "file_reader": "builtin.files",
    "http_request": "builtin.requesting",
    "weather": "builtin.weather",
    "web_fetch": "builtin.fetching",
    "web_search": "builtin.search",
}
_SET_UP: Final = frozenset(("file_reader", "http_request", "weather", "web_fetch", "web_search"))
"""Those of which settings say something."""
_APPROVAL: Final[TypeAdapter[bool | Approval]] = TypeAdapter(ApprovalChoice)
NAMES: Final = tuple(sorted((*_FUNCTIONS, *_FACTORIES)))
"""All built-in tools."""


def builtin_tools(
    names: Sequence[str], settings: Settings | None = None, **options: Mapping[str, object]
) -> list[ToolBase]:
    """The built-in tools of these names: `builtin_tools(["calculator", "ask_person"], ask_person={"deadline": 600})`;
    in a team factory also those of the server's extensions.

    Args:
        names: of `NAMES`; in this order. A name that comes twice counts once.
        settings: where what `options` do not say comes from; default: the server's, in a team factory, else the
            environment and `.env`.
        options: by the name of a tool, the arguments of the function of that name.

    Raises:
        ConfigurationError: a name is unknown, or a tool's options cannot work; the text names it.
    """
    wanted, found = list(dict.fromkeys(names)), shelf.get()
    own: Mapping[str, ToolBase] = {} if found is None else found.own_tools
    known = (*NAMES, *own)
    for name in (*wanted, *options):
        if name not in known:
            meant = did_you_mean(name, known) or "."
            raise ConfigurationError(f"there is no built-in tool {name!r}{meant} There are: {', '.join(known)}")
    if unused := sorted(options.keys() - set(wanted)):
        raise ConfigurationError(f"options for {unused[0]!r}, which is not among the tools that are named")
    return [_made(name, own, settings, dict(options.get(name, {}))) for name in wanted]


def _made(name: str, own: Mapping[str, ToolBase], settings: Settings | None, options: Mapping[str, object]) -> ToolBase:
    if name in own or name in _FUNCTIONS:
        if options:
            raise ConfigurationError(f"{name}: it has no options")
        return own[name] if name in own else _plain(name)
    make, known = imported(f"drsai_backend.tools.{_FACTORIES[name]}:{name}"), options_of(name)
    if unknown := sorted(options.keys() - known.keys()):
        raise ConfigurationError(f"{name}: it has no option {unknown[0]!r}. It has: {', '.join(known)}")
    for option, value in options.items():
        if isinstance(value, bool) and type(known[option].default) in (int, float):
            raise ConfigurationError(f"{name}: {option} must be a number")
    try:
        if isinstance(who := options.get("requires_approval"), Mapping):
            options = {**options, "requires_approval": _APPROVAL.validate_python(who)}
        return make(**{**_of_settings(name, settings), **options})
    except ValidationError as error:
        raise ConfigurationError(f"{name}: requires_approval: {next(explain(error)).text}") from None
    except (ConfigurationError, ValueError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{name}: {error}") from None


def options_of(name: str) -> Mapping[str, inspect.Parameter]:
    """Return the options of a tool of `NAMES`, by their names."""
    module = _FACTORIES.get(name)
    return {} if module is None else inspect.signature(imported(f"drsai_backend.tools.{module}:{name}")).parameters


@functools.cache
def _plain(name: str) -> ToolBase:
    return tool(idempotent=True)(_said(imported(f"drsai_backend.tools.{_FUNCTIONS[name]}:{name}")))


def _of_settings(name: str, settings: Settings | None) -> dict[str, object]:
    """The options of a tool that the settings say."""
    if name not in _SET_UP:
        return {}
    found = shelf.get()
    known = settings or (None if found is None else found.settings) or Settings()
    options: dict[str, dict[str, object]] = {
        "file_reader": {"folders": known.file_folders},
        "http_request": {"allowed_addresses": known.allowed_addresses},
        "weather": {"url": known.weather_url, "geocoding_url": known.geocoding_url},
        "web_fetch": {"allowed_addresses": known.allowed_addresses},
        "web_search": {
            "provider": known.search_provider,
            "url": known.search_url,
            "key_env": known.search_key_env,
            "engine_id": known.search_engine_id,
        },
    }
    return {key: value for key, value in options[name].items() if value is not None}


def _said(function: Callable[..., str]) -> Callable[..., str]:
    """The function, with the texts of its errors for the model."""

    @functools.wraps(function)
    def saying(*args: object, **kwargs: object) -> str:
        try:
            return function(*args, **kwargs)
        except ValueError as error:
            raise ToolError(str(error)) from None

    return saying


class BuiltinToolsConfig(BaseModel):
    """The config of `BuiltinTools`."""

    model_config = ConfigDict(extra="forbid")

    names: list[str]
    options: dict[str, dict[str, object]] = {}


class BuiltinTools(StaticStreamWorkbench):
    """A workbench of built-in tools, which a component config can name::

        provider: drsai_backend.BuiltinTools
        config: {names: [calculator, web_search], options: {web_search: {count: 3}}}

    Args:
        names: of the tools.
        options: by the name of a tool, its options; see `builtin_tools`.
        settings: where the rest comes from; default: as of `builtin_tools`.

    Raises:
        ConfigurationError: see `builtin_tools`.
    """

    component_config_schema = BuiltinToolsConfig  # pyright: ignore[reportAssignmentType]
    component_provider_override = "drsai_backend.BuiltinTools"

    def __init__(
        self,
        names: Sequence[str],
        options: Mapping[str, Mapping[str, object]] | None = None,
        *,
        settings: Settings | None = None,
    ) -> None:
        self._names = list(names)
        self._options = {name: dict(each) for name, each in (options or {}).items()}
        super().__init__([*builtin_tools(self._names, settings, **self._options)])

    def _to_config(self) -> BuiltinToolsConfig:  # pyright: ignore[reportIncompatibleMethodOverride]
        return BuiltinToolsConfig(names=self._names, options=self._options)

    @classmethod
    def _from_config(cls, config: BuiltinToolsConfig) -> BuiltinTools:  # pyright: ignore[reportIncompatibleMethodOverride]
        return cls(config.names, config.options)
