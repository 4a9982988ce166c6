"""A conversation that was had elsewhere is put into a thread, and the next run continues it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat

from drsai_backend import DrSai, RunStatus
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import (
    Conflict,
    Forbidden,
    IllegalTransition,
    InvalidRequest,
    NotFound,
    OtherModel,
    RunFailed,
    ThreadBusy,
    UnknownModel,
)
from drsai_backend.runs.requests import InputMessage
from drsai_backend.runs.threads.loading import Load
from tests.support.scripted import ScriptedClient
from tests.support.threads import Make, request, settings

TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "I am Ann."},
    {"role": "assistant", "content": "Hello, Ann."},
    {"role": "user", "content": "I live in Ulm."},
    {"role": "assistant", "content": "A fine town."},
]


class Ears:
    """Teams whose agents remember what their models were sent."""

    def __init__(self) -> None:
        self.heard: list[list[tuple[str, str]]] = []

    def _answer(self, messages: Sequence[Any], _: Any) -> str:
        self.heard.append([(message.type, str(message.content)) for message in messages[1:]])
        return f"answer {len(self.heard)}"

    def ann(self) -> AssistantAgent:
        return AssistantAgent("ann", ScriptedClient(self._answer))

    def pair(self) -> RoundRobinGroupChat:
        agents = [AssistantAgent(name, ScriptedClient(self._answer)) for name in ("ann", "bob")]
        return RoundRobinGroupChat([*agents], max_turns=2)

    def asking(self) -> RoundRobinGroupChat:
        agents = [UserProxyAgent("person"), AssistantAgent("ann", ScriptedClient(self._answer))]
        return RoundRobinGroupChat([*agents], termination_condition=MaxMessageTermination(3))

    @property
    def teams(self) -> dict[str, Any]:
        return {"ann": self.ann, "pair": self.pair, "asking": self.asking}


async def texts(drsai: DrSai, thread_id: str = "t", branch: int | None = None) -> list[tuple[str, str]]:
    found = await drsai.list_messages(thread_id, limit=1000, branch=branch)
    return [(each.source, each.content) for each in found]


def as_sent(said: Sequence[dict[str, Any]]) -> list[InputMessage]:
    return [InputMessage(each["role"], each["content"]) for each in said]


@pytest.mark.parametrize("team", ["ann", "pair"])
async def test_what_was_loaded_is_heard_as_what_a_client_brings_along(make: Make, team: str) -> None:
    ears = Ears()
    drsai = await make(ears.teams)
    brought = [*as_sent(TALK), InputMessage("user", "Where do I live?")]
    handle = await drsai.engine.start(*request(team=team, thread_id="other", messages=brought))
    await handle.wait()
    asked, ears.heard = ears.heard, []
    thread = await drsai.load_history("t", TALK, model=team)
    assert (thread.status, thread.team, thread.message_count) == (RunStatus.CREATED, team, 4)
    assert (await drsai.list_threads()).items[0].title == "I am Ann."
    await drsai.run(team, "Where do I live?", thread_id="t")
    assert ears.heard == asked
    assert [said for _, said in await texts(drsai)][:4] == [each["content"] for each in TALK]
    ears.heard = []
    await drsai.run(team, "And who am I?", thread_id="t")
    assert len([said for said in ears.heard[0] if said[1] == "I live in Ulm."]) == 1, "loaded once"


async def test_another_process_loads_into_a_warm_thread(make: Make) -> None:
    """The first process has the thread's team in memory, and believes it until its first write."""
    ears = Ears()
    first, other = await make(ears.teams), await make(ears.teams)
    await first.run("ann", "Hello.", thread_id="t")
    thread = await other.load_history("t", TALK, after=2)
    assert (thread.message_count, thread.status) == (6, RunStatus.COMPLETED)
    await first.run("ann", "Where do I live?", thread_id="t")
    assert [said for _, said in ears.heard[-1]] == [
        "Hello.",
        "answer 1",
        *(each["content"] for each in TALK),
        "Where do I live?",
    ]
    assert [kind for kind, _ in ears.heard[-1]][-5:] == [
        *("UserMessage", "AssistantMessage", "UserMessage", "AssistantMessage", "UserMessage"),
    ]


