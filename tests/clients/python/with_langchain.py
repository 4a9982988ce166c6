"""`langchain-openai`: ChatOpenAI, OpenAI (legacy completions) and OpenAIEmbeddings."""

from __future__ import annotations

from typing import Any

import openai
from common import API_KEY, BASE_URL, case, conversation, main, seen, tag
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel


def chat(model: str = "solo", **more: Any) -> ChatOpenAI:
    return ChatOpenAI(model=model, base_url=BASE_URL, api_key=API_KEY, **more)


def whole(message: Any) -> dict[str, Any]:
    used = message.usage_metadata
    usage = used and [used["input_tokens"], used["output_tokens"], used["total_tokens"]]
    return {"text": message.text if isinstance(message.text, str) else message.text(), "usage": usage}


@case
def plain() -> Any:
    return whole(chat().invoke("Hello."))


@case
def stream() -> Any:
    pieces = list(chat().stream("Hello again, in pieces."))
    total = pieces[0]
    for piece in pieces[1:]:
        total += piece
    return {**whole(total), "pieces": len(pieces) > 3}


@case
def stream_usage() -> Any:
    """It asks for the usage of a stream by itself only where no base URL is set."""
    total = None
    for piece in chat(stream_usage=True).stream("Hello again, in pieces."):
        total = piece if total is None else total + piece
    return whole(total)


@case
async def async_plain() -> Any:
    return whole(await chat().ainvoke("Hello."))


@case
async def async_stream() -> Any:
    pieces = [piece async for piece in chat().astream("Hello again, in pieces.")]
    total = pieces[0]
    for piece in pieces[1:]:
        total += piece
    return {**whole(total), "pieces": len(pieces) > 3}


@case
def batch() -> Any:
    return [message.content for message in chat().batch([f"Number {number}." for number in range(4)])]


@case
def group() -> Any:
    return whole(chat("pair").invoke("Write."))


@case
def history() -> Any:
    first = chat().invoke("My name is Ada.")
    return seen(str(chat().invoke(conversation(str(first.content))).content))


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return "21 degrees"


@case
def tools() -> Any:
    bound = chat().bind_tools([get_weather])
    messages: list[Any] = [HumanMessage("How is the weather?")]
    first = bound.invoke(messages)
    calls = [[call["name"], call["args"]] for call in first.tool_calls]
    messages += [first, *(get_weather.invoke(call) for call in first.tool_calls)]
    text = bound.invoke(messages).content if calls else None
    return {"finish": first.response_metadata.get("finish_reason"), "calls": calls, "text": text}


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@case
def structured() -> Any:
    return chat().with_structured_output(Person).invoke("Who wrote the first program?").model_dump()


@case
def structured_by_function() -> Any:
    made = chat().with_structured_output(Person, method="function_calling")
    return made.invoke("Who wrote the first program, by function?").model_dump()


@case
def parameters() -> Any:
    import json

    made = chat(temperature=0.3, max_tokens=99, stop=["END"], seed=7)
    arrived = json.loads(str(made.invoke("Which parameters arrive?").content))
    limit = arrived.get("max_completion_tokens") or arrived.get("max_tokens")
    return {"limit": limit, **{name: arrived.get(name) for name in ("temperature", "stop", "seed")}}


@case
def unknown_key() -> Any:
    try:
        ChatOpenAI(model="solo", base_url=BASE_URL, api_key="sk-nobody", max_retries=0).invoke("Hello.")
    except openai.APIStatusError as error:
        return {
            "class": "AuthenticationError" in [base.__name__ for base in type(error).__mro__],
            "status": error.status_code,
        }
    return None


@case
def unknown_model() -> Any:
    try:
        chat("nobody").invoke("Hello.")
    except openai.APIStatusError as error:
        return {
            "class": "NotFoundError" in [base.__name__ for base in type(error).__mro__],
            "status": error.status_code,
        }
    return None


@case
def timeout() -> Any:
    word = tag("slow")
    try:
        said = chat(timeout=1.0).invoke(f"Be slow {word} please").content
    except openai.APITimeoutError:
        said = None
    return {"text": said, "asked": chat().invoke(f"How often {word}").content}


@case
def completions() -> Any:
    return OpenAI(model="solo", base_url=BASE_URL, api_key=API_KEY).invoke("Hello, legacy.")


@case
def responses() -> Any:
    return whole(chat(use_responses_api=True).invoke("Hello, responses."))


@case
def embeddings() -> Any:
    model = "text-embedding-3-small"
    made = OpenAIEmbeddings(model=model, base_url=BASE_URL, api_key=API_KEY, check_embedding_ctx_length=False)
    return len(made.embed_documents(["one", "two"]))


if __name__ == "__main__":
    main()
