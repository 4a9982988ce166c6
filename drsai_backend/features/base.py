"""`Extension` is a feature: a class that a `DrSai` makes once, with all that it brings, and none of which is elsewhere.

`DrSai(extensions=[Notes])` and `DRSAI_EXTENSIONS=notes:Notes` add one; those that come along are a list in `builtin`.
An extension overrides what it uses, and costs nothing where it overrides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel, ValidationError

from drsai_backend.database.calls import Calls
from drsai_backend.datamodel.audit import By
from drsai_backend.errors import DrSaiError, TeamBuildError
from drsai_backend.lazily import imported
from drsai_backend.work.kinds import Kind
from drsai_backend.work.workers import Workers

if TYPE_CHECKING:
    from fastapi import APIRouter
    from sqlalchemy.orm import Session
    from sqlmodel import SQLModel
    from starlette.types import ASGIApp

    from drsai_backend.access.principal import Principal
    from drsai_backend.api.joining import Web
    from drsai_backend.config import Settings
    from drsai_backend.database import Database, DatabaseManager
    from drsai_backend.database.backends.prepared import Charge, Step
    from drsai_backend.database.followed import Followed, Watch
    from drsai_backend.database.hooks import Asked, CallsOf, Draw, Drawn, EndedRun, MadeCall
    from drsai_backend.datamodel.owner import Owner, ThreadName
    from drsai_backend.json_types import JsonObject
    from drsai_backend.models import ModelClientFactory
    from drsai_backend.models.embeddings import Embeddings
    from drsai_backend.models.prices import Prices
    from drsai_backend.runs import Engine
    from drsai_backend.runs.events import WatchedEvent
    from drsai_backend.runs.feed.live_run import LiveRun
    from drsai_backend.search import Embedder, Search
    from drsai_backend.teams.context import RunContext
    from drsai_backend.teams.recall import Recall
    from drsai_backend.tools.options import ToolOptions
    from drsai_backend.work.kinds import JobOptions

M = TypeVar("M", bound=BaseModel)


async def each_hour(act: Callable[[], Awaitable[int]], log: logging.Logger, what: str) -> None:
    """Do something now, and each hour again. The log says of how many calls it was done, or that the database cannot do
    it now; `what` names it there."""
    while True:
        try:
            if calls := await act():
                log.info("%s", what, extra={"calls": calls})
        except DrSaiError as error:
            log.warning("not now: %s: %s", what, error.message)
        await asyncio.sleep(3_600)


async def end(task: asyncio.Task[None] | None) -> None:
    """Cancel a task, if there is one, and wait for its end."""
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def read_options(form: type[M], source: str, given: Mapping[str, object]) -> M:
    """Return the options that an agent gives to the feature `source`. Raises TeamBuildError where they cannot be."""
    try:
        return form.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        raise TeamBuildError(f"{source}: {error.errors()[0]['msg']}") from None


@dataclass(frozen=True)
class Host:
    """What an extension is made with.

    Attributes:
        db: rows of all tables, its own included; closed by the `DrSai`.
        settings: those of the `DrSai`.
        by: what the audit log says of who acts where a program calls a verb.
        work: does the jobs of extensions: `work.wake()` after one was enqueued.
        calls: stores model calls that are made beside runs, for whoever counts them.
        embeddings: those of the configured endpoint; None: there are none.
        models: makes model clients; None: outside of a `DrSai`.
        on_settings: called with the names of settings that have changed while the process runs.
        drawn: the hooks `draw` that are asked, by the names of extensions: one that draws nothing for anybody takes its
            own out. Where there is none, nothing is called before a model call.
    """

    db: DatabaseManager
    settings: Settings
    by: By = By.PROGRAM
    work: Workers = field(init=False)
    calls: Calls = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "work", Workers(self.database, self.settings))
        object.__setattr__(self, "calls", Calls(self.database))

    embeddings: Embeddings | None = None
    models: ModelClientFactory | None = None
    on_settings: list[Callable[[Collection[str]], None]] = field(default_factory=list[Any], init=False)
    drawn: dict[str, Drawn] = field(default_factory=dict[str, Any], init=False)

    def settings_changed(self, names: Collection[str]) -> None:
        """Settings have changed while the process runs, and `settings` has them: tell all that went by them."""
        for heard in self.on_settings:
            heard(names)

    @cached_property
    def watch(self) -> Watch:
        """Looks for changes of rows that all processes go by."""
        from drsai_backend.database.followed import Watch

        return Watch(self.database)

    @cached_property
    def search(self) -> Search:
        """Finds entries of indexes, for all extensions."""
        from drsai_backend.search import Search

        return Search(self.database)

    @cached_property
    def embedder(self) -> Embedder:
        """Makes vectors of texts, where there is an endpoint."""
        from drsai_backend.search import Embedder

        return Embedder(self.database, self.embeddings, self.settings, self.calls)

    def reload_prices(self) -> None:
        """Go by the prices as the settings have them now. Raises ConfigurationError, and goes by those that it had."""
        from drsai_backend.models.prices import load_prices

        vars(self)["prices"] = load_prices(self.settings.prices, self.settings.price_overrides)

    @cached_property
    def prices(self) -> Prices:
        """What models cost (`DRSAI_PRICES`), until the settings change. Raises ConfigurationError where the list cannot
        be used."""
        from drsai_backend.models.prices import load_prices

        return load_prices(self.settings.prices, self.settings.price_overrides)

    @property
    def database(self) -> Database:
        """Runs storage functions of the extension's own."""
        return self.db.database


