"""SIGKILLs of servers, one or two at a time, while they put the files of an agent's definition into its store, and read
them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, count
from pathlib import Path
from random import Random
from typing import Any, Final

import psutil
import sqlalchemy as sa

from drsai_backend.database import Database
from drsai_backend.datamodel import StoredFile, table_of, utcnow
from drsai_backend.features.knowledge.base import PATH
from drsai_backend.features.knowledge.rows.files import INGEST
from drsai_backend.files import Files
from tests.chaos.checks import Broken
from tests.chaos.chunks import TOKENS, check_chunks, check_left, document, readers_of
from tests.chaos.databases import query
from tests.chaos.jobs import Jobs, until
from tests.chaos.knowledge import MODELS, SETTINGS, Endpoint
from tests.chaos.report import Outcome
from tests.chaos.schedule import Schedule
from tests.chaos.world import Process, World
from tests.support.threads import settings

KINDS: Final = ("kept", "read")
_FILES, _PAGES, _PARTS, _CHANGED = 12, 2, 60, 5


class _Pages(SimpleHTTPRequestHandler):
    def copyfile(self, source: Any, outputfile: Any) -> None:
        with suppress(ConnectionError):  # Who asked was killed.
            super().copyfile(source, outputfile)

    def log_message(self, *_: object) -> None:
        pass


class _Documents:
    """What the definition names: a folder, and pages by their URLs. They change between kills.

    Attributes:
        numbers: of the chunks of each, by the path that the store knows it by.
    """

    def __init__(self, folder: Path, site: str) -> None:
        self._folder, self._site, self._fresh, self._names = folder, site, count(), count()
        (folder / "docs").mkdir(parents=True)
        self.numbers: dict[str, list[int]] = {}
        for path in [self._next_path() for _ in range(_FILES)] + [f"{site}/{at}.md" for at in range(_PAGES)]:
            self._write(path, [next(self._fresh) for _ in range(_PARTS)])
        named = ["docs", *(path for path in self.numbers if path.startswith(site))]
        knowledge = {"files": named, "chunk_size": TOKENS, "chunk_overlap": 0}
        agent = {"prompt": "You are ann.", "knowledge": knowledge}
        (folder / "team.json").write_text(json.dumps({"agents": {"ann": agent}}))

    def change(self, chance: Random) -> None:
        """Change a third of some documents, remove one and add one."""
        for path in chance.sample(sorted(self.numbers), _CHANGED):
            places = chance.sample(range(_PARTS), _PARTS // 3)
            self._write(path, [next(self._fresh) if at in places else old for at, old in enumerate(self.numbers[path])])
        gone = chance.choice([path for path in sorted(self.numbers) if not path.startswith(self._site)])
        self._file(gone).unlink()
        del self.numbers[gone]
        self._write(self._next_path(), [next(self._fresh) for _ in range(_PARTS)])

    def digests(self) -> dict[str, str]:
        """Of the content of each, by its path."""
        return {path: hashlib.sha256(self._file(path).read_bytes()).hexdigest() for path in self.numbers}

    def _next_path(self) -> str:
        return f"docs/{next(self._names)}.md"

    def _file(self, path: str) -> Path:
        return self._folder / path.removeprefix(f"{self._site}/")

    def _write(self, path: str, numbers: list[int]) -> None:
        self.numbers[path] = numbers
        self._file(path).write_text(document(numbers))


class KillingAgentFiles:
    """Kills servers while they put what a definition names into the store of its agent, and while they read it, until
    each was cut often enough.

    Args:
        kills: how many kills are to be in the middle of putting files there, and how many jobs under way.
        minutes: after which it is enough in any case.
    """

    def __init__(self, world: World, schedule: Schedule, *, kills: int, minutes: float = 60) -> None:
        self._world, self._schedule, self._kills = world, schedule, kills
        self._end = time.monotonic() + 60 * minutes
        self._jobs = Jobs(world.url)
        self._cut = 0
        self._readers: list[psutil.Process] = []
        self.outcome = Outcome(f"files of agents, {world.name}")

    async def run(self) -> Outcome:
        """All of it. Needs a world without processes; leaves one without."""
        start, world, outcome = time.monotonic(), self._world, self.outcome
        temporary, files = world.folder / "temporary", world.folder / "files"
        temporary.mkdir()
        documents = world.folder / "definition"
        with Endpoint(self._schedule).server as server, _served(documents) as site:
            self._documents = _Documents(documents, site)
            world.teams = documents / "team.json"
            world.settings = {
                **SETTINGS,
                "OPENAI_BASE_URL": server.base_url,
                "TMPDIR": str(temporary),
                "DRSAI_FILES_FOLDER": str(files),
                "DRSAI_ALLOWED_ADDRESSES": "127.0.0.1/32",
                "DRSAI_EMBEDDINGS_MODEL": MODELS[0],
            }
            await self._settle()
            await self._kill_all()
            await self._settle()
            outcome.complain(world.complaints())
            await world.close()
        await self._sweep(files)
        self._check_files(files)
        outcome.broken += check_chunks(world.url, chain.from_iterable(self._documents.numbers.values()))
        outcome.broken += check_left(world.url, temporary, self._readers)
        outcome.figures |= {"cut while files are kept": self._cut, "jobs hit": self._jobs.hits[INGEST]}
        outcome.figures |= {"readers of files hit": len(self._readers), "seconds": time.monotonic() - start}
        return outcome

    async def _settle(self) -> None:
        """Have a server do all that is to be done."""
        server = await self._world.start()
        await until(self._is_settled, 300)
        self.outcome.complain(line for line in server.command.stderr.splitlines() if "not in its store" in line)
        self._readers += readers_of(server)
        self._world.kill(server)
        await asyncio.to_thread(server.command.wait)

    async def _kill_all(self) -> None:
        chance = self._schedule.stream("kills")
        while (wanted := self._wanted()) and time.monotonic() < self._end:
            self._documents.change(chance)
            before, kind = self._kept(), chance.choice(wanted)
            processes = [self._world.launch() for _ in range(chance.choice((1, 2)))]
            under_way = partial(self._jobs.is_under_way, INGEST) if kind == "read" else lambda: self._kept() != before  # noqa: B023
            with suppress(TimeoutError):
                await until(under_way, 8)
            await asyncio.sleep(chance.uniform(0, 0.4 if kind == "read" else 0.1))
            await until(self._jobs.may_be_cut, 120)
            await self._kill(processes)
            # What is as it is wanted is so after the last step.
            self._cut += self._kept() not in (before, self._documents.digests())
            self._jobs.note_killed()

    def _wanted(self) -> list[str]:
        hits = (self._cut, self._jobs.hits[INGEST])
        return [kind for kind, hit in zip(KINDS, hits, strict=True) if hit < self._kills]

    async def _kill(self, processes: list[Process]) -> None:
        for process in processes:
            self._readers += readers_of(process)
            self._world.kill(process)
            self.outcome.add("kills")
        for process in processes:
            await asyncio.to_thread(process.command.wait)

    def _kept(self) -> dict[str, str]:
        """What the store has: of each path the digest of what was put there."""
        text = "SELECT s.origin FROM knowledgefile f JOIN storedfile s ON s.file_id = f.file_id"
        origins = [row["origin"].split("/", 2) for row in query(self._world.url, text)]
        return {path: digest for _, digest, path in origins}

    def _is_settled(self) -> bool:
        return self._kept() == self._documents.digests() and not self._jobs.count()

    async def _sweep(self, folder: Path) -> None:
        """Have what was replaced expire, which it is to within an hour, and uploads that were cut be given up."""
        database, file = Database(self._world.url), table_of(StoredFile)
        over = sa.update(file).where(file.c.expires_at.is_not(None)).values(expires_at=utcnow())
        await database.write(lambda session: session.execute(over))
        await Files(database, settings(files_folder=folder)).sweep(abandoned=timedelta(0))
        await database.close()

    def _check_files(self, folder: Path) -> None:
        url, complain = self._world.url, self.outcome.broken.append
        if (stores := query(url, "SELECT count(*) AS n FROM knowledgestore")[0]["n"]) != 1:
            complain(Broken(f"the agent has {stores} stores", "-"))
        rows = query(url, "SELECT file_id, status, attributes FROM knowledgefile")
        paths = sorted(_attributes(row["attributes"])[PATH] for row in rows)
        if paths != sorted(self._documents.numbers) or {row["status"] for row in rows} != {"completed"}:
            complain(Broken(f"{len(self._documents.numbers)} files are wanted, and there are {paths}", "-"))
        if {row["file_id"] for row in query(url, "SELECT file_id FROM storedfile")} != {row["file_id"] for row in rows}:
            complain(Broken("files are kept that the store does not have, or the other way round", "-"))
        contents = {row["token"] for row in query(url, "SELECT token FROM filecontent")}
        if contents != {each.name for each in folder.rglob("*") if each.is_file()}:
            complain(Broken("the folder has other files than those that rows name", "-"))


def _attributes(value: str | dict[str, str]) -> dict[str, str]:
    return json.loads(value) if isinstance(value, str) else value


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The URL of a site that has the files of a folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
