"""Refused parameters are known by an endpoint's error: which one, and in what words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, cast

import openai

from drsai_backend.tools.http.hiding import Hiding
from drsai_backend.tools.literals import Secrets

_REFUSALS: Final = (400, 404, 413, 422)
"""What these say is of the request, and not of the server's key or of its state."""


def refused_parameter(error: Exception, sent: Iterable[str]) -> str | None:
    """The one of the parameters `sent` that the endpoint did not take; None: it refuses something else.

    Endpoints say it in `param`, as OpenAI does, or name the field in the text: quoted, or as part of a path.
    """
    if not isinstance(error, openai.BadRequestError | openai.UnprocessableEntityError):
        return None
    names = list(sent)
    if error.param:
        param = re.split(r"[.\[]", error.param)[0]
        return param if param in names else None
    text = f"{error.message} {_text(error.body)}"
    # Plain words would find `stop` and `seed` in sentences.
    found = ((re.search(rf"""(?:['"`]|body\.){re.escape(name)}(?:['"`.:]|\[)""", text), name) for name in names)
    places = [(match.start(), name) for match, name in found if match is not None]
    return min(places)[1] if places else None


def words_of(error: object) -> str | None:
    """Return what an endpoint of any provider says of a request that it refuses, without its key and what looks like
    one; None: that is no such error, or it says nothing."""
    body: object = getattr(error, "body", None)
    while isinstance(body, dict):
        fields = cast("dict[str, object]", body)
        body = fields.get("error") or fields.get("message") or fields.get("detail")
    if getattr(error, "status_code", None) not in _REFUSALS or not body:
        return None
    return " ".join(without_keys(str(body), error).split())[:500]


def without_keys(text: str, error: object) -> str:
    """The beginning of a text about an error, without the key that was sent with its request, and what looks like
    one."""
    headers: Mapping[str, str] = getattr(getattr(error, "request", None), "headers", {})
    sent = (headers.get(name) for name in ("authorization", "api-key", "x-api-key"))
    text = Hiding(value.split()[-1] for value in sent if value).text(text)[:5_000]
    return Secrets(text).hidden(text)


def _text(body: object) -> str:
    """The texts of an error's body."""
    match body:
        case str():
            return f"'{body}'"
        case dict():
            return " ".join(map(_text, cast("dict[str, object]", body).values()))
        case list():
            return " ".join(map(_text, cast("list[object]", body)))
        case _:
            return ""
