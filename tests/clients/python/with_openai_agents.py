"""`openai-agents`: its default path (the Responses API), and its chat completions model."""

from __future__ import annotations

from typing import Any

import openai
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_default_openai_client,
    set_tracing_disabled,
)
from common import API_KEY, BASE_URL, case, main, seen
from pydantic import BaseModel

client = openai.AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY)
set_default_openai_client(client, use_for_tracing=False)
set_tracing_disabled(True)


def by_chat(name: str = "solo") -> OpenAIChatCompletionsModel:
    return OpenAIChatCompletionsModel(name, client)


def used(result: Any) -> list[int]:
    usage = result.context_wrapper.usage
    return [usage.input_tokens, usage.output_tokens, usage.total_tokens]


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return "21 degrees"


class Person(BaseModel):
    name: str
    age: int


async def _plain(model: Any) -> Any:
    result = await Runner.run(Agent("Me", model=model), "Hello.")
    return {"text": result.final_output, "usage": used(result)}


async def _stream(model: Any) -> Any:
    result = Runner.run_streamed(Agent("Me", model=model), "Hello again, in pieces.")
    pieces = [e async for e in result.stream_events() if e.type == "raw_response_event" and "text.delta" in e.data.type]
    return {"text": result.final_output, "pieces": len(pieces) > 3}


async def _tools(model: Any) -> Any:
    result = await Runner.run(Agent("Me", model=model, tools=[get_weather]), "How is the weather?")
    calls = [item.raw_item.name for item in result.new_items if item.type == "tool_call_item"]
    return {"calls": calls, "text": result.final_output}


async def _tools_stream(model: Any) -> Any:
    result = Runner.run_streamed(Agent("Me", model=model, tools=[get_weather]), "How is the weather, in pieces?")
    async for _ in result.stream_events():
        pass
    calls = [item.raw_item.name for item in result.new_items if item.type == "tool_call_item"]
    return {"calls": calls, "text": result.final_output}


async def _structured(model: Any) -> Any:
    result = await Runner.run(Agent("Me", model=model, output_type=Person), "Who wrote the first program?")
    return result.final_output.model_dump()


async def _history(model: Any) -> Any:
    agent, session = Agent("Me", instructions="Be kind.", model=model), SQLiteSession("s")
    await Runner.run(agent, "My name is Ada.", session=session)
    return seen((await Runner.run(agent, "Which messages do you see?", session=session)).final_output)


async def _handoff(model: Any) -> Any:
    """Agents of the client's hand over to each other: each handoff is a tool of the client's."""
    second = Agent("Weather", model=model)
    return (await Runner.run(Agent("Me", model=model, handoffs=[second]), "Hello, handoff.")).final_output


@case
async def chat_plain() -> Any:
    return await _plain(by_chat())


@case
async def chat_stream() -> Any:
    return await _stream(by_chat())


@case
async def chat_group() -> Any:
    return (await Runner.run(Agent("Me", model=by_chat("pair")), "Write.")).final_output


@case
async def chat_history() -> Any:
    return await _history(by_chat())


@case
async def chat_tools() -> Any:
    return await _tools(by_chat())


@case
async def chat_tools_stream() -> Any:
    return await _tools_stream(by_chat())


@case
async def chat_structured() -> Any:
    return await _structured(by_chat())


@case
async def chat_handoff() -> Any:
    return await _handoff(by_chat())


@case
async def default_plain() -> Any:
    return await _plain("solo")


@case
async def default_stream() -> Any:
    return await _stream("solo")


@case
async def default_history() -> Any:
    return await _history("solo")


@case
async def default_tools() -> Any:
    return await _tools("solo")


@case
async def default_tools_stream() -> Any:
    return await _tools_stream("solo")


@case
async def default_structured() -> Any:
    return await _structured("solo")


@case
async def unknown_model() -> Any:
    try:
        await Runner.run(Agent("Me", model=by_chat("nobody")), "Hello.")
    except openai.APIStatusError as error:
        return {"class": type(error).__name__, "status": error.status_code}
    return None


if __name__ == "__main__":
    main()
