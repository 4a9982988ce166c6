"""The commands of `drsai knowledge` fill, search and empty stores of knowledge."""

from __future__ import annotations

import typer

from drsai_backend.cli.verbs import Verbs

app = typer.Typer(cls=Verbs, help="Keep documents that agents search.", no_args_is_help=True)
