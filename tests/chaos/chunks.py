"""Documents of which each chunk has a word of its own, and what is to be true of their chunks once all are read."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from drsai_backend.search.postings import BLOCK, POSTING
from tests.chaos.checks import Broken
from tests.chaos.databases import query
from tests.chaos.world import Process

CODE: Final = re.compile(r"\b(?:Word|Seek)([a-z]+)\b")
TOKENS: Final = 100
"""Into which documents are cut, without an overlap: then their parts are chunks."""


def letters(number: int) -> str:
    """A word of its own for each number, of which no other word has a part."""
    found = ""
    while number or len(found) < 4:
        number, rest = divmod(number, 26)
        found = chr(97 + rest) + found
    return f"q{found}q"


def document(numbers: Iterable[int]) -> str:
    """A text with a chunk for each number, which has its word."""
    return "\n\n".join(f"# Part\n\nWord{letters(number)} " + "lies here, " * 24 for number in numbers)


def readers_of(process: Process) -> list[psutil.Process]:
    """The processes in which it reads files. What resumes runs outlives it on purpose."""
    found: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        for each in psutil.Process(process.command.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                found += [each] if "child.py" in " ".join(each.cmdline()) else []
    return found


def check_chunks(url: str, wanted: Iterable[int]) -> list[Broken]:
    """What is wrong with the chunks of a database, whose numbers are told: each is there once, with a vector and with
    its postings, and nothing else is."""
    text = "SELECT e.text FROM searchentry e JOIN searchindex i ON i.id = e.index_id WHERE i.kind = 'knowledge'"
    there = Counter(word for row in query(url, text) for word in CODE.findall(row["text"]))
    words, broken = Counter(map(letters, wanted)), list[Broken]()
    for what, some in (("lost", words - there), ("stored twice, or left", there - words)):
        if some:
            broken.append(Broken(f"{some.total()} chunks are {what}: {[*some][:5]}", "-"))
    entries = query(url, "SELECT index_id, number, terms FROM searchentry")
    vectors = query(url, "SELECT count(*) AS n FROM searchvector")[0]["n"]
    if vectors != len(entries):
        broken.append(Broken(f"{len(entries)} entries have {vectors} vectors", "-"))
    having = Counter(
        (row["index_id"], term, row["number"]) for row in entries for (term,) in struct.iter_unpack("<q", row["terms"])
    )
    postings = Counter(
        (row["index_id"], row["term"], row["block"] * BLOCK + at)
        for row in query(url, "SELECT index_id, term, block, postings FROM searchposting")
        for at, *_ in POSTING.iter_unpack(row["postings"])
    )
    if having != postings:
        less, more = (having - postings).total(), (postings - having).total()
        broken.append(Broken(f"{less} postings are lost, and {more} are of no entry", "-"))
    return broken


def check_left(url: str, temporary: Path, readers: Sequence[psutil.Process]) -> list[Broken]:
    """What is left though all is done: jobs, files in the folder for temporary ones, processes that read files."""
    broken = [
        Broken(f"a job is left: {row}", "-") for row in query(url, "SELECT kind, key, error, attempts FROM work_job")
    ]
    # What a killed server has counted goes when another one starts, a minute later.
    files = (each for each in temporary.rglob("*") if each.is_file())
    if left := [each.name for each in files if not each.parent.name.startswith("drsai-metrics-")]:
        broken.append(Broken(f"files are left: {left[:5]}", "-"))
    _, alive = psutil.wait_procs(readers, timeout=10)
    return broken + [
        Broken(f"a process is left: {each.cmdline()}", "-") for each in alive if each.status() != psutil.STATUS_ZOMBIE
    ]
