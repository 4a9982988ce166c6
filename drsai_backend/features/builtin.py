"""The list of the features that come along. It imports none: `drsai --help` needs their commands and nothing else."""

from __future__ import annotations

import importlib
from typing import Any, Final, NamedTuple


class Builtin(NamedTuple):
    """A feature of this package.

    Attributes:
        group: the noun of its commands; features of one noun add to each other's, and the first says what it is.
        commands: the `typer.Typer` of its commands, as `package.module:attribute`.
        extension: its class, written in the same way. None: the core does it.
    """

    group: str
    commands: str
    extension: str | None = None


BUILTIN: Final = (
    Builtin("threads", "drsai_backend.cli.threads:app"),
    Builtin("threads", "drsai_backend.cli.steps:app"),
    Builtin("threads", "drsai_backend.cli.travel:app"),
    Builtin("threads", "drsai_backend.cli.steering:app"),
    Builtin("threads", "drsai_backend.cli.shares:app"),
    Builtin("threads", "drsai_backend.cli.archive:app"),
    Builtin("agents", "drsai_backend.cli.agents:app"),
    Builtin("files", "drsai_backend.cli.files:app"),
    Builtin("tools", "drsai_backend.cli.tools:app"),
    Builtin("keys", "drsai_backend.cli.keys:app"),
    Builtin("users", "drsai_backend.cli.users:app"),
    Builtin("audit", "drsai_backend.features.audit.commands:app", "drsai_backend.features.audit.extension:Audit"),
    Builtin("webhooks", "drsai_backend.cli.webhooks:app"),
    Builtin("db", "drsai_backend.cli.schema:app"),
)
"""In the order of the help."""


def imported(target: str) -> Any:
    """Return what `package.module:attribute` names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
