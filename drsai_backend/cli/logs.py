"""The logs of this package and of the libraries below it have one form, on stderr, without secrets."""

from __future__ import annotations

import base64
import json
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote

import structlog

from drsai_backend import log_context
from drsai_backend.cli.screen import one_line
from drsai_backend.config import Settings
from drsai_backend.log_context import AddIds
from drsai_backend.models.profiles.load import keys_of, load_profiles

_SERVERS: Final = ("uvicorn", "uvicorn.access", "uvicorn.error")
"""Loggers that uvicorn gives handlers of its own, unless it is told not to."""
_HIDDEN: Final = "***"
_SHORTEST: Final = 6
"""Shorter secrets are not looked for: they would be found in every second word."""
_URL_SAFE: Final = str.maketrans("+/", "-_")
_SHAPES: Final = (
    re.compile(r"(\bsk-)[\w-]{6,}"),
    re.compile(r"(\beyJ)[\w-]{6,}(?:\.[\w-]+\.[\w-]*)?"),
    re.compile(r"(?i)(\b(?:bearer|basic)\s+)[^\s'\",;]{6,}"),
    re.compile(
        r"(?i)((?:api[-_ ]?key(?: provided)?|password|passwd|(?<![^\W_])(?:token|secret(?:[-_]key)?))\b"
        r"\\*[\"']?\s*[:=]\s*b?\\*[\"']?)[^\s'\",;}&\\]{6,}"
    ),
    re.compile(r"(://[^\s:/@]*:)[^\s/@]+(?=@)"),
)
"""Clients make lines of any length. So each shape begins with a word, not with whatever may stand before it, and what
it has looked through from one place it does not look through from the next."""


def configure_logging(settings: Settings) -> None:
    """Send all logs to stderr at `settings.log_level`, as readable lines or, with `log_format` "json", as JSON: those
    of this package, of uvicorn, and of whatever else the program logs. Who mounts the application calls it themselves,
    or has logs of their own.

    Raises:
        ConfigurationError: the file of model profiles cannot be used; its keys are not to be logged.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
    ]
    endings: list[structlog.typing.Processor]
    if settings.log_format == "json":
        endings = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        # Not structlog's default: with rich installed, it prints the local variables of a traceback, keys included.
        plain = structlog.dev.plain_traceback
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain, pad_event=0)
        endings = [_on_one_line, renderer]
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(AddIds())
    processors = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *endings]
    lines = structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=processors)
    keys = keys_of(load_profiles(settings.models))
    handler.setFormatter(_Redacting(lines, [*settings.secrets(), *keys]))
    logging.getLogger("uvicorn.access").addFilter(_without_query)
    for name in _SERVERS:
        logging.getLogger(name).handlers, logging.getLogger(name).propagate = [], True
    root = logging.getLogger()
    root.handlers = [handler]
    log_context.set_level(settings.log_level)


def _on_one_line(_logger: object, _method: str, fields: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Others chose the ids in a line of the log: they must not begin a line of their own, or talk to the terminal."""
    return {key: one_line(value) if isinstance(value, str) else value for key, value in fields.items()}


def _without_query(record: logging.LogRecord) -> bool:
    """A line of the access log names the path alone: whatever a client puts into a query, it may be a secret."""
    if isinstance(record.args, tuple) and len(record.args) == 5:  # client, method, path, HTTP version, status
        client, method, path, *rest = record.args
        record.args = (client, method, str(path).partition("?")[0], *rest)
    return True


def _forms(secret: str) -> Iterator[str]:
    """A secret as it may stand in a text: as it is, escaped in JSON or a URL, or somewhere in what is base64."""
    yield from (secret, json.dumps(secret)[1:-1], quote(secret), quote(secret, safe=""))
    for before in range(3):
        # Up to three bytes share a group of four characters with their neighbours, which are not known.
        whole = base64.b64encode(bytes(before) + secret.encode()).decode().rstrip("=")
        inner = whole[4 if before else 0 : len(whole) // 4 * 4]
        yield from (inner, inner.translate(_URL_SAFE))


def _pattern(secret: str) -> re.Pattern[str]:
    forms = {form for form in _forms(secret) if len(form) >= _SHORTEST}
    return re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)))


class _Redacting(logging.Formatter):
    """Another formatter, with `***` in place of `secrets`, of the one that the run works with, and of what has the
    shape of a key, a token or a password: a library's exception may quote a whole header."""

    def __init__(self, inner: logging.Formatter, secrets: Sequence[str]) -> None:
        super().__init__()
        self._inner = inner
        self._secrets = [_pattern(secret) for secret in secrets if len(secret) >= _SHORTEST]

    def format(self, record: logging.LogRecord) -> str:
        text = self._inner.format(record)
        patterns = self._secrets
        if (of_run := log_context.hidden()) is not None and len(of_run) >= _SHORTEST:
            patterns = [*patterns, _pattern(of_run.get_secret_value())]
        for pattern in patterns:
            text = pattern.sub(_HIDDEN, text)
        for shape in _SHAPES:
            text = shape.sub(rf"\1{_HIDDEN}", text)
        return text
