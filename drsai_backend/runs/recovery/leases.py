"""Leases are kept by the heartbeat of their worker, which a thread of its own makes, so that an event loop that stands
still loses no run; here is told whose worker is gone."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import psutil

from drsai_backend.database import Database
from drsai_backend.database.runs.reads import ThreadHead
from drsai_backend.database.runs.statements import FAR
from drsai_backend.database.runs.workers import ANNOUNCE_SECONDS
from drsai_backend.database.runs.writes import renew_leases
from drsai_backend.errors import DrSaiError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

log = logging.getLogger("drsai.leases")

HeldLease: TypeAlias = tuple[int, int, str]

_LOOK_SECONDS: Final = 0.5
_STALL_SECONDS: Final = 1.0
"""How long the event loop may stand still before that is worth a log line."""
_CONFIRM_SECONDS: Final = 0.05
_STOP_SECONDS: Final = 5.0
"""How long a renewal that hangs may hold up the end of a process."""


@dataclass(eq=False)
class Heartbeat:
    """Announces every `interval` seconds that this process lives, by which all its leases last, however many, and asks
    which are its own still. Without leases it does so more rarely.

    It does so from a thread with a database connection of its own: whatever holds up the event loop, a request or a
    tool, costs no other run its lease. A loop that has stood still for `max_stall` seconds counts as dead, and its
    leases run out. A process that was stopped whole renews nothing either.

    Args:
        announce: says in a transaction that this process lives, and returns whether a worker lives that goes by each
            lease alone; see `database.runs.workers`.
        holds: gives the leases that this process holds at the moment, as (thread key, epoch, run_id). Called in any
            thread.
        lost: called with those that it does not hold any more. This and `asked` are called in the event loop.
        asked: called with what the runs of the others are asked to do, by lease.
    """

    database: Database
    owner: str
    interval: float
    lease: timedelta
    announce: Callable[[Session], bool]
    holds: Callable[[], Iterable[HeldLease]]
    lost: Callable[[set[HeldLease]], None]
    asked: Callable[[dict[HeldLease, str | None]], None]
    max_stall: float = 60.0
    _missed: set[HeldLease] = field(default_factory=set[HeldLease])
    """Found to be somebody else's at `_missed_at`, which has to be confirmed."""
    _missed_at: float = 0.0
    _announced: float = 0.0
    _thread: threading.Thread | None = None
    _wake: threading.Event = field(default_factory=threading.Event)
    _stopping: bool = False
    _early: bool = False

    def beat_now(self) -> None:
        """Do not wait for the interval to be over."""
        self._early = True
        self._wake.set()

    def start(self) -> None:
        """Begin to beat for the running event loop."""
        self._stopping = False
        work = (asyncio.get_running_loop(), threading.get_ident())
        self._thread = threading.Thread(target=self._beat, args=work, name="drsai-leases", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stopping = True
            self._wake.set()
            await asyncio.to_thread(thread.join, _STOP_SECONDS)

    # --- in the thread ------------------------------------------------------------------------------------------

    def _beat(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        database = self.database.apart()
        pulse = _Pulse(loop, ident)
        due = time.monotonic() + self.interval
        try:
            while True:
                self._wake.wait(max(0.0, min(_LOOK_SECONDS, due - time.monotonic())))
                self._wake.clear()
                if self._stopping:
                    return
                stalled = pulse.look()
                if not self._early and time.monotonic() < due:
                    continue
                self._early = False
                due = time.monotonic() + self.interval
                if stalled < self.max_stall:
                    self._renew(database, loop)
                elif pulse.give_up():
                    log.error("the event loop has stood still for %.0f s: its leases are not renewed", stalled)
        except RuntimeError:
            if not loop.is_closed():
                raise
        finally:
            if database is not self.database:
                database.close_sync()

    def _renew(self, database: Database, loop: asyncio.AbstractEventLoop) -> None:
        held = set(self.holds())
        began = time.monotonic()
        if not held and began - self._announced < ANNOUNCE_SECONDS:
            return
        keys = {key for key, _, _ in held}

        def renew(session: Session) -> dict[HeldLease, str | None]:
            lease = (self.lease,) if self.announce(session) else (FAR, FAR / 2)
            return renew_leases(session, self.owner, keys, *lease) if keys else {}

        try:
            renewed = database.write_sync(renew)
        except DrSaiError as error:
            log.warning("leases not renewed: %s", error.message)
        except Exception:
            # Without renewals, every run of this process would be lost.
            log.exception("leases not renewed")
        else:
            self._announced = began
            loop.call_soon_threadsafe(self._heard, held, renewed, began)

    # --- in the event loop --------------------------------------------------------------------------------------

    def _heard(self, held: set[HeldLease], renewed: dict[HeldLease, str | None], began: float) -> None:
        # A run that ended meanwhile has given its lease back, and its thread may have another run by now, of another
        # epoch: lost is only what was not renewed and is held still. The loop may not have got round yet to reading
        # that its own last write has given the lease back, so it is looked at again when it has.
        known = {(key, run_id) for key, _, run_id in renewed}
        missed = {lease for lease in held if (lease[0], lease[2]) not in known} & set(self.holds())
        confirmed = began > self._missed_at + _CONFIRM_SECONDS
        gone = missed & self._missed if confirmed else set[HeldLease]()
        if gone:
            log.error("leases of %d threads lost", len(gone))
            self.lost(gone)
        missed -= gone
        if confirmed or missed != self._missed:
            self._missed, self._missed_at = missed, time.monotonic()
            if missed:
                asyncio.get_running_loop().call_later(2 * _CONFIRM_SECONDS, self.beat_now)
        self.asked(renewed)


class _Pulse:
    """Whether an event loop turns, seen from another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        self._loop = loop
        self._ident = ident
        self._asked = self._looked = time.monotonic()
        self._answered = True
        self._said = False
        self._given_up = False

    def look(self) -> float:
        """Return for how many seconds the loop has stood still. Says so in the log once, with where it stands, and when
        it turns again.

        Raises:
            RuntimeError: the loop is closed.
        """
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS + _STALL_SECONDS:
            # This thread did not run either: the process was stopped, or something held the interpreter's lock.
            log.warning("this process did not run for %.1f s", now - self._looked)
            self._asked = max(self._asked, now - _LOOK_SECONDS)
        self._looked = now
        stalled = now - self._asked
        if self._answered:
            if self._said:
                log.warning("the event loop turns again")
            self._said = self._given_up = self._answered = False
            self._asked = now
            self._loop.call_soon_threadsafe(self._answer)
            return 0.0
        if stalled > _STALL_SECONDS and not self._said:
            self._said = True
            frame = sys._current_frames().get(self._ident)  # pyright: ignore[reportPrivateUsage]
            where = "" if frame is None else "".join(traceback.format_stack(frame, limit=8))
            log.warning("the event loop has stood still for %.1f s, here:\n%s", stalled, where.rstrip())
        return stalled

    def give_up(self) -> bool:
        """Whether this is the first time in this stall."""
        given_up, self._given_up = self._given_up, True
        return not given_up

    def _answer(self) -> None:
        self._answered = True


def is_orphan(head: ThreadHead, own_worker: str) -> bool:
    """Whether nobody runs this RUNNING thread any more. Ask about threads that this process does not run."""
    owner = head.lease_owner
    if owner is None or owner == own_worker or is_proven_dead(owner):
        return True
    return head.lease_expired


@cache
def _host() -> str:
    """Distinguishes boots and, on Linux, process namespaces: a pid means something only within both."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8])
        parts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    except OSError:
        parts.append(str(int(psutil.boot_time())))
    return "/".join(parts)


def new_worker_id() -> str:
    """`host:pid:start:random`, where `start` says when the process was started; see `_started`."""
    return f"{_host()}:{os.getpid()}:{_started(os.getpid())}:{secrets.token_hex(4)}"


def shown_worker(worker_id: str) -> str:
    """Return process and host of a worker, `pid@host`, as people read it: one host may have all."""
    host, pid = worker_id.rsplit(":", 3)[:2]
    return f"{pid}@{host.partition('/')[0]}"


def is_proven_dead(worker_id: str) -> bool:
    """True only when the worker ran on this host and its process is gone, or its pid is another process's now."""
    try:
        host, pid, started, _ = worker_id.rsplit(":", 3)
        if host != _host():
            return False
        # A zombie has ended; its parent (in a container often nobody) has only not asked for its exit code yet.
        if psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE:
            return True
        # A number is the time of day at which a process of an earlier release was started: it moves with the clock.
        return started.startswith("t") and _started(int(pid)) != started
    except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
        return True
    except (ValueError, OSError, psutil.Error):
        return False


def was_in(worker_id: str, pid: int) -> bool:
    """Whether the worker ran on this host in the process `pid`, which is gone."""
    return is_proven_dead(worker_id) and worker_id.rsplit(":", 3)[1] == str(pid)


def _started(pid: int) -> str:
    """Return when a process was started, by a clock that nobody sets: on Linux in ticks since the boot that `_host`
    names. No number, so that earlier releases, which compare times of day, do not read it as one.

    Raises:
        OSError, psutil.Error: it cannot be told, or the process is gone.
    """
    if not sys.platform.startswith("linux"):
        return f"t{psutil.Process(pid).create_time() * 100:.0f}"  # As the system noted it then.
    # The program's name, in parentheses, may hold any character.
    return "t" + Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
