"""The offline demo model, in the teams it is meant to show."""

from __future__ import annotations

import asyncio
import enum
import io
import json
import time
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import (
    HandoffTermination,
    MaxMessageTermination,
    TextMentionTermination,
    TextMessageTermination,
)
from autogen_agentchat.messages import HandoffMessage, StructuredMessage, TextMessage, ToolCallRequestEvent
from autogen_agentchat.teams import MagenticOneGroupChat, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core import CancellationToken, FunctionCall, Image
from autogen_core.models import AssistantMessage, ChatCompletionClient, CreateResult, LLMMessage, UserMessage
from autogen_core.tools import FunctionTool, ToolSchema
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PILImage
from pydantic import BaseModel, Field

from drsai_backend.agents.tool_agent import ToolAgent
from drsai_backend.models import DemoChatCompletionClient
from drsai_backend.models.calls.requests import OfferedTool
from drsai_backend.models.demo.tools import expressions, tool_calls
from drsai_backend.tools import calculator, convert_units, current_time

PREFIX = "[offline demo model] "


@pytest.fixture
def demo() -> DemoChatCompletionClient:
    return DemoChatCompletionClient(delay=0)


def user(*texts: str) -> list[LLMMessage]:
    messages: list[LLMMessage] = []
    for text in texts:
        if messages:
            messages.append(AssistantMessage(content=PREFIX + "fine", source="assistant"))
        messages.append(UserMessage(content=text, source="user"))
    return messages


async def say(demo: DemoChatCompletionClient, *texts: str) -> str:
    content = (await demo.create(user(*texts))).content
    assert isinstance(content, str)
    return content


def spoken(result: TaskResult) -> list[tuple[str, str]]:
    return [(message.source, message.content) for message in result.messages if isinstance(message, TextMessage)]


async def test_it_hands_in_what_it_said_when_it_is_reminded(demo: DemoChatCompletionClient) -> None:
    agent = ToolAgent("ann", demo, require_done=True)
    result = await agent.run(task="My name is Ada.")
    answer = result.messages[-1]
    assert isinstance(answer, TextMessage)
    assert answer.content.startswith(f"{PREFIX}Nice to meet you, Ada.")
    assert "limit" not in answer.metadata


@pytest.mark.parametrize(
    ("texts", "answer"),
    [
        (["My name is Ada", "What is my name?"], "Your name is Ada."),
        (["I'm Grace and I like ships", "hello", "who am I?"], "Your name is Grace."),
        (["What is my name?"], "You have not told me your name yet."),
        (["My favourite colour is green.", "What's my favourite colour?"], "Your favourite colour is green."),
        (
            ["a", "b", "How many messages have I sent?"],
            "You have sent 3 messages in this conversation, this one included.",
        ),
        (["red fox", "b", "What was my first message?"], "Your first message was: “red fox”."),
        (["Tell me a joke"], "You said: “Tell me a joke”. That makes 1 message from you in this conversation."),
    ],
)
async def test_it_remembers_the_conversation(demo: DemoChatCompletionClient, texts: list[str], answer: str) -> None:
    assert await say(demo, *texts) == PREFIX + answer


async def test_every_text_says_that_it_is_a_demo(demo: DemoChatCompletionClient) -> None:
    for text in ("hi", "what can you do?", "write a poem", "", "?", "🦊" * 5000):
        assert (await say(demo, text)).startswith(PREFIX)
    assert (await demo.create([])).content == PREFIX + "I have nothing to answer yet."


