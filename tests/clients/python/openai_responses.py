"""The Responses API by the official package; `with_openai.py` runs these cases after its own."""

from __future__ import annotations

import json
from typing import Any

from common import case, seen
from openai_shared import WEATHER, Person, client


@case
def responses() -> Any:
    answer = client.responses.create(model="solo", input="Hello, responses.")
    usage = answer.usage
    used = usage and [usage.input_tokens, usage.output_tokens, usage.total_tokens]
    return {"text": answer.output_text, "status": answer.status, "usage": used}


@case
def responses_stream() -> Any:
    events = list(client.responses.create(model="solo", input="Hello, in events.", stream=True))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    numbers = [event.sequence_number for event in events]
    return {"first": events[0].type, "last": events[-1].type, "text": text, "ordered": numbers == sorted(numbers)}


@case
def responses_chain() -> Any:
    first = client.responses.create(model="solo", input="My name is Ada.")
    last = client.responses.create(model="solo", input="Which messages do you see?", previous_response_id=first.id)
    found = client.responses.retrieve(first.id)
    return {**seen(last.output_text), "retrieved": found.output_text}


@case
def responses_tools() -> Any:
    flat: Any = {"type": "function", **WEATHER["function"]}
    first = client.responses.create(model="solo", input="How is the weather, by responses?", tools=[flat])
    calls = [item for item in first.output if item.type == "function_call"]
    done: Any = [{"type": "function_call_output", "call_id": c.call_id, "output": "21 degrees"} for c in calls]
    last = client.responses.create(model="solo", input=done, previous_response_id=first.id, tools=[flat])
    return {"calls": [[c.name, json.loads(c.arguments)] for c in calls], "text": last.output_text}


@case
def responses_structured() -> Any:
    parsed = client.responses.parse(
        model="solo", input="Who wrote the first program?", text_format=Person
    ).output_parsed
    return parsed and parsed.model_dump()


@case
def conversations() -> Any:
    made = client.conversations.create()
    client.responses.create(model="solo", input="My name is Ada.", conversation=made.id)
    last = client.responses.create(model="solo", input="Which messages do you see?", conversation=made.id)
    items = [item.type for item in client.conversations.items.list(made.id, order="asc")]
    return {**seen(last.output_text), "items": items}
