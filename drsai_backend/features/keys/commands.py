"""The commands of `drsai keys` make, list and revoke API keys, and rotate the secret that encrypts model keys."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Final

import typer

from drsai_backend.cli import lists
from drsai_backend.cli.database import missing, opened, owner_of
from drsai_backend.cli.options import AsJson, DatabaseUrl
from drsai_backend.cli.screen import (
    age,
    in_line,
    make_console,
    print_below,
    print_json,
    read_duration,
    rights_of,
    tell,
    when,
    whose_name,
)
from drsai_backend.cli.verbs import Verbs, renamed
from drsai_backend.errors import ConfigurationError, Conflict, InvalidRequest, NotFound

if TYPE_CHECKING:
    from rich.console import Console

    from drsai_backend.database.api_keys import KeyInfo
    from drsai_backend.json_types import JsonObject
    from drsai_backend.webhooks.webhooks import NewSecret

app = typer.Typer(
    cls=Verbs, help="Make, list and revoke API keys; rotate the secret of model keys.", no_args_is_help=True
)

KeyId = Annotated[str, typer.Argument(metavar="KEY_ID", help="`key_…`, as `list` shows it.")]
_COLOURS: Final = {"active": "green", "expired": "yellow", "revoked": "red"}
_ELSEWHERE: Final = " here; `drsai keys list` shows those there are"


@app.command()
def add(
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
    as_json: AsJson = False,
) -> None:
    """Make a key and print it, this one time: only its SHA-256 is stored. What it is goes to stderr."""
    scopes, roles, secret, owner = scope or ["user"], role or [], None, owner_of(tenant, user)
    expires_in = None if expires is None else read_duration(expires, "expires")
    with opened(database_url, must_exist=False) as drsai:
        keys, webhooks = drsai.drsai.keys, drsai.drsai.webhooks
        url = None if webhook_url is None else webhooks.check_url(webhook_url)
        made = drsai.wait_for(
            lambda: keys.create(owner, scopes, name, expires_in, roles=roles, webhook_url=url, actor=drsai.who.actor)
        )
        if url is not None:
            secret = drsai.wait_for(lambda: webhooks.ensure_secret(owner, actor=drsai.who.actor))
    info = made.info
    if as_json:
        print_json({**_object(info, secret), "key": made.key.get_secret_value()})
        return
    until = "until it is revoked" if info.expires_at is None else f"until {when(info.expires_at)}"
    also = f" It has the roles: {in_line(', '.join(info.roles))}." if info.roles else ""
    make_console(stderr=True).print(
        f"{info.key_id} of {_whose(info)} may: {rights_of(info.scopes)}.{also} It works {until}.\n"
        "[bold]This is the only time that the key is shown:[/]",
        soft_wrap=True,
    )
    # Alone on stdout, for `DRSAI_API_KEY=$(drsai keys add …)`.
    make_console().out(made.key.get_secret_value())
    _show_secret(secret, info)


@app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only this one's. [default: all]")] = None,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Only this user's. [default: all]")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List keys, newest first: whose they are, what they may do, when they were used last. Never the keys."""
    with opened(database_url) as drsai:
        keys = drsai.drsai.keys
        found = lists.read(lambda after, many: drsai.wait_for(lambda: keys.list(tenant, user, after, many)), None)
    empty = "there are no such keys here" if tenant or user else "there are no keys here"
    lists.show(found, _print, as_json=as_json, empty=empty)


