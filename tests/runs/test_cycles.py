"""A run that has ended is freed with its last reader: the collector has nothing to find. What it had to find, it would
look for among all that other runs hold, and nobody is served meanwhile."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from drsai_backend.runs import InputMessage
from drsai_backend.teams.suspension import Branch
from tests.recordings.release_0020.script import Script
from tests.recordings.release_0020.teams import teams
from tests.support.asks import asks
from tests.support.model_server import ModelServer
from tests.support.threads import Make

OF_A_RUN = ("drsai_backend", "autogen_agentchat", "autogen_ext", "openai")
"""Packages of what a run holds. Tools that are made for a run leave cycles of pydantic's, and the
server of the model, in this process, those of asyncio."""


@pytest.mark.parametrize("kind", sorted(teams.keys() - {"cached", "structured"}))
async def test_a_run_leaves_no_cycles(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("CHAOS_TOOLS", str(tmp_path / "effects"))
    with ModelServer() as server:
        server.script(None, Script())
        drsai = await make(teams, openai_base_url=server.base_url)

        async def run(thread_id: str) -> None:
            handle = await drsai.engine.start(*asks(kind, [InputMessage("user", "Pay.")], thread_id=thread_id))
            assert (await handle.wait()).status.value == ("awaiting_input" if kind == "person" else "completed")
            await asyncio.sleep(0.05)  # Its task ends after its readers.

        await run("first")  # What is made once for all runs.
        gc.freeze()  # What is there already, garbage too, is not looked at.
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await run("second")
            tied = [each for each in gc.get_objects() if isinstance(each, Branch) and each.task is not None]
            gc.collect()
            names = {f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage}
        finally:
            gc.set_debug(0)
            gc.enable()
            gc.garbage.clear()
            gc.unfreeze()
    # A branch and its task know each other; what else still holds them for a while would hide it.
    assert tied == []
    # AutoGen's graphs walk themselves by functions that know each other.
    assert {name for name in names if name.startswith(OF_A_RUN) and "DiGraph" not in name} == set()