async def test_equal_requests_get_equal_answers(demo: DemoChatCompletionClient) -> None:
    tools = [FunctionTool(calculator, description="Calculate")]
    first = await demo.create(user("what is 12*7"), tools=tools)
    assert first == await DemoChatCompletionClient(delay=0).create(user("what is 12*7"), tools=tools)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("what is 12*7", ["12*7"]),
        ("What is 12 times 7?", ["12 * 7"]),
        ("2+2 and 3*3", ["2+2", "3*3"]),
        ("2*(3+4)", ["2*(3+4)"]),
        ("15% of 80", ["15/100*80"]),
        ("2^10", ["2**10"]),
        ("version 3.11 of 2024-05-06", []),
    ],
)
def test_arithmetic_is_found(text: str, found: list[str]) -> None:
    assert expressions(text) == found


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("what is 12*7?", [("calculator", '{"expression": "12*7"}')]),
        ("what time is it in New York", [("current_time", '{"time_zone": "New_York"}')]),
        ("what is the date", [("current_time", "{}")]),
        (
            "2+2, and what time is it in Europe/Berlin?",
            [("calculator", '{"expression": "2+2"}'), ("current_time", '{"time_zone": "Europe/Berlin"}')],
        ),
        (
            "Convert 5 km to miles and 3 kg to lb",
            [
                ("convert_units", '{"value": 5.0, "from_unit": "km", "to_unit": "miles"}'),
                ("convert_units", '{"value": 3.0, "from_unit": "kg", "to_unit": "lb"}'),
            ],
        ),
        ("tell me about ships", []),
    ],
)
async def test_tools_are_called_when_the_message_asks(
    demo: DemoChatCompletionClient, text: str, calls: list[tuple[str, str]]
) -> None:
    functions: Sequence[Any] = (calculator, current_time, convert_units)
    tools = [FunctionTool(function, description=str(function.__doc__)) for function in functions]
    content = (await demo.create(user(text), tools=tools)).content
    found = [(call.name, call.arguments) for call in content if isinstance(call, FunctionCall)]
    assert found == calls


def offered(name: str, *required: str, **properties: Any) -> OfferedTool:
    """A client's tool, which is described in all words that people use."""
    parts = {key: kind if isinstance(kind, dict) else {"type": kind} for key, kind in properties.items()}
    parameters = {"type": "object", "properties": parts, "required": [*required]}
    text = "Runs commands, writes notes, looks things up, tells the time, and calculates what you want."
    return OfferedTool({"name": name, "description": text, "parameters": parameters}, is_active=True)


CLIENTS = [
    offered("Bash", "command", command="string", timeout="number"),
    offered("write_note", "title", title="string", tags={"type": ["array", "null"]}),
    offered("calculator_of_client", "expression", expression="string"),
    offered("current_time", time_zone="string"),
    offered("convert", "value", value={"anyOf": [{"type": "null"}, {"type": "number"}]}),
    offered("transfer_to_sales"),
]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("What is 12*7?", []),
        ("Write a note about commands.", []),
        ("What time is it? What is the current time?", []),
        ("Convert 5 km to miles", []),
        ("I want to talk to sales.", []),
        ("Run Bash", []),
        ("Bash ls -la", []),
        ("bash command=ls", []),
        ("MyBash command=ls", []),
        ("convert value=many", []),
        ("Bash command=ls.", [("Bash", '{"command": "ls"}')]),
        ("Use Bash (command='ls -la', timeout=5)", [("Bash", '{"command": "ls -la", "timeout": 5}')]),
        (
            'write_note {"title": "A \\"b\\"", "tags": ["x"]}, then convert value: 5.5',
            [("write_note", '{"title": "A \\"b\\"", "tags": ["x"]}'), ("convert", '{"value": 5.5}')],
        ),
        ("Call current_time, please.", [("current_time", "{}")]),
        ("transfer_to_sales!", [("transfer_to_sales", "{}")]),
    ],
)
async def test_a_clients_tool_is_called_by_its_name_and_arguments_only(
    demo: DemoChatCompletionClient, text: str, calls: list[tuple[str, str]]
) -> None:
    tools: Any = CLIENTS
    content = (await demo.create(user(text), tools=tools)).content
    assert [(call.name, call.arguments) for call in content if isinstance(call, FunctionCall)] == calls


@given(
    st.text(st.sampled_from("Bash write_note 12*7 \"'{}()=:,?!\n"), max_size=60), st.sampled_from(["", "Bash", "Bash("])
)
def test_no_words_break_the_calls_of_a_clients_tools(said: str, before: str) -> None:
    for call in tool_calls(before + said, CLIENTS, hand_over=True, required=False):
        assert call.name in before + said
        assert all(name in before + said for name in json.loads(call.arguments))


async def test_arguments_are_filled_from_the_schema(demo: DemoChatCompletionClient) -> None:
    def book_flight(
        city: str, passengers: int, travel_class: Literal["economy", "business"], seat: Seat, note: str = ""
    ) -> str:
        return ""

    tool = FunctionTool(book_flight, description="Book a flight")
    result = await demo.create(user("Book a flight to Rio Branco for 3 in business"), tools=[tool])
    assert isinstance(result.content, list)
    arguments = tool.args_type().model_validate_json(result.content[0].arguments)
    assert arguments.model_dump() == {
        "city": "Rio Branco",
        "passengers": 3,
        "travel_class": "business",
        "seat": {"row": 3},
        "note": "",
    }


