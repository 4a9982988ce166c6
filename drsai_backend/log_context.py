"""The log's context is where each line belongs: `request_id`, `thread_id` and `run_id`.

They are kept in a context variable, which tasks inherit: a request's task gives its id to the run that it starts, the
run's task gives all three to its agents and tools. `AddIds` puts them on the records of a handler, with `trace_id`
where there are traces; the command line does so for its own. In the same way a run's task and what it starts know the
secret that their log lines must not hold.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar, Token
from typing import Final, TypeAlias

from pydantic import SecretStr

_NAMES = ("request_id", "thread_id", "run_id")
_Ids: TypeAlias = tuple[str | None, str | None, str | None]
# These tell each message, request and connection at INFO; AutoGen's would cost a JSON dump each.
_TALKATIVE: Final = (
    "autogen_core",
    "autogen_core.events",
    "autogen_agentchat",
    "httpx",
    "httpx2",
    "uvicorn.error",
    "alembic",
)
# While a database is away they repeat themselves with tracebacks; `drsai.jobs` says in a line what that means.
_ALARMED: Final = ("procrastinate", "psycopg.pool")
_ids: ContextVar[_Ids] = ContextVar("drsai_log_ids", default=(None, None, None))
trace: ContextVar[str | None] = ContextVar("drsai_trace", default=None)
"""The span that what is begun from here on belongs to, as the header `traceparent` of W3C's Trace Context; None: there
is none. A run's is stored with its input."""
_hidden: ContextVar[SecretStr | None] = ContextVar("drsai_log_hidden", default=None)


def bind(request_id: str | None, thread_id: str | None = None, run_id: str | None = None) -> Token[_Ids]:
    """Say where what is logged from here on belongs. Returns what `restore` takes."""
    return _ids.set((request_id, thread_id, run_id))


def bind_run(thread_id: str, run_id: str) -> None:
    """Say which run of the request what is logged from here on belongs to."""
    _ids.set((_ids.get()[0], thread_id, run_id))


def restore(token: Token[_Ids]) -> None:
    """Take a `bind` back."""
    _ids.reset(token)


def current_request() -> str | None:
    """The id of the request that the running code works for."""
    return _ids.get()[0]


def hide(secret: SecretStr | None) -> None:
    """Say what must not be in what is logged from here on; it takes the place of an earlier one. Formatters obey that
    ask `hidden`, as the command line's does."""
    _hidden.set(secret)


def hidden() -> SecretStr | None:
    """The secret that the running code works with."""
    return _hidden.get()


class AddIds(logging.Filter):
    """A filter of a `logging.Handler` that passes every record and adds the ids that are known and not on it yet."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in zip(_NAMES, _ids.get(), strict=True):
            if value is not None and not hasattr(record, name):
                setattr(record, name, value)
        if (parent := trace.get()) is not None:
            record.trace_id = parent[3:35]
        return True


def set_level(level: str) -> None:
    """Show what is logged from a level on, by all of the program that leaves it to the root; libraries that tell each
    message are heard at DEBUG alone. Nothing happens where no handler has an
    `AddIds`: the program's logs are its own."""
    root = logging.getLogger()
    if not any(isinstance(each, AddIds) for handler in root.handlers for each in handler.filters):
        return
    root.setLevel(level)
    for names, quiet in ((_TALKATIVE, logging.WARNING), (_ALARMED, logging.CRITICAL)):
        for name in names:
            logging.getLogger(name).setLevel(logging.NOTSET if level == "DEBUG" else quiet)
