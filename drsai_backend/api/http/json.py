"""JSON answers: objects, and pages of them as OpenAI lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import orjson
from starlette.responses import Response

from drsai_backend.json_types import JsonObject


def dumps(value: object) -> bytes:
    """JSON as UTF-8. A lone surrogate, which a model's broken output can hold, becomes a question mark."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(_well_formed(value))


def _well_formed(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_well_formed(key): _well_formed(item) for key, item in cast(dict[object, object], value).items()}
    if isinstance(value, list | tuple):
        return [_well_formed(item) for item in cast(list[object], value)]
    return value


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dumps(body), status, headers, "application/json")


def list_response(data: list[JsonObject], following: str | int | None) -> Response:
    """A page. `following` is the `after` of the next one; None: there is none."""
    body = {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": following is not None,
        "next": following,
    }
    return json_response(body)


def page_of(schema: JsonObject) -> JsonObject:
    """The JSON schema of a page of such objects."""
    properties = {
        "object": {"const": "list"},
        "data": {"type": "array", "items": schema},
        "first_id": {"type": ["string", "null"]},
        "last_id": {"type": ["string", "null"]},
        "has_more": {"type": "boolean"},
        "next": {"type": ["string", "integer", "null"], "description": "`after` of the following page."},
    }
    return {"type": "object", "required": list(properties), "properties": properties}


def answers(status: int, schema: JsonObject, description: str = "As it is now.") -> dict[int | str, JsonObject]:
    """What a route answers with when all is well, for the OpenAPI document."""
    return {status: {"description": description, "content": {"application/json": {"schema": schema}}}}
