"""Search: whether it finds the paragraph that answers a question by keywords, beside SQLite's FTS5; and how long it
takes in a large index, beside LanceDB and Chroma."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks.databases import Postgres, sqlite
from benchmarks.measure import Paired, Spent, alternate, milliseconds, timed
from benchmarks.report import Section
from benchmarks.search_peers import PYTHON, TOP, Peers, peers
from drsai_backend.database import Database
from drsai_backend.datamodel.owner import Owner
from drsai_backend.search import Entry, Mode, Query, Search, add, create_index, prepare, speed_up
from drsai_backend.search.tokens import tokens

FOLDER: Final = "DRSAI_BENCH_SEARCH_DATA"
"""Names the folder that has XQuAD (`xquad.en.json`, `xquad.zh.json`) and CMRC 2018 (`cmrc_dev.json`)."""
CHUNKS, DIMENSIONS = 100_000, 384
_CORPORA: Final = {
    "XQuAD, English": (("xquad.en.json",), 0.987),
    "XQuAD and CMRC 2018, Chinese": (("xquad.zh.json", "cmrc_dev.json"), 0.991),
}
_OWNER: Final = Owner("acme", "ann")
Questions = list[tuple[str, int]]
Find = Callable[[str], list[int]]


def read(folder: Path, files: Sequence[str]) -> tuple[list[str], Questions]:
    """The paragraphs of a corpus, and its questions, each with the place of the paragraph that answers it."""
    paragraphs: list[str] = []
    questions: Questions = []
    for name in files:
        data: Any = json.loads((folder / name).read_text())
        found: list[tuple[str, list[str]]] = (
            [(each["context_text"], [qa["query_text"] for qa in each["qas"]]) for each in data]
            if isinstance(data, list)
            else [
                (each["context"], [qa["question"] for qa in each["qas"]])
                for article in data["data"]
                for each in article["paragraphs"]
            ]
        )
        for text, asked in found:
            questions += [(question, len(paragraphs)) for question in asked]
            paragraphs.append(text)
    return paragraphs, questions


def recall(find: Find, questions: Questions) -> dict[int, float]:
    """The share of questions whose paragraph is among the first 1, 5 and 10."""
    places = [found.index(right) if right in (found := find(text)) else 10 for text, right in questions]
    return {most: sum(place < most for place in places) / len(places) for most in (1, 5, 10)}


def ours(url: str, paragraphs: Sequence[str]) -> tuple[Database, Find]:
    """This package's search over paragraphs."""
    database = Database(url)
    search = Search(database)
    index = database.write_sync(lambda session: create_index(session, _OWNER, "benchmark"))
    for start in range(0, len(paragraphs), 200):
        some = paragraphs[start : start + 200]
        ready = prepare([Entry(f"{start + at}", text) for at, text in enumerate(some)])
        database.write_sync(lambda session, ready=ready: add(session, index, ready))

    def find(text: str) -> list[int]:
        query = Query(text, mode="keyword")
        found = database.read_sync(lambda session: search.search(session, [index], query))
        return [int(hit.ref) for hit in found.hits]

    return database, find


