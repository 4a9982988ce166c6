"""`Budgets` is the feature: what runs reserve and calls use, beside its verbs (`rules`) and its routes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from datetime import time as time_of_day
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import utcnow
from drsai_backend.errors import BudgetReached, DrSaiError
from drsai_backend.features.base import end
from drsai_backend.features.budgets import rows
from drsai_backend.features.budgets.base import BESIDE, Budget, BudgetList, Spend, periods
from drsai_backend.features.budgets.rules import Rules
from drsai_backend.features.rules.verbs import KEPT

if TYPE_CHECKING:
    from cachetools import LRUCache
    from sqlalchemy.orm import Session

    from drsai_backend.database.backends.prepared import Charge, Step
    from drsai_backend.database.hooks import Asked, CallsOf, Draw, MadeCall
    from drsai_backend.datamodel.owner import Owner, ThreadName
    from drsai_backend.features.base import Host
    from drsai_backend.features.budgets.ledger import Allotment, Ledger
    from drsai_backend.json_types import JsonObject
    from drsai_backend.runs import Engine

log = logging.getLogger("drsai.budgets")

ANSWER: Final = 500
"""Tokens of an answer of which nobody says how long it may be."""
_MORE: Final = 4_000
"""Tokens that are reserved beyond what is needed, for a run on a thread of which nothing is known."""
BATCH: Final = 16
"""Runs that a look resumes at most: before the next one, those have reserved what they need."""
EVERY: Final = 2.0
"""Seconds between two looks, as long as there is something to do."""
_SELDOM: Final = 60.0
"""Seconds between two looks else."""
_PAGE: Final = 500
"""Runs that one look reads."""
Bounding = Callable[["Owner", "str | None", "ThreadName", datetime], "BudgetList | None"]
"""Returns the budgets that count for who asked, with which key, on which thread, at a moment; None: there are none."""


class Budgets(Rules):
    """Budgets: those of the settings, and those that were set for somebody, or a thread, in their place."""

    def __init__(self, host: Host) -> None:
        def said() -> dict[str, dict[str, int]]:
            given = {kind: getattr(host.settings, f"budget_{kind}") for kind in self.kinds}
            return {
                kind: {name: self._units(name, most) for name, most in each.items()} for kind, each in given.items()
            }

        super().__init__(host, said)
        self._rates: dict[object, float] = {}
        """What a token of a model or a profile has cost last; None: of any."""
        self._warned = set[tuple[str, str]]()
        self.resuming: Resuming | None = None
        """Resumes paused runs; None: this process runs none."""
        self._looking: asyncio.Task[None] | None = None

    @cached_property
    def _ledger(self) -> Ledger:
        from drsai_backend.features.budgets.ledger import Ledger

        return Ledger(self._refusal, self._warn, self.host.database.dialect == "sqlite")

    @cached_property
    def _prompts(self) -> LRUCache[ThreadName | None, int]:
        """How many tokens the prompt of a thread's newest model call had."""
        from cachetools import LRUCache

        return LRUCache(10_000)

    def _changed(self) -> None:
        super()._changed()
        if self._bounds_some:
            self.host.drawn[self.name] = self.draw
        else:
            self.host.drawn.pop(self.name, None)

    # --- before a call ------------------------------------------------------------------------------------------------

    def charge(self, asked: Asked) -> Charge | None:
        """Return what reserves what the first model call of a run may use. Of calls beside runs it is looked whether
        there is something left, but for a last part, which is kept for answers."""
        if (budgets := self._budgets(asked.owner, asked.key_id, asked.thread, utcnow())) is None:
            return None
        from drsai_backend.features.budgets.ledger import Reserving

        if asked.tokens is None:
            return Reserving(self._ledger, budgets, Spend(1, 1), None)
        before, rate = self._prompts.get(asked.thread, 0), self._rates.get(None, 0.0)
        tokens, more = max(1, asked.tokens(), before), max(_MORE, 2 * before)
        need = Spend(tokens, max(1, round(tokens * rate))).of(budgets)
        return Reserving(self._ledger, budgets, need, Spend(more, round(more * rate)).of(budgets))

    def draw(self, owner: Owner, key_id: str | None, thread: ThreadName, run_id: str) -> Draw | None:
        """Return what draws the calls of a run from its allotment."""
        if self._budgets(owner, key_id, thread, utcnow()) is None:
            return None
        from drsai_backend.features.budgets.ledger import Allotment

        self._ledger.allotments[run_id] = allotment = Allotment()

        async def draw(model: str, prompt: int, answer: int | None) -> Callable[[bool], None]:
            self._prompts[thread] = prompt
            if (budgets := self._budgets(owner, key_id, thread, utcnow())) is None:
                return _unbounded
            answer = ANSWER if answer is None else answer
            need = Spend(prompt + answer, self._cost_of(model, prompt, answer)).of(budgets)
            await self._draw(run_id, budgets, allotment, need)
            return partial(allotment.ended, need)

        return draw

    async def _draw(self, run_id: str, budgets: BudgetList, allotment: Allotment, need: Spend) -> None:
        """Have what a call needs spoken for. Raises BudgetReached: there is not so much."""
        allotment.busy = allotment.busy.plus(need)
        try:
            async with allotment.lock:
                if not allotment.suffices(budgets):
                    await self._reserve(run_id, budgets, allotment, Spend(2 * need.tokens, 2 * need.cost))
        except BaseException:
            allotment.ended(need, False)
            raise

    async def _reserve(self, run_id: str, budgets: BudgetList, allotment: Allotment, more: Spend) -> None:
        """Have the database reserve all that a run has spoken for, in place of what was reserved for it before."""
        from drsai_backend.database import patiently
        from drsai_backend.database.backends.prepared import due, run_guarded
        from drsai_backend.features.budgets.ledger import Reserving

        dues = due([Reserving(self._ledger, budgets, allotment.busy, more)], 0, run_id)

        def attempt(_: bool) -> Awaitable[object]:
            return self.host.database.write(
                lambda session: run_guarded(session.connection(), None, (), dues=dues, is_last=True), short=True
            )

        await patiently(attempt, self.host.settings.outage_seconds, {"run_id": run_id})

    def _cost_of(self, model: str, prompt: int, answer: int) -> int:
        """Return what a call costs by the list of prices; by what the last one has cost, where the name is that of a
        profile; nothing, where no price is known."""
        call = {"model": model, "prompt_tokens": prompt, "completion_tokens": answer}
        cost = self.host.prices.cost_of(call, utcnow()) if model else None
        rate = self._rates.get(model) if model else self._rates.get(None)
        return round((rate or 0) * (prompt + answer)) if cost is None else cost

    def _budgets(self, owner: Owner, key_id: str | None, thread: ThreadName | None, at: datetime) -> BudgetList | None:
        """Return the budgets that count, at a moment in UTC, for a user's requests, or for those with a key of theirs,
        or on a thread; None: there are none."""
        if not self._bounds_some:
            return None
        thread = thread if self._bounds_threads else None
        found = self._once((owner, key_id, thread, at.date()), lambda: self._find(owner, key_id, thread, at))
        return found if found.each else None

    def _find(self, owner: Owner, key_id: str | None, thread: ThreadName | None, at: datetime) -> BudgetList:
        return BudgetList(
            Budget(who, period, *most)
            for who, given in self._given(owner, key_id, thread)
            for name, period in periods(at).items()
            if any(most := (given.get(f"tokens_{name}", 0), given.get(f"cost_{name}", 0)))
        )

    # --- what calls have used -----------------------------------------------------------------------------------------

    def calls_made(self, of: CallsOf, calls: Sequence[MadeCall]) -> Sequence[Step]:
        """Count what calls have used in all budgets of their moment, and take it out of what is reserved."""
        if not self._bounds_some:
            return ()
        used, total = dict[tuple[str, str], Spend](), Spend()
        for call in calls:
            if (budgets := self._budgets(of.owner, of.key_id, of.thread, call.at)) is not None:
                spent = self._spent(call)
                total = total.plus(spent)
                for key in budgets.keys:
                    used[key] = used[key].plus(spent) if key in used else spent
        if not used:
            return ()
        if (allotment := self._ledger.allotments.get(of.run_id or "")) is not None:
            allotment.settled(total)
        return [rows.settling(used)]

    def _spent(self, call: MadeCall) -> Spend:
        record = call.record
        prompt, answer = record.get("prompt_tokens"), record.get("completion_tokens")
        tokens = (prompt if isinstance(prompt, int) else 0) + (answer if isinstance(answer, int) else 0)
        cost = self.host.prices.cost_of(record, call.at) if record.get("model") else None
        if cost is not None and tokens:
            self._rates |= dict.fromkeys((None, record.get("model")), cost / tokens)
        return Spend(tokens, cost or 0)

    # --- what is told -------------------------------------------------------------------------------------------------

    def _refusal(self, budget: Budget, of: str) -> BudgetReached:
        """Return what is told of a budget of which there is not enough left, in the operator's words where there are
        any."""
        said, until = budget.said(of, self._currency), f"{budget.anew:%Y-%m-%dT%H:%M:%SZ}"
        words = self.host.settings.budget_message or "{budget} is used up: it begins anew at {until}"
        log.warning("a budget is used up", extra={"budget": budget.who.subject, "period": budget.period, "of": of})
        return BudgetReached(words.replace("{budget}", said).replace("{until}", until))

    def _warn(self, budget: Budget, used: Spend) -> None:
        if budget.key not in self._warned:
            self._warned.add(budget.key)
            names = {"budget": budget.who.subject, "period": budget.period}
            log.warning("a budget nears its end: %.0f %% are used", 100 * budget.part(used), extra=names)

    @property
    def _currency(self) -> str:
        return self.host.prices.currency

    # --- what others change -------------------------------------------------------------------------------------------

    def user_deleted(self, session: Session, owner: Owner) -> int:
        """Delete what was set for a user, and what they have used."""
        return rows.forget_user(session, owner)

    # --- runs that are paused -----------------------------------------------------------------------------------------

    async def open(self, engine: Engine) -> None:
        """Read what was set, look for changes, and resume runs that find more of their budgets."""
        await super().open(engine)
        self.resuming = Resuming(self.host, engine, self._budgets)
        self._looking = asyncio.create_task(self.resuming.for_ever())

    async def close(self) -> None:
        await end(self._looking)
        await super().close()

    def _hear(self, found: Sequence[JsonObject]) -> None:
        super()._hear(found)
        if self.resuming is not None:
            self.resuming.changed()

    def _settings_changed(self, names: Collection[str]) -> None:
        super()._settings_changed(names)
        if self.resuming is not None and any(name.startswith("budget_") for name in names):
            self.resuming.changed()

    async def _sweep(self) -> None:
        await super()._sweep()
        self._warned.clear()
        before = periods(utcnow() - KEPT)["day"]
        while await self.host.database.write(partial(rows.forget_before, period=before)):
            pass


