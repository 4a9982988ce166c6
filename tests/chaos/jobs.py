"""Jobs of a database, and which of them were under way when their process was killed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from tests.chaos.databases import query

_SPARED: Final = 5
"""Attempts of a job after which no process is killed until it has got further."""


class Jobs:
    """Jobs that are not done.

    Attributes:
        hits: of each kind, how many were under way when their process was killed.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._seen: set[tuple[int, int]] = set()
        self.hits: Counter[str] = Counter()

    def count(self, kind: str | None = None) -> int:
        """How many there are, of a kind or of all."""
        return sum(kind in (None, job["kind"]) for job in self._read())

    def is_under_way(self, kind: str) -> bool:
        """Whether a process does such a job that was not killed at it."""
        return any(job["kind"] == kind for job in self._claimed())

    def may_be_cut(self) -> bool:
        """Whether no job has to be spared: one that is cut eight times before it gets any further has failed, and is
        meant to have."""
        return all(job["attempts"] < _SPARED for job in self._read())

    def note_killed(self) -> None:
        """Count what was under way: all processes are killed."""
        for job in self._claimed():
            self._seen.add((job["id"], job["epoch"]))
            self.hits[job["kind"]] += 1

    def _claimed(self) -> list[dict[str, Any]]:
        return [job for job in self._read() if job["claim"] is not None and (job["id"], job["epoch"]) not in self._seen]

    def _read(self) -> list[dict[str, Any]]:
        text = "SELECT id, kind, epoch, claim, attempts FROM work_job WHERE next_at IS NOT NULL"
        return query(self._url, text)


async def until(true: Callable[[], bool], seconds: float) -> None:
    """Wait until what rows say is true. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(true):  # noqa: ASYNC110 - rows, which no event tells of
            await asyncio.sleep(0.02)
