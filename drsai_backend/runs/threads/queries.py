"""The queries here get pages of threads, runs, messages and questions, for who asks: storage functions of a `Session`.
A user gets own threads, except where a function says otherwise."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.access.principal import Principal
from drsai_backend.database.manager.thread_fields import read_fields
from drsai_backend.database.owned import of_thread, owned_by
from drsai_backend.database.pages import Cursor, Query, given, read_page, read_sized
from drsai_backend.database.runs.paths import END, Line, line_of, on_path
from drsai_backend.database.runs.reads import head_of
from drsai_backend.database.shares import granted_to, share
from drsai_backend.datamodel import AutoGenMessage, Right, Run, RunStatus, Thread
from drsai_backend.datamodel.base import table_of
from drsai_backend.datamodel.encrypted import texts_of
from drsai_backend.datamodel.file import files_of
from drsai_backend.datamodel.lifecycle import FINAL, SUSPENDED, UNFINISHED, WAITING
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import NotFound, UnknownPlace
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page
from drsai_backend.runs.threads.views import (
    InputRequestView,
    RunView,
    SharedThread,
    StoredMessage,
    ThreadDetail,
    ThreadSummary,
    detail_of,
)
from drsai_backend.teams.client_tools.definitions import calls_of
from drsai_backend.teams.messages import ASIDE, read_message

_thread = table_of(Thread)
_message = table_of(AutoGenMessage)
_run = table_of(Run)
_ANSWERED = (FINAL | SUSPENDED) - {RunStatus.ERROR}
IS_WAITING: Final = _run.c.status.in_([sa.literal_column(f"'{status}'") for status in WAITING])
"""Runs that are not over, and that nobody runs: in words from which SQLite knows the partial index that has them."""
_asker = _thread.c.input_request["asker"].as_string()
# What a list shows of a thread: what it has under the same names, and how many messages there are.
_summary = (
    _thread.c.id,
    *(_thread.c[name] for name in ThreadSummary.model_fields if name in _thread.c),
    _thread.c.last_seq.label("message_count"),
)
_head = (_thread.c.run_id.label("head_run"), _thread.c.status.label("head_status"), _thread.c.input_request)

NEWEST: Final = Cursor((_thread.c.updated_at, _thread.c.id), r"^([0-9]{1,11}\.[0-9]{6})-([0-9]{1,18})$")
"""How lists of threads are sorted."""
_RUNS: Final = Cursor((_run.c.id,))


def read_detail(session: Session, name: ThreadName, *, is_new: bool = False) -> ThreadDetail:
    """A thread that is there, without its `team_result`, which takes its messages. `is_new`: it was made just now, and
    has had no run: so it has neither tasks nor `meta`."""
    thread = table_of(Thread)
    with texts_of(name.tenant):
        row = session.connection().execute(sa.select(thread).where(*of_thread(thread, name))).mappings().one()
    fields = {**({} if is_new else read_fields(session, [row["id"]])[row["id"]]), "team_result": None}
    return detail_of(Thread(**row)).model_copy(update=fields)


def list_threads(
    session: Session, owner: Owner, after: str | None, limit: int, status: RunStatus | None = None
) -> Page[ThreadSummary]:
    """See `Engine.list_threads`. Raises InvalidRequest where `after` is no cursor."""
    query = threads_query(owner, after, status)
    with texts_of(owner.tenant):
        return read_page(session, query, limit, NEWEST.place).map(ThreadSummary.model_validate)


def list_input_requests(session: Session, who: Principal, after: str | None, limit: int) -> Page[InputRequestView]:
    """See `Engine.list_input_requests`. Raises InvalidRequest where `after` is no cursor."""
    with texts_of(who.tenant):
        page = read_page(session, input_requests_query(who, after), limit, NEWEST.place)
    asked = [InputRequestView.model_validate(row) for row in page.items if row["input_request"] is not None]
    return Page(items=asked, next=page.next)


def input_requests_query(who: Principal, after: str | None) -> Query:
    """The threads whose questions wait for somebody, newest first, of which a page is to be taken: those that name
    them, by an index, and those that name nobody and are shared with them."""
    t = _thread.c
    by = t.input_request["by"].as_string()
    # In the words of the partial index.
    waiting = _run.c.status == sa.literal_column("'awaiting_input'")
    mine = sa.select(_run.c.thread_key).where(
        waiting, _run.c.waits_in == who.tenant, _run.c.waits_for.in_(sorted(who.names))
    )
    may = share.c.right.in_([right.value for right in Right if right.covers(Right.ANSWER)])
    joined = sa.join(share, _thread, share.c.thread_key == t.id)
    asked = sa.and_(t.status == RunStatus.AWAITING_INPUT, by.is_(None))
    shared = sa.select(share.c.thread_key).select_from(joined).where(granted_to(who.tenant, who.names), may, asked)
    not_asker = sa.or_(t.input_request["not_by"].as_string().is_(None), _asker != who.user_id)
    columns = (t.id, t.thread_id, t.title, t.team, t.updated_at, t.run_id, t.user_id.label("owner"), t.input_request)
    query = sa.select(*columns).where(t.id.in_(sa.union_all(mine, shared)), t.status == RunStatus.AWAITING_INPUT)
    return NEWEST.sorted(query.where(t.tenant + "" == who.tenant, not_asker), after)


def list_shared_threads(
    session: Session, who: Principal, after: str | None, limit: int, status: RunStatus | None = None
) -> Page[SharedThread]:
    """See `Engine.list_shared_threads`. Raises InvalidRequest where `after` is no cursor."""
    rank = sa.case(*((share.c.right == right.value, right.rank) for right in Right))
    best = sa.select(share.c.thread_key, sa.func.max(rank).label("rank"))
    granted = best.where(granted_to(who.tenant, who.names)).group_by(share.c.thread_key).subquery()
    t = _thread.c
    query = sa.select(*_summary, t.user_id.label("owner"), granted.c.rank)
    query = query.join(granted, granted.c.thread_key == t.id).where(t.user_id != who.user_id)
    query = query.where(*given((status, t.status.__eq__)))
    page = NEWEST.page(session, query, after, limit)
    return page.map(lambda row: SharedThread.model_validate({**row, "right": [*Right][row["rank"]]}))


def threads_query(owner: Owner, after: str | None, status: RunStatus | None) -> Query:
    """The threads of a list, newest first, of which a page is to be taken."""
    t = _thread.c
    query = sa.select(*_summary)
    if status is not None and status in UNFINISHED:
        # Few of many: a thread of such a status has a run of it, and those have an index of their own.
        runs = sa.select(_run.c.thread_key).where(of_status(status))
        query = query.where(t.id.in_(runs), t.status == status, *owned_by(_thread, owner, by_index=False))
    else:
        query = query.where(*owned_by(_thread, owner), *given((status, t.status.__eq__)))
    return NEWEST.sorted(query, after)


def of_status(status: RunStatus) -> sa.ColumnElement[bool]:
    """Runs of a status, in words from which SQLite knows the partial index that has them."""
    is_status = _run.c.status == sa.literal_column(f"'{status}'")
    return sa.and_(IS_WAITING, is_status) if status in WAITING else is_status


def get_run(session: Session, owner: Owner, run_id: str, *, sees_log: bool = False) -> RunView | None:
    """One run of the owner's, with what was raised for who may see the log; None: there is none."""
    query = sa.select(_run, _thread.c.thread_id, *_head).join(_thread, _run.c.thread_key == _thread.c.id)
    query = query.where(_run.c.run_id == run_id, *owned_by(_thread, owner))
    row = session.connection().execute(query).mappings().first()
    return None if row is None else _run_view(dict(row), sees_log=sees_log)


