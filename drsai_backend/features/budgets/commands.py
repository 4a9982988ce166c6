"""The commands of `drsai budgets` show, set and remove what keys, users, threads, tenants and all may spend."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, cast

import typer

from drsai_backend.cli.database import opened
from drsai_backend.cli.options import AsJson, DatabaseUrl
from drsai_backend.cli.screen import tell
from drsai_backend.cli.verbs import ListedAlone
from drsai_backend.features.rules.commands import (
    After,
    HowMany,
    OfTenant,
    OnlyTenant,
    list_rules,
    remove_rule,
    whose,
)

if TYPE_CHECKING:
    from drsai_backend.features.budgets.base import BudgetInfo
    from drsai_backend.features.rules.base import Kind

app = typer.Typer(
    cls=ListedAlone, no_args_is_help=False, help="Set how many tokens, and how much money, somebody may spend."
)

Tokens = typer.Option(metavar="N", help="0: no budget. [default: as the settings say]")
Cost = typer.Option(metavar="AMOUNT", help="In the currency of the prices. 0: no budget.")
OfAnyKind = Annotated[str, typer.Argument(metavar="KIND", help="`key`, `user`, `thread`, `tenant`, or `all` together.")]
AnyName = Annotated[
    str, typer.Argument(metavar="[NAME]", help="The id of the key, or the user; of a thread `USER/THREAD`.")
]
_verbs = attrgetter("budgets")


@app.command("list")
def list_budgets(
    tenant: OnlyTenant = None,
    limit: HowMany = 50,
    after: After = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what was set, the newest first, and what is used of it. `drsai budgets` alone is the same. The settings are
    not among it."""
    empty = "no budgets were set here; DRSAI_BUDGET_* say what all have"
    list_rules(_verbs, tenant, after, limit, database_url, _said, as_json=as_json, empty=empty)


@app.command("set")
def set_budget(
    kind: OfAnyKind,
    name: AnyName = "",
    tenant: OfTenant = "default",
    tokens_day: Annotated[int | None, Tokens] = None,
    tokens_month: Annotated[int | None, Tokens] = None,
    cost_day: Annotated[float | None, Cost] = None,
    cost_month: Annotated[float | None, Cost] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Set tokens and money for a day and a month, in UTC, in place of what was set before.

    Servers go by it within two seconds. What was used before stays used; runs that are paused for it are resumed where
    there is more now.
    """
    with opened(database_url, must_exist=False) as drsai:
        made = drsai.budgets.set(
            cast("Kind", kind),
            name,
            tenant=tenant,
            tokens_day=tokens_day,
            tokens_month=tokens_month,
            cost_day=cost_day,
            cost_month=cost_month,
            actor=drsai.who.actor,
        )
    tell(f"{whose(made)}: {_said(made)}", made, as_json=as_json)


@app.command()
def remove(
    kind: OfAnyKind,
    name: AnyName = "",
    tenant: OfTenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Have the settings hold again."""
    remove_rule(_verbs, kind, name, tenant, database_url, as_json=as_json)


def _said(info: BudgetInfo) -> str:
    given, used = info.given.items(), info.used
    return ", ".join(
        f"{name.replace('_', ' a ')} {f'{most:g}' if most else 'without budget'}"
        + (f" ({used[name]:g} used)" if name in used else "")
        for name, most in given
    )
