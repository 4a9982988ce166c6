"""Error texts: every route is asked for what it refuses, every setting is given a bad value, every bad definition is
read."""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from drsai_backend import DrSai
from drsai_backend.config import Settings
from drsai_backend.definitions import DefinitionError, read_definitions
from drsai_backend.definitions.convert import convert
from drsai_backend.errors import ConfigurationError
from tests.api.access.conftest import BODIES, OPERATIONS, prepare
from tests.api.test_refused_inputs import REFUSED
from tests.definitions import test_bad, test_convert
from tests.definitions.stored.test_api import WRONG
from tests.support.threads import settings

_RAW = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "a text": b'"x"',
    "no fields": b"{}",
    "a NUL": b'{"a": "\\u0000"}',
}
_VALUES: dict[str, Any] = {"an object": {"zzz": []}, "an empty text": "", "a number": -1, "a list": [{}]}
_QUERY = ("", "x", "-1", "\n")
_IDS = re.compile(
    r"\b(?:run_|resp_|thread_|evt_|key_|file-|msg_|vs_|vsfb_|mem_|req_)[0-9A-Za-z]{12,}\w*|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
)


_PYDANTIC = re.compile(r"\b(?:[A-Z]\w+) should .*")


def _ours(text: str) -> str:
    """A text without what pydantic says in words of its own."""
    return _PYDANTIC.sub("… should …", text)[:400]


class Asker:
    """Asks the routes, and notes how each refuses the variants of a case."""

    def __init__(self, http: httpx.AsyncClient, names: dict[str, str], key: str) -> None:
        self.http, self.names, self.key = http, names, key
        self.found: dict[tuple[str, str], dict[str, str | None]] = defaultdict(dict)

    async def ask(self, case: str, variant: str, route: tuple[str, str], **more: Any) -> None:
        method, path = route
        names = {**self.names, **more.pop("names", {})}
        headers = {"authorization": f"Bearer {self.key}", **more.pop("headers", {})}
        answer = await self.http.request(method, path.format(**names), headers=headers, **more)
        self.found[case, variant][f"{method.upper()} {path}"] = _said(answer)

    def lines(self) -> Iterator[str]:
        """What most routes say to a variant is one line, and so is what a route says to several."""
        lines: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        for (case, variant), answers in sorted(self.found.items()):
            said, count = Counter(answers.values()).most_common(1)[0]
            alike = said if count > 2 and count > len(answers) / 2 else None
            if alike is not None:
                lines[case, "every other route", alike].append(variant)
            for route, said in sorted(answers.items()):
                if said != alike:
                    lines[case, route, said or "is taken"].append(variant)
        for (case, route, said), variants in sorted(lines.items()):
            yield f"{route} [{case}{': ' if variants[0] else ''}{', '.join(variants)}]: {said}"


def _said(answer: httpx.Response) -> str | None:
    """The error of an answer; None: it has none."""
    if answer.status_code < 400:
        return None
    error = answer.json().get("error") or answer.json()
    parts = [str(answer.status_code), *(str(error[key]) for key in ("type", "code", "param") if error.get(key))]
    return _IDS.sub("…", f"{' '.join(parts)}: {error['message']}")


async def of_routes(url: str) -> list[str]:
    """What the routes refuse, on a fresh database."""
    names, keys = await prepare(url)
    async with DrSai(None, url, settings=settings()) as drsai:
        drsai.engine._feeds._closing = lambda: True  # no log waits for what is still to come
        app = drsai.app()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            asker = Asker(http, names, keys["ann"])
            # What deletes comes last.
            routes = sorted(
                ((method, path) for method, path, _ in OPERATIONS), key=lambda each: (each[0] == "delete", each)
            )
            for route in routes:
                await _route(asker, route, keys, app.openapi())
            for case, body, *_ in REFUSED:
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                await asker.ask("chat", case, ("post", "/v1/chat/completions"), content=content, headers=_JSON)
            for field, (definition, _) in WRONG.items():
                body = {"name": "helper", "definition": definition}
                await asker.ask("definition", field, ("post", "/v1/agents"), json=body)
            return [*asker.lines()]


_JSON = {"content-type": "application/json"}


async def _route(asker: Asker, route: tuple[str, str], keys: dict[str, str], document: Any) -> None:
    method, path = route
    for who in ("without a key", "revoked", "bob", "gateway"):
        headers = {"authorization": f"Bearer {keys[who]}" if who in keys else ""}
        if who in ("without a key", "revoked") or "{" in path:
            await asker.ask("who asks", who, route, headers=headers, json={} if method in ("post", "put") else None)
    await asker.ask("another method", "", ("patch", path))
    for name in re.findall(r"{(\w+)}", path):
        for value in ("none", "a%00b", "x" * 300):
            body = BODIES.get(route, {}) if method in ("post", "put") else None
            await asker.ask(f"path {name}", value[:5], route, names={name: value}, json=body)
    described = document["paths"].get(path, {}).get(method, {})
    for each in described.get("parameters", ()):
        if each["in"] == "query" and method == "get":
            for value in _QUERY:
                await asker.ask(f"query {each['name']}", repr(value), route, params={each["name"]: value})
    await asker.ask("query zzz", "", route, params={"zzz": "1"}, names=dict.fromkeys(asker.names, "none"))
    if method in ("post", "put"):
        await _bodies(asker, route, described, document)


async def _bodies(asker: Asker, route: tuple[str, str], described: Any, document: Any) -> None:
    for case, content in _RAW.items():
        await asker.ask("body", case, route, content=content, headers=_JSON)
    await asker.ask("body", "no JSON's type", route, content=b"{}", headers={"content-type": "text/plain"})
    good = BODIES.get(route, {})
    given = described.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for name in sorted({*_fields(given, document), "zzz"}):
        for case, value in _VALUES.items():
            await asker.ask(f"field {name}", case, route, json={**good, name: value})


def _fields(schema: Any, document: Any) -> Iterator[str]:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    yield from schema.get("properties", {})
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _fields(each, document)


def of_settings() -> Iterator[str]:
    """What the settings refuse that come from the environment."""
    for name, field in sorted(Settings.model_fields.items()):
        variable = str(field.validation_alias or f"drsai_{name}").upper()
        for value in ("?", "-1", "["):
            with patch.dict(os.environ, {variable: value}, clear=True):
                try:
                    Settings(_env_file=None)
                except ConfigurationError as error:
                    yield f"{variable}={value[:3]}: {_ours(error.message)}"


def of_definitions(folder: Path) -> Iterator[str]:
    """What is wrong with definitions in files, and with those of other formats."""
    file = folder / "team.yaml"
    for case, (text, *_) in sorted(test_bad.BAD.items()):
        file.write_text(text, encoding="utf-8")
        try:
            read_definitions(str(file), ["lab"], environment={})
        except DefinitionError as error:
            for each in error.problems[:3]:
                yield f"{case}: {_ours(str(each).replace(f'{folder}/', ''))}"
    for case, (given, *_) in sorted(test_convert.BAD.items()):
        try:
            convert(given if isinstance(given, str) else json.dumps(given, indent=1), "bot.json")
        except DefinitionError as error:
            yield from (f"{case}: {_ours(str(each))}" for each in error.problems[:3])
