"""What a model is shown of a thread: cut, but never between a call and its results, and never above the limit."""

# The list of a context is private, and moved by the recorder.
# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.memory import ListMemory, MemoryContent
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import FunctionTool, StaticWorkbench
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend import DrSai, DrSaiAgent, RunContext, RunStatus
from drsai_backend import tool as as_tool
from drsai_backend.agents.contexts import (
    EPHEMERAL_NOTE,
    CompactionContext,
    EphemeralOutputsContext,
    TokenBufferedContext,
)
from drsai_backend.agents.contexts.growing import GrowingContext, calls_of, estimate_message
from drsai_backend.errors import ConfigurationError
from drsai_backend.models.endpoints.message_rules import ALTERNATING, conform
from drsai_backend.teams.team_tree import ephemeral_tools
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import settings as of_server

profile = settings(max_examples=60, derandomize=True, deadline=None, database=None)


def user(text: str, source: str = "user") -> UserMessage:
    return UserMessage(content=text, source=source)


def called(number: int, *outputs: str, tool: str = "look") -> list[LLMMessage]:
    ids = [f"{number}.{each}" for each in range(len(outputs))]
    return [
        AssistantMessage(content=[FunctionCall(id=each, name=tool, arguments="{}") for each in ids], source="ann"),
        FunctionExecutionResultMessage(
            content=[
                FunctionExecutionResult(call_id=each, name=tool, content=output, is_error=False)
                for each, output in zip(ids, outputs, strict=True)
            ]
        ),
    ]


@st.composite
def conversations(draw: st.DrawFn) -> list[LLMMessage]:
    said: list[LLMMessage] = []
    for number in range(draw(st.integers(1, 25))):
        text = "x" * draw(st.integers(0, 120))
        match draw(st.sampled_from(["user", "user", "answer", "calls", "system"])):
            case "user":
                said.append(user(f"{number}{text}"))
            case "answer":
                said.append(AssistantMessage(content=f"{number}{text}", source="ann"))
            case "system":
                said.append(SystemMessage(content=f"{number}"))
            case _:
                said += called(number, *[text] * draw(st.integers(1, 3)))
    return said


def separated(prompt: Sequence[LLMMessage]) -> set[str]:
    """Ids of calls without their results in a prompt, and of results without their calls."""
    asked = {call.id for each in prompt for call in calls_of(each)}
    results = {
        result.call_id for each in prompt if isinstance(each, FunctionExecutionResultMessage) for result in each.content
    }
    return asked ^ results


def tokens(prompt: Sequence[LLMMessage]) -> int:
    return sum(map(estimate_message, prompt))


async def prompts(context: ChatCompletionContext, said: Sequence[LLMMessage]) -> list[list[LLMMessage]]:
    found: list[list[LLMMessage]] = []
    for message in said:
        await context.add_message(message)
        if not calls_of(message):
            found.append(await context.get_messages())
    return found


def unavoidable(said: Sequence[LLMMessage]) -> int:
    """System messages and the newest unit: the part that is shown in any case."""
    rest = [each for each in said if not isinstance(each, SystemMessage)]
    newest = rest[-2:] if rest and isinstance(rest[-1], FunctionExecutionResultMessage) else rest[-1:]
    return tokens(newest) + tokens(distinct(said))


def distinct(said: Sequence[LLMMessage]) -> list[SystemMessage]:
    """The system messages, of equal ones the newest."""
    systems = [each for each in said if isinstance(each, SystemMessage)]
    return [each for place, each in enumerate(systems) if each not in systems[place + 1 :]]


