"""A group chat in code, without HTTP: a writer and a reviewer on a thread that is kept in a database.

Run it again and the thread goes on: both agents remember what they wrote. Keeps `team_in_code.db` in this directory.
"""

import asyncio

from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.ui import Console

from drsai_backend import AssistantAgent, DrSai, RoundRobinGroupChat, RunContext


def writers(context: RunContext) -> RoundRobinGroupChat:
    """A team factory: called for every run, so nothing that it builds is shared between users."""
    writer = AssistantAgent(
        "writer",
        context.model_client(),
        system_message="You are a writer. Write two sentences about what the user asks for.",
        model_client_stream=True,
    )
    reviewer = AssistantAgent(
        "reviewer",
        context.model_client(),
        system_message="You are a reviewer. Ask for one change; when it is in, answer with the single word APPROVE.",
        model_client_stream=True,
    )
    return RoundRobinGroupChat(
        [writer, reviewer],
        termination_condition=TextMentionTermination("APPROVE", sources=["reviewer"]) | MaxMessageTermination(7),
    )


async def main() -> None:
    async with DrSai(teams={"writers": writers}, database_url="sqlite:///team_in_code.db") as drsai:
        # A stream of AutoGen messages that ends with the TaskResult: AutoGen's own console shows it.
        await Console(drsai.user("ada").run_stream("writers", "Write about the tides.", thread_id="tides"))

        # Or wait for the whole. The same thread, so the team knows what it has written.
        result = await drsai.user("ada").run("writers", "Now write about the moon.", thread_id="tides")
        print(f"\nThe last word: {result.text}")
        print(f"{result.status}, {result.usage['total_tokens']} tokens, thread {result.thread_id}")


if __name__ == "__main__":
    asyncio.run(main())
