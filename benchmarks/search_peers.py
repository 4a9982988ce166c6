"""LanceDB and Chroma, which search the same texts and vectors in a process of their own.

They want other versions of packages that this one needs, so they are installed in an environment of their own, whose
Python `DRSAI_BENCH_PEERS` names. This file is the program that runs there, and imports nothing of the benchmarks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

PYTHON: Final = "DRSAI_BENCH_PEERS"
TOP: Final = 10
Find = Callable[[str, Any], list[int]]


class Peers:
    """The process with what is searched beside.

    Attributes:
        names: each with its version, or why it is not there.
        ways: what can be asked: a peer, and by what.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.names: dict[str, str]
        self.ways: list[tuple[str, str]]
        self.names, ways = self._told()
        self.ways = [(peer, mode) for peer, mode in ways]

    def block(self, way: tuple[str, str], first: int, count: int) -> tuple[float, float, list[list[int]]]:
        """Have questions asked; seconds of each on the clock and of the processor, and what was found."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([*way, first, count]) + "\n")
        self._process.stdin.flush()
        clock, cpu, found = self._told()
        return clock, cpu, found

    def _told(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


@contextmanager
def peers(texts: list[str], vectors: Any, questions: list[str], asked: Any) -> Generator[Peers]:
    """What can be searched beside, filled with texts and their vectors.

    Args:
        texts, vectors: one of each for each that is found.
        questions, asked: texts and vectors that are searched for.
    """
    with TemporaryDirectory(prefix="drsai-bench-peers-") as name:
        folder = Path(name)
        for file, array in (("vectors", vectors), ("asked", asked)):
            np.save(folder / f"{file}.npy", array)
        (folder / "texts.json").write_text(json.dumps([texts, questions]))
        command = [os.environ.get(PYTHON, sys.executable), __file__, name]
        pipe = subprocess.PIPE
        # What they log is about their next releases.
        quiet = {**os.environ, "LANCE_LOG": "error", "ANONYMIZED_TELEMETRY": "False"}
        process = subprocess.Popen(command, env=quiet, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        try:
            yield Peers(process)
        finally:
            process.kill()
            process.wait()


def _lancedb(folder: Path, texts: list[str], vectors: Any) -> tuple[str, dict[tuple[str, str], Find]]:
    lancedb: Any = import_module("lancedb")
    pyarrow: Any = import_module("pyarrow")
    dimensions = vectors.shape[1]
    columns = {
        "id": pyarrow.array(range(len(texts))),
        "text": texts,
        "vector": pyarrow.FixedSizeListArray.from_arrays(vectors.ravel(), dimensions),
    }
    database = lancedb.connect(folder / "lance")
    plain, indexed = (database.create_table(name, pyarrow.table(columns)) for name in ("plain", "indexed"))
    for table in (plain, indexed):
        table.create_fts_index("text")
    indexed.create_index(metric="dot", index_type="IVF_HNSW_SQ", vector_column_name="vector")
    shown = ["id", "text"]

    def by_vector(table: Any) -> Find:
        # The best are read again as they are stored, as ours are: else it finds 94 in 100.
        return lambda _, vector: _ids(table.search(vector).metric("dot").refine_factor(10).select(shown))

    def by_keyword(text: str, _: Any) -> list[int]:
        return _ids(plain.search(text, query_type="fts").select(shown))

    def by_both(table: Any) -> Find:
        def find(text: str, vector: Any) -> list[int]:
            return _ids(table.search(query_type="hybrid").vector(vector).text(text).metric("dot").select(shown))

        return find

    return lancedb.__version__, {
        ("LanceDB", "vector"): by_vector(plain),
        ("LanceDB, HNSW", "vector"): by_vector(indexed),
        ("LanceDB", "keyword"): by_keyword,
        ("LanceDB", "hybrid"): by_both(plain),
        ("LanceDB, HNSW", "hybrid"): by_both(indexed),
    }


def _ids(query: Any) -> list[int]:
    return [row["id"] for row in query.limit(TOP).to_list()]


def _chroma(folder: Path, texts: list[str], vectors: Any) -> tuple[str, dict[tuple[str, str], Find]]:
    chromadb: Any = import_module("chromadb")
    client = chromadb.PersistentClient(folder / "chroma")
    options = {"hnsw": {"space": "ip"}}
    collection = client.create_collection("benchmark", embedding_function=None, configuration=options)
    for at in range(0, len(texts), 5_000):
        ids = [str(number) for number in range(at, min(at + 5_000, len(texts)))]
        collection.add(ids=ids, embeddings=vectors[at : at + 5_000], documents=texts[at : at + 5_000])

    def find(_: str, vector: Any) -> list[int]:
        found = collection.query(query_embeddings=[vector], n_results=TOP, include=["documents", "distances"])
        return [int(each) for each in found["ids"][0]]

    return chromadb.__version__, {("Chroma, HNSW", "vector"): find}


def _main(folder: Path) -> None:
    texts, questions = json.loads((folder / "texts.json").read_text())
    vectors, asked = np.load(folder / "vectors.npy"), np.load(folder / "asked.npy")
    names: dict[str, str] = {}
    ways: dict[tuple[str, str], Find] = {}
    for name, fill in (("lancedb", _lancedb), ("chromadb", _chroma)):
        try:
            names[name], found = fill(folder, texts, vectors)
        except ImportError:
            names[name] = "not installed"
        else:
            ways |= found
    print(json.dumps([names, [*ways]]), flush=True)
    for line in sys.stdin:
        peer, mode, first, count = json.loads(line)
        find, clock, cpu = ways[peer, mode], time.perf_counter(), time.process_time()
        shown = [find(questions[at], asked[at]) for at in range(first, first + count)]
        spent = (time.perf_counter() - clock) / count, (time.process_time() - cpu) / count
        print(json.dumps([*spent, shown]), flush=True)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
