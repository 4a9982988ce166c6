"""Database URLs are read here: which there are, and how psycopg connects by one. All connections of this package are
made so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from drsai_backend.errors import ConfigurationError

# As `sa.make_url` splits a URL, but for the hosts, of which libpq takes several.
_POSTGRES: Final = re.compile(r"(postgres\w*(?:\+\w+)?://(?:[^:/]*(?::[^@]*)?@)?)([^/?]*)(.*)", re.DOTALL)
_HOST: Final = re.compile(r"(/.*|\[[^\[\]]+\]|[^:\[\]]*|[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.%]*)(?::(\d*))?")

# Packets to a host that has vanished are not answered, and nobody says so. Another host may be tried after 3 s; a dead
# connection is one after 5 s, whether it was written to (`tcp_user_timeout`) or only waits (`keepalives_…`).
_VANISHED: Final = {"tcp_user_timeout": "5000", "keepalives_idle": "3", "keepalives_interval": "1"}
_ANOTHER_SECONDS: Final = 3
_ONLY_SECONDS: Final = 5


class _Wrong(Exception):
    """What is wrong with a URL, without a word of it: it may hold a password."""


def parse_url(url: str, setting: str = "database_url") -> sa.URL:
    """`sqlite:///path`, `sqlite://` (in memory) or `postgresql://…`, with the driver this package uses. Several hosts
    of PostgreSQL, in whichever spelling, are those of the query: `?host=a,b&port=1,2`.

    Args:
        url: as a person writes it.
        setting: which setting it is of, for the error.

    Raises:
        ConfigurationError: it is no URL, or of another database. The text never repeats a password.
    """
    try:
        return _parsed(url)
    except _Wrong as wrong:
        named = f"DRSAI_{setting.upper()}" + (", --database-url" if setting == "database_url" else "")
        raise ConfigurationError(f"the database URL ({named}) {wrong}", param=setting) from None


def _parsed(url: str) -> sa.URL:
    postgres = _POSTGRES.fullmatch(url)
    try:
        parsed = sa.make_url("".join(postgres.group(1, 3)) if postgres else url)
    except (ArgumentError, ValueError):
        raise _Wrong("is none: write sqlite:///file or postgresql://…") from None
    if postgres:
        return _with_hosts(parsed.set(drivername="postgresql+psycopg"), postgres[2])
    name = parsed.get_backend_name()
    if name == "sqlite":
        if parsed.query or parsed.host:
            raise _Wrong("is of SQLite and has another form than sqlite:///path")
        return parsed.set(drivername="sqlite")
    raise _Wrong(f"is of {name!r}, which is not supported: use sqlite or postgresql")


def connect_args(url: sa.URL, name: str, **settings: object) -> dict[str, object]:
    """Return what psycopg connects by; what the URL says itself goes before what is said here.

    Args:
        url: of PostgreSQL, from `parse_url`.
        name: what the server shows as the name of the application.
        settings: of the server, for the session.
    """
    asked = {key: values[-1] for key, values in url.normalized_query.items()}
    given = {**url.translate_connect_args(username="user", database="dbname"), **asked}
    # psycopg reads no other style of dates; and the guards are made for what others have committed meanwhile.
    ours = {"DateStyle": "ISO", "default_transaction_isolation": r"read\ committed"}
    said = [f"-c {key}={value}" for key, value in {**ours, **settings}.items()]
    args: dict[str, object] = {
        **_VANISHED,
        "connect_timeout": _ANOTHER_SECONDS if "," in asked.get("host", "") else _ONLY_SECONDS,
        # In random order, one host that is dead delays only some of the connections.
        "load_balance_hosts": "random",
        "target_session_attrs": "read-write",
        "client_encoding": "UTF8",
        "application_name": name,
        **given,
        "options": " ".join([*said, asked.get("options", "")]).rstrip(),
    }
    if threshold := asked.get("prepare_threshold"):
        args["prepare_threshold"] = int(threshold) if threshold.isdecimal() else None
    return args


def _with_hosts(url: sa.URL, authority: str) -> sa.URL:
    query = dict(url.query)
    named, listed = _listed(query.pop("host", ())), _listed(query.pop("port", ()))
    hosts, ports = _split(authority.split(","))
    if named:
        hosts, own = _split(named)
        if listed and any(own):
            raise _Wrong("names ports beside its hosts and in ?port=: write them once")
        ports = own if any(own) else ports
    ports = listed or ports
    if len(ports) not in (1, len(hosts)):
        raise _Wrong(f"names {len(hosts)} hosts and {len(ports)} ports: name one port for all, or one for each")
    if any(port and not (port.isdecimal() and 0 < int(port) < 65536) for port in ports):
        raise _Wrong("names a port that is no number from 1 to 65535")
    if len(hosts) == 1 and not named:
        return url.set(host=hosts[0] or None, port=int(ports[0]) if ports[0] else None, query=query)
    if any(ports):
        query["port"] = ",".join(ports)
    return url.set(query={**query, "host": ",".join(hosts)})


def _split(pieces: Sequence[str]) -> tuple[list[str], list[str]]:
    """Hosts, and the port of each, "" where none is named."""
    found = [_HOST.fullmatch(piece) for piece in pieces]
    if None in found or (len(found) > 1 and "" in pieces):
        raise _Wrong("names a host that is none: write postgresql://user:password@host1:5432,host2:5432/name")
    return [each[1].strip("[]") for each in found if each], [each[2] or "" for each in found if each]


def _listed(value: str | Sequence[str]) -> list[str]:
    """Return what a parameter of the query lists, separated by commas or named several times."""
    values = [value] if isinstance(value, str) else value
    return [part for each in values for part in each.split(",")]
