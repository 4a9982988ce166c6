"""Owned rows are filtered here, and nowhere else, by whose they are.

A query of a table that has an owner takes its terms from here, or goes by the key of a thread that was found so. What
a whole database is swept for (runs that nobody runs, threads to prune) is the exception:
tests/api/access/test_owned_queries.py lists it.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from drsai_backend.datamodel.owner import Owner, ThreadName

Terms = tuple[sa.ColumnElement[bool], ...]


def owned_by(table: sa.FromClause, owner: Owner, *, by_index: bool = True) -> Terms:
    """The rows of an owner. `by_index=False`: another condition finds them with fewer rows to look at."""
    c = table.c
    user = c.user_id if by_index else c.user_id + ""
    tenant = c.tenant if by_index else c.tenant + ""
    return tenant == owner.tenant, user == owner.user_id


def of_thread(table: sa.FromClause, name: ThreadName) -> Terms:
    """The thread of that name, or the rows that are named after it."""
    return *owned_by(table, name.owner), table.c.thread_id == name.thread_id


def named(table: sa.FromClause) -> Terms:
    """`of_thread` for a statement that is made once: its parameters are the name's `_asdict()`."""
    return tuple(table.c[column] == sa.bindparam(column) for column in NAME)


def owner_named(table: sa.FromClause) -> Terms:
    """`owned_by` for a statement that is made once, and whose other terms find fewer rows: its parameters are the
    owner's `_asdict()`."""
    return tuple(table.c[column] + "" == sa.bindparam(column) for column in Owner._fields)


def any_of_threads(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """The rows named after any of the threads that the parameter `threads` lists."""
    return sa.tuple_(*(table.c[column] for column in NAME)).in_(sa.bindparam("threads", expanding=True))


NAME: Final = ThreadName._fields
"""The columns that find a thread."""
