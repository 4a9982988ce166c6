"""A history is compared with the threads that are stored: where it ends, where it was, and where the two part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drsai_backend.database.runs.history import StoredPoint, find_points_of
from drsai_backend.database.runs.paths import Line, branch_of
from drsai_backend.database.runs.reads import ThreadHead, find_run
from drsai_backend.datamodel import RunStatus
from drsai_backend.runs.history.digest import Conversation, History, HistoryPoint, began, points
from drsai_backend.runs.history.results import are_of
from drsai_backend.runs.history.stored import Walk, newest_turn, read_conversation, reworded_point, walk_beginning
from drsai_backend.runs.requests import Admitted, KnownHistory
from drsai_backend.state.travel import Place

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_LOOKED_AT: Final = 256
"""How many answers back the last common point is looked for."""
_CANDIDATES: Final = 3
"""Of threads that were where a history ends, so many are read to see whether they still stand there."""


@dataclass(frozen=True, slots=True)
class Fork:
    """The history is an earlier point of a thread."""

    source: ThreadHead
    place: Place


@dataclass(frozen=True, slots=True)
class Rewind:
    """The thread continues from an earlier place. `is_busy`: not before what it does now has ended."""

    place: Place
    is_busy: bool


def is_at_work(head: ThreadHead) -> bool:
    """Whether a run is live on a thread, or is to begin."""
    return head.status is RunStatus.RUNNING or bool(head.queued)


def at_its_end(point: StoredPoint, head: ThreadHead, request: Admitted, history: History) -> Admitted | None:
    """The request on a thread that nothing was said on since a point; None: something was, or will be soon."""
    if is_at_work(head):
        return None
    if head.run_id != point.run_id or head.last_seq != point.last_seq or head.branch is not None:
        return None
    known = continued(history, Conversation(point.digest), head)
    return None if known is None else request.at(thread_id=head.thread_id, known=known)


def find_end(
    session: Session,
    places: Sequence[tuple[StoredPoint, ThreadHead]],
    request: Admitted,
    results: Mapping[str, str],
) -> tuple[ThreadHead | None, bool]:
    """The first thread whose last answer is at its place; or the one on which the request was served before, and
    whether it was."""
    for point, head in _of_results(session, places, results):
        if request.ask.origin.key is not None and find_run(session, head.key, request.ask.origin.key) is not None:
            return head, True
        if not is_at_work(head) and (head.run_id, head.last_seq) == (point.run_id, point.last_seq):
            return head, False
    return None, False


def find_thread(
    session: Session,
    places: Sequence[tuple[StoredPoint, ThreadHead]],
    request: Admitted,
    history: History,
    results: Mapping[str, str],
) -> Admitted | Fork | None:
    """The thread that stands where a history ends, of those that are or were there, newest first; else one that was.
    Not one whose client's tools have returned something else than the history says."""
    looked_at: set[int] = set()
    fitting: list[tuple[StoredPoint, ThreadHead]] = []
    reads = 0
    for point, head in _of_results(session, places, results):
        fitting.append((point, head))
        if head.key in looked_at:
            continue
        looked_at.add(head.key)
        if request.ask.origin.key is not None and find_run(session, head.key, request.ask.origin.key) is not None:
            return request.at(thread_id=head.thread_id)
        if (found := at_its_end(point, head, request, history)) is not None:
            return found
        if is_at_work(head) or reads == _CANDIDATES:
            continue  # It stands somewhere else soon.
        reads += 1
        if results and are_of(session, head.line, results) is False:
            continue  # It stands on another branch.
        conversation, _ = read_conversation(session, head, request.ask.team)
        known = continued(history, conversation, head)
        if known is not None:
            return request.at(thread_id=head.thread_id, known=known)
    # A question is no place to go back to: its turn is not stored.
    earlier = next(((point, head) for point, head in fitting if not point.asks), None)
    return None if earlier is None else Fork(earlier[1], Place(at=earlier[0].last_seq))


def _of_results(
    session: Session, places: Sequence[tuple[StoredPoint, ThreadHead]], results: Mapping[str, str]
) -> Iterator[tuple[StoredPoint, ThreadHead]]:
    """Yield, of places, those where these results of the client's tools were brought; then those that have none."""
    without: list[tuple[StoredPoint, ThreadHead]] = []
    for place in places:
        fits = not results or _has_results(session, *place, results)
        if fits:
            yield place
        elif fits is None:
            without.append(place)
    yield from without


def _has_results(session: Session, point: StoredPoint, head: ThreadHead, results: Mapping[str, str]) -> bool | None:
    return are_of(session, line_to(session, point, head), results)


def line_to(session: Session, point: StoredPoint, head: ThreadHead) -> Line:
    """The path of a thread up to a point of it."""
    branch = None if head.branch is None else branch_of(session, head.key, "seq", point.last_seq)
    return Line(head.key, branch, seq=point.last_seq)


