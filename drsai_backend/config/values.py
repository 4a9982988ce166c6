"""The values of settings have types: how each is written in a variable, and what makes one unusable.

Each says in words what a value must be and never repeats it, as it may be a secret.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, cast

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, SecretStr
from pydantic_settings import NoDecode

_CENTURY: Final = 36_500
"""Days. More, before now, is soon no date."""


def _read(value: object, shorter: Callable[[str], object]) -> object:
    """Return what a variable holds: JSON, or what is shorter to write."""
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith(("[", "{")):
        return shorter(value)
    try:
        return cast(object, json.loads(value))
    except (ValueError, RecursionError):
        raise ValueError("is not valid JSON; one word, or names separated by commas, need none") from None


def _names(value: object) -> object:
    return _read(value, lambda text: [name.strip() for name in text.split(",") if name.strip()])


def _teams(value: object) -> object:
    """`true` is for all teams, `false` for none."""
    word = str(value).strip().lower()
    return ["*"] if word in ("true", "1", "yes", "on") else [] if word in ("false", "0", "no", "off") else _names(value)


def _secrets(value: object) -> object:
    """White space counts: it does in DRSAI_SECRET_KEY."""
    return _read(value, lambda text: [secret for secret in text.split(",") if secret])


def _by_model(value: object) -> object:
    """One word is for all models."""
    return _read(value, lambda text: {"*": text.strip()})


def _numbers(example: str) -> BeforeValidator:
    """Words such as `requests=60`, separated by commas."""

    def number(text: str) -> tuple[str, str]:
        name, is_said, value = text.partition("=")
        if not is_said:
            raise ValueError(f"must be words such as {example}, separated by commas")
        return name.strip(), value.strip()

    return BeforeValidator(
        lambda value: _read(value, lambda text: dict(number(each) for each in text.split(",") if each.strip()))
    )


def _no_word(text: str) -> object:
    raise ValueError("must be JSON")


_DOCUMENT: Final = BeforeValidator(lambda value: _read(value, _no_word))


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _check_origins(value: list[str]) -> list[str]:
    for origin in value:
        if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
            raise ValueError("must be origins such as https://example.org: a scheme, a host, no path")
    return value


def _check_hosts(value: list[str]) -> list[str]:
    if any("/" in host for host in value):
        raise ValueError("must be hosts such as example.org or *.example.org: no scheme, no path")
    return value


def _check_networks(value: list[str]) -> list[str]:
    """uvicorn would take what is no address for a name that no client ever has, and trust nobody by it."""
    for item in value:
        try:
            ipaddress.ip_network(item)
        except ValueError:
            raise ValueError(
                "must be IP addresses or networks, separated by commas: 10.0.0.7, 10.1.0.0/16 (and not 10.1.2.3/16)"
            ) from None
    return value


def _check_delays(value: list[float]) -> list[float]:
    if len(value) > 100 or not all(0 <= each <= 30 * 86400 for each in value):
        raise ValueError("must be at most 100 numbers of seconds, separated by commas, none above 30 days")
    return value


def _within_dates(days: float) -> float:
    return min(days, _CENTURY)


def _check_kept(value: dict[str, float]) -> dict[str, float]:
    for name in value:
        tenant, slash, status = name.rpartition("/")
        if status not in _KEPT or bool(slash) != bool(tenant):
            raise ValueError(f"must be days by status, or tenant/status; the statuses are {', '.join(_KEPT)}")
    return value


def _check_endpoint(value: str | None) -> str | None:
    if value is not None and not value.startswith(("http://", "https://")):
        raise ValueError("must start with http:// or https://")
    if value is not None and "@" in value:
        raise ValueError(
            "must not hold a user name or password; a key belongs in a variable of its own, as OPENAI_API_KEY"
        )
    return value.rstrip("/") if value else value


def _check_variable(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError("must be the name of an environment variable, and not a key itself")
    return value


def usable_key(key: SecretStr) -> SecretStr | None:
    """An API key without the white space around it, which mounted secrets and copied lines end with. None: it is empty.

    Raises:
        ValueError: no HTTP header can hold it; the text does not repeat it.
    """
    text = key.get_secret_value().strip()
    if not all("!" <= character <= "~" for character in text):
        raise ValueError("must be an API key: letters, digits and signs of ASCII, without spaces")
    return SecretStr(text) if text else None


def _check_key(value: SecretStr | None) -> SecretStr | None:
    return None if value is None else usable_key(value)


def _strip(value: SecretStr | None) -> SecretStr | None:
    """Mounted secrets and copied lines end with white space."""
    return None if value is None else SecretStr(value.get_secret_value().strip())


_KEPT: Final = ("created", "completed", "stopped", "error", "paused", "awaiting_input", "*")
"""Statuses of threads that may be deleted, and all that have nothing under way."""

UPPER: Final = BeforeValidator(_upper)
"""Words that are written in any case."""

Names: TypeAlias = Annotated[list[str], NoDecode, BeforeValidator(_names)]
"""Separated by commas, or JSON."""
TeamNames: TypeAlias = Annotated[list[str], NoDecode, BeforeValidator(_teams)]
"""As `Names`, or `true` for all."""
Folders: TypeAlias = Annotated[list[Path], NoDecode, BeforeValidator(_names)]
"""As `Names`, of paths."""
VariableName: TypeAlias = Annotated[str | None, AfterValidator(_check_variable)]
"""The name of another variable of the environment."""
Origins: TypeAlias = Annotated[Names, AfterValidator(_check_origins)]
Hosts: TypeAlias = Annotated[Names, AfterValidator(_check_hosts)]
Networks: TypeAlias = Annotated[Names, AfterValidator(_check_networks)]
Delays: TypeAlias = Annotated[list[float], NoDecode, BeforeValidator(_names), AfterValidator(_check_delays)]
OldSecrets: TypeAlias = Annotated[list[SecretStr], NoDecode, BeforeValidator(_secrets)]
MessageRules: TypeAlias = Annotated[
    dict[str, Literal["any", "alternating", "no_system", "reasoning"]], NoDecode, BeforeValidator(_by_model)
]
Continues: TypeAlias = Annotated[
    dict[str, Literal["no", "plain", "prefix", "vllm"]], NoDecode, BeforeValidator(_by_model)
]

LimitsOf: TypeAlias = Annotated[
    dict[Literal["requests", "tokens", "runs", "streams"], Annotated[int, Field(ge=0, le=1_000_000_000)]],
    NoDecode,
    _numbers("requests=60, tokens=100000, runs=4 or streams=8"),
]
"""Requests and tokens a minute, runs and streams at once, as `requests=60, runs=4`, or JSON; 0: no limit."""
BudgetsOf: TypeAlias = Annotated[
    dict[
        Literal["tokens_day", "tokens_month", "cost_day", "cost_month"],
        Annotated[float, Field(ge=0, le=10_000_000_000, allow_inf_nan=False)],
    ],
    NoDecode,
    _numbers("tokens_day=1000000 or cost_month=50"),
]
"""Tokens and money for a day and a month, as `tokens_day=1000000, cost_month=50`, or JSON; 0: no budget."""

Days: TypeAlias = Annotated[float, Field(ge=0, le=1_000_000), AfterValidator(_within_dates)]
"""Days that something is kept for. More than a century is a century: one that is refused would stop a server, or where
it is stored be passed over, so that less is kept."""

Retention: TypeAlias = Annotated[
    dict[str, Days],
    NoDecode,
    _numbers("error=7, paused=90 or acme/*=365"),
    AfterValidator(_check_kept),
]
"""Days by status, or by tenant and status, as `error=7, acme/*=365`, or JSON; 0: kept for ever."""

ToolTimes: TypeAlias = Annotated[
    dict[Annotated[str, Field(min_length=1)], Annotated[float, Field(ge=0, le=86_400)]],
    NoDecode,
    _numbers("web_search=5 or *=60"),
]
"""Seconds by the name of a tool, as `web_search=5, *=60`, or JSON; `*`: of tools that say none; 0: for ever."""

Document: TypeAlias = Annotated[dict[str, JsonValue], NoDecode, _DOCUMENT]
"""A JSON object."""
Levels: TypeAlias = Annotated[dict[str, Literal["team", "tenant"]], NoDecode, _DOCUMENT]
"""`team` or `tenant` by the name of a team, as JSON."""
Documents: TypeAlias = Annotated[list[dict[str, JsonValue]], NoDecode, _DOCUMENT]
"""A list of JSON objects."""

ApiKey: TypeAlias = Annotated[SecretStr | None, AfterValidator(_check_key)]
StrippedSecret: TypeAlias = Annotated[SecretStr | None, AfterValidator(_strip)]
Endpoint: TypeAlias = Annotated[str | None, AfterValidator(_check_endpoint)]
