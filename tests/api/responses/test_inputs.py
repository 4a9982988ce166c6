"""What may be sent for a response: what becomes of it, and what is refused by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import response_create_params

from drsai_backend.api.openai.responses.request.body import ResponseBody
from drsai_backend.api.openai.responses.request.inputs import check, check_last, parse, placed, record_of
from drsai_backend.api.openai.responses.request.items import (
    approval_id,
    read_approval_id,
    read_items,
    response_id,
    run_of,
)
from drsai_backend.api.openai.responses.request.parameters import FATES, left_aside, parameters
from drsai_backend.api.openai.responses.request.tools import call_item, output_item, read_tools
from drsai_backend.errors import DrSaiError
from tests.support.open_responses import ITEM
from tests.support.open_responses import check as check_shape

DOCS = Path(__file__).parents[3] / "docs" / "responses.md"
OURS = {"api_key", "shown", "on_busy", "history", "webhook_url", "max_turns", "max_run_seconds", "max_run_tokens"}
CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "seen"}


def read(**body: Any) -> ResponseBody:
    asked = parse(ResponseBody, {"model": "team", **body}, 100)
    check(asked)
    return asked


def say(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_every_parameter_of_the_package_has_a_fate() -> None:
    """Where this fails after an update of openai, a parameter is new: decide what becomes of it."""
    kinds = (response_create_params.ResponseCreateParamsBase, response_create_params.ResponseCreateParamsStreaming)
    assert FATES.keys() == {name for kind in kinds for name in kind.__annotations__}
    assert ResponseBody.model_fields.keys() >= FATES.keys()
    _, _, section = DOCS.read_text().partition("## A request")
    table = re.findall(r"^\| (`.*?) \| (\w+): ", section.partition("\n#")[0], re.MULTILINE)
    told = {name: fate for names, fate in table for name in re.findall(r"`(\w+)`", names)}
    assert told == {**FATES, **dict.fromkeys(OURS, "service")}


@pytest.mark.parametrize("name", [name for name, fate in FATES.items() if fate == "refused"])
def test_what_asks_for_nothing_is_taken(name: str) -> None:
    assert getattr(read(input="x", **{name: None}), name) is None
    with pytest.raises(DrSaiError) as error:
        read(input="x", **{name: {"mode": "auto"}})
    assert (error.value.param, "must" in error.value.message or "not supported" in error.value.message) == (name, True)


def test_items_become_messages() -> None:
    parts = [{"type": "input_text", "text": "Hi."}, {"type": "input_text", "text": "You."}]
    items = [say("developer", "Be brief."), say("user", parts), {"type": "reasoning", "id": "r", "summary": []}]
    custom = {"type": "custom_tool_call", "call_id": "c2", "name": "draw", "input": "x"}
    drawn = {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "drawn"}]}
    items += [CALL, custom, RESULT, drawn]
    items += [{**say("assistant", [{"type": "output_text", "text": "Seen."}]), "id": "m"}, say("user", "So?")]
    found = read_items(placed(read(input=items).input))
    assert [(each.role, each.text) for each in found.messages] == [
        ("system", "Be brief."),
        ("user", "Hi.\n\nYou."),
        ("assistant", ""),
        ("tool", "seen"),
        ("tool", "drawn"),
        ("assistant", "Seen."),
        ("user", "So?"),
    ]
    texts = [{"type": "text", "text": text} for text in ("Hi.", "You.", "Seen.")]
    assert [each["content"] for each in found.raw] == [
        "Be brief.",
        texts[:2],
        None,
        "seen",
        "drawn",
        texts[2:],
        "So?",
    ]
    calls = [(each.id, each.name, each.arguments) for each in found.messages[2].calls]
    assert calls == [("c1", "look", "{}"), ("c2", "draw", '{"input": "x"}')]
    assert [each["id"] for each in found.raw[2]["tool_calls"]] == ["c1", "c2"]
    assert (found.system, found.results()) == (["Be brief."], [])


def test_results_of_tools_that_no_answer_has_followed() -> None:
    parts = [{"type": "input_text", "text": text} for text in "ab"]
    two = [{**CALL, "call_id": "c2"}, RESULT, {**RESULT, "call_id": "c2", "output": parts}]
    found = read_items(placed(read(input=[say("user", "Look."), CALL, *two]).input))
    check_last(found, "input")
    results = [(each.call_id, each.content, each.where) for each in found.results()]
    assert results == [("c1", "seen", "input[3].call_id"), ("c2", "a\n\nb", "input[4].call_id")]
    with pytest.raises(DrSaiError) as error:
        read_items(placed(read(input=[CALL, {**RESULT, "call_id": "c3"}]).input)).results()
    assert error.value.param == "input[1].call_id"


def test_calls_and_results_as_items() -> None:
    call = {"id": "c1", "name": "look", "type": "function", "arguments": "{}"}
    check_shape(call_item("1", 0, call), ITEM)
    check_shape(call_item("1", 0, {**call, "type": "custom", "arguments": '{"input": "x"}'}), ITEM)
    check_shape(output_item("fco_1", "c1", "seen"), ITEM)


@pytest.mark.parametrize(
    ("choice", "mode", "only"),
    [
        (None, "auto", None),
        ("none", "none", None),
        ("required", "required", None),
        ({"type": "custom", "name": "b"}, "required", ("b",)),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "a"}]}, "auto", ("a",)),
    ],
)
def test_what_is_offered_and_demanded(choice: Any, mode: str, only: Any) -> None:
    tools = [{"type": "function", "name": "a", "strict": True}, {"type": "custom", "name": "b"}]
    asked = read(input="x", tools=tools, tool_choice=choice)
    found = read_tools(asked.tools, asked.tool_choice)
    assert found is not None
    assert (found.choice, found.only) == (mode, only)
    assert [(each.name, each.kind, each.strict) for each in found.tools] == [
        ("a", "function", True),
        ("b", "custom", False),
    ]


def test_ids_name_what_they_are_of() -> None:
    assert run_of(response_id("run_7")) == "run_7"
    assert run_of("chatcmpl-7") == ""
    assert read_approval_id(approval_id("run_7", "a-b_c")) == ("run_7", "a-b_c")
    assert read_approval_id("mcpr_7") is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": [{"type": "web_search_call"}]}, "input[0].type"),
        ({"input": [say("bob", "x")]}, "input[0].role"),
        ({"input": [say("user", 5)]}, "input[0].content"),
        ({"input": [say("user", "x")] * 101}, "input"),
        ({"input": "x", "tools": [{"type": "websuche für mich"}]}, "tools[0].type"),
        ({"input": "x", "tools": [{"type": "function"}]}, "tools[0].name"),
        ({"input": "x", "tools": [{"type": "file_search"}]}, "tools[0].vector_store_ids"),
        (
            {"input": "x", "tools": [{"type": "file_search", "vector_store_ids": ["s"] * 17}]},
            "tools[0].vector_store_ids",
        ),
        (
            {"input": "x", "tools": [{"type": "file_search", "vector_store_ids": ["s"], "max_num_results": 99}]},
            "tools[0].max_num_results",
        ),
        ({"input": "x", "tool_choice": "any"}, "tool_choice"),
        ({"input": "x", "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"input": "x", "webhook_url": "https://hooks.test"}, "webhook_url"),
        ({"input": "x", "max_tool_calls": 1}, "max_tool_calls"),
        ({"input": "x", "top_logprobs": 2}, "top_logprobs"),
        ({"input": "x", "prompt": {"id": "p"}}, "prompt"),
        ({"input": "x", "include": ["message.output_text.logprobs"]}, "include[0]"),
        ({"input": "x", "metadata": {"a": 1}}, "metadata.a"),
        ({"input": "x", "temperature": 3}, "temperature"),
        ({"input": "x", "background": True, "store": False}, "background"),
        ({"input": "x", "conversation": "c", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "x", "previous_response_id": 5}, "previous_response_id"),
        ({"input": "x", "text": {"format": {"type": "xml"}}}, "text.format.type"),
    ],
)
def test_what_is_refused_by_name(body: Any, param: str) -> None:
    with pytest.raises(DrSaiError) as error:
        read(**body)
    assert error.value.param == param
    assert f"`{param}`" in error.value.message or param in ("model", "include[0]")


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([say("assistant", "x")], "input"),
        ([say("user", " ")], "input"),
        ([say("system", [{"type": "input_image", "image_url": "data:image/png;base64,"}])], "input[0].content[0]"),
        ([say("user", [{"type": "input_image", "file_id": "f"}])], "input[0].content[0].file_id"),
        ([say("user", [{"type": "input_file", "file_id": "f"}])], "input[0].content[0]"),
        ([say("user", [{"type": "input_image", "image_url": "https://x/y.png"}])], "input[0].content[0].image_url"),
        ([say("user", [{"type": "refusal", "refusal": "no"}])], "input[0].content[0]"),
    ],
)
def test_items_that_cannot_be_used(items: Any, param: str) -> None:
    with pytest.raises(DrSaiError) as error:
        check_last(read_items(placed(read(input=items).input)), "input")
    assert error.value.param == param


def test_what_nothing_is_done_with_is_named() -> None:
    tool = {"type": "function", "name": "f"}
    asked = read(
        input="x",
        tools=[tool],
        tool_choice="auto",
        truncation="auto",
        reasoning={"summary": "auto"},
        temperature=0.5,
        parallel_tool_calls=False,
        include=["reasoning.encrypted_content", "web_search_call.results"],
    )
    assert left_aside(asked, ("tools", "reasoning_effort")) == [
        "tools",
        "reasoning.effort",
        "tool_choice",
        "reasoning.summary",
        "truncation",
        "include",
    ]
    assert parameters(asked).create_args() == {"temperature": 0.5, "parallel_tool_calls": False}
    record = record_of(asked, None, None, ())
    assert record["tools"] == [{**tool, "description": None, "parameters": None, "strict": None}]
