"""Errors of this interface have `detail`, a text, which its clients read. The error as everywhere else stands
beside."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from drsai_backend.api.http.errors import error_response, refused_login, refused_parameter
from drsai_backend.api.http.parameters import KeyFirstRoute
from drsai_backend.errors import DrSaiError
from drsai_backend.json_types import JsonObject

ERROR_SCHEMA: Final = {
    "type": "object",
    "required": ["detail", "error"],
    "properties": {"detail": {"type": "string"}, "error": {"type": "object"}},
}


def with_detail(body: JsonObject) -> JsonObject:
    """The body of an error, of that everywhere else."""
    return {"detail": body["error"]["message"], **body}


class DetailRoute(KeyFirstRoute):
    """A route whose errors have `detail`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[object, object, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except DrSaiError as error:
                return error_response(error, shape=with_detail)
            except RequestValidationError as error:
                return error_response(refused_parameter(error), shape=with_detail)
            except HTTPException as error:  # an application's own login
                return refused_login(error, with_detail, "invalid_request_error")

        return handled
