"""Jobs are enqueued, guarded, finished and looked at by the features whose they are.

Synchronous functions of a `Session`: what a feature stores in the same transaction is stored with it, or neither is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy.orm import Session

from drsai_backend.datamodel.owner import Owner
from drsai_backend.work.kinds import Job, JobState, NewJob


def enqueue(session: Session, owner: Owner, new: NewJob) -> bool:
    """Store a job of a user's, to be done by any process. Also in `run_ended`.

    `Workers.wake()` after the transaction has it taken up at once; else it is within `sweep_seconds`.

    Returns:
        False: it was there already, and is as it was (`NewJob.anew`).

    Raises:
        TooManyJobs: the user has 10,000 jobs of the kind.
        InvalidRequest: the payload is no JSON, or too long.
    """
    raise NotImplementedError


def hold(session: Session, job: Job, *, progress: bool = False) -> None:
    """Guard what a handler stores on its way: first in its transaction. It renews the lease, too.

    Args:
        session: of the transaction.
        job: what the handler was given.
        progress: what is stored here is not done again when the job is begun anew, so its attempts count from here.

    Raises:
        JobLost: the job is another worker's, or gone: nothing of the transaction must be stored.
    """
    raise NotImplementedError


def finish(session: Session, job: Job) -> None:
    """Delete a job that is done: first in the transaction that stores what has come of it, so that it is stored once.

    Raises:
        JobLost: the job is another worker's, or gone: nothing of the transaction must be stored.
    """
    raise NotImplementedError


def cancel(session: Session, owner: Owner, kind: str, keys: Collection[str] | None = None) -> int:
    """Delete jobs of a user's, also those under way: their workers store nothing more, and end soon.

    Args:
        session: of the transaction.
        owner: whose.
        kind: of which kind.
        keys: which; None: all of the kind.

    Returns:
        How many there were.
    """
    raise NotImplementedError


def states(session: Session, owner: Owner, kind: str, keys: Collection[str]) -> Mapping[str, JobState]:
    """Return what is known of jobs of a user's, by key. Those that are done, or never were, are not in it."""
    raise NotImplementedError
