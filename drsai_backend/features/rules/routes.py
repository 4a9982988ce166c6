"""The routes of rules have schemas in common: whom a rule names, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import Body, allowed
from drsai_backend.api.http.parameters import name_of
from drsai_backend.api.objects import fields_of
from drsai_backend.datamodel.thread import NAME_SCHEMA
from drsai_backend.errors import InvalidRequest
from drsai_backend.features.rules.base import KINDS, Kind, RuleInfo
from drsai_backend.json_types import JsonObject

Admin = Annotated[Principal, allowed(Scope.ADMIN, named=False)]


class RuleBody(Body):
    """Names whose rule is set: a user's, or that of a key."""

    user: str | None = Field(
        default=None, description="This user.", json_schema_extra={"anyOf": [NAME_SCHEMA, {"type": "null"}]}
    )
    key: str | None = Field(
        default=None,
        description="Or this key, by its id.",
        json_schema_extra={"anyOf": [NAME_SCHEMA, {"type": "null"}]},
    )

    @property
    def whose(self) -> tuple[Kind, str]:
        """Return for whom it is. Raises InvalidRequest unless one is named."""
        kinds: Sequence[Kind] = ("user", "key", "thread")
        return named({kind: getattr(self, kind) for kind in kinds if kind in type(self).model_fields})


OfUser = Annotated[str | None, *name_of("of_user", "What was set for this user.")]
OfKey = Annotated[str | None, *name_of("of_key", "What was set for this key, by its id.")]


def named(given: Mapping[Kind, str | None], prefix: str = "") -> tuple[Kind, str]:
    """Return for whom a rule is, of those that fields with these names, after the prefix, may name. Raises
    InvalidRequest unless one is named."""
    said: list[tuple[Kind, str]] = [(kind, name) for kind, name in given.items() if name is not None]
    if len(said) != 1:
        fields = [f"{prefix}{kind}" for kind in given]
        raise InvalidRequest(f"name {' or '.join(f'`{each}`' for each in fields)}", param=fields[0])
    return said[0]


def schema_of(
    noun: str, measures: JsonObject, more: JsonObject | None = None, kinds: Sequence[Kind] = KINDS
) -> JsonObject:
    """Return the schema of a rule as it is shown, which bounds these; `more`: what else it has."""
    thread = "; of a thread `USER/THREAD`" if "thread" in kinds else ""
    return {
        "type": "object",
        "required": ["id", "object", "kind", "tenant", "name", *measures, *(more or ()), "set_at"],
        "properties": {
            "id": {"type": "string", "description": "Its kind and name."},
            "object": {"const": noun},
            "kind": {"enum": [kind for kind in kinds if kind != "all"]},
            "tenant": {"type": "string"},
            "name": {"type": "string", "description": f"The id of the key, or the user{thread}; of a tenant, empty."},
            **measures,
            **(more or {}),
            "set_at": {"type": "integer", "description": "Unix time in seconds."},
        },
    }


def shown(info: RuleInfo, noun: str) -> JsonObject:
    """Return a rule as it is shown."""
    return {"id": f"{info.kind} {info.name}".strip(), "object": noun, **fields_of(info)}
