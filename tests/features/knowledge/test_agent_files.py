"""`files` of a definition: documents that one agent looks up are kept in a store as they are in folders and at URLs."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import openai
import pytest
import sqlalchemy as sa
from autogen_agentchat.agents import AssistantAgent

from drsai_backend import DrSai, DrSaiKnowledge, RunContext
from drsai_backend.database.documents import OF_ALL
from drsai_backend.datamodel import KnowledgeFile, KnowledgeStore, SearchEntry, StoredFile, table_of
from drsai_backend.datamodel.citations import DATA, passages_in
from drsai_backend.datamodel.knowledge import AgentStore
from drsai_backend.datamodel.owner import Owner
from drsai_backend.definitions import load
from drsai_backend.definitions.policy import NOTHING_ALLOWED
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.features.knowledge import keeping
from drsai_backend.features.knowledge.base import PATH, NewFile, NewStore, Question
from drsai_backend.features.knowledge.extension import Knowledge
from drsai_backend.features.knowledge.keeping import files_of
from drsai_backend.work.kinds import Job
from tests.api.conftest import openai_client
from tests.features.knowledge.conftest import QUICK, until, upload
from tests.support.model_server import ModelServer, Reply, ToolCall
from tests.support.threads import settings

LEAVE = "# Leave\n\nEverybody has thirty days of paid leave a year.\n"
FLIGHTS = "# Flights\n\nThe treasurer approves flights.\n"
PAGE = "<!doctype html><html><body><h1>Parking</h1><p>Cars are parked behind the house.</p></body></html>"
ANN = Owner("default", "anonymous")


class Site:
    """Pages by their paths; None: it never answers."""

    def __init__(self) -> None:
        self.pages: dict[str, str | int | None] = {"/parking": PAGE}
        self.asked: list[str] = []
        self.closing = threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                page = site.pages.get(self.path, 404)
                if page is None:
                    site.closing.wait()
                    return
                body = b"" if isinstance(page, int) else page.encode()
                self.send_response(page if isinstance(page, int) else 200)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{path}"

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policies" / "old").mkdir(parents=True)
    (tmp_path / "policies" / "leave.md").write_text(LEAVE)
    (tmp_path / "policies" / "old" / "flights.md").write_text(FLIGHTS)
    return tmp_path


class World:
    """Servers of one database, with a definition of the agent `ann`."""

    def __init__(self, stack: AsyncExitStack, url: str, folder: Path, model: ModelServer) -> None:
        self._stack, self._url, self._folder, self._model = stack, url, folder, model

    def write(self, *files: str, **knowledge: Any) -> Path:
        """The file of a definition with these files."""
        file = self._folder / "team.yaml"
        given = {"files": [*files], "chunk_size": 100, "chunk_overlap": 0, **knowledge}
        file.write_text(json.dumps({"agents": {"ann": {"prompt": "You are ann.", "knowledge": given}}}))
        return file

    def make(self, teams: Any = None) -> DrSai:
        given = settings(
            **QUICK, OPENAI_BASE_URL=self._model.base_url, OPENAI_API_KEY="k", allowed_addresses=["127.0.0.1/32"]
        )
        return DrSai(teams or str(self._folder / "team.yaml"), self._url, settings=given)

    async def start(self, teams: Any = None) -> DrSai:
        """A server that has kept its files, and reads them."""
        drsai = await self._stack.enter_async_context(self.make(teams))
        await kept(drsai)
        return drsai


async def kept(drsai: DrSai) -> None:
    """Wait until the files are in their store, and read."""
    knowledge = drsai.extension(Knowledge)
    if knowledge._keeping is not None:
        await asyncio.wait([knowledge._keeping])

    async def is_read() -> bool:
        return all(each[1] != "in_progress" for each in await files_in(drsai))

    await until(is_read)


async def files_in(drsai: DrSai, name: str = "ann") -> list[tuple[str, str, int, str]]:
    """Path, status, key and id of the files of an agent's store, by path. There is one such store at most."""
    store, file = table_of(KnowledgeStore), table_of(KnowledgeFile)
    mine = (store.c.tenant == "", store.c.user_id == "", store.c.name == name)
    query = sa.select(file).join(store, store.c.id == file.c.store_key).where(*mine)

    def read(session: Any) -> list[tuple[str, str, int, str]]:
        assert session.execute(sa.select(sa.func.count()).select_from(store).where(*mine)).scalar_one() <= 1
        rows = session.execute(query).mappings().all()
        return sorted((row["attributes"][PATH], row["status"], row["id"], row["file_id"]) for row in rows)

    return await drsai.database.read(read)