@profile
@given(conversations(), st.integers(1, 300), st.booleans())
async def test_a_buffer_cuts_between_units(said: list[LLMMessage], limit: int, keep_first: bool) -> None:
    context = TokenBufferedContext(limit, keep_first=keep_first)
    for prompt in await prompts(context, said):
        assert not separated(prompt)
    prompt = await context.get_messages()
    assert tokens(prompt) <= max(limit, unavoidable(said))
    systems = distinct(said)
    assert prompt[: len(systems)] == systems
    rest = prompt[len(systems) :]
    assert [each for each in said if any(each is shown for shown in rest)] == rest, "in their order, each once"
    assert (await context.save_state())["messages"] == [each.model_dump() for each in said], "nothing is lost"
    fresh = TokenBufferedContext(limit, keep_first=keep_first)
    await fresh.load_state(await context.save_state())
    assert await fresh.get_messages() == prompt
    sent = conform(prompt, ALTERNATING)
    assert not separated(sent)


def shortly(*_: Any) -> Answer:
    return "In short."


KINDS: list[Callable[[], GrowingContext]] = [
    lambda: EphemeralOutputsContext({"look": 2}),
    lambda: EphemeralOutputsContext({"look": 0}),
    lambda: TokenBufferedContext(150, ephemeral={"look": 1}),
    lambda: TokenBufferedContext(150, count=lambda message: 50),
    lambda: CompactionContext(150, ScriptedClient(shortly)),
]


@profile
@given(conversations(), st.lists(st.sampled_from(KINDS), min_size=2, max_size=4), st.data())
async def test_a_list_that_was_looked_at_is_taken_over(
    said: list[LLMMessage], kinds: list[Callable[[], GrowingContext]], data: st.DataObject
) -> None:
    """As from one run's context to the next one's, whose options may be others: it shows what a fresh one shows."""
    held: list[LLMMessage] = []
    places = sorted(data.draw(st.lists(st.integers(0, len(said)), min_size=len(kinds) - 1, max_size=len(kinds) - 1)))
    for kind, begin, end in zip(kinds, [0, *places], [*places, len(said)], strict=True):
        context, fresh = kind(), kind()
        context._messages = held
        await prompts(context, said[begin:end])
        fresh._messages = [*context._messages]
        assert await context.get_messages() == await fresh.get_messages()
        held = context._messages


@pytest.mark.parametrize("summarises", [False, True])
async def test_what_a_memory_adds_in_each_turn_counts_once(summarises: bool) -> None:
    """AutoGen's `memory=` adds a system message in each turn; the earlier questions that fit are still shown."""
    memory = ListMemory()
    await memory.add(MemoryContent(content="Answers in metres. " * 10, mime_type="text/plain"))
    asked: list[Sequence[LLMMessage]] = []
    client = ScriptedClient(lambda messages, _: asked.append(messages) or f"Answer {len(asked)}.")  # type: ignore[func-returns-value]
    limit = 300
    context: ChatCompletionContext = TokenBufferedContext(limit)
    if summarises:
        context = CompactionContext(limit, ScriptedClient(lambda m, _: "they talked"), share=0.9)
    agent = AssistantAgent("ann", client, model_context=context, memory=[memory], system_message=None)
    for turn in range(12):
        await agent.run(task=f"Question {turn}?")
    prompt = asked[-1]
    assert sum(isinstance(each, SystemMessage) for each in prompt) == 1
    questions = [each.content for each in prompt if isinstance(each, UserMessage)]
    assert questions[-4:] == [f"Question {turn}?" for turn in range(8, 12)]
    assert tokens(prompt) <= limit


@profile
@given(conversations(), st.integers(150, 400))
async def test_a_compacted_prompt_stays_within_its_limit(said: list[LLMMessage], limit: int) -> None:
    context = CompactionContext(limit, ScriptedClient(lambda m, _: "they talked"), share=0.5)
    for number, prompt in enumerate(await prompts(context, said)):
        assert not separated(prompt), number
    assert tokens(await context.get_messages()) <= max(limit, unavoidable(said))
    fresh = CompactionContext(limit, ScriptedClient(lambda m, _: "never asked"), share=0.5)
    await fresh.load_state(await context.save_state())
    assert await fresh.get_messages() == await context.get_messages()


