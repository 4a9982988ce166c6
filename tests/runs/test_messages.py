"""Messages of every class: what agents answer with, what teams are given, stored, loaded, replayed and listed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    MultiModalMessage,
    StructuredMessage,
    StructuredMessageFactory,
    TextMessage,
)
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken, Component, FunctionCall, Image
from autogen_core.models import UserMessage
from pydantic import BaseModel

from drsai_backend import DrSai, RunStatus, Thread
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import AutoGenMessage
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import InvalidRequest
from drsai_backend.runs import Ask, InputMessage
from drsai_backend.runs.messages import title_of
from drsai_backend.runs.start.build import refuse_unseen_images
from drsai_backend.runs.start.plan import fingerprint
from drsai_backend.teams.messages import UnknownEvent, UnknownMessage, dump_of, read_message
from tests.recordings import recording
from tests.support.asks import asks
from tests.support.running import comparable
from tests.support.scripted import Answer, ScriptedClient, user_count
from tests.support.threads import Make


class Verdict(BaseModel):
    sound: bool
    reason: str


class Text(str):
    """A text that nobody may go through letter by letter."""

    def __iter__(self) -> Any:
        raise AssertionError("it may be long")


class Progress(BaseAgentEvent):
    """Declares no `type`, as nothing asks for it."""

    done: int

    def to_text(self) -> str:
        return f"{self.done} %"


class Walker(BaseChatAgent):
    """Shows an event of its own class before it answers, and in its second answer says what the first one was."""

    def __init__(self) -> None:
        super().__init__("walker", "walks")

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        raise NotImplementedError

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        yield Progress(source=self.name, done=50)
        yield Response(chat_message=TextMessage(content=f"walked after {messages[-1].content}", source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None: ...


def judge(name: str = "judge", **values: Any) -> AssistantAgent:
    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return Verdict(sound=True, reason=f"{user_count(messages)} asked").model_dump_json()

    return AssistantAgent(name, ScriptedClient(rule), output_content_type=Verdict, **values)


def caller() -> AssistantAgent:
    """Asks the judge, who is a tool."""

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        if type(messages[-1]).__name__ == "UserMessage":
            return [FunctionCall(id=f"c{len(messages)}", name="judge", arguments='{"task": "Judge."}')]
        return f"The judge says {messages[-1].content[0].content}"

    return AssistantAgent("caller", ScriptedClient(rule), tools=[AgentTool(judge())], reflect_on_tool_use=True)


FROM_CONFIG: dict[str, Any] = {
    "provider": "autogen_agentchat.agents.AssistantAgent",
    "config": {
        "name": "judge",
        "model_client": {"provider": "tests.runs.test_messages.JudgeClient", "config": {}},
        "structured_message_factory": StructuredMessageFactory(input_model=Verdict).dump_component().model_dump(),
    },
}


class JudgeConfig(BaseModel):
    """Nothing to be set."""


class JudgeClient(ScriptedClient, Component[JudgeConfig]):
    """What a component config can name."""

    component_type = "model"
    component_config_schema = JudgeConfig
    component_provider_override = "tests.runs.test_messages.JudgeClient"

    def __init__(self) -> None:
        super().__init__(lambda messages, options: '{"sound": true, "reason": "so it is"}')

    @classmethod
    def _from_config(cls, config: Any) -> JudgeClient:
        return cls()


TEAMS: dict[str, Any] = {
    "lone": lambda: judge(),
    "config": FROM_CONFIG,
    "tool": caller,
    "walker": Walker,
    "pair": lambda: RoundRobinGroupChat([judge("one"), judge("two")], max_turns=2),
    "nested": lambda: RoundRobinGroupChat(
        [RoundRobinGroupChat([judge("one")], max_turns=1, name="inner"), judge("two")], max_turns=2
    ),
}


async def configs(drsai: DrSai) -> list[dict[str, Any]]:
    rows = await drsai.db.get(AutoGenMessage)
    return [row.config for row in sorted(rows, key=lambda row: row.seq or 0)]


@pytest.mark.parametrize("team", TEAMS)
async def test_messages_of_every_class_are_stored_loaded_and_read(make: Make, team: str) -> None:
    first = await make({team: TEAMS[team]})
    said = await first.run(team, "One.", thread_id="t")
    second = await make({team: TEAMS[team]}, warm_threads=0)  # all of its state comes from the database
    again = await second.run(team, "Two.", thread_id="t")
    stored = await configs(second)
    assert stored == [*said.task_result["messages"], *again.task_result["messages"]]
    for config in stored:
        message = read_message(config)
        assert not isinstance(message, UnknownMessage | UnknownEvent)
        assert dump_of(message) == config
    listed = await second.engine.list_messages(Principal(), "t", after=0, limit=100)
    assert [each.message for each in listed] == stored
    assert not any(each.content.startswith("{'") for each in listed)


@pytest.mark.parametrize("team", ["lone", "config", "pair", "nested"])
async def test_a_structured_answer_is_text_and_object(make: Make, team: str) -> None:
    drsai = await make({team: TEAMS[team]})
    result = await drsai.run(team, "Is it sound?", thread_id="t")
    assert result.output is not None
    assert result.text == result.output.model_dump_json()
    assert result.output.model_dump()["sound"] is True
    if team != "config":  # which makes the class from its schema
        assert isinstance(result.output, Verdict)
    [thread] = await drsai.db.get(Thread)
    assert thread.messages[-1]["content"] == result.output.model_dump()


async def test_text_is_no_question_of_the_users_and_has_no_object(make: Make) -> None:
    drsai = await make({"walker": Walker})
    result = await drsai.run("walker", "x")
    assert (result.text, result.output) == ("walked after x", None)


async def test_a_format_string_says_how_an_answer_reads(make: Make) -> None:
    drsai = await make({"judge": lambda: judge(output_content_type_format="{sound}: {reason}")})
    result = await drsai.run("judge", "x", thread_id="t")
    assert result.text == "True: 1 asked"
    assert isinstance(result.output, Verdict)
    [_, answer] = await drsai.engine.list_messages(Principal(), "t", after=0, limit=10)
    assert answer.content == "True: 1 asked"


@pytest.mark.parametrize("team", TEAMS)
async def test_a_repeated_request_is_told_all_messages(make: Make, team: str) -> None:
    request = asks(team, [InputMessage("user", "x")], thread_id="t", key="k")
    first = await (await make({team: TEAMS[team]})).engine.start(*request)
    await first.wait()
    second = await (await make({team: TEAMS[team]})).engine.start(*request)
    await second.wait()
    assert [dump_of(done.message) for done in second.transcript()] == [
        dump_of(done.message) for done in first.transcript()
    ]
    assert [type(done.message).__name__ for done in second.transcript()] == [
        type(done.message).__name__ for done in first.transcript()
    ]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"type": "StructuredMessage[Gone]", "content": {"a": [1], "b": "é"}}, '{"a":[1],"b":"é"}'),
        ({"type": "StructuredMessage[Gone]", "content": {"a": 1}, "format_string": "a is {a}"}, "a is 1"),
        ({"type": "GoneEvent", "content": "half", "step": 3}, "half"),
        ({"type": "Gone"}, ""),
    ],
)
def test_a_message_whose_class_is_gone_keeps_everything(config: dict[str, Any], text: str) -> None:
    config = {"source": "a", "id": "1", "metadata": {}, **config}
    message = read_message(config)
    assert dict(message.dump()) == config
    assert message.to_text() == text
    assert isinstance(message, UnknownEvent) is config["type"].endswith("Event")


def test_what_is_no_dump_can_be_read_all_the_same() -> None:
    for config in ({}, {"type": "TextMessage"}, {"type": 3, "source": None, "created_at": "never"}):
        assert read_message(config).to_text() == ""


def test_of_two_classes_of_one_name_the_one_that_loses_nothing_is_taken() -> None:
    class Verdict(BaseModel):
        sound: bool

    local, whole = StructuredMessage[Verdict], read_message
    config = dump_of(
        judge()._structured_message_factory.StructuredMessage(  # type: ignore[union-attr]
            source="a", content=globals()["Verdict"](sound=True, reason="r")
        )
    )
    assert not isinstance(whole(config), local)
    short = dump_of(local(source="a", content=Verdict(sound=False)))
    assert isinstance(read_message(short), local)


# --- what a team is given -------------------------------------------------------------------------------------------


class Order(BaseChatMessage):
    """A chat message of one's own."""

    dish: str

    def to_text(self) -> str:
        return self.dish

    def to_model_text(self) -> str:
        return self.dish

    def to_model_message(self) -> UserMessage:
        return UserMessage(content=f"order: {self.dish}", source=self.source)


