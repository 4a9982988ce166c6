"""The OpenAPI document: what FastAPI finds out by itself, and what is the same for all operations.

Routes say what is theirs; here every operation, of whatever route, gets the errors that it can answer with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fastapi import FastAPI

from drsai_backend.api.openai import chat

_METHODS: Final = frozenset({"get", "post", "put", "patch", "delete"})
_ERROR: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "The field or header that is wrong."},
                "code": {"type": "string"},
            },
        }
    },
}
_EVERYWHERE: Final = {
    400: "Something in the request cannot be used; `param` names it.",
    500: "Something went wrong here; the log has it under `X-Request-Id`.",
    503: "The database cannot be used now, or this server stops. `Retry-After` says in how many seconds to ask again.",
}
_OF_A_NAME: Final = {404: "There is none of that name, or it is another user's."}
_OF_A_CHANGE: Final = {409: "What is stored is not what the request goes by."}
_OF_A_BODY: Final = {
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    422: "The thread's stored state cannot be read; it is left as it is.",
}
_OF_A_RUN: Final = {502: "The run ended as an error.", 404: "There is no such model."}


def install_document(app: FastAPI) -> None:
    """Complete `app.openapi()`."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        document = describe()
        operation = chat.operation()
        document["paths"] = {chat.PATH: operation["path"], **document["paths"]}
        schemas: dict[str, Any] = document.setdefault("components", {}).setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        schemas |= {**operation["schemas"], "Error": _ERROR}
        for path, method, each in _operations(document):
            _complete(path, method, each)
        return document

    app.openapi = openapi


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method in _METHODS:
                yield path, method, operation


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    errors = dict(_EVERYWHERE)
    if "{" in path:
        errors |= _OF_A_NAME
    if method != "get":
        errors |= _OF_A_CHANGE
    if "requestBody" in operation:
        errors |= _OF_A_BODY
    if path == chat.PATH:
        errors |= _OF_A_RUN
    responses: dict[str, Any] = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]  # FastAPI's own; here it is a 400
    schema = {"$ref": "#/components/schemas/Error"}
    for status, description in sorted(errors.items()):
        content = {"application/json": {"schema": schema}}
        responses.setdefault(str(status), {"description": description, "content": content})
