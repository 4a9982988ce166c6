"""How extensions join: what is wrong with one is said by its name, and what it brings is there."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
import sqlalchemy as sa
import typer
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from fastapi import APIRouter
from sqlmodel import SQLModel

from drsai_backend import DrSai, ToolOptions, builtin_tools
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import allowed
from drsai_backend.api.http.parameters import new_router
from drsai_backend.cli.app import app
from drsai_backend.database import Database, DatabaseManager, migrations
from drsai_backend.database.schemas import VERSION_TABLE
from drsai_backend.datamodel.owner import Owner
from drsai_backend.definitions import DefinitionError, DefinitionPolicy, load
from drsai_backend.errors import ConfigurationError, SchemaOutdated
from drsai_backend.features.base import Extension
from drsai_backend.features.builtin import NOUNS
from drsai_backend.features.extensions import kinds_of, means_of, schemas_of
from drsai_backend.work.kinds import JobOptions
from tests.examples.processes import ROOT
from tests.features.conftest import Extended
from tests.features.kinds import End, Ends, Plain
from tests.support.commands import Command, Commands, clean_environment
from tests.support.teams.crew import Crew
from tests.support.threads import settings

ANN = Owner("default", "ann")


class Named(Extension):
    name = "Notes!"


class Again(Extension):
    name = "plain"


class Tabled(Extension):
    name = "tabled"
    tables = (End,)


class Jobbed(Extension):
    name = "jobbed"
    jobs = {"others_job": JobOptions(handler="open")}


class Handless(Extension):
    name = "handless"
    jobs = {"handless": JobOptions(handler="do")}


class Tooled(Extension):
    name = "tooled"
    tools = {"calculator": ToolOptions()}


class Generating(Extension):
    name = "generating"
    tools = {"some": ToolOptions()}

    def some(self) -> Iterator[str]:
        """Give something."""
        yield "it"


class Hidden(Extension):
    name = "tools"
    commands = "tests.features.kinds:app"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([Hidden], "the extension tools: there are other commands `drsai tools`"),
        ([Named], "tests.features.test_joining.Named: an extension has a `name` of up to 31 lower-case letters"),
        ([Plain, Again], "there are two extensions of the name plain: tests.features.kinds.Plain and tests.features."),
        ([Plain, Plain], "there are two extensions of the name plain"),
        ([Tabled], "the extension tabled: its table ends_end must be called tabled or tabled_…"),
        ([Jobbed], "the extension jobbed: its kind of jobs others_job must be called jobbed or jobbed_…"),
        ([Handless], "the extension handless: it has no method do, for its jobs handless"),
        ([Tooled], "the extension tooled: there is another tool of the name calculator"),
        ([Generating], "some: partial results come from an async generator"),
        ([str], "<class 'str'> is no extension: name a class of drsai_backend.features.base.Extension"),
        (["plain"], "'plain' is no extension"),
    ],
)
def test_one_that_cannot_join_is_named(given: Any, text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        DrSai({"crew": Crew()}, "sqlite://", settings=settings(), extensions=given)
    assert raised.value.message.startswith(text)


@pytest.mark.parametrize(
    ("named", "text"),
    [
        (
            "tests.features.kinds",
            "DRSAI_EXTENSIONS: 'tests.features.kinds' names no extension: write `package.module:Class`",
        ),
        (
            "tests.features.kinds:Lost",
            "DRSAI_EXTENSIONS: tests.features.kinds has no Lost, which is to be an extension",
        ),
        ("tests.lost:Plain", "DRSAI_EXTENSIONS: tests.lost cannot be imported: ModuleNotFoundError"),
        ("tests.features.kinds:End", "<class 'tests.features.kinds.End'> is no extension"),
    ],
)
def test_what_settings_name(named: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        kinds_of(settings(extensions=[named]))
    assert raised.value.message.startswith(text)


def test_the_nouns_of_the_command_line_are_known() -> None:
    group = typer.main.get_group(app)
    assert {*group.list_commands(typer.Context(group))} == NOUNS


def test_settings_name_them_unless_the_program_does() -> None:
    named = settings(extensions=["tests.features.kinds:Plain", "tests.features.kinds:Ends"])
    assert [*kinds_of(named)][-2:] == [Plain, Ends]
    assert Plain not in kinds_of(named, [])


async def test_verbs_are_found_by_the_class(extended: Extended) -> None:
    class Better(Plain):
        pass

    drsai = await extended({"crew": Crew()}, Better)
    found: Plain = drsai.extension(Plain)
    assert type(found) is Better
    with pytest.raises(ConfigurationError, match=r"Ends is no extension of this DrSai, which has .*plain: see"):
        drsai.extension(Ends)


# --- open and close ---------------------------------------------------------------------------------------------------


def opening(named: str, log: list[str], *, fails: str = "") -> type[Extension]:
    class Opening(Extension):
        name = named

        async def open(self, engine: Any) -> None:
            log.append(f"open {named}")
            if fails == "open":
                raise ZeroDivisionError(named)

        async def close(self) -> None:
            log.append(f"close {named}")
            if fails == "close":
                raise ZeroDivisionError(named)

    return Opening


async def test_the_last_one_that_is_opened_is_closed_first(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    kinds = [opening("a", log), opening("b", log, fails="close"), opening("c", log)]
    with caplog.at_level(logging.ERROR, "drsai.extensions"):
        async with DrSai({"crew": Crew()}, "sqlite://", settings=settings(), extensions=kinds):
            assert log == ["open a", "open b", "open c"]
    assert log[3:] == ["close c", "close b", "close a"], "one that fails keeps no other from it"
    assert [record.getMessage() for record in caplog.records] == ["the extension b could not be closed"]


async def test_where_one_cannot_be_opened_those_before_it_are_closed() -> None:
    log: list[str] = []
    kinds = [opening("a", log), opening("b", log, fails="open"), opening("c", log)]
    with pytest.raises(ZeroDivisionError, match="b"):
        async with DrSai({"crew": Crew()}, "sqlite://", settings=settings(), extensions=kinds):
            raise AssertionError
    assert log == ["open a", "open b", "close a"]


async def test_a_process_that_runs_nothing_opens_none() -> None:
    log: list[str] = []
    async with DrSai(database_url="sqlite://", settings=settings(), worker=False, extensions=[opening("a", log)]):
        pass
    assert log == []


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
    else:
        yield request.getfixturevalue("empty_postgres")


def tables(url: str) -> set[str]:
    with migrations.connecting(url) as connection:
        return set(sa.inspect(connection).get_table_names())


def test_tables_are_made_and_dropped_with_a_version_of_their_own(empty_url: str) -> None:
    from notes import Notes

    schemas = schemas_of([Ends, Notes, Plain])
    migrations.upgrade(empty_url, extensions=schemas)
    own = {"ends_end", "notes", "notes_ended_runs", "drsai_alembic_version_ends", "drsai_alembic_version_notes"}
    assert own <= tables(empty_url)
    assert [migrations.current(empty_url, each) for each in schemas] == ["0001", "0001"]
    assert migrations.current(empty_url) == migrations.head(), "the core's is another one"
    migrations.upgrade(empty_url, extensions=schemas)
    migrations.check_schema(empty_url, schemas)
    migrations.downgrade(empty_url, "base", schemas)
    assert tables(empty_url) == {VERSION_TABLE, *(each.version_table for each in schemas)}


def test_migrations_make_what_the_models_say(database_url: str) -> None:
    from notes import Notes

    [schema] = schemas_of([Notes])
    migrations.upgrade(database_url, extensions=[schema])
    with migrations.connecting(database_url) as connection:
        options = {"include_name": lambda name, kind, _: kind != "table" or name in schema.tables, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        found = compare_metadata(context, SQLModel.metadata)
    assert [each for each in found if "notes" in str(each)] == []


def test_a_database_that_is_behind(database_url: str) -> None:
    schemas = schemas_of([Ends])
    text = "the database has no tables of the extension ends, this version needs 0001: run `drsai db upgrade`"
    with pytest.raises(SchemaOutdated) as raised:
        migrations.check_schema(database_url, schemas)
    assert raised.value.message == text
    if database_url.startswith("sqlite"):
        migrations.ensure_schema(database_url, schemas)
        migrations.check_schema(database_url, schemas)
    else:
        with pytest.raises(SchemaOutdated):
            migrations.ensure_schema(database_url, schemas)


def _moved(url: str, schema: migrations.Schema, revision: str) -> None:
    with migrations.connecting(url) as connection:
        connection.execute(sa.text(f"UPDATE {schema.version_table} SET version_num = '{revision}'"))


def test_a_database_that_is_ahead(database_url: str) -> None:
    """As it is with the core's: an additive migration says in its name whom it serves."""
    [schema] = schemas_of([Ends])
    migrations.upgrade(database_url, extensions=[schema])
    _moved(database_url, schema, "0002_from_0001")
    for call in (migrations.check_schema, migrations.ensure_schema):
        call(database_url, [schema])
    migrations.upgrade(database_url, extensions=[schema])
    _moved(database_url, schema, "0002")
    text = "the tables of the extension ends were made by a later version of it: upgrade the extension"
    for act in (
        lambda: migrations.check_schema(database_url, [schema]),
        lambda: migrations.upgrade(database_url, extensions=[schema]),
    ):
        with pytest.raises(SchemaOutdated) as raised:
            act()
        assert raised.value.message == text


