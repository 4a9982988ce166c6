"""What limits, usage, budgets and metrics cost a request, where none of them refuses anything."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median, quantiles

import sqlalchemy as sa

from benchmarks.databases import Postgres, sqlite
from benchmarks.endpoint import endpoint
from benchmarks.load import load
from benchmarks.report import Section
from benchmarks.serving import CHAT, Target, ratio, server
from drsai_backend.datamodel import BudgetState, table_of

CONNECTIONS = 32
GOAL = 1.05
_WHOSE = ("KEY", "USER", "TENANT", "ALL")
_LIMIT = "requests=1000000, tokens=1000000000, runs=100000, streams=100000"
_BUDGET = "tokens_day=5000000000, tokens_month=10000000000, cost_day=1000000, cost_month=1000000"
ON = {
    "DRSAI_USAGE": "true",
    "DRSAI_METRICS": "true",
    **{f"DRSAI_LIMIT_{whose}": _LIMIT for whose in _WHOSE},
    **{f"DRSAI_BUDGET_{whose}": _BUDGET for whose in _WHOSE},
}
OFF = {"DRSAI_USAGE": "false", "DRSAI_METRICS": "false"}


def _used(url: str) -> int:
    """Tokens that the budgets of a database have counted."""
    state = table_of(BudgetState)
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        used = connection.execute(sa.select(sa.func.sum(state.c.tokens))).scalar()
    engine.dispose()
    return int(used or 0)


def _tell(section: Section, database: str, off: Target, on: Target) -> None:
    sides = (off, on)
    times = {target.name: [found.times for found in target.found[CONNECTIONS]] for target in sides}
    middle, last = (
        [[quantiles(one, n=100)[percent - 1] * 1000 for one in times[target.name]] for target in sides]
        for percent in (50, 99)
    )
    spent = [[seconds * 1000 for seconds in target.cpu[CONNECTIONS]] for target in sides]
    measured = (("time of a request, median", middle), ("time of a request, p99", last), ("processor", spent))
    shares = [(what, *ratio(found[1], found[0])) for what, found in measured]
    for side, target in enumerate(sides):
        figures = [f"{median(found[side]):.1f}" for _, found in measured]
        ratios = [shown if side else "1" for _, _, shown in shares]
        failed = map(str, target.failed)
        cells = [cell for pair in zip(figures, ratios, strict=True) for cell in pair]
        section.rows.append((database, target.name, *cells, *failed))
    for what, share, shown in shares:
        section.at_most(
            f"{what}: limits, usage, budgets and metrics ÷ without, {CONNECTIONS} connections, {database}",
            GOAL,
            share,
            shown,
        )


async def measure(postgres: Postgres | None, rounds: int, requests: int = 512) -> Section:
    section = Section(
        "Operations",
        "`POST /v1/chat/completions`, streamed, a new thread with every request, a run of two turns whose model is an\n"
        "HTTP endpoint: `drsai serve` with usage, metrics, limits and budgets, none of which refuses anything, and\n"
        "the same server without them. Servers, endpoint and load in processes of their own, in turns;\n"
        f"{CONNECTIONS} connections. Milliseconds; medians of {rounds} rounds of {requests} requests, with the least\n"
        "and the greatest of the ratios.",
        ("database", "server", "median", "÷ without", "p99", "÷ without", "CPU", "÷ without", "time-outs", "errors"),
    )
    with ExitStack() as stack:
        base = stack.enter_context(endpoint())
        model = {"OPENAI_BASE_URL": f"{base}/pieces/50/v1", "OPENAI_API_KEY": "k", "DRSAI_MODEL": "m"}
        makers = {"SQLite": sqlite} if postgres is None else {"SQLite": sqlite, "PostgreSQL": postgres.database}
        for database, make in makers.items():
            with ExitStack() as servers:
                urls = [servers.enter_context(make()) for _ in range(2)]
                off, on = (
                    Target(
                        name,
                        *servers.enter_context(
                            server(
                                *("-m", "drsai_backend", "serve", "benchmarks.served_teams"),
                                *("--port", "PORT", "--database-url", url),
                                **model,
                                **variables,
                            )
                        ),
                        CHAT,
                        "endpoint",
                    )
                    for name, url, variables in zip(("without", "with"), urls, (OFF, ON), strict=True)
                )
                for target in (off, on):  # warm up
                    await load(target.port, target.path, 8, 32, target.team)
                for number in range(rounds):
                    for target in (off, on) if number % 2 == 0 else (on, off):
                        await target.hit(CONNECTIONS, requests)
                assert _used(urls[1]) > 0, "no budget has counted anything"
                assert _used(urls[0]) == 0, "a budget has counted where none is set"
            _tell(section, database, off, on)
    return section