async def test_a_thread_that_is_replaced_or_cleared_keeps_its_past_on_a_branch(make: Make) -> None:
    ears = Ears()
    drsai = await make(ears.teams)
    await drsai.run("ann", "Hello.", thread_id="t")
    await drsai.load_history("t", TALK[:2], model="ann", mode="replace")
    assert await texts(drsai) == [("user", "I am Ann."), ("ann", "Hello, Ann.")]
    await drsai.run("ann", "Who am I?", thread_id="t")
    assert [said for _, said in ears.heard[-1]] == ["I am Ann.", "Hello, Ann.", "Who am I?"]
    assert (await drsai.clear_history("t")).team is None
    assert await texts(drsai) == []
    await drsai.run("ann", "Do you know me?", thread_id="t")
    assert ears.heard[-1] == [("UserMessage", "Do you know me?")]
    assert await texts(drsai, branch=0) == [("user", "Hello."), ("ann", "answer 1")]
    await drsai.rewind("t", branch=0)
    await drsai.run("ann", "Again.", thread_id="t")
    assert [said for _, said in ears.heard[-1]] == ["Hello.", "answer 1", "Again."]


async def test_another_model_continues_what_was_loaded(make: Make) -> None:
    ears = Ears()
    drsai = await make(ears.teams)
    await drsai.load_history("t", TALK, model="pair")
    assert [source for source, _ in await texts(drsai)] == ["user", "ann", "user", "ann"]
    await drsai.run("asking", "Hello.", thread_id="t")
    kept = await make(ears.teams, other_model="refuse")
    await kept.load_history("u", TALK, model="pair")
    with pytest.raises(OtherModel):
        await kept.run("ann", "Hello.", thread_id="u")


async def test_a_repeated_load_is_refused(make: Make) -> None:
    drsai = await make(Ears().teams)
    await drsai.load_history("t", TALK, model="ann", after=0)
    with pytest.raises(Conflict, match="`after` is 0, and the newest message of the thread is 4") as refused:
        await drsai.load_history("t", TALK, model="ann", after=0)
    assert refused.value.param == "after"
    assert len(await texts(drsai)) == 4
    await drsai.load_history("t", TALK, mode="replace", after=4)
    await drsai.load_history("t", TALK[:2], after=8)
    assert len(await texts(drsai)) == 6


async def test_a_thread_where_something_is_under_way_takes_none(make: Make) -> None:
    drsai = await make(Ears().teams)
    await drsai.run("asking", "Ask.", thread_id="t")
    assert (await drsai.get_thread("t")).status is RunStatus.AWAITING_INPUT
    with pytest.raises(ThreadBusy, match="under way"):
        await drsai.load_history("t", TALK)
    replaced = await drsai.load_history("t", TALK, model="ann", mode="replace")
    assert (replaced.status, replaced.input_request, len(await texts(drsai))) == (RunStatus.CREATED, None, 4)


BAD: list[tuple[dict[str, Any], str, type[Exception]]] = [
    ({"messages": []}, "messages", InvalidRequest),
    ({"messages": [{"role": "user"}]}, "messages[0].content", InvalidRequest),
    ({"messages": [{"role": "judge", "content": "x"}]}, "messages[0].role", InvalidRequest),
    ({"messages": [{"role": "user", "content": " "}]}, "messages", InvalidRequest),
    ({"messages": [{"role": "user", "content": "a\0b"}]}, "messages", InvalidRequest),
    (
        {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]},
        "messages[0].tool_call_id",
        InvalidRequest,
    ),
    (
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                }
            ]
        },
        "messages[0].tool_calls",
        InvalidRequest,
    ),
    ({"messages": TALK, "model": None}, "model", InvalidRequest),
    ({"messages": TALK, "model": "nobody"}, "model", UnknownModel),
]


