"""`drsai webhooks`: what was told to webhooks, one of it once more, and the secret that signs it."""

from __future__ import annotations

from functools import partial
from typing import Final

from drsai_backend.cli.database import opened
from drsai_backend.cli.screen import age, in_line, make_console, print_below, print_json, when, whose_name
from drsai_backend.database.webhook_views import DeliveryInfo, DeliveryPage
from drsai_backend.datamodel.audit import CLI
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import NotFound

_PAGE: Final = 500
_COLOURS: Final = {"pending": "yellow", "delivered": "green", "given_up": "red"}


def list_deliveries(
    user_id: str, tenant: str, limit: int, after: str | None, database_url: str | None, *, as_json: bool
) -> None:
    with opened(database_url) as drsai:
        webhooks, owner = drsai.drsai.webhooks, Owner(tenant, user_id)
        page, found = DeliveryPage(items=[], next=after), list[DeliveryInfo]()
        while len(found) < limit:
            page = drsai.wait_for(partial(webhooks.list, owner, page.next, min(limit - len(found), _PAGE)))
            found += page.items
            if page.next is None:
                break
    if as_json:
        print_json([item.model_dump(mode="json") for item in found])
        return
    console = make_console()
    if not found:
        console.print(f"{in_line(whose_name(owner))} has no webhooks here", soft_wrap=True)
    for item in found:
        console.print(
            f"[bold]{item.event_id}[/]  [{_COLOURS[item.state]}]{item.state:<9}[/]  {item.type}  {in_line(item.url)}",
            soft_wrap=True,
        )
        print_below(console, f"[dim]{in_line(_history(item))}[/]")
    if page.next is not None:
        console.print(f"[dim]There are more: --after {page.next}[/]")


def retry(event_id: str, user_id: str, tenant: str, database_url: str | None) -> None:
    with opened(database_url) as drsai:
        webhooks, owner = drsai.drsai.webhooks, Owner(tenant, user_id)
        try:
            item = drsai.wait_for(lambda: webhooks.retry(owner, event_id))
        except NotFound as error:
            raise NotFound(f"{error.message} of {whose_name(owner)} here; `drsai webhooks list` shows them") from None
    make_console().print(f"{item.event_id} is sent by the next server that looks", soft_wrap=True)


def secret(user_id: str, tenant: str, database_url: str | None) -> None:
    with opened(database_url, must_exist=False) as drsai:
        webhooks, owner = drsai.drsai.webhooks, Owner(tenant, user_id)
        made = drsai.wait_for(lambda: webhooks.make_secret(owner, actor=CLI))
    until = made.previous_until
    also = "" if until is None else f" The one before signs, too, until {when(until)}."
    make_console(stderr=True).print(
        f"It signs the webhooks of {in_line(whose_name(owner))}.{also}\n"
        "[bold]This is the only time that the secret is shown:[/]",
        soft_wrap=True,
    )
    make_console().out(made.secret.get_secret_value())


def _history(item: DeliveryInfo) -> str:
    tried = f"run {item.run_id}, made {age(item.created_at)}, {item.attempts} attempts"
    error = "" if item.error is None else f"; {item.error}"
    return tried + error + ("" if item.next_at is None else f"; again {when(item.next_at)}")
