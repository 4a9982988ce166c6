"""Attempts that are judged, and made again until one is good enough: by definition (`reflexion.yaml`), and the same in
code. Keeps `reflexion.db` in this directory."""

import asyncio
from pathlib import Path

from drsai_backend import AssistantAgent, DrSai, ReflexionTeam, RunContext
from drsai_backend.datamodel import Thread
from drsai_backend.definitions import DefinitionPolicy, load


def bard(context: RunContext) -> ReflexionTeam:
    """Another model could judge: `context.model_client("strict")`, with a profile of that name."""
    poet = AssistantAgent("poet", context.model_client(), system_message="You are a poet.", model_client_stream=True)
    return ReflexionTeam(
        poet, context.model_client(), criteria="Two lines that rhyme.", threshold=0.8, max_attempts=2, name="bard"
    )


async def main() -> None:
    defined = load(str(Path(__file__).with_name("reflexion.yaml")), DefinitionPolicy())
    async with DrSai({**defined, "bard": bard}, "sqlite:///reflexion.db") as drsai:
        for team in ("poet", "bard"):
            result = await drsai.run(team, "A verse about the tides.", thread_id=team)
            print(f"{team}: {result.text}")
            [thread] = await drsai.db.get(Thread, filters={"thread_id": team})
            for message in thread.messages:
                if message["type"] == "ThoughtEvent":
                    print(f"  {message['source']} thinks: {message['content']}")


if __name__ == "__main__":
    asyncio.run(main())
