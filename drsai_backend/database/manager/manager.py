"""The manager, `DatabaseManager`, reads and writes rows of every table, one call at a time, without silent
overwrites."""

from __future__ import annotations

# The synchronous manager is the other half of `DatabaseManager`, and uses what that keeps to itself.
# pyright: reportPrivateUsage=false
import asyncio
import copy
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self, TypeVar

import sqlalchemy as sa
from pydantic import SecretStr
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value
from sqlmodel import SQLModel

from drsai_backend.database import migrations, schemas
from drsai_backend.database.engine import DEFAULT_URL, Database
from drsai_backend.database.manager.filters import Filters, Order, conditions, ordering, page
from drsai_backend.database.manager.graph import GraphWriter, Outcome, observe_graph, refresh_graph
from drsai_backend.database.manager.model import model_info
from drsai_backend.database.manager.relations import delete_rows, load_options, refer_back, remember_relations
from drsai_backend.database.manager.rows import RowWriter, remember
from drsai_backend.database.manager.secrets import SecretBox
from drsai_backend.database.manager.threads import StateStore, ThreadIO, show
from drsai_backend.datamodel import (
    AgentJson,
    AuditEntry,
    JournalEntry,
    QueuedInput,
    Run,
    Thread,
    ThreadBranch,
    ThreadField,
    ThreadSnapshot,
    TurnStep,
    table_of,
)
from drsai_backend.datamodel.owner import DEFAULT_TENANT
from drsai_backend.errors import InvalidRequest

M = TypeVar("M", bound=SQLModel)

# Changed by hand, these would contradict each other and their thread; `Thread` has what is for programs.
_ENGINE_OWNED: Final = (JournalEntry, ThreadSnapshot, ThreadBranch, ThreadField, TurnStep, Run, QueuedInput)
_CREATE_LOCK: Final = "SELECT pg_advisory_xact_lock(7231983340129)"


