"""Databases that an earlier release has written: `restore` fills an empty one with a recorded one."""

from __future__ import annotations

import gzip
import re
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import sqlalchemy as sa

from drsai_backend.database import migrations
from drsai_backend.datamodel.answers import StoredAnswer

FOLDER = Path(__file__).parent / "release_0020"
REVISION = "0020"


def restore(url: str, **placed: str) -> None:
    """Fill an empty database with what the release of that revision has written, as it was when its server was killed.

    Args:
        placed: what stands in place of words in the text: the URL of `SITE`, the host and port of `PEER`.
    """
    kind = "sqlite" if url.startswith("sqlite") else "postgresql"
    text = gzip.decompress((FOLDER / f"{kind}.sql.gz").read_bytes()).decode()
    for word, place in placed.items():
        text = text.replace(f"127.0.0.1:{word}", place)
    if kind == "sqlite":
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        connection.executescript(text)
        connection.close()
    else:
        migrations.upgrade(url, REVISION)
        _fill(url, text)
    _keep_answers(url)


def _fill(url: str, text: str) -> None:
    plain = sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as connection:
        for statement, rows, other in re.findall(r"(COPY .*;)\n((?:.*\n)*?)\\\.\n|(SELECT .*;)\n", text):
            if other:
                connection.execute(other)
                continue
            with connection.cursor().copy(statement) as copy:
                copy.write(rows)


def _keep_answers(url: str) -> None:
    """An answer of a model is kept for a year at most, and the recorded one for ever."""
    with migrations.connecting(url) as connection:
        connection.execute(sa.update(StoredAnswer).values(expires_at=datetime(9000, 1, 1, tzinfo=UTC)))
