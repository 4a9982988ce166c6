"""JSON answers are objects, and pages of them as OpenAI lists; here is what the OpenAPI document says of them and of
errors."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from typing import Final, TypeVar, cast

import orjson
from fastapi import FastAPI
from starlette.responses import Response

from drsai_backend.json_types import JsonObject
from drsai_backend.page import N, Page

T = TypeVar("T")

_FOUR: Final = ("message", "type", "param", "code")
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": _FOUR,
            "properties": {
                **{key: {"type": "string"} for key in _FOUR},
                "param": {"type": ["string", "null"], "description": "The field or header that is wrong."},
            },
        }
    },
}
ERROR_CONTENT: Final = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
EVENTS: Final = {"text/event-stream": {"schema": {"$ref": "#/components/schemas/Event"}}}
"""The content of an answer that is a stream."""
NO_MODEL: Final = {"description": "There is no such model.", "content": ERROR_CONTENT}
"""What a 404 is where a body names the model."""
_EVENT: Final = {
    "type": "object",
    "description": "One of the server-sent events of an answer.",
    "required": ["data"],
    "properties": {
        "event": {"type": "string"},
        "id": {"type": "string"},
        "data": {"type": "string", "description": "JSON; at the end of some streams `[DONE]`."},
    },
}
_EVERYWHERE: Final = {
    400: "Something in the request cannot be used; `param` names it.",
    500: "Something went wrong here; the log has it under `X-Request-Id`.",
    503: "The database cannot be used now, or this server stops. `Retry-After` says in how many seconds to ask again.",
}
_OF_A_CALLER: Final = {
    401: "A key is needed here, and there is none, or none that is valid.",
    403: "The key does not allow this; the message and `WWW-Authenticate` name the scope that it lacks.",
    429: "A limit is reached. `Retry-After` says in how many seconds to ask again.",
}
_KEY: Final = {"type": "http", "scheme": "bearer", "description": "An API key, or a token (JWT)."}
_OF_A_NAME: Final = {404: "There is none of that name, or it is another user's."}
_OF_A_CHANGE: Final = {409: "What is stored is not what the request goes by."}
_OF_A_BODY: Final = {
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    422: "The thread's stored state cannot be read; it is left as it is.",
}
_IDS: Final = {
    "api_key": "key_id",
    "conversation": "conversation_id",
    "file": "file_id",
    "response": "response_id",
    "thread": "thread_id",
    "thread.run": "run_id",
}
"""By `object`: the parameter of a path that takes the `id` of such an object."""


TEXT: Final = secrets.token_hex()
"""Stands for the text of a `Template`: nobody else knows it."""


def dumps(value: object) -> bytes:
    """JSON as UTF-8. A lone surrogate, which a model's broken output can hold, becomes a question mark."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(_well_formed(value))


class Template:
    """JSON in which one text differs, so that all else is written once.

    Args:
        whole: it, with `TEXT` where the text is to be.
    """

    __slots__ = ("_after", "_before")

    def __init__(self, whole: bytes) -> None:
        self._before, self._after = whole.split(dumps(TEXT))

    def of(self, text: str) -> bytes:
        """The same with that text."""
        return self._before + dumps(text) + self._after


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


def page_response(page: Page[T, N], shown: Callable[[T], JsonObject] = dict) -> Response:
    """A page, each of its items as it is shown."""
    return json_response({**listed(page.map(shown)), "next": page.next})


def listed(page: Page[JsonObject, N]) -> JsonObject:
    """A page as OpenAI lists it."""
    data = page.items
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": page.next is not None,
    }


def page_of(schema: Mapping[str, object]) -> JsonObject:
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


def answers(
    status: int, schema: Mapping[str, object], description: str = "As it is now."
) -> dict[int | str, JsonObject]:
    """Return what a route answers with when all is well, for the OpenAPI document."""
    return {status: {"description": description, "content": {"application/json": {"schema": schema}}}}


def deletion(kind: str, *, always: bool = True) -> JsonObject:
    """The JSON schema of what `deleted` says; `always`: what was not there is a 404."""
    is_gone = {"const": True} if always else {"type": "boolean"}
    properties = {"id": {"type": "string"}, "object": {"const": kind}, "deleted": is_gone}
    return {"type": "object", "required": [*properties], "properties": properties}


def deleted(name: str, kind: str, *, was_there: bool = True) -> Response:
    """The answer that something is gone, or was not there."""
    return json_response({"id": name, "object": kind, "deleted": was_there})


def install_document(app: FastAPI, *, needs_key: bool) -> None:
    """Complete `app.openapi()`: every operation, of whatever route, gets the errors that it can answer with, and says
    whether it needs a key."""
    secured: list[JsonObject] = [{"key": []}] if needs_key else [{"key": []}, {}]
    describe = app.openapi

    def openapi() -> JsonObject:
        if app.openapi_schema is None:
            document = describe()
            schemas: JsonObject = document.setdefault("components", {}).setdefault("schemas", {})
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            schemas |= {"Error": _ERROR, "Event": _EVENT}
            document["components"]["securitySchemes"] = {"key": _KEY}
            for path, item in document["paths"].items():
                for method, operation in item.items():
                    is_open = "health" in operation.get("tags", ())
                    operation["security"] = [{}] if is_open else secured
                    _add_errors(path, method, operation, _EVERYWHERE if is_open else _EVERYWHERE | _OF_A_CALLER)
                    _add_links(path, operation, document["paths"])
        return app.openapi_schema or {}

    app.openapi = openapi


def _add_links(path: str, operation: JsonObject, paths: Mapping[str, JsonObject]) -> None:
    """Say of what a request makes, and of the entries of a page, where to ask for it and what can be done with it."""
    makes = "{" not in path or "201" in operation["responses"]
    for answer in (answer for status, answer in operation["responses"].items() if status.startswith("2")):
        schema: JsonObject = answer.get("content", {}).get("application/json", {}).get("schema", {})
        fields: JsonObject = schema.get("properties", {})
        named = {name: f"$response.body#/{name}" for name in ("thread_id", "run_id") if makes and name in fields}
        if makes and (own := _IDS.get(str(fields.get("object", {}).get("const")))) is not None:
            named[own] = "$response.body#/id"
        links = {}
        for other, item in paths.items():
            [*parameters] = re.findall(r"{(\w+)", other)
            where = {name: named[name] for name in parameters if name in named}
            if "data" in fields and re.fullmatch(re.escape(path) + r"/{\w+}", other):
                where = {name: f"$request.path.{name}" for name in parameters[:-1]}
                where[parameters[-1]] = "$response.body#/data/0/id"
            if where and len(where) == len(parameters):
                for each in item.values():
                    links[each["operationId"]] = {"operationId": each["operationId"], "parameters": where}
        if links:
            answer["links"] = links


def _add_errors(path: str, method: str, operation: JsonObject, errors: Mapping[int, str]) -> None:
    errors = {**errors} | (_OF_A_NAME if "{" in path else {}) | (_OF_A_CHANGE if method != "get" else {})
    if "requestBody" in operation:
        errors |= _OF_A_BODY
    responses: JsonObject = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]  # FastAPI's own; here it is a 400
    for status, description in sorted(errors.items()):
        responses.setdefault(str(status), {"description": description, "content": ERROR_CONTENT})
