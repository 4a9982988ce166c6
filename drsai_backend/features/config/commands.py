"""The commands of `drsai config` show stored settings, and change them without a restart."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import opened
from drsai_backend.cli.options import AsJson, DatabaseUrl
from drsai_backend.cli.screen import in_line, make_console, one_line, print_json, tell, when
from drsai_backend.cli.verbs import Verbs, WrongWords
from drsai_backend.errors import InvalidRequest

if TYPE_CHECKING:
    from rich.console import Console

    from drsai_backend.features.config.base import ConfigInfo

app = typer.Typer(
    cls=Verbs, help="Change settings without a restart; see what was changed, and take it back.", no_args_is_help=True
)

Setting = Annotated[str, typer.Argument(metavar="NAME", help="Such as `max_turns`: DRSAI_MAX_TURNS.")]
OfEnvironment = Annotated[
    str | None, typer.Option("--environment", "-e", metavar="NAME", help="[default: DRSAI_ENVIRONMENT, `default`]")
]


@app.command()
def get(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this one.")] = None,
    environment: OfEnvironment = None,
    every: Annotated[bool, typer.Option("--all", help="What can be stored as well, with what it is.")] = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show what is stored. What is not, servers have from their variables."""
    from drsai_backend.config.live import check_live

    if name is not None:
        with _typed(name):
            check_live(name)
    with opened(database_url) as drsai:
        found = drsai.config.get(environment)
    values = found.values if name is None else {name: found.values.get(name)}
    if as_json:
        print_json(found if name is None else values)
        return
    console = make_console()
    for each, value in sorted(values.items()):
        console.out(one_line(f"{each} = {'(not stored)' if value is None else json.dumps(value)}"), highlight=False)
    if not values:
        console.print(f"nothing is stored for {in_line(found.environment)}", soft_wrap=True)
    if every:
        _print_others(console, found)


@app.command("set")
def set_setting(
    name: Setting,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="As its variable has it.")],
    environment: OfEnvironment = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Store a setting. Servers and workers of the environment go by it within two seconds."""
    _change({name: value}, environment, database_url, as_json=as_json)


@app.command()
def unset(
    name: Setting, environment: OfEnvironment = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Store a setting no more: servers have it from their variables again."""
    _change({name: None}, environment, database_url, as_json=as_json)


@app.command()
def history(
    environment: OfEnvironment = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 50,
    after: Annotated[str | None, typer.Option(metavar="VERSION", help="Those before this one.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what was changed, when and by whom, the newest first."""
    from drsai_backend.page import Page

    with opened(database_url) as drsai:
        there = drsai.config.get(environment)
        # The environment that is in use here is there before anything is stored for it.
        if there.version == 0 and environment is None:
            found: Page[ConfigInfo] = Page(items=[])
        else:
            found = lists.read(lambda after, many: drsai.config.history(environment, after, many), after, limit)
    empty = f"nothing is stored for {in_line(there.environment)}"
    lists.show(found, _print, as_json=as_json, empty=empty)


@app.command()
def rollback(
    to: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="As `history` shows it.")],
    environment: OfEnvironment = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Have all settings of an older version hold again, as a new version."""
    with opened(database_url) as drsai:
        made = drsai.config.roll_back(to, environment, actor=drsai.who.actor)
    tell(f"{in_line(made.environment)} is version {made.version}, equal to {to}", made, as_json=as_json)


@app.command()
def remove(
    environment: Annotated[str, typer.Argument(metavar="ENVIRONMENT", help="Another one than DRSAI_ENVIRONMENT.")],
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Delete all that was stored for an environment, its history included."""
    with opened(database_url) as drsai:
        drsai.config.delete(environment, actor=drsai.who.actor)
    tell(f"{in_line(environment)} is removed", {"environment": environment, "deleted": True}, as_json=as_json)


@contextmanager
def _typed(*settings: str) -> Generator[None]:
    """Surround what takes settings and their values as they were typed. Raises WrongWords: one cannot be."""
    try:
        yield
    except InvalidRequest as error:
        raise (WrongWords(error.message) if error.param in settings else error) from None


def _change(values: dict[str, str | None], environment: str | None, database_url: str | None, *, as_json: bool) -> None:
    with opened(database_url) as drsai, _typed(*values):
        made = drsai.config.set(values, environment, actor=drsai.who.actor)
    text = f"{in_line(made.environment)} is version {made.version}; servers go by it within two seconds"
    tell(text if made.version else f"nothing is stored for {in_line(made.environment)}", made, as_json=as_json)


def _print_others(console: Console, found: ConfigInfo) -> None:
    from drsai_backend.config.live import LIVE
    from drsai_backend.config.settings import Settings

    for each in LIVE:
        if each not in found.values:
            console.print(f"[dim]{each}  {in_line(Settings.model_fields[each].description or '')}[/]", soft_wrap=True)


def _print(console: Console, info: ConfigInfo) -> None:
    changed = ", ".join(
        f"{name} unset" if value is None else f"{name} = {json.dumps(value)}" for name, value in info.changed.items()
    )
    made = "" if info.restores is None else f" (version {info.restores} again)"
    told = f"[bold]{info.version}[/]{made}: {in_line(changed)}"
    console.print(
        f"{told}  [dim]{'' if info.set_at is None else when(info.set_at)} {in_line(info.set_by)}[/]", soft_wrap=True
    )