def fts5(paragraphs: Sequence[str], *, pairs: bool) -> Find:
    """SQLite's own search: words as Porter stems them, or pairs of Chinese characters."""

    def spaced(text: str) -> str:
        return " ".join(tokens(text)) if pairs else text

    connection = sqlite3.connect(":memory:")
    connection.execute(
        f"CREATE VIRTUAL TABLE found USING fts5(text, tokenize = '{'' if pairs else 'porter '}unicode61')"
    )
    connection.executemany("INSERT INTO found VALUES (?)", ((spaced(each),) for each in paragraphs))

    def find(text: str) -> list[int]:
        asked = " OR ".join(f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", spaced(text))))
        query = "SELECT rowid - 1 FROM found WHERE found MATCH ? ORDER BY bm25(found) LIMIT 10"
        return [row[0] for row in connection.execute(query, (asked,))]

    return find


def quality(server: Postgres | None, folder: Path) -> Section:
    section = Section(
        "Search: quality",
        "The share of questions whose paragraph is among the first 1, 5 and 10 that are found, by keywords.",
        ("corpus", "questions", "by", "recall@1", "recall@5", "recall@10"),
    )
    for corpus, (files, goal) in _CORPORA.items():
        paragraphs, questions = read(folder, files)

        def tell(name: str, found: dict[int, float], corpus: str = corpus, many: int = len(questions)) -> None:
            section.rows.append((corpus, f"{many:,}", name, *(f"{each:.4f}" for each in found.values())))

        tell("FTS5", recall(fts5(paragraphs, pairs="zh" in files[0]), questions))
        with sqlite() as url:
            database, find = ours(url, paragraphs)
            tell("this package, SQLite", found := recall(find, questions))
            database.close_sync()
        section.at_least(f"recall@5 by keywords, {corpus}", goal, found[5], f"{found[5]:.4f}")
        if server is not None:
            with server.database() as url:
                database, find = ours(url, paragraphs)
                tell("this package, PostgreSQL", again := recall(find, questions))
                database.close_sync()
            section.at_most(f"difference between the databases, {corpus}", 0, abs(again[5] - found[5]))
    return section


@dataclass(frozen=True, slots=True)
class Corpus:
    """What is searched and asked.

    Attributes:
        texts, vectors: of each chunk.
        questions, asked: texts, and vectors near to some chunks'.
        nearest: for each question, which chunks are the nearest, exactly.
    """

    texts: list[str]
    vectors: Any
    questions: list[str]
    asked: Any
    nearest: list[set[int]]


def _corpus(count: int, questions: int) -> Corpus:
    """Texts of a hundred words that are as frequent as those of a language, and vectors of length 1 in clusters."""
    random = np.random.default_rng(1)
    words = [f"{chr(97 + at % 26)}{chr(97 + at // 26 % 26)}{chr(97 + at // 676)}" for at in range(15_000)]
    weights = 1 / np.arange(1, len(words) + 1)
    weights /= weights.sum()

    def text(length: int) -> str:
        return " ".join(words[at] for at in random.choice(len(words), length, p=weights))

    def noise(many: int) -> Any:
        return random.standard_normal((many, DIMENSIONS), dtype=np.float32)

    vectors = noise(200)[random.integers(0, 200, count)] + noise(count)
    asked = vectors[random.integers(0, count, questions)] + noise(questions) / 2
    for each in (vectors, asked):
        each /= np.linalg.norm(each, axis=1, keepdims=True)
    nearest = [{*np.argpartition(-(vectors @ each), TOP)[:TOP].tolist()} for each in asked]
    return Corpus([text(100) for _ in range(count)], vectors, [text(8) for _ in range(questions)], asked, nearest)


class _Ours:
    """This package's search of a corpus, in a database."""

    def __init__(self, url: str, corpus: Corpus) -> None:
        self.database, self._corpus = Database(url), corpus
        self._search = Search(self.database)
        self._index = self.database.write_sync(lambda session: create_index(session, _OWNER, "benchmark", model="m"))
        start, texts = time.perf_counter(), corpus.texts
        for at in range(0, len(texts), 200):
            ready = prepare([Entry(f"{at + n}", text) for n, text in enumerate(texts[at : at + 200])])
            given = [each.tobytes() for each in corpus.vectors[at : at + 200]]
            self.database.write_sync(lambda session, ready=ready, given=given: add(session, self._index, ready, given))
        self.rate = len(texts) / (time.perf_counter() - start)
        """Texts indexed in a second."""

    def speed_up(self) -> bool:
        return speed_up(self.database, self._index)

    async def block(self, mode: Mode, first: int, count: int, found: list[list[int]]) -> Spent:
        """Ask questions, as a server does."""
        asked = iter(range(first, first + count))

        async def ask() -> None:
            at = next(asked)
            query = Query(self._corpus.questions[at], self._corpus.asked[at].tobytes(), TOP, mode)
            found.append([int(hit.ref) for hit in (await self._search.find([self._index], query)).hits])

        return await timed(ask, count)


async def speed(server: Postgres | None, count: int, tries: int, rounds: int) -> Section:
    section = Section(
        "Search: speed",
        f"A search of {count:,} texts of 100 words with vectors of {DIMENSIONS} numbers in 200 clusters, for {TOP},\n"
        f"in blocks of {tries} that alternate with LanceDB's and Chroma's of the same ones, in a process of their own\n"
        f"(of the Python that `{PYTHON}` names: {{}}). LanceDB without an index of vectors compares all,\n"
        "as this package does on SQLite; with HNSW it reads the best anew, and so do we. *CPU*: milliseconds of the\n"
        "processor, all threads together, without PostgreSQL's own. *recall*: of the nearest, exactly.",
        ("database", "by", "ms", "CPU", "recall", "beside", "ms", "CPU", "recall", "÷", "÷ CPU"),
    )
    corpus = _corpus(count, tries * (rounds + 1))
    # LanceDB and Chroma are filled once, for both databases.
    with peers(corpus.texts, corpus.vectors, corpus.questions, corpus.asked) as beside, sqlite() as url:
        section.note = section.note.format(", ".join(" ".join(each) for each in beside.names.items()))
        await _compare(section, "SQLite", _Ours(url, corpus), corpus, beside, (tries, rounds))
        if server is not None:
            with server.database() as url:
                ours = _Ours(url, corpus)
                if ours.speed_up():
                    await _compare(section, "PostgreSQL with pgvector", ours, corpus, beside, (tries, rounds))
                else:
                    section.reported("PostgreSQL: search beside others", "not measured: there is no pgvector")
                    ours.database.close_sync()
    return section


async def _compare(
    section: Section, name: str, ours: _Ours, corpus: Corpus, beside: Peers, size: tuple[int, int]
) -> None:
    tries, rounds = size
    section.reported(f"texts indexed in a second, {name}", f"{ours.rate:,.0f}")
    modes: tuple[Mode, ...] = ("vector", "keyword", "hybrid")
    for mode in modes:
        found: list[list[int]] = []
        ways = [way for way in beside.ways if way[1] == mode]
        pairs = [await _pair(ours, beside, way, (tries, rounds), found) for way in ways]
        if not ways:
            alone = [await ours.block(mode, tries * number, tries, found) for number in range(rounds + 1)][1:]
            section.rows.append((name, mode, milliseconds(alone), _cpu(alone), _recall(found, corpus, mode), *"------"))
            section.reported(f"search by {mode} beside others, {name}", "not measured: none of them is installed")
        for (peer, _), (paired, theirs) in zip(ways, pairs, strict=True):
            mine = (milliseconds(paired.ours), _cpu(paired.ours), _recall(found, corpus, mode))
            other = (milliseconds(paired.other), _cpu(paired.other), _recall(theirs, corpus, mode))
            section.rows.append((name, mode, *mine, peer, *other, str(paired), paired.cpu))
        if pairs:
            # Of one of them, it was said: the others are in the table.
            (peer, _), (best, _) = min(zip(ways, pairs, strict=True), key=lambda pair: pair[1][0].ratio)
            section.at_most(f"search by {mode} ÷ {peer}'s, {name}", 1.5, best.ratio, best.shown)
        if mode == "vector":
            recall = float(_recall(found, corpus, mode))
            section.at_least(f"nearest that are found, of those there are, {name}", 0.95, recall, f"{recall:.3f}")
    ours.database.close_sync()


async def _pair(
    ours: _Ours, beside: Peers, way: tuple[str, str], size: tuple[int, int], found: list[list[int]]
) -> tuple[Paired, list[list[int]]]:
    """What we and another took for the same questions, and what the other has found."""
    tries, rounds = size
    mode: Mode = way[1]  # type: ignore[assignment]
    firsts = iter(tries * (number // 2) for number in range(2 * rounds + 2))
    theirs: list[list[int]] = []
    found.clear()

    async def mine() -> Spent:
        return await ours.block(mode, next(firsts), tries, found)

    async def other() -> Spent:
        clock, cpu, shown = await asyncio.to_thread(beside.block, way, next(firsts), tries)
        theirs.extend(shown)
        return Spent(clock, cpu)

    return await alternate(mine, other, rounds), theirs


def _cpu(spent: Sequence[Spent]) -> str:
    return f"{median(each.cpu for each in spent) * 1000:.2f}"


def _recall(found: Sequence[Sequence[int]], corpus: Corpus, mode: Mode) -> str:
    """The share of the nearest that was found."""
    pairs = [*zip(found, corpus.nearest, strict=True)]
    return f"{sum(len({*each} & there) for each, there in pairs) / (TOP * len(pairs)):.3f}" if mode == "vector" else "-"


async def measure(server: Postgres | None, count: int = CHUNKS, tries: int = 20, rounds: int = 6) -> list[Section]:
    folder = os.environ.get(FOLDER)
    return [*([quality(server, Path(folder))] if folder else []), await speed(server, count, tries, rounds)]
