"""Travel gives turns, branches, forks and rewinds of threads to who asks: what the API, `DrSai` and the command line
call.

`drsai_backend.state.travel` says what a place is, and does it.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

from pydantic import BaseModel, Field

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.database import Database
from drsai_backend.database.hooks import Hooks
from drsai_backend.database.runs.branches import list_branches, list_turns
from drsai_backend.database.runs.reads import head_of
from drsai_backend.datamodel import Right
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import InsufficientScope
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page
from drsai_backend.runs.requests import new_thread_id
from drsai_backend.runs.start.plan import last_messages
from drsai_backend.runs.threads.queries import line_on, read_detail
from drsai_backend.runs.threads.rights import Named, Rights
from drsai_backend.runs.threads.views import ThreadDetail
from drsai_backend.state import travel
from drsai_backend.state.travel import Place


class TurnView(BaseModel):
    """A turn to which its thread can go back. It stored the messages from `first_seq` to `last_seq`; where that is the
    smaller one, none. Times are aware and in UTC."""

    turn: int = Field(description="Turns are numbered once in a thread, on all of its branches together.")
    run_id: str = Field(description="The run whose turn it was; empty: the state was stored by a program.")
    first_seq: int
    last_seq: int
    created_at: datetime
    source: str | None = Field(default=None, description="Who said the last of its messages.")


TurnPage = Page[TurnView, int]  # The name of earlier releases.


class BranchView(BaseModel):
    """A branch of a thread: what it has of its own, from `first_turn` and `first_seq` on, and before that its `parent`
    up to `at_turn` and `at_seq`. One that has nothing of its own ends where it begins. Times are aware and in UTC."""

    number: int = Field(description="0: the line that the thread began with.")
    parent: int | None = Field(default=None, description="The branch that was left; null: none, it is number 0.")
    at_turn: int
    at_seq: int
    first_turn: int
    first_seq: int
    last_turn: int
    last_seq: int
    created_at: datetime
    is_current: bool = Field(description="Whether the thread continues on it.")


BranchPage = Page[BranchView, int]  # The name of earlier releases.


class Travel:
    """The verbs, for one engine."""

    def __init__(self, database: Database, rights: Rights, hooks: Hooks) -> None:
        self._database = database
        self._hooks = hooks
        self._rights = rights

    async def turns(
        self, who: Principal, named: Named, *, after: int, limit: int, branch: int | None
    ) -> Page[TurnView, int]:
        """See `Engine.turns`."""
        name = await self._rights.thread(who, named, Right.READ)

        found = await self._database.read(
            lambda session: list_turns(session, line_on(session, name, branch), after, limit)
        )
        return found.map(TurnView.model_validate)

    async def branches(self, who: Principal, named: Named, *, after: int, limit: int) -> Page[BranchView, int]:
        """See `Engine.branches`."""
        name = await self._rights.thread(who, named, Right.READ)
        found = await self._database.read(lambda session: list_branches(session, head_of(session, name), after, limit))
        return found.map(BranchView.model_validate)

    async def state(self, name: ThreadName, place: Place) -> JsonObject | None:
        """See `Engine.state`."""
        return await self._database.read(lambda session: travel.state_at(session, name, place))

    async def fork(
        self, who: Principal, named: Named, place: Place, *, thread_id: str | None, to_user: str | None
    ) -> ThreadDetail:
        """See `Engine.fork`."""
        owner = who.owner if to_user is None else Owner(who.tenant, check_name(to_user, "to_user"))
        # Of a request for somebody whom a gateway acts as, the body may be theirs: it names nobody else.
        if owner != who.owner and (who.acted_by is not None or not (who.may(Scope.ADMIN) or who.may(Scope.ACT_AS))):
            text = "to fork a thread into another user's needs `act-as` or `admin`, and a request that acts as nobody"
            raise InsufficientScope(text, scope=Scope.ACT_AS, param="to_user")
        target = owner.thread(new_thread_id() if thread_id is None else check_name(thread_id, "thread_id"))
        name = await self._rights.thread(who, named, Right.READ)
        actor = who.actor
        return await self._database.act(
            lambda session: read_detail(session, travel.fork(session, name, place, target, actor), is_new=True)
        )

    async def rewind(self, who: Principal, name: ThreadName, place: Place) -> ThreadDetail:
        """See `Engine.rewind`, which has looked at the right, and at what this process runs."""
        actor = who.actor
        withdrawn = partial(last_messages, "withdrawn", who.user_id)
        return await self._database.act(
            lambda session: read_detail(
                session,
                travel.rewind(session, name, place, actor, withdrawn=withdrawn, hooks=self._hooks),
            )
        )
