"""The commands of `drsai usage` show what model calls have used and cost, and fold old ones into sums of days."""

from __future__ import annotations

import csv
import math
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import opened
from drsai_backend.cli.options import AsJson, DatabaseUrl, Yes
from drsai_backend.cli.screen import confirm, in_utc, make_console, one_line, print_json, read_duration, tell, warn
from drsai_backend.cli.verbs import ListedAlone
from drsai_backend.features.usage.base import GROUPS, UNITS, Counted, GroupBy, UsageSum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drsai_backend.page import Page

app = typer.Typer(cls=ListedAlone, no_args_is_help=False, help="Look at what model calls have used and cost.")

_BAR: Final = 12
"""Characters of the longest bar."""
Only = typer.Option(metavar="NAME", help="Only of this one.")


@app.command("list")
def list_usage(
    by: Annotated[
        str, typer.Option(metavar="GROUPS", help=f"By what it is summed, with commas: {', '.join(GROUPS)}.")
    ] = "day",
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only this one's. [default: all]")] = None,
    user: Annotated[str | None, Only] = None,
    model: Annotated[str | None, Only] = None,
    team: Annotated[str | None, Only] = None,
    thread: Annotated[str | None, Only] = None,
    run: Annotated[str | None, Only] = None,
    kind: Annotated[str | None, Only] = None,
    since: Annotated[datetime | None, typer.Option("--from", help="Only from then on, UTC.")] = None,
    until: Annotated[datetime | None, typer.Option("--to", help="Only before then, UTC.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="How many sums at most. [default: 100; with --csv all]")
    ] = None,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Those behind this one.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a table for programs, with all columns.")] = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show what model calls have used and cost. `drsai usage` alone is the same."""
    groups = cast("list[GroupBy]", [each.strip() for each in by.split(",") if each.strip()])
    begin, end = in_utc(since), in_utc(until)
    of = Counted(
        since=begin, until=end, tenant=tenant, user=user, model=model, team=team, thread=thread, run=run, kind=kind
    )  # fmt: skip
    with opened(database_url) as drsai:
        most = limit or (math.inf if as_csv else 100)
        found = lists.read(lambda after, many: drsai.usage.report(of, groups, after, many), after, most)
    if as_csv:
        _write(found, groups)
    elif as_json:
        print_json(found.items)
    elif not found.items:
        make_console().print("no model calls are counted here", soft_wrap=True)
    else:
        _print(found)


@app.command()
def prices(database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show what models cost per million tokens, as calls are counted from now on."""
    from rich import box
    from rich.table import Table

    with opened(database_url) as drsai:
        known = drsai.usage.prices
    if as_json:
        print_json(known)
        return
    columns = ("prompt", "cached", "cache_write", "completion")
    table = Table(box=box.SIMPLE_HEAD, title=f"{known.currency} per million tokens")
    for name in ("model", "profile", "from"):
        table.add_column(name, overflow="fold")
    for name in columns:
        table.add_column(name, justify="right")
    for each in known.prices:
        amounts = (getattr(each, name) for name in columns)
        shown = ("" if amount is None else f"{amount:g}" for amount in amounts)
        table.add_row(one_line(each.model), one_line(each.profile or ""), str(each.since or ""), *shown)
    make_console().print(table)


@app.command()
def fold(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Older than that: `90d`, `52w`.")],
    database_url: DatabaseUrl = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make sums of days of old calls. What a sum no longer says are thread, run, turn, agent and tool."""
    age = read_duration(older_than, "older_than")
    with opened(database_url) as drsai:
        confirm(f"Fold the model calls that are older than {older_than} into sums of days?", yes=yes)
        folded = drsai.usage.fold(age)
    tell(f"folded {folded} {'call' if folded == 1 else 'calls'}", {"folded": folded}, as_json=as_json)


def _groups(item: UsageSum) -> list[GroupBy]:
    return [name for name in GROUPS if getattr(item, name) is not None]


def _write(page: Page[UsageSum], groups: Sequence[GroupBy]) -> None:
    """Print sums as CSV. A cost has all its digits, and no letter."""
    table = csv.writer(sys.stdout)
    others = {"id", *GROUPS}.difference(groups, ["run"] if "turn" in groups else [])
    names = [name for name in UsageSum.model_fields if name not in others]
    table.writerow(names)
    for item in page.items:
        row = {**item.model_dump(mode="json"), "cost": "" if item.cost is None else f"{item.cost:.8f}"}
        table.writerow([row[name] for name in names])
    if page.next is not None:
        warn(f"there are more: --after {page.next}")


def _print(page: Page[UsageSum]) -> None:
    """Print sums as a table, each with a bar: of what it cost, or of its tokens where nothing has a price."""
    from rich import box
    from rich.table import Table

    items = page.items
    table = Table(box=box.SIMPLE_HEAD)
    for name in _groups(items[0]):
        table.add_column(name, min_width=10, overflow="fold")
    for name in ("calls", "prompt", "cached", "completion", f"cost {items[0].currency}"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    is_priced = any(each.cost for each in items)
    sizes = [each.cost or 0.0 if is_priced else float(each.total_tokens) for each in items]
    most = max(sizes) or 1.0
    for item, size in zip(items, sizes, strict=True):
        counts = (item.calls, item.prompt_tokens, item.cached_tokens, item.completion_tokens)
        names = (one_line(str(getattr(item, name))) or "-" for name in _groups(items[0]))
        table.add_row(*names, *(f"{count:,}" for count in counts), _cost(item), _bar(size / most))
    console = make_console()
    console.print(table)
    unpriced = sum(each.unpriced_calls for each in items)
    total = sum(round((each.cost or 0) * UNITS) for each in items) / UNITS
    text = f"{sum(each.calls for each in items):,} calls, {sum(each.total_tokens for each in items):,} tokens"
    text += f", {total:,.6f} {items[0].currency}" if is_priced else ""
    text += f"; of {unpriced:,} calls no price is known, see `drsai usage prices`" if unpriced else ""
    console.print(text, soft_wrap=True)
    if page.next is not None:
        console.print(f"[dim]There are more: --after {page.next}[/]", soft_wrap=True)


def _cost(item: UsageSum) -> str:
    if item.cost is None:
        return "unknown"
    return f"{item.cost:,.6f}{'+' if item.unpriced_calls else ''}"


def _bar(share: float) -> str:
    """A bar in eighths of a character."""
    eighths = round(share * _BAR * 8)
    return "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]
