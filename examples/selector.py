"""A selector group chat: a model chooses who speaks next. Keeps `selector.db` in this directory."""

import asyncio

from autogen_agentchat.conditions import MaxMessageTermination

from drsai_backend import AssistantAgent, DrSai, RunContext, SelectorGroupChat


def panel(context: RunContext) -> SelectorGroupChat:
    """A historian, a physicist and a poet discuss what you ask."""

    def expert(name: str) -> AssistantAgent:
        return AssistantAgent(
            name,
            context.model_client(),
            description=f"A {name}.",
            system_message=f"You are a {name} on a panel. Add one thought to the discussion.",
        )

    return SelectorGroupChat(
        [expert("historian"), expert("physicist"), expert("poet")],
        model_client=context.model_client(),
        termination_condition=MaxMessageTermination(4),  # the question and three contributions
    )


async def main() -> None:
    async with DrSai(teams={"panel": panel}, database_url="sqlite:///selector.db") as drsai:
        result = await drsai.run("panel", "Why is the sky blue? The physicist first, please.")
        for message in result.task_result["messages"]:
            print(f"{message['source']}: {message['content']}")
        print(f"({result.status}; {result.task_result['stop_reason']})")


if __name__ == "__main__":
    asyncio.run(main())
