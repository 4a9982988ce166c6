"""The official `openai` package: 1.x, 2.x and 3.x."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
from common import API_KEY, BASE_URL, case, conversation, main, seen, tag
from openai_shared import TIME, WEATHER, Person, ask, client, summed


def asynchronous(**more: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY, **more)


def whole(answer: Any) -> dict[str, Any]:
    choice = answer.choices[0]
    return {"text": choice.message.content, "finish": choice.finish_reason, "usage": summed(answer.usage)}


def streamed(chunks: list[Any]) -> dict[str, Any]:
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    finish = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
    usage = [summed(chunk.usage) for chunk in chunks if chunk.usage]
    text = "".join(piece or "" for piece in pieces)
    return {"text": text, "finish": finish[-1], "usage": usage[-1] if usage else None, "pieces": len(pieces) > 3}


STREAM = {"stream": True, "stream_options": {"include_usage": True}}


@case
def plain() -> Any:
    return whole(client.chat.completions.create(**ask("Hello.")))


@case
def stream() -> Any:
    return streamed(list(client.chat.completions.create(**ask("Hello again, in pieces."), **STREAM)))


@case
async def async_plain() -> Any:
    async with asynchronous() as made:
        return whole(await made.chat.completions.create(**ask("Hello.")))


@case
async def async_stream() -> Any:
    async with asynchronous() as made:
        answer = await made.chat.completions.create(**ask("Hello again, in pieces."), **STREAM)
        return streamed([chunk async for chunk in answer])


@case
async def concurrent() -> Any:
    async with asynchronous() as made:
        asked = [made.chat.completions.create(**ask(f"Number {number}.")) for number in range(8)]
        return [answer.choices[0].message.content for answer in await asyncio.gather(*asked)]


@case
def group() -> Any:
    return whole(client.chat.completions.create(**ask("Write.", "pair")))


@case
def group_stream() -> Any:
    return streamed(list(client.chat.completions.create(**ask("Write it.", "pair"), **STREAM)))


def helper(made: Any = client) -> Any:
    found = getattr(made.chat.completions, "stream", None)
    return found if found is not None else made.beta.chat.completions.stream


@case
def stream_helper() -> Any:
    """The helper that puts the pieces together: of a group chat, whose speakers must not pile up in the message."""
    with helper()(**ask("Write this.", "pair")) as events:
        kinds = {event.type for event in events}
        answer = events.get_final_completion()
    message = answer.choices[0].message
    return {
        "text": message.content,
        "role": message.role,
        "name": getattr(message, "name", None),
        "kinds": sorted(kinds & {"chunk", "content.delta", "content.done"}),
    }


@case
async def async_stream_helper() -> Any:
    async with asynchronous() as made, helper(made)(**ask("Hello, helper.")) as events:
        return (await events.get_final_completion()).choices[0].message.content


@case
def frames() -> Any:
    """The first delta is OpenAI's; nothing stands in a delta that OpenAI does not put there."""
    chunks = list(client.chat.completions.create(**ask("Write that.", "pair"), stream=True))
    deltas = [chunk.choices[0].delta.to_dict(mode="json", exclude_unset=True) for chunk in chunks if chunk.choices]
    known = {"role", "content", "refusal", "tool_calls", "function_call", "reasoning_content"}
    more = sorted({name for delta in deltas for name in delta} - known)
    return {"first": deltas[0], "others": more, "fingerprint": "system_fingerprint" in chunks[0].model_fields_set}


@case
def raw() -> Any:
    answer = client.chat.completions.with_raw_response.create(**ask("Hello, raw."))
    headers = answer.headers
    named = [name for name in ("x-request-id", "x-thread-id", "x-run-id") if headers.get(name)]
    return {
        "status": answer.http_response.status_code,
        "text": answer.parse().choices[0].message.content,
        "headers": named,
    }


@case
def models() -> Any:
    return sorted(model.id for model in client.models.list())


@case
def history() -> Any:
    first = client.chat.completions.create(**ask("My name is Ada."))
    messages = conversation(first.choices[0].message.content or "")
    return seen(client.chat.completions.create(model="solo", messages=messages).choices[0].message.content or "")


@case
def history_thread() -> Any:
    """A known history continues its thread, though nothing names it."""
    send = client.chat.completions.with_raw_response.create
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"I am {tag('thread')}."}]
    first = send(model="solo", messages=messages)
    messages.append({"role": "assistant", "content": first.parse().choices[0].message.content})
    messages.append({"role": "user", "content": "And who am I?"})
    second = send(model="solo", messages=messages)
    return {"same": first.headers["x-thread-id"] == second.headers["x-thread-id"]}