async def paths_in(drsai: DrSai) -> list[str]:
    return [path for path, status, _, _ in await files_in(drsai) if status == "completed"]


async def all_ids(drsai: DrSai) -> set[str]:
    """The files that are kept in nobody's name, but for those that go within an hour."""
    c = table_of(StoredFile).c
    query = sa.select(c.file_id).where(c.tenant == "", c.user_id == "", c.expires_at.is_(None))
    return {*await drsai.database.read(lambda session: session.execute(query).scalars().all())}


@pytest.fixture
async def world(database_url: str, folder: Path, model: ModelServer) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(stack, database_url, folder, model)


@pytest.mark.parametrize("mode", ["tool", "context"])
async def test_an_agent_looks_up_the_files_of_its_definition(
    world: World, model: ModelServer, site: Site, mode: str
) -> None:
    world.write("policies", "policies/old/*.md", site.url("/parking"), mode=mode)
    drsai = await world.start()
    assert await paths_in(drsai) == [site.url("/parking"), "policies/leave.md", "policies/old/flights.md"]
    for question, found in (("thirty days of leave", "thirty days"), ("parked cars", "behind the house")):
        call = Reply(tool_calls=[ToolCall("knowledge_search", {"query": question, "top_k": 1})])
        model.script(None, [call, "So."] if mode == "tool" else ["So."])
        async with openai_client(drsai.app(is_open=True)) as client:
            answer = await client.chat.completions.create(
                model="ann", messages=[{"role": "user", "content": question}], user="bob"
            )
        [told] = [text for each in model.requests[-1].messages if DATA in (text := str(each["content"]))]
        assert found in next(iter(passages_in(told)))["text"]
        [cited, *_] = [each.model_dump() for each in answer.choices[0].message.annotations or ()]
        assert cited["file_id"] in {each[3] for each in await files_in(drsai)}


