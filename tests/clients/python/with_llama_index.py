"""LlamaIndex's `OpenAILike`: the legacy completions by default, chat where it is told so."""

from __future__ import annotations

from typing import Any

from common import API_KEY, BASE_URL, case, conversation, main, seen
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel


def made(model: str = "solo", **more: Any) -> OpenAILike:
    return OpenAILike(model=model, api_base=BASE_URL, api_key=API_KEY, **more)


def chat(model: str = "solo", **more: Any) -> OpenAILike:
    return made(model, is_chat_model=True, **more)


@case
def default_complete() -> Any:
    return made().complete("Hello, legacy.").text


@case
def default_stream() -> Any:
    return [piece.text for piece in made().stream_complete("Hello, legacy, in pieces.")][-1]


@case
def default_chat() -> Any:
    """It puts the messages into one prompt."""
    text = made().chat([ChatMessage(role="user", content="Hello, chat.")]).message.content
    return "Hello, chat." in (text or "")


@case
def plain() -> Any:
    answer = chat().chat([ChatMessage(role="user", content="Hello.")])
    usage = answer.raw.usage  # type: ignore[union-attr]
    return {"text": answer.message.content, "usage": [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens]}


@case
def stream() -> Any:
    pieces = list(chat().stream_chat([ChatMessage(role="user", content="Hello again, in pieces.")]))
    return {"text": pieces[-1].message.content, "pieces": len(pieces) > 3}


@case
async def async_plain() -> Any:
    return (await chat().achat([ChatMessage(role="user", content="Hello.")])).message.content


@case
def group() -> Any:
    return chat("pair").chat([ChatMessage(role="user", content="Write.")]).message.content


@case
def history() -> Any:
    first = chat().chat([ChatMessage(role="user", content="My name is Ada.")]).message.content or ""
    return seen(chat().chat([ChatMessage(**message) for message in conversation(first)]).message.content or "")


def get_weather(city: str) -> str:
    """The weather of a city."""
    return "21 degrees"


@case
def tools() -> Any:
    llm = chat(is_function_calling_model=True)
    called = llm.predict_and_call([FunctionTool.from_defaults(get_weather)], "How is the weather?")
    return [[source.tool_name, source.raw_output] for source in called.sources]


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@case
def structured() -> Any:
    llm = chat(is_function_calling_model=True)
    return llm.as_structured_llm(Person).complete("Who wrote the first program?").raw.model_dump()  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
