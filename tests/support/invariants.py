"""What is true of a database at every moment, whoever writes to it at once: queries, each of the rows that break it.

`check` is called after every test in which several act at the same time, or somebody is killed.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlmodel import SQLModel

from drsai_backend.database.engine import parse_url
from drsai_backend.database.schemas import own_tables

_UNFINISHED = "('running', 'awaiting_input', 'paused')"
_FINAL = "('completed', 'stopped', 'error')"
COUNTED: Final = "what a run has used is what its model calls have used, each once"
"""Not of a run that the release before has begun."""
INVARIANTS: Final[dict[str, str]] = {
    "messages are numbered 1 to last_seq, without a gap": """
        SELECT t.thread_id, t.last_seq, count(m.id), min(m.seq), max(m.seq)
        FROM thread t LEFT JOIN autogenmessage m ON m.thread_key = t.id GROUP BY t.id, t.thread_id, t.last_seq
        HAVING count(m.id) <> t.last_seq OR coalesce(max(m.seq), 0) <> t.last_seq OR coalesce(min(m.seq), 1) <> 1
    """,
    "turns of the journal follow each other, up to the thread's": """
        SELECT t.thread_id, t.turn, count(j.turn), min(j.turn), max(j.turn)
        FROM thread t JOIN journalentry j ON j.thread_key = t.id GROUP BY t.id, t.thread_id, t.turn
        HAVING max(j.turn) <> t.turn OR count(j.turn) <> max(j.turn) - min(j.turn) + 1
    """,
    "a turn's messages come after those of the turn before it": """
        SELECT a.thread_key, a.turn FROM journalentry a JOIN journalentry b
        ON b.thread_key = a.thread_key AND b.turn = a.turn + 1 WHERE b.first_seq <= a.last_seq
    """,
    "states take in what is there": """
        SELECT s.thread_key, s.turn FROM threadsnapshot s JOIN thread t ON t.id = s.thread_key WHERE s.turn > t.turn
    """,
    "the current branch is the newest, and begins where the thread has been": """
        SELECT t.thread_id, t.branch, max(b.number), max(b.first_seq) FROM thread t
        LEFT JOIN threadbranch b ON b.thread_key = t.id GROUP BY t.id, t.thread_id, t.branch, t.last_seq
        HAVING coalesce(t.branch, -1) <> coalesce(max(b.number), -1) OR coalesce(max(b.first_seq), 0) > t.last_seq + 1
    """,
    "a thread counts the inputs that wait": """
        SELECT t.thread_id, t.queued, count(q.id) FROM thread t
        LEFT JOIN queuedinput q ON q.thread_key = t.id GROUP BY t.id, t.thread_id, t.queued
        HAVING t.queued <> count(q.id)
    """,
    "an input waits if, and only if, its run is created": """
        SELECT r.run_id, r.status, q.run_id FROM run r FULL JOIN queuedinput q ON q.run_id = r.run_id
        WHERE r.run_id IS NULL OR (r.status = 'created') <> (q.run_id IS NOT NULL)
            OR (q.run_id IS NOT NULL AND q.thread_key <> r.thread_key)
    """,
    "a thread has the status of its run": f"""
        SELECT t.thread_id, t.status, r.run_id, r.status FROM thread t LEFT JOIN run r ON r.run_id = t.run_id
        WHERE t.status IN {_UNFINISHED} AND (r.status IS NULL OR r.status <> t.status)
    """,
    "a run that is not over is its thread's": f"""
        SELECT r.run_id, r.status, t.run_id, t.status FROM run r LEFT JOIN thread t ON t.id = r.thread_key
        WHERE r.status IN {_UNFINISHED} AND (t.run_id IS NULL OR t.run_id <> r.run_id OR t.status <> r.status)
    """,
    "a run has an end if, and only if, it is over": f"""
        SELECT run_id, status, finished_at FROM run WHERE (status IN {_FINAL}) <> (finished_at IS NOT NULL)
    """,
    "times go forward": """
        SELECT run_id FROM run WHERE finished_at < started_at OR updated_at < created_at
        UNION ALL SELECT thread_id FROM thread WHERE updated_at < created_at
    """,
    "only a thread whose run is live is leased": """
        SELECT thread_id, status, lease_owner FROM thread WHERE lease_owner IS NOT NULL AND status <> 'running'
    """,
    "only a turn in flight, or one that has failed, has steps": f"""
        SELECT s.thread_key, s.turn, s.run_id, t.run_id, t.turn
        FROM turnstep s LEFT JOIN thread t ON t.id = s.thread_key
        WHERE (t.status NOT IN {_UNFINISHED} AND t.status <> 'error') OR s.run_id <> t.run_id OR s.turn <> t.turn + 1
    """,
    "what names a run names one of its thread": """
        SELECT m.thread_key, m.seq, m.run_id FROM autogenmessage m
        WHERE m.run_id IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM run r WHERE r.run_id = m.run_id AND r.thread_key = m.thread_key)
        UNION ALL SELECT j.thread_key, 0, j.run_id FROM run j WHERE j.joined IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM run r WHERE r.run_id = j.joined AND r.thread_key = j.thread_key)
        UNION ALL SELECT w.thread_key, 0, w.run_id FROM runwebhook w WHERE NOT EXISTS (
            SELECT 1 FROM run r WHERE r.run_id = w.run_id AND r.thread_key = w.thread_key)
    """,
    "the request of a thread goes with it": """
        SELECT u.thread_id FROM userinput u WHERE NOT EXISTS (SELECT 1 FROM thread t
            WHERE t.tenant = u.tenant AND t.user_id = u.user_id AND t.thread_id = u.thread_id)
    """,
    "a file has bytes, and bytes have a file": """
        SELECT f.file_id FROM storedfile f WHERE NOT EXISTS (SELECT 1 FROM filecontent c
            WHERE c.tenant = f.tenant AND c.user_id = f.user_id AND c.sha256 = f.sha256)
        UNION ALL SELECT c.token FROM filecontent c WHERE c.sha256 IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM storedfile f WHERE f.tenant = c.tenant AND f.user_id = c.user_id AND f.sha256 = c.sha256)
    """,
    COUNTED: """
        SELECT r.run_id, u.prompt_tokens, u.completion_tokens FROM run r JOIN (
            SELECT run, sum(prompt_tokens) prompt_tokens, sum(completion_tokens) completion_tokens
            FROM usageentry WHERE run IS NOT NULL GROUP BY run) u ON u.run = r.run_id
        WHERE CAST(r.usage ->> 'prompt_tokens' AS BIGINT) <> u.prompt_tokens
            OR CAST(r.usage ->> 'completion_tokens' AS BIGINT) <> u.completion_tokens
    """,
    "the newest version of a name is the one that is served, if any is": """
        SELECT a.name, a.version FROM storeddefinition a JOIN storeddefinition b
        ON b.tenant = a.tenant AND b.user_id = a.user_id AND b.name = a.name AND b.version > a.version
        WHERE a.ended_at IS NULL
        UNION ALL SELECT a.name, a.version FROM registeredtool a JOIN registeredtool b
        ON b.tenant = a.tenant AND b.name = a.name AND b.version > a.version WHERE a.ended_at IS NULL
    """,
    "an index counts what it has": """
        SELECT i.id, i.entries, count(e.number), i.length, coalesce(sum(e.length), 0)
        FROM searchindex i LEFT JOIN searchentry e ON e.index_id = i.id GROUP BY i.id, i.entries, i.length
        HAVING i.entries <> count(e.number) OR i.length <> coalesce(sum(e.length), 0)
    """,
    "a vector has an entry": """
        SELECT v.index_id, v.number FROM searchvector v WHERE NOT EXISTS (
            SELECT 1 FROM searchentry e WHERE e.index_id = v.index_id AND e.number = v.number)
    """,
    "an index is somebody's, or a job drops it": """
        SELECT i.id, i.kind FROM searchindex i WHERE i.kind IN ('knowledge', 'memory')
        AND NOT EXISTS (SELECT 1 FROM knowledgestore s WHERE i.id IN (s.index_key, s.next_key))
        AND NOT EXISTS (SELECT 1 FROM memoryperson p WHERE p.tenant = i.tenant AND p.user_id = i.user_id
            AND i.kind = 'memory' AND p.index_key IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM work_job j WHERE j.kind = 'knowledge_drop'
            AND j.key = CAST(i.id AS VARCHAR(20)) || '-all')
    """,
    "a file that is read has its chunks": """
        SELECT f.id, f.chunks, f.done, count(e.number) FROM knowledgefile f
        JOIN knowledgestore s ON s.id = f.store_key LEFT JOIN searchentry e
        ON e.index_id = s.index_key AND e.family = CAST(f.id AS VARCHAR(20))
        WHERE f.status = 'completed' AND s.index_key IS NOT NULL GROUP BY f.id, f.chunks, f.done
        HAVING f.chunks <> f.done OR f.chunks <> count(e.number)
    """,
    "what is remembered now is found, and nothing else": """
        SELECT m.memory_id, e.ref FROM (SELECT tenant, user_id, memory_id FROM memory WHERE expired_at IS NULL) m
        FULL JOIN (SELECT p.tenant, p.user_id, e.ref FROM memoryperson p
            JOIN searchentry e ON e.index_id = p.index_key) e
        ON e.tenant = m.tenant AND e.user_id = m.user_id AND e.ref = m.memory_id
        WHERE m.memory_id IS NULL OR e.ref IS NULL
    """,
}


def _orphans() -> dict[str, sa.Select[Any]]:
    """Of each foreign key of the package's tables, the rows whose parent is not there."""
    found: dict[str, sa.Select[Any]] = {}
    for name in own_tables():
        table = SQLModel.metadata.tables[name]
        for key in table.foreign_keys:
            parent = key.column.table.alias()
            known = sa.exists().where(parent.c[key.column.name] == key.parent)
            found[f"{name}.{key.parent.name} refers to a row"] = sa.select(key.parent).where(
                key.parent.is_not(None), ~known
            )
    return found


def broken(url: str) -> list[str]:
    """What does not hold in a database, with the rows that say so."""
    engine = sa.create_engine(parse_url(url), poolclass=sa.NullPool)
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            queries = {**{what: sa.text(query) for what, query in INVARIANTS.items()}, **_orphans()}
            rows = {what: connection.execute(query).fetchmany(5) for what, query in queries.items()}
    engine.dispose()
    return [f"{what}: {[tuple(row) for row in found]}" for what, found in rows.items() if found]


def check(url: str, but: str | None = None) -> None:
    """Fail unless all of it holds, but for one."""
    assert [each for each in broken(url) if but is None or not each.startswith(but)] == []
