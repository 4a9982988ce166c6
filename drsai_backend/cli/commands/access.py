"""`drsai keys`, `drsai users` and `drsai audit`, as they can be typed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from drsai_backend import cli
from drsai_backend.cli.commands.options import AsJson, DatabaseUrl, Yes

keys_app = typer.Typer(help="Make, list and revoke API keys; rotate the secret of model keys.", no_args_is_help=True)
users_app = typer.Typer(help="List users, or delete one with all that is theirs.", no_args_is_help=True)
audit_app = typer.Typer(help="Look at who did what: keys, deletions, exports, shares, answers.")


@keys_app.command("create")
def keys_create(
    user: Annotated[str, typer.Option(metavar="NAME", help="Who asks with it.")],
    tenant: Annotated[str, typer.Option(metavar="TENANT", help="The user's tenant.")] = "default",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE",
            help="What it may do: a scope such as `threads:read`, or a role: viewer, user, operator, admin. May be "
            "given several times. [default: user]",
        ),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE",
            help="A role of your own, `treasurer` say, for approvals and shares; it allows nothing by itself. May be "
            "given several times.",
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="For how long it works: `90d`, `12h`. [default: until revoked]")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="What you call it: `laptop`, say.")] = None,
    webhook_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where its background runs are told of that name no URL.")
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a key and print it, this one time: only its SHA-256 is stored. What it is goes to stderr."""
    cli.keys.create(user, tenant, scope or ["user"], role or [], expires, name, webhook_url, database_url)


@keys_app.command("list")
def keys_list(
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only this one's. [default: all]")] = None,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Only this user's. [default: all]")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List keys, newest first: whose they are, what they may do, when they were used last. Never the keys."""
    cli.keys.list_keys(tenant, user, database_url, as_json=as_json)


@keys_app.command("revoke")
def keys_revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="`key_…`, as `list` shows it.")],
    database_url: DatabaseUrl = None,
) -> None:
    """End a key. It stops working within two seconds, in all servers."""
    cli.keys.revoke(key_id, database_url)


@keys_app.command("webhook")
def keys_webhook(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="`key_…`, as `list` shows it.")],
    url: Annotated[str | None, typer.Argument(metavar="[URL]", help="Where to. [default: nowhere any more]")] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Set, or without URL remove, where the background runs of a key are told of that name no URL themselves."""
    cli.keys.webhook(key_id, url, database_url)


@keys_app.command("rotate-secret")
def keys_rotate_secret(database_url: DatabaseUrl = None) -> None:
    """Encrypt the stored model keys anew, with $DRSAI_SECRET_KEY; servers may run meanwhile.

    First give all servers the new secret, and the one before it as $DRSAI_SECRET_KEY_OLD. Where no secret is set, the
    file beside an SQLite database gets a new one by itself. After an interruption, run it once more.
    """
    cli.keys.rotate_secret(database_url)


@users_app.command("list")
def users_list(
    tenant: Annotated[str, typer.Option(metavar="TENANT", help="Whose users.")] = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 100,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="Those whose names come after this one.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the users of a tenant to whom anything belongs, with how many threads are theirs."""
    cli.users.list_users(tenant, after, limit, database_url, as_json=as_json)


@users_app.command("delete")
def users_delete(
    user: Annotated[str, typer.Argument(metavar="USER", help="Who.")],
    tenant: Annotated[str, typer.Option(metavar="TENANT", help="The user's tenant.")] = "default",
    export: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write all that is theirs to a ZIP archive first, a file per thread."),
    ] = None,
    database_url: DatabaseUrl = None,
    yes: Yes = False,
) -> None:
    """Stop what a user runs, and delete their keys, threads and all else that is theirs. The audit log stays.

    What was cut off can be repeated: it deletes the rest.
    """
    cli.users.delete(user, tenant, export, database_url, yes=yes)


@audit_app.callback(invoke_without_command=True)
def audit(
    context: typer.Context,
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only this one's. [default: all]")] = None,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only what they did, or others did to what is theirs.")
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="ACTION", help="Only these: `thread.deleted`, or all of a kind: `thread`.")
    ] = None,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="Only what was done to this thread.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Only from then on, UTC.")] = None,
    until: Annotated[datetime | None, typer.Option(help="Only before then, UTC.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 50,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Those before this entry.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    if context.invoked_subcommand is None:
        begin, end = (None if each is None else each.replace(tzinfo=UTC) for each in (since, until))
        only: dict[str, Any] = {
            "tenant": tenant,
            "user_id": user,
            "action": action,
            "thread_id": thread,
            "since": begin,
            "until": end,
        }
        cli.audit.list_audit(only, after, limit, database_url, as_json=as_json)


@audit_app.command("prune")
def audit_prune(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Older than that: `365d`, `52w`.")],
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only this one's. [default: all]")] = None,
    database_url: DatabaseUrl = None,
    yes: Yes = False,
) -> None:
    """Delete old entries. New ones say how many are gone."""
    cli.audit.prune(older_than, tenant, database_url, yes=yes)
