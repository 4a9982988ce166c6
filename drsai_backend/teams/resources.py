"""Resources are what a team holds open outside of this process, workbenches, code executors and model clients; it is
closed here when its time has come.

A factory builds a team for every run, and nobody but the run knows when its tool servers, containers and connections
are not needed any more. But a factory may also return what all runs share, a workbench of its module, say. Which of the
two an object is, is told by what the factory has returned before:

- What two builds have returned is shared. It stays open; if a run has started it, it is stopped when the engine closes.
- Where another build has returned another object in the same place, objects there are a run's own: closed at its end.
- In the first build of a place, what was not started yet and is started by the run is stopped at its end: such objects
  start again when they are used. For anything else the next build will tell; until then it stays open.

Whatever is in use by another live run is left open until that ends, too.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from autogen_core.code_executor import CodeExecutor
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import StaticWorkbench, Workbench

from drsai_backend.models import run_client_of
from drsai_backend.teams.team_tree import Part

log = logging.getLogger("drsai.run")

CLOSE_SECONDS: Final = 10.0
"""How long one of them may take to close."""
_PLACES: Final = 4096
"""Places in teams of which it is remembered whose the objects there are."""
# Where AutoGen's own keep whether they are started.
_STARTED: Final = ("_actor", "_running", "_started")

Resource: TypeAlias = Workbench | CodeExecutor | ChatCompletionClient
Place: TypeAlias = tuple[str, str, int]
"""Name of the team, path of the agent, and number among what that holds."""


def resources_of(parts: Mapping[str, Part]) -> Iterator[tuple[str, Resource]]:
    """Yield what the parts of a team hold open, each with the path of the agent that holds it. Not the model clients of
    the run, which are shared by the process."""
    seen: set[int] = set()
    for path, part in parts.items():
        for owner in (part, getattr(part, "_model_context", None)):
            for found in _held(owner):
                if id(found) not in seen and run_client_of(found) is None:
                    seen.add(id(found))
                    yield path, found


def _held(owner: object) -> Iterator[Resource]:
    values: list[Any] = [*getattr(owner, "__dict__", {}).values()]
    looked: set[int] = set()
    for value in values:  # It grows meanwhile.
        kind = _kind(value.__class__)  # a facade says that it is of its client's class
        if kind is object:
            yield value
        elif kind is StaticWorkbench:
            # Nothing to be closed itself, but its tools may hold something: an executor of code.
            for tool in value._tools:
                yield from (each for each in _held(tool) if not isinstance(each, ChatCompletionClient))
        elif kind is not None and value and id(value) not in looked:
            looked.add(id(value))
            values += value if kind is list else value.values()


@lru_cache(maxsize=2048)  # Checks against abstract classes are slow, and an agent has twenty attributes.
def _kind(cls: type) -> type | None:
    """What a value of that class is here: a StaticWorkbench, a list or a dict to look into, an `object` that may be
    open, or nothing."""
    if issubclass(cls, StaticWorkbench):
        return StaticWorkbench
    if issubclass(cls, Workbench | CodeExecutor | ChatCompletionClient):
        return object
    return list if issubclass(cls, list | tuple) else dict if issubclass(cls, dict) else None


def _is_started(resource: Resource) -> bool | None:
    """Whether it is started. None: it does not say."""
    for name in _STARTED:
        if hasattr(resource, name):
            return bool(getattr(resource, name))
    return None


HeldResources: TypeAlias = list[tuple[Place, Resource, bool]]
"""What one team holds: where, what, and whether it was not started yet when the team was built."""


class Resources:
    """The resources of all runs of a process.

    Args:
        spawn: starts the closing of one in the background.
    """

    def __init__(self, spawn: Callable[[Coroutine[object, object, None]], None]) -> None:
        self._spawn = spawn
        self._users: dict[int, int] = {}
        """How many live runs hold an object, by its id."""
        self._known: WeakValueDictionary[int, Resource] = WeakValueDictionary()
        """What builds have returned so far."""
        self._shared: WeakValueDictionary[int, Resource] = WeakValueDictionary()
        self._own: OrderedDict[Place, bool | None] = OrderedDict()
        """Whether a place has an object of its own for every run; None: only one build has been seen."""
        self._waiting: dict[Place, Resource] = {}
        """Of runs that have ended, until the next build tells whose they are."""
        self._left_open: dict[int, Resource] = {}
        """What is shared and was started by a run."""

    def hold(self, held: HeldResources, name: str, team: Mapping[str, Part], *, fresh: bool) -> None:
        """A team of these parts was built under this name; `fresh`: from a config, so that nothing of it is shared.
        `held` takes what it holds, and is to be given to `release` when the team is not needed any more."""
        for number, (path, resource) in enumerate(resources_of(team)):
            place, key = (name, path, number), id(resource)
            held.append((place, resource, _is_started(resource) is False))
            self._users[key] = self._users.get(key, 0) + 1
            if self._known.get(key) is resource:
                self._shared[key] = resource
                self._own[place] = False
            elif place not in self._own:
                self._own[place] = True if fresh else None
            elif self._own[place] is None:
                self._own[place] = True
            self._known[key] = resource
            earlier = self._waiting.pop(place, None)
            if earlier is not None and earlier is not resource and self._own[place]:
                self._spawn(_close_all([(place, earlier)]))
            self._own.move_to_end(place)
        while len(self._own) > _PLACES:
            self._own.popitem(last=False)

    def release(self, held: HeldResources) -> None:
        """The team is not needed any more. What is its own is closed in the background. A second call does nothing."""
        over: list[tuple[Place, Resource]] = []
        for place, resource, was_startable in held:
            key = id(resource)
            self._users[key] -= 1
            if self._users[key]:
                continue
            del self._users[key]
            started = _is_started(resource)
            if started is False:
                continue
            if self._shared.get(key) is resource:
                if was_startable:
                    self._left_open[key] = resource
            elif self._own.get(place) or was_startable:
                over.append((place, resource))
            else:
                self._waiting[place] = resource
                while len(self._waiting) > _PLACES:
                    del self._waiting[next(iter(self._waiting))]
        held.clear()
        if over:
            self._spawn(_close_all(over))

    async def close(self) -> None:
        """Stop what is shared and was started by a run. What a factory has started, and may share, stays open."""
        left, self._left_open = self._left_open, {}
        self._waiting.clear()
        await asyncio.gather(*(_close(type(resource).__name__, resource) for resource in left.values()))


async def _close_all(resources: Sequence[tuple[Place, Resource]]) -> None:
    for place, resource in resources:
        await _close(f"{type(resource).__name__} of team {place[0]!r}, agent {place[1]!r}", resource)


async def _close(label: str, resource: Resource) -> None:
    # A session of MCP must be closed by the task that has opened it. AutoGen's is an actor with a task of its own,
    # which is told to end.
    actor: Any = getattr(resource, "_actor", None)
    task: asyncio.Task[object] | None = getattr(actor, "_actor_task", None)
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await (resource.close() if isinstance(resource, ChatCompletionClient) else resource.stop())
    except TimeoutError:
        log.warning("not closed within %g s: %s", CLOSE_SECONDS, label)
        if task is not None:
            task.cancel()
    except Exception as error:
        log.warning("not closed: %s: %s", label, type(error).__name__, exc_info=error)
    finally:
        if actor is not None:
            # It registers itself, and with all it holds stays for as long as the process.
            atexit.unregister(actor._sync_shutdown)
