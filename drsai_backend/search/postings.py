"""Postings say in which entries a term is. They are stored packed, those of 1,024 numbers a row, and changed by
synchronous functions of a `Session` that holds the lock of the index.

A row is `POSTING`s by number: which of the block's numbers, how often, and how long the entry is.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias

import orjson
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.upserts import insert_into
from drsai_backend.database.values import batches
from drsai_backend.datamodel import SearchPosting, table_of

BLOCK: Final = 1024
POSTING: Final = struct.Struct("<3H")
MOST: Final = 65_535
"""The highest count and length of a posting; what is longer counts as that."""
_posting = table_of(SearchPosting)


class Counted(NamedTuple):
    """An entry by its terms: how often each is in it, and how many there are."""

    number: int
    terms: Mapping[int, int]
    length: int


Rows: TypeAlias = Sequence[tuple[int, int, bytes]]
"""Terms, each with a block and the postings there: thousands for each text, so they are given with one statement, which
holds the interpreter up no longer than it takes to write them down."""


def add_postings(session: Session, index: int, entries: Sequence[Counted]) -> None:
    """Add the postings of entries whose numbers are higher than any that were given before, in their order."""
    added: defaultdict[tuple[int, int], bytearray] = defaultdict(bytearray)
    for number, terms, length in entries:
        block, at = divmod(number, BLOCK)
        for term, count in terms.items():
            added[term, block] += POSTING.pack(at, min(count, MOST), length)
    of_index = _of_index_sqlite if (dialect := session.get_bind().dialect.name) == "sqlite" else _of_index_postgresql
    for part in batches(sorted(added), 10_000):
        rows = of_index(index, [(*place, bytes(added[place])) for place in part])
        statement = insert_into(_posting, dialect).from_select(["index_id", "term", "block", "postings"], rows)
        # SQLite joins bytes to a text, whose bytes they are.
        joined = sa.cast(_posting.c.postings.op("||")(statement.excluded.postings), sa.LargeBinary)
        keys = ["index_id", "term", "block"]
        session.connection().execute(statement.on_conflict_do_update(index_elements=keys, set_={"postings": joined}))


def _of_index_sqlite(index: int, rows: Rows) -> sa.SelectBase:
    ends = [0, *accumulate(len(packed) for *_, packed in rows)]
    # Bytes are no JSON: each row says which of all of them are its own.
    told = [[term, block, at + 1, len(packed)] for (term, block, packed), at in zip(rows, ends, strict=False)]
    each = sa.func.json_each(orjson.dumps(told).decode()).table_valued("value").c.value
    term, block, start, length = (each.op("->>")(number) for number in range(4))
    packed = sa.func.substr(b"".join(packed for *_, packed in rows), start, length)
    return sa.select(sa.literal(index), term, block, packed).where(sa.true())  # It does not parse without.


def _of_index_postgresql(index: int, rows: Rows) -> sa.SelectBase:
    kinds = (sa.BigInteger, sa.Integer, sa.LargeBinary)
    columns = [sa.cast([*of], sa.ARRAY(kind)) for of, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    given = sa.func.unnest(*columns).table_valued("term", "block", "postings").render_derived()
    return sa.select(sa.literal(index), *given.c)


def remove_postings(session: Session, index: int, entries: Mapping[int, Sequence[int]]) -> None:
    """Remove the postings of entries: numbers, each with its terms."""
    gone: defaultdict[int, set[int]] = defaultdict(set)
    touched: defaultdict[int, set[int]] = defaultdict(set)
    for number, terms in entries.items():
        block, at = divmod(number, BLOCK)
        gone[block].add(at)
        touched[block].update(terms)
    connection, c = session.connection(), _posting.c
    for block, numbers in gone.items():
        for some in batches(sorted(touched[block])):
            here = (c.index_id == index, c.block == block)
            rows = connection.execute(sa.select(c.term, c.postings).where(*here, c.term.in_(some))).all()
            kept = {term: _without(postings, numbers) for term, postings in rows}
            empty = [term for term, postings in kept.items() if not postings]
            connection.execute(sa.delete(_posting).where(*here, c.term.in_(empty)))
            if left := [{"of": term, "now": postings} for term, postings in kept.items() if postings]:
                update = sa.update(_posting).where(*here, c.term == sa.bindparam("of"))
                connection.execute(update.values(postings=sa.bindparam("now")), left)


def _without(postings: bytes, numbers: Collection[int]) -> bytes:
    return b"".join(POSTING.pack(*each) for each in POSTING.iter_unpack(postings) if each[0] not in numbers)
