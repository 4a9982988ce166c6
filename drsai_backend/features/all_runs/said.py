"""A search for words and tools in runs reads a bounded number of messages a page, as no index has them: so a page may
have no run, and a next one. Synchronous functions of a `Session`.

The letters A to Z are equal to a to z, and no others, as not all databases know more. Searched are the texts within the
content of messages, as they are stored with each turn: what people, agents and tools have said, and arguments of calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, JSONPATH
from sqlalchemy.orm import Session

from drsai_backend.database.pages import Cursor, Query, given
from drsai_backend.datamodel import AutoGenMessage, Run, Thread, table_of
from drsai_backend.datamodel.lifecycle import UNFINISHED
from drsai_backend.features.all_runs.base import Wanted
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page, cut
from drsai_backend.runs.steps.derive import CALLS

MOST_RUNS: Final = 1_000
MOST_MESSAGES: Final = 5_000
"""What is looked at for a page; of messages those of one run at least."""
_r, _t, _config = table_of(Run).c, table_of(Thread).c, table_of(AutoGenMessage).c.config
_message = table_of(AutoGenMessage).c
_last = sa.case((_r.status.in_(UNFINISHED), _t.last_seq), else_=_r.last_seq)
COUNT: Final = (_last - _r.first_seq + 1).label("messages")
"""How many messages a run has."""
_kind = _config["type"].as_string()
_PARTS: Final = "MultiModalMessage"
"""Its texts stand in a list; beside them are pictures."""


def read_page(
    session: Session, cursor: Cursor, query: Query, of: Wanted, after: str | None, limit: int
) -> Page[JsonObject]:
    """Read a page of the runs of a query, which must have the column `COUNT`, in which that was said. Raises as
    `Cursor.behind`."""
    connection = session.connection()
    rows = [dict(row) for row in connection.execute(cursor.sorted(query, after).limit(MOST_RUNS + 1)).mappings()]
    looked, left = 0, MOST_MESSAGES
    for row in rows[:MOST_RUNS]:
        left -= row["messages"]
        if left < 0 and looked:
            break
        looked += 1
    ids = [row["id"] for row in rows[:looked]]
    joined = sa.select(_r.id).join(table_of(Thread), _r.thread_key == _t.id).where(_r.id.in_(ids))
    said = {*connection.execute(joined.where(*_terms(connection.dialect.name, of))).scalars()}
    page = cut([row for row in rows[:looked] if row["id"] in said], limit, cursor.place)
    if page.next is None and looked < len(rows):
        return page.model_copy(update={"next": cursor.place(rows[looked - 1])})
    return page


def _terms(dialect: str, of: Wanted) -> list[sa.ColumnElement[bool]]:
    """Return what is asked of a run: each by a message of its own."""
    says, calls = (_says, _calls) if dialect == "postgresql" else (_says_in_sqlite, _calls_in_sqlite)

    def somewhere(term: Callable[[str], sa.ColumnElement[bool]], value: str) -> sa.ColumnElement[bool]:
        own = (_message.thread_key == _r.thread_key, _message.seq.between(_r.first_seq, _last))
        # With an offset PostgreSQL looks at the messages of each run, in place of a join with those of all.
        found = sa.select(_message.id).where(*own, term(value)).offset(0)
        return found.correlate(table_of(Run), table_of(Thread)).exists()

    return given((of.text, lambda text: somewhere(says, text)), (of.tool, lambda tool: somewhere(calls, tool)))


def _says(text: str) -> sa.ColumnElement[bool]:
    # A path that is written out is parsed once, and not for each message; in the collation C only A to Z become small.
    parts, whole = (
        sa.literal_column(f"""'{place} ? (@.type() == "string")'::jsonpath""", JSONPATH())
        for place in ("$.content[*]", "$.content.**")
    )
    path = sa.case((_kind == _PARTS, parts), else_=whole)
    found = sa.func.jsonb_path_query(_config, path, type_=JSONB).table_valued("value").render_derived()
    value = found.c.value.op("#>>", return_type=sa.Text())(sa.literal_column("'{}'", sa.Text()))
    low, searched = (sa.func.lower(sa.collate(each, "C")) for each in (value, sa.literal(text)))
    return sa.exists().select_from(found).where(sa.func.strpos(low, searched) > 0)


def _calls(tool: str) -> sa.ColumnElement[bool]:
    return sa.type_coerce(_config, JSONB).contains({"type": CALLS, "content": [{"name": tool}]})


def _says_in_sqlite(text: str) -> sa.ColumnElement[bool]:
    found = sa.func.json_tree(_config, "$.content").table_valued("type", "path", "atom")
    is_text = (found.c.type == "text", sa.or_(_kind.is_distinct_from(_PARTS), found.c.path == "$.content"))
    return sa.exists().where(*is_text, sa.func.instr(sa.func.lower(found.c.atom), sa.func.lower(text)) > 0)


def _calls_in_sqlite(tool: str) -> sa.ColumnElement[bool]:
    call = sa.func.json_each(_config, "$.content").table_valued("type", "value")
    name = sa.func.json_extract(call.c.value, "$.name")
    return sa.and_(_kind == CALLS, sa.exists().where(call.c.type == "object", name == tool))
