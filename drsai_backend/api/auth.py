"""Authentication finds who asks once per request, before its body is read, and hands that to the engine.

Every route declares the scope that it needs (`allowed`, or `RunRoute.scope`), or that it needs none (`open_to_all`);
tests/api/access/test_access.py fails for a route that declares neither.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from typing import Annotated, Final, TypeAlias, TypeVar, cast

import orjson
from fastapi import Depends, Query, Request
from fastapi.params import Depends as Dependency
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from starlette.exceptions import HTTPException
from starlette.types import Scope as Connection

from drsai_backend.access.identity import Authenticator
from drsai_backend.access.principal import ANONYMOUS, OF_KEYS, Principal, Scope
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.http.checking import checked
from drsai_backend.api.http.middleware import ANSWER_HEADERS
from drsai_backend.datamodel.owner import Owner
from drsai_backend.datamodel.thread import NAME_SCHEMA, check_name
from drsai_backend.errors import DatabaseUnavailable, InsufficientScope, InvalidRequest, Unauthenticated
from drsai_backend.json_types import JsonObject, as_object
from drsai_backend.runs.threads.rights import Named

Headers: TypeAlias = list[tuple[bytes, bytes]]
Came: TypeAlias = Callable[[Connection, Headers], None]
"""What is done with a request that has come, before it is known who asks: adds to the headers of its answer. What it
raises refuses it."""
Known: TypeAlias = Callable[[Principal, Headers], None]
"""What is done with a request once it is known who asks."""
Streams: TypeAlias = Callable[[Principal], AbstractContextManager[None]]
"""What is entered while somebody is sent a stream; what it raises refuses that."""
Identify: TypeAlias = Callable[[Request], Principal | Awaitable[Principal | None] | None]
"""Who asks, as an application with a login of its own knows it; None: nobody that it knows."""

_ID: Final = {"anyOf": [NAME_SCHEMA, {"type": "integer"}]}
_FIELDS: Final = {"email": NAME_SCHEMA, "name": NAME_SCHEMA, "id": _ID}
_UNSET: Final = {"enum": ["", None]}
# The first field that is set counts, and those after it may be anything.
_OBJECT: Final = {
    "type": "object",
    "anyOf": [
        {"required": [key], "properties": {**dict.fromkeys(list(_FIELDS)[:place], _UNSET), key: schema}}
        for place, (key, schema) in enumerate(_FIELDS.items())
    ],
}
USER_SCHEMA: Final = {"anyOf": [NAME_SCHEMA, _OBJECT, {"type": "null"}]}

_BY_KEY: Final = (b"api-key", b"x-api-key")
_NEEDED: Final = "drsai_scope"
_BY_GATEWAY: Final = ("X-OpenWebUI-User-Email", "X-OpenWebUI-User-Id")


def user_of(value: object) -> str | None:
    """The user id that a request's `user` gives: a string, or an object with `email`, `name` or `id` (first one set).
    None: it gives none.

    Raises:
        InvalidRequest: it is neither, or not a usable name.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return check_name(value, "user")
    for key in _FIELDS:
        named = as_object(value).get(key)
        if named is None or named == "":
            continue
        if key == "id" and isinstance(named, int) and not isinstance(named, bool):
            named = str(named)
        if not isinstance(named, str):
            raise InvalidRequest(f"`user.{key}` must be a string", param=f"user.{key}")
        return check_name(named, f"user.{key}")
    raise InvalidRequest("`user` must be a string or an object with `email`, `name` or `id`", param="user")


