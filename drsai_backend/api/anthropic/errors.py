"""Errors have the form here that Anthropic's clients read: `{"type": "error", "error": {"type", "message"},
"request_id"}`.

https://docs.anthropic.com/en/api/errors. `param` and `code` of the error stand beside, for programs. Which exception
its clients raise goes by the status, which is that of OpenAI's routes.
"""

from __future__ import annotations

from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from drsai_backend import log_context
from drsai_backend.api.http.errors import refused_login
from drsai_backend.json_types import JsonObject

_BY_CODE: Final = {
    **dict.fromkeys(("not_found", "model_not_found"), "not_found_error"),
    "request_too_large": "request_too_large",
    **dict.fromkeys(("overloaded", "shutting_down", "database_unavailable"), "overloaded_error"),
    "model_timeout": "timeout_error",
    "insufficient_quota": "rate_limit_error",
}
_BY_TYPE: Final = {"server_error": "api_error"}
_BY_STATUS: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
ERROR_SCHEMA: Final = {
    "type": "object",
    "required": ["type", "error"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {
                "type": {"type": "string"},
                "message": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "The field or header that is wrong."},
                "code": {"type": "string"},
            },
        },
        "request_id": {"type": ["string", "null"]},
    },
}


def anthropic_error(body: JsonObject) -> JsonObject:
    """An error as OpenAI has it, in Anthropic's shape."""
    error: JsonObject = body["error"]
    kind = _BY_CODE.get(error["code"]) or _BY_TYPE.get(error["type"], error["type"])
    told = {"type": kind, "message": error["message"], "param": error["param"], "code": error["code"]}
    return {"type": "error", "error": told, "request_id": log_context.current_request()}


def login_response(error: HTTPException) -> Response:
    """The answer where an application's own login has refused."""
    kind = _BY_STATUS.get(error.status_code, "api_error" if error.status_code >= 500 else "invalid_request_error")
    return refused_login(error, anthropic_error, kind)
