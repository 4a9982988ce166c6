"""SIGKILLs of a server while it reads files into stores, learns from what people say, and embeds a store anew."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx
import psutil

from drsai_backend.database import Database
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.knowledge.rows.indexing import enqueue_reindex
from tests.chaos.checks import Broken
from tests.chaos.chunks import CODE, TOKENS, check_chunks, check_left, document, letters, readers_of
from tests.chaos.databases import query
from tests.chaos.jobs import Jobs, until
from tests.chaos.report import Outcome
from tests.chaos.schedule import Schedule
from tests.chaos.tenants import USER, key_header, place_of
from tests.chaos.world import Process, World
from tests.features.memory.scripted import DECIDE, FIND, decide, find
from tests.support.model_server import ModelRequest, ModelServer

KINDS: Final = ("knowledge_ingest", "knowledge_reindex", "memory")
MODELS: Final = ("small", "large")
"""Processes have them in turns: each embeds anew what the one before has."""
SETTINGS: Final = {
    "DRSAI_MEMORY": "true",
    "DRSAI_EMBEDDINGS_BATCH": "16",
    "DRSAI_LEASE_SECONDS": "1",
    "DRSAI_HEARTBEAT_SECONDS": "0.3",
    "DRSAI_SWEEP_SECONDS": "0.3",
}
_THREAD: Final = "k0"
"""Whose key all clients have."""
_FILES, _CHUNKS, _STANDING = 3, 140, 160
_STATIC: Final = {"type": "static", "static": {"max_chunk_size_tokens": TOKENS, "chunk_overlap_tokens": 0}}


class Endpoint:
    """The models: one finds facts, others make a vector of the word of a text, each its own."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._chance = schedule.stream("slow")
        self.server = ModelServer(strict=False)
        self.server.embedded = self._embed
        self.server.script(FIND, partial(self._slowly, find))
        self.server.script(DECIDE, partial(self._slowly, decide))

    async def _slowly(self, answer: Callable[[ModelRequest], str], request: ModelRequest) -> str:
        await asyncio.sleep(self._chance.uniform(0, 0.2))
        return answer(request)

    def _embed(self, request: ModelRequest) -> dict[str, Any]:
        data = [
            {"object": "embedding", "index": at, "embedding": self._vector(request.model, text)}
            for at, text in enumerate(request.body["input"])
        ]
        used = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "data": data, "model": request.model, "usage": used}

    def _vector(self, model: str, text: str) -> list[float]:
        found = CODE.search(text)
        chance = self._schedule.stream(model, found[1] if found else text)
        return [chance.gauss(0, 1) for _ in range(32)]  # So many that no two are alike.


