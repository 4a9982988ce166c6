"""A task that is planned, checked by a person and done step by step. Keeps `plan_execute.db` in this directory.

The same team by definition is `plan_execute.yaml`.
"""

import asyncio
from typing import Any

from drsai_backend import DrSai, PlanExecuteTeam, RunContext, Thread, builtin_tools

TASK = "Work out 17 * 23 and 4096 / 64, then tell me the time in UTC."


def reckoner(context: RunContext) -> PlanExecuteTeam:
    """Steps that need nothing from each other are done at once. `check`: a person sees the plan first."""
    tools = builtin_tools(["calculator", "current_time"])
    return PlanExecuteTeam(context.model_client(), tools, name="reckoner", check=True, max_tool_iterations=3)


async def show(drsai: DrSai) -> None:
    """The plan, as whoever reads the thread sees it."""
    [thread] = await drsai.db.get(Thread, filters={"thread_id": "sums"}, load_messages=False, load_state=False)
    plans: Any = thread.tasks
    for task in plans[0]["tasks"]:
        print(f"  {task['task_id']}. {task['content']}: {task['meta']['status']}")


async def main() -> None:
    for words in (TASK, "approve"):  # as two processes would: the run waits without one
        async with DrSai({"reckoner": reckoner}, "sqlite:///plan_execute.db") as drsai:
            print(f"> {words}")
            result = await drsai.run("reckoner", words, thread_id="sums")
            print(result.text or (result.input_request or {})["prompt"])
            await show(drsai)


if __name__ == "__main__":
    asyncio.run(main())
