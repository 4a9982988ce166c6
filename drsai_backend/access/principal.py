"""A principal is who asks: a tenant's user, and what they may do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, cast

import orjson
from pydantic import JsonValue

from drsai_backend import log_context
from drsai_backend.datamodel.audit import Actor, By
from drsai_backend.datamodel.owner import DEFAULT_TENANT, Owner
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import InsufficientScope, InvalidRequest


class Scope(StrEnum):
    """Something that a key or token may be allowed to do."""

    CHAT = "chat"
    THREADS_READ = "threads:read"
    THREADS_WRITE = "threads:write"
    THREADS_DELETE = "threads:delete"
    RUNS_CANCEL = "runs:cancel"
    RUNS_ADMIN = "runs:admin"
    AGENTS_READ = "agents:read"
    AGENTS_WRITE = "agents:write"
    TOOLS_REGISTER = "tools:register"
    MEMORY_READ = "memory:read"
    MEMORY_WRITE = "memory:write"
    MEMORY_DELETE = "memory:delete"
    KNOWLEDGE_READ = "knowledge:read"
    KNOWLEDGE_WRITE = "knowledge:write"
    USAGE_READ = "usage:read"
    METRICS_READ = "metrics:read"
    CONFIG_ADMIN = "config:admin"
    FILES_READ = "files:read"
    FILES_WRITE = "files:write"
    WEBHOOKS_READ = "webhooks:read"
    WEBHOOKS_WRITE = "webhooks:write"
    ADMIN = "admin"
    ACT_AS = "act-as"


OF_THE_SERVER: Final = frozenset({Scope.ACT_AS, Scope.METRICS_READ, Scope.CONFIG_ADMIN})
"""What no role has, and no admin of a tenant gives: it makes somebody every user, tells of all tenants, or changes what
holds for all."""
_READS: Final = frozenset(scope for scope in Scope if scope.endswith(":read")) - {Scope.USAGE_READ} - OF_THE_SERVER
"""What is one's own. What all users of a tenant have used is for its operators."""
_OWN: Final = _READS | {
    Scope.CHAT,
    Scope.THREADS_WRITE,
    Scope.THREADS_DELETE,
    Scope.RUNS_CANCEL,
    Scope.MEMORY_WRITE,
    Scope.MEMORY_DELETE,
    Scope.FILES_WRITE,
    Scope.WEBHOOKS_WRITE,
}
_OPERATOR: Final = _OWN | {
    Scope.AGENTS_WRITE,
    Scope.TOOLS_REGISTER,
    Scope.KNOWLEDGE_WRITE,
    Scope.USAGE_READ,
    Scope.RUNS_ADMIN,
}

ROLES: Final[Mapping[str, frozenset[Scope]]] = MappingProxyType(
    {
        "viewer": _READS,
        "user": _OWN,
        "operator": _OPERATOR,
        "admin": _OPERATOR | {Scope.ADMIN},
    }
)
"""Named sets of scopes. None of them has those of `OF_THE_SERVER`, which are asked for by their own names."""

EVERYTHING: Final = frozenset(Scope)
OF_KEYS: Final = OF_THE_SERVER | {Scope.ADMIN, Scope.RUNS_ADMIN}
"""What nobody has whom a gateway acts as: they are about others."""


def scopes_of(names: Iterable[str]) -> frozenset[Scope]:
    """The scopes that names of scopes and roles stand for.

    Raises:
        ValueError: a name is neither; the text has it.
    """
    found: set[Scope] = set()
    for name in names:
        found |= ROLES[name] if name in ROLES else {Scope(name)}
    return frozenset(found)


MAX_ROLES: Final = 256
"""Roles that somebody may have: each is looked for in shares and questions."""
MAX_CLAIMS: Final = 16 * 1024
"""Bytes of JSON that somebody's claims may have: they are stored with each run."""

