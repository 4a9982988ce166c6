from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
import sqlalchemy as sa

from drsai_backend.access.key_store import ApiKeys
from drsai_backend.access.keys import KEY_PATTERN
from drsai_backend.access.principal import ROLES
from drsai_backend.database import Database, migrations
from drsai_backend.errors import Unauthenticated
from tests.support.commands import Command, Commands


class Keys:
    def __init__(self, commands: Commands, url: str, folder: Path) -> None:
        self._commands = commands
        self._url = url
        self._folder = folder

    def __call__(self, *arguments: str) -> Command:
        # On PostgreSQL there is no file beside the database for the key that encrypts a webhook's secret.
        env = {"DRSAI_DATABASE_URL": self._url, "DRSAI_SECRET_KEY": "a secret"}
        return self._commands.run("keys", *arguments, cwd=self._folder, env=env)


@pytest.fixture
def keys(commands: Commands, database_url: str, tmp_path: Path) -> Keys:
    return Keys(commands, database_url, tmp_path)


def everything_stored(url: str) -> str:
    with migrations.connecting(url) as connection:
        tables = sa.inspect(connection).get_table_names()
        rows = [connection.execute(sa.text(f"SELECT * FROM {table}")).all() for table in tables]
    files = [path.read_bytes() for path in Path(url.removeprefix("sqlite:///")).parent.glob("drsai.db*")]
    return f"{rows} {files}"


def test_a_key_is_made_listed_and_revoked(keys: Keys, database_url: str) -> None:
    made = keys("add", "--user", "ann", "--expires", "90d", "--name", "lap[bold]top")
    key = made.stdout.removesuffix("\n")
    assert re.fullmatch(KEY_PATTERN, key)
    found = re.match(r"(key_\w+) of ann may: user\. It works until \d{4}(-\d\d){2} \d\d:\d\d\.\n", made.stderr)
    assert found is not None
    key_id = found[1]
    portal = ("--user", "portal", "--tenant", "acme")
    also = keys("add", *portal, "--scope", "chat", "--scope", "viewer", "--role", "clerk", "--role", "[b]oss")
    assert "chat, " in also.stderr
    assert ". It has the roles: [b]oss, clerk. It works until it is revoked.\n" in also.stderr
    other = also.stdout.strip()

    listed = keys("list").stdout
    first, roles, second, rights = listed.splitlines()
    assert "; roles: [b]oss, clerk; made now" in roles
    assert first.endswith("active   portal (acme)")
    assert second == f"{key_id}  active   ann  lap[bold]top"
    assert rights.startswith("  user; made now, never used, expires 2")
    assert key_id not in keys("list", "--tenant", "acme").stdout
    assert keys("list", "--tenant", "acme", "--user", "ann").stdout == "there are no such keys here\n"
    as_json = keys("list", "--user", "portal", "--json").stdout
    [row] = json.loads(as_json)
    assert (row["tenant"], row["state"], row["expires_at"]) == ("acme", "active", None)
    assert row["scopes"] == sorted(ROLES["viewer"] | {"chat"})
    assert row["roles"] == ["[b]oss", "clerk"]

    for _ in range(2):
        revoked = keys("remove", key_id)
        assert (revoked.wait(), revoked.stdout) == (0, f"revoked {key_id} of ann\n")
    assert f"{key_id}  revoked  ann" in keys("list").stdout
    shown = listed + as_json + made.stderr + everything_stored(database_url)
    assert not any(each[9:40] in shown for each in (key, other))


async def test_a_key_that_is_revoked_stops_working_in_a_process_that_uses_it(keys: Keys, database_url: str) -> None:
    async with Database(database_url) as database:
        store = ApiKeys(database)
        key = (await asyncio.to_thread(keys, "add", "--user", "ann")).stdout.strip()
        principal = await store.check(key)
        assert (principal.user_id, principal.tenant, principal.scopes) == ("ann", "default", ROLES["user"])
        assert principal.key_id is not None
        assert (await asyncio.to_thread(keys, "remove", principal.key_id)).wait() == 0
        await asyncio.sleep(2)
        with pytest.raises(Unauthenticated, match="revoked"):
            await store.check(key)
        await store.close()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["add", "--user", "ann", "--scope", "boss"], "--scope: there is no scope or role 'boss', but viewer, user"),
        (["add", "--user", "ann", "--expires", "soon"], "--expires soon: a time is a number with m, h, d or w"),
        (["add", "--user", "ann", "--expires", "0d"], "--expires: a key must expire in the future"),
        (["add", "--user", " ann"], "`--user` must be printable"),
        (["add", "--user", "ann", "--tenant", ""], "`--tenant` must have 1 to 255 characters"),
        (["remove", "key_missing"], "no key 'key_missing' here; `drsai keys list` shows those there are"),
    ],
)
def test_what_cannot_be_done(
    commands: Commands, migrated_sqlite: str, tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    keys = Keys(commands, migrated_sqlite, tmp_path)
    refused = keys(*arguments)
    assert (refused.wait(), refused.stdout) == (1 if arguments[0] == "remove" else 2, "")
    assert refused.stderr.startswith(f"Error: {complaint}")
    assert keys("list").stdout == "there are no keys here\n"


def test_the_first_key_makes_the_database(commands: Commands, tmp_path: Path) -> None:
    keys = Keys(commands, f"sqlite:///{tmp_path}/new.db", tmp_path)
    missing = keys("list")
    assert (missing.wait(), "there is no database" in missing.stderr) == (1, True)
    assert keys("add", "--user", "ann").wait() == 0
    assert " ann" in keys("list").stdout


def test_a_key_is_shown_and_its_webhook_edited(keys: Keys) -> None:
    made = json.loads(keys("add", "--user", "ann", "--json").stdout)
    key_id = made["key_id"]
    assert re.fullmatch(KEY_PATTERN, made["key"])
    asked = ("edit", key_id, "--webhook-url", "https://example.org/told")
    changed = json.loads(keys(*asked, "--json").stdout)
    assert changed["webhook_url"] == "https://example.org/told"
    assert changed["webhook_secret"]
    assert json.loads(keys("show", key_id, "--json").stdout)["webhook_url"] == "https://example.org/told"
    assert "webhook: https://example.org/told" in keys("show", key_id).stdout
    neither = keys("edit", key_id)
    assert (neither.wait(), "--webhook-url URL, or --no-webhook" in neither.stderr) == (2, True)
    old = keys("webhook", key_id)
    assert "are told: nowhere" in old.stdout
    assert old.stderr.startswith("Warning: `drsai keys webhook` is `drsai keys edit` now")
    assert json.loads(keys("show", key_id, "--json").stdout)["webhook_url"] is None
    assert "no key 'key_none' here; `drsai keys list`" in keys("show", "key_none").stderr
