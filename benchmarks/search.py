"""Search by keywords: whether it finds the paragraph that answers a question, beside SQLite's FTS5 in the same run; and
how long a search takes in a large index."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks.databases import Postgres, sqlite
from benchmarks.report import Section
from drsai_backend.database import Database
from drsai_backend.datamodel.owner import Owner
from drsai_backend.search import Entry, Mode, Query, Search, add, create_index, prepare
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


def _corpus(count: int) -> tuple[list[str], Any, Callable[[], str]]:
    """Texts of a hundred words that are as frequent as those of a language, vectors in clusters, and questions."""
    random = np.random.default_rng(1)
    words = [f"{chr(97 + at % 26)}{chr(97 + at // 26 % 26)}{chr(97 + at // 676)}" for at in range(15_000)]
    weights = 1 / np.arange(1, len(words) + 1)
    weights /= weights.sum()

    def text(length: int) -> str:
        return " ".join(words[at] for at in random.choice(len(words), length, p=weights))

    middles = random.standard_normal((200, DIMENSIONS), dtype=np.float32)
    vectors = middles[random.integers(0, 200, count)] + random.standard_normal((count, DIMENSIONS), dtype=np.float32)
    return [text(100) for _ in range(count)], vectors, partial(text, 8)


def speed(url: str, name: str, count: int, tries: int) -> Section:
    section = Section(
        f"Search: speed, {name}",
        f"Milliseconds of a search of {count:,} texts of 100 words with vectors of {DIMENSIONS} numbers: the median; "
        "and what numpy takes to multiply all vectors as floats, which are four times the memory.",
        ("what", "ms"),
    )
    texts, vectors, question = _corpus(count)
    database = Database(url)
    search = Search(database)
    index = database.write_sync(lambda session: create_index(session, _OWNER, "benchmark", model="m"))
    start = time.perf_counter()
    for at in range(0, count, 200):
        ready = prepare([Entry(f"{at + n}", text) for n, text in enumerate(texts[at : at + 200])])
        given = [each.tobytes() for each in vectors[at : at + 200]]
        database.write_sync(lambda session, ready=ready, given=given: add(session, index, ready, given))
    section.reported(f"texts indexed in a second, {name}", f"{count / (time.perf_counter() - start):,.0f}")

    def timed(act: Callable[[int], object]) -> float:
        act(0)
        taken: list[float] = []
        for number in range(tries):
            begun = time.perf_counter()
            act(number)
            taken.append((time.perf_counter() - begun) * 1000)
        return median(taken)

    def find(mode: Mode, number: int) -> object:
        query = Query(question(), (vectors[number] + 0.5).tobytes(), mode=mode)
        return database.read_sync(lambda session: search.search(session, [index], query))

    plain = timed(lambda number: np.argpartition(vectors @ vectors[number], -10)[-10:])
    section.rows.append(("numpy, floats in memory", f"{plain:.1f}"))
    modes: tuple[Mode, ...] = ("vector", "keyword", "hybrid")
    for mode in modes:
        section.rows.append((f"by {mode}", f"{timed(partial(find, mode)):.1f}"))
    database.close_sync()
    return section


def measure(server: Postgres | None, count: int = CHUNKS, tries: int = 30) -> list[Section]:
    folder = os.environ.get(FOLDER)
    sections = [quality(server, Path(folder))] if folder else []
    with sqlite() as url:
        sections.append(speed(url, "SQLite", count, tries))
    if server is not None:
        with server.database() as url:
            sections.append(speed(url, "PostgreSQL", count, tries))
    return sections
