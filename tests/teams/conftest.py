"""What every test of the turn runtime is held to."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest


@pytest.fixture
async def spotless() -> AsyncIterator[None]:
    """Fails the test if it leaves a task behind, or an exception that nobody has looked at."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    before = asyncio.all_tasks()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    gc.freeze()  # Only what the test makes is looked at below: everything else would take far longer than the test.
    yield
    await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()]
    assert left == []
    gc.collect()
    gc.unfreeze()
    await asyncio.sleep(0)
    loop.set_exception_handler(None)
    assert complaints == []
