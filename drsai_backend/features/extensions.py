"""The extensions of one `DrSai` are read, checked, made, opened and closed together."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from drsai_backend.config import Settings
from drsai_backend.database.hooks import Hooks
from drsai_backend.database.schemas import Schema
from drsai_backend.datamodel import table_of
from drsai_backend.definitions.policy import DefinitionPolicy
from drsai_backend.errors import ConfigurationError
from drsai_backend.features.base import Extension, Host, kinds_of_jobs
from drsai_backend.features.builtin import BUILTIN, NOUNS
from drsai_backend.lazily import imported
from drsai_backend.teams.registry import read_module
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.builtin.table import NAMES
from drsai_backend.work.kinds import Kind as JobKind

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.types import ASGIApp

    from drsai_backend.api.auth import Came, Known, Streams
    from drsai_backend.api.joining import Web
    from drsai_backend.runs import Engine
    from drsai_backend.runs.feed.live_run import Watcher
    from drsai_backend.teams.recall import RecallSource

log = logging.getLogger("drsai.extensions")

E = TypeVar("E", bound=Extension)
Kind = type[Extension]
_OURS: Final = "drsai_backend."
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}")
_WHERE: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")


class Extensions:
    """The extensions of one `DrSai`, in the order of its list.

    Args:
        kinds: their classes, as `kinds_of` gives them.
        host: what each is made with.
    """

    def __init__(self, kinds: Iterable[Kind], host: Host) -> None:
        self._host = host
        self._made = [kind(host) for kind in kinds]
        host.calls.start(self.hooks())
        self._open: list[Extension] = []

    def get(self, kind: type[E]) -> E:
        """The one of a class. Raises ConfigurationError: there is none."""
        for each in self._made:
            if isinstance(each, kind):
                return each
        names = ", ".join(each.name for each in self._made) or "none"
        raise ConfigurationError(f"{kind.__name__} is no extension of this DrSai, which has {names}: see `extensions`")

    def hooks(self) -> Hooks:
        """Return those of their hooks that do anything."""
        drawn = self._host.drawn
        drawn |= {each.name: each.draw for each in self._overriding("draw") if each.is_on}
        return Hooks(
            {each.name: each.run_ended for each in self._overriding("run_ended") if each.is_on},
            {each.name: each.user_deleted for each in self._overriding("user_deleted")},
            {each.name: each.export_user for each in self._overriding("export_user")},
            [
                table
                for each in self._made
                for table in map(table_of, each.tables)
                if {"tenant", "user_id"} <= {*table.c.keys()}
            ],
            {each.name: each.file_deleted for each in self._overriding("file_deleted")},
            {each.name: each.tool_given for each in self._overriding("tool_given")},
            {each.name: each.calls_made for each in self._overriding("calls_made") if each.is_on},
            {each.name: each.charge for each in self._overriding("charge") if each.is_on},
            [each.wants_exchanges for each in self._overriding("wants_exchanges") if each.is_on],
            drawn,
            [each.keys_deleted for each in self._overriding("keys_deleted")],
        )

    def on_requests(self) -> tuple[Sequence[Came], Sequence[Known], Sequence[Streams]]:
        """Return what they do with requests that come, with those of somebody who is known, and with streams."""
        return (
            [each.request_came for each in self._overriding("request_came")],
            [each.request_known for each in self._overriding("request_known")],
            [each.streaming for each in self._overriding("streaming")],
        )

    def _overriding(self, name: str) -> Iterator[Extension]:
        return (each for each in self._made if getattr(type(each), name) is not getattr(Extension, name))

    def tools(self) -> Mapping[str, ToolBase]:
        """Their tools by name. Raises what is wrong with one that is not of this package."""
        tools = _Tools({name: each for each in self._made for name in each.tools})
        for name in (name for each in self._made if not type(each).__module__.startswith(_OURS) for name in each.tools):
            _ = tools[name]
        return tools

    def jobs(self) -> Sequence[JobKind]:
        """The kinds of jobs that they do."""
        return [kind for each in self._made if each.is_on for kind in kinds_of_jobs(each)]

    def sources(self) -> Mapping[str, RecallSource]:
        """Return what they recall for agents, by their names."""
        return {each.name: each.recall_for for each in self._overriding("recall_for")}

    def watchers(self) -> Sequence[Watcher]:
        """Return what is told of the runs of this process."""
        return [each.run_told for each in self._overriding("run_told") if each.is_on]

    def around(self) -> Sequence[Callable[[ASGIApp], ASGIApp]]:
        """Return what surrounds the requests of an application, the outermost last."""
        return [each.around for each in self._overriding("around") if each.is_on]

    def routers(self, web: Web) -> Iterator[tuple[str, APIRouter]]:
        """The routes of each that has any, with its name."""
        for each in self._made:
            if (router := each.routes(web)) is not None:
                yield each.name, router

    async def refresh(self) -> None:
        """Have all learn what is stored that holds here. Raises DatabaseError."""
        for each in self._overriding("refresh"):
            await each.refresh()

    async def open(self, engine: Engine) -> None:
        """Open all, in their order, and begin to do their jobs. Raises what one of them does; `close` closes those
        before it."""
        for each in self._made:
            await each.open(engine)
            self._open.append(each)
        self._host.work.start(self.jobs())

    async def close(self) -> None:
        """Give their jobs back, and close those that were opened, the last one first."""
        await self._host.work.stop()
        while self._open:
            each = self._open.pop()
            try:
                await each.close()
            except Exception:
                # Foreign code may raise anything, and the others are to be closed.
                log.exception("the extension %s could not be closed", each.name)


class _Tools(Mapping[str, ToolBase]):
    """Tools of extensions. Each is made when it is asked for: its schema takes a millisecond, and most processes need
    none."""

    def __init__(self, of: Mapping[str, Extension]) -> None:
        self._of = of
        self._made: dict[str, ToolBase] = {}

    def __getitem__(self, name: str) -> ToolBase:
        if name not in self._made:
            from drsai_backend.tools.function import Function

            of = self._of[name]
            self._made[name] = Function[..., object](getattr(of, name), of.tools[name])
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._of

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)


class _OfRoutes(Extension):
    """A feature that has routes, in the module `routes` of its folder, and overrides nothing else."""

    def routes(self, web: Web) -> APIRouter | None:
        return imported(f"drsai_backend.features.{self.name}.routes:routes")(web)


@contextmanager
def serving(settings: Settings) -> Generator[Settings]:
    """Surround a server or a worker with what its extensions have for all of its processes; give the settings that they
    are to have. Raises ConfigurationError: it is not to begin."""
    with ExitStack() as stack:
        for kind in kinds_of(settings):
            settings = stack.enter_context(kind.serving(settings))
        yield settings


def _builtin(feature: str) -> Kind:
    return imported(feature) if ":" in feature else type(feature, (_OfRoutes,), {"name": feature})


def kinds_of(settings: Settings, given: Iterable[Kind] | None = None) -> Sequence[Kind]:
    """The classes of the built-in extensions, and of those that are `given`; None: that the settings name.

    Raises:
        ConfigurationError: one of them cannot be used; the text names it.
    """
    own = map(_imported, settings.extensions) if given is None else given
    kinds: list[object] = [*(_builtin(each.feature) for each in BUILTIN if each.feature is not None), *own]
    taken: dict[str, Kind] = {}
    tools = set(NAMES)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Extension)):
            raise ConfigurationError(f"{kind!r} is no extension: name a class of drsai_backend.features.base.Extension")
        name = getattr(kind, "name", "")
        if not _NAME.fullmatch(name):
            text = "a `name` of up to 31 lower-case letters, digits and `_`, which begins with a letter"
            raise ConfigurationError(f"{_said(kind)}: an extension has {text}, not {name!r}")
        if name in taken:
            both = f"{_said(taken[name])} and {_said(kind)}"
            raise ConfigurationError(f"there are two extensions of the name {name}: {both}")
        taken[name] = kind
        if kind.commands is not None and name in NOUNS:
            raise ConfigurationError(f"the extension {name}: there are other commands `drsai {name}`")
        _check_names(kind)
        for each in kind.tools:
            if each in tools:
                raise ConfigurationError(f"the extension {name}: there is another tool of the name {each}")
            tools.add(each)
    return [*taken.values()]


def _check_names(kind: Kind) -> None:
    """Raise ConfigurationError: a table or a kind of jobs may be another extension's, or there is no such handler."""
    name = kind.name
    for what, each in (
        *(("table", each) for each in sorted(_tables(kind))),
        *(("kind of jobs", each) for each in kind.jobs),
    ):
        if each != name and not each.startswith(f"{name}_"):
            raise ConfigurationError(f"the extension {name}: its {what} {each} must be called {name} or {name}_…")
    for each, options in kind.jobs.items():
        for method in filter(None, (options.handler, options.failed)):
            if not callable(getattr(kind, method, None)):
                raise ConfigurationError(f"the extension {name}: it has no method {method}, for its jobs {each}")