class KillingKnowledge:
    """Kills the server while jobs of knowledge and memory are under way, until jobs of each kind were hit often enough.

    Args:
        kills: how many jobs of each kind are to be under way when their process is killed.
        minutes: after which it is enough in any case.
    """

    def __init__(self, world: World, schedule: Schedule, *, kills: int, minutes: float = 60) -> None:
        self._world, self._schedule, self._kills = world, schedule, kills
        self._end = time.monotonic() + 60 * minutes
        self._endpoint = Endpoint(schedule)
        self._jobs = Jobs(world.url)
        self._over = False
        self._next = 0
        self._facts: list[str] = []
        self._batches: list[tuple[str, str, list[str], list[int]]] = []
        self._readers: list[psutil.Process] = []
        self.outcome = Outcome(f"knowledge, {world.name}")

    async def run(self) -> Outcome:
        """All of it. Needs a world without processes; leaves one without."""
        start, world, outcome = time.monotonic(), self._world, self.outcome
        temporary = world.folder / "temporary"
        temporary.mkdir()
        with self._endpoint.server as server:
            world.settings = {**SETTINGS, "OPENAI_BASE_URL": server.base_url, "TMPDIR": str(temporary)}
            await self._start()
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
            async with httpx.AsyncClient(timeout=60, limits=limits, headers=key_header(_THREAD)) as http:
                self._http = http
                await self._fill()
                async with asyncio.TaskGroup() as group:
                    for do in (self._attach, self._talk, self._search, self._reindex):
                        group.create_task(do())
                    await self._kill_all()
                    self._over = True
                await until(self._is_idle, 300)
                for _ in range(20):
                    await self._search_once(self._schedule.stream("last", _))
                await self._check_batches()
            outcome.complain(world.complaints())
            self._readers += [each for process in world.processes for each in readers_of(process)]
            await world.close()
        self._check_rows(temporary)
        outcome.figures |= {f"{kind} hit": self._jobs.hits[kind] for kind in KINDS}
        outcome.figures |= {"batches": len(self._batches), "facts": len(self._facts)}
        outcome.figures["seconds"] = time.monotonic() - start
        return outcome

    # --- the server --------------------------------------------------------------------------------------------------

    async def _start(self) -> Process:
        model = MODELS[self._world.started % 2]
        self._world.settings = {**self._world.settings, "DRSAI_EMBEDDINGS_MODEL": model}
        process = await self._world.start()
        assert process.up, process.command.stderr
        return process

    async def _kill_all(self) -> None:
        chance = self._schedule.stream("kills")
        hits = self._jobs.hits
        while (wanted := [kind for kind in KINDS if hits[kind] < self._kills]) and time.monotonic() < self._end:
            [process] = self._world.processes
            kind = chance.choice(wanted)
            with suppress(TimeoutError):
                await until(partial(self._jobs.is_under_way, kind), 8)
            await asyncio.sleep(chance.uniform(0, 0.4))
            await until(self._jobs.may_be_cut, 120)
            self._readers += readers_of(process)
            self._world.kill(process)
            await asyncio.to_thread(process.command.wait)
            self.outcome.add("kills")
            self._jobs.note_killed()
            await self._start()

    def _is_idle(self) -> bool:
        return not self._jobs.count()

    def _is_learnt(self) -> bool:
        return self._jobs.count("memory") < 3

    # --- clients -----------------------------------------------------------------------------------------------------

    async def _ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """Ask until some process answers."""
        while True:
            for process in self._world.serving():
                with suppress(httpx.HTTPError):
                    answer = await self._http.request(method, f"{process.base}/v1{path}", **more)
                    if answer.status_code < 500 and answer.status_code != 409:
                        assert answer.is_success, answer.text
                        return answer.json()
            await asyncio.sleep(0.05)

    async def _upload(self, count: int) -> tuple[str, int]:
        """Upload a file of so many chunks; its id, and the number of its first word."""
        first, self._next = self._next, self._next + count
        files = {"file": (f"{first}.md", document(range(first, first + count)).encode())}
        made = await self._ask("POST", "/files", files=files, data={"purpose": "assistants"})
        return made["id"], first

    async def _fill(self) -> None:
        """Make the store that is embedded anew, and searched meanwhile."""
        self._standing = (await self._ask("POST", "/vector_stores", json={"name": "standing"}))["id"]
        for _ in range(_FILES):
            file, _ = await self._upload(_STANDING)
            body = {"file_id": file, "chunking_strategy": _STATIC}
            await self._ask("POST", f"/vector_stores/{self._standing}/files", json=body)
        await until(self._is_idle, 120)

    async def _attach(self) -> None:
        """A store with a batch of files after the other; each second one loses a file while they are read."""
        number = 0
        while not self._over:
            number += 1
            given = [await self._upload(_CHUNKS) for _ in range(_FILES)]
            store = (await self._ask("POST", "/vector_stores", json={"name": f"s{number}"}))["id"]
            ids, firsts = [file for file, _ in given], [first for _, first in given]
            body = {"file_ids": ids, "chunking_strategy": _STATIC}
            batch = (await self._ask("POST", f"/vector_stores/{store}/file_batches", json=body))["id"]
            if number % 2 == 0:
                gone, _ = ids.pop(), firsts.pop()
                await asyncio.sleep(self._schedule.stream("detach", number).uniform(0, 1))
                await self._detach(store, gone)
            self._batches.append((store, batch, ids, firsts))
            with suppress(TimeoutError):
                await until(partial(self._is_read, store), 10)

    async def _detach(self, store: str, file: str) -> None:
        """Delete a file, of which a reply that was lost says no less that it is gone."""
        while True:
            for process in self._world.serving():
                with suppress(httpx.HTTPError):
                    answer = await self._http.delete(f"{process.base}/v1/files/{file}")
                    if answer.status_code in (200, 404):
                        return
            await asyncio.sleep(0.05)

    def _is_read(self, store: str) -> bool:
        text = "SELECT f.id FROM knowledgefile f JOIN knowledgestore s ON s.id = f.store_key "
        return not query(self._world.url, text + "WHERE s.store_id = ? AND f.status = 'in_progress'", store)

    async def _talk(self) -> None:
        """A fact after the other, each in a thread of its own; what was not answered is said again."""
        while not self._over:
            fact = letters(len(self._facts))
            body = {"model": "solo", "messages": [{"role": "user", "content": f"I am allergic to {fact}."}]}
            await self._ask("POST", "/chat/completions", json=body)
            self._facts.append(fact)
            with suppress(TimeoutError):
                await until(self._is_learnt, 10)

    async def _reindex(self) -> None:
        """Have the store embedded anew as soon as it is not."""
        database, owner = Database(self._world.url), Owner(place_of(_THREAD).tenant, USER)
        text = "SELECT id FROM work_job WHERE kind = 'knowledge_reindex'"
        while not self._over:
            if not await asyncio.to_thread(query, self._world.url, text):
                await database.write(partial(enqueue_reindex, owner=owner, store_id=self._standing))
                self.outcome.add("embedded anew")
            await asyncio.sleep(0.1)
        await database.close()

    async def _search(self) -> None:
        chance = self._schedule.stream("search")
        while not self._over:
            await self._search_once(chance)
            await asyncio.sleep(0.05)

    async def _search_once(self, chance: Random) -> None:
        """Search by a word that no chunk has: only its vector finds the one that it means."""
        word = letters(chance.randrange(_FILES * _STANDING))
        body = {"query": f"Seek{word}", "ranking_options": {"score_threshold": 0.9}}
        found = (await self._ask("POST", f"/vector_stores/{self._standing}/search", json=body))["data"]
        self.outcome.add("searches")
        if [f"Word{word}" in each["content"][0]["text"] for each in found] != [True]:
            self.outcome.broken.append(Broken(f"{word} is not what its vector finds, but {len(found)} chunks", "-"))

    # --- what is there in the end ------------------------------------------------------------------------------------

    async def _check_batches(self) -> None:
        for store, batch, ids, _ in self._batches:
            told = await self._ask("GET", f"/vector_stores/{store}/file_batches/{batch}")
            counts = (told["status"], told["file_counts"]["completed"], told["file_counts"]["total"])
            if counts != ("completed", len(ids), len(ids)):
                self.outcome.broken.append(Broken(f"the batch {batch} of {len(ids)} files says {counts}", "-"))
        standing = await self._ask("GET", f"/vector_stores/{self._standing}")
        if standing["file_counts"]["completed"] != _FILES:
            self.outcome.broken.append(Broken(f"the standing store says {standing['file_counts']}", "-"))

    def _check_rows(self, temporary: Path) -> None:
        url = self._world.url
        firsts = [first for *_, each in self._batches for first in each]
        attached = chain.from_iterable(range(first, first + _CHUNKS) for first in firsts)
        self.outcome.broken += check_chunks(url, chain(range(_FILES * _STANDING), attached))
        memories = Counter(row["text"] for row in query(url, "SELECT text FROM memory"))
        facts = Counter(f"The user is allergic to {fact}." for fact in self._facts)
        if {*facts} - {*memories} or any(count > 1 for count in memories.values()):
            self.outcome.broken.append(Broken(f"{len(facts)} facts were said, and {memories.total()} are stored", "-"))
        self.outcome.figures["readers of files hit"] = len(self._readers)
        self.outcome.broken += check_left(url, temporary, self._readers)
