"""Tools of this package in a run: what they get of it, what stands around them, and what a person is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, cast

import pytest
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage
from autogen_core.tools import FunctionTool, StaticWorkbench, ToolResult

from drsai_backend import Depends, DrSaiAgent, RunContext, ToolError, ToolRun, tool
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.teams.replay.steps import ToolFinished, ToolPartial, ToolStarted
from drsai_backend.teams.replay.workbench import RecordedWorkbench
from drsai_backend.tools import (
    Approval,
    Proceed,
    ToolCall,
    ToolIdentity,
    ToolOptions,
    cached,
    current_tool_run,
    log_calls,
)
from drsai_backend.tools import idempotent as may_repeat
from drsai_backend.tools.classes import ClassTool
from drsai_backend.tools.results import text_result
from tests.support.repeated import Story
from tests.support.scripted import Answer, ScriptedClient

pytestmark = pytest.mark.usefixtures("spotless")


def calls(*names_and_arguments: tuple[str, str]) -> Any:
    """A model that makes these calls, and then says what came of them."""

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        last = messages[-1]
        if isinstance(last, FunctionExecutionResultMessage):
            return " and ".join(f"{each.content}{' (error)' if each.is_error else ''}" for each in last.content)
        return [FunctionCall(f"c{at}", arguments, name) for at, (name, arguments) in enumerate(names_and_arguments)]

    return rule


def team(rule: Any, **agent: Any) -> Any:
    def build() -> BaseGroupChat:
        ann = DrSaiAgent("ann", ScriptedClient(rule), reflect_on_tool_use=True, **agent)
        return RoundRobinGroupChat([ann], max_turns=1)

    return build


async def said(rule: Any, **agent: Any) -> str:
    story = await Story(team(rule, **agent)).run()
    return str(story.said[-1]["content"])


async def test_tools_that_cannot_change_are_described_once_a_run() -> None:
    """AutoGen makes the schema of a function anew each time; what describes itself is asked each time."""
    asked: list[str] = []

    def look(place: str) -> str:
        """Look."""
        return place

    class Odd(FunctionTool):
        @property
        def schema(self) -> Any:
            asked.append(self.name)
            return {**super().schema, "description": f"the {len(asked)}. time"}

    async def described(bench: RecordedWorkbench) -> list[str]:
        return [str(each.get("description")) for each in await bench.list_tools()]

    tools: list[Any] = [FunctionTool(look, description="a")]
    inner = StaticWorkbench(tools)
    bench = RecordedWorkbench(inner, cast("Any", None), 0)
    first = await bench.list_tools()
    again = await bench.list_tools()
    assert first == again
    assert first is not again
    assert first[0] is again[0]
    inner._tools.append(FunctionTool(look, description="b", name="another"))
    assert await described(bench) == ["a", "b"]
    odd = RecordedWorkbench(StaticWorkbench([Odd(look, description="odd")]), cast("Any", None), 0)
    assert await described(odd) == ["the 1. time"]
    assert await described(odd) == ["the 2. time"]


async def test_what_a_run_provides() -> None:
    def who_asks(context: RunContext) -> str:
        return f"{context.principal.user_id} on {context.thread_id}"

    @tool
    async def tell(text: str, who: Annotated[str, Depends(who_asks)], principal: Principal, run: ToolRun) -> str:
        return f"{text} {who} {principal.user_id} {run.agent} {run.call_id}"

    text = await said(calls(("tell", '{"text": "hi"}')), tools=[tell])
    assert text == "hi u on t u ann c0"


async def test_results_keep_the_order_of_the_calls() -> None:
    @tool
    async def wait(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return f"waited {seconds}"

    rule = calls(("wait", '{"seconds": 0.03}'), ("wait", '{"seconds": 0.0}'), ("wait", '{"seconds": 0.02}'))
    began = asyncio.get_running_loop().time()
    assert await said(rule, tools=[wait]) == "waited 0.03 and waited 0.0 and waited 0.02"
    assert asyncio.get_running_loop().time() - began < 5


async def test_errors_end_no_run() -> None:
    @tool
    async def refuse() -> None:
        raise ToolError("Not today.")

    @tool
    def break_() -> None:
        raise ValueError("secret")

    rule = calls(("refuse", "{}"), ("break_", "{}"), ("nothing", "{}"), ("refuse", "{"), ("refuse", '{"x": 1}'))
    text = await said(rule, tools=[refuse, break_])
    assert text.startswith("Not today. (error)")
    assert "The tool break_ failed (ValueError)" in text
    assert "nothing" in text
    assert "there is no parameter `x`" in text
    assert text.count("(error)") == 5
    assert "secret" not in text


async def test_partial_results_are_events() -> None:
    @tool
    async def count() -> AsyncIterator[str]:
        yield "one"
        yield "two"

    story = await Story(team(calls(("count", "{}")), tools=[count])).run()
    assert story.events == [
        ToolStarted("ann", "c0", "count", "{}"),
        ToolPartial("ann", "c0", "count", "one"),
        ToolFinished("ann", "c0", "count", "two", is_error=False),
    ]


async def test_middleware_stands_around_each_call() -> None:
    done: list[str] = []

    @tool
    async def add(left: int, right: int) -> int:
        done.append("add")
        return left + right

    async def log(call: ToolCall, proceed: Proceed) -> ToolResult:
        done.append(f"> {call.tool.name} {dict(call.arguments)} {call.run.agent}")
        result = await proceed(call)
        done.append(f"< {result.to_text()}")
        return result

    async def guard(call: ToolCall, proceed: Proceed) -> ToolResult:
        if call.arguments.get("left") == 13:
            return text_result(call.tool.name, "13 brings no luck.", is_error=True)
        if call.arguments.get("left") == 14:
            raise ValueError("secret")
        return await proceed(ToolCall(call.tool, {**call.arguments, "right": 5}, call.run))

    agent: Any = {"tools": [add], "tool_middleware": [log, guard]}
    assert await said(calls(("add", '{"left": 1, "right": 2}')), **agent) == "6"
    assert done == ["> add {'left': 1, 'right': 2} ann", "add", "< 6"]
    assert await said(calls(("add", '{"left": 13, "right": 2}')), **agent) == "13 brings no luck. (error)"
    assert "failed (ValueError)" in await said(calls(("add", '{"left": 14, "right": 2}')), **agent)


async def test_middleware_stands_around_tools_of_others() -> None:
    seen: list[tuple[str, Any, bool]] = []

    async def add(left: int, right: int) -> int:
        run = current_tool_run()
        assert run is not None
        assert run.asker == "default/u"
        assert run.thread == ThreadName("default", "u", "t")
        return left + right

    async def log(call: ToolCall, proceed: Proceed) -> ToolResult:
        seen.append((call.tool.name, call.arguments, call.tool.options.idempotent))
        if call.arguments["left"] == 13:
            raise ToolError("13 brings no luck.")
        if call.arguments["left"] == 14:
            raise ValueError("secret")
        return await proceed(ToolCall(call.tool, {**call.arguments, "right": 5}, call.run))

    made = FunctionTool(add, "Adds.")
    may_repeat(made)
    for more in ({"tools": [made]}, {"workbench": [StaticWorkbench([made])]}):
        agent: Any = {**more, "tool_middleware": [log]}
        assert await said(calls(("add", '{"left": 1, "right": 2}')), **agent) == "6"
        assert await said(calls(("add", '{"left": 13, "right": 2}')), **agent) == "13 brings no luck. (error)"
        assert "failed (ValueError)" in await said(calls(("add", '{"left": 14, "right": 2}')), **agent)
    assert seen[0] == ("add", {"left": 1, "right": 2}, True)
    assert len(seen) == 6


async def test_kept_results_are_those_of_a_thread() -> None:
    made: list[str] = []

    @tool(idempotent=True)
    async def read() -> str:
        run = current_tool_run()
        assert run is not None
        assert run.thread is not None
        made.append(run.thread.user_id)
        return f"{run.thread.user_id}'s"

    build, said = team(calls(("read", "{}")), tools=[read], tool_middleware=[cached()]), list[str]()
    for owner in ("u", "ann", "u"):
        story = await Story(build, provided={"owner": Owner("default", owner)}).run()
        said.append(str(story.said[-1]["content"]))
    assert said == ["u's", "ann's", "u's"]
    assert made == ["u", "ann"]


@pytest.mark.parametrize("layers", [[], [log_calls]])
async def test_what_a_foreign_tool_raises_is_logged_once(layers: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    """AutoGen makes a text of it; what its workbench raises ends the run, whatever stands around the call."""
    error = ValueError("no luck")

    async def add(left: int) -> int:
        raise error

    class Broken(StaticWorkbench):
        async def call_tool(self, *_: Any, **__: Any) -> ToolResult:
            raise error

    tools = [FunctionTool(add, "Adds.")]
    rule = calls(("add", '{"left": 1}'))
    assert await said(rule, tools=tools, tool_middleware=layers) == "no luck (error)"
    with pytest.raises(ValueError, match="no luck") as caught:
        await said(rule, workbench=[Broken(tools)], tool_middleware=layers)
    assert caught.value is error
    failed = [each for each in caplog.records if each.getMessage() == "tool failed"]
    assert [(each.exc_info and each.exc_info[1], vars(each)["agent"]) for each in failed] == [(error, "ann")] * 2


async def test_a_repeated_turn_calls_nothing_twice() -> None:
    done: list[str] = []

    async def log(call: ToolCall, proceed: Proceed) -> ToolResult:
        done.append(call.tool.name)
        return await proceed(call)

    @tool
    async def pay(amount: int) -> str:
        done.append(f"pay {amount}")
        return f"paid {amount}"

    build = team(calls(("pay", '{"amount": 1}')), tools=[pay], tool_middleware=[log])
    story = await Story(build, crash_at=2, durable=True).run()
    assert story.attempts == 2
    assert done == ["pay", "pay 1"]
    assert story.said[-1]["content"] == "paid 1"


async def test_a_call_that_may_have_been_made() -> None:
    """An idempotent one is made again; of another one a person is asked."""
    for idempotent, questions in ((True, 0), (False, 1)):

        @tool(idempotent=idempotent)
        async def pay() -> str:
            return "paid"

        build = team(calls(("pay", "{}")), tools=[pay])
        story = await Story(build, answer=lambda question: "run", crash_at=2, durable=False).run()
        assert len(story.questions) == questions


@pytest.mark.parametrize(("amount", "questions"), [(100, 0), (101, 1), (-1, 1)])
async def test_a_person_approves_what_the_rule_says(amount: int, questions: int) -> None:
    def large(arguments: dict[str, Any]) -> bool | Approval:
        if arguments["amount"] < 0:
            raise ValueError("no amount")  # What a rule cannot judge, a person judges.
        return Approval(by="user:bob") if arguments["amount"] > 100 else False

    @tool(requires_approval=large)
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    build = team(calls(("pay", f'{{"amount": {amount}}}')), tools=[pay])
    story = await Story(build, answer=lambda question: "approve").run()
    assert [question.kind for question in story.questions] == ["approval"] * questions
    assert [question.by for question in story.questions] == (["user:bob"] if amount > 100 else [None] * questions)
    assert story.said[-1]["content"] == f"paid {amount}"


async def test_a_rule_sees_parameters_of_which_nothing_is_said() -> None:
    seen: list[Any] = []

    def rule(arguments: dict[str, Any]) -> bool:
        seen.append(arguments)
        return True

    class Whatever:
        """Take anything."""

        parameters: Any = {"properties": {"any": True, "how": {"type": "string", "default": "so"}}}
        options = ToolOptions(requires_approval=rule)

        async def call(self, arguments: dict[str, Any], run: ToolRun) -> str:
            return str(sorted(arguments.items()))

    build = team(calls(("take", '{"any": [1]}')), tools=[ClassTool(ToolIdentity("take"), Whatever())])
    story = await Story(build, answer=lambda question: "approve").run()
    assert [question.kind for question in story.questions] == ["approval"]
    assert seen[0] == {"any": [1], "how": "so"}
    assert story.said[-1]["content"] == "[('any', [1]), ('how', 'so')]"


@pytest.mark.parametrize(
    ("choice", "seen"),
    [
        ("auto", [(["add", "sub"], "auto"), ([], "none")]),
        ("required", [(["add", "sub"], "required"), ([], "none")]),
        ("sub", [(["sub"], "required"), ([], "none")]),
    ],
)
async def test_tool_choice(choice: str, seen: list[Any]) -> None:
    """The answer after the tools' results is free."""
    offered: list[Any] = []

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        offered.append(([each["name"] for each in options["tools"]], options["tool_choice"]))
        return calls(("sub", "{}"))(messages, options)

    @tool
    async def add() -> None: ...

    @tool
    async def sub() -> None: ...

    await said(rule, tools=[add, sub], tool_choice=choice)
    assert offered == seen


async def test_overrides_of_an_agent() -> None:
    def name() -> str:
        return "ann"

    @tool
    async def tell(who: Annotated[str, Depends(name)]) -> str:
        return who

    assert await said(calls(("tell", "{}")), tools=[tell], dependency_overrides={name: lambda: "bob"}) == "bob"
