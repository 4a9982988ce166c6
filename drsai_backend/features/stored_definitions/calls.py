"""The calls of `Caller.agents` are the verbs of `/v1/agents`, for programs."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from drsai_backend.access.principal import Principal
from drsai_backend.database.stored_definitions import DefinitionVersion
from drsai_backend.definitions.stored.store import DefinitionSpec, StoredDefinitions, Visibility, visibility_of
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page


class AgentInfo(BaseModel):
    """A version of a stored definition."""

    name: str
    visibility: Visibility
    version: int
    is_served: bool
    definition: JsonObject
    created_at: datetime
    created_by: str
    restores: int | None = Field(default=None, description="The older version that this one is equal to.")

    @classmethod
    def of(cls, version: DefinitionVersion) -> AgentInfo:
        """Return the information of a stored version."""
        return cls(
            name=version.name,
            visibility=visibility_of(version.owner),
            version=version.version,
            is_served=version.ended_at is None,
            definition=version.definition,
            created_at=version.created_at,
            created_by=version.created_by,
            restores=version.restores,
        )


class AgentCalls:
    """The stored definitions of agents and teams, for a user.

    Args:
        agents: does what is asked.
        who: the user who asks.

    Raises (all calls with a name, but `put`):
        NotFound: there is no such definition of that user, tenant, or for all.
    """

    def __init__(self, agents: StoredDefinitions, who: Principal) -> None:
        self._agents = agents
        self._who = who

    async def list(
        self, *, visibility: Visibility | None = None, after: str | None = None, limit: int = 20
    ) -> Page[AgentInfo]:
        """A page of the definitions that the user may ask, by name. `visibility`: their own (`user`), their tenant's,
        or those for `all`; None: all three. Raises InvalidRequest: `after` is no `next` of a page."""
        page = await self._agents.list(self._who, after, limit, visibility)
        return page.map(AgentInfo.of)

    async def get(self, name: str, *, visibility: Visibility | None = None, version: int | None = None) -> AgentInfo:
        """One definition: the one that the user asks by this name, or that of a `visibility`; as it is served, or an
        older `version`."""
        return AgentInfo.of(await self._agents.get(self._who, name, visibility, version))

    async def put(
        self,
        name: str,
        definition: JsonObject,
        *,
        visibility: Visibility = "user",
        version: int | None = None,
        validate_only: bool = False,
    ) -> AgentInfo | None:
        """Store a definition, or another version of it. Every worker serves it within two seconds, to runs that begin
        after that.

        Args:
            name: the agent or team of the definition that is asked.
            definition: `agents`, `teams` and `tools`, as in a file; docs/agents.md has the fields.
            visibility: for whom it is: the user, their tenant, or all.
            version: the version that is replaced; None: whichever there is, or none.
            validate_only: check it, and store nothing.

        Returns:
            What was stored; None: nothing was.

        Raises:
            InvalidRequest: it cannot be used; the text says all that is wrong.
            Conflict: this server serves a team of that name itself; it is not at `version` any more; or there are too
                many.
        """
        spec = DefinitionSpec(name, definition, visibility, version)
        if validate_only:
            await self._agents.check(self._who, spec)
            return None
        return AgentInfo.of(await self._agents.put(self._who, spec, replaces=None if version is None else True))

    async def delete(self, name: str, *, visibility: Visibility = "user", version: int | None = None) -> None:
        """Delete a definition. Runs that began with it end with it. Raises Conflict: it is not at `version`."""
        await self._agents.delete(self._who, name, visibility, version=version)

    async def versions(
        self, name: str, *, visibility: Visibility | None = None, after: str | None = None, limit: int = 20
    ) -> Page[AgentInfo]:
        """A page of the versions of a definition that are kept, newest first; 100 at most are. Raises InvalidRequest:
        `after` is no `next` of a page."""
        page = await self._agents.versions(self._who, name, after, limit, visibility)
        return page.map(AgentInfo.of)

    async def roll_back(
        self, name: str, to: int, *, visibility: Visibility = "user", version: int | None = None
    ) -> AgentInfo:
        """Serve an older version again, which becomes a new one. Raises Conflict: `to` is what is served, or what is
        served is not `version`."""
        return AgentInfo.of(await self._agents.roll_back(self._who, name, to, visibility, version=version))
