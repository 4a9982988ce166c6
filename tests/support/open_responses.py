"""What Open Responses (version 2026-04-24, https://www.openresponses.org) requires of a response and of its events,
written down by hand: which fields there must be, and of which types. Nothing may be null that is not listed as such.
Custom tools are OpenAI's, whose `openai.types.responses` has their fields."""

from __future__ import annotations

from typing import Any, Final

import jsonschema
from openai.types.responses import ResponseStreamEvent

from tests.support.official import strictly

TEXT, NUMBER, WHOLE, FLAG = {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "boolean"}
ANY: dict[str, Any] = {}


def or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def every(**fields: Any) -> dict[str, Any]:
    """An object that must have all of these."""
    return {"type": "object", "required": list(fields), "properties": fields}


def one_of(*values: str) -> dict[str, Any]:
    return {"enum": list(values)}


def many(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema}


def by_type(**kinds: dict[str, Any]) -> dict[str, Any]:
    """An object whose `type` says which of these it must be."""
    named = [
        {**schema, "properties": {**schema["properties"], "type": {"const": kind}}} for kind, schema in kinds.items()
    ]
    return {"oneOf": [{**each, "required": ["type", *each["required"]]} for each in named]}


STATUS = one_of("in_progress", "completed", "incomplete")
PART = by_type(
    input_text=every(text=TEXT),
    output_text=every(text=TEXT, annotations=many(ANY)),
    summary_text=every(text=TEXT),
    reasoning_text=every(text=TEXT),
    refusal=every(refusal=TEXT),
    input_image=every(image_url=or_null(TEXT), detail=one_of("low", "high", "auto")),
)
ITEM = by_type(
    message=every(id=TEXT, status=STATUS, role=one_of("user", "assistant", "system", "developer"), content=many(PART)),
    function_call=every(id=TEXT, call_id=TEXT, name=TEXT, arguments=TEXT, status=STATUS),
    function_call_output=every(id=TEXT, call_id=TEXT, output=ANY, status=STATUS),
    custom_tool_call=every(id=TEXT, call_id=TEXT, name=TEXT, input=TEXT),
    reasoning=every(id=TEXT, summary=many(PART)),
    compaction=every(id=TEXT, encrypted_content=TEXT),
)
TOOL = by_type(
    function=every(name=TEXT, description=or_null(TEXT), parameters=or_null({"type": "object"}), strict=or_null(FLAG)),
    custom=every(name=TEXT),
)
CHOICE = {"anyOf": [one_of("none", "auto", "required"), by_type(function=every(name=TEXT), custom=every(name=TEXT))]}
USAGE = every(
    input_tokens=WHOLE,
    output_tokens=WHOLE,
    total_tokens=WHOLE,
    input_tokens_details=every(cached_tokens=WHOLE, cache_write_tokens=WHOLE),
    output_tokens_details=every(reasoning_tokens=WHOLE),
)
RESPONSE = every(
    id=TEXT,
    object=one_of("response"),
    created_at=WHOLE,
    completed_at=or_null(WHOLE),
    status=TEXT,
    incomplete_details=or_null(every(reason=TEXT)),
    model=TEXT,
    previous_response_id=or_null(TEXT),
    instructions=or_null(TEXT),
    output=many(ITEM),
    error=or_null(every(code=TEXT, message=TEXT)),
    tools=many(TOOL),
    tool_choice=CHOICE,
    truncation=one_of("auto", "disabled"),
    parallel_tool_calls=FLAG,
    text=every(format=every(type=one_of("text", "json_object", "json_schema"))),
    top_p=NUMBER,
    presence_penalty=NUMBER,
    frequency_penalty=NUMBER,
    top_logprobs=WHOLE,
    temperature=NUMBER,
    reasoning=or_null(every(effort=or_null(TEXT), summary=or_null(TEXT))),
    usage=or_null(USAGE),
    max_output_tokens=or_null(WHOLE),
    max_tool_calls=or_null(WHOLE),
    store=FLAG,
    background=FLAG,
    service_tier=TEXT,
    metadata=ANY,
    safety_identifier=or_null(TEXT),
    prompt_cache_key=or_null(TEXT),
)
COMPACTION = every(id=TEXT, object=one_of("response.compaction"), output=many(ITEM), created_at=WHOLE, usage=USAGE)
_NUMBERED = {"sequence_number": WHOLE}
_WHOLE_RESPONSE = every(**_NUMBERED, response=RESPONSE)
_ITEM_EVENT = every(**_NUMBERED, output_index=WHOLE, item=ITEM)
_OF_ITEM: Final[dict[str, Any]] = {**_NUMBERED, "item_id": TEXT, "output_index": WHOLE}
_PLACED: Final[dict[str, Any]] = {**_OF_ITEM, "content_index": WHOLE}
_SUMMARY: Final[dict[str, Any]] = {**_OF_ITEM, "summary_index": WHOLE}
_TEXTS = {"logprobs": many(ANY)}
EVENTS: Final[dict[str, dict[str, Any]]] = {
    **{
        f"response.{name}": _WHOLE_RESPONSE
        for name in ("created", "queued", "in_progress", "completed", "failed", "incomplete")
    },
    "response.output_item.added": _ITEM_EVENT,
    "response.output_item.done": _ITEM_EVENT,
    "response.content_part.added": every(**_PLACED, part=PART),
    "response.content_part.done": every(**_PLACED, part=PART),
    "response.output_text.delta": every(**_PLACED, delta=TEXT, **_TEXTS),
    "response.output_text.done": every(**_PLACED, text=TEXT, **_TEXTS),
    "response.reasoning_summary_part.added": every(**_SUMMARY, part=PART),
    "response.reasoning_summary_part.done": every(**_SUMMARY, part=PART),
    "response.reasoning_summary_text.delta": every(**_SUMMARY, delta=TEXT),
    "response.reasoning_summary_text.done": every(**_SUMMARY, text=TEXT),
    "response.function_call_arguments.delta": every(**_OF_ITEM, delta=TEXT),
    "response.function_call_arguments.done": every(**_OF_ITEM, arguments=TEXT),
    "response.custom_tool_call_input.delta": every(**_OF_ITEM, delta=TEXT),
    "response.custom_tool_call_input.done": every(**_OF_ITEM, input=TEXT),
    "error": every(**_NUMBERED, error=every(type=TEXT, code=or_null(TEXT), message=TEXT, param=or_null(TEXT))),
}
WRITTEN = {
    "response.output_text.done": "text",
    "response.reasoning_summary_text.done": "text",
    "response.function_call_arguments.done": "arguments",
    "response.custom_tool_call_input.done": "input",
}
"""The events that tell the whole of what deltas have told, and the field."""
SOCKET_ERROR = every(status=WHOLE, error=every(code=TEXT, message=TEXT, param=or_null(TEXT)))


