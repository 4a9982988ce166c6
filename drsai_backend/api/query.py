"""Query parameters: those that a route does not know are refused, instead of being left aside in silence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request
from starlette.types import Scope

from drsai_backend.errors import InvalidRequest


def check_query(scope: Scope, known: Iterable[str]) -> None:
    """Raises InvalidRequest for a query parameter that is not in `known`, or is there twice."""
    if not scope["query_string"]:
        return
    names = [name for name, _ in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)]
    known = list(known)
    for name in names:
        if name not in known:
            takes = f"it takes {', '.join(f'`{each}`' for each in known)}" if known else "it takes none"
            raise InvalidRequest(f"`{name}` is no query parameter of {scope['path']}: {takes}", param=name)
        if names.count(name) > 1:
            raise InvalidRequest(f"`{name}` is given more than once", param=name)


async def known_parameters(request: Request) -> None:
    """`check_query`, for every route of FastAPI's: by what it declares."""
    route: Any = request.scope["route"]
    check_query(request.scope, (field.alias for field in route.dependant.query_params))
