"""Routes of extensions join the application: each says who may ask it, and none takes another's place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from starlette.routing import Route

from drsai_backend.access.key_store import ApiKeys
from drsai_backend.api.auth import Access, needed_scope, open_to_all
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.http.middleware import Hosts
from drsai_backend.api.http.parameters import KeyFirstRoute
from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError
from drsai_backend.runs import Engine


@dataclass(frozen=True, slots=True)
class Web:
    """What routes are made with.

    Attributes:
        engine: runs, and what is stored of threads, for the principal who asks.
        bodies: reads bodies, within the bounds of this server.
        ping: seconds after which a stream that has nothing to say sends a comment.
        max_messages: how many messages one request may have.
        keys: the keys of users; None: this application makes none.
        settings: those of the `DrSai`.
        access: tells who asks.
        hosts: those that are served; None: any.
    """

    engine: Engine
    bodies: Bodies
    ping: float
    max_messages: int
    keys: ApiKeys | None
    settings: Settings
    access: Access
    hosts: Hosts | None


Routers = Callable[[Web], Iterable[tuple[str, APIRouter]]]
"""Makes the routes of extensions, each with the extension's name."""


def no_routers(_: Web) -> Iterable[tuple[str, APIRouter]]:
    return ()


def join(app: FastAPI, name: str, router: APIRouter) -> None:
    """Add the routes of an extension.

    Raises:
        ConfigurationError: one is not made by `new_router`, declares no scope, or is there already.
    """
    taken = {(route.path, method) for route in app.routes if isinstance(route, Route) for method in route.methods or ()}
    for route in router.routes:
        path = getattr(route, "path", "")
        if not isinstance(route, KeyFirstRoute):
            raise ConfigurationError(f"the extension {name}: make the router of {path} with `new_router`")
        if not _declares(route.dependant):
            text = "declares no scope: `allowed(Scope.…)`, or `open_to_all`"
            raise ConfigurationError(f"the extension {name}: the route {path} {text}")
        for method in sorted(route.methods or ()):
            if (path, method) in taken:
                raise ConfigurationError(f"the extension {name}: there is another route {method} {path}")
            taken.add((path, method))
        app.router.routes.append(route)


def _declares(dependant: Dependant) -> bool:
    """Whether anything that a route depends on says who may ask."""
    return any(
        needed_scope(each.call) is not None or each.call is open_to_all or _declares(each)
        for each in dependant.dependencies
    )
