"""A tool call that a person approves, after the process that asked has ended.

Runs offline; keeps `approval.db` in this directory. The first part asks and is over; nothing waits in memory. The
second one, which could be another machine a week later, brings the answer, and the agent goes on in the middle of its
turn: its model is not asked again, and the tool is called once.
"""

from __future__ import annotations

import asyncio

from drsai_backend import Answer, AssistantAgent, DrSai, RunContext, requires_approval

DATABASE = "sqlite:///approval.db"


@requires_approval
async def book_trip(city: str) -> str:
    """Book a trip to a city. It is paid at once."""
    print(f"[the trip to {city} is booked]")
    return f"Booked: {city}."


def agency(context: RunContext) -> AssistantAgent:
    """Books trips."""
    return AssistantAgent("agency", context.model_client(), tools=[book_trip], reflect_on_tool_use=True)


async def ask() -> str:
    async with DrSai({"agency": agency}, DATABASE) as drsai:
        result = await drsai.run("agency", "Book a trip to Lisbon.", thread_id="trip")
        assert result.input_request is not None
        print(f"{result.status}: {result.input_request['prompt']}")
        return result.input_request["id"]


async def approve(request_id: str) -> None:
    async with DrSai({"agency": agency}, DATABASE) as drsai:
        handle = await drsai.answer("trip", Answer(request_id, decision="approve"))
        end = await handle.wait()
        print(f"{end.status}: {handle.transcript()[-1].message.to_text()}")


if __name__ == "__main__":
    asyncio.run(approve(asyncio.run(ask())))
