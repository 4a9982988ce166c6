"""Parameters in paths and queries are checked here: what they may be, and that a query has none that its route does not
know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.params import Depends as Dependency
from fastapi.routing import APIRoute
from pydantic import AfterValidator
from starlette.types import Scope

from drsai_backend.api.auth import needed_scope
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.thread import NAME_SCHEMA, check_name
from drsai_backend.errors import InvalidRequest
from drsai_backend.explain import LONGEST_PLACE
from drsai_backend.page import NUMBER
from drsai_backend.runs.steps.views import CURSOR_PATTERN as STEP_CURSOR
from drsai_backend.runs.threads.queries import NEWEST


def _name(param: str) -> AfterValidator:
    return AfterValidator(partial(check_name, param=param))


def after_of(pattern: str, description: str = "`next` of the page before.") -> object:
    """The query parameter that says where a page begins, or what is read of a stream."""
    shape = {"anyOf": [{"type": "string", "pattern": pattern}]}
    return Query(description=description, json_schema_extra=shape)


def name_of(param: str, description: str) -> tuple[object, AfterValidator]:
    """Return what annotates the parameter of a query that names something."""
    return Query(description=description, json_schema_extra={"anyOf": [NAME_SCHEMA]}), _name(param)


LAST_MOMENT: Final = 253_402_300_799
"""In Unix seconds: the end of the last year that both databases know."""


def moment_of(seconds: int | None) -> datetime | None:
    """Return the moment that Unix seconds name; None: there is none."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


ThreadId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA), _name("thread_id")]
ThreadOwner = Annotated[
    str | None, *name_of("owner", "Whose thread it is, where another user of the tenant shares it.")
]
KeyId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA), _name("key_id")]
UserId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA), _name("user_id")]
ResponseId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA), _name("response_id")]
ConversationId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA), _name("conversation_id")]
ItemId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA), _name("item_id")]
DeliveryId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA), _name("delivery_id")]
FileId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA), _name("file_id")]
RunId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA), _name("run_id")]
CallId = Annotated[str, Path(json_schema_extra=NAME_SCHEMA), _name("call_id")]
Limit = Annotated[int, Query(ge=1, le=100)]
After = Annotated[str | None, after_of(NEWEST.pattern)]
AfterStep = Annotated[str | None, after_of(STEP_CURSOR)]
AfterNumber = Annotated[str | None, after_of(NUMBER)]
BranchNumber = Annotated[
    int | None, Query(ge=0, le=2**31 - 1, description="A branch of the thread; default: its current one.")
]
Status = Annotated[RunStatus | None, Query(description="Only those of this status.")]


def check_query(scope: Scope, known: Iterable[str]) -> None:
    """Raise InvalidRequest for a query parameter that is not in `known`, or is there twice and no list."""
    if not scope["query_string"]:
        return
    given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    known = list(dict.fromkeys(known))
    for name, times in Counter(name for name, _ in given).items():
        if name not in known:
            takes = f"it takes {', '.join(f'`{each}`' for each in known)}" if known else "it takes none"
            name = name[:LONGEST_PLACE]
            raise InvalidRequest(f"`{name}` is no query parameter of {scope['path']}: {takes}", param=name)
        if times > 1 and not name.endswith("[]"):  # how OpenAI's clients write a list
            raise InvalidRequest(f"`{name}` is given more than once", param=name)


async def known_parameters(request: Request) -> None:
    """`check_query`, for every route of FastAPI's: by what it declares."""
    route: APIRoute = request.scope["route"]
    check_query(request.scope, _query_parameters(route.dependant))


class KeyFirstRoute(APIRoute):
    """A route that looks who asks before it looks at what: who has no key learns nothing of its parameters."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.dependant.dependencies.sort(key=lambda each: needed_scope(each.call) is None)


def new_router(prefix: str = "", *, tags: Sequence[str], dependencies: Sequence[Dependency] = ()) -> APIRouter:
    """A router whose routes are the application's as they are. Those of a router that an application includes are made
    anew with its dependencies, at the first request, which takes as long as to make them.
    """
    return APIRouter(
        prefix=prefix,
        tags=list(tags),
        dependencies=[Depends(known_parameters), *dependencies],
        route_class=KeyFirstRoute,
    )


def _query_parameters(dependant: Dependant) -> Iterator[str]:
    """Yield the names of a route's parameters in the query, those of its dependencies included."""
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _query_parameters(inner)
