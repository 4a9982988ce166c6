"""`drsai threads cancel | pause | resume`: asked by way of the database, of whichever process runs the thread."""

from __future__ import annotations

from drsai_backend.cli._screen import in_line, make_console
from drsai_backend.cli._threads import open_manager
from drsai_backend.database import DatabaseManager
from drsai_backend.database.control import ask, end_unheld, unpause, withdraw
from drsai_backend.database.heads import ThreadHead, read_head
from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import Conflict, IllegalTransition, NotFound

_UNHELD = frozenset({RunStatus.PAUSED, RunStatus.AWAITING_INPUT})


def cancel(user_id: str, thread_id: str, database_url: str | None) -> None:
    """Stop what the thread does. A live run learns of it with its process's next heartbeat.

    Raises:
        NotFound: no such thread of this user.
        IllegalTransition: nothing is under way.
    """
    with open_manager(database_url) as db:
        head = _head(db, user_id, thread_id)
        if head.status in _UNHELD:
            _check(
                db.database.write_sync(
                    lambda session: end_unheld(session, head, RunStatus.STOPPED, reason="The run was stopped.")
                )
            )
            _say(thread_id, "is stopped")
        elif head.status is RunStatus.RUNNING:
            _check(db.database.write_sync(lambda session: ask(session, head.key, head.epoch, "cancel")))
            _say(thread_id, "will stop in a few seconds")
        else:
            raise IllegalTransition(f"thread {thread_id!r} is {head.status.value}: there is nothing to stop")


def pause(user_id: str, thread_id: str, database_url: str | None) -> None:
    """Pause the live run.

    Raises:
        NotFound: no such thread of this user.
        IllegalTransition: no run is live.
    """
    with open_manager(database_url) as db:
        head = _head(db, user_id, thread_id)
        if head.status is RunStatus.PAUSED:
            _say(thread_id, "is paused")
        elif head.status is RunStatus.RUNNING:
            _check(db.database.write_sync(lambda session: ask(session, head.key, head.epoch, "pause")))
            _say(thread_id, "will pause when the turn in flight is over")
        else:
            raise IllegalTransition(f"thread {thread_id!r} is {head.status.value}: only a live run can be paused")


def resume(user_id: str, thread_id: str, database_url: str | None) -> None:
    """Go on with a paused run, or take a pause back.

    Raises:
        NotFound: no such thread of this user.
        IllegalTransition: it is not paused.
    """
    with open_manager(database_url) as db:
        head = _head(db, user_id, thread_id)
        if head.status is RunStatus.PAUSED:
            _check(db.database.write_sync(lambda session: unpause(session, head)))
            _say(thread_id, "goes on as soon as a server or a worker finds it, within seconds")
        elif head.status is RunStatus.RUNNING and head.control == "pause":
            _check(db.database.write_sync(lambda session: withdraw(session, head.key, head.epoch, "pause")))
            _say(thread_id, "goes on")
        else:
            raise IllegalTransition(f"thread {thread_id!r} is {head.status.value} and not paused")


def _head(db: DatabaseManager, user_id: str, thread_id: str) -> ThreadHead:
    head = db.database.read_sync(lambda session: read_head(session, user_id, thread_id))
    if head is None:
        raise NotFound(f"{user_id} has no thread {thread_id!r} here; `drsai threads list` shows those there are")
    return head


def _check(done: bool) -> None:
    if not done:
        raise Conflict("the thread was changed by somebody else at the same moment; try again")


def _say(thread_id: str, what: str) -> None:
    make_console().print(f"{in_line(thread_id)} {what}.")
