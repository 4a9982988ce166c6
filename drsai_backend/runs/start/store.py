"""Store: the first write of a run, from which on it holds its lease."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from drsai_backend import log_context
from drsai_backend.database import Database
from drsai_backend.database.runs.values import FirstWrite, Lease, NewRun, QueuedRun, ResumedRun
from drsai_backend.database.runs.writes import begin_run, confirm_begin
from drsai_backend.errors import DatabaseUnavailable
from drsai_backend.runs.ids import new_run_id
from drsai_backend.runs.start.build import BuiltRun
from drsai_backend.runs.start.load import LoadedRun
from drsai_backend.runs.start.plan import Plan, fingerprint
from drsai_backend.runs.start.read import Input, Services, StoredThread

_TITLE_LENGTH: Final = 80
_LOOKS: Final = (0.0, 0.1, 0.4, 1.0, 1.5)
"""Seconds between the looks whether a first write whose outcome is open has happened."""


def first_write(
    services: Services, given: Input, thread: StoredThread | None, plan: Plan, built: BuiltRun, loaded: LoadedRun
) -> NewRun | QueuedRun | ResumedRun:
    """What is to be stored when the run starts."""
    request, key = given.request, None
    if request.api_key is not None:
        key = services.db.secrets.encrypt(request.api_key.get_secret_value())
    common: dict[str, Any] = {
        "head": None if thread is None else thread.head,
        "user_id": request.user_id,
        "thread_id": given.thread_id,
        "team": request.team,
        "run_id": built.live.run_id,
        "owner": services.worker_id,
        "lease": services.lease,
        "title": _title(plan),
        "user_input": None if plan.resumes and not plan.raw else {**built.user_input, "api_key": key},
        "messages": loaded.rows,
        "limits": built.limits.as_dict(),
        "request_id": log_context.current_request(),
        "clear_steps": thread is not None and bool(thread.steps) and not plan.resumes,
        "at": built.at,
    }
    keyed = request.idempotency_key
    unique: dict[str, Any] = {"idempotency_key": keyed, "fingerprint": fingerprint(request) if keyed else None}
    if plan.run_id is None:
        return NewRun(**common, **unique) if given.queued is None else QueuedRun(**common)
    run = None if thread is None else thread.run
    options = given.resume
    return ResumedRun(
        **common,
        **unique,
        progress=built.bounds.progress(),
        answers=plan.answers or None,
        attempt=(1 if run is None else run["attempt"]) + options.attempt,
        retries=options.retries,
        retry_turn=options.retry_turn,
        control=options.control,
        queued_answer=given.queued,
        answer_id=new_run_id() if keyed else None,
    )


async def store(database: Database, write: FirstWrite) -> Lease:
    """Take the thread.

    Raises:
        Conflict: somebody else was faster.
        DatabaseError: nothing was stored.
    """

    async def begin() -> Lease:
        return await database.write(lambda session: begin_run(session, write), short=write.is_short)

    try:
        return await begin()
    except DatabaseUnavailable:
        # The COMMIT may have happened. A client told of failure would retry and get two answers.
        for pause in _LOOKS:
            await asyncio.sleep(pause)
            with contextlib.suppress(DatabaseUnavailable):
                lease = await database.read(lambda session: confirm_begin(session, write))
                break
        else:
            raise
        if lease is not None:
            return lease
        if database.dialect == "sqlite":
            raise  # It has waited for its lock already.
    # A connection was lost. What guarded the first attempt guards the second.
    return await begin()


def _title(plan: Plan) -> str:
    text = next((message.text for message in plan.new if message.role == "user"), "")
    title = " ".join(text.split())
    return title if len(title) <= _TITLE_LENGTH else title[: _TITLE_LENGTH - 1] + "…"