PIXEL = Image.from_base64(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def tasks() -> dict[str, list[BaseChatMessage]]:
    """Fresh messages of every type, alone and in sequence."""
    boss = TextMessage(content="Hurry.", source="boss", metadata={"urgent": "yes"}, id="m1")
    return {
        "boss": [boss],
        "handoff": [HandoffMessage(content="Yours.", source="user", target="two")],
        "picture": [MultiModalMessage(content=["See:", PIXEL], source="boss", metadata={"a": "b"})],
        "structured": [StructuredMessage[Verdict](content=Verdict(sound=False, reason="r"), source="boss")],
        "own": [Order(dish="soup", source="guest")],
        "several": [
            TextMessage(content="Same.", source="user"),
            TextMessage(content="Same.", source="user"),
            TextMessage(content="Hurry.", source="boss"),
        ],
    }


def member(name: str) -> AssistantAgent:
    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        heard = [
            f"{each.source}: {each.content if isinstance(each.content, str) else _kind(each.content[-1])}"
            for each in messages[1:]
        ]
        return f"{name} heard {heard}"

    return AssistantAgent(name, ScriptedClient(rule, vision=True), handoffs=["user"], description=name)


OWN: list[Any] = [Order, StructuredMessage[Verdict]]
KINDS: dict[str, Any] = {
    "lone": lambda: member("one"),
    "round robin": lambda: RoundRobinGroupChat([member("one"), member("two")], max_turns=2, custom_message_types=OWN),
    "swarm": lambda: Swarm([member("one"), member("two")], max_turns=2, custom_message_types=OWN),
    "selector": lambda: SelectorGroupChat(
        [member("one"), member("two")],
        ScriptedClient(lambda messages, options: "two" if "boss" in str(messages) else "one"),
        max_turns=2,
        allow_repeated_speaker=True,
        custom_message_types=OWN,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", tasks())
async def test_a_team_is_given_messages_as_they_are(make: Make, kind: str, task: str) -> None:
    """What stock AutoGen says to the same messages, twice."""
    stock = KINDS[kind]()
    for _ in range(2):
        given = tasks()[task]
        expected = [comparable(dump_of(message)) for message in (await stock.run(task=given)).messages]
        drsai = await make({"crew": KINDS[kind]}, warm_threads=0)
        result = await drsai.run("crew", given[0] if len(given) == 1 else given, thread_id="t")
        assert [comparable(config) for config in result.task_result["messages"]] == expected
        assert result.task_result["messages"][: len(given)] == [dump_of(message) for message in given]


async def test_queued_and_steered_messages_are_the_same(make: Make) -> None:
    gate = Gate()

    def crew() -> Any:
        return RoundRobinGroupChat([gate.agent("one"), gate.agent("two")], max_turns=2, custom_message_types=OWN)

    drsai = await make({"crew": crew})
    first = await drsai.start("crew", "x", thread_id="t")
    await gate.asked.wait()
    queued = await drsai.start("crew", tasks()["several"], thread_id="t")
    waiting = await drsai.start("crew", tasks()["own"], thread_id="t", background=True)
    steered = await drsai.start("crew", tasks()["boss"], thread_id="t", on_busy="steer")
    gate.open.set()
    for handle in (first, steered, queued, waiting):
        assert (await handle.wait()).status is RunStatus.COMPLETED
    stored = [config for config in await configs(drsai) if config["source"] not in ("one", "two")]
    given = [dump_of(message) for name in ("boss", "several", "own") for message in tasks()[name]]
    assert [comparable(config) for config in stored[1:]] == [comparable(config) for config in given]
    assert stored[1]["id"] == "m1"


class Gate:
    """Lets agents answer when it is open."""

    def __init__(self) -> None:
        self.asked, self.open = asyncio.Event(), asyncio.Event()

    def agent(self, name: str) -> AssistantAgent:
        client = ScriptedClient(lambda messages, options: name)
        create = client.create

        async def gated(*args: Any, **kwargs: Any) -> Any:
            self.asked.set()
            await self.open.wait()
            return await create(*args, **kwargs)

        client.create = gated
        return AssistantAgent(name, client)


@pytest.mark.parametrize("on_busy", ["enqueue", "steer"])
async def test_a_message_that_the_team_does_not_take_is_refused(make: Make, on_busy: Any) -> None:
    gate = Gate()
    drsai = await make({"crew": lambda: RoundRobinGroupChat([gate.agent("one")], max_turns=1)})
    with pytest.raises(InvalidRequest, match=r"no messages of type Order.*custom_message_types"):
        await drsai.run("crew", tasks()["own"][0], thread_id="t")
    assert await drsai.db.get(Thread) == []
    first = await drsai.start("crew", "x", thread_id="t")
    await gate.asked.wait()
    with pytest.raises(InvalidRequest, match="Order"):
        await drsai.run("crew", tasks()["own"][0], thread_id="t", on_busy=on_busy)
    gate.open.set()
    assert (await first.wait()).status is RunStatus.COMPLETED
    for task in ([], ["text"], [Progress(source="a", done=1)]):
        with pytest.raises(InvalidRequest):
            await drsai.run("crew", task)  # type: ignore[arg-type]


def _kind(part: object) -> str:
    return "Image" if isinstance(part, Image) else type(part).__name__


def test_texts_are_not_looked_through_for_images() -> None:
    messages = [InputMessage("user", Text("Hello."))]
    refuse_unseen_images(RoundRobinGroupChat([AssistantAgent("ada", ScriptedClient([]))]), messages)
    assert fingerprint(Ask("pair", messages), ThreadName("default", "ada", "t"))


QUESTION = "How high is\nthe lighthouse?"
LOBECHAT = "<!-- SYSTEM CONTEXT (NOT PART OF USER QUERY) -->\nfiles\n<!-- END SYSTEM CONTEXT -->"


@pytest.mark.parametrize(
    "sent",
    [
        f"### Task:\nRespond to the user query.\n<context>\n<source>42 </context> m</source>\n</context>\n\n{QUESTION}",
        f"### Task:\nRespond.\n<context>42</context>\n<user_query>{QUESTION}</user_query>",
        f'<attached_files>\n<file name="a.txt"/>\n</attached_files>\n\n{QUESTION}',
        f"### Task:\nRespond.\n<context>4</context>\n<attached_files>\n</attached_files>\n\n{QUESTION}",
        "Use the following context as your learned knowledge, inside <context></context> XML tags.\n<context>\n42\n"
        f"</context>\n\nGiven the context information, answer the query.\nQuery: {QUESTION}",
        "Please answer the question based on the reference materials\n\n## Citation Rules:\n- Cite.\n\n"
        f"## My question is:\n\n{QUESTION}\n\n## Reference Materials:\n\n42\n\nPlease respond in it.\n",
        f"{QUESTION}\n\n{LOBECHAT}",
        QUESTION,
    ],
)
def test_a_title_is_the_users_words_not_what_a_window_has_found(sent: str) -> None:
    assert title_of([InputMessage("system", "s"), InputMessage("user", sent)]) == "How high is the lighthouse?"


@pytest.mark.parametrize(
    ("sent", "title"),
    [
        ("### Task:\nWrite a poem.", "### Task: Write a poem."),
        ("<attached_files>\n</attached_files>\n", "<attached_files> </attached_files>"),
        ("Use the following context as your learned knowledge: it is late.",) * 2,
        ("Tell me of ## My question is: and ## Reference Materials:",) * 2,
        (LOBECHAT, " ".join(LOBECHAT.split())[:79] + "…"),
        ("", ""),
    ],
)
def test_a_title_is_never_lost_to_that(sent: str, title: str) -> None:
    assert title_of([InputMessage("user", sent)]) == title


async def test_a_thread_with_retrieval_has_the_question_as_its_title(make: Make) -> None:
    drsai = await make({"crew": lambda: AssistantAgent("ann", ScriptedClient(lambda *_: "42"))})
    [*_, question] = next(
        exchange.body["messages"]
        for exchange in recording("openwebui/legacy_tools").exchanges
        if exchange.kind == "chat"
    )
    await drsai.run("crew", question["content"], thread_id="t")
    assert (await drsai.engine.get_thread(Principal(), "t")).title == "What is twice 21?"
