"""The list of the features that come along. It imports none: `drsai --help` needs their commands and nothing else."""

from __future__ import annotations

from typing import Final, NamedTuple


class Builtin(NamedTuple):
    """A feature of this package.

    Attributes:
        extension: its class, as `package.module:Class`.
        commands: the `typer.Typer` of its commands, written in the same way; None: it has none.
    """

    extension: str
    commands: str | None = None


BUILTIN: Final[tuple[Builtin, ...]] = ()
