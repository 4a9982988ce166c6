"""A task that loses its process: another one builds the same agent, from what is stored of the request."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from drsai_backend import DrSai
from drsai_backend.access.principal import Principal
from drsai_backend.api.engine.tasks import ExecuteBody, Tasks
from tests.api.engine.conftest import OneModel, adding
from tests.support.scripted import ScriptedClient
from tests.support.threads import LATE, QUICK, disown, settings, until


async def test_a_task_whose_process_is_lost_is_continued_with_its_tools(database_url: str) -> None:
    models = [ScriptedClient(adding, thought="Hm."), ScriptedClient(adding, thought="Hm.")]
    async with AsyncExitStack() as stack:

        async def process(model: ScriptedClient, given: dict[str, Any]) -> DrSai:
            made = DrSai(None, database_url, settings=settings(**given), model_provider=OneModel(model))
            return await stack.enter_async_context(made)

        first = await process(models[0], LATE)  # It does not take over again what it has lost.
        tasks, who = Tasks(first.engine, first.settings), Principal("ann")
        rule = models[0].rule
        calls = 0

        def stop_at_the_second(messages: object, options: object) -> object:
            nonlocal calls
            calls += 1
            if calls == 1:
                models[0].hold()
            return rule(messages, options)  # type: ignore[arg-type]

        models[0].rule = stop_at_the_second  # type: ignore[assignment]
        body = ExecuteBody(task="Add.", mode="tools", max_steps=4, tools=["calculator"])
        handle = await tasks.start(who, body)

        async def in_its_middle() -> bool:
            return models[0].calls == 2

        await until(in_its_middle)
        before = await tasks.whole(who, handle.run_id)
        assert (before["status"], before["step_count"]) == ("running", 1)
        await disown(first)
        second = await process(models[1], QUICK)
        others = Tasks(second.engine, second.settings)
        async with asyncio.timeout(20):
            told = [each async for each in others.events(who, handle.run_id)]
        assert told[-1].objects[-1]["status"] == "success"
        task = await others.whole(who, handle.run_id)
        assert [step["action"] for step in task["steps"]] == ["calculator", "calculator", None]
        assert task["final_answer"] == "The sum is 2."
        # What the first one was answered is not asked again.
        assert models[1].calls == 2
        models[0].release()