class RunFilter(NamedTuple):
    """Which runs of a list are wanted: those of teams whose names begin so, of one of these statuses, made since a
    moment, and before one; and of one status, which an index finds. None: any."""

    team_prefix: str | None = None
    statuses: Collection[RunStatus] | None = None
    since: datetime | None = None
    until: datetime | None = None
    status: RunStatus | None = None

    def terms(self) -> list[sa.ColumnElement[bool]]:
        """Return what a query of them asks for."""
        c = _run.c
        return given(
            (self.team_prefix, partial(c.team.startswith, autoescape=True)),
            (self.statuses, c.status.in_),
            (self.since, c.created_at.__ge__),
            (self.until, c.created_at.__lt__),
        )


def list_runs(
    session: Session,
    owner: Owner,
    thread_id: str | None,
    after: str | None,
    limit: int,
    only: RunFilter = RunFilter(),  # noqa: B008 - it is frozen
) -> Page[RunView]:
    """See `Engine.list_runs`. Raises NotFound for an unknown or foreign thread, InvalidRequest where `after` is no
    cursor."""
    key = None if thread_id is None else head_of(session, owner.thread(thread_id)).key
    query = runs_query(owner, key, after, only.status).where(*only.terms())
    return read_page(session, query, limit, _RUNS.place).map(_run_view)