class DatabaseManager:
    """Reads and writes rows of every SQLModel table, the user's own included.

    Rows that it returns belong to the caller: they are attached to no session. It remembers of each what it held when
    it was read, so that an upsert writes what changed and notices what others changed meanwhile.

    The first call brings an SQLite schema up to date; on PostgreSQL it only checks it.

    Args:
        url: `sqlite:///path`, `sqlite://` (in memory) or `postgresql://…`. Not used when `database` is given.
        secret_key: encrypts `UserInput.api_key`. Without one an SQLite database uses a random one in a file beside it
            (`<database>.key`), and PostgreSQL stores no keys.
        old_secret_keys: what was encrypted with one of these is read, too.
        database: an open database to work on; `close` then leaves it open.
        state_store: keeps `Thread.state`; without one it reads as None and cannot be written.
        schemas: tables of extensions, which are brought up to date, or checked, with those of this package.

    Raises:
        ConfigurationError: the URL cannot be used.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        secret_key: SecretStr | None = None,
        old_secret_keys: Sequence[SecretStr] = (),
        database: Database | None = None,
        state_store: StateStore | None = None,
        schemas: Sequence[schemas.Schema] = (),
    ) -> None:
        self._owns_database = database is None
        self.database: Database = Database(url) if database is None else database
        """The database below, for storage functions of one's own."""
        self.secrets: SecretBox = _secret_box(self.database, secret_key, old_secret_keys)
        """Encrypts and decrypts what `UserInput.api_key` holds in its row."""
        self._rows = RowWriter(self.database.dialect, self.secrets)
        self._threads = ThreadIO(self._rows, state_store)
        self._graphs = GraphWriter(self._rows, self._threads)
        self._schemas = schemas
        self._schema_ready = False
        self._schema_lock = threading.Lock()
        self.tenant = DEFAULT_TENANT
        """Whose rows filters mean that name a user and no tenant, and new rows are that name none."""
        self.sync = SyncDatabaseManager(self)
        """The same calls for scripts and synchronous tools. They block the calling thread."""

    def of_tenant(self, tenant: str) -> DatabaseManager:
        """The same manager for the rows of another tenant; agents get that of their run."""
        if tenant == self.tenant:
            return self
        other = copy.copy(self)
        other.tenant, other._owns_database = tenant, False
        other.sync = SyncDatabaseManager(other)
        return other

    async def ensure_schema(self) -> None:
        """Brings an SQLite schema up to date, checks that of PostgreSQL. Every first call does it as well.

        Raises:
            SchemaOutdated: the schema is not the one this version needs; the text names the command to run.
            ConfigurationError: texts are encrypted with a key that the database was not given.
        """
        if not self._schema_ready:
            await asyncio.to_thread(self.ensure_schema_sync)

    def ensure_schema_sync(self) -> None:
        """`ensure_schema`, blocking."""
        with self._schema_lock:
            if not self._schema_ready:
                migrations.ensure_schema(self.database, self._schemas)
                if migrations.key_ids(self.database) or self.database.text_keys is not None:
                    from drsai_backend.database.encryption import check_keys  # Few need it.

                    check_keys(self.database)
                self._schema_ready = True

    async def get(  # noqa: PLR0913 - a public query
        self,
        model: type[M],
        filters: Filters | None = None,
        order: Order | None = None,
        limit: int | None = None,
        offset: int | None = None,
        load_messages: bool = True,
        load_state: bool = True,
        load: Sequence[str] = (),
    ) -> list[M]:
        """The rows that match, by primary key unless ordered otherwise (messages: by `seq`).

        Args:
            filters: field → value, list of values, or operators (`eq ne gt ge lt le in not_in like`); all must hold.
                With `user_id` and no `tenant` they mean a user of this manager's `tenant`.
            order: a field, `"-field"` for descending, or a list of those.
            limit, offset: a page of the result.
            load_messages, load_state: for threads; False leaves `messages` empty or `state` None, and unwritten.
            load: relationships to read with the rows, as paths ("items", "items.tags"). One that was not loaded cannot
                be read afterwards: SQLAlchemy raises DetachedInstanceError.

        Raises:
            InvalidRequest: an unknown field or operator, or an unfit value; names the field.
            StateError: a state that cannot be read.
            DatabaseError: as `Database.read`.
        """
        fn = self._getting(model, filters, order, limit, offset, load_messages, load_state, load)
        await self.ensure_schema()
        return await self.database.read(fn)

    async def upsert(self, row: M) -> M:
        """Stores a row, and returns it as stored: the same object, brought up to date.

        Of a row that was read, the fields that changed are written; what others changed meanwhile stays. An object that
        was not read is inserted or, when its primary key or a unique constraint names a stored row, its fields that
        were set are written to that. `updated_at` is the manager's.

        With the row go those that its relationships hold, and theirs, as far as their `save-update` cascade leads: new
        ones are inserted, changed ones written, rows that were taken out lose their foreign key or are deleted
        (`delete-orphan`), all in one transaction and under the same rules. A relationship that the object does not hold
        stays as it is stored.

        Raises:
            Conflict: a field was changed by somebody else since it was read, or the row was deleted. Nothing was
                written. Of threads also `ThreadBusy`, `MessagesChanged` and `IllegalTransition`.
            InvalidRequest: a field holds what the database cannot hold, or may not be changed; names the field.
            NotFound: a message for a thread that does not exist.
            ConfigurationError: an api_key without a secret to encrypt it, a state without a state store.
            DatabaseError: as `Database.write`.
        """
        fn, finish = self._upserting(row)
        await self.ensure_schema()
        finish(await self.database.write(fn))
        return row

    async def try_write(self) -> None:
        """Write something that leaves nothing behind.

        Raises:
            DatabaseError: the database takes no writes: it cannot be reached, is locked, or its disk is full.
        """
        await self.database.write(_try_write)

    async def delete(self, model: type[SQLModel], filters: Filters) -> int:
        """Deletes the rows that match and returns how many. With a thread goes all that belongs to it, with a row of
        a user's table what its relationships cascade to.

        Raises:
            InvalidRequest: no filters (this never empties a table), or as `get`.
            ThreadBusy: a run is live on one of the threads. Nothing was deleted.
            Conflict: single messages, which states refer to: delete their thread. Or others need the rows, and their
                relationship does not say what becomes of those.
        """
        fn = self._deleting(model, filters)
        await self.ensure_schema()
        return await self.database.write(fn)

    async def create_table(self, model: type[SQLModel]) -> None:
        """Creates the table of a user's model, unless it exists. A later change of the model does not alter it.

        Raises:
            InvalidRequest: a table of this package, which the migrations make.
        """
        fn = self._creating(model)
        await self.ensure_schema()
        await self.database.write(fn)

    async def close(self) -> None:
        """Closes the database, unless it was given to the constructor."""
        if self._owns_database:
            await self.database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"DatabaseManager({self.database.url_safe!r})"

    def _getting(  # noqa: PLR0913 - as `get`
        self,
        model: type[M],
        filters: Filters | None,
        order: Order | None,
        limit: int | None,
        offset: int | None,
        load_messages: bool,
        load_state: bool,
        load: Sequence[str],
    ) -> Callable[[Session], list[M]]:
        info, dialect = model_info(model), self.database.dialect
        encrypts = self.database.text_keys is not None
        terms = conditions(info, filters, dialect, self.tenant, encrypts=encrypts)
        query = sa.select(model).where(*terms).order_by(*ordering(info, order, dialect, encrypts=encrypts))
        query = query.limit(page("limit", limit)).offset(page("offset", offset)).options(*load_options(model, load))

        def fn(session: Session) -> list[M]:
            rows = list(session.scalars(query).unique())
            self._present(session, load_messages, load_state)
            return rows

        return fn

    def _present(self, session: Session, messages: bool, state: bool) -> None:
        """Fills all rows that were just read with what their columns do not hold, and remembers them."""
        rows = [row for row in session if isinstance(row, SQLModel)]
        for row in rows:
            refer_back(row)
        for row in rows:
            info = model_info(type(row))
            for name, item in info.fields.items():
                if item.is_secret and (sealed := getattr(row, name)) is not None:
                    set_committed_value(row, name, self.secrets.decrypt(sealed))
            remember(row, info)
            remember_relations(row)
        threads = [row for row in rows if isinstance(row, Thread)]
        if threads:
            long = self._threads.load(session, threads, messages=messages, state=state)
            for thread, stored in zip(threads, long, strict=True):
                show(thread, stored)

    def _upserting(self, row: SQLModel) -> tuple[Callable[[Session], list[Outcome]], Callable[[list[Outcome]], None]]:
        """A storage function, and what to do with its result after the commit."""
        graph = observe_graph(row, self.tenant)
        for node in graph:
            _refuse_engine_owned(type(node.row))
        return lambda session: self._graphs.store(session, graph), lambda stored: refresh_graph(graph, stored)

    def _deleting(self, model: type[SQLModel], filters: Filters) -> Callable[[Session], int]:
        _refuse_engine_owned(model)
        info = model_info(model)
        encrypts = self.database.text_keys is not None
        terms = conditions(info, filters, self.database.dialect, self.tenant, encrypts=encrypts)
        if not terms:
            raise InvalidRequest("delete needs filters: without them it would empty the table", param="filters")
        return lambda session: delete_rows(session, info, terms)

    def _creating(self, model: type[SQLModel]) -> Callable[[Session], None]:
        info = model_info(model)
        if info.table.name in schemas.own_tables():
            raise InvalidRequest(f"{info.table.name} is made by the migrations", param="model")

        def fn(session: Session) -> None:
            if self.database.dialect == "postgresql":
                # Of two that find the table missing, one would fail.
                session.execute(sa.text(_CREATE_LOCK))
            info.table.create(session.connection(), checkfirst=True)

        return fn


