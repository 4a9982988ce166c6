"""A round trip of psycopg's pipeline carries several guarded statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus

from drsai_backend.database.backends.errors import is_lost

Row: TypeAlias = tuple[Any, ...]
Text: TypeAlias = tuple[str, object]
"""A statement and its parameters, as the driver takes them."""


class CommitUncertain(Exception):
    """The connection was lost after COMMIT was sent: nobody knows whether it happened."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


async def in_one_round_trip(
    driver: psycopg.AsyncConnection[Row],
    texts: Sequence[Text],
    read: Sequence[int],
    *,
    may_commit: bool,
    is_guarded: bool,
) -> tuple[list[Row], bool]:
    """Run statements. Returns the first rows of those whose places are in `read`, each of which gives one, and whether
    all is committed. `may_commit`: nothing comes after them, and they are committed here where that spares a round
    trip."""
    commits = may_commit and (not is_guarded or driver.info.transaction_status is TransactionStatus.IDLE)
    return await (_transaction if commits else _pipeline)(driver, texts, read), commits


async def _pipeline(driver: psycopg.AsyncConnection[Row], texts: Sequence[Text], read: Sequence[int]) -> list[Row]:
    """Return the first rows of the statements that are read."""
    # One for what nobody reads: each cursor looks up anew how values are written.
    cursors, others = {number: driver.cursor() for number in read}, driver.cursor()
    failed: psycopg.Error | None = None
    try:
        async with driver.pipeline():
            try:
                for number, (sql, parameters) in enumerate(texts):
                    cursor = cursors.get(number, others)
                    await cursor.execute(sql, parameters)  # pyright: ignore[reportArgumentType] - made by SQLAlchemy
            except psycopg.Error as error:
                failed = error  # Raised out of the block, it would have psycopg log what the block's end then meets.
    except psycopg.Error as error:
        failed = failed or error
    if failed is not None:
        raise failed
    return [row for cursor in cursors.values() if (row := await cursor.fetchone()) is not None]


async def _transaction(driver: psycopg.AsyncConnection[Row], texts: Sequence[Text], read: Sequence[int]) -> list[Row]:
    """The statements and their COMMIT, in one round trip. Where nothing was sent before, without BEGIN and COMMIT: what
    a client sends up to a Sync is a transaction by itself (PostgreSQL: libpq, Pipeline Mode), and psycopg waits for the
    answer to BEGIN."""
    implicit = driver.info.transaction_status is TransactionStatus.IDLE
    try:
        if implicit:
            await driver.set_autocommit(True)
        return await _pipeline(driver, texts if implicit else [*texts, ("COMMIT", None)], read)
    except psycopg.OperationalError as error:
        if is_lost(error):
            raise CommitUncertain(error) from None
        raise
    finally:
        if implicit and not driver.closed:
            await driver.set_autocommit(False)
