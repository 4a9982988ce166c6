"""A swarm that hands over to a person, and continues with the answer. Keeps `swarm.db` in this directory.

The question ends the run: no process waits for the person. The answer may come after a restart, or next week.
"""

import asyncio

from autogen_agentchat.conditions import HandoffTermination, TextMessageTermination

from drsai_backend import AssistantAgent, DrSai, RunContext, RunStatus, Swarm


def shop(context: RunContext) -> Swarm:
    """A front desk that passes customers on to refunds, and refunds that asks the customer when it has to."""
    desk = AssistantAgent(
        "desk",
        context.model_client(),
        handoffs=["refunds"],
        system_message="You are the front desk of a shop. Pass questions about money on to refunds.",
    )
    refunds = AssistantAgent(
        "refunds",
        context.model_client(),
        handoffs=["user"],
        system_message="You refund purchases. Hand over to the user when you need to know more.",
    )
    return Swarm(
        [desk, refunds],
        termination_condition=HandoffTermination("user") | TextMessageTermination("refunds"),
    )


async def say(text: str) -> None:
    # Opens and closes everything: between two calls nothing is kept but the database.
    async with DrSai(teams={"shop": shop}, database_url="sqlite:///swarm.db") as drsai:
        result = await drsai.user("ada").run("shop", text, thread_id="order-17")
    print(f"customer: {text}")
    for message in result.task_result["messages"]:
        if message["type"] in ("TextMessage", "HandoffMessage") and message["source"] != "user":
            print(f"{message['source']}: {message['content']}")
    print(f"  ({result.status})")
    if result.status is RunStatus.AWAITING_INPUT and result.input_request is not None:
        print(f"  ({result.input_request['source']} waits for the customer)")


async def main() -> None:
    await say("I want a refund.")
    await say("I would like to settle this with a person.")
    await say("That is me: the order number is 17.")  # the answer; refunds goes on


if __name__ == "__main__":
    asyncio.run(main())