def check(value: Any, schema: dict[str, Any]) -> Any:
    """The value. Fails with all that is wrong with it."""
    found = jsonschema.Draft202012Validator(schema).iter_errors(value)
    wrong = [f"{'.'.join(map(str, each.absolute_path))}: {each.message[:300]}" for each in found]
    assert not wrong, "\n".join(wrong)
    return value


def _known(event: Any) -> Any:
    """An event without the reasons that OpenAI does not have."""
    response = event.get("response")
    return event if response is None else {**event, "response": {**response, "incomplete_details": None}}


def check_events(events: list[Any]) -> Any:
    """The response that a stream ends with. Fails where its events are not those of the grammar: each of its shape,
    numbers that grow, items and parts that are opened, filled and closed, and an end that tells what was streamed."""
    assert [each["type"] for each in events[:2]] in (
        ["response.created", "response.in_progress"],
        ["response.created", "response.queued"],
    )
    texts: dict[str, str] = {}
    opened: dict[int, str] = {}
    closed: dict[str, Any] = {}
    numbers = [each["sequence_number"] for each in events]
    assert numbers == sorted(set(numbers)), "sequence numbers must grow"
    for event in events:
        kind = event["type"]
        check(event, EVENTS[kind])
        strictly(ResponseStreamEvent, _known(event))
        if kind == "response.output_item.added":
            assert event["output_index"] not in opened
            assert event["item"]["id"] not in opened.values()
            opened[event["output_index"]] = event["item"]["id"]
        elif "output_index" in event:
            assert event["output_index"] in opened
            named = event.get("item_id") or event["item"]["id"]
            assert opened[event["output_index"]] == named
            assert named not in closed
        if kind.endswith(".delta"):
            texts[event["item_id"]] = texts.get(event["item_id"], "") + event["delta"]
        elif kind in WRITTEN:
            assert texts[event["item_id"]] == event[WRITTEN[kind]]
        elif kind == "response.output_item.done":
            closed[event["item"]["id"]] = event["item"]
    assert sorted(opened) == list(range(len(opened)))
    assert opened.keys() == {index for index, name in opened.items() if name in closed}, "all items are closed"
    last = events[-1]
    assert last["type"] in ("response.completed", "response.failed", "response.incomplete")
    whole = [closed[opened[index]] for index in sorted(opened)]
    assert last["response"]["output"] == [each for each in whole if each.get("status") != "incomplete"]
    return last["response"]
