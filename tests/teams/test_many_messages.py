"""The messages of a long thread are made at once: they are what each is by itself, and cost no look for garbage."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any, Literal, Self

import pytest
from autogen_agentchat.messages import (
    BaseChatMessage,
    HandoffMessage,
    MessageFactory,
    MultiModalMessage,
    StopMessage,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    ToolCallSummaryMessage,
)
from autogen_core import FunctionCall
from autogen_core.models import AssistantMessage, FunctionExecutionResult, RequestUsage, UserMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend.errors import DamagedState
from drsai_backend.models.images import EncodedImage
from drsai_backend.state.codec import dump_json, load_json
from drsai_backend.teams.messages import TeamMessages, UserInputReceivedEvent, create_message, dump_of
from drsai_backend.teams.recording.cells import ListCell, MessageObjects

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Shouted(TextMessage):
    """Is made in a way of its own."""

    type: Literal["Shouted"] = "Shouted"  # pyright: ignore[reportIncompatibleVariableOverride]

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Self:
        return cls.model_validate({**data, "content": str(data["content"]).upper()})


texts = st.text(max_size=20)
common = {
    "source": st.sampled_from(["ada", "user"]),
    "models_usage": st.none() | st.builds(RequestUsage, prompt_tokens=st.integers(0, 9), completion_tokens=st.just(1)),
    "metadata": st.dictionaries(texts, texts, max_size=2),
}
calls = st.lists(st.builds(FunctionCall, id=texts, name=texts, arguments=texts), max_size=2)
results = st.lists(
    st.builds(FunctionExecutionResult, content=texts, name=texts, call_id=texts, is_error=st.booleans()), max_size=2
)
of_texts = [TextMessage, StopMessage, ThoughtEvent, Shouted]
messages = st.one_of(
    *(st.builds(kind, content=texts, **common) for kind in of_texts),
    st.builds(MultiModalMessage, content=st.lists(texts | st.just(EncodedImage(PIXEL)), max_size=2), **common),
    st.builds(
        HandoffMessage, content=texts, target=texts, context=st.just([UserMessage(content="x", source="y")]), **common
    ),
    st.builds(ToolCallRequestEvent, content=calls, **common),
    st.builds(ToolCallExecutionEvent, content=results, **common),
    st.builds(ToolCallSummaryMessage, content=texts, tool_calls=calls, results=results, **common),
    st.builds(UserInputReceivedEvent, content=texts, decision=texts, input_request=st.just({"a": 1})),
)
factories = [TeamMessages({"Shouted": Shouted}), TeamMessages(), MessageFactory()]


def dumps(made: list[Any]) -> dict[int, Any]:
    return {seq: load_json(dump_json(dump_of(each))) for seq, each in enumerate(made, 1)}


@settings(max_examples=150, deadline=None)
@given(st.lists(messages, max_size=6), st.sampled_from(factories[:2]))
def test_each_is_what_it_is_by_itself(made: list[Any], factory: MessageFactory) -> None:
    configs = dumps(made)
    objects = MessageObjects(configs)
    found = objects.messages([*configs, *configs], factory)
    for each, (seq, config) in zip(found, configs.items(), strict=False):
        alone = create_message(factory, config, seq)
        assert type(each) is type(alone)
        assert each.model_fields_set == alone.model_fields_set
        assert dump_of(each) == dump_of(alone)
        assert [type(part) for part in getattr(each, "content", "")] == [
            type(part) for part in getattr(alone, "content", "")
        ]
    assert all(each is again for each, again in zip(found, found[len(configs) :], strict=False)), "one object a number"


@given(texts, st.none() | texts)
def test_context_messages_are_those_of_their_constructors(content: str, thought: str | None) -> None:
    objects = MessageObjects(dumps([TextMessage(content=content, source="ada")]))
    objects.messages([1], factories[0])
    user, answer, thinking = map(objects.context_message, (["u", 1], ["a", 1], ["a", 1, thought]))
    for found, wanted in (
        (user, UserMessage(content=content, source="ada")),
        (answer, AssistantMessage(content=content, source="ada", thought=None)),
        (thinking, AssistantMessage(content=content, source="ada", thought=thought)),
    ):
        assert found == wanted
        assert found.model_fields_set == wanted.model_fields_set


@pytest.mark.parametrize("factory", factories, ids=["ours", "plain", "AutoGen's"])
def test_the_one_that_does_not_fit_is_named(factory: MessageFactory) -> None:
    configs = dumps([TextMessage(content="a", source="ada"), TextMessage(content="b", source="ada")])
    configs[2]["source"] = 7
    with pytest.raises(DamagedState, match=r"message 2, of type TextMessage, does not fit any more: .*source"):
        MessageObjects(configs).messages([1, 2], factory)
    with pytest.raises(KeyError):
        MessageObjects(configs).messages([3], factory)


class Owner:
    """Has the list that a cell fills."""

    thread: list[BaseChatMessage]


def test_nothing_looks_for_garbage_meanwhile() -> None:
    configs = dumps([TextMessage(content=f"{number}", source="ada") for number in range(5_000)])
    owner, seen = Owner(), list[str]()

    def told(phase: str, _: dict[str, int]) -> None:
        seen.append(phase)

    assert gc.isenabled()
    cell = ListCell(("thread",), owner, "thread", factories[0])
    gc.callbacks.append(told)
    try:
        cell.restore([*configs], MessageObjects(configs))
        during = len(seen)
    finally:
        gc.callbacks.remove(told)
    assert len(owner.thread) == 5_000
    assert during <= 4  # Each time has a start and a stop. It was dozens.
    assert gc.isenabled()
    with pytest.raises(KeyError):
        cell.restore([9_999], MessageObjects(configs))
    assert gc.isenabled()
