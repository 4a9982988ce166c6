"""`drsai webhooks`, as it can be typed."""

from __future__ import annotations

from typing import Annotated

import typer

from drsai_backend import cli
from drsai_backend.cli.commands.options import AsJson, DatabaseUrl, Tenant

webhooks_app = typer.Typer(help="Look at what webhooks were told, repeat it, make the secret.", no_args_is_help=True)

OfUser = Annotated[str, typer.Option(metavar="NAME", help="Whose webhooks.")]


@webhooks_app.command("list")
def webhooks_list(
    user: OfUser,
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 50,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Those before this one.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the events for a user's webhooks, newest first: where to, how often they were sent, why that failed."""
    cli.webhooks.list_deliveries(user, tenant, limit, after, database_url, as_json=as_json)


@webhooks_app.command("retry")
def webhooks_retry(
    delivery: Annotated[str, typer.Argument(metavar="EVENT", help="`evt_…`, as `list` shows it.")],
    user: OfUser,
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Have a server send an event now, and repeat it as a new one, whatever has become of it."""
    cli.webhooks.retry(delivery, user, tenant, database_url)


@webhooks_app.command("secret")
def webhooks_secret(user: OfUser, tenant: Tenant = "default", database_url: DatabaseUrl = None) -> None:
    """Make the secret that signs a user's webhooks, or another one in its place, and print it, this one time.

    For a day the one before signs, too.
    """
    cli.webhooks.secret(user, tenant, database_url)
