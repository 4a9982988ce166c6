"""Search is measured by what it finds: chats turn by turn, and keywords beside real vectors, with plain tools in the
same run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Final

from benchmarks.conversations import Conversation, conversations
from benchmarks.databases import Postgres, sqlite
from benchmarks.minilm import WHEEL, MiniLM, as_bytes
from benchmarks.report import Section
from benchmarks.search import FOLDER, fts5, read
from drsai_backend.database import Database
from drsai_backend.datamodel.owner import Owner
from drsai_backend.documents import chunk, extract
from drsai_backend.features.knowledge.base import Chunking
from drsai_backend.features.knowledge.ingestion import entries_of
from drsai_backend.features.knowledge.rows.indexing import Task
from drsai_backend.search import Entry, Mode, Query, Search, add, create_index, prepare

_OWNER: Final = Owner("acme", "ann")
_FILE: Final = Task(1, 1, "file", "chat.json", {}, Chunking())
_FIRST: Final = (1, 5, 10)
Places = list[int]
Found = Callable[..., Places]


def _shares(places: Sequence[int]) -> dict[int, float]:
    return {most: sum(place < most for place in places) / len(places) for most in _FIRST}


def _place(found: Sequence[int], right: int) -> int:
    return found.index(right) if right in found else max(_FIRST)


@contextmanager
def _indexed(url: str, entries: Sequence[Entry], vectors: Sequence[bytes] | None = None) -> Iterator[Found]:
    """Search over entries: the places of those that are found, for a question, its day, its vector and a mode."""
    database = Database(url)
    search = Search(database)
    model = None if vectors is None else "m"
    index = database.write_sync(lambda session: create_index(session, _OWNER, "benchmark", model=model))
    for at in range(0, len(entries), 200):
        ready, given = prepare(entries[at : at + 200]), None if vectors is None else vectors[at : at + 200]
        database.write_sync(lambda session, ready=ready, given=given: add(session, index, ready, given))
    numbers = {each.ref: at for at, each in enumerate(entries)}

    def find(text: str, on: date | None = None, vector: bytes | None = None, mode: Mode = "keyword") -> Places:
        query = Query(text, vector, mode=mode, on=on)
        return [
            numbers[hit.ref] for hit in database.read_sync(lambda session: search.search(session, [index], query)).hits
        ]

    yield find
    database.close_sync()


def _as_stored(chat: Conversation) -> list[Entry]:
    """A chat as a store reads a file of it: an entry a turn."""
    said = [{"speaker": each.speaker, "text": each.text, "time": each.at.isoformat()} for each in chat.turns]
    return entries_of(_FILE, chunk(extract("chat.json", json.dumps(said).encode()), 800, 100), {})


def chats(server: Postgres | None) -> Section:
    section = Section(
        "Search: chats",
        "The share of questions whose turn is among the first 1, 5 and 10 that are found by keywords, in ten "
        "conversations of 480 turns; nothing was chosen by the second half.",
        ("half", "questions", "by", *(f"recall@{most}" for most in _FIRST)),
    )
    for half, name in enumerate(("chosen by", "held out")):
        made = conversations(half)
        many = f"{sum(len(each.questions) for each in made):,}"

        def tell(by: str, places: Sequence[int], name: str = name, many: str = many) -> dict[int, float]:
            found = _shares(places)
            section.rows.append((name, many, by, *(f"{each:.3f}" for each in found.values())))
            return found

        plain = [(fts5([turn.text for turn in each.turns], pairs=False), each) for each in made]
        tell("FTS5, a turn alone", [_place(find(q.text), q.turn) for find, each in plain for q in each.questions])
        with sqlite() as url:
            alone = [_asked(url, each, [Entry(f"{at:06}", t.text) for at, t in enumerate(each.turns)]) for each in made]
            tell("this package, a turn alone", [place for places in alone for place in places])
            stored = tell(
                "as stores read chats, SQLite", [p for each in made for p in _asked(url, each, _as_stored(each))]
            )
        section.at_least(f"recall@5 of chats, {name}", 0.55, stored[5], f"{stored[5]:.3f}")
        section.at_least(f"recall@10 of chats, {name}", 0.65, stored[10], f"{stored[10]:.3f}")
        if server is not None:
            with server.database() as url:
                again = tell(
                    "as stores read chats, PostgreSQL",
                    [p for each in made for p in _asked(url, each, _as_stored(each))],
                )
            section.at_most(f"difference between the databases, chats, {name}", 0, abs(again[5] - stored[5]))
    return section


def _asked(url: str, chat: Conversation, entries: Sequence[Entry]) -> Places:
    with _indexed(url, entries) as find:
        return [_place(find(each.text, each.on), each.turn) for each in chat.questions]


def hybrid(server: Postgres | None, folder: Path) -> Section:
    """XQuAD's English questions by keywords, by vectors of MiniLM and by both; fused by ranks for comparison."""
    section = Section(
        "Search: keywords and vectors",
        "The share of XQuAD's English questions whose paragraph is among the first 1, 5 and 10, with vectors of "
        "all-MiniLM-L6-v2.",
        ("by", *(f"recall@{most}" for most in _FIRST)),
    )
    paragraphs, questions = read(folder, ("xquad.en.json",))
    model = MiniLM()
    vectors, asked = [*as_bytes(model.embed(paragraphs))], [*as_bytes(model.embed([text for text, _ in questions]))]
    entries = [Entry(f"{at:06}", text) for at, text in enumerate(paragraphs)]
    modes: tuple[Mode, ...] = ("keyword", "vector", "hybrid")

    def measured(url: str, name: str) -> dict[Mode, dict[int, float]]:
        shares: dict[Mode, dict[int, float]] = {}
        with _indexed(url, entries, vectors) as find:
            for mode in modes:
                given = zip(questions, asked, strict=True)
                shares[mode] = _shares([_place(find(text, None, v, mode), right) for (text, right), v in given])
                section.rows.append((f"{mode}, {name}", *(f"{each:.4f}" for each in shares[mode].values())))
        return shares

    with sqlite() as url:
        found = measured(url, "SQLite")
    section.at_least("recall@5 of hybrid search, XQuAD English", 0.993, found["hybrid"][5], f"{found['hybrid'][5]:.4f}")
    better = max(found["keyword"][5], found["vector"][5])
    section.at_least("hybrid, beside the better of both, less 0.005", better - 0.005, found["hybrid"][5])
    if server is not None:
        with server.database() as url:
            again = measured(url, "PostgreSQL")
        section.at_most("difference between the databases, hybrid", 0, abs(again["hybrid"][5] - found["hybrid"][5]))
    return section


def measure(server: Postgres | None) -> list[Section]:
    folder = os.environ.get(FOLDER)
    return [chats(server), *([hybrid(server, Path(folder))] if folder and WHEEL in os.environ else [])]
