"""The official `anthropic` package, on the same teams."""

from __future__ import annotations

from typing import Any

import anthropic
from common import API_KEY, ROOT_URL, case, main, seen, tag

client = anthropic.Anthropic(base_url=ROOT_URL, api_key=API_KEY)


def ask(text: str, model: str = "solo", **more: Any) -> dict[str, Any]:
    return {"model": model, "max_tokens": 500, "messages": [{"role": "user", "content": text}], **more}


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def whole(message: Any) -> dict[str, Any]:
    usage = [message.usage.input_tokens, message.usage.output_tokens]
    return {"text": text_of(message), "finish": message.stop_reason, "usage": usage}


@case
def plain() -> Any:
    return whole(client.messages.create(**ask("Hello.")))


@case
def stream() -> Any:
    with client.messages.stream(**ask("Hello again, in pieces.")) as events:
        pieces = list(events.text_stream)
        return {**whole(events.get_final_message()), "pieces": len(pieces) > 3}


@case
async def async_plain() -> Any:
    async with anthropic.AsyncAnthropic(base_url=ROOT_URL, api_key=API_KEY) as made:
        return whole(await made.messages.create(**ask("Hello.")))


@case
async def async_stream() -> Any:
    made = anthropic.AsyncAnthropic(base_url=ROOT_URL, api_key=API_KEY)
    async with made, made.messages.stream(**ask("Hello again, in pieces.")) as events:
        pieces = [piece async for piece in events.text_stream]
        return {**whole(await events.get_final_message()), "pieces": len(pieces) > 3}


@case
def group() -> Any:
    return whole(client.messages.create(**ask("Write.", "pair")))


@case
def history() -> Any:
    first = client.messages.create(**ask("My name is Ada."))
    messages: Any = [
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": "Which messages do you see?"},
    ]
    answer = client.messages.create(model="solo", max_tokens=500, system="Be kind.", messages=messages)
    return seen(text_of(answer))


WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@case
def tools() -> Any:
    first = client.messages.create(**ask("How is the weather?", tools=[WEATHER]))
    calls = [block for block in first.content if block.type == "tool_use"]
    results: Any = [{"type": "tool_result", "tool_use_id": call.id, "content": "21 degrees"} for call in calls]
    messages: Any = [
        {"role": "user", "content": "How is the weather?"},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": results},
    ]
    last = client.messages.create(model="solo", max_tokens=500, messages=messages, tools=[WEATHER])
    return {"finish": first.stop_reason, "calls": [[c.name, c.input] for c in calls], "text": text_of(last)}


@case
def cut_off() -> Any:
    return whole(client.messages.create(**{**ask("Talk for ever."), "max_tokens": 3}))


def refused(error: anthropic.APIStatusError) -> dict[str, Any]:
    body: Any = error.body
    kind = body.get("error", {}).get("type") if isinstance(body, dict) else None
    return {"class": type(error).__name__, "status": error.status_code, "type": kind}


@case
def unknown_key() -> Any:
    try:
        client.with_options(api_key="sk-nobody", max_retries=0).messages.create(**ask("Hello."))
    except anthropic.APIStatusError as error:
        return refused(error)
    return None


@case
def unknown_model() -> Any:
    try:
        client.messages.create(**ask("Hello.", "nobody"))
    except anthropic.APIStatusError as error:
        return refused(error)
    return None


@case
def bad_value() -> Any:
    try:
        client.messages.create(**{**ask("Hello."), "max_tokens": -1})
    except anthropic.APIStatusError as error:
        return refused(error)
    return None


@case
def timeout() -> Any:
    word = tag("slow")
    try:
        said = text_of(client.with_options(timeout=1.0).messages.create(**ask(f"Be slow {word} please")))
    except anthropic.APITimeoutError:
        said = None
    return {"text": said, "asked": text_of(client.messages.create(**ask(f"How often {word}")))}


if __name__ == "__main__":
    main()
