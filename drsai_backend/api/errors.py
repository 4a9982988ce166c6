"""Errors as OpenAI's clients read them: `{"error": {"message", "type", "param", "code"}}`, whatever went wrong."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from drsai_backend.api._json import dumps
from drsai_backend.errors import DatabaseError, DrSaiError, InvalidRequest, RunFailed

_log = logging.getLogger("drsai.api")
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {404: "not_found", 405: "method_not_allowed"}
# OpenAI's clients repeat these by themselves. A busy thread stays busy for as long as its run takes, and a failed run
# has taken the message: to repeat it would say it twice.
_NO_RETRY = frozenset({409, 500, 502})


class MalformedJSON(InvalidRequest):
    """The body is not JSON."""

    code = "invalid_json"


class UnsupportedMediaType(InvalidRequest):
    """The body is not declared as JSON."""

    code = "unsupported_media_type"
    status = 415


class BodyTooLarge(InvalidRequest):
    """The body is larger than this server accepts."""

    code = "request_too_large"
    status = 413


class Overloaded(DrSaiError):
    """As much is under way as this server takes at once. Nothing was stored."""

    code = "overloaded"
    status = 503


class HostNotAllowed(InvalidRequest):
    """The request's `Host` is none that this server serves."""

    code = "host_not_allowed"


class RunMoved(DrSaiError):
    """The run that was waited for goes on, but not where this process can follow it. Its input is stored."""

    code = "run_moved"
    status = 503


class InternalError(DrSaiError):
    """Something that nobody expected. What it was is in the log, under the request id."""


def error_body(error: DrSaiError, *, code: str | None = None) -> dict[str, Any]:
    """The four keys of an error."""
    return _body(error.message, error.status, error.param, code or error.code)


def error_response(error: DrSaiError, *, code: str | None = None) -> Response:
    """The answer to a request that cannot be served. A 503 says in how many seconds to ask again."""
    if not isinstance(error, RunFailed | InternalError):  # the log has these already, with more
        extra = {"code": code or error.code, "status": error.status, "param": error.param, "reason": error.message}
        _log.info("request refused", extra=extra)
    headers: dict[str, str] = {}
    if error.status == 503:
        headers["retry-after"] = "5" if isinstance(error, DatabaseError) else "1"
    elif error.status == 413:
        headers["connection"] = "close"  # or the server would read the rest of the body, whatever its length
    return _response(error_body(error, code=code), error.status, headers)


def path_of(location: tuple[int | str, ...]) -> str:
    """`("messages", 0, "content")` as `messages[0].content`."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def reason_of(error: Mapping[str, Any]) -> str:
    """What a pydantic error says, in the words of an API and without the value (it may be a secret)."""
    limits: Mapping[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "is required"
        case "int_type" | "int_parsing" | "int_from_float":
            return "must be an integer"
        case "float_type" | "float_parsing":
            return "must be a number"
        case "bool_type" | "bool_parsing":
            return "must be true or false"
        case "string_type":
            return "must be a string"
        case "list_type":
            return "must be a list"
        case "dict_type" | "model_type" | "model_attributes_type":
            return "must be an object"
        case "greater_than":
            return f"must be more than {limits['gt']:g}"
        case "greater_than_equal":
            return f"must be at least {limits['ge']}"
        case "less_than_equal":
            return f"must be at most {limits['le']}"
        case "string_too_short" | "too_short":
            return "must not be empty"
        case "string_too_long":
            return f"must have at most {limits['max_length']} characters"
        case "literal_error" | "enum":
            return f"must be {limits['expected']}"
        case "extra_forbidden":
            return "is not known here"
        case "value_error":
            return str(error["msg"]).removeprefix("Value error, ")
        case _:
            return "is not valid"


def refusal(error: ValidationError) -> InvalidRequest:
    """What is wrong with a body, by its first field that is."""
    first = error.errors(include_url=False, include_context=True, include_input=False)[0]
    param = path_of(first["loc"])
    return InvalidRequest(f"`{param}` {reason_of(first)}", param=param)


def _fits(template: str, path: str) -> bool:
    """Whether a path is one of a template of the OpenAPI document, which has them in the order of the routes."""
    # Names of threads and models may hold slashes.
    pattern = re.sub(r"\\{(.+?)\\}", lambda name: "[^/]+" if name[1] == "run_id" else ".+", re.escape(template))
    return re.fullmatch(pattern, path) is not None


def install_error_handlers(app: FastAPI) -> None:
    """Answer all errors below the routes in OpenAI's shape; `middleware.RequestBoundary` does it for what is left."""

    async def expected(_: Request, error: Exception) -> Response:
        assert isinstance(error, DrSaiError)
        return error_response(error)

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = _CODES.get(error.status_code, "invalid_request" if error.status_code < 500 else "internal_error")
        return _response(_body(error.detail, error.status_code, None, code), error.status_code, error.headers)

    async def not_found(request: Request, error: Exception) -> Response:
        message = f"there is no {request.url.path!r} here"
        return _response(_body(message, 404, None, "not_found"), 404)

    async def wrong_method(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        # Starlette names the methods of one route only; a path has several.
        paths: dict[str, dict[str, Any]] = request.app.openapi()["paths"]
        found = next((item for path, item in paths.items() if _fits(path, request.scope["path"])), None)
        allowed = ", ".join(sorted(map(str.upper, found or ()))) or (error.headers or {}).get("Allow", "")
        message = f"{request.method} is not allowed for {request.url.path!r}; use {allowed}"
        return _response(_body(message, 405, None, "method_not_allowed"), 405, {"Allow": allowed})

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        param = path_of(tuple(first["loc"][1:]))
        return error_response(InvalidRequest(f"`{param}` {reason_of(first)}", param=param or None))

    app.add_exception_handler(DrSaiError, expected)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(404, not_found)
    app.add_exception_handler(405, wrong_method)
    app.add_exception_handler(RequestValidationError, invalid)


def _body(message: str, status: int, param: str | None, code: str) -> dict[str, Any]:
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _response(body: dict[str, Any], status: int, headers: Mapping[str, str] | None = None) -> Response:
    response = Response(dumps(body), status, headers, "application/json")
    if status in _NO_RETRY:
        response.headers["x-should-retry"] = "false"
    return response
