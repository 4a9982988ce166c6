"""Built-in tools in component configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from autogen_core.tools import StaticStreamWorkbench
from pydantic import BaseModel, ConfigDict

from drsai_backend.config import Settings
from drsai_backend.tools.builtin.table import builtin_tools


class BuiltinToolsConfig(BaseModel):
    """The config of `BuiltinTools`."""

    model_config = ConfigDict(extra="forbid")

    names: list[str]
    options: dict[str, dict[str, Any]] = {}


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
        options: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        settings: Settings | None = None,
    ) -> None:
        self._names = list(names)
        self._options = {name: dict(each) for name, each in (options or {}).items()}
        super().__init__(cast("list[Any]", builtin_tools(self._names, settings, **self._options)))

    def _to_config(self) -> BuiltinToolsConfig:  # pyright: ignore[reportIncompatibleMethodOverride]
        return BuiltinToolsConfig(names=self._names, options=self._options)

    @classmethod
    def _from_config(cls, config: BuiltinToolsConfig) -> BuiltinTools:  # pyright: ignore[reportIncompatibleMethodOverride]
        return cls(config.names, config.options)
