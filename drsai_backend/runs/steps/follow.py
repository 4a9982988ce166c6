"""To follow the steps of a run is to read what is stored each time that something has changed, and to tell what is new.

So every reader gets the same, in whatever process, and wherever they begin. An event is of one step, and a step is told
to its end before the next one begins: several calls of one answer are told in the order of the calls.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from drsai_backend.database.runs.reads import ThreadHead, read_head_of
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.lifecycle import PENDING
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import NotFound
from drsai_backend.runs.feed.feed import Feeds
from drsai_backend.runs.steps.events import (
    END,
    START,
    LoggedStep,
    Mark,
    StepsEnded,
    StepStarted,
    StepsVoid,
    check_of,
    parts_of,
)
from drsai_backend.runs.steps.queries import StepRows, find_run, key_and_epoch, read_steps
from drsai_backend.runs.steps.views import RunStep
from drsai_backend.runs.threads.views import RunView

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_PAGE: Final = 50


class _Look(NamedTuple):
    """A run as it was at one moment."""

    run: RunView
    head: ThreadHead
    epoch: int
    rows: StepRows


async def follow_steps(
    feeds: Feeds, owner: Owner, run: RunView, after: Mark | None = None
) -> AsyncGenerator[LoggedStep]:
    """The events of the steps of an owner's run after a place, to the end of the run, or of its part up to a question
    or a pause. An input that another run took up is followed there.

    Raises:
        NotFound: there is no such run any more.
    """
    told, name = _Told(after or Mark()), owner.thread(run.thread_id)
    while True:
        # Before it is read: what happens meanwhile is a change.
        heard = feeds.listen(name, run.joined or run.run_id)
        look = await feeds.look(partial(_read, owner=owner, run_id=run.joined or run.run_id, at=told.at))
        if look is None:
            return
        run = look.run
        for event in told.of(look):
            yield event
        if look.rows.more:
            continue
        if run.status not in PENDING:
            if told.at.epoch != look.epoch:
                yield told.end(look)
            return
        if not await feeds.wait(look.head, heard, in_flight=run.status is RunStatus.RUNNING):
            return


def _read(session: Session, owner: Owner, run_id: str, at: Mark) -> _Look:
    run = find_run(session, owner, run_id)
    key, epoch = key_and_epoch(session, run)
    head = read_head_of(session, key)
    if head is None:
        raise NotFound(f"no run {run_id!r}", param="run_id")
    return _Look(run, head, epoch, read_steps(session, key, run, at.stored, _PAGE))


class _Told:
    """What a reader has been told. `at`: the last event."""

    def __init__(self, at: Mark) -> None:
        self.at = at
        self._checks = {at.position: at.check} if at.position > at.stored.position else {}

    def of(self, look: _Look) -> Iterator[LoggedStep]:
        """Yield what is new."""
        run_id, steps = look.run.run_id, look.rows.steps
        if self._is_void(look):
            stored = self.at.stored
            self.at = Mark(stored, stored.position)
            self._checks = {}
            yield LoggedStep(self.at, run_id, StepsVoid(stored.position))
        for step in steps:
            yield from self._tell(run_id, step)
            if not step.is_over:
                break
        if (last := look.rows.last_stored) is not None and last.position <= self.at.position:
            self.at = self.at._replace(stored=last)
            self._checks = {position: check for position, check in self._checks.items() if position > last.position}
        yield from self._next(look, steps[-1].position if steps else self.at.stored.position)

    def _next(self, look: _Look, newest: int) -> Iterator[LoggedStep]:
        """The beginning of the step after the newest one, or that it does not come."""
        run_id, begun = look.run.run_id, self.at.position > newest
        if look.rows.more or (not begun and self.at.part != END):
            return
        if begun and look.run.status.is_final:
            self._checks.pop(self.at.position, None)
            self.at = self.at._replace(position=newest, part=END, check=self._checks.get(newest, 0))
            yield LoggedStep(self.at, run_id, StepsVoid(newest))
        elif not begun and look.run.status is RunStatus.RUNNING:
            step = RunStep(position=newest + 1, run_id=run_id, source=None)
            self.at = self.at._replace(position=newest + 1, part=START, check=0, epoch=0)
            self._checks[newest + 1] = 0
            yield LoggedStep(self.at, run_id, StepStarted(step, look.run.team))

    def _is_void(self, look: _Look) -> bool:
        """Whether something that was told of the turn in flight is not there any more. Of a step of which no more is
        told than that it has begun, nothing is."""
        found = {step.position: check_of(step) for step in look.rows.steps}
        newest = max(found, default=self.at.stored.position)
        checks = {position: check for position, check in self._checks.items() if check}
        return any(found.get(position) != check for position, check in checks.items() if position <= newest) or (
            not look.rows.more and any(position > newest for position in checks)
        )

    def _tell(self, run_id: str, step: RunStep) -> Iterator[LoggedStep]:
        for part, event in parts_of(step):
            if (step.position, part) > (self.at.position, self.at.part):
                check = 0 if part == START else check_of(step)
                self.at = self.at._replace(position=step.position, part=part, check=check, epoch=0)
                self._checks[step.position] = check
                yield LoggedStep(self.at, run_id, event)

    def end(self, look: _Look) -> LoggedStep:
        """The end of the run, or of its part."""
        self.at = self.at._replace(epoch=look.epoch)
        return LoggedStep(self.at, look.run.run_id, StepsEnded(look.run))
