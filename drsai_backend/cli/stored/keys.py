"""`drsai keys`: API keys are made, listed and revoked, and the secret that encrypts model keys is rotated."""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import partial
from typing import Final

from drsai_backend.access.key_store import ApiKeys
from drsai_backend.access.principal import ROLES
from drsai_backend.cli.database import opened
from drsai_backend.cli.screen import (
    age,
    in_line,
    make_console,
    one_line,
    print_below,
    print_json,
    read_duration,
    when,
    whose_name,
)
from drsai_backend.database.api_keys import KeyInfo
from drsai_backend.database.manager.rotation import rotate
from drsai_backend.datamodel.audit import CLI
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError, Conflict, NotFound
from drsai_backend.webhooks.webhooks import NewSecret

_PAGE: Final = 500
_COLOURS: Final = {"active": "green", "expired": "yellow", "revoked": "red"}


def create(
    user_id: str,
    tenant: str,
    scopes: list[str],
    roles: list[str],
    expires: str | None,
    name: str | None,
    webhook_url: str | None,
    database_url: str | None,
) -> None:
    expires_in = None if expires is None else read_duration(expires, "expires")
    with opened(database_url, must_exist=False) as drsai:
        keys, webhooks = ApiKeys(drsai.drsai.database), drsai.drsai.webhooks
        owner, secret = Owner(tenant, user_id), None
        url = None if webhook_url is None else webhooks.check_url(webhook_url)
        made = drsai.wait_for(
            lambda: keys.create(owner, scopes, name, expires_in, roles=roles, webhook_url=url, actor=CLI)
        )
        if url is not None:
            secret = drsai.wait_for(lambda: webhooks.ensure_secret(owner, actor=CLI))
    info = made.info
    until = "until it is revoked" if info.expires_at is None else f"until {when(info.expires_at)}"
    also = f" It has the roles: {in_line(', '.join(info.roles))}." if info.roles else ""
    make_console(stderr=True).print(
        f"{info.key_id} of {_whose(info)} may: {rights_of(info.scopes)}.{also} It works {until}.\n"
        "[bold]This is the only time that the key is shown:[/]",
        soft_wrap=True,
    )
    # Alone on stdout, for `DRSAI_API_KEY=$(drsai keys create …)`.
    make_console().out(made.key.get_secret_value())
    _show_secret(secret, info)


def webhook(key_id: str, url: str | None, database_url: str | None) -> None:
    with opened(database_url) as drsai:
        webhooks = drsai.drsai.webhooks
        try:
            info, secret = drsai.wait_for(lambda: webhooks.change_key(None, key_id, url, actor=CLI))
        except NotFound as error:
            raise NotFound(f"{error.message} here; `drsai keys list` shows those there are") from None
    where = "nowhere" if info.webhook_url is None else in_line(info.webhook_url)
    make_console().print(f"the background runs of {info.key_id} of {_whose(info)} are told: {where}", soft_wrap=True)
    _show_secret(secret, info)


def _show_secret(secret: NewSecret | None, info: KeyInfo) -> None:
    if secret is not None:
        make_console(stderr=True).print(
            f"[bold]The secret that signs the webhooks of {_whose(info)}, shown this one time:[/] "
            f"{secret.secret.get_secret_value()}",
            soft_wrap=True,
        )


def list_keys(tenant: str | None, user_id: str | None, database_url: str | None, *, as_json: bool) -> None:
    with opened(database_url) as drsai:
        keys = ApiKeys(drsai.drsai.database)
        page = drsai.wait_for(lambda: keys.list(tenant, user_id, limit=_PAGE))
        found = page.items
        while page.next is not None:
            page = drsai.wait_for(partial(keys.list, tenant, user_id, page.next, _PAGE))
            found += page.items
    if as_json:
        print_json([info.model_dump(mode="json") for info in found])
        return
    console = make_console()
    if not found:
        console.print("there are no such keys here" if tenant or user_id else "there are no keys here")
    for info in found:
        name = f"  {in_line(info.name)}" if info.name else ""
        console.print(
            f"[bold]{info.key_id}[/]  [{_COLOURS[info.state]}]{info.state:<7}[/]  {_whose(info)}{name}", soft_wrap=True
        )
        used = "never used" if info.last_used_at is None else f"used {age(info.last_used_at)}"
        times = f"made {age(info.created_at)}, {used}, {_end(info)}"
        also = f"; roles: {in_line(', '.join(info.roles))}" if info.roles else ""
        also += f"; webhook: {in_line(info.webhook_url)}" if info.webhook_url else ""
        print_below(console, f"[dim]{rights_of(info.scopes)}{also}; {times}[/]")


def revoke(key_id: str, database_url: str | None) -> None:
    with opened(database_url) as drsai:
        keys = ApiKeys(drsai.drsai.database)
        try:
            info = drsai.wait_for(lambda: keys.revoke(None, key_id, actor=CLI))
        except NotFound as error:
            raise NotFound(f"{error.message} here; `drsai keys list` shows those there are") from None
    make_console().print(f"revoked {info.key_id} of {_whose(info)}", soft_wrap=True)


def rotate_secret(database_url: str | None) -> None:
    console = make_console()

    def say_wait(seconds: float) -> None:
        console.print(f"waiting {math.ceil(seconds)} s for writes that began before the secret changed", soft_wrap=True)

    with opened(database_url) as drsai:
        db, old = drsai.drsai.db, drsai.drsai.settings.secret_key_old
        result = drsai.wait_for(lambda: rotate(db.database, db.secrets, on_wait=say_wait, actor=CLI))
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
    console.print(f"All stored secrets are under the new secret: {gone}{also}.", soft_wrap=True)


def _whose(info: KeyInfo) -> str:
    return in_line(whose_name(Owner(info.tenant, info.user_id)))


def rights_of(scopes: Collection[str]) -> str:
    """The scopes, or the role that has just these."""
    roles = [role for role, those in ROLES.items() if set(map(str, those)) == set(scopes)]
    return one_line(", ".join(roles or scopes))


def _end(info: KeyInfo) -> str:
    if info.revoked_at is not None:
        return f"revoked {age(info.revoked_at)}"
    return "does not expire" if info.expires_at is None else f"expires {when(info.expires_at)}"
