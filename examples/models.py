"""Models by name: a profile whose endpoint is down, the one that answers in its place, and an answer out of the cache.

Reads `models.yaml` beside it and keeps `models.db` in this directory. The profile `fast` has an endpoint where nobody
listens; its list names `offline`, the demo model, whose answers are cached.
"""

import asyncio
from pathlib import Path

from autogen_agentchat.teams import RoundRobinGroupChat

from drsai_backend import AssistantAgent, DrSai, RunContext
from drsai_backend.config import Settings


def writer(context: RunContext) -> RoundRobinGroupChat:
    """An agent on the profile `fast`; any other name would be a model of the configured endpoint."""
    return RoundRobinGroupChat([AssistantAgent("writer", context.model_client("fast"))], max_turns=1)


async def main() -> None:
    settings = Settings(models=Path(__file__).with_name("models.yaml"))
    async with DrSai({"writer": writer}, "sqlite:///models.db", settings=settings) as drsai:
        for thread in ("one", "two"):
            result = await drsai.run("writer", "What are tides?", thread_id=thread)
            said = result.task_result["messages"][-1]
            by, tokens = said["metadata"], result.usage["total_tokens"]
            how = "out of the cache" if "cached" in by else "by asking"
            print(f"{thread}: profile {by['profile']!r} answered {how}; tokens used: {'some' if tokens else 'none'}")


if __name__ == "__main__":
    asyncio.run(main())
