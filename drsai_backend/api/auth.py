"""Who is asking. Until there is real authentication, the user is whom the request names."""

from __future__ import annotations

from typing import Annotated, Final, TypeVar, cast

from fastapi import Query, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from drsai_backend.api.http.body import Bodies
from drsai_backend.api.http.errors import refusal
from drsai_backend.datamodel.thread import NAME_SCHEMA, check_name
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject

ANONYMOUS: Final = "anonymous"
_ID: Final = {"anyOf": [NAME_SCHEMA, {"type": "integer"}]}
_FIELDS: Final[JsonObject] = {"email": NAME_SCHEMA, "name": NAME_SCHEMA, "id": _ID}
_OBJECT: Final = {"type": "object", "anyOf": [{"required": [key]} for key in _FIELDS], "properties": _FIELDS}
USER_SCHEMA: Final[JsonObject] = {"anyOf": [NAME_SCHEMA, _OBJECT, {"type": "null"}]}


def user_of(value: object) -> str:
    """The user id that a request's `user` gives: a string, or an object with `email`, `name` or `id` (first one set).

    Raises:
        InvalidRequest: it is neither, or not a usable name.
    """
    if value is None:
        return ANONYMOUS
    if isinstance(value, str):
        return check_name(value, "user")
    for key in _FIELDS if isinstance(value, dict) else ():
        named = cast(JsonObject, value).get(key)
        if named is None or named == "":
            continue
        if key == "id" and isinstance(named, int) and not isinstance(named, bool):
            named = str(named)
        if not isinstance(named, str):
            raise InvalidRequest(f"`user.{key}` must be a string", param=f"user.{key}")
        return check_name(named, f"user.{key}")
    raise InvalidRequest("`user` must be a string or an object with `email`, `name` or `id`", param="user")


_QUERY: Final = Query(
    description="Whose threads and runs. Default: anonymous.", json_schema_extra={"anyOf": [NAME_SCHEMA]}
)
User = Annotated[str, _QUERY, AfterValidator(user_of)]
"""The user that a query names; its default is `ANONYMOUS`."""
NamedUser = Annotated[str | None, _QUERY, AfterValidator(user_of)]
"""The same, for a request whose body may name the user; its default is None."""


class UserBody(BaseModel):
    """What a request that stops, pauses or resumes may say."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)

    user: Annotated[object, WithJsonSchema(USER_SCHEMA)] = Field(
        default=None, description="Whose thread or run it is, as in a chat request."
    )


_Body = TypeVar("_Body", bound=UserBody)


async def read_body(bodies: Bodies, request: Request, kind: type[_Body], user: str | None) -> tuple[_Body, str]:
    """The body of a request, and whose it is: the query's `user` and the body's must agree."""
    async with bodies.read(request.scope, request.receive, optional=kind is UserBody) as fields:
        try:
            body = kind.model_validate(fields)
        except ValidationError as error:
            raise refusal(error, fields) from None
    named = user_of(body.user)
    if user is not None and body.user is not None and user != named:
        raise InvalidRequest("`user` in the query and in the body are different", param="user")
    return body, user or named


def described(kind: type[UserBody]) -> JsonObject:
    """A body in the OpenAPI document: it is read by hand, as a chat request's is."""
    schema = kind.model_json_schema()
    required = bool(schema.get("required"))
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}
