"""An agent, a group chat or a tool asks a person and continues with the answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, SocietyOfMindAgent, UserProxyAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import BaseGroupChat, DiGraphBuilder, GraphFlow, RoundRobinGroupChat
from autogen_core import FunctionCall

from drsai_backend.agents import DrSaiAgentMixin
from drsai_backend.errors import ConfigurationError, InvalidRequest
from drsai_backend.teams.group_chats import RoundRobinGroupChat as DrSaiRoundRobin
from drsai_backend.teams.suspension import InputRequired
from tests.support.repeated import Story
from tests.support.scripted import Answer, ScriptedClient, counting
from tests.support.teams.working import Files

pytestmark = pytest.mark.usefixtures("spotless")


class Asker(DrSaiAgentMixin, BaseChatAgent):
    produced_message_types = (TextMessage,)

    def __init__(self, name: str, *questions: str, **options: Any) -> None:
        super().__init__(name, "asks")
        self.questions = questions
        self.options = options

    async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
        answers = [await self.request_input(question, **self.options) for question in self.questions]
        return Response(chat_message=TextMessage(source=self.name, content=" ".join(answers)))

    async def on_reset(self, cancellation_token: Any) -> None:
        pass


async def test_an_agent_asks() -> None:
    def build() -> BaseGroupChat:
        return RoundRobinGroupChat([Asker("ann", "One?", "Two?"), Asker("bob", "Three?")], max_turns=2)

    story = await Story(build, answer=lambda question: f"[{question.prompt}]").run()
    assert [(each.source, each.prompt, each.kind) for each in story.questions] == [
        ("ann", "One?", "agent"),
        ("ann", "Two?", "agent"),
        ("bob", "Three?", "agent"),
    ]
    assert [message["content"] for message in story.said[1:]] == ["[One?] [Two?]", "[Three?]"]


async def test_an_agent_asks_with_choices() -> None:
    def build() -> BaseGroupChat:
        return RoundRobinGroupChat([Asker("ann", "Which?", choices=["Red", "Blue"])], max_turns=1)

    story = await Story(build, answer=lambda question: " blue ").run()
    assert story.questions[0].choices == ["Red", "Blue"]
    assert story.said[-1]["content"] == "Blue"
    with pytest.raises(InvalidRequest, match="'Red', 'Blue'"):
        await Story(build, answer=lambda question: "green").run()


async def test_a_group_chat_asks() -> None:
    class Careful(DrSaiRoundRobin):
        async def run_stream(self, **kwargs: Any) -> Any:
            answer = await self.request_input("Really?")
            async for item in super().run_stream(**kwargs):
                yield item
            yield TextMessage(source="user", content=answer)

    def build() -> BaseGroupChat:
        inner = Careful([AssistantAgent("ann", ScriptedClient(counting("ann")))], name="inner", max_turns=1)
        return RoundRobinGroupChat([inner], max_turns=1)

    with pytest.raises(InputRequired, match="inner asks: Really"):
        await Story(build).run()


async def test_nobody_to_be_asked() -> None:
    with pytest.raises(ConfigurationError, match="request_input"):
        await Asker("ann", "?").on_messages([], None)


async def test_a_tool_that_asks_is_called_again_with_the_answer_and_not_without() -> None:
    """A crash of its second call leaves it in doubt again."""
    called: list[str] = []

    def build() -> BaseGroupChat:
        async def book(path: str) -> str:
            """Books a flight."""
            called.append("asks")
            answer = await asker.request_input("When?")
            called.append(f"books {answer}")
            return f"booked {answer}"

        asker = Asker("asker")
        files = Files()
        ann = files.agent("book", tools=[book])
        return RoundRobinGroupChat([ann, asker], max_turns=1)

    def answer(question: InputRequired) -> str:
        return "tomorrow" if question.kind == "agent" else "run"

    story = await Story(build, answer=answer).run()
    assert called == ["asks", "asks", "books tomorrow"]
    assert [question.kind for question in story.questions] == ["agent"]
    assert story.said[-1]["content"] == "booked tomorrow (False)"

    called.clear()
    story = await Story(build, answer=answer, crash_at=story.writes).run()  # its result is lost
    assert [question.kind for question in story.questions] == ["agent", "tool_retry"]
    assert called == ["asks", "asks", "books tomorrow", "asks", "books tomorrow"]


async def test_an_answer_to_the_question_of_one_tool_call_is_none_to_that_of_another() -> None:
    """The first call has a result, and asks nothing when the turn is repeated."""

    def build() -> BaseGroupChat:
        async def ask(path: str) -> str:
            """Asks."""
            return await asker.request_input(f"{path}?")

        def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
            results = [each.content[0].content for each in messages if each.type == "FunctionExecutionResultMessage"]
            if len(results) == 2:
                return " and ".join(results)
            return [FunctionCall(f"c{len(results)}", json.dumps({"path": "ab"[len(results)]}), "ask")]

        asker = Asker("asker")
        ann = AssistantAgent("ann", ScriptedClient(rule), tools=[ask], max_tool_iterations=3)
        return RoundRobinGroupChat([ann, asker], max_turns=1)

    story = await Story(build, answer=lambda question: f"[{question.prompt}]").run()
    assert [question.prompt for question in story.questions] == ["a?", "b?"]
    assert story.said[-1]["content"] == "[a?] and [b?]"


@pytest.mark.parametrize("human", [False, True])
async def test_agents_of_one_name_beside_each_other_get_their_own_answers(human: bool) -> None:
    def build() -> BaseGroupChat:
        builder = DiGraphBuilder()
        minds: list[Any] = [_mind("slow", human, delay=0.05), _mind("fast", human)]
        for mind in minds:
            builder.add_node(mind)
        return GraphFlow(minds, graph=builder.build())

    story = await Story(build, answer=lambda question: f"for {question.place}").run()
    assert {question.place for question in story.questions} == {"slow/boss@1", "fast/boss@1"}
    for mind in ("slow", "fast"):
        said = next(each["content"] for each in story.said if each["source"] == mind)
        assert f"for {mind}/boss@1" in said


def _mind(name: str, human: bool, delay: float = 0) -> SocietyOfMindAgent:
    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return str([each.content for each in messages])

    boss = UserProxyAgent("boss") if human else Asker("boss", "Yes?")
    clerk = AssistantAgent("clerk", ScriptedClient(counting("clerk"), delay=delay))
    return SocietyOfMindAgent(name, RoundRobinGroupChat([clerk, boss], max_turns=2), ScriptedClient(rule))


async def test_answers_without_a_place_of_releases_before_are_taken_in_their_order() -> None:
    def build() -> BaseGroupChat:
        return RoundRobinGroupChat([Asker("ann", "One?", "Two?", "Three?")], max_turns=1)

    story = Story(build, answer=lambda question: f"[{question.prompt}]")
    for _ in range(2):
        assert not await story.attempt()
        del story.answers[-1]["place"]
    await story.run()
    assert [question.prompt for question in story.questions] == ["One?", "Two?", "Three?"]
    assert story.said[-1]["content"] == "[One?] [Two?] [Three?]"