def _imported(target: str) -> object:
    """Return what `package.module:Class` names."""
    found = _WHERE.fullmatch(target)
    if found is None:
        raise ConfigurationError(f"DRSAI_EXTENSIONS: {target!r} names no extension: write `package.module:Class`")
    module, name = found.groups()
    try:
        kind = getattr(read_module(module), name, None)
    except ConfigurationError as error:
        raise ConfigurationError(f"DRSAI_EXTENSIONS: {error.message}") from error.__cause__
    if kind is None:
        raise ConfigurationError(f"DRSAI_EXTENSIONS: {module} has no {name}, which is to be an extension")
    return kind


def _home(kind: Kind) -> Path:
    """The folder of the class that has the tables: a subclass elsewhere has its migrations, too."""
    return Path(inspect.getfile(next(each for each in kind.__mro__ if "tables" in vars(each)))).parent


def _said(kind: Kind) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _tables(kind: Kind) -> frozenset[str]:
    return frozenset(table_of(model).name for model in kind.tables)


def schemas_of(kinds: Iterable[Kind]) -> Sequence[Schema]:
    """The tables that they bring, and where the migrations lie."""
    return [Schema(kind.name, _home(kind) / kind.migrations, _tables(kind)) for kind in kinds if kind.tables]


def means_of(settings: Settings) -> DefinitionPolicy:
    """Return what the settings let definitions use, tools of extensions included. Raises ConfigurationError: the
    extensions cannot be used, or the file of MCP servers."""
    from drsai_backend.tools.mcp.servers import McpServers

    names = [] if settings.mcp_servers is None else [each.name for each in McpServers.read(settings.mcp_servers)]
    return replace(
        DefinitionPolicy.of(settings, chain.from_iterable(kind.tools for kind in kinds_of(settings))), mcp=lambda: names
    )