async def test_the_users_first_message_stays_where_it_fits() -> None:
    said = [user("What is asked?"), *(user(f"{n}" * 40) for n in range(9)), user("And now?")]
    prompt = (await prompts(TokenBufferedContext(40), said))[-1]
    assert [prompt[0], prompt[-1]] == [said[0], said[-1]]
    prompt = (await prompts(TokenBufferedContext(40, keep_first=False), said))[-1]
    assert said[0] not in prompt


async def test_only_the_newest_outputs_stay() -> None:
    long = "a page of text " * 10
    said = [user("go"), *called(1, long, long), *called(2, long), *called(3, long, tool="other"), *called(4, long)]
    context = EphemeralOutputsContext({"look": 2})
    prompt = (await prompts(context, said))[-1]
    shown = [
        result.content for each in prompt if isinstance(each, FunctionExecutionResultMessage) for result in each.content
    ]
    assert shown == [EPHEMERAL_NOTE, EPHEMERAL_NOTE, long, long, long]
    assert (await context.save_state())["messages"] == [each.model_dump() for each in said]


async def test_marked_tools_are_found_in_workbenches() -> None:
    tool = FunctionTool(lambda: "x", "a tool", name="look")
    vars(tool)["options"] = SimpleNamespace(ephemeral=1)
    plain = FunctionTool(lambda: "x", "a tool", name="other")
    marked = ephemeral_tools([StaticWorkbench([tool, plain])])
    assert marked == {"look": 1}
    context = TokenBufferedContext(1_000, ephemeral={"read": 2})
    context.bind_tools(marked)
    prompt = (await prompts(context, [*called(1, "x" * 200), *called(2, "y" * 200)]))[-1]
    assert EPHEMERAL_NOTE in str(prompt[1].content)
    assert context.dump_component().config["ephemeral"] == {"read": 2}, "marks are the tools' own"


async def test_a_summary_stands_for_what_is_older() -> None:
    asked: list[Any] = []

    def rule(messages: Sequence[Any], _: Any) -> str:
        asked.append(messages)
        return f"summary {len(asked)}"

    context = CompactionContext(200, ScriptedClient(rule), prompt="In short?", keep_first=False)
    said = [user(f"message {n} " + "x" * 60) for n in range(40)]
    last = (await prompts(context, said))[-1]
    assert isinstance(last[0].content, str)
    assert last[0].content.endswith(f"\nsummary {len(asked)}")
    assert last[-1] == said[-1]
    assert 3 < len(asked) < 20
    first, second = asked[:2]
    assert first[0].content == "In short?"
    assert first[1].content.startswith("user: message 0")
    assert second[1].content.startswith("[Summary of what was before]\nsummary 1\n")
    # Each message was told once, or is in the prompt: none fell between two summaries.
    told = "\n".join(each[1].content for each in asked) + "\n".join(str(each.content) for each in last)
    assert [told.count(f"message {n} ") for n in range(40)] == [1] * 40


@pytest.mark.parametrize("answer", ["", "too long " * 100, RuntimeError("gone")], ids=["empty", "long", "failed"])
async def test_without_a_summary_it_is_a_buffer(answer: str | Exception) -> None:
    def rule(messages: Any, options: Any) -> str:
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = ScriptedClient(rule)
    context = CompactionContext(200, client)
    found = await prompts(context, [user(f"message {n} " + "x" * 60) for n in range(40)])
    assert all(tokens(prompt) <= 200 for prompt in found)
    assert "no summary" in str([each.content for each in found[-1]])
    assert client.calls < 20, "it is not asked for each prompt"


async def test_calls_without_results_are_not_summarised() -> None:
    context = CompactionContext(200, ScriptedClient(lambda m, _: "they talked"))
    call = called(1, "x")[0]
    await prompts(context, [*(user("x" * 60) for _ in range(6)), call, *(user("y" * 60) for _ in range(6))])
    prompt = await context.get_messages()
    assert prompt.index(call) < len(prompt) - 1