@case
def regenerate() -> Any:
    """The last question again, on a named thread: the model sees neither the old answer nor the question twice."""
    thread = {"thread_id": tag("regenerate")}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "First."}]
    first = client.chat.completions.create(model="solo", messages=messages, extra_body=thread)
    messages.append({"role": "assistant", "content": first.choices[0].message.content})
    messages.append({"role": "user", "content": "Which messages do you see?"})
    for _ in range(2):
        last = client.chat.completions.create(model="solo", messages=messages, extra_body=thread)
    return seen(last.choices[0].message.content or "")["messages"]


@case
def approval() -> Any:
    """`approve` from a client that names no thread reaches the approval that waits."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Delete /{tag('file')}."}]
    first = client.chat.completions.create(model="careful", messages=messages).choices[0].message
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": "approve"}]
    last = client.chat.completions.create(model="careful", messages=messages).choices[0].message
    return {"asked": "approve" in (first.content or ""), "done": "The tool said deleted /" in (last.content or "")}


RESULTS = {"get_weather": "21 degrees", "get_time": "noon"}


def after_calls(messages: list[Any], message: Any, **more: Any) -> Any:
    """Execute what the answer calls, and ask again."""
    calls = message.tool_calls or []
    done = [{"role": "tool", "tool_call_id": call.id, "content": RESULTS[call.function.name]} for call in calls]
    if not calls:
        return None
    answer = client.chat.completions.create(model="solo", messages=[*messages, message, *done], **more)
    return answer.choices[0].message.content


def called(message: Any) -> list[Any]:
    return [[call.function.name, json.loads(call.function.arguments)] for call in message.tool_calls or []]


@case
def tools() -> Any:
    messages = ask("How is the weather?")["messages"]
    first = client.chat.completions.create(model="solo", messages=messages, tools=[WEATHER]).choices[0]
    text = after_calls(messages, first.message, tools=[WEATHER])
    return {"finish": first.finish_reason, "calls": called(first.message), "text": text}


@case
def tools_stream() -> Any:
    messages = ask("How is the weather, in pieces?")["messages"]
    with helper()(model="solo", messages=messages, tools=[WEATHER]) as events:
        for _ in events:
            pass
        first = events.get_final_completion().choices[0]
    message = first.message.model_dump(exclude={"parsed", "function_call"}, exclude_none=True)
    for call in message.get("tool_calls", []):
        call["function"].pop("parsed_arguments", None)
    sent = type("M", (), {"tool_calls": first.message.tool_calls})
    calls = called(sent)
    done = [{"role": "tool", "tool_call_id": c["id"], "content": "21 degrees"} for c in message.get("tool_calls", [])]
    text = None
    if done:
        last = client.chat.completions.create(model="solo", messages=[*messages, message, *done], tools=[WEATHER])
        text = last.choices[0].message.content
    return {"finish": first.finish_reason, "calls": calls, "text": text}


@case
def tools_parallel() -> Any:
    messages = ask("Tell me the weather and the time.")["messages"]
    first = client.chat.completions.create(model="solo", messages=messages, tools=[WEATHER, TIME]).choices[0]
    text = after_calls(messages, first.message, tools=[WEATHER, TIME])
    return {"finish": first.finish_reason, "calls": called(first.message), "text": text}


@case
def tools_missing_result() -> Any:
    messages = ask("Tell me both, the weather and the time.")["messages"]
    first = client.chat.completions.create(model="solo", messages=messages, tools=[WEATHER, TIME]).choices[0].message
    calls = first.tool_calls or []
    half = [{"role": "tool", "tool_call_id": call.id, "content": "x"} for call in calls[:1]]
    try:
        client.chat.completions.create(model="solo", messages=[*messages, first, *half], tools=[WEATHER, TIME])  # type: ignore[list-item]
    except openai.BadRequestError as error:
        return {"status": error.status_code, "named": bool(calls) and calls[-1].id in error.message}
    return None


@case
def tools_unused() -> Any:
    return whole(client.chat.completions.create(**ask("Hello, tools."), tools=[WEATHER]))


@case
def functions() -> Any:
    """The deprecated field."""
    messages = ask("How is the weather, with functions?")["messages"]
    old = [WEATHER["function"]]
    first = client.chat.completions.create(model="solo", messages=messages, functions=old).choices[0]  # type: ignore[arg-type]
    call = first.message.function_call
    if call is None:
        return None
    result = {"role": "function", "name": call.name, "content": "21 degrees"}
    last = client.chat.completions.create(model="solo", messages=[*messages, first.message, result], functions=old)  # type: ignore[arg-type, list-item]
    return {"call": [call.name, json.loads(call.arguments)], "text": last.choices[0].message.content}


def parse(made: Any = client) -> Any:
    found = getattr(made.chat.completions, "parse", None)
    return found if found is not None else made.beta.chat.completions.parse


@case
def structured() -> Any:
    parsed = parse()(**ask("Who wrote the first program?"), response_format=Person).choices[0].message.parsed
    return parsed.model_dump()


@case
def json_object() -> Any:
    answer = client.chat.completions.create(**ask("Who wrote it? As JSON."), response_format={"type": "json_object"})
    return json.loads(answer.choices[0].message.content or "")


@case
def parameters() -> Any:
    given = {
        "temperature": 0.3,
        "top_p": 0.9,
        "max_completion_tokens": 99,
        "stop": ["END"],
        "seed": 7,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "logit_bias": {"50256": -100},
        "reasoning_effort": "low",
    }
    text = client.chat.completions.create(**ask("Which parameters arrive?"), **given).choices[0].message.content
    arrived = json.loads(text or "")
    limit = arrived.get("max_completion_tokens") or arrived.get("max_tokens")  # endpoints know one or the other
    return {**{name: arrived.get(name) for name in given}, "max_completion_tokens": limit}


@case
def cut_off() -> Any:
    return whole(client.chat.completions.create(**ask("Talk for ever."), max_tokens=3))


def refused(error: openai.APIStatusError) -> dict[str, Any]:
    return {"class": type(error).__name__, "status": error.status_code, "param": error.param}


@case
def unknown_key() -> Any:
    try:
        client.with_options(api_key="sk-nobody", max_retries=0).chat.completions.create(**ask("Hello."))
    except openai.APIStatusError as error:
        return refused(error)
    return None


@case
def unknown_model() -> Any:
    try:
        client.chat.completions.create(**ask("Hello.", "nobody"))
    except openai.APIStatusError as error:
        return refused(error)
    return None


@case
def bad_value() -> Any:
    try:
        client.chat.completions.create(**ask("Hello."), temperature=7)
    except openai.APIStatusError as error:
        return refused(error)
    return None


@case
def not_possible() -> Any:
    """What a team cannot do is refused by name, not left out."""
    found = {}
    for name, value in (("n", 2), ("logprobs", True), ("web_search_options", {}), ("modalities", ["text", "audio"])):
        try:
            client.chat.completions.create(**ask("Hello."), **{name: value})
            found[name] = None
        except openai.APIStatusError as error:
            found[name] = [error.status_code, error.param]
    return found


@case
def timeout() -> Any:
    """A time-out shorter than the answer, with the default retries: one run."""
    word = tag("slow")
    try:
        text = client.with_options(timeout=1.0).chat.completions.create(**ask(f"Be slow {word} please"))
        said = text.choices[0].message.content
    except openai.APITimeoutError:
        said = None
    return {
        "text": said,
        "asked": client.chat.completions.create(**ask(f"How often {word}")).choices[0].message.content,
    }


@case
def failing_model() -> Any:
    """A model that fails, with the default retries: the run is not made three times."""
    word = tag("failing")
    try:
        client.chat.completions.create(**ask(f"Fail {word} please"))
        raised = False
    except openai.APIStatusError:
        raised = True
    asked = client.chat.completions.create(**ask(f"How often {word}")).choices[0].message.content
    return {"raised": raised, "asked": asked}


@case
def failing_stream() -> Any:
    try:
        list(client.chat.completions.create(**ask(f"Fail {tag('stream')} please"), stream=True))
    except openai.APIError as error:
        return {"code": bool(error.code), "message": bool(error.message)}
    return None


@case
def completions() -> Any:
    answer = client.completions.create(model="solo", prompt="Hello, legacy.")
    return {"text": answer.choices[0].text, "finish": answer.choices[0].finish_reason, "usage": summed(answer.usage)}


@case
def embeddings() -> Any:
    return len(client.embeddings.create(model="text-embedding-3-small", input=["one", "two"]).data)


if __name__ == "__main__":
    import openai_responses  # noqa: F401  # more cases

    main()