class Extension:
    """A feature. Its public methods are its verbs: `drsai.extension(Notes).add(…)`.

    Attributes:
        name: of the feature, in lower case: also of its commands, and its tables are called so, or `<name>_…`.
        tables: its tables, made by its migrations. Rows with the columns `tenant` and `user_id` belong to a user: they
            are listed, exported and deleted with them.
        migrations: the folder of its Alembic scripts, beside its module. Their version is kept for itself, in
            `drsai_alembic_version_<name>`.
        commands: the `typer.Typer` of its commands, as `package.module:attribute`: `drsai <name> …`. Imported when one
            of them is asked for.
        tools: its methods that are tools of agents, and the options of each. `builtin_tools([…])` in a team factory and
            `builtin:` in a definition find them by their names.
        jobs: kinds of jobs that its methods do, called `<name>` or `<name>_…`, which are stored, and the options of
            each. `work.jobs.enqueue` stores one in a transaction of the extension's own, and any process that runs
            teams does it.
        host: what it was made with.
    """

    name: ClassVar[str]
    tables: ClassVar[Sequence[type[SQLModel]]] = ()
    migrations: ClassVar[str] = "migrations"
    commands: ClassVar[str | None] = None
    tools: ClassVar[Mapping[str, ToolOptions]] = {}
    jobs: ClassVar[Mapping[str, JobOptions]] = {}

    def __init__(self, host: Host) -> None:
        self.host = host

    @property
    def is_on(self) -> bool:
        """Whether `run_ended`, `calls_made` and `run_told` are called, `around` is asked and its jobs are done, by the
        settings: asked when all are made."""
        return True

    @classmethod
    @contextmanager
    def serving(cls, settings: Settings) -> Generator[Settings]:
        """Surround a server or a worker, before any of its processes begins: give the settings that they are to have,
        and clean up after the last one. Raises ConfigurationError: it is not to begin."""
        yield settings

    async def refresh(self) -> None:
        """Learn what is stored that holds here: before anything runs, and in processes that run nothing. Raises
        DatabaseError."""

    async def open(self, engine: Engine) -> None:
        """Begin what runs in the background of a process that runs teams. What it raises, `DrSai.open` raises."""

    async def close(self) -> None:
        """End what `open` began. What it raises is logged."""

    def routes(self, web: Web) -> APIRouter | None:
        """Return its routes, of a `new_router`; each declares its scope. Here alone FastAPI is imported."""
        return None

    def around(self, app: ASGIApp) -> ASGIApp:
        """Return what surrounds all requests of an application, and calls `app`, in plain ASGI."""
        return app

    def run_told(self, run: LiveRun, event: WatchedEvent) -> None:
        """A run of this process tells something, but no pieces of texts: called in the event loop, so it takes
        microseconds and waits for nothing. What is told of a process that is killed then is lost. What this raises is
        logged."""

    def recall_for(self, run: RunContext, options: Mapping[str, object]) -> Recall:
        """Return what finds, for a question of the user's, the text that an agent of the run is shown beside its
        messages: `RunContext.recall(agent, "<name>", options)` asks for it. Found once a turn, and recorded.

        Raises:
            TeamBuildError: an option cannot be.
        """
        raise NotImplementedError

    # --- hooks: requests over HTTP, which wait for nothing ------------------------------------------------------------

    def request_came(self, connection: Mapping[str, Any], headers: list[tuple[bytes, bytes]]) -> None:
        """A request has come, of which nothing is known but its ASGI scope; what is added to `headers`, now or until
        its answer begins, is told with that. The DrSaiError that is raised here is what it is answered."""

    def request_known(self, who: Principal, headers: list[tuple[bytes, bytes]]) -> None:
        """It is known who asks: the caller, whomever the request names."""

    def streaming(self, who: Principal) -> AbstractContextManager[None]:
        """Return what is entered while somebody is sent a stream. The DrSaiError that it raises then refuses that."""
        return nullcontext()

    # --- hooks: storage functions in transactions of the core, which neither commit nor wait for anything -------------

    def run_ended(self, session: Session, run: EndedRun) -> None:
        """A run has ended, or its part in a process: called in its last write, and so exactly once for each end that is
        stored, whoever is killed. What it raises is logged, and undoes what it has written and nothing else.

        An input that a live run took up (`on_busy="steer"`) ends with that run, and is not told for itself. A run that
        uses this hook takes round trips more on PostgreSQL. What is to be done outside of the database is a job.
        """

    def calls_made(self, of: CallsOf, calls: Sequence[MadeCall]) -> Sequence[Step]:
        """Return statements that store model calls which were answered. They ride on the write that stores what the run
        has used by then, so a call that is stored is there once, whoever is killed, and takes no round trip; one whose
        write was cut off may be given again, with the same run, epoch and number. What this raises is logged; a
        statement that the database refuses fails the write of the run."""
        return ()

    def wants_exchanges(self, team: str) -> bool:
        """Whether `calls_made` is to have what the models of a team's runs are sent and answer (`record["exchange"]`):
        asked as a run begins. It is packed at each answer, which takes milliseconds where it is long."""
        return False

    def charge(self, asked: Asked) -> Charge | None:
        """Return what a request that begins a run or resumes one is charged, in the transaction that stores it: all of
        that is taken, or the request is refused and nothing is stored. None: nothing. A DrSaiError that is raised here
        refuses it without a look at the database. Called once for each request that is not known already, by an
        idempotency key or as a repeat."""
        return None

    def draw(self, owner: Owner, key_id: str | None, thread: ThreadName, run_id: str) -> Draw | None:
        """Return what draws each model call of a run before it is made: a run of this process is about to begin, or to
        go on. None: nothing does, and it is asked again before the next call. Where a call cannot be drawn, the run is
        paused where it stands, for that reason. `owner`: who asks, with the key `key_id`, if with one."""
        return None

    def user_deleted(self, session: Session, owner: Owner) -> int:
        """Delete some of what is a user's and in none of `tables`; how many. Called once their runs have ended, until
        it says 0, and before anything but their keys is deleted: at least once, and again when a deletion that was cut
        off is repeated, also for somebody to whom no row belongs any more. What it raises ends the deletion, which can
        be repeated: nobody is told that all is gone before it is."""
        return 0

    def keys_deleted(self, session: Session, owner: Owner, key_ids: Sequence[str]) -> None:
        """Forget what there is of API keys of a user's, all of which are deleted in this transaction: before the user
        is, who may be nobody else's then. What it raises keeps the keys."""

    def file_deleted(self, session: Session, owner: Owner, file_id: str) -> None:
        """Forget what was made of a file of a user's, which is deleted in this transaction, by whomever or because its
        time is over. What it raises keeps the file."""

    def tool_given(self, session: Session, owner: Owner, tool: str, arguments: JsonObject) -> None:
        """A request gives its agent a tool of an extension's (`file_search` of Responses), and is stored in this
        transaction. What it raises refuses the request, of which nothing is stored. Also, a definition that is checked
        gives its agent one (`knowledge_search`): NotFound and InvalidRequest are warnings then."""

    def export_user(self, session: Session, owner: Owner) -> Iterable[tuple[str, bytes]]:
        """Return what is a user's and in none of `tables`: names and contents of files for their archive, below
        `<name>/`, each written as it comes. What it raises ends the export: an archive is whole, or there is none."""
        return ()


class RoutedExtension(Extension):
    """A feature of this package with the module `routes` in its folder: its function of that name takes the feature,
    and what routes are made of. Imported when it is asked for."""

    def routes(self, web: Web) -> APIRouter | None:
        return imported(f"drsai_backend.features.{self.name}.routes:routes")(self, web)


class FollowedExtension(RoutedExtension):
    """A feature whose rows are `_followed`: all processes go by them, and learn of changes while they are open."""

    _followed: Followed[Any]

    async def refresh(self) -> None:
        await self._followed.refresh()

    async def open(self, engine: Engine) -> None:
        await self.host.watch.begin(self._followed)

    async def close(self) -> None:
        await self.host.watch.end(self._followed)


def kinds_of_jobs(extension: Extension) -> list[Kind]:
    """Return the kinds of jobs that an extension does."""
    return [
        Kind(
            name,
            options,
            getattr(extension, options.handler),
            getattr(extension, options.failed or "", None),
            getattr(extension, options.lock or "", None),
        )
        for name, options in extension.jobs.items()
    ]