@pytest.mark.parametrize(("given", "param", "kind"), BAD)
async def test_what_cannot_be_loaded_changes_nothing(
    make: Make, given: dict[str, Any], param: str, kind: type[Exception]
) -> None:
    drsai = await make(Ears().teams)
    with pytest.raises(kind) as refused:
        await drsai.load_history("t", **{"model": "ann", **given})
    assert getattr(refused.value, "param", None) == param
    assert (await drsai.list_threads()).items == []


async def test_calls_and_their_results_are_for_the_agent_that_could_make_them(make: Make) -> None:
    """The others know what was said with them."""
    ears = Ears()
    drsai = await make(ears.teams)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = [
        TALK[0],
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "Ulm"},
        {"role": "assistant", "content": "You live in Ulm."},
    ]
    for thread_id, model in (("t", "ann"), ("u", "pair")):
        await drsai.load_history(thread_id, said, model=model)
        await drsai.run(model, "Sure?", thread_id=thread_id)
    alone, other, answering = ears.heard
    for heard in (alone, answering):
        kinds, texts = zip(*heard, strict=True)
        assert kinds[1:3] == ("AssistantMessage", "FunctionExecutionResultMessage")
        assert ("name='f'" in texts[1], "Ulm" in texts[2]) == (True, True)
    assert [text for _, text in other] == ["I am Ann.", "I look.", "You live in Ulm.", "Sure?"]


async def test_who_may_not_write_loads_nothing(make: Make) -> None:
    drsai = await make(Ears().teams)
    owner, reader = Principal("ann", "acme"), Principal("bob", "acme")
    stranger = Principal("ann", "other")
    name = ThreadName("acme", "ann", "t")
    await drsai.engine.load_history(owner, "t", as_sent(TALK), Load("ann"))
    await drsai.user("ann", tenant="acme").share_thread("t", with_user="bob", right="read")
    with pytest.raises(Forbidden):
        await drsai.engine.load_history(reader, name, as_sent(TALK), Load("ann"))
    with pytest.raises(NotFound):
        await drsai.engine.load_history(stranger, name, as_sent(TALK), Load("ann"))
    await drsai.user("ann", tenant="acme").share_thread("t", with_user="bob", right="write")
    await drsai.engine.load_history(reader, name, as_sent(TALK[:1]), Load())
    [*_, last] = await drsai.engine.list_messages(owner, "t", after=0, limit=10)
    assert last.message["metadata"]["user_id"] == "bob"
    with pytest.raises(NotFound):
        await drsai.engine.load_history(reader, ThreadName("acme", "ann", "gone"), as_sent(TALK), Load("ann"))


def test_the_synchronous_twin(database_url: str) -> None:
    ears = Ears()
    with DrSai(ears.teams, database_url, settings=settings()).sync as sync:
        sync.load_history("t", TALK, model="ann")
        sync.run("ann", "Where do I live?", thread_id="t")
        assert sync.clear_history("t").team is None
        assert sync.list_messages("t") == []
    assert len(ears.heard[0]) == 5


async def test_a_run_that_failed_before_is_not_retried(make: Make) -> None:
    """Its agents would hear nothing of what was loaded."""
    failing = True

    def answer(messages: Sequence[Any], _: Any) -> str:
        if failing:
            raise RuntimeError("no")
        return f"{len(messages)} messages"

    drsai = await make({"ann": lambda: AssistantAgent("ann", ScriptedClient(answer))})
    with pytest.raises(RunFailed):
        await drsai.run("ann", "Hello.", thread_id="t")
    await drsai.load_history("t", TALK)
    failing = False
    with pytest.raises(IllegalTransition, match="nothing to retry"):
        await drsai.retry("t")
    # The system message, two of before, what was loaded, and this one.
    assert (await drsai.run("ann", "And?", thread_id="t")).text == "7 messages"
