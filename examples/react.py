"""An agent whose model cannot call functions: it writes what it thinks and does as text, by definition and in code.

The definition is in `react.yaml`. Keeps `react.db` in this directory.
"""

import asyncio
from pathlib import Path

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import ThoughtEvent, ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_core.tools import StaticStreamWorkbench

from drsai_backend import DrSai, ReactAgent, RunContext, tool
from drsai_backend.definitions import DefinitionPolicy, load

FILE = str(Path(__file__).with_name("react.yaml"))


@tool
async def fare(city: str) -> str:
    """The fare to a city.

    Args:
        city: where to.
    """
    return f"120 euros to {city}"


def clerk(context: RunContext) -> ReactAgent:
    return ReactAgent(
        "clerk",
        context.model_client(),
        workbench=StaticStreamWorkbench([fare]),
        max_steps=3,
        system_message="You are a travel clerk.",
    )


async def main() -> None:
    teams = {**load(FILE, DefinitionPolicy()), "clerk": clerk}
    async with DrSai(teams, "sqlite:///react.db") as drsai:
        for team, text in (("counter", "What is 17 * 23?"), ("clerk", 'What is the fare to "Lisbon"?')):
            print(f"{team}: {text}")
            async for message in drsai.run_stream(team, text):
                match message:
                    case ThoughtEvent():
                        print("  thinks:", message.content)
                    case ToolCallRequestEvent():
                        print("  calls:", *(f"{call.name}({call.arguments})" for call in message.content))
                    case ToolCallExecutionEvent():
                        print("  gets:", *(result.content for result in message.content))
                    case TaskResult():
                        print("  answers:", message.messages[-1].to_text())
                    case _:
                        pass


if __name__ == "__main__":
    asyncio.run(main())
