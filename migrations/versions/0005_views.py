"""Views for people who ask the database with SQL: drsai_threads, drsai_runs, drsai_messages. docs/database.md has them.

Revision ID: 0005
Revises: 0004
"""

import re

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Each row is made of its own row and of others found by their keys, so that a filter on the view's thread, user or time
# reaches the tables' indexes. Times are timestamps on PostgreSQL and ISO text in UTC on SQLite, which has no such type
# and whose date functions take that; the text sorts as the times do.
# A number that is not there, or not a number, is NULL on both.
THREADS = """
CREATE VIEW drsai_threads AS
SELECT t.id AS thread_key, t.user_id AS "user", t.thread_id AS thread, t.title, t.team, t.status,
    t.last_seq AS messages, t.queued, t.run_id AS run, t.error_message AS error, {question} AS question,
    {t.created_at} AS created_at, {t.updated_at} AS updated_at
FROM thread t
"""
RUNS = """
CREATE VIEW drsai_runs AS
SELECT t.id AS thread_key, t.user_id AS "user", t.thread_id AS thread, r.run_id AS run, r.team, r.status,
    r.attempt, r.turns, r.stop_reason, r.error_message AS error,
    {prompt_tokens} AS prompt_tokens, {completion_tokens} AS completion_tokens, {total_tokens} AS total_tokens,
    r.first_seq, r.last_seq, {r.created_at} AS created_at, {r.started_at} AS started_at, {r.finished_at} AS finished_at,
    {seconds} AS seconds
FROM run r JOIN thread t ON t.id = r.thread_key
"""
MESSAGES = """
CREATE VIEW drsai_messages AS
SELECT t.id AS thread_key, t.user_id AS "user", t.thread_id AS thread, m.run_id AS run,
    COALESCE(r.team, t.team) AS team, m.seq, {source} AS source, {type} AS type, {text} AS text,
    {prompt} AS prompt_tokens, {completion} AS completion_tokens, {m.created_at} AS "time"
FROM autogenmessage m JOIN thread t ON t.id = m.thread_key LEFT JOIN run r ON r.run_id = m.run_id
"""


class _Columns(dict[str, str]):
    """What stands for `{…}`; a column of time by its own name."""

    def __init__(self, time: str, **parts: str) -> None:
        super().__init__(parts)
        self._time = time

    def __missing__(self, name: str) -> str:
        return self._time.format(name)


def _sqlite() -> _Columns:
    def number(path: str, column: str = "r.usage") -> str:
        return f"CASE json_type({column}, '{path}') WHEN 'integer' THEN json_extract({column}, '{path}') END"

    def text(name: str) -> str:
        return f"CASE json_type(m.config, '$.{name}') WHEN 'text' THEN json_extract(m.config, '$.{name}') END"

    content = "json_extract(m.config, '$.content')"
    # A list of parts: the texts among them, a line each. Anything else that is no text: as JSON.
    parts = (
        "(SELECT group_concat(part.value, char(10)) FROM (SELECT value, type FROM json_each(m.config, '$.content') "
        "ORDER BY key) part WHERE part.type = 'text')"
    )
    return _Columns(
        "strftime('%Y-%m-%d %H:%M:%S', {0} / 1000000, 'unixepoch') || printf('.%06d', {0} % 1000000)",
        question="CASE t.status WHEN 'awaiting_input' THEN json_extract(t.input_request, '$.prompt') END",
        prompt_tokens=number("$.prompt_tokens"),
        completion_tokens=number("$.completion_tokens"),
        total_tokens=number("$.total_tokens"),
        seconds="(r.finished_at - r.started_at) / 1000000.0",
        source=text("source"),
        type=text("type"),
        text=f"CASE json_type(m.config, '$.content') WHEN 'text' THEN {content} WHEN 'array' THEN {parts} END",
        prompt=number("$.models_usage.prompt_tokens", "m.config"),
        completion=number("$.models_usage.completion_tokens", "m.config"),
    )


def _postgresql() -> _Columns:
    def number(path: str, column: str = "r.usage") -> str:
        return (
            f"CASE jsonb_typeof({column} #> '{path}') WHEN 'number' THEN ({column} #>> '{path}')::numeric::bigint END"
        )

    def text(name: str) -> str:
        return f"CASE jsonb_typeof(m.config -> '{name}') WHEN 'string' THEN m.config ->> '{name}' END"

    parts = (
        "(SELECT string_agg(part.value #>> '{}', chr(10) ORDER BY part.n) FROM "
        "jsonb_array_elements(m.config -> 'content') WITH ORDINALITY part (value, n) "
        "WHERE jsonb_typeof(part.value) = 'string')"
    )
    return _Columns(
        "{0}",
        question="CASE t.status WHEN 'awaiting_input' THEN t.input_request ->> 'prompt' END",
        prompt_tokens=number("{prompt_tokens}"),
        completion_tokens=number("{completion_tokens}"),
        total_tokens=number("{total_tokens}"),
        seconds="EXTRACT(epoch FROM r.finished_at - r.started_at)::double precision",
        source=text("source"),
        type=text("type"),
        text="CASE jsonb_typeof(m.config -> 'content') WHEN 'string' THEN m.config ->> 'content' "
        f"WHEN 'array' THEN {parts} END",
        prompt=number("{models_usage,prompt_tokens}", "m.config"),
        completion=number("{models_usage,completion_tokens}", "m.config"),
    )


def upgrade() -> None:
    columns = _postgresql() if op.get_context().dialect.name == "postgresql" else _sqlite()
    for view in (THREADS, RUNS, MESSAGES):
        op.execute(_filled(view, columns))


def _filled(view: str, columns: _Columns) -> str:
    """The statement; its colons are none of parameters."""
    return re.sub(r"\{([\w.]+)\}", lambda found: columns[found[1]], view).replace(":", r"\:")


def downgrade() -> None:
    for view in ("drsai_messages", "drsai_runs", "drsai_threads"):
        op.execute(f"DROP VIEW {view}")