async def test_tool_choice_is_obeyed(demo: DemoChatCompletionClient) -> None:
    calculate = FunctionTool(calculator, description="Calculate")
    clock = FunctionTool(current_time, description="Time")
    asked = user("what is 2+2")
    assert isinstance((await demo.create(asked, tools=[calculate], tool_choice="none")).content, str)
    forced = (await demo.create(asked, tools=[calculate, clock], tool_choice=clock)).content
    assert [call.name for call in forced if isinstance(call, FunctionCall)] == ["current_time"]
    schema: ToolSchema = {"name": "anything", "parameters": {"type": "object", "properties": {}}}
    required = (await demo.create(user("hello"), tools=[schema], tool_choice="required")).content
    assert [call.name for call in required if isinstance(call, FunctionCall)] == ["anything"]


@pytest.mark.parametrize("properties", [{"q": True}, {"q": {"type": "object", "properties": {"r": True}}}, None, "x"])
async def test_a_schema_that_says_nothing_may_be_anything(demo: DemoChatCompletionClient, properties: Any) -> None:
    schema: Any = {"name": "it", "parameters": {"type": "object", "properties": properties, "required": ["q"]}}
    called = (await demo.create(user("hello"), tools=[schema], tool_choice="required")).content
    assert [call.name for call in called if isinstance(call, FunctionCall)] == ["it"]


async def test_an_agent_with_tools_answers_with_their_results(demo: DemoChatCompletionClient) -> None:
    agent = AssistantAgent(
        "a",
        demo,
        tools=[calculator, current_time],
        model_client_stream=True,
        reflect_on_tool_use=True,
        max_tool_iterations=4,
    )
    result = await agent.run(task="What is 12*7 and 5/0?")
    assert [type(message).__name__ for message in result.messages] == [
        "TextMessage",
        "ToolCallRequestEvent",
        "ToolCallExecutionEvent",
        "TextMessage",
    ]
    assert spoken(result)[-1][1] == f"{PREFIX}calculator says: 84\ncalculator failed: division by zero"
    request = result.messages[1]
    assert isinstance(request, ToolCallRequestEvent)
    assert len({call.id for call in request.content}) == 2


async def test_a_writer_and_a_reviewer_come_to_an_end_every_time(demo: DemoChatCompletionClient) -> None:
    team = RoundRobinGroupChat(
        [
            AssistantAgent("writer", demo, system_message="You are a writer."),
            AssistantAgent("reviewer", demo, system_message="You review texts. Answer APPROVE when satisfied."),
        ],
        termination_condition=TextMentionTermination("APPROVE", sources=["reviewer"]) | MaxMessageTermination(9),
    )
    for topic in ("tea", "the sea"):
        said = spoken(await team.run(task=f"Write about {topic}"))
        assert [source for source, _ in said] == ["user", "writer", "reviewer", "writer", "reviewer"]
        assert topic in said[1][1].lower()
        assert said[1][1] != said[3][1]


async def test_a_selector_gets_valid_names_in_turn(demo: DemoChatCompletionClient) -> None:
    names = ["planner", "coder", "tester"]
    agents: list[Any] = [AssistantAgent(name, demo, description=f"The {name}.") for name in names]
    team = SelectorGroupChat(agents, demo, termination_condition=MaxMessageTermination(5))
    said = spoken(await team.run(task="Build a shed. The coder starts."))
    assert [source for source, _ in said] == ["user", "coder", "planner", "tester", "coder"]


async def test_a_swarm_hands_over_by_topic_and_to_people(demo: DemoChatCompletionClient) -> None:
    team = Swarm(
        [
            AssistantAgent("triage", demo, handoffs=["refunds_agent", "user"]),
            AssistantAgent("refunds_agent", demo, handoffs=["triage"]),
        ],
        termination_condition=HandoffTermination("user")
        | TextMessageTermination("refunds_agent")
        | MaxMessageTermination(9),
    )
    result = await team.run(task="I want a refund for my kettle")
    assert [message.source for message in result.messages if isinstance(message, HandoffMessage)] == ["triage"]
    assert "triage handed this over" in spoken(result)[-1][1]
    await team.reset()
    result = await team.run(task="Let me talk to a human")
    last = result.messages[-1]
    assert isinstance(last, HandoffMessage)
    assert last.target == "user"


