"""Literals are secrets that a configuration holds in clear: they are found by the names of their fields and by their
own form.

A secret that was found in one place is hidden wherever else it stands. The name of a variable takes its place.
The config of a registered tool names its credentials (`{secret:NAME}`) and has none in its headers. What an older
release has stored may have some: these go on to be sent, and are masked wherever they are shown.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias, cast
from urllib.parse import urlsplit

from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.http.hiding import SHOWN

FieldPath: TypeAlias = tuple[str | int, ...]
_LEAST: Final = 6
"""Characters of a secret that is looked for elsewhere, too. Anything shorter is in all texts."""
_WORDS: Final = (
    *("apikey", "appkey", "authorization", "bearer", "cookie", "credential", "credentials"),
    *("passwd", "password", "pwd", "secret", "secrets", "token"),
)
_BEFORE_KEY: Final = frozenset(
    ["access", "api", "app", "auth", "client", "encryption", "licence", "license", "private", "secret", "subscription"]
)
_NO_TOKENS: Final = frozenset(["bos", "eos", "pad", "sep", "stop", "unk"])
"""Words before `token` that make it a mark in a text."""
_NESTED: Final = frozenset(("credential", "credentials", "env", "secrets"))
"""Fields in which all that stands deeper is secret."""
_GIVEN: Final = ("const", "default", "enum", "example", "examples")
"""In a JSON Schema, the fields that hold values."""
_KEY: Final = re.compile(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])\S{12,}")
MAX_SECRETS: Final = 200
"""Each text is searched for each of them."""
_NONE: Final = frozenset(("", "empty", "none", "null", "todo_autofill_by_system"))
_REFERENCE: Final = re.compile(r"\$\{?([A-Za-z_]\w*)\}?|env:([A-Za-z_]\w*)")
_PLACEHOLDER: Final = re.compile(r"\{\{?[^{}]*\}?\}")
_SCHEME: Final = re.compile(r"(?:bearer|basic|token|apikey)\s+", re.I)
_FORMS: Final = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*-----|$)"),
    re.compile(r"\b[spr]k[-_][A-Za-z0-9_-]{12,}"),
    re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|hf_)[A-Za-z0-9_-]{10,}"),
    re.compile(r"\bAKIA[0-9A-Z]{16}\b"),
    re.compile(r"\bAIza[A-Za-z0-9_-]{30,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"),
    re.compile(r"\b[Bb]earer\s+((?=\S*\d)[A-Za-z0-9._~+/=-]{8,})"),
    re.compile(r"://[^/\s:@{}]*:([^/\s@{}]+)@"),
    re.compile(r"[?&](?:api_?key|appid|key|token|access_token|secret|sig|signature|password)=([^&#\s{}]+)", re.I),
)
"""What looks like a secret wherever it stands: the group, or all of it."""
_NAMED: Final = re.compile(r"\{[^{}]*\}")
_RANDOM: Final = re.compile(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_+/=]{24,}")
"""As a header's value: what nobody would write who did not copy it."""


def reference_of(value: object) -> str | None:
    """The environment variable that a text stands for: `${NAME}`, `$NAME`, `env:NAME`."""
    found = _REFERENCE.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if found is None else found[1] or found[2]


class TooManySecrets(Exception):
    """There are more than `MAX_SECRETS`."""


