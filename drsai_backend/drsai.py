"""A `DrSai` holds teams, a database and the engine in one object, for programs in which teams work with their state
kept.

What is done with them is in `drsai_backend.caller`.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from drsai_backend.access.principal import Principal
from drsai_backend.caller import Caller
from drsai_backend.config import Settings
from drsai_backend.database import Database, DatabaseManager
from drsai_backend.datamodel.audit import By
from drsai_backend.old_forms import takes_old_forms

if TYPE_CHECKING:
    from fastapi import FastAPI

    from drsai_backend.api.auth import Identify
    from drsai_backend.api.http.middleware import Hosts
    from drsai_backend.database.text_keys import TextKeys
    from drsai_backend.features.all_runs.all_runs import AllRuns
    from drsai_backend.features.base import Extension
    from drsai_backend.features.extensions import E
    from drsai_backend.models import ModelProvider
    from drsai_backend.sync import SyncDrSai
    from drsai_backend.teams.context import TeamFactory
    from drsai_backend.teams.registry import TeamRegistry


@takes_old_forms
class DrSai(Caller):
    """Runs teams on stored threads. Use it as `async with DrSai(teams={...}) as drsai`.

    It is the `Caller` of the local user, `anonymous`; `drsai.user("ada")` is that of another one, with the same calls.

    Args:
        teams: team factories by name; default: the built-in `assistant` and `writers`. A factory builds a fresh team
            for every run: a callable, sync or async, of no argument or one `RunContext`, or an AutoGen component
            config. Or the file of them, as `drsai serve` takes it: `"team.yaml"`, `"team.py"`, a module.
        database_url: `sqlite:///file` or `postgresql://…`; default: the settings' (`DRSAI_DATABASE_URL`, else
            `sqlite:///drsai.db`).
        database: in place of a URL, one with a backend of its own, say; closed with this object.
        settings: default: read from the environment and `.env`.
        worker: False: it reads threads, and stops, pauses or resumes what other processes run; it runs nothing itself.
        by: what the audit log says of who acts: `By.CLI` for the package's command line.
        model_provider: makes the clients of `RunContext.model_client()`; default: the settings' endpoint, else the
            offline demo model.
        extensions: features of your own (docs/extensions.md); default: those that the settings name.

    Attributes:
        db: the `DatabaseManager`: rows of all tables, those of one's own included.
        keys: the API keys: made, listed, revoked.
        authenticator: tells whose a key or token is.
        audit: the audit log: who did what that others may ask about.
        usage: what model calls have used and cost, summed by whatever they belong to.
        budgets: how many tokens, and how much money, they may spend in a day and a month: listed, set, removed.
        limits: how many requests, tokens and runs a key, a user, a tenant and all may have: listed, set, removed.
        switches: what operators have switched off: teams, models, tools, tenants, all; listed, and switched on again.
        config: settings that are stored, and hold without a restart: changed, listed, rolled back.
        users: those to whom something belongs: listed, deleted.
        webhooks: what webhooks were told, and the secrets that sign it.
        files: what users keep, and tools for them: created, listed, read, deleted.
        mcp: the MCP servers that component configs and definitions may name, those of the settings' file among them
            (`drsai.mcp.servers.add(McpStdio(…))` is one more), and the connections to all.
        settings: what it was made with; `engine`, `models` and `database` are the parts that it is made of.

    Raises:
        ConfigurationError: settings, URL or teams that cannot be used.
        SchemaOutdated (on entering): a PostgreSQL schema that `drsai db upgrade` has not brought up to date.
        NotFound (all calls): a thread or a run that is unknown, or another user's.
    """

    def __init__(  # noqa: PLR0913 - what programs make it with
        self,
        teams: Mapping[str, TeamFactory] | TeamRegistry | str | Path | None = None,
        database_url: str | None = None,
        *,
        database: Database | None = None,
        settings: Settings | None = None,
        worker: bool = True,
        by: By = By.PROGRAM,
        model_provider: ModelProvider | None = None,
        extensions: Iterable[type[Extension]] | None = None,
    ) -> None:
        # A copy: stored settings change it.
        self.settings = settings = (settings or Settings()).model_copy()
        # What it is made of: half of the package, which whoever asks for the class alone does not wait for.
        from drsai_backend import jobs
        from drsai_backend.access.identity import Authenticator
        from drsai_backend.access.key_store import ApiKeys
        from drsai_backend.definitions.modes import add_modes
        from drsai_backend.features.audit.extension import Audit
        from drsai_backend.features.base import Host
        from drsai_backend.features.budgets.extension import Budgets
        from drsai_backend.features.config.extension import Config
        from drsai_backend.features.extensions import Extensions, kinds_of, means_of, schemas_of
        from drsai_backend.features.limits.extension import Limits
        from drsai_backend.features.switches.extension import Switches
        from drsai_backend.features.usage.extension import Usage
        from drsai_backend.features.users.users import Users
        from drsai_backend.models.factory import ModelClientFactory
        from drsai_backend.runs.engine import Engine
        from drsai_backend.state.store import JournalStateStore
        from drsai_backend.teams.builtin import builtin_teams
        from drsai_backend.teams.registry import TeamRegistry
        from drsai_backend.tools.builtin.table import builtin_tools
        from drsai_backend.tools.mcp.host import McpHost

        if gc.get_freeze_count() == 0:
            # All of it is as old as the process: else the garbage collector looks through it, for a tenth of a second,
            # as soon as a long thread is loaded.
            gc.freeze()
            gc.unfreeze()
        url, synchronous = database_url or settings.database_url, settings.sqlite_synchronous
        self.database = database or Database(url, sqlite_synchronous=synchronous, text_keys=_text_keys(settings))
        kinds = kinds_of(settings, extensions)
        self.db = DatabaseManager(
            database=self.database,
            secret_key=settings.secret_key,
            old_secret_keys=settings.secret_key_old,
            state_store=JournalStateStore(),
            schemas=schemas_of(kinds),
        )
        self.models = ModelClientFactory(settings, model_provider, self.database)
        host = Host(self.db, settings, by, embeddings=self.models.embeddings, models=self.models)
        self._extensions = made = Extensions(kinds, host)
        hooks, sources = made.hooks(), made.sources()
        self.keys = ApiKeys(self.database, hooks=hooks)
        self._tokens = None
        if worker and settings.jwt_issuer is not None:
            from drsai_backend.access.tokens import token_verifier  # Cryptography comes with it.

            self._tokens = token_verifier(settings)
        self.authenticator = Authenticator(self.keys, self._tokens, required=settings.auth == "required")
        self._worker = worker
        if not worker:
            teams = {}
        elif teams is None:
            can_call = self.models.create().model_info["function_calling"]
            if can_call:
                builtin_tools(settings.assistant_tools, settings)  # What is wrong with them is said now.
            teams = builtin_teams(tools=can_call)
        elif isinstance(teams, str | Path):
            from drsai_backend.definitions import load

            teams = load(str(teams), means_of(settings))
        if not isinstance(teams, TeamRegistry):
            teams = TeamRegistry(teams)
        if worker:
            add_modes(teams, settings)
        self.mcp = McpHost.of(settings)
        own = made.tools()
        engine = Engine(
            teams,
            self.db,
            self.models,
            settings,
            hooks=hooks,
            own_tools=own,
            sources=sources,
            watchers=made.watchers(),
            mcp=self.mcp,
            calls=host.calls,
            is_worker=worker,
        )
        host.on_settings.append(lambda _: engine.catalog.settings_changed())
        super().__init__(engine, Principal(by=by))
        self.audit = made.get(Audit)
        self.usage = made.get(Usage)
        self.budgets = made.get(Budgets)
        self.limits = made.get(Limits)
        self.switches = made.get(Switches)
        self.config = made.get(Config)
        self.users = Users(self.engine, self.keys, settings)
        self.webhooks = self.engine.webhooks
        self.files = self.engine.files
        self._jobs = None
        if worker:
            self._jobs = jobs.make_queue(
                self.database.url,
                self.engine,
                queue_url=settings.queue_url,
                concurrency=settings.job_concurrency,
                sweep_seconds=settings.sweep_seconds,
            )

    async def open(self) -> None:
        """Bring the schema up to date (SQLite) or check it (PostgreSQL), continue what dead processes left behind, and
        take part in the work of the others. Once only: an object that was closed, or could not be opened, stays closed.

        Raises:
            ConfigurationError: it is open already, or was closed; or an AutoGen component config cannot be built.
            SchemaOutdated, DatabaseUnavailable, DatabaseError: the database cannot be used.
        """
        self.engine.lifecycle.claim()
        try:
            await self.db.ensure_schema()
            # What operators have stored holds for the first run as well.
            await self._extensions.refresh()
            if not self._worker:
                self.engine.lifecycle.opened()
                return
            self.mcp.pool.hold()
            await self.engine.open()
            await self._extensions.open(self.engine)
            if self._jobs is not None:
                await self._jobs.open()
                self.engine.woken_by(self._jobs)
        except BaseException:
            await self.close()
            raise

    async def resume_apart(self, keys: Iterable[int]) -> None:
        """Resume, in place of `open`, in a process that `drsai` starts for runs that may kill it, those that are
        suspect, each run to its next turn boundary, and nothing else. Raises what `open` does."""
        self.engine.lifecycle.claim()
        try:
            await self.db.ensure_schema()
            await self._extensions.refresh()
            self.mcp.pool.hold()
            await self.engine.resume_apart(keys)
        finally:
            await self.close()

    @asynccontextmanager
    async def looked_at(self) -> AsyncGenerator[None]:
        """Open, in place of `open`, what a look at all needs that runs nothing and changes nothing: `drsai doctor`. The
        schema is to be as it should."""
        self.engine.lifecycle.claim()
        try:
            await self._extensions.refresh()
            self.mcp.pool.hold()
            self.engine.lifecycle.opened()
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        """Hand the runs under way over at their next turn boundary, so that the next process to open the database
        continues them, and close everything. In the event loop that opened it.

        Raises:
            NotOpened: in another event loop.
        """
        self.engine.lifecycle.check_loop()
        await self.drain()
        await self._extensions.close()
        self.engine.lifecycle.closed()
        if self._jobs is not None:
            await self._jobs.close()
        await self.mcp.close()
        await self.keys.close()
        if self._tokens is not None:
            await self._tokens.close()
        await self.models.close()
        await self.database.close()

    async def drain(self) -> None:
        """The first part of `close`: take nothing new, and hand the runs over. What is stored can still be read."""
        if self._jobs is not None:
            await self._jobs.drain()
        await self.engine.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncGenerator[None]:
        """Open and close this object with the application that mounts `drsai.app()`, as no server runs a mounted one's
        lifespan: `FastAPI(lifespan=drsai.lifespan)`. One with a lifespan of its own has `async with drsai:` in it."""
        async with self:
            yield

    def app(self, identify: Identify | None = None, *, hosts: Hosts | None = None, is_open: bool = False) -> FastAPI:
        """The FastAPI application that serves these teams. It opens and closes this object with its lifespan.

        Args:
            identify: tells who asks, sync or async, from the request: a `Principal`, or None for nobody (401). For an
                application with a login of its own; API keys and tokens are not looked at then. Default: those are.
            hosts: those that are served; default: the settings' `allowed_hosts`, and where there are none, all.
            is_open: this object is opened and closed by somebody else.

        Mounted (`outer.mount("/ai", drsai.app())`), it answers 503 `not_opened` until the outer application opens this
        object, with `lifespan`.
        """
        from drsai_backend.api.app import create_app
        from drsai_backend.api.auth import Access

        came, known, streams = self._extensions.on_requests()
        return create_app(
            self.engine,
            self.settings,
            Access(
                self.authenticator,
                identify,
                user_header=self.settings.user_header,
                came=came,
                known=known,
                streams=streams,
            ),
            self.keys,
            lifespan=None if is_open else self.lifespan,
            hosts=hosts,
            models=self.models,
            routers=self._extensions.routers,
            around=self._extensions.around(),
        )

    def extension(self, kind: type[E]) -> E:
        """The extension of a class, whose methods are its verbs: `await drsai.extension(Notes).add(…)`.

        Raises:
            ConfigurationError: there is none.
        """
        return self._extensions.get(kind)

    @cached_property
    def all_runs(self) -> AllRuns:
        """The runs of all users: searched, stopped, paused, resumed, retried."""
        from drsai_backend.features.all_runs.all_runs import AllRuns

        return AllRuns(self.engine)

    @cached_property
    def sync(self) -> SyncDrSai:
        """The same calls without asyncio: `with DrSai(...).sync as drsai: drsai.run(...)`."""
        from drsai_backend.sync import SyncDrSai

        return SyncDrSai(self)


def _text_keys(settings: Settings) -> TextKeys | None:
    if not settings.encryption_keys and settings.encryption_keys_file is None:
        return None
    from drsai_backend.database.text_keys import TextKeys  # Few need it.

    return TextKeys.of(settings.encryption_keys, settings.encryption_keys_file)