class Resuming:
    """Resumes runs of a database that are paused for a budget, once there is more of it: some at a time.

    A process looks for them when it begins, when somebody has set a budget, and each minute. A run is made one that
    nobody runs in a write of its own, and then runs like one whose worker is gone: a kill in between loses nothing.

    Args:
        host: has the database.
        engine: runs them.
        budgets: those that count for a run.
    """

    def __init__(self, host: Host, engine: Engine, budgets: Bounding) -> None:
        self._host, self._engine, self._budgets = host, engine, budgets
        self._after = 0
        self._changed = utcnow()
        self._next = time.monotonic()

    def changed(self) -> None:
        """Somebody has set a budget: all that is paused may find more than when it was paused."""
        self._changed, self._next, self._after = utcnow(), time.monotonic(), 0

    async def for_ever(self) -> None:
        """Look when there is something to look for."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                if time.monotonic() >= self._next:
                    self._next = time.monotonic() + _SELDOM
                    if await self.look() or self._after:
                        self._next = time.monotonic()
            except DrSaiError as error:
                log.warning("paused runs are not resumed now: %s", error.message)
            except Exception:
                # Without it, runs would stay paused.
                log.exception("paused runs are not resumed")

    async def look(self) -> int:
        """Resume some of the runs on a page of those that are paused for a budget: where a twentieth of all that count
        for them is left, and somebody has set one, or a day has begun, since they were paused, or that is long ago.
        Returns how many."""
        database, at = self._host.database, utcnow()
        after, self._after = self._after, 0
        page = await database.read(partial(rows.paused, after=after, limit=_PAGE))
        found: list[tuple[rows.PausedRun, Sequence[Budget]]] = []
        for run in page:
            who = _asker(run)
            budgets = self._budgets(who.owner, who.key_id, run.name, at)
            found.append((run, () if budgets is None else budgets.each))
        keys = {each.key for _, budgets in found for each in budgets}
        taken = await database.read(partial(rows.taken, keys=keys)) if keys else {}
        day = datetime.combine(at.astimezone(UTC).date(), time_of_day(), UTC)
        # As of what a dead process leaves behind: no more than half of what this one can take.
        most = min(BATCH, self._host.settings.max_runs // 2 - self._engine.count_runs())
        resumed = 0
        for run, budgets in found:
            if resumed >= most:
                self._after = run.thread_key - 1
                break
            is_due = run.at < max(self._changed, day) or run.again_at < at
            if not is_due or any(each.lacks(taken[each.key], Spend(1, 1), BESIDE) for each in budgets):
                continue
            for each in budgets:  # What it will reserve, nobody knows yet.
                taken[each.key] = taken[each.key].plus(Spend(each.tokens // 20, each.cost // 20))
            if await database.write(partial(rows.resume, run=run)):
                resumed += 1
                names = {"thread_id": run.name.thread_id, "run_id": run.run_id}
                log.info("a run is resumed, as there is more of its budget", extra=names)
                await self._engine.look_at(run.thread_key)
        else:
            self._after = page[-1].thread_key if len(page) == _PAGE else 0
        return resumed


def _unbounded(_: bool) -> None:
    """A call is over for which there was no budget."""


def _asker(run: rows.PausedRun) -> Principal:
    return Principal.load(run.name.owner, run.principal)
