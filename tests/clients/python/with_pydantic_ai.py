"""`pydantic-ai`: OpenAIChatModel and OpenAIResponsesModel."""

from __future__ import annotations

import json
from typing import Any

from common import API_KEY, BASE_URL, case, main, seen
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=BASE_URL, api_key=API_KEY)


def chat(name: str = "solo") -> OpenAIChatModel:
    return OpenAIChatModel(name, provider=provider)


def responses(name: str = "solo") -> OpenAIResponsesModel:
    return OpenAIResponsesModel(name, provider=provider)


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def used(result: Any) -> list[int]:
    usage = result.usage
    return [usage.input_tokens, usage.output_tokens]


def _plain(model: Any) -> Any:
    result = Agent(model).run_sync("Hello.")
    return {"text": result.output, "usage": used(result)}


async def _stream(model: Any) -> Any:
    async with Agent(model).run_stream("Hello again, in pieces.") as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
        return {"text": "".join(pieces), "usage": used(result), "pieces": len(pieces) > 3}


def _tools(model: Any) -> Any:
    calls: list[Any] = []
    agent = Agent(model)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather of a city."""
        calls.append(["get_weather", {"city": city}])
        return "21 degrees"

    return {"text": agent.run_sync("How is the weather?").output, "calls": calls}


def _structured(model: Any, form: Any) -> Any:
    return Agent(model, output_type=form).run_sync("Who wrote the first program?").output.model_dump()


def _history(model: Any) -> Any:
    agent = Agent(model, system_prompt="Be kind.")
    first = agent.run_sync("My name is Ada.")
    return seen(agent.run_sync("Which messages do you see?", message_history=first.all_messages()).output)


@case
def chat_plain() -> Any:
    return _plain(chat())


@case
async def chat_stream() -> Any:
    return await _stream(chat())


@case
def chat_group() -> Any:
    return Agent(chat("pair")).run_sync("Write.").output


@case
def chat_history() -> Any:
    return _history(chat())


@case
def chat_tools() -> Any:
    return _tools(chat())


@case
def chat_structured() -> Any:
    """Its default: a tool, whose call is the output."""
    return _structured(chat(), Person)


@case
def chat_structured_native() -> Any:
    return _structured(chat(), NativeOutput(Person))


@case
def chat_parameters() -> Any:
    settings: Any = {"temperature": 0.3, "max_tokens": 99, "stop_sequences": ["END"], "seed": 7}
    arrived = json.loads(Agent(chat()).run_sync("Which parameters arrive?", model_settings=settings).output)
    limit = arrived.get("max_completion_tokens") or arrived.get("max_tokens")
    return {"limit": limit, **{name: arrived.get(name) for name in ("temperature", "stop", "seed")}}


@case
def responses_plain() -> Any:
    return _plain(responses())


@case
async def responses_stream() -> Any:
    return await _stream(responses())


@case
def responses_history() -> Any:
    return _history(responses())


@case
def responses_tools() -> Any:
    return _tools(responses())


@case
def responses_structured() -> Any:
    return _structured(responses(), Person)


@case
def unknown_key() -> Any:
    stranger = OpenAIChatModel("solo", provider=OpenAIProvider(base_url=BASE_URL, api_key="sk-nobody"))
    try:
        Agent(stranger).run_sync("Hello.")
    except ModelHTTPError as error:
        return {"status": error.status_code}
    return None


@case
def unknown_model() -> Any:
    try:
        Agent(chat("nobody")).run_sync("Hello.")
    except ModelHTTPError as error:
        return {"status": error.status_code}
    return None


if __name__ == "__main__":
    main()
