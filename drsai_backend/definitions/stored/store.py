"""The store has the definitions of users, tenants and operators: they are made, changed, deleted, listed, rolled
back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.database import DatabaseManager
from drsai_backend.database import stored_definitions as stored
from drsai_backend.database.documents import NOBODY, OF_ALL, Change
from drsai_backend.database.hooks import NO_HOOKS, Hooks
from drsai_backend.database.stored_definitions import DefinitionVersion
from drsai_backend.datamodel.audit import Action, By
from drsai_backend.datamodel.owner import Owner
from drsai_backend.definitions.policy import DefinitionPolicy
from drsai_backend.errors import Conflict, Forbidden, InvalidRequest, NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page
from drsai_backend.tools.threads import in_thread

if TYPE_CHECKING:
    from drsai_backend.definitions.schema import Definitions
    from drsai_backend.definitions.source import FieldPath

Visibility: TypeAlias = Literal["user", "tenant", "all"]
"""For whom a definition is: the user who stores it, their tenant, or all."""
_MOST_NAMED: Final = 100
"""Stores of a definition that are looked for."""
VISIBILITIES: Final[tuple[Visibility, ...]] = ("user", "tenant", "all")


@dataclass(frozen=True, slots=True)
class DefinitionSpec:
    """A definition as somebody stores it.

    Attributes:
        name: by which it is asked.
        definition: `agents`, `teams` and `tools`, as in a file.
        visibility: for whom it is.
        version: the version that is replaced; None: whichever there is.
    """

    name: str
    definition: JsonObject
    visibility: Visibility = "user"
    version: int | None = None


def visibility_of(owner: Owner) -> Visibility:
    """Return for whom the definition of an owner is."""
    return "user" if owner.user_id else "tenant" if owner.tenant else "all"


class StoredDefinitions:
    """The stored definitions of a database, for whoever asks.

    Args:
        db: not closed by this object.
        means: what the operator lets definitions use.
        is_taken: whether the operator serves a team of a name.
        changed: called when something was stored here.
        hooks: say what of features is not there that a definition names.

    Raises (all that store something):
        InsufficientScope: who asks lacks `agents:write`, or for a tenant's `admin`.
        Forbidden: it is for all, and who asks is neither the operator's command line nor a program of theirs.
    """

    def __init__(
        self,
        db: DatabaseManager,
        means: DefinitionPolicy,
        is_taken: Callable[[str], bool],
        changed: Callable[[], None],
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        self._hooks = hooks
        self._db = db
        self._means = means
        self._is_taken = is_taken
        self._changed = changed

    async def put(self, who: Principal, spec: DefinitionSpec, *, replaces: bool | None) -> DefinitionVersion:
        """Check and store a definition: a new one, or another version of one that is there. Every worker serves it
        within two seconds, to runs that begin after that.

        Args:
            replaces: whether there must be one of that name; None: it is all the same.

        Raises:
            InvalidRequest: it cannot be used; the text says all that is wrong.
            Conflict: the operator serves a team of that name; there is one already (`replaces=False`), or it is not at
                `spec.version` any more; or there are too many.
            NotFound: there is none to be replaced.
        """
        owner = self._may_store(who, spec.visibility)
        await self.check(who, spec)
        return await self._store(
            Change(owner, spec.name, spec.definition, who.user_id, who.actor, replaces=replaces, expected=spec.version)
        )

    async def _store(self, change: Change) -> DefinitionVersion:
        made = await self._db.database.act(partial(stored.definitions.store, change=change))
        self._changed()
        return made

    async def check(self, who: Principal, spec: DefinitionSpec) -> list[str]:
        """Return what `put` checks, without storing anything; what comes out has no effect, or is a store that is not
        there yet, each with its field. Raises as `put` does, but for what is stored already."""
        from drsai_backend.definitions.stored.document import checked, warnings_of

        owner = self._may_store(who, spec.visibility)
        if self._is_taken(spec.name):
            text = f"this server serves a team {spec.name!r} of its own: take another name"
            raise Conflict(text, param="name")
        # In a thread: a definition may be long.
        given = await in_thread(partial(checked, spec.name, spec.definition, self._means))
        # Of a definition for all, each tenant has stores of its own.
        return warnings_of(given, [] if owner == OF_ALL else await self.missing_stores(owner, given))

    async def missing_stores(self, owner: Owner, given: Definitions) -> Sequence[tuple[FieldPath, str]]:
        """Return the stores that definitions name, and that an owner, or all of a tenant, does not have yet: of the
        first 100, where they are named, and a sentence."""
        from drsai_backend.definitions.effects import stores_named
        from drsai_backend.definitions.schema import KNOWLEDGE

        found: list[tuple[FieldPath, str]] = []
        for path, name in islice(stores_named(given), _MOST_NAMED):
            tools = {KNOWLEDGE: {"stores": [name]}}
            try:
                await self._db.database.read(partial(self._hooks.check_given, owner=owner, tools=tools))
            except (NotFound, InvalidRequest) as error:
                found.append((path, f"names no store that is there yet: {error.message}"))
        return found

    async def delete(
        self, who: Principal, name: str, visibility: Visibility = "user", *, version: int | None = None
    ) -> None:
        """Delete a definition. Runs that began with it keep it.

        Raises:
            NotFound: there is none of that name.
            Conflict: it is not at `version` any more.
        """
        owner = self._may_store(who, visibility)
        delete = partial(stored.definitions.delete, owner=owner, name=name, expected=version, actor=who.actor)
        await self._db.database.write(delete)
        self._changed()

    async def roll_back(
        self,
        who: Principal,
        name: str,
        to: int,
        visibility: Visibility = "user",
        *,
        version: int | None = None,
    ) -> DefinitionVersion:
        """Store a new version that is equal to an older one.

        Args:
            to: the number of the older version.
            version: the version that is replaced; None: whichever there is.

        Raises:
            NotFound: there is no such definition, or version.
            InvalidRequest: the older version cannot be used any more.
            Conflict: it is not at `version` any more, or `to` is what is served.
        """
        owner = self._may_store(who, visibility)
        get = partial(stored.definitions.get, places=[owner], name=name, version=to, param="to")
        older = await self._db.database.read(get)
        if older.ended_at is None:
            raise Conflict(f"version {to} of agent {name!r} is the one that is served", param="to")
        await self.check(who, DefinitionSpec(name, older.definition, visibility))
        change = Change(owner, name, older.definition, who.user_id, who.actor, replaces=True, expected=version)
        return await self._store(replace(change, more={"restores": to}, action=Action.AGENT_ROLLED_BACK))

    async def get(
        self, who: Principal, name: str, visibility: Visibility | None = None, version: int | None = None
    ) -> DefinitionVersion:
        """A definition that somebody may see.

        Args:
            visibility: that for whom; None: the one that they ask by this name.
            version: an older one; None: what is served.

        Raises:
            NotFound: there is none, or it is another's.
        """
        places = self._may_see(who, visibility)
        return await self._db.database.read(partial(stored.definitions.get, places=places, name=name, version=version))

    async def versions(
        self,
        who: Principal,
        name: str,
        after: str | None = None,
        limit: int = 20,
        visibility: Visibility | None = None,
    ) -> Page[DefinitionVersion]:
        """A page of the versions of a definition that are kept, newest first. `after`: the `next` of the page before.
        Raises NotFound as `get`, and InvalidRequest where `after` is no `next`."""
        places = self._may_see(who, visibility)
        read = partial(stored.definitions.versions, places=places, name=name, after=after, limit=limit)
        return await self._db.database.read(read)

    async def list(
        self,
        who: Principal,
        after: str | None = None,
        limit: int = 20,
        visibility: Visibility | None = None,
    ) -> Page[DefinitionVersion]:
        """A page of the definitions that somebody may see, by name; of one name there may be one of each visibility.
        Raises InvalidRequest where `after` is no cursor."""
        places = self._may_see(who, visibility)
        read = partial(stored.definitions.served, places=places, after=after, limit=limit)
        return await self._db.database.read(read)

    @staticmethod
    def _may_see(who: Principal, visibility: Visibility | None) -> tuple[Owner, ...]:
        who.require(Scope.AGENTS_READ)
        return stored.definitions.places(who.owner) if visibility is None else (_owner(who, visibility),)

    @staticmethod
    def _may_store(who: Principal, visibility: Visibility) -> Owner:
        who.require(Scope.AGENTS_WRITE)
        if visibility == "tenant":
            who.require(Scope.ADMIN)
        if visibility == "all" and who.by is By.USER:
            text = "a definition for all tenants is the operator's: `drsai agents apply --for all` stores one"
            raise Forbidden(text, param="visibility")
        return _owner(who, visibility)


def _owner(who: Principal, visibility: Visibility) -> Owner:
    if visibility not in VISIBILITIES:
        names = ", ".join(VISIBILITIES)
        raise InvalidRequest(f"`visibility` must be one of {names}, not {visibility!r}", param="visibility")
    return {"user": who.owner, "tenant": Owner(who.tenant, NOBODY), "all": OF_ALL}[visibility]
