"""The commands of `drsai switches` show what is switched off, and switch it off and on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, cast

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import opened
from drsai_backend.cli.options import AsJson, DatabaseUrl
from drsai_backend.cli.screen import in_line, read_duration, tell, warn, when
from drsai_backend.cli.verbs import ListedAlone
from drsai_backend.explain import did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

    from drsai_backend.access.switchboard import SwitchKind
    from drsai_backend.features.switches.base import SwitchInfo

app = typer.Typer(
    cls=ListedAlone,
    no_args_is_help=False,
    help="Refuse new runs of a team, a tenant or all, or calls of a model or a tool; drain a worker.",
)

OfKind = Annotated[str, typer.Argument(metavar="KIND", help="`team`, `model`, `tool`, `tenant`, `all`, or `worker`.")]
Name = Annotated[str, typer.Argument(metavar="[NAME]", help="Of the team, model, tool, tenant or worker (`pid@host`).")]
InTenant = Annotated[str | None, typer.Option("--tenant", metavar="TENANT", help="In this one alone. [default: all]")]


@app.command("list")
def list_switches(
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only what is off in this one alone.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 50,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Those before this one.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what is switched off, the newest first. `drsai switches` alone is the same."""
    with opened(database_url) as drsai:
        found = lists.read(lambda after, many: drsai.switches.list(tenant, after, many), after, limit)
    lists.show(found, _print, as_json=as_json, empty="nothing is switched off")


@app.command()
def off(
    kind: OfKind,
    name: Name = "",
    message: Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="What who asks is told.")] = "",
    tenant: InTenant = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="On again by itself after `30m`, `2h`, `1d`. [default: never]")
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Switch something off, with a message for who asks for it.

    Servers go by it within two seconds. Runs under way are left alone, and what waits in queues runs in its turn.
    """
    from drsai_backend.runs.recovery.leases import shown_worker

    end = None if until is None else _ahead(until)
    with opened(database_url) as drsai:
        of = cast("SwitchKind", kind)
        made = drsai.switches.off(of, name, message=message, tenant=tenant, until=end, actor=drsai.who.actor)
        known = {shown_worker(each.worker) for each in drsai.all_runs.board(1).workers} if kind == "worker" else {name}
    if name not in known:  # It may come, or come back.
        near = did_you_mean(name, known) or "; `drsai top` shows those there are"
        warn(f"no worker {name} is there now{near}")
    tell(f"{_what(made)} is off{_until(made)}", made, as_json=as_json)


@app.command()
def on(
    kind: OfKind,
    name: Name = "",
    tenant: InTenant = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Switch something on again, as it was switched off: with the same --tenant, if any."""
    with opened(database_url) as drsai:
        done = drsai.switches.on(cast("SwitchKind", kind), name, tenant=tenant, actor=drsai.who.actor)
    text = "is on again" if done else "was not off"
    tell(f"{in_line(f'{kind} {name}'.strip())} {text}", {"switched_on": done}, as_json=as_json)


def _ahead(text: str) -> datetime:
    """Return the moment after a time. Raises InvalidRequest: it is none."""
    from drsai_backend.errors import InvalidRequest

    try:
        return datetime.now(UTC) + read_duration(text, "until")
    except OverflowError:
        raise InvalidRequest(f"--until {text}: that is too long", param="until") from None


def _print(console: Console, info: SwitchInfo) -> None:
    told = f"[bold]{_what(info)}[/]{_until(info)}: {in_line(info.message)}"
    console.print(f"{told}  [dim]since {when(info.set_at)}[/]", soft_wrap=True)


def _what(info: SwitchInfo) -> str:
    name = f"{info.kind} {info.name}".strip()
    return in_line(name if info.tenant in ("", info.name) else f"{name} (in tenant {info.tenant})")


def _until(info: SwitchInfo) -> str:
    return "" if info.until is None else f" until {when(info.until)}"