class Secrets:
    """The secrets of a configuration, each with the name of a variable.

    Args:
        data: all of it.

    Raises:
        TooManySecrets: there are more than `MAX_SECRETS`.
    """

    def __init__(self, data: object) -> None:
        self._names: dict[str, str] = {}
        self._paths: dict[FieldPath, str] = {}
        self.found: dict[str, FieldPath] = {}
        """By the name of its variable, where a secret stood first."""
        self._find(data, ())
        self._anywhere = _search([each for each in self._names if len(each) >= _LEAST])

    def at(self, path: FieldPath) -> str | None:
        """The name for the whole value of a field that is a secret."""
        return self._paths.get(path)

    def parts(self, text: str, path: FieldPath) -> Iterator[tuple[bool, str]]:
        """A text in pieces: (False, text) and (True, the name of the secret that stood there)."""
        search = self._anywhere
        if (own := self._paths.get(path)) is not None:
            search = _search([each for each, name in self._names.items() if name == own or len(each) >= _LEAST])
        if search is None:
            yield False, text
            return
        for index, piece in enumerate(search.split(text)):
            if piece:
                yield (True, self._names[piece]) if index % 2 else (False, piece)

    def hidden(self, text: str, path: FieldPath = ()) -> str:
        """A text with the names of its secrets in their places, for messages."""
        return "".join(f"${{{piece}}}" if secret else piece for secret, piece in self.parts(text, path))

    def _find(self, value: object, path: FieldPath, *, within: bool = False, schema: bool = False) -> None:
        """Args: `within` a field that holds secrets only; in a JSON `schema`, where names are those of parameters."""
        if isinstance(value, Mapping):
            for name, each in cast("Mapping[str, object]", value).items():
                deeper = (*path, name)
                self._forms_in(name, deeper)
                described = schema or (name == "parameters" and _is_schema(each))
                if described:
                    is_secret = name in _GIVEN and len(path) > 0 and _is_secret(str(path[-1]), each)
                else:
                    is_secret = within or _is_secret(name, each)
                if is_secret and isinstance(each, str | int | float) and not isinstance(each, bool):
                    self._whole(str(each), deeper)
                listed = isinstance(cast("object", each), list)
                holds = within or name.lower() in _NESTED or (is_secret and listed)
                self._find(each, deeper, within=holds and (is_secret or not described), schema=described)
        elif isinstance(value, list):
            for index, each in enumerate(cast("list[object]", value)):
                if within and isinstance(each, str):
                    self._whole(each, (*path, index))
                self._find(each, (*path, index), within=within, schema=schema)
        elif isinstance(value, str):
            self._forms_in(value, path)

    def _whole(self, value: str, path: FieldPath) -> None:
        scheme = _SCHEME.match(value)
        secret = value[scheme.end() :].strip() if scheme else value.strip()
        if secret.lower() in _NONE or reference_of(secret) or not _PLACEHOLDER.sub("", secret).strip():
            return
        self._add(secret, path)
        self._paths[path] = self._names[secret]

    def _forms_in(self, text: str, path: FieldPath) -> None:
        for form in _FORMS:
            for found in form.finditer(text):
                secret = found[form.groups]
                if secret.lower() not in _NONE and not reference_of(secret):
                    self._add(secret, path)

    def _add(self, secret: str, path: FieldPath) -> None:
        if secret in self._names:
            return
        if len(self.found) == MAX_SECRETS:
            raise TooManySecrets
        words = [each for each in path if isinstance(each, str)][-2:]
        name = re.sub(r"[^A-Z0-9]+", "_", "_".join(map(_snake, words)).upper()).strip("_")[:60] or "SECRET"
        if name[0].isdigit():
            name = f"SECRET_{name}"
        taken, number = name, 2
        while taken in self.found:
            taken, number = f"{name}_{number}", number + 1
        if any(secret in each for each in (taken, taken.lower())):  # a name that would say it
            taken = f"SECRET_{len(self.found) + 1}"
        self._names[secret] = taken
        self.found[taken] = path


def _snake(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).lower()


def _is_secret(name: str, value: object) -> bool:
    words = [each for each in _snake(name).split("_") if each]
    if not words:
        return False
    if words == ["key"]:  # Many a thing is called so.
        return isinstance(value, str) and _KEY.fullmatch(value) is not None
    before = words[-2] if len(words) > 1 else ""
    return before in _BEFORE_KEY if words[-1] == "key" else words[-1] in _WORDS and before not in _NO_TOKENS


def _is_schema(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    named = cast("Mapping[str, object]", value)
    return "properties" in named or named.get("type") == "object"


def _search(secrets: list[str]) -> re.Pattern[str] | None:
    """Finds any of them, the longest first: a secret may be the beginning of another one."""
    longest = sorted(secrets, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest))})") if longest else None


# --- headers of a registered tool ------------------------------------------------------------------------------------


def masked(config: JsonObject) -> JsonObject:
    """A config as it may be shown."""
    shown = copy.deepcopy(config)
    for _, part, name in _headers(shown):
        if _is_literal(name, part["headers"][name]):
            part["headers"][name] = SHOWN
    return shown


def checked(config: JsonObject, stored: JsonObject | None) -> JsonObject:
    """A config that somebody writes, in which what is masked is as it is `stored`.

    Raises:
        InvalidRequest: a header has a credential; or what is masked is not there, or would go to another server.
    """
    given = copy.deepcopy(config)
    for path, part, name in _headers(given):
        param = f"config.{path}headers.{name}"[:200]
        text = "put it into `secrets`, and write `{secret:NAME}` in its place"
        if part["headers"][name] == SHOWN:
            of: JsonObject = ((stored or {}).get(path[:-1]) if path else stored) or {}
            kept = {key.lower(): value for key, value in of.get("headers", {}).items()}.get(name.lower())
            if kept is None or urlsplit(str(of.get("url")))[:2] != urlsplit(str(part.get("url")))[:2]:
                raise InvalidRequest(f"`{param}`: no credential for this server is stored there: {text}", param=param)
            part["headers"][name] = kept
        elif _is_literal(name, part["headers"][name]):
            raise InvalidRequest(f"`{param}` has a credential as it is: {text}", param=param)
    return given


def _headers(config: Mapping[str, object]) -> Iterator[tuple[str, JsonObject, str]]:
    """The path of each part of a config with headers, the part, and a header's name. Nothing is checked yet."""
    parts: dict[str, object] = {"": config, **{f"{name}.": config.get(name) for name in ("endpoint", "check")}}
    for path, found in parts.items():
        part = cast("JsonObject", found if isinstance(found, dict) else {})
        headers: object = part.get("headers")
        for name in cast("JsonObject", headers) if isinstance(headers, dict) else ():
            yield path, part, name


def _is_literal(name: str, value: object) -> bool:
    """Whether a header has a credential by its name, unless one is named in it, or something that looks like one."""
    rest = _NAMED.sub("", str(value))
    named = "value" if "{secret:" in str(value) else name  # Beside a named one, only its form tells another.
    return bool(Secrets({named: rest}).found) or _RANDOM.fullmatch(rest.strip()) is not None
