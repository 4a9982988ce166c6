"""Who is asking. Until there is real authentication, the user is whom the request names."""

from __future__ import annotations

from typing import Any, Final, cast

from drsai_backend.datamodel.thread import NAME_SCHEMA, check_name
from drsai_backend.errors import InvalidRequest

__all__ = ["ANONYMOUS", "NAME_SCHEMA", "USER_SCHEMA", "check_name", "user_of"]

ANONYMOUS: Final = "anonymous"
USER_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        NAME_SCHEMA,
        {
            "type": "object",
            "anyOf": [{"required": [key]} for key in ("email", "name", "id")],
            "properties": {
                "email": NAME_SCHEMA,
                "name": NAME_SCHEMA,
                "id": {"anyOf": [NAME_SCHEMA, {"type": "integer"}]},
            },
        },
        {"type": "null"},
    ]
}


def user_of(value: Any) -> str:
    """The user id that a request's `user` gives: a string, or an object with `email`, `name` or `id` (first one set).

    Raises:
        InvalidRequest: it is neither, or not a usable name.
    """
    if value is None:
        return ANONYMOUS
    if isinstance(value, str):
        return check_name(value, "user")
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        for key in ("email", "name", "id"):
            named = fields.get(key)
            if named is None or named == "":
                continue
            if key == "id" and isinstance(named, int) and not isinstance(named, bool):
                named = str(named)
            if not isinstance(named, str):
                raise InvalidRequest(f"`user.{key}` must be a string", param=f"user.{key}")
            return check_name(named, f"user.{key}")
        raise InvalidRequest("`user` must have an `email`, `name` or `id`", param="user")
    raise InvalidRequest("`user` must be a string or an object with `email`, `name` or `id`", param="user")
