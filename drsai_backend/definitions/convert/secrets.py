"""Secrets that a configuration holds in clear: found by the names of their fields and by their own form.

A secret that was found in one place is hidden wherever else it stands. The name of a variable takes its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, cast

from drsai_backend.definitions.source import FieldPath

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


def reference_of(value: object) -> str | None:
    """The environment variable that a text stands for: `${NAME}`, `$NAME`, `env:NAME`."""
    found = _REFERENCE.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if found is None else found[1] or found[2]


class Secrets:
    """The secrets of a configuration, each with the name of a variable.

    Args:
        data: all of it.
    """

    def __init__(self, data: object) -> None:
        self._names: dict[str, str] = {}
        self._paths: dict[FieldPath, str] = {}
        self.found: dict[str, FieldPath] = {}
        """By the name of its variable, where a secret stood first."""
        self._find(data, ())
        self._longest = sorted((each for each in self._names if len(each) >= _LEAST), key=len, reverse=True)

    def at(self, path: FieldPath) -> str | None:
        """The name for the whole value of a field that is a secret."""
        return self._paths.get(path)

    def parts(self, text: str, path: FieldPath) -> Iterator[tuple[bool, str]]:
        """A text in pieces: (False, text) and (True, the name of the secret that stood there)."""
        short = self._paths.get(path)
        known = self._longest
        if short is not None:
            known = [secret for secret, name in self._names.items() if name == short or len(secret) >= _LEAST]
            known.sort(key=len, reverse=True)
        if not known:
            yield False, text
            return
        for index, piece in enumerate(re.split("(" + "|".join(map(re.escape, known)) + ")", text)):
            if piece:
                yield (True, self._names[piece]) if index % 2 else (False, piece)

    def hidden(self, text: str, path: FieldPath = ()) -> str:
        """A text with the names of its secrets in their places, for messages."""
        return "".join(f"${{{piece}}}" if secret else piece for secret, piece in self.parts(text, path))

    def _find(self, value: object, path: FieldPath, *, within: bool = False, plain: bool = False) -> None:
        if isinstance(value, Mapping):
            for name, each in cast("Mapping[str, object]", value).items():
                deeper = (*path, name)
                self._forms_in(name, deeper)
                schema = plain or name == "parameters"
                is_secret = not schema and (within or _is_secret(name))
                if is_secret and isinstance(each, str | int) and not isinstance(each, bool):
                    self._whole(str(each), deeper)
                self._find(each, deeper, within=not schema and (within or name.lower() in _NESTED), plain=schema)
        elif isinstance(value, list):
            for index, each in enumerate(cast("list[object]", value)):
                if within and isinstance(each, str):
                    self._whole(each, (*path, index))
                self._find(each, (*path, index), within=within, plain=plain)
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


def _is_secret(name: str) -> bool:
    words = [each for each in _snake(name).split("_") if each]
    if not words:
        return False
    before = words[-2] if len(words) > 1 else ""
    if words[-1] == "key":
        return before in _BEFORE_KEY or len(words) == 1
    return words[-1] in _WORDS and before not in _NO_TOKENS
