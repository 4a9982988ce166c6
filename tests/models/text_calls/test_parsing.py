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
    # What Python has and JSON has not.
    ("{'action': 'search', 'action_input': ...}", BAD),
    ("{'action': 'search', 'action_input': {'cats', 'dogs'}}", BAD),
    ("{'action': 'search', 'action_input': b'cats'}", BAD),
    ("{'action': 'search', 'action_input': {('a', 'b'): 1}}", BAD),
    ("{'action': 'Final Answer', 'action_input': ...}", BAD),
    ("{'action': 'search', 'action_input': 'cats', 1: 2}", CATS),
    ("Action: add\nAction Input: {'a': ..., 'b': {1}}", ("add", "{'a': ..., 'b': {1}}")),
    # Objects that are cut, and such that say nothing.
    ('{"action": "search", "action_input": {"query": "ca', BAD),
    ('I look.\n```json\n{"action": "search", "action_inp', BAD),
    ('{"action": "", "action_input": {}}', BAD),
    ('{"action": "Final Answer", "action_input": ""}', BAD),
    ('{"action": "Final Answer", "action_input": " "}', BAD),
    ('{"action": "Final Answer", "action_input": null}', BAD),
    ('{"action": "now", "action_input": null}', NOW),
    ('{"name": "Ada", "age": ', '{"name": "Ada", "age":'),
    ('Final Answer: write {"action": ', 'write {"action":'),
    # Half of a pair of surrogates stays an escape, which can be stored and sent.
    ('{"action": "search", "action_input": {"query": "\\ud800é"}}', ("search", {"query": "\ud800é"})),
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


def test_calls_can_be_stored_and_sent() -> None:
    step = parse_step('{"action": "search", "action_input": {"query": "\\ud800é"}}', TOOLS)
    assert step.arguments.encode() == b'{"query": "\\ud800\\u00e9"}'


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


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=3)
    | st.just(...),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.integers() | st.tuples(st.integers()), inner, max_size=3)
        | st.tuples(inner)
        | st.sets(st.integers(), max_size=2)
    ),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(["action", "action_input", "name", "arguments", "function", 1]), _VALUES), _VALUES
)
def test_no_literal_of_python_raises(call: dict[Any, Any], given: Any) -> None:
    for text in (
        repr(call),
        f"Action: add\nAction Input: {given!r}",
        repr({"action": "search", "action_input": given}),
    ):
        step = parse_step(text, TOOLS)
        assert step.action is None or (step.answer is None and step.action.strip())
        step.arguments.encode()


@pytest.mark.parametrize("depth", [400, 700, 940, 960, 980, 1_000, 20_000])
def test_nesting_does_not_raise(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    for text in (
        '{"function":' * depth + '"search"' + "}" * depth,
        f'{{"action": "search", "action_input": {deep}}}',
        f'Action: search\nAction Input: {{"query": {deep}}}',
        f'Action: Final Answer\nAction Input: {{"a": {deep}}}',
    ):
        assert parse_step(text, TOOLS)


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
        "Action: add\nAction Input: " + "a" * 1_000_000,
        "Thought: x\n" * 90_000,
    ],
    ids=range(11),
)
def test_long_texts_take_little_time(text: str) -> None:
    """Seconds would be a cost that grows with the square, or worse."""
    begin = time.process_time()
    parse_step(text, TOOLS)
    assert time.process_time() - begin < 3


@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        "Action: add\nAction Input: " + "a" * 1_000_000,
        "Final Answer: x" + "\n" * 200_000,
        "Final Answer: x" + " " * 1_000_000,
        "Thought: " + "a" * 1_000_000,
    ],
    ids=["no label", "input", "lines", "blank", "thought"],
)
def test_long_streams_take_little_time(text: str) -> None:
    """In small pieces, and in one."""
    for size in (10, len(text)):
        stream = StepStream()
        begin = time.process_time()
        for place in range(0, len(text), size):
            stream.feed(text[place : place + size])
        stream.end()
        assert time.process_time() - begin < 3


def test_a_long_answer_comes_as_it_is_made() -> None:
    """Of one line, and without a thought before it."""
    stream = StepStream()
    shown = [stream.feed(piece) for piece in ("Final Answer: ", "a" * 30, "b" * 30, "c")]
    assert "".join(shown[:3]) == "a" * 30 + "b" * 30
    assert shown[3] == "c"


def test_a_parameter_of_which_nothing_is_said_takes_a_text() -> None:
    """Its schema is `true`, or it is required and has none."""
    schema: Any = {"properties": {"a": True, "b": {"type": "integer"}}, "required": ["a", "b"]}
    assert parse_step("Action: f\nAction Input: x, 2", {"f": schema}).arguments == '{"a": "x", "b": 2}'
    schema["required"] = ["a", "c"]
    assert parse_step("Action: f\nAction Input: x, 2", {"f": schema}).arguments == '{"a": "x", "c": "2"}'
