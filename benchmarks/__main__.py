"""The command line: `python -m benchmarks`."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks import (
    access,
    beside,
    contexts,
    definitions,
    endpoints,
    fallback,
    footprint,
    histories,
    indexing,
    lasting,
    long,
    many,
    many_calls,
    memory,
    migrate,
    opening,
    operations,
    processes,
    recognised,
    resume,
    rewrite,
    search,
    search_quality,
    serving,
    stalls,
    stored,
    stored_definitions,
    timing,
    tool_runs,
    tools,
    travel,
    turns,
)
from benchmarks.databases import Postgres, postgres
from benchmarks.report import Section, document

TARGET = Path(__file__).parent.parent / "docs" / "benchmarks.md"
QUICK = (10,)
GOALS = (10, 1000)
FULL = (10, 100, 1000, 3000)
_ONLY_FULL = (
    "rewrite",
    "timing",
    "migrate",
    "long",
    "many",
    "contexts",
    "search",
    "indexing",
    "search_quality",
    "beside",
    "processes",
    "operations",
    "lasting",
)
Part = Callable[[], Awaitable[Section | list[Section]]]


def parts(server: Postgres | None, *, quick: bool, sizes: tuple[int, ...], rounds: int) -> dict[str, Part]:
    """What can be measured, by name."""
    return {
        "endpoint": lambda: endpoints.measure(
            server,
            1 if quick else rounds,
            QUICK if quick else endpoints.MARKS,
            (5,) if quick else endpoints.PIECES,
            full=len(sizes) > len(GOALS),
        ),
        "tools": lambda: tools.measure(*((5, 1) if quick else ())),
        "tool_runs": lambda: tool_runs.measure(server, rounds, 20 if quick else tool_runs.LATENCY),
        "many_calls": lambda: many_calls.measure(server, 1 if quick else many_calls.RUNS),
        "definitions": lambda: definitions.measure(server, rounds),
        "turns": lambda: turns.measure(sizes, rounds),
        "stored": lambda: stored.measure(server, sizes, rounds),
        "rewrite": lambda: rewrite.measure(server, sizes, is_quick=quick),
        "footprint": lambda: footprint.measure(server, sizes, 5 if quick else footprint.COUNTED),
        "travel": lambda: travel.measure(server, *((20, 5) if quick else (1000, footprint.COUNTED))),
        "histories": lambda: histories.measure(server, rounds, 20 if quick else histories.TURNS),
        "opening": lambda: opening.measure(sizes, rounds),
        "resume": lambda: resume.measure(server, sizes, rounds),
        "stalls": lambda: stalls.measure(100 if quick else 2000),
        "recognised": lambda: asyncio.to_thread(recognised.measure, 30 if quick else 300),
        "serving": lambda: serving.measure(server, *((1, 10, 256) if quick else (5,))),
        "processes": lambda: processes.measure(server, *((1, (1, 2), 64) if quick else (rounds,))),
        "operations": lambda: operations.measure(server, *((1, 64) if quick else (rounds,))),
        "lasting": lambda: lasting.measure(*((24, 1.0) if quick else ())),
        "fallback": lambda: fallback.measure(1 if quick else rounds, 20 if quick else 200),
        "stored_definitions": lambda: stored_definitions.measure(1 if quick else rounds, 5 if quick else 20),
        "access": lambda: access.measure(*((1, 5) if quick else (8,))),
        "timing": lambda: timing.measure(20 if quick else timing.TRIES),
        "migrate": lambda: migrate.measure(server, 10_000 if quick else migrate.MESSAGES),
        "long": lambda: long.measure(server, rounds, *((60, 50) if quick else ())),
        "contexts": lambda: contexts.measure(100 if quick else contexts.TURNS),
        "many": lambda: many.measure(*((100, 1.0, 0.5) if quick else (10_000,))),
        "search": lambda: search.measure(server, *((1_000, 2, 1) if quick else ())),
        "indexing": lambda: indexing.measure(server, *((1, 20, 2) if quick else (3,))),
        "memory": lambda: memory.measure(server, *((40,) if quick else ())),
        "search_quality": lambda: asyncio.to_thread(search_quality.measure, server),
        "beside": lambda: beside.measure(server, *((1, (10, 20), 4) if quick else (3,))),
    }


async def run(chosen: dict[str, Part], *, is_quick: bool) -> tuple[list[Section], list[str]]:
    """Return the sections, and the names of the parts that raised. One that does keeps no other from being measured."""
    sections: list[Section] = []
    failed: list[str] = []
    for name, part in chosen.items():
        start = time.perf_counter()
        if is_quick:
            gc.freeze()  # What is imported is not looked through at each of the collections before a few runs.
        try:
            made = await part()
        except Exception:  # noqa: BLE001 - it is told, and ends the whole as failed
            traceback.print_exc()
            failed.append(name)
        else:
            sections += made if isinstance(made, list) else [made]
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return sections, failed


def main() -> None:
    names = list(parts(None, quick=True, sizes=QUICK, rounds=1))
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure this package against stock AutoGen."
    )
    parser.add_argument(
        "--quick", action="store_true", help="threads of 10 runs, one round, in three minutes: does it work?"
    )
    parser.add_argument("--full", action="store_true", help="everything, more lengths and rounds: an hour")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="RUNS", help="lengths of the threads; default: 10 1000")
    parser.add_argument("--rounds", type=int, help="blocks of each side; default: 6")
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}; may be repeated"
    )
    parser.add_argument(
        "--postgres", metavar="URL", help="a superuser's URL of a PostgreSQL server; default: one is started"
    )
    parser.add_argument("--write", action="store_true", help="write the report to docs/benchmarks.md as well")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    # The servers that were started are ended however this ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with postgres(args.postgres) as server:
        sizes = tuple(args.sizes or (QUICK if args.quick else FULL if args.full else GOALS))
        rounds = args.rounds or (1 if args.quick else 20 if args.full else 6)
        every = parts(server, quick=args.quick, sizes=sizes, rounds=rounds)
        chosen = args.only or [name for name in names if args.full or args.quick or name not in _ONLY_FULL]
        sections, failed = asyncio.run(run({name: every[name] for name in chosen}, is_quick=args.quick))
    report = document(sections)
    print(report)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if args.write:
        TARGET.write_text(report)


if __name__ == "__main__":
    main()