async def test_a_table_that_is_somebody_elses_is_left_alone(database_url: str) -> None:
    async with DatabaseManager(database_url) as db:
        await db.create_table(End)
    with pytest.raises(ConfigurationError, match="the database has a table ends_end already, which the migrations of"):
        migrations.upgrade(database_url, extensions=schemas_of([Ends]))


def test_a_table_that_another_process_makes_meanwhile_is_nobody_elses(
    commands: Commands, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schemas, look, others = schemas_of([Ends]), migrations._revision_of, list[Command]()
    imports = "from drsai_backend.database import migrations as m; from drsai_backend.features.extensions import *; "
    imports += "from tests.features.kinds import Ends; "
    script = f"{imports}m.upgrade({database_url!r}, extensions=schemas_of([Ends]))"

    def slow(connection: sa.Connection, schema: migrations.Schema) -> str | None:
        found = look(connection, schema)
        if schema in schemas and not others:
            others.append(commands.program("-c", script, cwd=ROOT, env=clean_environment()))
            with suppress(TimeoutError):
                others[0].wait(5)
        return found

    monkeypatch.setattr(migrations, "_revision_of", slow)
    migrations.upgrade(database_url, extensions=schemas)
    assert others[0].wait(60) == 0, others[0].stderr
    assert migrations.current(database_url, schemas[0]) == "0001"


def test_migrations_end_in_one_revision(database_url: str, tmp_path: Path) -> None:
    [schema] = schemas_of([Ends])
    folder = tmp_path / "100% mine"
    folder.mkdir()
    first = schema.folder and schema.folder / "0001_ends.py"
    for count, said in ((0, "none"), (2, "0001, 0002")):
        for number in range(1, count + 1):
            text = Path(str(first)).read_text().replace('revision = "0001"', f'revision = "000{number}"')
            (folder / f"{number}.py").write_text(text)
        other = migrations.Schema("ends", folder, schema.tables)
        with pytest.raises(ConfigurationError) as raised:
            migrations.upgrade(database_url, extensions=[other])
        text = f"the migrations of the extension ends must end in one revision; they end in {said}"
        assert raised.value.message == text
    (folder / "2.py").unlink()
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    migrations.upgrade(database_url, extensions=[migrations.Schema("ends", folder, schema.tables)])
    assert "ends_end" in tables(database_url)


async def test_a_database_in_memory() -> None:
    from notes import Notes

    async with DrSai({"crew": Crew()}, "sqlite://", settings=settings(), extensions=[Notes]) as drsai:
        assert (await drsai.extension(Notes).add(ANN, "x")).id == 1
        await drsai.user("ann").run("crew", "x")
        assert await drsai.extension(Notes).ended_runs(ANN) == 1


async def test_a_database_of_ones_own(database_url: str) -> None:
    from notes import Notes

    migrations.upgrade(database_url, extensions=schemas_of([Notes]))
    drsai = DrSai({"crew": Crew()}, database=Database(database_url), settings=settings(), extensions=[Notes])
    async with drsai:
        assert (await drsai.extension(Notes).add(ANN, "x")).text == "x"


# --- tools ------------------------------------------------------------------------------------------------------------


async def test_tools_are_found_by_name_while_a_team_is_built(extended: Extended) -> None:
    from notes import Notes

    built: list[str] = []

    def crew() -> Any:
        built.extend(each.name for each in builtin_tools(["note_down", "calculator", "read_notes"]))
        with pytest.raises(ConfigurationError, match="there is no built-in tool 'note_dwn'; did you mean 'note_down'"):
            builtin_tools(["note_dwn"])
        with pytest.raises(ConfigurationError, match="note_down: it has no options"):
            builtin_tools(["note_down"], note_down={"deadline": 1})
        return Crew()()

    drsai = await extended({"crew": crew}, Notes)
    await drsai.run("crew", "x")
    assert built == ["note_down", "calculator", "read_notes"]
    with pytest.raises(ConfigurationError, match="there is no built-in tool 'note_down'"):
        builtin_tools(["note_down"])


async def test_a_definition_names_a_tool_of_an_extension(extended: Extended, tmp_path: Path) -> None:
    from notes import Notes

    file = tmp_path / "team.yaml"
    file.write_text("agents:\n  secretary:\n    prompt: Be brief.\n    tools: [{builtin: read_notes}]\n")
    with pytest.raises(DefinitionError, match="read_notes"):
        load(str(file), DefinitionPolicy())
    means = means_of(settings(extensions=["notes:Notes"]))
    drsai = await extended(load(str(file), means), Notes)
    await drsai.extension(Notes).add(Owner("default", "anonymous"), "The tide turns at noon.")
    assert "The tide turns at noon." in (await drsai.run("secretary", "Please read my notes")).text


# --- routes -----------------------------------------------------------------------------------------------------------


def routed(make: Callable[[], APIRouter]) -> type[Extension]:
    class Routed(Extension):
        name = "routed"

        def routes(self, web: Any) -> APIRouter:
            return make()

    return Routed


def open_door() -> APIRouter:
    router = new_router("/v1/door", tags=["door"])

    @router.get("")
    async def enter() -> str:
        return "in"

    return router


def foreign() -> APIRouter:
    router = APIRouter(prefix="/v1/door")

    @router.get("")
    async def enter(who: Annotated[Principal, allowed(Scope.ADMIN)]) -> str:
        return "in"

    return router


def taken() -> APIRouter:
    router = new_router("/v1/threads", tags=["door"])

    @router.get("")
    async def enter(who: Annotated[Principal, allowed(Scope.ADMIN)]) -> str:
        return "in"

    return router


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (open_door, "the route /v1/door declares no scope: `allowed(Scope.…)`, or `open_to_all`"),
        (foreign, "make the router of /v1/door with `new_router`"),
        (taken, "there is another route GET /v1/threads"),
    ],
)
def test_a_route_that_cannot_join_is_named(make: Any, text: str) -> None:
    drsai = DrSai({"crew": Crew()}, "sqlite://", settings=settings(), extensions=[routed(make)])
    with pytest.raises(ConfigurationError) as raised:
        drsai.app()
    assert raised.value.message == f"the extension routed: {text}"