async def test_two_thousand_turns_cost_the_same_each() -> None:
    counted = 0

    def count(message: LLMMessage) -> int:
        nonlocal counted
        counted += 1
        return estimate_message(message)

    client = ScriptedClient(lambda m, _: "they talked")
    context = CompactionContext(400, client, count=count)
    costs: list[int] = []
    for number in range(2_000):
        before = counted
        await context.add_message(user(f"question {number} " + "x" * 30))
        await context.add_message(AssistantMessage(content="y" * 30, source="ann"))
        assert tokens(await context.get_messages()) <= 400
        costs.append(counted - before)
    assert sum(costs[-200:]) <= 1.1 * sum(costs[200:400])


def test_as_components() -> None:
    for context in (
        EphemeralOutputsContext({"look": 2}),
        TokenBufferedContext(100, keep_first=False, ephemeral={"look": 0}, initial_messages=[user("hello")]),
    ):
        config = context.dump_component()
        assert config.provider == f"drsai_backend.agents.contexts.{type(context).__name__}"
        loaded = ChatCompletionContext.load_component(config)
        assert type(loaded) is type(context)
        assert loaded.dump_component() == config


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: TokenBufferedContext(0), "max_tokens"),
        (lambda: EphemeralOutputsContext({"look": -1}), "look"),
        (lambda: CompactionContext(10, ScriptedClient(lambda m, _: ""), share=2), "share"),
        (lambda: CompactionContext(10, ScriptedClient(lambda m, _: ""), keep=0.9), "keep"),
        (lambda: CompactionContext(10), "factory"),
        (lambda: TokenBufferedContext(9, count=len).dump_component(), "count"),  # type: ignore[arg-type]
    ],
)
def test_wrong_options(make: Any, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        make()


async def test_a_mark_on_a_tool_counts_in_a_run(migrated_sqlite: str) -> None:
    """The engine gives an agent's context the marks of its tools; the whole is stored."""

    @as_tool(ephemeral=1)
    async def look(number: int) -> str:
        return f"{number} " + "x" * 200

    shown: list[list[str]] = []

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Any:
        results = [message for message in messages if isinstance(message, FunctionExecutionResultMessage)]
        shown.append([each.content[0].content[:2] for each in results])
        count = len(results)
        return "done" if count == 3 else [FunctionCall(f"c{count}", f'{{"number": {count}}}', "look")]

    def crew() -> DrSaiAgent:
        context = EphemeralOutputsContext()
        return DrSaiAgent("a", ScriptedClient(rule), tools=[look], model_context=context, max_tool_iterations=5)

    async with DrSai({"crew": crew}, migrated_sqlite, settings=of_server()) as drsai:
        result = await drsai.run("crew", "Look.")
    assert result.text == "done"
    assert shown == [[], ["0 "], [EPHEMERAL_NOTE[:2], "1 "], [EPHEMERAL_NOTE[:2], EPHEMERAL_NOTE[:2], "2 "]]


async def test_compaction_as_a_component(migrated_sqlite: str) -> None:
    """In a team factory, where the run's own model summarises, it is dumped and loaded."""
    options: dict[str, Any] = {"share": 0.5, "keep": 0.2, "prompt": "Shorten.", "keep_first": False}
    seen: list[ChatCompletionContext] = []

    def crew(context: RunContext) -> AssistantAgent:
        made = CompactionContext(100, initial_messages=[user("hello")], **options)
        config = made.dump_component()
        assert config.provider == "drsai_backend.agents.contexts.CompactionContext"
        assert config.config.items() >= options.items()
        loaded = ChatCompletionContext.load_component(config)
        assert isinstance(loaded, CompactionContext)
        assert loaded.dump_component() == config
        seen.append(loaded)
        return AssistantAgent("a", context.model_client(), model_context=loaded)

    async with DrSai({"crew": crew}, migrated_sqlite, settings=of_server()) as drsai:
        result = await drsai.run("crew", "x" * 400, thread_id="t")
        assert result.status is RunStatus.COMPLETED
        await drsai.run("crew", "again", thread_id="t")
    assert "[Summary of" in str(await seen[-1].save_state())
