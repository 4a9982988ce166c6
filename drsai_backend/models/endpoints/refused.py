"""Which parameter an endpoint has refused, by its error."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

import openai


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
