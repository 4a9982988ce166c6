"""A planner whose plan a person checks before it is carried out. Keeps `planner.db` in this directory.

The plan is stored as `Tasks`, `SingleTask` and `PlanCheck` rows, and on the thread (`Thread.tasks`) for whoever shows
it. The question to the person ends the run as AWAITING_INPUT; the answer may come to another process.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from autogen_agentchat.agents import BaseChatAgent, UserProxyAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_core import CancellationToken

from drsai_backend import DrSai, DrSaiAgentMixin, RoundRobinGroupChat, Thread
from drsai_backend.datamodel import PlanCheck, SingleTask, Tasks


class Planner(DrSaiAgentMixin, BaseChatAgent):
    """Makes a plan of what comes after the colon, has it checked, carries it out. All it knows is in the tables."""

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        run, db = self._run_context, self._db_manager
        owner: dict[str, Any] = {"user_id": run.user_id, "thread_id": run.thread_id}
        checks = await db.get(PlanCheck, filters=owner)
        text = messages[-1].to_text()
        if not checks:
            answer = await self._plan(text, owner)
        elif text.lower().startswith("y"):
            answer = await self._carry_out(owner) + "\n\nDONE"
        else:
            await db.delete(PlanCheck, filters=owner)
            answer = "Then not. DONE"
        return Response(chat_message=TextMessage(content=answer, source=self.name))

    async def _plan(self, request: str, owner: dict[str, Any]) -> str:
        # A planner of yours asks its model here: self._run_context.model_client()
        steps = [step.strip(" .") for step in request.partition(":")[2].split(",")]
        ids = [f"step-{number}" for number, _ in enumerate(steps, 1)]
        for before, task_id, after, step in zip([None, *ids], ids, [*ids[1:], None], steps, strict=False):
            task = SingleTask(**owner, task_id=task_id, previous_id=before, next_id=after, content=step)
            task.meta = {"status": "planned"}
            await self._db_manager.upsert(task)
        tree = [{"task_id": task_id, "content": step} for task_id, step in zip(ids, steps, strict=True)]
        await self._db_manager.upsert(Tasks(**owner, tasks_id="plan", content=request, tasks=tree))
        await self._db_manager.upsert(PlanCheck(**owner, task=request, steps=tree, session_id=self._run_context.run_id))
        (thread,) = await self._db_manager.get(Thread, filters=owner, load_messages=False, load_state=False)
        thread.tasks = tree
        await self._db_manager.upsert(thread)
        return "My plan:\n" + "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))

    async def _carry_out(self, owner: dict[str, Any]) -> str:
        done: list[str] = []
        for task in await self._db_manager.get(SingleTask, filters=owner, order="task_id"):
            task.meta = {"status": "done"}
            await self._db_manager.upsert(task)
            done.append(f"{task.content}: done")
        return "\n".join(done)

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Nothing to forget."""


def team() -> RoundRobinGroupChat:
    """Plans, asks, does."""
    return RoundRobinGroupChat(
        [Planner("planner", "Plans."), UserProxyAgent("person")],
        termination_condition=TextMentionTermination("DONE", sources=["planner"]),
    )


async def say(text: str) -> None:
    # Opens and closes everything: between two calls nothing is kept but the database.
    async with DrSai(teams={"planner": team}, database_url="sqlite:///planner.db") as drsai:
        result = await drsai.run("planner", text, thread_id="picnic")
        print(f"> {text}\n{result.text}\n({result.status})")
        (thread,) = await drsai.db.get(Thread, filters={"thread_id": "picnic"})
        steps: Any = thread.tasks
        for step in steps:
            (task,) = await drsai.db.get(SingleTask, filters={"thread_id": "picnic", "task_id": step["task_id"]})
            print(f"  {task.task_id}: {task.content}, {task.meta}")


async def main() -> None:
    await say("Plan a picnic: find a place, invite friends, buy bread.")
    await say("Yes, go on.")


if __name__ == "__main__":
    asyncio.run(main())
