"""Rights say who may do what with which thread: this is the one place that decides it.

A user's own thread is named by its id, that of another user of the tenant by a `ThreadName`: a thread id is any text,
so no text could stand for another's. What nobody has shared with a user does not exist for them (404); what they may
read and not change is refused (403).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.database import Database
from drsai_backend.database.shares import rights_in, thread_of_any
from drsai_backend.datamodel import Right
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import Forbidden, NotFound

Named: TypeAlias = str | ThreadName
"""A thread as it is asked for: the id of one's own, or the name of anybody's."""

_WHAT: Final = {
    Right.READ: "read it",
    Right.ANSWER: "answer what it asks",
    Right.WRITE: "write to it, nor stop, pause or resume it",
    Right.SHARE: "share it; its owner and the admins of the tenant may",
}


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights in the threads of a database."""

    _database: Database

    async def thread(self, who: Principal, named: Named, right: Right) -> ThreadName:
        """The thread that `who` has named, if they have `right` in it. For one's own this asks the database nothing,
        and an unknown one is found out by whoever reads it.

        Raises:
            NotFound: there is none, or they may not even read it.
            Forbidden: they may read it, and no more than that.
        """
        name = who.owner.thread(named) if isinstance(named, str) else named
        if name.owner == who.owner:
            return name
        found = None
        if name.tenant == who.tenant:
            found = await self._database.read(lambda session: rights_in(session, name, who.names))
        if found is None:
            raise NotFound(f"no thread {name.thread_id!r}", param="thread_id")
        granted, question = found
        if right is Right.SHARE and who.may(Scope.ADMIN):
            return name
        if right is Right.ANSWER and question is not None and question.get("by") in who.names:
            return name
        if not granted:
            raise NotFound(f"no thread {name.thread_id!r}", param="thread_id")
        if not any(each.covers(right) for each in granted):
            raise Forbidden(f"thread {name.thread_id!r} is shared with you, but you may not {_WHAT[right]}")
        return name

    async def granted(self, who: Principal, name: ThreadName) -> Right | None:
        """Return the most that `who` was granted in a thread; None: nothing, as in one's own."""
        if name.owner == who.owner:
            return None
        found = await self._database.read(lambda session: rights_in(session, name, who.names))
        return max(found[0], key=lambda right: right.rank, default=None) if found else None

    async def run(self, who: Principal, run_id: str, right: Right) -> Owner:
        """The owner of the thread of a run that is not the principal's own, as `thread`."""
        found = await self._database.read(lambda session: thread_of_any(session, who.tenant, run_id))
        try:
            if found is not None and found.owner != who.owner:
                return (await self.thread(who, found, right)).owner
        except NotFound:
            pass
        raise NotFound(f"no run {run_id!r}", param="run_id")


def may_answer(who: Principal, question: Mapping[str, object], steered_by: Collection[str] = ()) -> bool:
    """Whether `who`, who has the right to answer in its thread, is among those whom a question asks. `steered_by`: the
    users whose messages the run took up meanwhile, who have asked as well."""
    by = question.get("by")
    # Whoever acts as somebody else stays who they are.
    asked = {question.get("asker"), *steered_by}
    if question.get("not_by") == "asker" and (who.user_id in asked or who.acted_by in asked - {None}):
        return False
    return by is None or by in who.names


def told_to_asker(question: Mapping[str, object]) -> str:
    """Return what a question that is not for who asked to answer tells them: who answers it, until when, and what
    becomes of what they send meanwhile."""
    asker, by, deadline = question.get("asker") or "whoever", question.get("by"), question.get("deadline")
    until = "" if deadline is None else f" until {datetime.fromisoformat(str(deadline)):%Y-%m-%d %H:%M:%S} UTC"
    who = by or "Somebody else, with whom this thread is shared,"
    return (
        f"{who} decides this{until}, and not {asker}, who asked. What {asker} sends meanwhile is no answer: it waits "
        "in the queue."
    )


def check_may_answer(who: Principal, question: Mapping[str, object], steered_by: Collection[str] = ()) -> None:
    """Raise Forbidden unless `may_answer`."""
    if not may_answer(who, question, steered_by):
        raise Forbidden(f"{told_to_asker(question)} You may not answer it.", param="id")
