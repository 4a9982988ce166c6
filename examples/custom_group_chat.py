"""A group chat of one's own: whoever has spoken least, over all conversations of a user, speaks next.

Group chats get `self._db_manager` and `self._run_context` as agents do. Keeps `group_chat.db` in this directory.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from sqlmodel import Field, SQLModel, UniqueConstraint

from drsai_backend import AssistantAgent, DrSai, RunContext, SelectorGroupChat


class Airtime(SQLModel, table=True):
    """How often an agent was given the floor by a user's conversations."""

    __table_args__ = (UniqueConstraint("user_id", "agent"),)

    id: int | None = Field(default=None, primary_key=True)
    user_id: str
    agent: str
    times: int = 0


class FairGroupChat(SelectorGroupChat):
    """A selector group chat whose selector is a query, so that no model is asked who speaks next."""

    def __init__(self, participants: list[ChatAgent], context: RunContext, **options: Any) -> None:
        super().__init__([*participants], context.model_client(), selector_func=self._least_heard, **options)

    async def _least_heard(self, thread: Sequence[BaseAgentEvent | BaseChatMessage]) -> str:
        owner: dict[str, Any] = {"user_id": self._run_context.user_id}
        heard = {row.agent: row for row in await self._db_manager.get(Airtime, filters=owner)}
        rows = [heard.get(name) or Airtime(**owner, agent=name) for name in self._participant_names]
        chosen = min(rows, key=lambda row: row.times)
        chosen.times += 1
        await self._db_manager.upsert(chosen)
        return chosen.agent


def council(context: RunContext) -> FairGroupChat:
    """Three advisors who get the floor equally often."""
    advisors: list[ChatAgent] = [
        AssistantAgent(name, context.model_client(), system_message=f"You advise on {name}. One sentence.")
        for name in ("money", "health", "travel")
    ]
    return FairGroupChat(advisors, context, termination_condition=MaxMessageTermination(3))


async def main() -> None:
    async with DrSai(teams={"council": council}, database_url="sqlite:///group_chat.db") as drsai:
        await drsai.db.create_table(Airtime)
        for question in ("Shall I move?", "Shall I stay?", "What else?"):
            result = await drsai.run("council", question)  # a thread of its own each
            speakers = [message["source"] for message in result.task_result["messages"][1:]]
            print(f"{question} {' and '.join(speakers)} spoke")
        for row in await drsai.db.get(Airtime, order="agent"):
            print(f"{row.agent}: {row.times}")


if __name__ == "__main__":
    asyncio.run(main())
