"""What models write in the form of ReAct, well and badly: it is understood as far as can be, and nothing raises."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.models.endpoints.thoughts import split
from drsai_backend.models.text_calls.parsing import TextStep, parse_step
from drsai_backend.models.text_calls.streaming import StepStream

TOOLS: dict[str, Any] = {
    "search": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    "add": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
    "find_place": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "near": {"type": "boolean"}},
        "required": ["name"],
    },
    "now": {"type": "object", "properties": {}},
}
CATS = ("search", {"query": "cats"})
SUM = ("add", {"a": 1, "b": 2})
NOW: tuple[str, dict[str, Any]] = ("now", {})
BAD = None
"""Neither a call nor an answer: the model is asked again."""

_HEADS = [
    "Action: search\nAction Input: ",
    "action: search\naction input: ",
    "ACTION: SEARCH\nACTION INPUT: ",
    "**Action:** search\n**Action Input:** ",
    "**Action**: `search`\n**Action Input**: ",
    "- Action: search\n- Action Input: ",
    "> Action: search\n> Action Input: ",
    "### Action: search\n### Action Input: ",
    "Action 1: search\nAction Input 1: ",
    "  Action: search\n  Action Input: ",
    "Action: 'search'\nAction Input: ",
    'Action: "search"\nAction_Input: ',
    "Action: [search]\nActionInput: ",
    "Action: <search>\nAction Input: ",
    "Action: Search.\nAction Input: ",
    "Action:search\nAction Input:",
    "Action:\nsearch\nAction Input:\n",
    "Action: search\nArguments: ",
    "Tool: search\nTool Input: ",
    "行动: search\n行动输入: ",
    "动作:search\n动作输入:",
]
_INPUTS = [
    '{"query": "cats"}',
    '```json\n{"query": "cats"}\n```',
    '```\n{"query": "cats"}\n```',
    "{'query': 'cats'}",
    '{"query": "cats",}',
    "{“query”: “cats”}",
    "query: cats",
    "cats",
]
_STEPS: list[tuple[str, Any]] = [(head + given, CATS) for head in _HEADS for given in _INPUTS]
_OTHERS: list[tuple[str, Any]] = [
    ("", BAD),
    (" \n\t\n", BAD),
    ("Thought:", BAD),
    ("Thought: I should search.", BAD),
    ("Thought: a\nThought: b", BAD),
    ("Action:", BAD),
    ("Action: None", BAD),
    ("Action: N/A\nAction Input: N/A", BAD),
    ("Action: I will look at the sky for a while", BAD),
    ("Thought: x\nAction:\nAction Input:", BAD),
    ("Final Answer:", BAD),
    ("Thought: x\nFinal Answer:   ", BAD),
    ("Observation: it is warm", BAD),
    ("Final Answer: 42", "42"),
    ("final answer: 42", "42"),
    ("**Final Answer:** 42", "42"),
    ("Answer: 42", "42"),
    ("最终答案:42", "42"),
    ("Thought: x\nFinal_Answer: 42\nObservation: no", "42"),
    ("Action: Final Answer\nAction Input: 42", "42"),
    ("Action: finish[42]", "42"),
    ("Action: Finish(42)", "42"),
    ('Action: done\nAction Input: {"answer": "42"}', "42"),
    ('{"action": "Final Answer", "action_input": "42"}', "42"),
    ('```json\n{"action": "Final Answer", "action_input": "42"}\n```', "42"),
    ('{"action": "Final Answer", "action_input": {"a": 1}}', '{"a": 1}'),
    ("42", "42"),
    ("Hello, how can I help?", "Hello, how can I help?"),
    ('{"name": "Ada", "age": 3}', '{"name": "Ada", "age": 3}'),
    ("Final Answer: do this:\nAction: run\nAction Input: x", "do this:\nAction: run\nAction Input: x"),
    ("Action: now", NOW),
    ("Action: now()", NOW),
    ("Action: now\nAction Input:", NOW),
    ("Action: now\nAction Input: none", NOW),
    ("Action: now\nAction Input: {}", NOW),
    ('Action: {"action": "now"}', NOW),
    ("Action: search[cats]", CATS),
    ('Action: search("cats")', CATS),
    ("Action: search(query=cats)", CATS),
    ('Action: search(query="cats")', CATS),
    ("Action: search: cats", CATS),
    ("Action: use search with input cats", CATS),
    ('Action: search {"query": "cats"}', CATS),
    ('Action: search\n{"query": "cats"}', CATS),
    ('Action: search\nAction Input: {"query": "cats"} and then I wait', CATS),
    ('Action: search\nAction Input: {"query": "cats"}\nObservation: dogs\nFinal Answer: dogs', CATS),
    ('Action: search\nAction Input: {"query": "cats"}\nAction: add\nAction Input: 1', CATS),
    ('Action: search\nAction Input: {"query": "cats"}\nThought: and now?', CATS),
    ('I think.\nAction: search\nAction Input: {"query": "cats"}', CATS),
    ('Thought: x Action: none\nAction: search\nAction Input: "cats"', CATS),
    ('{"action": "search", "action_input": "cats"}', CATS),
    ('{"action": "search", "action_input": {"query": "cats"}}', CATS),
    ('{"tool": "search", "tool_input": {"query": "cats"}}', CATS),
    ('{"name": "search", "arguments": {"query": "cats"}}', CATS),
    ('{"name": "search", "arguments": "{\\"query\\": \\"cats\\"}"}', CATS),
    ('{"function": {"name": "search", "arguments": {"query": "cats"}}}', CATS),
    ('<tool_call>\n{"name": "search", "arguments": {"query": "cats"}}\n</tool_call>', CATS),
    ("{'action': 'search', 'action_input': 'cats'}", CATS),
    ('{"action": "search", "action_input": "cats",}', CATS),
    ('Thought: x\nAction:\n```json\n{"action": "search", "action_input": "cats"}\n```\nObservation: no', CATS),
    ("Action: add\nAction Input: {'a': 1, 'b': 2}", SUM),
    ("Action: add\nAction Input: a=1, b=2", SUM),
    ("Action: add\nAction Input: a: 1\nb: 2", SUM),
    ("Action: add(1=2)", ("add", "1=2")),
    ("Action: add(a=1, b=2)", SUM),
    ("Action: add\nAction Input: 1 and 2", ("add", "1 and 2")),
    ('Action: add\nAction Input: {"a": 1, "b": ', ("add", '{"a": 1, "b":')),
    (
        'Action: find place\nAction Input: {"name": "Rome", "near": true}',
        ("find_place", {"name": "Rome", "near": True}),
    ),
    (
        "Action: find_place\nAction Input: {'name': 'Rome', 'near': true}",
        ("find_place", {"name": "Rome", "near": True}),
    ),
    ("Action: find-place\nAction Input: Rome", ("find_place", {"name": "Rome"})),
    ("Action: fly\nAction Input: {}", ("fly", {})),
]
CORPUS = _STEPS + _OTHERS


def test_the_corpus_is_as_large_as_it_is_said_to_be() -> None:
    assert len(CORPUS) >= 200
    assert len({text for text, _ in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize("part", range(4))
def test_what_is_meant_is_found(part: int) -> None:
    for text, expected in CORPUS[part::4]:
        step = parse_step(text, TOOLS)
        if expected is BAD:
            assert step.is_malformed, (text, step)
        elif isinstance(expected, str):
            assert (step.action, step.answer) == (None, expected), (text, step)
        else:
            name, arguments = expected
            assert step.action == name, (text, step)
            given = step.arguments if isinstance(arguments, str) else json.loads(step.arguments)
            assert given == arguments, (text, step)


def test_the_thought_is_what_comes_before() -> None:
    assert parse_step("Thought: one\ntwo\nAction: now", TOOLS).thought == "one\ntwo"
    assert parse_step("I think.\n\nThought: so\nFinal Answer: x", TOOLS).thought == "I think.\nso"
    assert parse_step('I shout.\n```json\n{"action": "now"}\n```', TOOLS).thought == "I shout."


_PIECES = st.sampled_from(
    [
        *(
            "Thought: ",
            "Action: ",
            "Action Input: ",
            "Observation: ",
            "Final Answer: ",
            "\n",
            " ",
            "search",
            "add",
            "a=1",
        ),
        *(
            '{"query": "x"}',
            "{",
            "}",
            '"',
            "'",
            "```json\n",
            "```",
            '{"action": "now"}',
            "None",
            "é",
            "思考:",
            "(",
            "]",
            "\\",
        ),
        *("<think>", "</think>", "text", "**", "\x00", "\ud800"),
    ]
)


@given(st.lists(_PIECES, max_size=25).map("".join) | st.text(max_size=80))
def test_nothing_raises(text: str) -> None:
    step = parse_step(text, TOOLS)
    assert isinstance(step, TextStep)
    assert step.action is None or step.answer is None
    assert step.answer != ""


@given(st.lists(_PIECES, max_size=20), st.data())
def test_a_stream_shows_what_the_whole_says(pieces: list[str], data: st.DataObject) -> None:
    """However it is cut. An answer that is shown is the whole one; where there is none, no text is shown."""
    text = "".join(pieces)
    step = parse_step(text, TOOLS)
    stream = StepStream()
    shown: list[str] = []
    place = 0
    while place < len(text):
        size = data.draw(st.integers(1, 12))
        shown.append(stream.feed(text[place : place + size]))
        place += size
    shown.append(stream.end())
    if "think>" in text or step.is_malformed:
        return
    shown.append(stream.close(step.answer, step.thought))
    said = split(shown)[1]
    if stream.has_answered and step.answer is not None:
        assert said.strip() == step.answer.strip()
    elif step.action is not None:
        assert said.strip() == ""


@pytest.mark.parametrize(
    "text",
    [
        "{" * 500_000,
        "Action: " * 60_000,
        " " * 500_000,
        "*" * 500_000,
        '{"action":' * 50_000,
        "Action: add\nAction Input: " + "a=1," * 100_000,
        "Action: add\nAction Input: " + "[" * 300_000,
        '{"action": "' + "\\" * 400_000,
        "Action: add\nAction Input: {" + "'a': {" * 50_000,
    ],
    ids=range(9),
)
def test_long_texts_take_little_time(text: str) -> None:
    """Seconds would be a cost that grows with the square, or worse."""
    begin = time.process_time()
    parse_step(text, TOOLS)
    assert time.process_time() - begin < 3
