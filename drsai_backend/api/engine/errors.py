"""Errors as clients of this interface read them: `detail`, a text. The error as everywhere else stands beside."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from drsai_backend.api.http.errors import error_body, error_response, refused_parameter
from drsai_backend.api.http.json import json_response
from drsai_backend.api.http.parameters import KeyFirstRoute
from drsai_backend.errors import DrSaiError
from drsai_backend.json_types import JsonObject

ERROR_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "required": ["detail", "error"],
    "properties": {"detail": {"type": "string"}, "error": {"type": "object"}},
}


def with_detail(error: DrSaiError, *, code: str | None = None) -> JsonObject:
    """The body of an error."""
    return {"detail": error.message, **error_body(error, code=code)}


def detailed_response(error: DrSaiError) -> Response:
    """The answer to a request that cannot be served."""
    response = error_response(error)
    kept = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
    return json_response(with_detail(error), response.status_code, kept)


class DetailRoute(KeyFirstRoute):
    """A route whose errors have `detail`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except DrSaiError as error:
                return detailed_response(error)
            except RequestValidationError as error:
                return detailed_response(refused_parameter(error))
            except HTTPException as error:  # an application's own login
                told = {"message": str(error.detail), "type": "invalid_request_error", "param": None, "code": "refused"}
                body = {"detail": str(error.detail), "error": told}
                return json_response(body, error.status_code, dict(error.headers or {}))

        return handled
