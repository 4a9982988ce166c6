"""Whatever workers and features do in which order, a job is done once for each time that it was wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from drsai_backend.database import Database
from drsai_backend.datamodel import utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import JobLost
from drsai_backend.work.claims import claim, complete, failed, give_back, renew
from drsai_backend.work.jobs import cancel, enqueue, finish, hold
from drsai_backend.work.kinds import Job, JobOptions, Kind, NewJob
from tests.work.conftest import ANN, BOB, JOB, NOBODY

NAMES = [(ANN, "a"), (ANN, "b"), (BOB, "a")]
RETRIES = (0.0, 0.0)


async def _nothing(_: Job) -> None:
    pass


KIND = Kind("test", JobOptions(handler="do", retry_seconds=RETRIES), _nothing)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["enqueue", "anew", "cancel"]), st.integers(0, len(NAMES) - 1)),
        st.tuples(st.sampled_from(["claim", "die", "die and claim"]), st.just(0)),
        st.tuples(
            st.sampled_from(["hold", "progress", "renew", "finish", "complete", "failed", "give back"]),
            st.integers(0, 2),
        ),
    ),
    max_size=40,
)


@dataclass
class Wanted:
    """What a row is to be: who was given it last and may store, and how often it was tried."""

    attempts: int = 0
    holder: Job | None = None
    is_over: bool = True
    """Whether it may be taken up."""
    has_failed: bool = False


@dataclass
class Model:
    wanted: dict[tuple[Owner, str], Wanted] = field(default_factory=dict[tuple[Owner, str], Wanted])
    given: list[Job] = field(default_factory=list[Job])
    last: Owner = NOBODY

    def of(self, job: Job) -> Wanted | None:
        """The row that the job's holder may change; None: it is not theirs."""
        found = self.wanted.get((job.owner, job.key))
        return found if found is not None and found.holder is job else None


def _feature(model: Model, session: Session, what: str, name: tuple[Owner, str]) -> None:
    owner, key = name
    if what == "cancel":
        assert cancel(session, owner, "test", [key]) == (model.wanted.pop(name, None) is not None)
        return
    is_new = enqueue(session, owner, NewJob("test", key, {}, anew=what == "anew"))
    assert is_new == (what == "anew" or name not in model.wanted)
    if is_new:
        model.wanted[name] = Wanted()


def _claim(model: Model, session: Session) -> None:
    job = claim(session, KIND, "w", timedelta(hours=1), model.last)
    due = sorted({owner for (owner, _), each in model.wanted.items() if each.is_over and not each.has_failed})
    if job is None:
        assert due == []
        return
    assert job.owner == next((each for each in due if each > model.last), due[0])
    found = model.wanted[job.owner, job.key]
    assert found.is_over
    found.attempts += 1
    assert (job.attempts, job.is_last) == (found.attempts, found.attempts > len(RETRIES))
    found.holder, found.is_over, model.last = job, False, job.owner
    model.given.append(job)


def _die(model: Model, session: Session) -> None:
    ago = utcnow() - timedelta(hours=1)
    session.execute(sa.update(JOB).where(JOB.c.claim.is_not(None)).values(next_at=ago))
    for each in model.wanted.values():
        each.is_over = each.is_over or each.holder is not None


def _worker(model: Model, session: Session, what: str, job: Job) -> None:
    found = model.of(job)
    try:
        match what:
            case "hold" | "progress":
                hold(session, job, progress=what == "progress")
            case "renew":
                assert renew(session, [job], timedelta(hours=1)) == ([] if found else [job])
            case "finish":
                finish(session, job)
            case "complete":
                complete(session, job)
            case "failed":
                wait = failed(session, KIND, job, "no")
                assert (wait is None) == (found is not None and found.attempts > len(RETRIES))
            case _:
                give_back(session, [job])
    except JobLost:
        assert found is None
        return
    if found is not None:
        _changed(model, what, job, found)
    else:
        assert what in ("renew", "complete", "give back"), "those do not raise, and change nothing"


def _changed(model: Model, what: str, job: Job, found: Wanted) -> None:
    match what:
        case "progress":
            found.attempts = 1
        case "renew":
            found.is_over = False
        case "finish" | "complete":
            del model.wanted[job.owner, job.key]
        case "failed" | "give back":
            found.has_failed = what == "failed" and found.attempts > len(RETRIES)
            found.attempts -= what == "give back"
            found.holder, found.is_over = None, True
        case _:
            pass


def _check(model: Model, session: Session) -> None:
    rows = session.execute(sa.select(JOB)).all()
    assert {(Owner(row.tenant, row.user_id), row.key) for row in rows} == {*model.wanted}
    for row in rows:
        found = model.wanted[Owner(row.tenant, row.user_id), row.key]
        assert (row.attempts, row.next_at is None) == (found.attempts, found.has_failed)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close_sync()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_a_job_is_whoevers_was_given_it_last(database: Database, steps: Sequence[tuple[str, int]]) -> None:
    database.write_sync(lambda session: session.execute(sa.delete(JOB)))
    model = Model()

    def step(session: Session, what: str, number: int) -> None:
        if what in ("enqueue", "anew", "cancel"):
            _feature(model, session, what, NAMES[number])
        elif what in ("claim", "die", "die and claim"):
            if what != "claim":
                _die(model, session)
            if what != "die":
                _claim(model, session)
        elif model.given:
            _worker(model, session, what, model.given[-1 - number % len(model.given)])
        _check(model, session)

    for what, number in steps:
        database.write_sync(lambda session, what=what, number=number: step(session, what, number))