def compare(
    session: Session,
    head: ThreadHead,
    request: Admitted,
    history: History,
    also: Sequence[HistoryPoint] = (),
) -> KnownHistory | Rewind | None:
    """Return how a history stands to a thread of the request's team. `also`: its points with a team that had the
    thread."""
    is_busy = is_at_work(head)
    # What a window shows is what counts. Of others, an input that comes late must not end what somebody listens to.
    may_stop = not head.queued and (request.ask.resends or request.ask.how.on_busy == "interrupt")
    if is_busy and (request.ask.how.on_busy == "steer" or not may_stop):
        return None
    conversation, seq = read_conversation(session, head, request.ask.team)
    known = continued(history, conversation, head)
    if known is not None:
        return None if is_busy else known
    if conversation.point == history.point:
        # The same was said already and is not answered yet, or something else was.
        repeats = is_busy and conversation.point_said.startswith(history.conversation.said)
        return None if repeats else Rewind(Place(at=seq), is_busy)
    if not is_busy and (found := _in_other_words(session, head, request, conversation, history)) is not None:
        return found
    return _parted(session, head, request, (conversation, seq), history, also)


def _in_other_words(
    session: Session, head: ThreadHead, request: Admitted, conversation: Conversation, history: History
) -> KnownHistory | Rewind | None:
    """The thread stands where the history ends, or was there, but for the words of questions. A client that puts a
    date or what it found around its newest question resends it without that: the question stays as it was answered.
    Other words than these are an edit."""
    if history.last is None or not history.asked:
        return None
    found = reworded_point(session, head, request.ask.team, history)
    if found is None:
        return None
    point, length = found
    same = Conversation(history.last.digest)
    if point.asks:
        return continued(history, same, head)
    if conversation.point == point.digest:
        same.said += conversation.point_said
        if length < history.last.length:
            return None if same.said else history.known(length, head.seen)
        if (known := continued(history, same, head)) is not None:
            return known
    return Rewind(Place(at=point.last_seq), is_busy=False)


def _parted(
    session: Session,
    head: ThreadHead,
    request: Admitted,
    stands: tuple[Conversation, int],
    history: History,
    also: Sequence[HistoryPoint],
) -> KnownHistory | Rewind | None:
    """Return where a thread and a history part that ends elsewhere. `stands`: the thread's conversation, and the number
    of the message that it ends with."""
    theirs, is_busy, (conversation, seq) = points(history.seed, history.messages), is_at_work(head), stands
    if not theirs:
        # Who names a thread and does not resend the conversation may mean any of its questions.
        is_first = request.ask.resends or began(request.ask.messages) == walk_beginning(session, head).began
        return Rewind(Place(at=0), is_busy) if is_first else None
    counts = {each.digest: each.length for each in theirs[-_LOOKED_AT:]}
    if conversation.point in counts and not is_busy:
        if conversation.point_said:
            return Rewind(Place(at=seq), is_busy)
        # The thread is where they part: what comes after that is new to it, answers that were changed as well.
        return history.known(counts[conversation.point], head.seen)
    counts.update((each.digest, each.length) for each in also[-_LOOKED_AT:])
    stored = find_points_of(session, head.key, counts)
    common = [each for each in stored.values() if not each.asks]
    if common:
        return Rewind(Place(at=max(common, key=lambda each: counts[each.digest]).last_seq), is_busy)
    walk = walk_beginning(session, head)
    # They part within what the thread has imported: it is imported anew. So is what a window shows otherwise of the
    # first answer, as the beginning of one that was stopped; or later, if its first question was in other words.
    first = began(request.ask.messages)
    parts_here = request.ask.resends and (first == walk.began or (bool(first) and first in walk.began))
    parts_here = parts_here or _is_begun_anew(session, head, request, history, walk)
    is_common = parts_here or any(each.digest in {*walk.passed, walk.conversation.point} for each in theirs)
    return Rewind(Place(at=0), is_busy) if is_common else None


def _is_begun_anew(session: Session, head: ThreadHead, request: Admitted, history: History, walk: Walk) -> bool:
    """Whether a history has the first answer of a thread to another question. One that ends with the thread's newest
    turn is a part of it: a client sends a window, or a summary in place of the rest."""
    first, last = history.first_turn, history.last_turns(1)[0]
    began = walk.conversation
    if walk.passed or first.answered != began.answered or first.is_of(began.said):
        return False
    newest = newest_turn(session, head, request.ask.team)
    return newest is None or newest.answered != last.answered or not last.is_of(newest.said)


def continued(history: History, conversation: Conversation, head: ThreadHead) -> KnownHistory | None:
    """Return what of a history is new to a thread that has this conversation; None: the thread is not where it ends."""
    if conversation.point != history.point:
        return None
    new_from = history.first_new(conversation.point_said)
    return None if new_from is None else history.known(new_from, head.seen)
