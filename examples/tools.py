"""An agent with two tools: a plain function, and one that writes to the database. Keeps `tools.db` here."""

import asyncio
from typing import Any

from drsai_backend import AssistantAgent, DrSai, RunContext
from drsai_backend.datamodel import SingleTask


def count_words(text: str) -> str:
    """Count the words of a text."""
    return str(len(text.split()))


def secretary(context: RunContext) -> AssistantAgent:
    """Counts words and writes reminders."""
    owner: dict[str, Any] = {"user_id": context.user_id, "thread_id": context.thread_id}

    async def write_reminder(text: str) -> str:
        """Write a reminder for the user."""
        written = await context.db_manager.get(SingleTask, filters=owner)
        reminder = SingleTask(**owner, task_id=f"reminder-{len(written) + 1}", content=text)
        await context.db_manager.upsert(reminder)
        return f"{reminder.task_id} is written"

    return AssistantAgent(
        "secretary",
        context.model_client(),
        tools=[count_words, write_reminder],
        system_message="You are a secretary. Use your tools.",
        reflect_on_tool_use=True,
    )


async def main() -> None:
    async with DrSai(teams={"secretary": secretary}, database_url="sqlite:///tools.db") as drsai:
        for task in ("Count the words of 'to be or not to be'.", "A reminder, please: 'water the plants'."):
            print(f"> {task}")
            # Tool calls and their results are messages of the thread, like everything that is said.
            async for message in drsai.run_stream("secretary", task, thread_id="desk"):
                print("  ", type(message).__name__, getattr(message, "content", ""))

        for reminder in await drsai.db.get(SingleTask, filters={"thread_id": "desk"}):
            print(f"{reminder.task_id}: {reminder.content}")


if __name__ == "__main__":
    asyncio.run(main())
