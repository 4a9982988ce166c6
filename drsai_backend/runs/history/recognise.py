"""To recognise a history is to find its thread, and the way to the point where it ends. It is one step before `start`,
for all APIs alike.

Without a thread's id: the digest after the last answer finds the thread that stands there, which continues; or one that
was there, which is forked; or nothing, and the history is imported. Of several that look alike, one is meant whose
hidden words all stand in the history; where none has, it is the user's own if that is one person, else it is imported:
the thread may be another person's. With an id, where the client sends its whole
conversation: a thread that does not stand where the history ends is rewound to the last point that both have, and
continues from there; what no point can be found for is taken as it comes, and changes nothing that is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from drsai_backend.access.principal import Principal
from drsai_backend.database import Database
from drsai_backend.database.runs.history import StoredPoint, find_points
from drsai_backend.database.runs.reads import ThreadHead, read_head
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import Conflict, IllegalTransition, InvalidRequest, StateError, ThreadBusy
from drsai_backend.runs.history.compared import (
    Fork,
    Rewind,
    at_its_end,
    compare,
    continued,
    find_end,
    find_thread,
    is_at_work,
    line_to,
)
from drsai_backend.runs.history.digest import Histories, History, HistoryPoint, points, seed_of
from drsai_backend.runs.history.hidden import Words, read_hidden, stand_in, told_before
from drsai_backend.runs.history.results import are_of_first_run, asked_before, brought
from drsai_backend.runs.requests import Admitted, ForkOf, InputMessage, KnownHistory
from drsai_backend.runs.warm import WarmThreads
from drsai_backend.state.travel import Place

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_STEPS: Final = 4
"""Rewinds of one request: a second one is needed where the first leads to the beginning."""
_PAUSE: Final = 0.05
"""Seconds until a thread is looked at again whose run has not quite ended."""


class ThreadTraveller(Protocol):
    """Goes to places of threads, and says what teams refuse."""

    async def outlook(self, request: Admitted) -> object: ...

    async def rewind(self, who: Principal, name: ThreadName, place: Place) -> object: ...

    async def cancel(self, name: ThreadName, *, by: str) -> None: ...


@dataclass(eq=False)
class Recogniser:
    """Recognises histories, for one engine."""

    _database: Database
    _warm: WarmThreads
    _traveller: ThreadTraveller
    _may_move: bool = True
    _histories: Histories = field(default_factory=Histories)

    async def place(self, request: Admitted) -> Admitted:
        """The request with the thread that its history is of, which stands where it ends; as it came, where it brings
        no history or an unknown one.

        Raises:
            ThreadBusy: a run is live on the thread that was to be rewound, and the request says `on_busy="reject"`.
            InvalidRequest, TeamBuildError: it was to be rewound, and its team cannot take the request.
            DatabaseError: the database refused or cannot be reached.
        """
        messages = request.ask.messages
        if request.ask.history == "import" or not messages or messages[-1].message is not None:
            return request
        if request.where.thread_id is None:
            if request.ask.continues is not None and (placed := await self._continuing(request, request.ask.continues)):
                return placed
            return request if len(messages) == 1 else await self._of_owner(request)
        if len(messages) == 1 and not request.ask.resends and request.ask.continues is None:
            return request
        return await self._of_thread(request)

    def forget(self, owner: Owner, teams: Iterable[str]) -> None:
        """Drop the texts of an owner's conversations with these teams, of which some were deleted."""
        self._histories.forget({seed_of(owner, team) for team in teams})

    # --- no thread is named -------------------------------------------------------------------------------------

    async def _continuing(self, request: Admitted, answer: str) -> Admitted | None:
        """The request on the thread that ends with the answer that it continues; None: there is none to go back on."""
        owner, whole = request.who.owner, [*request.ask.messages, InputMessage("assistant", answer)]
        history = await self._histories.digested(seed_of(owner, request.ask.team), whole)
        last = history.last
        if last is None:
            return None
        results = brought(request.ask.messages)

        def find(session: Session) -> tuple[ThreadHead | None, bool]:
            places = find_points(session, owner, request.ask.team, last.digest)
            places, _ = self._meant(session, places, request, history)
            return find_end(session, places, request, results)

        head, is_served = await self._database.read(find)
        if head is None:
            return None
        named = request.at(thread_id=head.thread_id)
        if is_served:
            return named
        placed = await self._of_thread(named)
        # Where it waits for a person, its client is told so.
        return placed if placed.where.known is not None or head.status is RunStatus.AWAITING_INPUT else None

    async def _of_owner(self, request: Admitted) -> Admitted:
        owner = request.who.owner
        history = await self._histories.digested(seed_of(owner, request.ask.team), request.ask.messages)
        last = history.last
        new_from = history.first_new()
        if last is None or new_from is None:
            return request  # It has no answers, or ends with one.
        if (warm := self._warm_at(request, history, last, new_from)) is not None:
            return warm
        places = await self._database.read(
            lambda session: find_points(session, owner, request.ask.team, last.digest),
            short=self._database.dialect == "sqlite",
        )
        if not places:
            return request
        found, results = None, brought(request.ask.messages[: last.length]) if history.has_results else {}
        hidden = self._known_hidden(places[0][1])
        if hidden is None or len(places) > 1 or not stand_in(history, hidden):
            places, hidden = await self._database.read(lambda session: self._meant(session, places, request, history))
        if not places:
            return request.at(imported=True)
        if request.ask.origin.key is None and not results:
            found = at_its_end(*places[0], request, history)
        if found is None:
            found = await self._database.read(lambda session: find_thread(session, places, request, history, results))
        if isinstance(found, Fork):
            fork = ForkOf(found.source.name, found.place)
            found = request.at(fork_of=fork, known=history.known(new_from))
        known = None if found is None else found.where.known
        if found is None or known is None:
            return found or request
        return found.at(known=replace(known, by_words=True, hidden=hidden))

    def _known_hidden(self, head: ThreadHead) -> Words | None:
        """The hidden words of a thread, as far as they are known without a query."""
        warm = self._warm.peek(head.name)
        return None if warm is None or warm.head != head else warm.hidden

    @staticmethod
    def _meant(
        session: Session, places: Sequence[tuple[StoredPoint, ThreadHead]], request: Admitted, history: History
    ) -> tuple[Sequence[tuple[StoredPoint, ThreadHead]], Words | None]:
        """Return, of the places that a history may be of, newest first, those whose hidden words all stand in it, and
        these words: of the places that have most of them. Where there are none, all of them if who asks is one
        person."""
        found = [(place, read_hidden(session, line_to(session, *place))) for place in places]
        meant = [(place, words) for place, words in found if stand_in(history, words)]
        if not meant:
            return (places if request.who.is_one_person else ()), None
        most = max((words for _, words in meant), key=len)
        return [place for place, words in meant if len(words) == len(most)], most

    def _warm_at(self, request: Admitted, history: History, last: HistoryPoint, new_from: int) -> Admitted | None:
        """The request on a thread that is warm and stands where a history ends, as far as this process knows. Of what
        others have done, its first write finds out: whether a query would have chosen the same (`at_its_end`). None:
        there is none, or the query tells more than that."""
        if history.has_results or request.ask.origin.key is not None or request.ask.continues is not None:
            return None
        warm = None if request.ask.how.background else self._warm.at(last.digest)  # What is queued has no such write.
        if warm is None:
            return None
        head = warm.head
        stands = head.status is RunStatus.COMPLETED and not head.queued and head.branch is None
        if not stands or head.name.owner != request.who.owner or head.team != request.ask.team:
            return None
        hidden = warm.hidden
        if hidden is None or not told_before(history) <= hidden or not stand_in(history, hidden):
            return None
        known = history.known(new_from, head.seen, last.digest)
        return request.at(thread_id=head.thread_id, known=replace(known, by_words=True, hidden=hidden))

    async def with_results(self, request: Admitted) -> Admitted | None:
        """A request whose history ends with results that its thread does not wait for, after a turn that failed, was
        stopped or withdrawn, or whose answer was lost: the thread goes back to before the question of that turn, as if
        that was asked anew, and gets question, calls and results as messages. None: it stays where it is. Raises as
        `place`."""
        messages, seed = request.ask.messages, seed_of(request.name.owner, request.ask.team)
        length = asked_before(messages)
        if request.ask.history == "import" or length is None:
            return None
        asked = request.but(messages=messages[:length])
        if not request.ask.resends and (await self._histories.digested(seed, asked.ask.messages)).last is None:
            # Who sends its last turn only may mean any question of these words.
            calls = brought(messages)
            if not await self._database.read(lambda session: are_of_first_run(session, request.name, calls)):
                return None
        known = (await self._of_thread(asked, anew=True)).where.known
        if known is None:
            return None
        whole = await self._histories.digested(seed, messages)
        return request.at(known=replace(known, conversation=whole.conversation, systems=whole.systems))

    # --- a thread is named --------------------------------------------------------------------------------------

    async def _of_thread(self, request: Admitted, *, anew: bool = False) -> Admitted:
        seed = seed_of(request.name.owner, request.ask.team)
        history = await self._histories.digested(seed, request.ask.messages)
        if history.last is None and not (anew or request.ask.resends) and request.ask.continues is None:
            return request
        warm = self._warm.peek(request.name)
        if warm is not None and warm.head.team == request.ask.team and warm.conversation is not None:
            known = continued(history, warm.conversation, warm.head)
            if known is not None:
                return request.at(known=known)
        for _ in range(_STEPS):
            step = await self._database.read(lambda session: self._next_step(session, request, history))
            if isinstance(step, KnownHistory):
                return request.at(known=step)
            if step is None or not await self._rewind(request, step):
                break
        return request

    def _next_step(self, session: Session, request: Admitted, history: History) -> KnownHistory | Rewind | None:
        """Return how the history of its client stands to a thread; None: no point of it is known, or the thread is
        not."""
        head = read_head(session, request.name)
        if head is None:
            return None
        is_moved = head.team not in (None, request.ask.team)
        if request.ask.continues is not None and (is_moved or head.status is RunStatus.AWAITING_INPUT):
            return None  # Its last answer is none of this model's, or a question.
        if not is_moved or head.team is None:
            return compare(session, head, request, history)
        # As it stood to the model that has the thread, and before that perhaps to this one.
        as_theirs, found = request.but(team=head.team), None
        whole = self._histories.digest(seed_of(request.name.owner, head.team), request.ask.messages)
        if self._may_move and not is_at_work(head):  # A run of another model is not ended: windows ask several at once.
            found = compare(session, head, as_theirs, whole, points(history.seed, request.ask.messages))
        if isinstance(found, Rewind):
            return found
        new_from = history.first_new() if found is None else found.new_from
        seen = None if found is None else found.seen
        return None if new_from is None else history.known(new_from, seen)

    async def _rewind(self, request: Admitted, step: Rewind) -> bool:
        """Take the thread to where its client's history parts from it. False: it stays where it is."""
        await self._traveller.outlook(request)  # Or a request that is refused would have moved it.
        who, name = request.who, request.name
        if step.is_busy:
            if request.ask.how.on_busy == "reject":
                raise ThreadBusy(f"a run is live on thread {name.thread_id!r}; try again when it has ended")
            # It answers what is not in the conversation any more.
            with suppress(IllegalTransition):
                await self._traveller.cancel(name, by=who.user_id)
        try:
            await self._traveller.rewind(who, name, step.place)
        except (InvalidRequest, StateError):
            return False  # Its turns were not kept.
        except ThreadBusy:
            await asyncio.sleep(_PAUSE)  # Its run has not quite ended, or an input is in its queue now.
        except Conflict:
            pass  # Somebody was faster: look again.
        return True
