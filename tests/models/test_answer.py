"""A model call and its answer: a whole answer is a stream of one item, and closed like one."""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_core.models import CreateResult, RequestUsage, UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.errors import EndpointFailed
from drsai_backend.models import RunModelClient, UsageMeter
from drsai_backend.models.answer import Items, ModelCall, asked, result_of
from drsai_backend.models.text_calls.wording import TextForm
from tests.support.scripted import ScriptedClient

HELLO = [UserMessage(content="Hello", source="user")]
ADD: Any = {"name": "add", "description": "", "parameters": {"type": "object", "properties": {}}}
MARKS = ["<think>", "</think>"]
STEPS = ["\n", "Thought: ", "Action: add\n", "Action Input: {}\n", "Final Answer: ", "7", " é ", "{"]


def written(parts: list[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(parts), max_size=12).map("".join)


# Steps in the order in which models write them: of others, a stream may have told as thought what the whole text shows
# to be none.
stepwise = st.tuples(
    st.sampled_from(["", "\n"]),
    st.sampled_from(["", "Thought: é\n", "Thought: 7\n"]),
    st.sampled_from(["", "7", "Action: add\nAction Input: {}\n", "Action: add\nAction Input: {", "Final Answer: é 7"]),
).map("".join)
said = st.tuples(st.none(), written(MARKS + STEPS)) | st.tuples(st.sampled_from(["text", "json"]), stepwise)


async def told(client: RunModelClient, streams: bool) -> tuple[Any, ...]:
    """What is told of a call: its result, without the ids of calls, and what it has used."""
    try:
        items = [item async for item in client.items(ModelCall(HELLO, {"tools": [ADD]}, streams))]
    except EndpointFailed as error:
        return (str(error),)
    result = items[-1]
    assert isinstance(result, CreateResult)
    assert streams or len(items) == 1
    content = [each if isinstance(each, str) else (each.name, each.arguments) for each in result.content]
    return content, result.thought, result.finish_reason, result.usage, client.meter.as_dict()


@given(said, st.integers(1, 9))
def test_a_streamed_answer_has_the_result_of_a_whole_one(said: tuple[TextForm | None, str], piece: int) -> None:
    form, text = said

    async def both() -> list[tuple[Any, ...]]:
        found = []
        for streams in (False, True):
            client = RunModelClient(ScriptedClient(lambda *_: text, piece=piece), meter=UsageMeter())
            found.append(await told(client if form is None else client.calling_in_text(form), streams))
        return found

    whole, streamed = asyncio.run(both())
    assert whole == streamed


async def test_a_client_makes_the_call_that_it_is_asked_for() -> None:
    client = ReplayChatCompletionClient(["one", "two words"])
    whole = [item async for item in asked(client, ModelCall(HELLO, {}, streams=False))]
    assert [isinstance(item, CreateResult) and item.content for item in whole] == ["one"]
    assert [item async for item in asked(client, ModelCall(HELLO, {}, streams=True))][:-1] == ["two ", "words"]


async def test_an_answer_is_closed_with_its_result() -> None:
    closed = False

    async def items() -> Items:
        nonlocal closed
        try:
            yield "a"
            usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
            yield CreateResult(content="a", finish_reason="stop", usage=usage, cached=False)
            yield "more"
        finally:
            closed = True

    assert (await result_of(items())).content == "a"
    assert closed
