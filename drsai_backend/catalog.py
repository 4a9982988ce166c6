"""The catalog has what can be asked: the operator's teams, and the stored definitions that whoever asks may use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from autogen_agentchat.base import Team
from cachetools import LRUCache

from drsai_backend.access.principal import Principal
from drsai_backend.config import Settings
from drsai_backend.database import DatabaseManager
from drsai_backend.database import stored_definitions as stored
from drsai_backend.database.documents import Identity
from drsai_backend.database.recent import Recent
from drsai_backend.database.stored_definitions import DefinitionVersion
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.definitions.policy import NAME, DefinitionPolicy
from drsai_backend.errors import InvalidRequest, TeamBuildError, UnknownModel
from drsai_backend.json_types import JsonObject
from drsai_backend.teams.client_tools.policy import NO_POLICY, ToolPolicy
from drsai_backend.teams.context import TeamFactory
from drsai_backend.teams.limits import NO_LIMITS, RunLimits
from drsai_backend.teams.options import NO_OPTIONS, TeamOptions, options_of
from drsai_backend.teams.permissions import check_permissions, lacks
from drsai_backend.teams.registry import TeamRegistry

_NAME: Final = re.compile(NAME)
_BUILT: Final = 256
_LISTED: Final = 3 * stored.definitions.most


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """How a team is built, and what holds for its runs. One object for each version of a team.

    Attributes:
        name: what it is asked by.
        factory: builds a team for each run.
        options: what the team says of itself.
        limits: what a run may use, those of the server included.
        client_tools: what it makes of its clients' tools; its mode is given.
        version: the stored definition that it is made of; None: it is a team of the operator.
    """

    name: str
    factory: TeamFactory
    options: TeamOptions
    limits: RunLimits
    client_tools: ToolPolicy
    version: DefinitionVersion | None = None

    @classmethod
    def gone(cls, name: str, error: UnknownModel) -> Self:
        """Return that of a team which is not there any more: what was run of it can be read."""

        def build() -> Team:
            raise error

        return cls(name, build, NO_OPTIONS, NO_LIMITS, NO_POLICY)

    @property
    def definition(self) -> dict[str, object] | None:
        """The stored definition, as the first write of a run names it."""
        return None if self.version is None else {"of_key": self.version.id, "of_time": self.version.created_at}


@dataclass(frozen=True, slots=True)
class ListedTeam:
    """What is told of a team before anybody asks it."""

    name: str
    description: str
    permissions: tuple[str, ...] = ()
    client_tools: ToolPolicy = NO_POLICY


def _offer(version: DefinitionVersion, client_tools: ToolPolicy) -> ListedTeam:
    """Return the listing of a stored version, which was checked when it was stored."""
    given = version.definition
    part: JsonObject = given.get("agents", {}).get(version.name) or given.get("teams", {}).get(version.name) or {}
    line = str(part.get("description", "")).strip().split("\n", 1)[0].strip()
    return ListedTeam(version.name, line, tuple(part.get("permissions", ())), client_tools)


class Catalog:
    """The teams of a registry and the stored definitions of a database. One object per process and event loop.

    Args:
        registry: the operator's own teams; no stored definition takes the place of one.
        db: not closed by this object.
        means: what the operator lets definitions use.
        settings: what holds where a team says nothing of itself.
    """

    def __init__(
        self, registry: TeamRegistry, db: DatabaseManager, means: DefinitionPolicy, settings: Settings
    ) -> None:
        self.registry = registry
        self._db = db
        self._means = means
        self._settings = settings
        self._own: dict[str, Recipe] = {}
        self._recent = Recent(db.database, stored.definitions.find_each)
        self._names = Recent(db.database, stored.known_names)
        self._offers: dict[Identity, ListedTeam] = {}
        self._stored: LRUCache[Identity, Recipe] = LRUCache(_BUILT)

    def own(self, name: str) -> Recipe:
        """The operator's team of that name. Raises UnknownModel."""
        recipe = self._own.get(name)
        if recipe is None:
            team = self.registry.get(name)
            recipe = self._own[name] = self._recipe(name, team.factory, team.options)
        return recipe

    def _recipe(
        self, name: str, factory: TeamFactory, options: TeamOptions, version: DefinitionVersion | None = None
    ) -> Recipe:
        said = self._settings
        limits = options.limits.over(RunLimits(said.max_turns, said.max_run_seconds, said.max_run_tokens))
        return Recipe(name, factory, options, limits, options.client_tools.over(said.client_tools), version)

    async def find(self, who: Principal, name: str, thread: ThreadName | None = None) -> Recipe:
        """The team that somebody asks by its name. A stored definition is at most a second older than the stored one.

        Args:
            thread: the thread that the request names, whose run it may answer: that run keeps the team that it began
                with, also where nobody begins another with it any more.

        Raises:
            UnknownModel: there is none, or it is another's.
            InsufficientScope, Forbidden: who asks lacks one of its `permissions`.
            TeamBuildError: it is a stored definition that cannot be used any more.
        """
        if name in self.registry:
            recipe = self.own(name)
        elif found := await self._recent.find([(who.owner, name)]):
            recipe = self._of_version(next(iter(found.values())))
        else:
            version = None
            if thread is not None:
                version = await self._db.database.read(partial(stored.of_unfinished_run, thread=thread, team=name))
            if version is None:
                raise self._unknown(who, name)
            return self._of_version(version)
        if recipe.options.permissions:
            check_permissions(who, name, recipe.options.permissions)
        return recipe

    async def check_name(self, who: Principal, name: str, *, later: bool = False) -> None:
        """Raise UnknownModel where somebody can ask no team of that name on a thread of their own; `later`: the start
        of the run says whether there is one. Nobody asks a team that is not listed by its name."""
        if name in self.registry:
            if self.registry.get(name).is_listed:
                return
        elif later or (_NAME.fullmatch(name) and await self._names.find([(who.owner, name)])):
            return
        raise self._unknown(who, name)

    def _unknown(self, who: Principal, name: str) -> UnknownModel:
        """The error for a name that is none, or is not for who asks: it is the same."""
        own = ((each, self.registry.get(each)) for each in self.registry.names())
        known = ", ".join(each for each, team in own if lacks(who, team.options.permissions) is None) or "none"
        return UnknownModel(f"unknown model {name!r}; available: {known}", param="model")

    async def of_run(self, name: str, key: int | None) -> Recipe:
        """The team of a run that has begun, in the version that it began with.

        Args:
            name: of the team.
            key: of the stored definition (`Run.definition`); None: it is one of the registry.

        Raises:
            UnknownModel: it is not served here, or not kept any more.
        """
        if key is None:
            return self.own(name)
        version = await self._db.database.read(partial(stored.by_id, key=key))
        if version is None or version.name != name:
            text = f"the definition of {name!r} that the run began with is not kept any more"
            raise UnknownModel(text, param="model")
        return self._of_version(version)

    async def all(self, who: Principal) -> list[ListedTeam]:
        """Return what somebody may ask: the registry's in order, then the stored ones by name."""
        own = map(self.registry.get, self.registry.names())
        offers = [
            ListedTeam(
                each.name,
                each.description,
                each.options.permissions,
                each.options.client_tools.over(self._settings.client_tools),
            )
            for each in own
        ]
        places = stored.definitions.places(who.owner)
        listed = await self._db.database.read(partial(stored.list_identities, places=places, limit=_LISTED))
        missing = [key for identity, key in listed.items() if identity not in self._offers]
        if missing:
            # A version never changes: it is read once.
            read = await self._db.database.read(partial(stored.by_ids, keys=missing))
            while len(self._offers) + len(read) > _LISTED and self._offers:
                self._offers.pop(next(iter(self._offers)))
            no_word = ToolPolicy(self._settings.client_tools)
            self._offers |= {each.identity: _offer(each, no_word) for each in read}
        found: dict[str, ListedTeam] = {}
        for identity in sorted(listed, key=lambda each: (each[1], places.index(each[0]))):
            name = identity[1]
            if name not in found and name not in self.registry and identity in self._offers:
                found[name] = self._offers[identity]
        return [each for each in (*offers, *found.values()) if lacks(who, each.permissions) is None]

    def changed(self) -> None:
        """Read anew, for something was stored by this process."""
        self._recent.forget_all()
        self._names.forget_all()

    def settings_changed(self) -> None:
        """Go by the settings as they are now: teams are offered, and runs begin, with what they say."""
        for known in (self._own, self._offers, self._stored):
            known.clear()

    def _of_version(self, version: DefinitionVersion) -> Recipe:
        """A version's team; a version never changes, so it is checked once."""
        recipe = self._stored.get(version.identity)
        if recipe is None:
            from drsai_backend.definitions.build import DefinedTeam
            from drsai_backend.definitions.stored.document import checked

            try:
                given = checked(version.name, version.definition, self._means)
            except InvalidRequest as error:
                text = f"the stored definition {version.name!r} cannot be used any more: {error.message}"
                raise TeamBuildError(text) from error
            factory = DefinedTeam(version.name, given, self._means)
            recipe = self._recipe(version.name, factory, options_of(factory), version)
            self._stored[version.identity] = recipe
        return recipe
