"""The groups of `drsai`: its own, and those of extensions, which are imported when one of them is meant."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from drsai_backend.cli.screen import print_error
from drsai_backend.errors import ConfigurationError, DrSaiError


class Groups(TyperGroup):
    """`drsai`, with the commands of the extensions that the settings name."""

    def list_commands(self, ctx: Any) -> list[str]:
        known, own = super().list_commands(ctx), dict[str, str]()
        try:
            own = _of_extensions()
        except DrSaiError as error:
            print_error(error.message)  # The help is shown nevertheless.
        return [*known, *(name for name in own if name not in known)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if (found := super().get_command(ctx, cmd_name)) is not None:
            return found
        if (target := _of_extensions().get(cmd_name)) is None:
            return None
        module, _, attribute = target.partition(":")
        app = getattr(importlib.import_module(module), attribute, None)
        if not isinstance(app, typer.Typer):
            raise ConfigurationError(f"{target}, the commands of the extension {cmd_name}, is no `typer.Typer`")
        group = typer.main.get_group(app)
        group.name = cmd_name
        return group


def _of_extensions() -> dict[str, str]:
    """By name, where the commands of extensions are. Without any, nothing heavy is imported."""
    if "DRSAI_EXTENSIONS" not in os.environ and not Path(".env").exists():
        return {}
    from drsai_backend.config import Settings

    settings = Settings(require_model=False)
    if not settings.extensions:
        return {}
    from drsai_backend.features.extensions import kinds_of

    return {kind.name: kind.commands for kind in kinds_of(settings) if kind.commands is not None}