ANONYMOUS: Final = "anonymous"
"""The user of a request that names none, where no key is needed."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, as authentication found it. No field of a request can set anything of it.

    Attributes:
        user_id: the user, whose threads and runs these are.
        tenant: the user's tenant. Nothing of one tenant is seen by another.
        scopes: what they may do.
        roles: names that applications give, for approvals and shares; not the sets of scopes of `ROLES`.
        key_id: the public id of the API key that was used; None: another way.
        claims: of a token that was checked, or what `identify` gave: trusted.
        acted_by: the user whose key acts as `user_id`; None: they ask for themselves.
        by: how they ask; a program or the command line is trusted to name any user. Principals are equal without it.
        for_many: whether the user may stand for many people, whom the request does not name: it came with the key of a
            gateway, or with a tag of an end user that is another one. Principals are equal without it.
    """

    user_id: str = ANONYMOUS
    tenant: str = DEFAULT_TENANT
    scopes: frozenset[Scope] = EVERYTHING
    roles: frozenset[str] = frozenset()
    key_id: str | None = None
    claims: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    acted_by: str | None = None
    by: By = field(default=By.USER, compare=False)
    for_many: bool = field(default=False, compare=False)

    @property
    def actor(self) -> Actor:
        """Who acts, for the audit log, in the request that the running code works for. The user whom a program names is
        not who acts."""
        request_id = log_context.current_request()
        if self.by is not By.USER:
            return Actor(self.by, request_id=request_id)
        return Actor(self.by, self.user_id, self.key_id, self.acted_by, request_id)

    @property
    def owner(self) -> Owner:
        """Whose rows the principal may see."""
        return Owner(self.tenant, self.user_id)

    @property
    def is_one_person(self) -> bool:
        """Whether all that the user asks is asked by the same person, as far as is known."""
        return not self.for_many and self.user_id != ANONYMOUS

    def may(self, scope: Scope) -> bool:
        """Whether the principal has a scope. `admin` has all but those of `OF_THE_SERVER`."""
        return scope in self.scopes or (Scope.ADMIN in self.scopes and scope not in OF_THE_SERVER)

    def dump(self, owner: Owner) -> dict[str, JsonValue] | None:
        """Return what a run on a thread of `owner` keeps of who asked; None: the owner, by a program that is trusted,
        and says no more."""
        if self == Principal(owner.user_id, owner.tenant) and not self.for_many:
            return None
        return {
            **({} if self.user_id == owner.user_id else {"user_id": self.user_id}),
            "scopes": [*sorted(self.scopes)],
            "roles": [*sorted(self.roles)],
            "key_id": self.key_id,
            "claims": dict(self.claims),
            "acted_by": self.acted_by,
            "for_many": self.for_many,
        }

    @classmethod
    def load(cls, owner: Owner, stored: Mapping[str, Any] | None) -> Principal:
        """The principal of a run, by the owner of its thread and what `dump` gave."""
        if stored is None:
            return cls(owner.user_id, owner.tenant, by=By.PROGRAM)
        # A scope of a later version allows nothing here.
        scopes = frozenset(scope for scope in Scope if scope in stored["scopes"])
        rest = {name: stored[name] for name in ("key_id", "claims", "acted_by")}
        user_id = stored.get("user_id", owner.user_id)
        many = stored.get("for_many", True)  # Release 0.2.0 did not say, so nothing is learnt of who it was.
        return cls(user_id, owner.tenant, scopes, frozenset(stored["roles"]), **rest, for_many=many)

    @property
    def names(self) -> frozenset[str]:
        """The principal as approvals and shares name them: `user:ann`, and `role:treasurer` for each of the roles."""
        return frozenset((f"user:{self.user_id}", *(f"role:{role}" for role in self.roles)))

    def require(self, scope: Scope) -> None:
        """Raise InsufficientScope unless the principal has the scope."""
        if not self.may(scope):
            of_key = self.key_id is not None and self.acted_by is None
            lacking = "which your key does not have" if of_key else "which you do not have here"
            raise InsufficientScope(f"this needs the scope `{scope}`, {lacking}", scope=scope)

    def check(self) -> None:
        """Raise InvalidRequest unless names, scopes, roles and claims are such as can be stored with a run; the text
        says which are not."""
        _check_text(self.tenant, "tenant")
        _check_text(self.user_id, "user_id")
        scopes = cast(object, self.scopes)
        if not isinstance(scopes, Set) or not EVERYTHING.issuperset(cast("Set[object]", scopes)):
            raise InvalidRequest("`scopes` must be a set of scopes", param="scopes")
        check_roles(self.roles)
        try:
            claims = orjson.dumps({**self.claims})
        except (TypeError, ValueError):  # orjson's errors are both
            raise InvalidRequest("`claims` must be a JSON object", param="claims") from None
        if len(claims) > MAX_CLAIMS:
            raise InvalidRequest(f"`claims` must have at most {MAX_CLAIMS} bytes as JSON", param="claims")
        if b"\\u0000" in claims.replace(b"\\\\", b""):  # PostgreSQL does not take them
            raise InvalidRequest("`claims` must not hold NUL characters", param="claims")


def check_roles(roles: object) -> frozenset[str]:
    """The roles of somebody, as they are kept.

    Raises:
        InvalidRequest: they are no set or list, or too many, or one of them is no usable name.
    """
    if not isinstance(roles, Set | list | tuple):
        raise InvalidRequest("`roles` must be a set of names", param="roles")
    found = cast("Collection[object]", roles)
    if len(found) > MAX_ROLES:
        raise InvalidRequest(f"there must be at most {MAX_ROLES} `roles`", param="roles")
    return frozenset(_check_text(role, "role") for role in found)


def _check_text(name: object, param: str) -> str:
    """A name, of a type that is not known. Raises InvalidRequest where `check_name` does, and unless it is a string."""
    if not isinstance(name, str):
        raise InvalidRequest(f"`{param}` must be a string", param=param)
    return check_name(name, param)
