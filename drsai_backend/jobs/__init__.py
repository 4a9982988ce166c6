"""Jobs are kept in PostgreSQL (procrastinate, the extra `postgres`): by one, a process tells the others that a thread
needs a look.

A job only wakes; the rows of runs and leases are the truth. So a job that is lost, late or done twice does no harm: the
next sweep finds what was missed, and a look at a thread that needs none does nothing.
"""

from __future__ import annotations

import importlib.util
import logging
from importlib import resources
from typing import TYPE_CHECKING, Final

from drsai_backend.database.urls import parse_url
from drsai_backend.errors import ConfigurationError

if TYPE_CHECKING:
    from drsai_backend.jobs._queue import JobQueue
    from drsai_backend.runs import Engine

log = logging.getLogger("drsai.jobs")

# What revision 0003 of the schema holds. A later release of procrastinate may ask for functions that are not there.
_SCHEMA: Final = "03.04.00"


def available() -> bool:
    """Whether procrastinate is installed, in a release that knows the schema of `drsai db upgrade`."""
    if importlib.util.find_spec("procrastinate") is None:
        return False
    scripts = (item.name for item in resources.files("procrastinate.sql.migrations").iterdir())
    newest = max(name for name in scripts if name.endswith(".sql")).partition("_")[0]
    if newest != _SCHEMA:
        log.warning("procrastinate is of schema %s, this version needs %s: no job queue", newest, _SCHEMA)
    return newest == _SCHEMA


def make_queue(
    database_url: str,
    engine: Engine,
    *,
    queue_url: str | None = None,
    concurrency: int = 10,
    sweep_seconds: float = 3.0,
) -> JobQueue | None:
    """The process's queue, not opened yet. None where there can be none: SQLite, or no procrastinate. `queue_url`: the
    same database past a pooler that lends no sessions, as the queue listens; default: `database_url`.

    Raises:
        ConfigurationError: `queue_url` is no URL of PostgreSQL.
    """
    kind = parse_url(database_url).get_backend_name()
    if queue_url is not None and {kind, parse_url(queue_url, "queue_url").get_backend_name()} != {"postgresql"}:
        text = "DRSAI_QUEUE_URL must be of the same PostgreSQL database as DRSAI_DATABASE_URL"
        raise ConfigurationError(text, param="queue_url")
    if kind != "postgresql" or not available():
        return None
    from drsai_backend.jobs._queue import JobQueue

    return JobQueue(queue_url or database_url, engine, concurrency=concurrency, sweep_seconds=sweep_seconds)


__all__ = ["available", "make_queue"]
