"""Threads that have come to rest, looked at: evidence is gathered, and every check is made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.checks import Broken, check_thread
from tests.chaos.clients import Client
from tests.chaos.evidence import load_state, read_effects, read_evidence
from tests.chaos.report import Outcome
from tests.chaos.world import World


async def settle(
    client: Client,
    world: World,
    outcome: Outcome,
    *,
    expected_errors: Sequence[str] = (),
    late_workers: bool = False,
) -> None:
    """Wait until nothing is left to do on a client's thread, and check all that is known of it."""
    await client.come_to_rest()
    found = await asyncio.to_thread(read_evidence, world.url, client.thread)
    if found is None:
        if any(sent.acknowledged for sent in client.account.sent):
            outcome.broken.append(Broken("an acknowledged thread is not there", client.thread))
        return
    found.unreadable = await load_state(world.url, client.thread)
    asked = world.models.asked(client.thread)
    effects = await asyncio.to_thread(read_effects, Path(world.tools))
    broken = check_thread(
        found, client.account, asked, effects, expected_errors=expected_errors, late_workers=late_workers
    )
    outcome.broken += broken
    outcome.add("threads")
    outcome.add("inputs", len(client.account.sent))
    outcome.add("runs", len(found.runs))
    outcome.add("turns", len(found.turns))
    outcome.add("taken over", sum(run.attempt - 1 for run in found.runs))
    for status in ("completed", "stopped", "error"):
        outcome.add(status, sum(run.status == status for run in found.runs))
    outcome.add("calls asked about", client.account.asked)
    outcome.add("calls repeated on request", sum(client.account.allowed.values()))
