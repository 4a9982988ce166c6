"""Agents and teams that were defined over the API, with their versions."""

from sqlmodel import Field

from drsai_backend.datamodel.base import DocumentRecord, one_served


class StoredDefinition(DocumentRecord, table=True):
    """One version of an agent or team of a user, of a tenant, or for all: then `user_id` is empty, or `tenant`, too.
    `definition` has `agents`, `teams` and `tools`, as in a file. A run that is resumed finds the one that it began
    with, by `Run.definition`."""

    __table_args__ = one_served("storeddefinition", "tenant", "user_id")

    user_id: str = Field(description="Empty: it is for all users of the tenant.")
    restores: int | None = Field(default=None, description="The older version that this one is equal to.")
