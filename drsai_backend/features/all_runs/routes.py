"""The routes of `/v1/admin` show the runs of all users of a tenant to its operators, who may stop, pause, resume
and retry them; they show nothing of what was said."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

from fastapi import APIRouter, Query, Request
from pydantic import Field, StringConstraints
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import Body, allowed, described, read_fields
from drsai_backend.api.http.json import answers, json_response, page_of, page_response
from drsai_backend.api.http.parameters import (
    LAST_MOMENT,
    AfterNumber,
    Limit,
    RunId,
    Status,
    after_of,
    moment_of,
    new_router,
)
from drsai_backend.api.joining import Web
from drsai_backend.api.objects import fields_of, schema_of
from drsai_backend.datamodel import RunStatus, utcnow
from drsai_backend.datamodel.thread import NAME_SCHEMA, check_name
from drsai_backend.features.all_runs.all_runs import AllRuns
from drsai_backend.features.all_runs.base import (
    LONGEST,
    MOST,
    VERBS,
    AnyRun,
    ErrorGroup,
    Order,
    Steered,
    Verb,
    Wanted,
)
from drsai_backend.json_types import JsonObject
from drsai_backend.page import NUMBER, cut, read_cursor

Admin = Annotated[Principal, allowed(Scope.RUNS_ADMIN, named=False)]
_NAMES: Final = ("user", "thread", "team")
_CODE: Final = r"^[A-Za-z0-9_]{1,64}$"
Words: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\u0000]*$")]
_DOES: Final[dict[Verb, str]] = {
    "cancel": "Stop a run at once; its finished turns stay",
    "pause": "Pause a live run at its next turn boundary",
    "resume": "Resume a paused run",
    "retry": "Run a run that has failed again, from the turn that failed",
}


def _named(what: str) -> Any:
    return Field(default=None, description=what, json_schema_extra={"anyOf": [NAME_SCHEMA, {"type": "null"}]})


class WantedBody(Body):
    """Which runs; what is not said is not looked at."""

    user: str | None = _named("Only on threads of this user.")
    thread: str | None = _named("Only on threads of this id.")
    team: str | None = _named("Only of this team.")
    status: Annotated[RunStatus | None, Field(strict=False)] = Field(
        default=None, description="Only those of this status."
    )
    error_code: str | None = Field(default=None, pattern=_CODE, description="Only what has failed with this code.")
    error: Words | None = Field(default=None, description="Only where the error's text has this in it.")
    since: int | None = Field(
        default=None, validation_alias="from", ge=0, le=LAST_MOMENT, description="Unix seconds: created then, or later."
    )
    until: int | None = Field(
        default=None, validation_alias="to", ge=0, le=LAST_MOMENT, description="Unix seconds: created before then."
    )
    slower_than: float | None = Field(
        default=None, ge=0, le=LONGEST, description="Only what has run for as many seconds, up to now where it is live."
    )


class SteerBody(WantedBody):
    """Which runs, and with how many of them something is done."""

    limit: int = Field(
        default=100, ge=1, le=MOST, description="Of how many at most: live ones first, and of each status the oldest."
    )
    dry_run: bool = Field(default=False, description="Count and list them, and do nothing.")


def _wanted(*, since: int | None, until: int | None, **fields: Any) -> Wanted:
    """The runs that the fields of a body ask for. Raises InvalidRequest: one that names something is no name."""
    for name in _NAMES:
        if fields.get(name) is not None:
            check_name(fields[name], name)
    return Wanted(since=moment_of(since), until=moment_of(until), **fields)


def _query(name: str, **more: Any) -> Any:
    """The query parameter that is the field of that name of a body."""
    field = WantedBody.model_fields[name]
    return Query(alias=str(field.validation_alias or name), description=field.description, **more)


SaidText = Annotated[
    Words | None,
    Query(
        description="Only where this was said, in capitals (A to Z) or not, by people, agents or tools, in turns that "
        "are stored. A page looks at 5,000 messages at most, of one run at least: it may have fewer runs than `limit`, "
        "or none, and a `next`. A 400 where texts are encrypted.",
    ),
]
CalledTool = Annotated[
    Words | None,
    Query(description="Only where a tool of this name was called; pages are bounded as with `text`."),
]
_NAME: Final[JsonObject] = {"json_schema_extra": {"anyOf": [NAME_SCHEMA]}}
_MOMENT: Final[JsonObject] = {"ge": 0, "le": LAST_MOMENT}
InOrder = Annotated[
    Order,
    Query(
        description="The newest first, or (`slow`) those that have run longest; without `from`, `user`, `thread` or a "
        "status of what is not over, of those of the last day and all live ones."
    ),
]
AfterRun = Annotated[str | None, after_of(r"^[0-9]{1,11}\.[0-9]{6}(-[0-9]{1,18}){1,2}$")]

_RUN: Final = schema_of(AnyRun, "admin.run")
_GROUP: Final = schema_of(ErrorGroup, "admin.error")
_ONE: Final = schema_of(Steered, "admin.run.steered")
_ALL: Final[JsonObject] = {
    "type": "object",
    "required": ["object", "verb", "dry_run", "found", "data"],
    "properties": {
        "object": {"const": "admin.runs.steered"},
        "verb": {"enum": [*VERBS]},
        "dry_run": {"type": "boolean"},
        "found": {
            "type": "integer",
            "description": "How many there were, counted up to 100,000. Where `data` has fewer, ask again.",
        },
        "data": {"type": "array", "items": _ONE},
    },
}


def routes(web: Web) -> APIRouter:
    """Return the routes. Whoever asks here sees and changes runs of their own tenant only."""
    runs, bodies = AllRuns(web.engine), web.bodies
    router = new_router("/v1/admin", tags=["all runs"])

    @router.get("/runs", responses=answers(200, page_of(_RUN)))
    async def list_runs_of_all_users(  # noqa: PLR0913 - the parameters of a route
        who: Admin,
        status: Status = None,
        user: Annotated[str | None, _query("user", **_NAME)] = None,
        thread: Annotated[str | None, _query("thread", **_NAME)] = None,
        team: Annotated[str | None, _query("team", **_NAME)] = None,
        error_code: Annotated[str | None, _query("error_code", pattern=_CODE)] = None,
        error: Annotated[Words | None, _query("error")] = None,
        since: Annotated[int | None, _query("since", **_MOMENT)] = None,
        until: Annotated[int | None, _query("until", **_MOMENT)] = None,
        slower_than: Annotated[float | None, _query("slower_than", ge=0, le=LONGEST, allow_inf_nan=False)] = None,
        text: SaidText = None,
        tool: CalledTool = None,
        order: InOrder = "newest",
        limit: Limit = 20,
        after: AfterRun = None,
    ) -> Response:
        """The runs of all users of the tenant. Nothing of what was said in them."""
        of = _wanted(
            status=status,
            user=user,
            thread=thread,
            team=team,
            error_code=error_code,
            error=error,
            since=since,
            until=until,
            slower_than=slower_than,
            text=text,
            tool=tool,
        )
        page = await runs.list(of, tenant=who.tenant, order=order, after=after, limit=limit)
        return page_response(page, partial(_object, "admin.run"))

    @router.get("/errors", responses=answers(200, page_of(_GROUP)))
    async def list_errors_of_all_users(  # noqa: PLR0913 - the parameters of a route
        who: Admin,
        user: Annotated[str | None, _query("user", **_NAME)] = None,
        team: Annotated[str | None, _query("team", **_NAME)] = None,
        since: Annotated[int | None, _query("since", **_MOMENT)] = None,
        until: Annotated[int | None, _query("until", **_MOMENT)] = None,
        after: AfterNumber = None,
        limit: Limit = 100,
    ) -> Response:
        """In which ways runs of which teams have failed, the most frequent first, each with its newest run: of those
        created since `from`, or within the last day."""
        of = _wanted(user=user, team=team, since=since, until=until)
        if of.since is None:
            of = replace(of, since=utcnow() - timedelta(days=1))
        # They are counted anew for each page.
        passed = 0 if after is None else int(read_cursor(NUMBER, after)[0])
        groups = await runs.errors(of, tenant=who.tenant, limit=passed + limit + 1)
        return page_response(cut(groups[passed:], limit, lambda _: str(passed + limit)), _group)

    @router.get("/runs/{run_id}", responses=answers(200, _RUN))
    async def get_run_of_any_user(run_id: RunId, who: Admin) -> Response:
        """A run of any user of the tenant. Nothing of what was said in it."""
        return json_response(_object("admin.run", await runs.get(run_id, tenant=who.tenant)))

    def steering(verb: Verb) -> None:
        async def one(run_id: RunId, who: Admin) -> Response:
            run = await runs.steer(verb, run_id, tenant=who.tenant, actor=who.actor)
            return json_response(_object("admin.run", run))

        async def many(request: Request, who: Admin) -> Response:
            body = await read_fields(bodies, request, SteerBody)
            of = _wanted(**body.model_dump(exclude={"limit", "dry_run"}))
            done = await runs.steer_all(
                verb,
                of,
                tenant=who.tenant,
                limit=body.limit,
                dry_run=body.dry_run,
                actor=who.actor,
            )
            data = [_object("admin.run.steered", each) for each in done.runs]
            return json_response({"object": "admin.runs.steered", **done.model_dump(exclude={"runs"}), "data": data})

        text = f"{_DOES[verb]}, whichever user's of the tenant it is. The audit log has who asked for it."
        router.add_api_route(
            f"/runs/{{run_id}}/{verb}",
            one,
            methods=["POST"],
            name=f"{verb}_run_of_any_user",
            description=text,
            responses=answers(200, _RUN),
        )
        router.add_api_route(
            f"/runs/{verb}",
            many,
            methods=["POST"],
            name=f"{verb}_runs_of_all_users",
            description=f"{text} All that are wanted and such that it can be done, or the first ones: what was done is "
            "not done again when this is asked once more.",
            responses=answers(200, _ALL, "What became of each."),
            openapi_extra=described(SteerBody),
        )

    for verb in VERBS:
        steering(verb)
    return router


def _group(group: ErrorGroup) -> JsonObject:
    return {"id": f"{group.team} {group.error_code}", "object": "admin.error", **fields_of(group)}


def _object(kind: str, run: AnyRun) -> JsonObject:
    return {"id": run.run_id, "object": kind, **fields_of(run)}