@app.command()
def show(key_id: KeyId, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show whose a key is, what it may do, when it was used last. Never the key."""
    with opened(database_url) as drsai:
        keys = drsai.drsai.keys
        found = lists.read(lambda after, many: drsai.wait_for(lambda: keys.list(None, None, after, many)), None)
    info = next((each for each in found.items if each.key_id == key_id), None)
    if info is None:
        raise NotFound(f"no key {key_id!r}{_ELSEWHERE}")
    if as_json:
        print_json(info)
    else:
        _print(make_console(), info)


@app.command()
def remove(key_id: KeyId, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """End a key. It stops working within two seconds, in all servers. It stays in the list, as revoked."""
    with opened(database_url) as drsai, missing(after=_ELSEWHERE):
        info = drsai.wait_for(lambda: drsai.drsai.keys.revoke(None, key_id, actor=drsai.who.actor))
    tell(f"revoked {info.key_id} of {_whose(info)}", info, as_json=as_json)


@app.command()
def edit(
    key_id: KeyId,
    webhook_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where its background runs are told of that name no URL.")
    ] = None,
    no_webhook: Annotated[bool, typer.Option("--no-webhook", help="They are told of nowhere any more.")] = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Change where the background runs of a key are told of."""
    if no_webhook == (webhook_url is not None):
        raise InvalidRequest("say what to change: --webhook-url URL, or --no-webhook", param="webhook_url")
    with opened(database_url) as drsai, missing(after=_ELSEWHERE):
        info, secret = drsai.wait_for(
            lambda: drsai.drsai.webhooks.change_key(None, key_id, webhook_url, actor=drsai.who.actor)
        )
    if as_json:
        print_json(_object(info, secret))
        return
    where = "nowhere" if info.webhook_url is None else in_line(info.webhook_url)
    make_console().print(f"the background runs of {info.key_id} of {_whose(info)} are told: {where}", soft_wrap=True)
    _show_secret(secret, info)


@app.command(hidden=True)
def webhook(
    key_id: KeyId,
    url: Annotated[str | None, typer.Argument(metavar="[URL]", help="Where to. [default: nowhere any more]")] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Do what `edit` does, as releases before 0.2 said it."""
    renamed("keys webhook", "keys edit")
    edit(key_id, url, url is None, database_url)


@app.command()
def rotate_secret(database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Encrypt the stored model keys anew, with $DRSAI_SECRET_KEY; servers may run meanwhile.

    First give all servers the new secret, and the one before it as $DRSAI_SECRET_KEY_OLD. Where no secret is set, the
    file beside an SQLite database gets a new one by itself. After an interruption, run it once more.
    """
    from drsai_backend.database.manager.rotation import rotate

    console = make_console(stderr=as_json)

    def say_wait(seconds: float) -> None:
        console.print(f"waiting {math.ceil(seconds)} s for writes that began before the secret changed", soft_wrap=True)

    with opened(database_url) as drsai:
        db, old = drsai.drsai.db, drsai.drsai.settings.secret_key_old
        result = drsai.wait_for(lambda: rotate(db.database, db.secrets, on_wait=say_wait, actor=drsai.who.actor))
    console.print(f"{result.done} stored secrets re-encrypted, {result.left} left", soft_wrap=True)
    if result.unreadable:
        raise ConfigurationError(
            f"{result.unreadable} stored secrets can be decrypted with none of the secrets here: set theirs in "
            "DRSAI_SECRET_KEY_OLD, or let the next request of their threads replace them"
        )
    if result.left:
        raise Conflict("secrets are still being written with another key: give all servers the new one, and run again")
    file = db.secrets.file_in_use
    gone = "the old secret was deleted" if file else "what was DRSAI_SECRET_KEY before can go"
    also = " from DRSAI_SECRET_KEY_OLD" if old and not file else ""
    text = f"All stored secrets are under the new secret: {gone}{also}."
    tell(text, {"reencrypted": result.done, "left": result.left}, as_json=as_json)


def _print(console: Console, info: KeyInfo) -> None:
    name = f"  {in_line(info.name)}" if info.name else ""
    console.print(
        f"[bold]{info.key_id}[/]  [{_COLOURS[info.state]}]{info.state:<7}[/]  {_whose(info)}{name}", soft_wrap=True
    )
    used = "never used" if info.last_used_at is None else f"used {age(info.last_used_at)}"
    times = f"made {age(info.created_at)}, {used}, {_end(info)}"
    also = f"; roles: {in_line(', '.join(info.roles))}" if info.roles else ""
    also += f"; webhook: {in_line(info.webhook_url)}" if info.webhook_url else ""
    print_below(console, f"[dim]{rights_of(info.scopes)}{also}; {times}[/]")


def _object(info: KeyInfo, secret: NewSecret | None) -> JsonObject:
    more = {} if secret is None else {"webhook_secret": secret.secret.get_secret_value()}
    return {**info.model_dump(mode="json"), **more}


def _show_secret(secret: NewSecret | None, info: KeyInfo) -> None:
    if secret is not None:
        make_console(stderr=True).print(
            f"[bold]The secret that signs the webhooks of {_whose(info)}, shown this one time:[/] "
            f"{secret.secret.get_secret_value()}",
            soft_wrap=True,
        )


def _whose(info: KeyInfo) -> str:
    return in_line(whose_name(owner_of(info.tenant, info.user_id)))


def _end(info: KeyInfo) -> str:
    if info.revoked_at is not None:
        return f"revoked {age(info.revoked_at)}"
    return "does not expire" if info.expires_at is None else f"expires {when(info.expires_at)}"
