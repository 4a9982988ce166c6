"""`--bounded`: servers are killed with limits, budgets, usage and metrics on. What each of them says at the end is what
the model server has counted, nothing is reserved any more, and nobody is locked out."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from drsai_backend import DrSai, RunStatus
from drsai_backend.access.principal import Scope
from drsai_backend.errors import BudgetReached, TooManyRequests
from tests.chaos.checks import Broken
from tests.chaos.databases import query
from tests.chaos.evidence import cut_calls
from tests.chaos.kills import Killing
from tests.chaos.tenants import TENANTS, USER, store_key
from tests.chaos.world import World
from tests.support.teams.crew import Crew
from tests.support.threads import LATE, settings

_SPENT = "budgetstate JOIN run ON run.run_id = budgetstate.holder WHERE run.status IN ('running', 'created')"
_LIMIT = "requests=1000000, tokens=1000000000, runs={runs}, streams=1000"
_BUDGET = "tokens_day=10000000000, tokens_month=10000000000, cost_day=100000, cost_month=100000"


def bounds_of(folder: Path, *, clients: int) -> dict[str, str]:
    """Return the settings of processes, which share what metrics count in a folder.

    Of all limits that of runs at once is as low as it can be, a run for each client: what a crash would leave behind of
    it, somebody would be refused for.
    """
    whose, counts = ("KEY", "USER", "TENANT", "ALL"), folder / "metrics"
    counts.mkdir()
    return {
        **{f"DRSAI_LIMIT_{who}": _LIMIT.format(runs=clients) for who in whose},
        **{f"DRSAI_BUDGET_{who}": _BUDGET for who in whose},
        "DRSAI_USAGE": "true",
        "DRSAI_METRICS": "true",
        "DRSAI_METRICS_FOLDER": str(counts),
    }


class KillingBounded(Killing):
    """`Killing` in a world whose processes have the settings of `bounds_of`."""

    async def _at_rest(self) -> None:
        broken = await asyncio.to_thread(check_books, self._world)
        broken += await check_metrics(self._world)
        broken += await check_free(self._world)
        self.outcome.broken += broken
        rows = query(self._world.url, "SELECT prompt_tokens FROM usageentry")
        self.outcome.figures["model calls answered"] = len(self._world.models.answered)
        self.outcome.figures["model calls counted"] = len(rows)


def check_books(world: World) -> list[Broken]:
    """Usage has each call that the model server has answered once, but for those whose process was killed, or had lost
    its run, before it could store them, and for those that were left before they were answered. Budgets have used just
    that, and nothing is reserved."""
    answered, excused = world.models.answered, world.died()
    calls = query(world.url, "SELECT tenant, used_by, prompt_tokens, completion_tokens, cost FROM usageentry")
    stored = Counter[int](call["prompt_tokens"] for call in calls)
    for (prompt, _), many in cut_by_tokens(world.url).items():
        stored[prompt] -= many
    stored = +stored
    broken = [f"the call n{number} counts {many} times" for number, many in stored.items() if many > 1]
    broken += [f"the call n{number} counts and was never answered" for number in stored.keys() - answered.keys()]
    broken += [
        f"the call n{number} of {request.api_key} does not count"
        for number, request in answered.items()
        if number not in stored and request.api_key not in excused and not request.disconnected
    ]
    broken += [f"a call of {call['tenant']} is {call['used_by']}'s" for call in calls if call["used_by"] != USER]
    spent = "SELECT subject, length(period) AS long, sum(tokens) AS tokens, sum(cost) AS cost FROM budgetstate "
    found = query(world.url, spent + "WHERE holder = '' GROUP BY subject, length(period)")
    # Of all, and of each tenant, its user and their key: a day and a month.
    if len(found) != 2 * (1 + 3 * len({call["tenant"] for call in calls})):
        broken.append(f"budgets are those of {[row['subject'] for row in found]}")
    for row in found:
        tenant = row["subject"].split("/")[1]
        those = [call for call in calls if tenant in ("", call["tenant"])]
        tokens = sum(call["prompt_tokens"] + call["completion_tokens"] for call in those)
        cost = sum(call["cost"] or 0 for call in those)
        if (row["tokens"], row["cost"]) != (tokens, cost):
            said = f"the budget of {row['subject']} has used {row['tokens']} tokens and {row['cost']}"
            broken.append(f"{said}, calls {tokens} and {cost}")
    held = query(world.url, f"SELECT subject, holder FROM {_SPENT}")
    broken += [f"{row['subject']} has something reserved for {row['holder']}" for row in held]
    live = "SELECT run_id FROM run WHERE status = 'running' UNION ALL SELECT run_id FROM queuedinput"
    broken += [f"{row['run_id']} counts as a run under way" for row in query(world.url, live)]
    return [Broken(text, "-") for text in broken]


def cut_by_tokens(url: str) -> Counter[tuple[int, int]]:
    """Calls that were cut off, whose use is estimated, by the tokens that count of them."""
    calls = [each for row in query(url, "SELECT calls FROM run") for each in cut_calls(row["calls"])]
    return Counter((each.get("prompt_tokens", 0), each.get("completion_tokens", 0)) for each in calls)


async def check_metrics(world: World) -> list[Broken]:
    """Metrics have counted each call that is stored, and none that was not answered; nothing is under way."""
    key = await asyncio.to_thread(partial(store_key, world.url, TENANTS[0], [Scope.METRICS_READ]))
    base = world.serving()[0].base
    async with httpx.AsyncClient(timeout=60) as http:
        told = await http.get(f"{base}/metrics", headers={"Authorization": f"Bearer {key}"})
    samples = [each for family in text_string_to_metric_families(told.text) for each in family.samples]
    count = sum(each.value for each in samples if each.name == "drsai_model_calls_total")
    [found] = query(world.url, "SELECT count(*) AS n FROM usageentry")
    stored = found["n"] - cut_by_tokens(world.url).total()
    broken: list[str] = []
    if not stored <= count <= len(world.models.answered):
        broken.append(f"metrics have {count:g} calls; {stored} are stored, {len(world.models.answered)} answered")
    busy = {
        ("drsai_runs", "status", "running"),
        ("drsai_leases", "state", "held"),
        ("drsai_leases", "state", "expired"),
    }
    for each in samples:
        is_busy = any(each.name == name and each.labels.get(label) == value for name, label, value in busy)
        if each.value and (is_busy or each.name == "drsai_queued_inputs"):
            broken.append(f"metrics have {each.value:g} of {each.name} {each.labels}")
    return [Broken(text, "-") for text in broken]


async def check_free(world: World) -> list[Broken]:
    """Each user may still have a run, where one at a time is allowed, and what is left of their budget is for it."""
    broken: list[Broken] = []
    async with DrSai({"crew": Crew()}, world.url, settings=settings(**LATE)) as drsai:
        for tenant in TENANTS:
            told = await drsai.budgets.set("user", USER, tenant=tenant, tokens_month=1)
            used = int(told.used["tokens_month"])
            await drsai.budgets.set("user", USER, tenant=tenant, tokens_month=used + 10_000)
            await drsai.limits.set("user", USER, tenant=tenant, runs=1)
            try:
                run = await drsai.user(USER, tenant=tenant).run("crew", "x", thread_id="free")
            except (BudgetReached, TooManyRequests) as error:
                broken.append(Broken(f"a user is locked out: {error.message}", f"{tenant}/free"))
            else:
                if run.status is not RunStatus.COMPLETED:
                    broken.append(Broken(f"a run is {run.status.value}: {run.stop_reason}", f"{tenant}/free"))
    return broken