class Access:
    """Tells who asks, of one application.

    Args:
        authenticator: checks keys and tokens.
        identify: asked in its place.
        user_header: the header in which a gateway that may act as others names the user, in place of Open WebUI's.
            A gateway passes other headers of its clients on, so no other one is believed then.
        came: what is done with each request that comes.
        known: what is done with each of somebody who is known.
        streams: what is entered while an answer is streamed.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        identify: Identify | None = None,
        *,
        user_header: str | None = None,
        came: Sequence[Came] = (),
        known: Sequence[Known] = (),
        streams: Sequence[Streams] = (),
    ) -> None:
        self.needs_key = identify is None and authenticator.required
        """Whether nobody may ask without a key or token, ever."""
        self._authenticator = authenticator
        self._identify = identify
        self._headers = (user_header,) if user_header else _BY_GATEWAY
        self._came, self._known, self._streams = came, known, streams

    async def authenticate(self, connection: Connection, needed: Scope | None) -> Principal | None:
        """Return who asks, by what the request brings; None: everybody may, as whom they name. `needed`: the scope that
        they must have; None: none.

        Raises:
            Unauthenticated: a key is needed, and there is none, or none that is valid.
            InsufficientScope: it does not allow `needed`.
            TooManyRequests: there were too many from that address.
            TypeError, ValueError: `identify` gave what cannot be used. That is no fault of who asks: 500, and the log
                has it.
        """
        headers: Headers = []
        connection[ANSWER_HEADERS] = headers
        for came in self._came:
            came(connection, headers)
        caller = await self._find(connection, needed)
        if caller is not None:
            for known in self._known:
                known(caller, headers)
        return caller

    async def _find(self, connection: Connection, needed: Scope | None) -> Principal | None:
        """Return who asks; see `authenticate`."""
        if self._identify is not None:
            found = self._identify(Request(connection))
            caller = await found if inspect.isawaitable(found) else found
            if caller is None:
                raise Unauthenticated("log in first: this application does not know who asks")
            _check_identified(caller)
        else:
            caller = await self._authenticator.identify(_credential(connection))
        if caller is not None and needed is not None:
            caller.require(needed)
        return caller

    @property
    def was_open(self) -> bool:
        """Whether everybody could ask when that was looked at last."""
        return self._identify is None and self._authenticator.was_open

    @contextmanager
    def streaming(self, who: Principal) -> Generator[None]:
        """Enter what is entered while somebody is sent a stream. Raises what refuses it."""
        with ExitStack() as stack:
            for each in self._streams:
                stack.enter_context(each(who))
            yield

    async def authenticate_again(self, connection: Connection, needed: Scope) -> Principal | None:
        """`authenticate`, of an answer or a connection that takes long. An application's own way to refuse is an
        Unauthenticated, too."""
        try:
            return await self._find(connection, needed)
        except HTTPException as error:
            raise Unauthenticated(error.detail) from None

    async def check_again(self, connection: Connection, needed: Scope, caller: Principal | None) -> None:
        """Raise, as `authenticate_again`, where `caller` may not ask any more, or somebody else asks now."""
        found = await self.authenticate_again(connection, needed)
        if caller is not None and (found is None or found.owner != caller.owner):
            raise Unauthenticated("another user asks now")

    def acting(
        self, caller: Principal | None, connection: Connection, named: str | None, tag: object = None
    ) -> Principal:
        """Return as whom the caller asks. `named`: the user that the request names itself; `tag`: the field `user` of
        OpenAI's routes, which names the user, too, but where the caller may not act as others: there it is a tag of an
        end user, and nobody's identity.

        Raises:
            InsufficientScope: it names another user than the caller, who may not act as others.
            InvalidRequest: both name a user, and different ones; or what names one is not usable. Or a gateway's header
                names no usable user, or not the one that the request names: a gateway sets one of the two and passes
                the other on from its client: which one, nobody here can tell.
        """
        if caller is not None and not caller.may(Scope.ACT_AS):
            if named is not None and named != caller.user_id:
                whose = f"you are {caller.user_id}" if caller.key_id is None else f"this key is {caller.user_id}'s"
                text = f"{whose}: to name another `user` needs the scope `act-as`"
                raise InsufficientScope(text, scope=Scope.ACT_AS, param="user")
            return replace(caller, for_many=True) if self._is_tagged(caller, connection, tag) else caller
        user = None if tag is None else user_of(tag)
        if named is not None and user is not None and named != user:
            raise InvalidRequest("`user` in the query and in the body are different", param="user")
        named = named or user
        if caller is None:
            return Principal(named or ANONYMOUS)
        header, by_header = self._by_header(connection)
        if by_header is not None and named not in (None, by_header):
            raise InvalidRequest(f"`user` and the header `{header}` name different users", param="user")
        named = named or by_header
        if named is None:
            return caller if self._identify is not None else replace(caller, for_many=True)
        scopes = frozenset(scope for scope in Scope if caller.may(scope)) - OF_KEYS
        # Roles and claims are those of the gateway: whom it acts as has none of them, be it of the same name.
        return replace(caller, user_id=named, scopes=scopes, roles=frozenset(), claims={}, acted_by=caller.user_id)

    def _is_tagged(self, caller: Principal, connection: Connection, tag: object) -> bool:
        """Return whether a request says that somebody else asks than whose key it brings: no identity here, but the
        caller may be many people then."""
        if tag is not None and tag != caller.user_id:
            return True
        try:
            return self._identify is None and self._by_header(connection)[1] not in (None, caller.user_id)
        except InvalidRequest:
            return True

    def _by_header(self, connection: Connection) -> tuple[str, str | None]:
        """Return whom a gateway's header names, and which header."""
        for header in self._headers:
            if (name := _named_by(connection, header)) is not None:
                return header, name
        return "", None

    def principal(
        self, caller: Principal | None, connection: Connection, needed: Scope, named: str | None
    ) -> Principal:
        """`acting`, for a request whose query names the user, if anything does. Whom a gateway acts as needs the scope,
        too: `admin` they have not."""
        who = self.acting(caller, connection, named)
        who.require(needed)
        return who


