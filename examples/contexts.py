"""An agent whose prompts stay short while its thread grows. Keeps `contexts.db` here."""

import asyncio

from drsai_backend import AssistantAgent, DrSai, RunContext
from drsai_backend.agents.contexts import CompactionContext
from drsai_backend.datamodel import Thread

LIMIT = 1_000


def reader(context: RunContext) -> AssistantAgent:
    """Is shown the newest messages and a summary of the older ones; of what `read_page` returned, the newest alone."""
    shown = CompactionContext(LIMIT, context.model_client(), ephemeral={"read_page": 1})
    return AssistantAgent("reader", context.model_client(), model_context=shown, system_message="You read along.")


async def main() -> None:
    async with DrSai(teams={"reader": reader}, database_url="sqlite:///contexts.db") as drsai:
        for number in range(1, 25):
            result = await drsai.run("reader", f"Page {number}: {'a line of text, ' * 12}", thread_id="book")
            print(f"page {number}: {result.usage['prompt_tokens']} prompt tokens")  # of a summary, too, if one was made
        [thread] = await drsai.db.get(Thread, filters={"thread_id": "book"})
        print(f"messages of the thread: {len(thread.messages)}")


if __name__ == "__main__":
    asyncio.run(main())