async def test_magentic_one_comes_to_an_end(demo: DemoChatCompletionClient) -> None:
    agents: list[Any] = [AssistantAgent(name, demo, description=f"A {name}.") for name in ("surfer", "coder")]
    said = spoken(await MagenticOneGroupChat(agents, demo, max_turns=8).run(task="Find a recipe"))
    assert [source for source, _ in said if source in ("surfer", "coder")] == ["surfer", "coder"]
    assert "Find a recipe" in said[-1][1]


class Seat(BaseModel):
    row: int


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Part(BaseModel):
    label: str = Field(min_length=3, max_length=20)
    weight: float = Field(gt=0, lt=1)
    parts: list[Part] = []


class Report(BaseModel):
    title: str
    colour: Colour
    count: int = Field(ge=5, le=6)
    kind: Literal["x"]
    part: Part
    tags: list[str] = Field(min_length=2)
    maybe: int | None
    either: int | str
    flags: dict[str, bool]
    pair: tuple[int, str]


async def test_json_fits_the_asked_class(demo: DemoChatCompletionClient) -> None:
    result = await demo.create(user("A blue report, please"), json_output=Report)
    report = Report.model_validate_json(str(result.content))
    assert report.colour is Colour.BLUE
    agent = AssistantAgent("a", demo, output_content_type=Report)
    last = (await agent.run(task="A red report")).messages[-1]
    assert isinstance(last, StructuredMessage)


async def test_a_stream_comes_word_by_word_with_usage(demo: DemoChatCompletionClient) -> None:
    *pieces, result = [item async for item in demo.create_stream(user("Tell me a joke"))]
    assert isinstance(result, CreateResult)
    assert "".join(str(piece) for piece in pieces) == result.content
    assert len(pieces) == len(str(result.content).split())
    assert result.usage.prompt_tokens == demo.count_tokens(user("Tell me a joke")) == 3 + 4 + 3
    assert result.usage.completion_tokens == -(-len(str(result.content).encode()) // 4)
    assert demo.total_usage() == demo.actual_usage() == result.usage
    assert demo.remaining_tokens(user("Tell me a joke")) == 128_000 - 10


async def test_max_tokens_cuts_the_text(demo: DemoChatCompletionClient) -> None:
    result = await demo.create(user("🦊 tell me"), extra_create_args={"max_tokens": 7})
    assert result.finish_reason == "length"
    assert result.usage.completion_tokens <= 7


async def test_a_cancelled_token_ends_the_stream() -> None:
    slow, token = DemoChatCompletionClient(delay=120), CancellationToken()
    stream = slow.create_stream(user("Tell me a joke"), cancellation_token=token)
    asyncio.get_running_loop().call_later(0.05, token.cancel)
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await anext(stream)
    for call in (slow.create, DemoChatCompletionClient(delay=0).create):
        with pytest.raises(asyncio.CancelledError):
            await call(user("hi"), cancellation_token=token)
    with pytest.raises(asyncio.CancelledError):
        await anext(slow.create_stream(user("hi"), cancellation_token=token))


async def test_images_are_counted(demo: DemoChatCompletionClient) -> None:
    file = io.BytesIO()
    PILImage.new("RGB", (40, 30)).save(file, "PNG")
    picture = Image.from_pil(PILImage.open(io.BytesIO(file.getvalue())))
    content = (await demo.create([UserMessage(content=["What is this?", picture], source="user")])).content
    assert "1 image(s) (40 x 30 pixels)" in str(content)


def test_it_is_a_component() -> None:
    dumped = DemoChatCompletionClient(delay=0.5).dump_component()
    assert dumped.provider == "drsai_backend.models.DemoChatCompletionClient"
    loaded = ChatCompletionClient.load_component(dumped)
    assert isinstance(loaded, DemoChatCompletionClient)
    assert loaded.dump_component() == dumped


async def test_hostile_text_is_answered_quickly(demo: DemoChatCompletionClient) -> None:
    started = time.process_time()
    for text in (
        "(" * 100_000,
        "1+" * 50_000,
        "about " * 20_000,
        "['a'," * 20_000 + " select",
        "my a" * 30_000,
        "a" * 10**6,
    ):
        await demo.create(user(text), tools=[FunctionTool(calculator, description="Calculate")])
        await demo.create([UserMessage(content=text, source="agent"), *user(text)])
    assert time.process_time() - started < 5