def _check_identified(found: object) -> None:
    """Raise TypeError or ValueError unless an application's `identify` gave a `Principal` that can be stored."""
    if not isinstance(found, Principal):
        raise TypeError(f"`identify` must return a Principal or None, not {type(found).__name__}")
    try:
        found.check()
    except InvalidRequest as error:
        raise ValueError(f"the Principal that `identify` returned cannot be used: {error.message}") from None


def _credential(connection: Connection) -> str | None:
    """The key or token of a request. Raises Unauthenticated where it brings several."""
    found: set[str] = set()
    for name, value in connection["headers"]:
        text = value.decode("latin-1").strip()
        if name == b"authorization":
            kind, _, rest = text.partition(" ")
            if kind.lower() == "bearer" and rest.strip():
                found.add(rest.strip())
        elif name in _BY_KEY and text:
            found.add(text)
    if len(found) > 1:
        raise Unauthenticated("the request brings several keys that are different: send one")
    return found.pop() if found else None


def _named_by(connection: Connection, header: str) -> str | None:
    name = header.lower().encode()
    values = {value for key, value in connection["headers"] if key == name and value}
    if len(values) > 1:  # The gateway's and its client's: which one comes first, differs.
        raise InvalidRequest(f"the header `{header}` is there more than once", param=header)
    try:
        return check_name(values.pop().decode(), header) if values else None
    except UnicodeDecodeError:
        raise InvalidRequest(f"the header `{header}` must be UTF-8", param=header) from None


def access_of(request: Request) -> Access:
    """Return the access of the application which serves the request."""
    return cast(Access, request.scope["app"].state.access)


_QUERY: Final = Query(
    description="Whose threads and runs. Default: the key's user, or where none is needed, anonymous.",
    json_schema_extra={"anyOf": [NAME_SCHEMA]},
)
NamedUser = Annotated[str | None, _QUERY, AfterValidator(user_of)]
"""The user that a query names; its default is None."""


def allowed(scope: Scope, *, named: bool = True) -> Dependency:
    """A dependency that is the `Principal` who asks, and has the scope; see `needed_scope`. `named`: the query may name
    the user."""

    authenticated = Depends(caller_of(scope))  # Before it is looked at what the query says.

    async def who_asks(request: Request, caller: Principal | None = authenticated, user: NamedUser = None) -> Principal:
        return access_of(request).principal(caller, request.scope, scope, user)

    async def themselves(request: Request, caller: Principal | None = authenticated) -> Principal:
        return access_of(request).principal(caller, request.scope, scope, None)

    return Depends(_declaring(scope, who_asks if named else themselves))


def asked_again(request: Request, scope: Scope, who: Principal) -> Callable[[], Awaitable[Principal]]:
    """Return what finds out again who asks, for an answer that takes long: a key is revoked, a session ends.

    The function raises Unauthenticated and InsufficientScope as `Access.authenticate` does, and where somebody else
    asks now.
    """

    async def again() -> Principal:
        access = access_of(request)
        caller = await access.authenticate_again(request.scope, scope)
        if caller is None:
            return who
        found = access.acting(caller, request.scope, None if who.acted_by is None else who.user_id)
        if found.owner != who.owner:
            raise Unauthenticated("another user asks now")
        return found

    return again