async def test_routes_ask_who_asks_and_what_they_may(extended: Extended) -> None:
    from notes import Notes

    drsai = await extended({"crew": Crew()}, Notes)
    keys = {
        (user, scope): (await drsai.keys.create(Owner("default", user), [scope])).key.get_secret_value()
        for user in ("ann", "bob")
        for scope in ("user", "viewer")
    }
    transport = httpx.ASGITransport(app=drsai.app(is_open=True))

    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:

        async def ask(method: str, path: str, key: tuple[str, str] | None, **options: Any) -> httpx.Response:
            headers = {} if key is None else {"authorization": f"Bearer {keys[key]}"}
            return await http.request(method, f"/v1/notes{path}", headers=headers, **options)

        assert (await ask("GET", "", None)).status_code == 401
        assert (await ask("POST", "", ("ann", "user"), json={"text": "mine"})).json() == {
            "id": 1,
            "object": "note",
            "text": "mine",
        }
        refused = await ask("POST", "", ("ann", "viewer"), json={"text": "x"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_scope")
        assert (await ask("POST", "", ("ann", "user"), json={"txt": "x"})).status_code == 400
        assert (await ask("GET", "?limit=3", ("ann", "user"))).status_code == 400, "no such parameter"
        texts = [each["text"] for each in (await ask("GET", "", ("ann", "viewer"))).json()["data"]]
        assert texts == ["mine"]
        assert (await ask("GET", "", ("bob", "user"))).json()["data"] == []
        assert (await ask("DELETE", "/1", ("bob", "user"))).status_code == 404
        assert (await ask("DELETE", "/1", ("ann", "user"))).json()["deleted"] is True