class RunCount(NamedTuple):
    """How many runs there are of a team and status, and how long they ran, together."""

    team: str
    status: RunStatus
    runs: int
    seconds: float


def count_runs(session: Session, owner: Owner, only: RunFilter) -> list[RunCount]:
    """Return how many runs the owner has, by team and status."""
    c = _run.c
    query = sa.select(c.team, c.status, sa.func.count(), sa.func.sum(c.seconds)).join(
        _thread, c.thread_key == _thread.c.id
    )
    query = query.where(*owned_by(_thread, owner), *only.terms()).group_by(c.team, c.status)
    return [RunCount(*row) for row in session.connection().execute(query.order_by(c.team, c.status))]


def first_texts(session: Session, owner: Owner, run_ids: Collection[str]) -> dict[str, str]:
    """Return, by run of the owner's, the text that it began with."""
    joined = sa.join(_run, _thread, _run.c.thread_key == _thread.c.id).join(
        _message, sa.and_(_message.c.thread_key == _thread.c.id, _message.c.seq == _run.c.first_seq)
    )
    query = sa.select(_run.c.run_id, _message.c.config).select_from(joined)
    rows = session.connection().execute(query.where(_run.c.run_id.in_(run_ids), *owned_by(_thread, owner)))
    return {row.run_id: text_of(row.config) for row in rows}


def last_text(session: Session, owner: Owner, run_id: str) -> str | None:
    """The last text of a run of the owner's that its client is shown; None: there is none yet."""
    last = sa.case((_run.c.status == RunStatus.RUNNING, END), else_=_run.c.last_seq)
    between = _message.c.seq.between(_run.c.first_seq, last)
    joined = sa.join(_run, _thread, _run.c.thread_key == _thread.c.id).join(
        _message, sa.and_(_message.c.thread_key == _thread.c.id, between)
    )
    query = sa.select(_message.c.config).select_from(joined)
    query = query.where(
        _run.c.run_id == run_id, _message.c.run_id == run_id, _message.c.shown, *owned_by(_thread, owner)
    )
    config = session.connection().execute(query.order_by(_message.c.seq.desc()).limit(1)).scalar()
    return None if config is None else text_of(config)


def runs_query(owner: Owner, key: int | None, after: str | None, status: RunStatus | None) -> Query:
    """The runs of a list, newest first, of which a page is to be taken. `key`: of one thread."""
    query = sa.select(_run, _thread.c.thread_id, *_head).join(_thread, _run.c.thread_key == _thread.c.id)
    of_owner = owned_by(_thread, owner, by_index=status is None or status.is_final)
    query = query.where(*(of_owner if key is None else (_run.c.thread_key == key,)), *given((status, of_status)))
    # Of all threads, by way of the threads: in the order of their ids, the runs of all users would be passed.
    return _RUNS.behind(query, after).order_by((_run.c.id if key is not None else _run.c.id + 0).desc())