class SyncDatabaseManager:
    """The calls of a `DatabaseManager` for scripts and synchronous tools, from any thread."""

    def __init__(self, manager: DatabaseManager) -> None:
        self._manager = manager

    def get(  # noqa: PLR0913 - as `DatabaseManager.get`
        self,
        model: type[M],
        filters: Filters | None = None,
        order: Order | None = None,
        limit: int | None = None,
        offset: int | None = None,
        load_messages: bool = True,
        load_state: bool = True,
        load: Sequence[str] = (),
    ) -> list[M]:
        """Do as `DatabaseManager.get`."""
        fn = self._manager._getting(model, filters, order, limit, offset, load_messages, load_state, load)
        self._manager.ensure_schema_sync()
        return self._manager.database.read_sync(fn)

    def upsert(self, row: M) -> M:
        """Do as `DatabaseManager.upsert`."""
        fn, finish = self._manager._upserting(row)
        self._manager.ensure_schema_sync()
        finish(self._manager.database.write_sync(fn))
        return row

    def delete(self, model: type[SQLModel], filters: Filters) -> int:
        """Do as `DatabaseManager.delete`."""
        fn = self._manager._deleting(model, filters)
        self._manager.ensure_schema_sync()
        return self._manager.database.write_sync(fn)

    def create_table(self, model: type[SQLModel]) -> None:
        """Do as `DatabaseManager.create_table`."""
        fn = self._manager._creating(model)
        self._manager.ensure_schema_sync()
        self._manager.database.write_sync(fn)

    def close(self) -> None:
        """Do as `DatabaseManager.close`, for scripts that ran no event loop."""
        if self._manager._owns_database:
            self._manager.database.close_sync()


def _secret_box(database: Database, secret_key: SecretStr | None, old: Sequence[SecretStr]) -> SecretBox:
    path = database.sqlite_path
    if path is None and secret_key is None and database.dialect == "sqlite":
        return SecretBox.random()
    return SecretBox(secret_key, old=old, key_file=None if path is None else Path(f"{path}.key"))


def _refuse_engine_owned(model: type[SQLModel]) -> None:
    if model is AuditEntry:
        raise InvalidRequest("AuditEntry is written by the acts that it tells of", param="model")
    if model in _ENGINE_OWNED:
        raise InvalidRequest(f"{model.__name__} is written by the engine: change its Thread instead", param="model")


def _try_write(session: Session) -> None:
    # Committed: what is rolled back never gets to the disk.
    table = table_of(AgentJson)
    key = session.execute(sa.insert(table).values(user_id="", component={}).returning(table.c.id)).scalar_one()
    session.execute(sa.delete(table).where(table.c.id == key))
