"""Loading puts a conversation that was had elsewhere into a thread, without a run: its next run continues it.

What is loaded is stored as what a chat client brings along is (`teams.imported`): the next run finds messages that no
turn has taken up, and lets its agents know them. So a kill between the two loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from drsai_backend.access.principal import Principal
from drsai_backend.catalog import Catalog
from drsai_backend.database import Database
from drsai_backend.database.audit import audit
from drsai_backend.database.hooks import Hooks
from drsai_backend.database.runs.loaded import append_messages, make_thread
from drsai_backend.database.runs.paths import newest_message
from drsai_backend.database.runs.reads import head_of, read_head
from drsai_backend.datamodel.audit import Action, Actor
from drsai_backend.datamodel.base import JsonText
from drsai_backend.datamodel.lifecycle import IDLE
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import Conflict, InvalidRequest, NotFound, ThreadBusy
from drsai_backend.runs.messages import storable_dumps, title_of
from drsai_backend.runs.requests import Ask, InputMessage, Placed
from drsai_backend.runs.start.plan import last_messages
from drsai_backend.runs.start.starter import RunStarter
from drsai_backend.runs.threads.queries import read_detail
from drsai_backend.runs.threads.views import ThreadDetail
from drsai_backend.state import travel
from drsai_backend.state.travel import Place

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

LoadMode: TypeAlias = Literal["append", "replace"]
"""Where loaded messages go: after what the thread has, or in the place of it, which stays stored on a branch."""
_ATTEMPTS: Final = 5
"""Times that a history is stored anew because others changed its thread at that moment."""


@dataclass(frozen=True, slots=True)
class Load:
    """How a history is loaded.

    Attributes:
        model: the team whose answers are in it; needed unless the thread is a conversation with one already.
        mode: `replace` has the thread go back to its beginning before.
        after: the number of the newest message as the caller knows it (0: none), so that a repeated try is refused and
            not loaded twice; None: wherever the thread is.
    """

    model: str | None = None
    mode: LoadMode = "append"
    after: int | None = None


class Loading:
    """Loads histories for one engine."""

    def __init__(self, database: Database, starter: RunStarter, catalog: Catalog, hooks: Hooks) -> None:
        self._database = database
        self._hooks = hooks
        self._starter = starter
        self._catalog = catalog

    async def load(self, who: Principal, name: ThreadName, given: Sequence[InputMessage], how: Load) -> ThreadDetail:
        """Put a conversation, oldest message first, into a thread that there is, or a new one of one's own: all of it,
        or nothing. `who` has the right to write. Returns the thread without its `team_result`.

        Raises:
            NotFound: there is no such thread, and it is another user's, or has messages as far as `after` knows.
            UnknownModel, TeamBuildError: of the model.
            InvalidRequest: there is no model, or a message cannot be used; `param` names the field.
            ThreadBusy: a run is live on the thread, waits for a person, or inputs wait in its queue.
            Conflict: the newest message is not `after`, or others change the thread all the time.
            StateError: with `replace`, what is stored of it is damaged.
        """
        team = how.model
        if team is None:
            head = await self._database.read(lambda session: read_head(session, name), short=True)
            team = None if head is None else head.team
        if team is None:
            raise InvalidRequest("`model` is required: nobody has answered on this thread yet", param="model")
        placed = Placed(Ask(team, given), who, await self._catalog.find(who, team), name)
        rows = storable_dumps(await self._starter.history(placed), placed.author)
        store = partial(_store, placed=placed, rows=rows, how=how, actor=who.actor, hooks=self._hooks)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._database.act(store)
            except ThreadBusy:
                raise
            except Conflict as error:
                if error.param == "after" or attempt == _ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")


def _store(
    session: Session, *, placed: Placed, rows: Sequence[JsonText], how: Load, actor: Actor, hooks: Hooks
) -> ThreadDetail:
    name, who, ask = placed.name, placed.who, placed.ask
    head = read_head(session, name)
    if head is None:
        if name.owner != who.owner or how.after:
            raise NotFound(f"no thread {name.thread_id!r}", param="thread_id")
        make_thread(session, name)
        head = head_of(session, name)
    if how.after is not None and (newest := newest_message(session, head.line)) != how.after:
        raise Conflict(f"`after` is {how.after}, and the newest message of the thread is {newest}", param="after")
    if how.mode == "replace":
        withdrawn = partial(last_messages, "withdrawn", who.user_id)
        travel.rewind(session, name, Place(turn=0), actor, withdrawn=withdrawn, hooks=hooks)
        head = head_of(session, name)
    if head.status not in IDLE or head.queued:
        text = f"something is under way on thread {name.thread_id!r}: wait for its end, or cancel it first"
        raise ThreadBusy(text)
    append_messages(session, head, rows, team=ask.team, title=title_of(ask.messages))
    detail = {"messages": len(rows), "mode": how.mode, "after": head.last_seq}
    audit(session, actor, Action.THREAD_LOADED, name.thread_id, name, detail)
    return read_detail(session, name)