def _run_view(row: JsonObject, *, sees_log: bool = False) -> RunView:
    shown, finish, ending = RunView.model_validate(row), row["finish"], row["ending"]
    shown.error_detail = ending.get("raised") if sees_log and ending else None
    if shown.status in _ANSWERED:
        shown.finish_reason = finish.get("finish_reason", "stop") if finish else "stop"
    if shown.status is RunStatus.CREATED:
        shown.started_at = None
        shown.queued_behind = None if row["head_status"].is_final else row["head_run"]
    elif shown.run_id != row["head_run"]:
        shown.input_request = None
    if calls_of(shown.input_request):
        shown.finish_reason = "tool_calls"
    return shown


def list_messages(
    session: Session, name: ThreadName, after: int, limit: int, branch: int | None = None
) -> list[StoredMessage]:
    """See `Engine.list_messages`."""
    query = _messages_after(session, name, after, branch)
    with texts_of(name.tenant):
        return [*map(_message_view, session.connection().execute(query.limit(limit)))]


def page_of_messages(
    session: Session, name: ThreadName, after: int, limit: int, branch: int | None = None
) -> Page[StoredMessage, int]:
    """See `Engine.page_of_messages`."""
    query = _messages_after(session, name, after, branch)
    with texts_of(name.tenant):
        rows, more = read_sized(session, query, _message.c.config, limit)
        return Page[StoredMessage, int](items=[*map(_message_view, rows)], next=rows[-1].seq if more else None)


def _messages_after(session: Session, name: ThreadName, after: int, branch: int | None) -> Query:
    seq = _message.c.seq
    return _messages_on(line_on(session, name, branch)).where(seq > after).order_by(seq)


def newest_messages(session: Session, name: ThreadName, limit: int) -> list[StoredMessage]:
    """The newest messages of a thread's current branch that its client has sent or is shown, oldest first."""
    m = _message.c
    source, aside = m.config["source"].as_string(), m.config["metadata"][ASIDE].as_string()
    said = sa.or_(m.shown, sa.and_(source == "user", aside.is_(None)))
    is_chat = m.config["type"].as_string().not_like("%Event")
    query = _messages_on(line_on(session, name)).where(said, is_chat)
    with texts_of(name.tenant):
        rows = session.connection().execute(query.order_by(m.seq.desc()).limit(limit)).all()
    return [*map(_message_view, rows)][::-1]


def line_on(session: Session, name: ThreadName, branch: int | None = None) -> Line:
    """The path of a thread: that of its current branch, or of `branch`. Raises NotFound, and UnknownPlace for a
    branch that it does not have."""
    query = sa.select(_thread.c.id, _thread.c.branch).where(*of_thread(_thread, name))
    found = session.connection().execute(query).first()
    if found is None:
        raise NotFound(f"no thread {name.thread_id!r}", param="thread_id")
    line = Line(found.id, found.branch) if branch is None else line_of(session, found.id, branch)
    if line is None:
        raise UnknownPlace(f"the thread has no branch {branch}", param="branch")
    return line


def _messages_on(line: Line) -> Query:
    m = _message.c
    return on_path(_message, line, "seq", m.seq, m.config, m.created_at, m.run_id, m.shown)


def _message_view(row: sa.Row[*tuple[Any, ...]]) -> StoredMessage:
    return StoredMessage(
        seq=row.seq,
        id=row.config.get("id"),
        source=row.config.get("source", ""),
        type=row.config.get("type", ""),
        content=text_of(row.config),
        created_at=row.created_at,
        run_id=row.run_id,
        shown=row.shown,
        files=files_of(row.config),
        message=row.config,
    )


def text_of(config: Mapping[str, object]) -> str:
    """A message's content as text, whatever kind of message it is."""
    content = config.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(_part, cast("list[str | JsonObject]", content))))
    return read_message(config).to_text()


def _part(part: str | JsonObject) -> str:
    match part:
        case str():
            return part
        case {"name": name, "arguments": arguments}:
            return f"{name}({arguments})"
        case {"content": str(content)}:
            return content
        case {"data": _}:
            return "[image]"
        case _:
            return ""