def allowed_caller(scope: Scope) -> Dependency:
    """A dependency for a request whose body may name the user: who asks, to be handed to `read_body`."""
    return Depends(caller_of(scope))


def caller_of(scope: Scope, *, though_away: bool = False) -> Callable[[Request], Awaitable[Principal | None]]:
    """Return what `allowed_caller` depends on. `though_away`: a server that was open is so for this while its database
    cannot say whether there are keys by now."""

    async def caller(request: Request) -> Principal | None:
        access = access_of(request)
        try:
            return await access.authenticate(request.scope, scope)
        except DatabaseUnavailable:
            if though_away and access.was_open:
                return None
            raise

    return _declaring(scope, caller)


def _declaring(scope: Scope, dependency: _Asks) -> _Asks:
    setattr(dependency, _NEEDED, scope)
    return dependency


def needed_scope(dependency: object) -> Scope | None:
    """The scope that a dependency asks for, if it is one of these."""
    return getattr(dependency, _NEEDED, None)


async def open_to_all() -> None:
    """A dependency of routes that need no key."""


class Body(BaseModel):
    """A body that is read by hand; see `read_fields`."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)


class UserBody(Body):
    """What a request that stops, pauses or resumes may say."""

    user: Annotated[object, WithJsonSchema(USER_SCHEMA)] = Field(
        default=None, description="Whose thread or run it is, as in the query."
    )


_Asks = TypeVar("_Asks", bound=Callable[..., object])
_Body = TypeVar("_Body", bound=Body)
_Named = TypeVar("_Named", bound=UserBody)


async def read_body(
    bodies: Bodies, request: Request, kind: type[_Named], caller: Principal | None, user: str | None
) -> tuple[_Named, Principal]:
    """The body of a request, and who asks: the query's `user` and the body's must agree."""
    body = await read_fields(bodies, request, kind)
    return body, who_asks(request, body, caller, user)


def who_asks(request: Request, body: UserBody, caller: Principal | None, user: str | None) -> Principal:
    """Return who asks, where a query and a body may name them: they must agree."""
    named = user_of(body.user)
    if user is not None and named is not None and user != named:
        raise InvalidRequest("`user` in the query and in the body are different", param="user")
    return access_of(request).acting(caller, request.scope, user or named)


async def read_fields(bodies: Bodies, request: Request, kind: type[_Body]) -> _Body:
    """The body of a request. Raises InvalidRequest, which names the field."""
    async with bodies.read(request.scope, request.receive, optional=kind is UserBody) as fields:
        return checked(kind.model_validate, fields)


def described(kind: type[BaseModel]) -> JsonObject:
    """A body in the OpenAPI document: it is read by hand, as a chat request's is. What its `$defs` say is put where it
    is meant: a document has them elsewhere."""
    return orjson.loads(_description_of(kind))  # Each document has its own, as it is completed in place.


@cache
def _description_of(kind: type[BaseModel]) -> bytes:
    """Kept, since to make it is half of what an application costs."""
    schema = kind.model_json_schema()
    defined: JsonObject = schema.pop("$defs", {})

    def inlined(part: object) -> object:
        if isinstance(part, list):
            return [inlined(each) for each in cast(list[object], part)]
        if not isinstance(part, dict):
            return part
        fields = cast(JsonObject, part)
        if isinstance(name := fields.get("$ref"), str):
            return inlined(defined[name.rpartition("/")[2]])
        return {key: inlined(value) for key, value in fields.items() if key != "discriminator"}

    required = bool(schema.get("required") or schema.get("oneOf"))
    body = {"required": required, "content": {"application/json": {"schema": inlined(schema)}}}
    return orjson.dumps({"requestBody": body})


def named(who: Principal, thread_id: str, owner: str | None) -> Named:
    """The thread that a request names: one's own, or that of the `owner`."""
    return thread_id if owner is None else Owner(who.tenant, owner).thread(thread_id)
