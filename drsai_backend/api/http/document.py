"""The OpenAPI document: what FastAPI finds out by itself, and the errors that every operation can answer with."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from drsai_backend.json_types import JsonObject

_FOUR: Final = ("message", "type", "param", "code")
_ERROR: Final[JsonObject] = {
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


def install_document(app: FastAPI) -> None:
    """Complete `app.openapi()`: every operation, of whatever route, gets the errors that it can answer with."""
    describe = app.openapi

    def openapi() -> JsonObject:
        if app.openapi_schema is None:
            document = describe()
            schemas: JsonObject = document.setdefault("components", {}).setdefault("schemas", {})
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            schemas["Error"] = _ERROR
            for path, item in document["paths"].items():
                for method, operation in item.items():
                    _add_errors(path, method, operation)
        return app.openapi_schema or {}

    app.openapi = openapi


def _add_errors(path: str, method: str, operation: JsonObject) -> None:
    errors = _EVERYWHERE | (_OF_A_NAME if "{" in path else {}) | (_OF_A_CHANGE if method != "get" else {})
    if "requestBody" in operation:
        errors |= _OF_A_BODY
    responses: JsonObject = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]  # FastAPI's own; here it is a 400
    for status, description in sorted(errors.items()):
        responses.setdefault(str(status), {"description": description, "content": ERROR_CONTENT})
