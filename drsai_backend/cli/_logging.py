"""Logs of this package and of the libraries below it in one form, on stderr."""

from __future__ import annotations

import logging
import sys
from typing import Final

import structlog

from drsai_backend.cli._screen import one_line
from drsai_backend.config import Settings
from drsai_backend.log_context import AddIds
from drsai_backend.redaction import RedactingFormatter

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


def configure_logging(settings: Settings) -> None:
    """Send all logs to stderr at `settings.log_level`, as readable lines or, with `log_format` "json", as JSON."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
    ]
    if settings.log_format == "json":
        endings: list[structlog.typing.Processor] = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    else:
        # Not structlog's default: with rich installed, it prints the local variables of a traceback, keys included.
        plain = structlog.dev.plain_traceback
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain, pad_event=0)
        endings = [_visible, renderer]
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(AddIds())
    lines = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *endings],
    )
    handler.setFormatter(RedactingFormatter(lines, settings.secrets()))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.log_level)
    if settings.log_level != "DEBUG":
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.WARNING)
        for name in _ALARMED:
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _visible(_logger: object, _method: str, fields: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Ids in a line of the log are others': they must not begin a line of their own, or talk to the terminal."""
    return {key: one_line(value) if isinstance(value, str) else value for key, value in fields.items()}
