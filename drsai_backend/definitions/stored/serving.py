"""What can be asked: the operator's teams, and the stored definitions that whoever asks may use."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import Final

from drsai_backend.access.principal import Principal
from drsai_backend.database import DatabaseManager
from drsai_backend.database import stored_definitions as stored
from drsai_backend.database.documents import Identity
from drsai_backend.database.recent import Recent
from drsai_backend.database.stored_definitions import DefinitionVersion
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.definitions.build import DefinedTeam, Means
from drsai_backend.definitions.schema import NAME, Definitions
from drsai_backend.definitions.stored.document import checked
from drsai_backend.errors import InvalidRequest, TeamBuildError, UnknownModel
from drsai_backend.json_types import JsonObject
from drsai_backend.teams.client_tools.policy import NO_POLICY, ToolPolicy
from drsai_backend.teams.permissions import check_permissions, lacks
from drsai_backend.teams.registry import RegisteredTeam, TeamRegistry

_NAME: Final = re.compile(NAME)
_BUILT: Final = 256
_LISTED: Final = 3 * stored.definitions.most


@dataclass(frozen=True, slots=True)
class Offer:
    """What is told of a team before anybody asks it."""

    name: str
    description: str
    permissions: tuple[str, ...] = ()
    client_tools: ToolPolicy = NO_POLICY


def _offer(version: DefinitionVersion) -> Offer:
    """That of a stored version, which was checked when it was stored."""
    given = version.definition
    part: JsonObject = given.get("agents", {}).get(version.name) or given.get("teams", {}).get(version.name) or {}
    line = str(part.get("description", "")).strip().split("\n", 1)[0].strip()
    return Offer(version.name, line, tuple(part.get("permissions", ())))


class StoredTeam(DefinedTeam):
    """The factory of a version of a stored definition.

    Attributes:
        version: by its key a run that is resumed finds it.
    """

    def __init__(self, version: DefinitionVersion, given: Definitions, means: Means) -> None:
        super().__init__(version.name, given, means)
        self.version = version


class ServedTeams:
    """The teams of a registry and the stored definitions of a database. One object per process and event loop.

    Args:
        registry: the operator's own teams; no stored definition takes the place of one.
        db: not closed by this object.
        means: what the operator lets definitions use.
    """

    def __init__(self, registry: TeamRegistry, db: DatabaseManager, means: Means) -> None:
        self.registry = registry
        self._db = db
        self._means = means
        self._recent = Recent(db.database, stored.definitions.find_each)
        self._names = Recent(db.database, stored.known_names)
        self._offers: dict[Identity, Offer] = {}
        self._built: OrderedDict[Identity, RegisteredTeam] = OrderedDict()

    async def find(self, who: Principal, name: str) -> RegisteredTeam:
        """The team that somebody asks by its name. A stored definition is at most a second older than the stored one.

        Raises:
            UnknownModel: there is none, or it is another's.
            InsufficientScope, Forbidden: who asks lacks one of its `permissions`.
            TeamBuildError: it is a stored definition that cannot be used any more.
        """
        team = await self._find(who, name)
        check_permissions(who, name, team.options.permissions)
        return team

    async def _find(self, who: Principal, name: str) -> RegisteredTeam:
        if name in self.registry:
            return self.registry.get(name)
        found = await self._recent.find([(who.owner, name)])
        if not found:
            raise self._unknown(who, name)
        return self._team(next(iter(found.values())))

    async def check_name(self, who: Principal, name: str) -> None:
        """Raises UnknownModel where somebody can ask no team of that name on a thread of their own. Nobody asks a team
        that is not listed by its name."""
        if name in self.registry:
            if self.registry.get(name).is_listed:
                return
        elif _NAME.fullmatch(name) and await self._names.find([(who.owner, name)]):
            return
        raise self._unknown(who, name)

    def _unknown(self, who: Principal, name: str) -> UnknownModel:
        """The error for a name that is none, or is not for who asks: it is the same."""
        own = ((each, self.registry.get(each)) for each in self.registry.names())
        known = ", ".join(each for each, team in own if lacks(who, team.options.permissions) is None) or "none"
        return UnknownModel(f"unknown model {name!r}; available: {known}", param="model")

    async def find_for(self, who: Principal, name: str, thread: ThreadName | None) -> RegisteredTeam:
        """`find`, for a request that may answer the run of a thread: that run keeps the team that it began with, also
        where nobody begins another with it any more."""
        try:
            return await self.find(who, name)
        except UnknownModel:
            version = None
            if thread is not None:
                version = await self._db.database.read(partial(stored.of_unfinished_run, thread=thread, team=name))
            if version is None:
                raise
            return self._team(version)

    async def of_run(self, name: str, key: int | None) -> RegisteredTeam:
        """The team of a run that has begun, in the version that it began with.

        Args:
            name: of the team.
            key: of the stored definition (`Run.definition`); None: it is one of the registry.

        Raises:
            UnknownModel: it is not served here, or not kept any more.
        """
        if key is None:
            return self.registry.get(name)
        version = await self._db.database.read(partial(stored.by_id, key=key))
        if version is None or version.name != name:
            text = f"the definition of {name!r} that the run began with is not kept any more"
            raise UnknownModel(text, param="model")
        return self._team(version)

    async def all(self, who: Principal) -> list[Offer]:
        """What somebody may ask: the registry's in order, then the stored ones by name."""
        own = [self.registry.get(name) for name in self.registry.names()]
        offers = [
            Offer(each.name, each.description, each.options.permissions, each.options.client_tools) for each in own
        ]
        places = stored.definitions.places(who.owner)
        listed = await self._db.database.read(partial(stored.list_identities, places=places, limit=_LISTED))
        missing = [key for identity, key in listed.items() if identity not in self._offers]
        if missing:
            # A version never changes: it is read once.
            read = await self._db.database.read(partial(stored.by_ids, keys=missing))
            while len(self._offers) + len(read) > _LISTED and self._offers:
                self._offers.pop(next(iter(self._offers)))
            self._offers |= {each.identity: _offer(each) for each in read}
        found: dict[str, Offer] = {}
        for identity in sorted(listed, key=lambda each: (each[1], places.index(each[0]))):
            name = identity[1]
            if name not in found and name not in self.registry and identity in self._offers:
                found[name] = self._offers[identity]
        return [each for each in (*offers, *found.values()) if lacks(who, each.permissions) is None]

    def changed(self) -> None:
        """Something was stored by this process: read anew."""
        self._recent.forget_all()
        self._names.forget_all()

    def _team(self, version: DefinitionVersion) -> RegisteredTeam:
        """A version's team; a version never changes, so it is checked once."""
        team = self._built.get(version.identity)
        if team is None:
            try:
                given = checked(version.name, version.definition, self._means)
            except InvalidRequest as error:
                text = f"the stored definition {version.name!r} cannot be used any more: {error.message}"
                raise TeamBuildError(text) from error
            team = RegisteredTeam.of(version.name, StoredTeam(version, given, self._means))
            self._built[version.identity] = team
            while len(self._built) > _BUILT:
                self._built.popitem(last=False)
        self._built.move_to_end(version.identity)
        return team
