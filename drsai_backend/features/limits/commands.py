"""The commands of `drsai limits` show, set and remove what keys, users, tenants and all may have."""

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
    Name,
    OfKind,
    OfTenant,
    OnlyTenant,
    list_rules,
    remove_rule,
    whose,
)

if TYPE_CHECKING:
    from drsai_backend.features.limits.base import LimitInfo
    from drsai_backend.features.rules.base import Kind

app = typer.Typer(
    cls=ListedAlone, no_args_is_help=False, help="Set how many requests, tokens and runs somebody may have."
)

Many = typer.Option(metavar="N", help="0: no limit. [default: as the settings say]")
_verbs = attrgetter("limits")


@app.command("list")
def list_limits(
    tenant: OnlyTenant = None,
    limit: HowMany = 50,
    after: After = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what was set, the newest first. `drsai limits` alone is the same. The settings are not among it."""
    empty = "no limits were set here; DRSAI_LIMIT_* say what all have"
    list_rules(_verbs, tenant, after, limit, database_url, _said, as_json=as_json, empty=empty)


@app.command("set")
def set_limit(
    kind: OfKind,
    name: Name = "",
    tenant: OfTenant = "default",
    requests: Annotated[int | None, Many] = None,
    tokens: Annotated[int | None, Many] = None,
    runs: Annotated[int | None, Many] = None,
    streams: Annotated[int | None, Many] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Set requests and tokens a minute, and runs and streams at once, in place of what was set before.

    Servers go by it within two seconds.
    """
    with opened(database_url, must_exist=False) as drsai:
        said = {"requests": requests, "tokens": tokens, "runs": runs, "streams": streams}
        made = drsai.limits.set(cast("Kind", kind), name, tenant=tenant, **said, actor=drsai.who.actor)
    tell(f"{whose(made)}: {_said(made)}", made, as_json=as_json)


@app.command()
def remove(
    kind: OfKind,
    name: Name = "",
    tenant: OfTenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Have the settings hold again."""
    remove_rule(_verbs, kind, name, tenant, database_url, as_json=as_json)


def _said(info: LimitInfo) -> str:
    return ", ".join(f"{name} {most or 'without limit'}" for name, most in info.given.items())
