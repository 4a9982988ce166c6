"""Repeats are requests that clients send again by themselves: what a repeat gets is the run of the first try.

OpenAI's clients send a request again when it takes too long or the connection breaks, and say so
(`x-stainless-retry-count`); others do the same and say nothing. A repeat of either kind has the same digest
(`runs.intake.request_digest`); a thread's id counts where the request names one.

- One that says so joins the newest run with that digest, of which the client has left, if there is one, else of any: in
  this process by its attempt, in others by what is stored (`Run.fingerprint`), also after the process has died.
- One that does not say so joins only a run that is still under way and whose client has left this process. While its
  client listens, the same words are a second message: many people share a user, and some ask twice on purpose.
- A run that was stopped is not joined, and one that somebody has joined is not stopped since its first client left.

An idempotency key that the client sets itself comes first (`runs.feed.replay`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from drsai_backend.database import Database
from drsai_backend.database.runs.reads import read_run
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.runs.feed.handle import Attempt, Handle
from drsai_backend.runs.feed.live_run import LiveRun
from drsai_backend.runs.feed.replay import find_repeated_request, find_run_of
from drsai_backend.runs.intake.request_digest import RequestDigests
from drsai_backend.runs.requests import Admitted, run_ids_since

if TYPE_CHECKING:
    from drsai_backend.runs.intake.intake import Intake

Mode = Literal["left", "always", "off"]
_UNDER_WAY: Final = frozenset({RunStatus.CREATED, RunStatus.RUNNING})
_SECONDS: Final = 900.0
"""For how long after its first try a request may be repeated: OpenAI's clients wait 600 seconds for an answer."""
_KEPT: Final = 256
"""Most attempts whose clients have left that a process remembers."""


class Repeats:
    """The attempts of one process whose clients wait, or have left.

    Args:
        database: where runs are.
        mode: `DRSAI_JOIN_REPEATS`.
        starts: what begins runs.
        live: the run of this process on a thread, if there is one that has begun.
    """

    def __init__(
        self,
        database: Database,
        mode: Mode,
        starts: Intake,
        live: Callable[[ThreadName], LiveRun | None],
    ) -> None:
        self._database = database
        self._mode: Mode = mode
        self._starts = starts
        self._live = live
        self._digests = RequestDigests()
        self._waiting: dict[str, list[Attempt]] = {}
        self._left: dict[str, list[Attempt]] = {}

    async def begin(self, request: Admitted) -> Handle:
        """Begin the run of a request, unless that is a repeat of one whose run is there.

        Raises:
            Exception: what `Intake.begin` raises.
        """
        if request.ask.origin.repeated is None or request.ask.origin.key is not None or self._mode == "off":
            return await self._starts.begin(request)
        digest = self._digests.of(request)
        if request.ask.origin.repeated or self._mode == "always" or digest in self._left:
            joined = await self._joined(request, digest)
            if joined is not None:
                return joined
        attempt = Attempt(digest)
        self._waiting.setdefault(digest, []).append(attempt)
        try:
            handle = await self._starts.begin(replace(request, digest=digest))
            attempt.run, attempt.more = (handle.name, handle.run_id), handle.maker()
        except BaseException:
            self._drop(attempt)
            raise
        finally:
            attempt.started.set()
        handle.attempt = attempt
        return handle

    async def _joined(self, request: Admitted, digest: str) -> Handle | None:
        """A handle of the run that another try of the request has started."""
        is_repeat = bool(request.ask.origin.repeated)
        for attempt in self._candidates(digest, is_repeat=is_repeat):
            if attempt.listeners and not is_repeat and self._mode != "always":
                continue  # Another one has joined it meanwhile.
            self._drop(attempt)
            attempt.listeners += 1
            self._waiting.setdefault(digest, []).append(attempt)
            try:
                handle = await self._handle_of(request, attempt, is_repeat=is_repeat)
            except BaseException:
                self._gone(attempt, told=False)
                raise
            if handle is not None:
                return handle
            self._gone(attempt, told=True)
        return await self._joined_stored(request, digest) if is_repeat else None

    async def _handle_of(self, request: Admitted, attempt: Attempt, *, is_repeat: bool) -> Handle | None:
        """A handle of the attempt's run, if that may be joined."""
        await attempt.started.wait()
        if attempt.run is None:
            return None
        name, run_id = attempt.run
        run = await self._database.read(lambda session: read_run(session, run_id))
        status = None if run is None else run["status"]
        if status in (None, RunStatus.STOPPED) or not (is_repeat or status in _UNDER_WAY):
            return None
        handle = attempt.more()
        if handle is None:
            found = await self._database.read(lambda session: find_run_of(session, name, run_id, attempt.digest))
            if found is None:
                return None
            handle = await self._starts.again(request, found)
        handle.attempt = attempt
        return handle

    async def _joined_stored(self, request: Admitted, digest: str) -> Handle | None:
        """The same by what is stored, where this process knows nothing of it."""
        owner = request.where.owner_of(request.who)
        since = run_ids_since(_SECONDS)
        found = await self._database.read(
            lambda session: find_repeated_request(session, owner, request.where.thread_id, digest, since)
        )
        if found is None:
            return None
        live = self._live(found.head.name)
        if live is not None and live.run_id == found.run_id and live.stop_requested:
            return None
        return await self._starts.again(request, found)

    def _candidates(self, digest: str, *, is_repeat: bool) -> Sequence[Attempt]:
        """The attempts that a request may join, the best first."""
        left = self._left.get(digest, ())
        if not is_repeat and self._mode != "always":
            return tuple(left)
        return (*left, *reversed(self._waiting.get(digest, ())))

    # --- the clients --------------------------------------------------------------------------------------------

    @contextmanager
    def listening(self, handle: Handle) -> Generator[None]:
        """While a client waits for the answer. One that leaves, which an exception tells, may ask for it again."""
        attempt = handle.attempt
        if attempt is None:
            yield
            return
        try:
            yield
        except BaseException:
            self._gone(attempt, told=False)
            raise
        self._gone(attempt, told=True)

    def withdraw(self, handle: Handle) -> bool:
        """Withdraw it: its client has left, and means its run to be stopped; who asks again wants another one. False:
        somebody else has joined it already, and waits for it."""
        attempt = handle.attempt
        if attempt is None:
            return True
        if attempt.listeners:
            return False
        self._drop(attempt)
        return True

    def _gone(self, attempt: Attempt, *, told: bool) -> None:
        attempt.listeners -= 1
        if attempt.listeners:
            return
        self._drop(attempt)
        if not told:
            self._forget_old()
            self._left.setdefault(attempt.digest, []).append(attempt)

    def _drop(self, attempt: Attempt) -> None:
        for place in (self._waiting, self._left):
            kept = [each for each in place.get(attempt.digest, ()) if each is not attempt]
            if kept:
                place[attempt.digest] = kept
            else:
                place.pop(attempt.digest, None)

    def _forget_old(self) -> None:
        every = sorted((each for attempts in self._left.values() for each in attempts), key=lambda each: each.at)
        since, surplus = time.monotonic() - _SECONDS, len(every) - _KEPT + 1
        for number, each in enumerate(every):
            if number < surplus or each.at < since:
                self._drop(each)
