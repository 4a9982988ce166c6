"""Two tenants whose users and threads have the same names, each with an API key of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Final

from drsai_backend.access.keys import Malformed, make_key, make_key_id, parse_key
from drsai_backend.access.principal import ROLES, Scope
from drsai_backend.database import Database
from drsai_backend.database.api_keys import KeyInfo, insert_key
from drsai_backend.datamodel import utcnow
from drsai_backend.datamodel.audit import PROGRAM
from drsai_backend.datamodel.owner import ThreadName

USER: Final = "chaos"
TENANTS: Final = ("even", "odd")
_KEYS: Final = {tenant: make_key() for tenant in TENANTS}


def place_of(thread: str) -> ThreadName:
    """Where the suite's thread of that name is: `c6` and `c7` are both the thread `c3`, of two tenants."""
    found = re.fullmatch(r"(.*?)(\d+)", thread)
    assert found is not None, thread
    number = int(found[2])
    return ThreadName(TENANTS[number % 2], USER, f"{found[1]}{number // 2}")


def key_header(thread: str) -> dict[str, str]:
    """What a client of the suite's thread sends with every request."""
    return {"Authorization": f"Bearer {_KEYS[place_of(thread).tenant]}"}


def store_keys(url: str) -> None:
    """Make the keys known to a database whose schema is up to date."""
    for tenant, key in _KEYS.items():
        store_key(url, tenant, ROLES["operator"], key)


def store_key(url: str, tenant: str, scopes: Iterable[Scope], key: str | None = None) -> str:
    """Make a key of the tenant's user known; returns it."""
    database = Database(url)
    key = key or make_key()
    digest = parse_key(key)
    assert not isinstance(digest, Malformed)
    info = KeyInfo(key_id=make_key_id(), tenant=tenant, user_id=USER, scopes=sorted(scopes), created_at=utcnow())
    database.write_sync(partial(insert_key, digest=digest, info=info, actor=PROGRAM))
    database.close_sync()
    return key
