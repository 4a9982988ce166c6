"""Errors have the form here that OpenAI's clients read, whatever went wrong: `{"error": {"message", "type", "param",
"code"}}`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import ceil
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from drsai_backend.api.http.checking import refused
from drsai_backend.api.http.json import json_response
from drsai_backend.errors import (
    BudgetReached,
    DatabaseError,
    DrSaiError,
    Forbidden,
    InsufficientScope,
    InvalidRequest,
    RunFailed,
    SwitchedOff,
    TooManyRequests,
    Unauthenticated,
)
from drsai_backend.json_types import JsonObject

_log = logging.getLogger("drsai.api")
_TYPES: Final = {401: "authentication_error", 403: "permission_error", 424: "server_error", 429: "rate_limit_error"}
_CODES: Final = {404: "not_found", 405: "method_not_allowed"}
_METHODS: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")
# OpenAI's clients repeat these by themselves. A busy thread stays busy for as long as its run takes, and a failed run
# has taken the message: to repeat it would say it twice.
_NO_RETRY: Final = frozenset({409, 424, 500})


class MalformedJSON(InvalidRequest, code="invalid_json"):
    """The body is not JSON."""


class UnsupportedMediaType(InvalidRequest, code="unsupported_media_type", status=415):
    """The body is not declared as JSON."""


class BodyTooLarge(InvalidRequest, code="request_too_large", status=413):
    """The body is larger than this server accepts."""


class Overloaded(DrSaiError, code="overloaded", status=503):
    """As much is under way as this server takes at once. Nothing was stored."""


class HostNotAllowed(InvalidRequest, code="host_not_allowed"):
    """The request's `Host` is none that this server serves."""


class OriginNotAllowed(Forbidden, code="origin_not_allowed"):
    """A page of another origin has a browser ask for it, with the browser's own credentials or none."""


class RunMoved(DrSaiError, code="run_moved", status=503):
    """The run that was waited for continues where this process cannot follow it. Its input is stored."""


class InternalError(DrSaiError):
    """Something that nobody expected. What it was is in the log, under the request id."""


def error_body(error: DrSaiError, *, code: str | None = None) -> JsonObject:
    """The four keys of an error."""
    return _body(error.message, error.status, code or error.code, error.param)


def error_response(
    error: DrSaiError, code: str | None = None, shape: Callable[[JsonObject], JsonObject] = dict
) -> Response:
    """The answer to a request that cannot be served. A 503, and that of a limit, says in how many seconds to ask again,
    as far as that is known. `shape`: the body, of one as OpenAI has it."""
    if not isinstance(error, RunFailed | InternalError):  # the log has these already, with more
        extra = {"code": code or error.code, "status": error.status, "param": error.param, "reason": error.message}
        _log.info("request refused", extra=extra)
    headers: dict[str, str] = {}
    if isinstance(error, SwitchedOff | TooManyRequests):
        headers |= {} if error.after is None else {"retry-after": str(ceil(error.after))}
        # What is off stays so for longer than clients try by themselves.
        headers |= {"x-should-retry": "false"} if isinstance(error, SwitchedOff) else {}
    elif error.status == 503:
        headers["retry-after"] = "5" if isinstance(error, DatabaseError) else "1"
    elif error.status == 413:
        headers["connection"] = "close"  # or the server would read the rest of the body, whatever its length
    elif error.status in _NO_RETRY or isinstance(error, BudgetReached):
        headers["x-should-retry"] = "false"
    elif isinstance(error, Unauthenticated):
        headers["www-authenticate"] = 'Bearer realm="drsai_backend"'  # RFC 6750, section 3
    elif isinstance(error, InsufficientScope):
        headers["www-authenticate"] = f'Bearer realm="drsai_backend", error="insufficient_scope", scope="{error.scope}"'
    return json_response(shape(error_body(error, code=code)), error.status, headers)


def refused_login(error: HTTPException, shape: Callable[[JsonObject], JsonObject], kind: str) -> Response:
    """The answer where an application's own login has refused."""
    body = {"error": {"message": str(error.detail), "type": kind, "param": None, "code": "refused"}}
    return json_response(shape(body), error.status_code, dict(error.headers or {}))


def _body(message: str, status: int, code: str, param: str | None = None) -> JsonObject:
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    kind = code if code == BudgetReached.code else kind
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def refused_parameter(error: RequestValidationError) -> InvalidRequest:
    """Return what is wrong with a path, a query or headers."""
    first = error.errors()[0]
    return refused(tuple(first["loc"][1:]), first["type"], first.get("ctx", {}))


def install_error_handlers(app: FastAPI) -> None:
    """Answer all errors below the routes in OpenAI's shape; `middleware.RequestBoundary` does it for what is left."""

    async def expected(_: Request, error: Exception) -> Response:
        assert isinstance(error, DrSaiError)
        return error_response(error)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        status, message, headers = error.status_code, error.detail, dict(error.headers or {})
        code = _CODES.get(status, "invalid_request" if status < 500 else "internal_error")
        if status == 404 and message == "Not Found":  # Starlette's own; a route's says more
            message = f"there is no {request.url.path!r} here"
        elif status == 405:
            # Starlette names the methods of one route only; a path has several.
            scopes = ({**request.scope, "method": method} for method in _METHODS)
            routes = request.app.router.routes
            # A path that is one of its own is none of a parameter's.
            routes = [each for each in routes if getattr(each, "path", "") == request.scope["path"]] or routes
            fitting = (each for each in scopes if any(route.matches(each)[0] is Match.FULL for route in routes))
            headers["Allow"] = ", ".join(each["method"] for each in fitting)
            message = f"{request.method} is not allowed for {request.url.path!r}; use {headers['Allow']}"
        return json_response(_body(message, status, code), status, headers)

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return error_response(refused_parameter(error))

    app.add_exception_handler(DrSaiError, expected)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
