"""Thread fields (`ThreadField` rows) hold `Thread.tasks`, `team_result` and `meta`.

`tasks` is what the messages of the thread's latest run tell of a plan (`datamodel.task_lists`), unless somebody stored
other ones. So there is one truth: the statuses are those of the stored turn, wherever a process was cut off.

`team_result` is the result of the thread's latest run, told by its `Run` row, unless somebody stored another: it stands
until the next run. The engine writes no result of its own: what the result says is in the run's row and its messages
already, and a copy would cost every run a statement and a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.manager.model import Values
from drsai_backend.database.runs.paths import Line, on_path
from drsai_backend.database.runs.statements import insert_field
from drsai_backend.database.values import batches, clean_json, digest
from drsai_backend.datamodel import AutoGenMessage, Run, RunStatus, Thread, ThreadField, table_of
from drsai_backend.datamodel.file import made_in
from drsai_backend.datamodel.task_lists import MARK, fold
from drsai_backend.errors import Conflict
from drsai_backend.json_types import JsonObject

FIELDS: Final = ("tasks", "team_result", "meta")
_OF_RUN: Final = ("status", "stop_reason", "first_seq", "last_seq", "usage", "started_at", "finished_at", "updated_at")

_thread = table_of(Thread)
_run = table_of(Run)
_field = table_of(ThreadField)
_message = table_of(AutoGenMessage)

# Built once: to put a statement together takes longer than to run it.
_fields_of = sa.select(_field.c.thread_key, _field.c.name, _field.c.value).where(
    _field.c.thread_key.in_(sa.bindparam("keys", expanding=True)), _field.c.name.in_(FIELDS)
)
_latest_runs = (
    sa.select(_thread.c.id, _thread.c.branch, _thread.c.run_id.label("latest"), *(_run.c[name] for name in _OF_RUN))
    .outerjoin(_run, _run.c.run_id == _thread.c.run_id)
    .where(_thread.c.id.in_(sa.bindparam("keys", expanding=True)))
)
_is_marked = _message.c.config["metadata"][MARK].as_string().is_not(None)
_marked_of = (
    sa.select(_message.c.thread_key, _message.c.seq, _message.c.config)
    .join(_thread, _thread.c.id == _message.c.thread_key)
    .join(_run, _run.c.run_id == _thread.c.run_id)
    .where(
        _message.c.thread_key.in_(sa.bindparam("keys", expanding=True)),
        _thread.c.branch.is_(None),
        _message.c.seq >= _run.c.first_seq,
        _is_marked,
    )
    .order_by(_message.c.thread_key, _message.c.seq)
)


def read_fields(session: Session, keys: Sequence[int]) -> dict[int, Values]:
    """The fields of threads that have a value, by their keys. The result of a run names the range of its messages
    (`first_seq`, `last_seq`) in place of the messages."""
    connection = session.connection()
    found: dict[int, Values] = {key: {} for key in keys}
    for part in batches(keys):
        for key, name, value in connection.execute(_fields_of, {"keys": part}):
            found[key][name] = value
        marked: dict[int, list[tuple[int, JsonObject]]] = {}
        for key, seq, config in connection.execute(_marked_of, {"keys": part}):
            marked.setdefault(key, []).append((seq, config))
        for row in connection.execute(_latest_runs, {"keys": part}):
            fields = found[row.id]
            if row.latest is not None and row.branch is not None:
                marked[row.id] = _marked_on_path(session, Line(row.id, row.branch), row.latest)
            if row.id in marked and "tasks" not in fields:
                over = row.status is not None and RunStatus(row.status).is_final
                fields["tasks"] = _tasks_of(marked[row.id], over=over)
            own = fields.pop("team_result", None)
            if own is not None and own["run_id"] == row.latest:
                fields["team_result"] = own["value"]
            elif row.status is not None and RunStatus(row.status) is not RunStatus.RUNNING:
                ended = row.finished_at or row.updated_at
                range_ = {"first_seq": row.first_seq, "last_seq": row.last_seq}
                fields["team_result"] = {
                    "task_result": {"stop_reason": row.stop_reason, **range_},
                    "usage": row.usage or {},
                    "duration": (ended - row.started_at).total_seconds(),
                    "files": [],
                }
    return found


def _tasks_of(marked: Sequence[tuple[int, JsonObject]], *, over: bool) -> list[JsonObject]:
    """The lists that messages tell of. `over`: their run is."""
    lists = fold(marked)
    for each in lists if over else ():
        each.cut()
    return [each.rows() for each in lists]


def _marked_on_path(session: Session, line: Line, run_id: str) -> list[tuple[int, JsonObject]]:
    """Return, of a thread that was rewound, the marked messages of a run on its current branch."""
    query = on_path(_message, line, "seq", _message.c.seq, _message.c.config)
    rows = session.connection().execute(query.where(_message.c.run_id == run_id, _is_marked).order_by(_message.c.seq))
    return [(row.seq, row.config) for row in rows]


def write_fields(session: Session, key: int, tenant: str, run_id: str | None, changed: Values, loaded: Values) -> bool:
    """Writes the fields among `changed` that differ from what is stored. True: some did.

    Raises:
        Conflict: one is not what it was when it was read, according to its digest in `loaded`.
    """
    names = [name for name in FIELDS if name in changed]
    there = read_fields(session, [key])[key] if names else {}
    written = False
    for name in names:
        value, stored = changed[name], digest(there.get(name))
        if stored != loaded.get("stored_team_result" if name == "team_result" else name, stored):
            raise Conflict(f"{name} was changed by somebody else since it was read", param=name)
        if stored == digest(value):
            continue
        if name == "team_result":
            value = {"run_id": run_id, "value": value}
        session.execute(sa.delete(_field).where(_field.c.thread_key == key, _field.c.name == name))
        if value is not None:
            row = {"thread_key": key, "name": name, "value": value, "tenant": tenant}
            insert_field.run(session.connection(), row)
        written = True
    return written


def with_messages(team_result: JsonObject | None, between: Callable[[int, int], list[JsonObject]]) -> JsonObject | None:
    """The result with the messages whose range it names. `between` gives those from one `seq` to another."""
    match team_result:
        case {"task_result": {"first_seq": int() as first, "last_seq": int() as last, **rest}} if (
            "messages" not in rest
        ):
            # A copy: a change in the result must not be one in the messages.
            messages = clean_json(between(first, last), "messages")
            files = team_result.get("files") or made_in(messages)
            return {**team_result, "task_result": {"messages": messages, **rest}, "files": files}
        case _:
            return team_result
