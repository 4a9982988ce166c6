"""`usage:read` allowed nothing in the release before: keys of roles that had it do not show what others have used."""

from __future__ import annotations

import sqlalchemy as sa

from drsai_backend.access.principal import ROLES
from drsai_backend.database import migrations
from drsai_backend.datamodel import ApiKey, table_of, utcnow

KEY = table_of(ApiKey)
WITH = {"usage:read"}


def test_keys_of_viewers_and_users_lose_what_meant_nothing(database_url: str) -> None:
    kinds = {name: {*map(str, scopes)} for name, scopes in ROLES.items()}
    before = {
        "viewer": kinds["viewer"] | WITH,
        "user": kinds["user"] | WITH,
        "operator": kinds["operator"],
        "admin": kinds["admin"],
        "named": {"chat", "usage:read"},
        "without": {"chat"},
    }
    migrations.downgrade(database_url, "0031_from_0024")
    with migrations.connecting(database_url) as connection:
        for name, scopes in before.items():
            row = {"key_id": name, "digest": name, "tenant": "acme", "user_id": "ada", "created_at": utcnow()}
            connection.execute(sa.insert(KEY).values(**row, scopes=sorted(scopes), roles=[]))
    migrations.upgrade(database_url)
    with migrations.connecting(database_url, write=False) as connection:
        found = {row.key_id: {*row.scopes} for row in connection.execute(sa.select(KEY.c.key_id, KEY.c.scopes))}
    assert found == {**before, "viewer": kinds["viewer"], "user": kinds["user"]}
