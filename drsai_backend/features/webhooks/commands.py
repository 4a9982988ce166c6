"""The commands of `drsai webhooks` show and repeat what webhooks were told, and make the secret that signs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import elsewhere, missing, opened, owner_of
from drsai_backend.cli.options import AsJson, DatabaseUrl, Tenant
from drsai_backend.cli.screen import age, in_line, make_console, print_below, print_json, tell, when, whose_name
from drsai_backend.cli.verbs import Verbs

if TYPE_CHECKING:
    from rich.console import Console

    from drsai_backend.database.webhook_views import DeliveryInfo

app = typer.Typer(cls=Verbs, help="Look at what webhooks were told, repeat it, make the secret.", no_args_is_help=True)

OfUser = Annotated[str, typer.Option(metavar="NAME", help="Whose webhooks.")]
_COLOURS: Final = {"pending": "yellow", "delivered": "green", "given_up": "red"}


@app.command("list")
def list_deliveries(
    user: OfUser,
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 50,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Those before this one.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the events for a user's webhooks, newest first: where to, how often they were sent, why that failed."""
    owner = owner_of(tenant, user)
    with opened(database_url) as drsai:
        webhooks = drsai.drsai.webhooks
        found = lists.read(lambda after, many: drsai.wait_for(lambda: webhooks.list(owner, after, many)), after, limit)
    empty = f"{in_line(whose_name(owner))} has no webhooks here"
    lists.show(found, _print, as_json=as_json, empty=empty)


@app.command()
def retry(
    delivery: Annotated[str, typer.Argument(metavar="EVENT", help="`evt_…`, as `list` shows it.")],
    user: OfUser,
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Have a server send an event now, and repeat it as a new one, whatever has become of it."""
    owner = owner_of(tenant, user)
    with (
        opened(database_url) as drsai,
        missing(after=f" of {whose_name(owner)}{elsewhere('webhooks', owner)}"),
    ):
        item = drsai.wait_for(lambda: drsai.drsai.webhooks.retry(owner, delivery))
    tell(f"{item.event_id} is sent by the next server that looks", item, as_json=as_json)


@app.command()
def secret(user: OfUser, tenant: Tenant = "default", database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Make the secret that signs a user's webhooks, or another one in its place, and print it, this one time.

    For a day the one before signs, too.
    """
    from drsai_backend.datamodel.audit import CLI

    owner = owner_of(tenant, user)
    with opened(database_url, must_exist=False) as drsai:
        made = drsai.wait_for(lambda: drsai.drsai.webhooks.make_secret(owner, actor=CLI))
    until = made.previous_until
    if as_json:
        print_json({"secret": made.secret.get_secret_value(), "previous_until": until and until.isoformat()})
        return
    also = "" if until is None else f" The one before signs, too, until {when(until)}."
    make_console(stderr=True).print(
        f"It signs the webhooks of {in_line(whose_name(owner))}.{also}\n"
        "[bold]This is the only time that the secret is shown:[/]",
        soft_wrap=True,
    )
    make_console().out(made.secret.get_secret_value())


def _print(console: Console, item: DeliveryInfo) -> None:
    state = f"[{_COLOURS[item.state]}]{item.state:<9}[/]"
    console.print(f"[bold]{item.event_id}[/]  {state}  {item.type}  {in_line(item.url)}", soft_wrap=True)
    print_below(console, f"[dim]{in_line(_history(item))}[/]")


def _history(item: DeliveryInfo) -> str:
    tried = f"run {item.run_id}, made {age(item.created_at)}, {item.attempts} attempts"
    error = "" if item.error is None else f"; {item.error}"
    return tried + error + ("" if item.next_at is None else f"; again {when(item.next_at)}")
