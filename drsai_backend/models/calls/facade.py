"""The facade is a run's model client as an agent sees it: the client that the agent was made with, in all but its
calls."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, cast

from autogen_core.models import ChatCompletionClient

from drsai_backend.models.calls.run_client import RunModelClient

_THROUGH_THE_RUN: Final = frozenset(
    {"create", "create_stream", "count_tokens", "remaining_tokens", "actual_usage", "total_usage", "close"}
    | {"capabilities", "model_info", "dump_component"}
)
_OF_EVERY_OBJECT: Final = frozenset({*dir(object), "__del__", "__dict__", "__weakref__", "__getattr__", "__slots__"})


class ClientFacade:
    """Stands for a model client in an agent. The calls of AutoGen's interface go through the run's client; all else is
    the wrapped client's: its class, its attributes, to be read and to be set, and its own methods, whose calls of
    `self.create` go through the run's client, too."""

    __slots__ = ("_ClientFacade__run",)

    def __init__(self, run: RunModelClient) -> None:
        object.__setattr__(self, "_ClientFacade__run", run)

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        return type(_run_of(self).inner)

    def __getattr__(self, name: str) -> Any:
        run = _run_of(self)
        if name in _THROUGH_THE_RUN:
            return getattr(run, name)
        found = getattr(run.inner, name)
        if isinstance(found, types.MethodType) and found.__self__ is run.inner:
            return types.MethodType(found.__func__, self)
        return found

    def __setattr__(self, name: str, value: object) -> None:
        setattr(_run_of(self).inner, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_run_of(self).inner, name)

    def __reduce__(self) -> tuple[object, ...]:
        return facade, (_run_of(self),)  # a copy

    def __dir__(self) -> list[str]:
        return dir(_run_of(self).inner)

    def __repr__(self) -> str:
        return repr(_run_of(self).inner)


def facade(run: RunModelClient) -> ChatCompletionClient:
    """Return what an agent gets in place of the client that `run` wraps."""
    return cast(ChatCompletionClient, _facade_class(type(run.inner))(run))


def run_client_of(client: object) -> RunModelClient | None:
    """The run's client that a client is, or stands for; None: it has nothing to do with a run."""
    # By type(), for a facade says that it is of another class.
    if issubclass(type(client), ClientFacade):
        return _run_of(client)
    return client if isinstance(client, RunModelClient) else None


def _run_of(client: object) -> RunModelClient:
    return object.__getattribute__(client, "_ClientFacade__run")


@lru_cache(maxsize=256)  # bounded, as a factory may make a class of its own for every run
def _facade_class(wrapped: type) -> type[ClientFacade]:
    """Python looks `async with`, a call and the like up in the class, not in the object: a class that has them."""
    own = {
        name: _forwarded(name)
        for name in dir(wrapped)
        if name.startswith("__")
        and name not in _OF_EVERY_OBJECT
        and isinstance(inspect.getattr_static(wrapped, name), types.FunctionType)
    }
    return type("ClientFacade", (ClientFacade,), {"__slots__": (), **own}) if own else ClientFacade


def _forwarded(name: str) -> Callable[..., object]:
    def call(self: ClientFacade, *args: object, **kwargs: object) -> object:
        return self.__getattr__(name)(*args, **kwargs)

    return call