async def test_only_what_has_changed_is_read_again(
    world: World, site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    async def ingest(self: Knowledge, job: Job) -> None:
        read.append(int(job.payload["file"]))
        await self._ingestion.ingest(job)

    monkeypatch.setattr(Knowledge, "ingest", ingest)
    long = "\n\n".join(f"# Part {number}\n\n" + f"Word{number} is here. " * 40 for number in range(6))
    (folder / "policies" / "long.md").write_text(long)
    world.write("policies", site.url("/parking"))
    drsai = await world.start()
    before = {path: (key, file) for path, _, key, file in await files_in(drsai)}
    numbers = await _numbers(drsai)
    assert sorted(read) == sorted(key for key, _ in before.values())
    read.clear()
    again = await world.start()
    assert {path: (key, file) for path, _, key, file in await files_in(again)} == before
    assert read == []

    (folder / "policies" / "long.md").write_text(long.replace("Word3", "Other3"))
    (folder / "policies" / "leave.md").unlink()
    (folder / "policies" / "new.md").write_text("Something new.")
    site.pages["/parking"] = PAGE.replace("behind", "before")
    third = await world.start()
    after = {path: (key, file) for path, _, key, file in await files_in(third)}
    assert after.keys() == {*before, "policies/new.md"} - {"policies/leave.md"}
    assert after["policies/old/flights.md"] == before["policies/old/flights.md"]
    for path in ("policies/long.md", site.url("/parking")):
        assert (after[path][0], after[path][1] != before[path][1]) == (before[path][0], True)
    assert {*read} == {after[path][0] for path in ("policies/long.md", site.url("/parking"), "policies/new.md")}
    now = await _numbers(third)
    kept = {text for text in numbers if "Word" in text and "Word3" not in text}
    assert len(kept) >= 5
    assert {text: now[text] for text in kept} == {text: numbers[text] for text in kept}, "chunks that stay are kept"
    assert await all_ids(third) == {file for _, file in after.values()}

    # Less is named, and cut otherwise.
    world.write("policies/new.md", chunk_size=200)
    read.clear()
    last = await world.start()
    assert await paths_in(last) == ["policies/new.md"]
    assert read == [after["policies/new.md"][0]]
    assert await all_ids(last) == {after["policies/new.md"][1]}


async def _numbers(drsai: DrSai) -> dict[str, int]:
    table = table_of(SearchEntry)
    query = sa.select(table.c.text, table.c.number)
    return await drsai.database.read(lambda session: {row.text: row.number for row in session.execute(query)})


async def test_what_is_missing_here_is_told_and_not_removed(
    world: World, site: Site, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world.write("policies", "more/*.md", site.url("/parking"))
    (folder / "more").mkdir()
    (folder / "more" / "desks.md").write_text("# Desks\n\nDesks are shared.")
    before = await files_in(await world.start())
    assert len(before) == 4
    # Another machine: it lacks a folder, has another text and one file less, and the site is down.
    (folder / "more" / "desks.md").unlink()
    (folder / "policies" / "leave.md").write_text(LEAVE.replace("thirty", "forty"))
    (folder / "policies" / "old" / "flights.md").unlink()
    site.pages["/parking"] = 503
    with caplog.at_level(logging.WARNING, "drsai.knowledge"):
        drsai = await world.start()
    told = [each.getMessage() for each in caplog.records]
    assert any("agent ann: more/*.md is not in its store as it is now: more/*.md names no file here" in t for t in told)
    assert any("/parking" in each and "it answered with 503" in each for each in told)
    assert [each[0] for each in await files_in(drsai)] == [each[0] for each in before]
    found = await drsai.extension(Knowledge).search(ANN, [AgentStore("ann")], Question(queries=["days of leave"]))
    assert "forty days" in found.passages[0].text


async def test_servers_that_start_at_once_put_nothing_there_twice(world: World, site: Site, folder: Path) -> None:
    for number in range(20):
        (folder / "policies" / f"{number}.md").write_text(f"Text {number}.")
    world.write("policies", site.url("/parking"))
    servers = await asyncio.gather(*(world.start() for _ in range(3)))
    files = await files_in(servers[0])
    assert len(files) == len({path for path, *_ in files}) == 23
    assert {status for _, status, *_ in files} == {"completed"}
    assert await all_ids(servers[0]) == {file for *_, file in files}
    # Versions of a file that come at once, of two machines: one of them is there.
    for turn in range(3):
        path = folder / "policies" / "0.md"
        knowledge = [each.extension(Knowledge) for each in servers]
        store = await knowledge[0].ensure(OF_ALL, NewStore(name="ann"))
        keepers = [
            keeping.Keeper(knowledge=each, files=drsai.files, owner=OF_ALL, store_id=store.store_id)
            for each, drsai in zip(knowledge, servers, strict=True)
        ]
        versions = [folder / f"{turn}-{number}" for number in range(len(keepers))]
        for number, version in enumerate(versions):
            version.write_text(f"Version {turn} {number}.")
        put = (each.put_file("policies/0.md", version) for each, version in zip(keepers, versions, strict=True))
        await asyncio.gather(*put)
        await until(lambda: _is_read(servers[0]))
        assert len(await files_in(servers[0])) == 23, path
        assert len(await all_ids(servers[0])) == 23


async def test_a_version_that_another_process_puts_back_is_not_deleted(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("policies/leave.md")
    servers = [await world.start() for _ in range(2)]
    knowledge = [each.extension(Knowledge) for each in servers]
    store = await knowledge[0].ensure(OF_ALL, NewStore(name="ann"))
    new, old = (
        keeping.Keeper(knowledge=each, files=drsai.files, owner=OF_ALL, store_id=store.store_id)
        for each, drsai in zip(knowledge, servers, strict=True)
    )
    (folder / "new.md").write_text(LEAVE.replace("thirty", "forty"))
    put = knowledge[0].put

    async def put_and_wait(*given: Any) -> tuple[bool, str | None]:
        done = await put(*given)
        await old.put_file("policies/leave.md", folder / "policies" / "leave.md")
        return done

    monkeypatch.setattr(knowledge[0], "put", put_and_wait)
    await new.put_file("policies/leave.md", folder / "new.md")
    await until(lambda: _is_read(servers[0]))
    [(path, _, _, file)] = await files_in(servers[0])
    assert path == "policies/leave.md"
    assert await all_ids(servers[0]) == {file}
    found = await knowledge[0].search(ANN, [AgentStore("ann")], Question(queries=["days of leave"]))
    assert "thirty days" in found.passages[0].text


async def _is_read(drsai: DrSai) -> bool:
    return all(status == "completed" for _, status, *_ in await files_in(drsai))


async def test_a_url_that_hangs_holds_nothing_up(
    world: World, model: ModelServer, site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site.pages["/slow"] = None
    world.write(site.url("/slow"), "policies", site.url("/parking"), mode="context")
    model.script(None, ["So."])
    async with world.make() as drsai:  # It answers, and is closed, while it waits.
        await until(lambda: _has_asked(site, "/slow"))
        await drsai.run("ann", "How many days of leave?")
        assert [path for path, *_ in await files_in(drsai)] == ["policies/leave.md", "policies/old/flights.md"]
    monkeypatch.setattr(keeping, "_PATIENCE", 3.0)
    with caplog.at_level(logging.WARNING, "drsai.knowledge"):
        drsai = await world.start()
    assert "it gave no answer within 3 seconds" in caplog.text
    assert site.url("/parking") in await paths_in(drsai)


async def _has_asked(site: Site, path: str) -> bool:
    return path in site.asked


async def test_nobody_else_finds_the_store(world: World, model: ModelServer) -> None:
    teams = load(str(world.write("policies")), NOTHING_ALLOWED)
    loose = {"prompt": "You are bob.", "tools": ["knowledge_search"]}
    drsai = await world.start(teams)
    [(_, _, _, file), *_] = await files_in(drsai)
    knowledge = drsai.extension(Knowledge)
    store = (await knowledge.ensure(OF_ALL, NewStore(name="ann"))).store_id
    # By its name or id, from a request or a model.
    for name in ("ann", store):
        with pytest.raises(NotFound):
            await knowledge.search(ANN, [name], Question(queries=["leave"]))
    async with openai_client(drsai.app(is_open=True), max_retries=0) as client:
        await _is_not_theirs(client, store, file)
        await drsai.user("anonymous").agents.put("bob", {"agents": {"bob": loose}})
        for name in ("ann", store):
            call = Reply(tool_calls=[ToolCall("knowledge_search", {"query": "leave", "stores": [name]})])
            model.script("You are bob.", [call, "So."])
            await client.chat.completions.create(model="bob", messages=[{"role": "user", "content": "leave?"}])
            [told] = [str(each["content"]) for each in model.requests[-1].messages if each["role"] == "tool"]
            assert "there is no vector store" in told
        # A user's store of the same name is another one, and the agent's tool takes none of the model.
        mine = await client.vector_stores.create(name="ann")
        other = await upload(client, "mine.md", "Leave is what I say.")
        await client.vector_stores.files.create_and_poll(other, vector_store_id=mine.id, poll_interval_ms=20)
        found = await knowledge.search(ANN, ["ann"], Question(queries=["leave"]))
        assert [each.filename for each in found.passages] == ["mine.md"]
        call = Reply(tool_calls=[ToolCall("knowledge_search", {"query": "leave", "stores": [mine.id]})])
        model.script("You are ann.", [call, "So."])
        await client.chat.completions.create(model="ann", messages=[{"role": "user", "content": "leave?"}])
        [told] = [str(each["content"]) for each in model.requests[-1].messages if each["role"] == "tool"]
        assert "Leave is what I say" not in told
    assert "stores" not in model.requests[-1].body["tools"][0]["function"]["parameters"]["properties"]


async def _is_not_theirs(client: openai.AsyncOpenAI, store: str, file: str) -> None:
    assert [each async for each in client.vector_stores.list()] == []
    assert [each async for each in client.files.list()] == []
    tools: Any = [{"type": "file_search", "vector_store_ids": [store]}]
    for refused in (
        client.vector_stores.retrieve(store),
        client.vector_stores.search(store, query="leave"),
        client.vector_stores.update(store, name="mine"),
        client.vector_stores.delete(store),
        client.vector_stores.files.list(store),
        client.vector_stores.files.retrieve(file, vector_store_id=store),
        client.vector_stores.files.content(file, vector_store_id=store),
        client.vector_stores.files.delete(file, vector_store_id=store),
        client.files.retrieve(file),
        client.files.content(file),
        client.files.delete(file),
        client.responses.create(model="ann", input="leave?", tools=tools),
    ):
        with pytest.raises(openai.NotFoundError):
            await refused


async def test_agents_beside_stores_and_in_teams_have_files_of_their_own(
    world: World, model: ModelServer, folder: Path
) -> None:
    agents = {
        name: {"prompt": f"You are {name}.", "knowledge": {"files": [path], "stores": stores, "mode": "context"}}
        for name, path, stores in (("ann", "policies/leave.md", ["handbook"]), ("bob", "policies/old", []))
    }
    team = {"kind": "round_robin", "participants": ["ann", "bob"], "max_turns": 2}
    file = folder / "team.yaml"
    file.write_text(json.dumps({"agents": agents, "teams": {"crew": team}}))
    drsai = await world.start()
    names = ("crew/ann", "crew/bob")
    assert [[path for path, *_ in await files_in(drsai, name)] for name in names] == [
        ["policies/leave.md"],
        ["policies/old/flights.md"],
    ]
    model.script(None, ["So."] * 4)
    await drsai.run("crew", "leave or flights?")
    assert "there is no vector store 'handbook'" in model.requests[0].last
    knowledge = drsai.extension(Knowledge)
    files = drsai.files
    desks = await files.create(ANN, "desks.md", b"Desks and leave are shared.")
    made = await knowledge.create(ANN, NewStore(name="handbook"), [NewFile(file_id=desks.file_id)])

    async def is_read() -> bool:
        return (await knowledge.get(ANN, made.store_id)).status == "completed"

    await until(is_read)
    await drsai.run("crew", "leave or flights?")
    told = [str(each["content"]) for request in model.requests[2:] for each in request.messages]
    shown = [{each["filename"] for each in passages_in(text)} for text in told if DATA in text]
    assert shown == [{"leave.md", "desks.md"}, {"flights.md"}]


async def test_files_that_are_not_there_yet_are_no_error(database_url: str) -> None:
    async with DrSai({}, database_url, settings=settings(**QUICK)) as drsai:
        found = await drsai.extension(Knowledge).search(ANN, [AgentStore("ann")], Question(queries=["leave"]))
    assert found.passages == []
    assert "The files of the agent are not there yet, so they were not searched." in found.notes


async def test_a_stock_agent_has_them_as_its_memory(world: World, model: ModelServer) -> None:
    def stock(context: RunContext) -> AssistantAgent:
        return AssistantAgent("stock", context.model_client(), memory=[DrSaiKnowledge([], agent="ann")])

    drsai = await world.start({**load(str(world.write("policies")), NOTHING_ALLOWED), "stock": stock})
    model.script(None, ["So."])
    await drsai.run("stock", "How many days of leave?")
    assert "thirty days" in str(model.requests[-1].messages)
    memory = DrSaiKnowledge([], agent="ann", of=(drsai.extension(Knowledge), ANN))
    assert "thirty days" in str((await memory.query("days of leave")).results[0].content)
    with pytest.raises(ValueError, match="at least 1"):
        DrSaiKnowledge([], of=(drsai.extension(Knowledge), ANN))


@pytest.mark.parametrize(
    ("text", "whole", "names"),
    [
        ("policies", True, ["policies/leave.md", "policies/old/flights.md"]),
        ("policies/", False, ["leave.md", "old/flights.md"]),
        ("./policies/leave.md", True, ["policies/leave.md"]),
        ("policies/leave.md", False, ["leave.md"]),
        ("**/*.md", True, ["policies/leave.md", "policies/old/flights.md"]),
    ],
)
def test_files_of_a_path_have_names(folder: Path, text: str, whole: bool, names: list[str]) -> None:
    (folder / "policies" / ".hidden").write_text("Nobody reads this.")
    found: Callable[[], dict[str, Path]] = lambda: files_of(text, folder, whole=whole)  # noqa: E731
    assert [*found()] == names
    assert all(path.read_text() in (LEAVE, FLIGHTS) for path in found().values())


def test_a_path_that_means_nothing_is_refused(folder: Path) -> None:
    for text in ("nowhere", "policies/*.pdf", "policies/old/flights.md/x"):
        with pytest.raises(InvalidRequest, match="names no file here"):
            files_of(text, folder)
    long = "/".join(["x" * 200] * 3)
    (folder / "long" / long).parent.mkdir(parents=True)
    (folder / "long" / long).write_text("x")
    with pytest.raises(InvalidRequest, match="512 characters"):
        files_of("long", folder)
