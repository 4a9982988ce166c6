"""Postings say in which entries a term is. They are stored packed, those of 1,024 numbers a row, and changed by
synchronous functions of a `Session` that holds the lock of the index.

A row is `POSTING`s by number: which of the block's numbers, how often, and how long the entry is.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

import orjson
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from drsai_backend.database.upserts import Insert, insert_into
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


def add_postings(session: Session, index: int, entries: Sequence[Counted]) -> None:
    """Add the postings of entries whose numbers are higher than any that were given before, in their order."""
    blocks: defaultdict[int, dict[int, bytes]] = defaultdict(dict)
    for number, terms, length in entries:
        block, at = divmod(number, BLOCK)
        packed = {count: POSTING.pack(at, min(count, MOST), length) for count in {*terms.values()}}
        added = blocks[block]
        for term, count in terms.items():
            added[term] = added.get(term, b"") + packed[count]
    adding = _adding(session.get_bind().dialect.name)
    for block, added in blocks.items():
        for part in batches(sorted(added), 10_000):
            postings = [added[term] for term in part]
            lengths = [*map(len, postings)]
            # Bytes are no JSON: each row says which of all of them are its own.
            starts = accumulate(lengths, initial=1)
            rows = orjson.dumps([*zip(part, starts, lengths, strict=False)]).decode()
            values = {"index": index, "block": block, "rows": rows, "packed": b"".join(postings)}
            session.connection().execute(adding, values)


@lru_cache(maxsize=2)
def _adding(dialect: str) -> Insert:
    """The statement that adds to a block: terms come in thousands for each text, and so it holds the interpreter up no
    longer than it takes to write them down."""
    index, block = (sa.bindparam(name, type_=sa.Integer) for name in ("index", "block"))
    rows = sa.bindparam("rows", type_=sa.Text)
    is_sqlite = dialect == "sqlite"
    given = sa.func.json_each(rows) if is_sqlite else sa.func.jsonb_array_elements(sa.cast(rows, postgresql.JSONB))
    each = given.table_valued("value").c.value
    kinds = (sa.BigInteger, sa.Integer, sa.Integer)
    term, start, length = (sa.cast(each.op("->>")(at), kind) for at, kind in enumerate(kinds))
    packed = sa.func.substr(sa.bindparam("packed", type_=sa.LargeBinary), start, length)
    # SQLite does not parse it without a WHERE.
    chosen = sa.select(index, term, block, packed).where(sa.true())
    statement = insert_into(_posting, dialect).from_select(["index_id", "term", "block", "postings"], chosen)
    # SQLite joins bytes to a text, whose bytes they are.
    joined = sa.cast(_posting.c.postings.op("||")(statement.excluded.postings), sa.LargeBinary)
    keys = ["index_id", "term", "block"]
    return statement.on_conflict_do_update(index_elements=keys, set_={"postings": joined})


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
