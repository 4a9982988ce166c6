"""Messages for strict endpoints: how they are made to fit, and how it is known that they must."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from autogen_core import FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.models.openai._openai_client import to_oai_type
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError
from drsai_backend.models import RunModelClient
from drsai_backend.models.endpoints.message_rules import (
    ALTERNATING,
    ANY,
    NO_SYSTEM,
    MessageRules,
    Rules,
    conform,
    with_prompt,
)
from tests.models.conftest import MakeFactory
from tests.support.model_server import Failure, ModelServer
from tests.support.strict_endpoint import refusal_of
from tests.support.teams.foreign import tiny_image

WORDS = st.text("abc \n", max_size=6)
CONTENT = st.one_of(WORDS, st.lists(st.one_of(WORDS, st.just(tiny_image())), max_size=3))


@st.composite
def asked(draw: st.DrawFn) -> list[LLMMessage]:
    """What an agent may ask: calls of tools have their results, all else is in any order."""
    messages: list[LLMMessage] = []
    for number in range(draw(st.integers(1, 7))):
        match draw(st.integers(0, 4)):
            case 0:
                messages.append(SystemMessage(content=draw(WORDS)))
            case 1 | 2:
                source = draw(st.sampled_from(["user", "ann", "bob"]))
                messages.append(UserMessage(content=draw(CONTENT), source=source))
            case 3:
                messages.append(AssistantMessage(content=draw(WORDS), source="me"))
            case _:
                calls = [
                    FunctionCall(id=f"{number}.{n}", name="f", arguments="{}") for n in range(draw(st.integers(1, 2)))
                ]
                thought = draw(st.one_of(st.none(), WORDS))
                results = [
                    FunctionExecutionResult(content=f"r{call.id}", name="f", call_id=call.id, is_error=False)
                    for call in calls
                ]
                messages.append(AssistantMessage(content=calls, thought=thought, source="me"))
                messages.append(FunctionExecutionResultMessage(content=results))
    return messages


def body_of(messages: Any) -> dict[str, Any]:
    """The request as AutoGen would send it."""
    sent = [part for each in messages for part in to_oai_type(each, include_name_in_message=False)]
    return {"model": "m", "messages": json.loads(json.dumps(sent, default=str))}


def texts_of(messages: Any) -> list[str]:
    """The words of the conversation, in order."""
    words: list[str] = []
    for each in messages:
        if isinstance(each, FunctionExecutionResultMessage):
            words += [result.content for result in each.content]
        elif isinstance(each, AssistantMessage) and each.thought:
            words += each.thought.split()
        parts: Any = each.content if isinstance(each.content, list) else [each.content]
        words += [word for part in parts if isinstance(part, str) for word in part.split()]
    return words


@given(asked())
def test_a_strict_endpoint_takes_what_is_conformed(messages: list[LLMMessage]):
    said = [each for each in messages if not isinstance(each, SystemMessage)]
    pictures = pictures_in(messages)
    for rules in (ALTERNATING, NO_SYSTEM):
        fitted = conform(messages, rules)
        if not texts_of(messages) and not pictures:
            assert fitted is messages, "nothing is said"
            continue
        assert refusal_of(body_of(fitted)) is None
        assert rules.system or not any(isinstance(each, SystemMessage) for each in fitted)
        left = iter(texts_of(fitted))
        assert all(word in left for word in texts_of(said)), "every word of the conversation is kept, in order"
        assert set(texts_of(messages)) <= set(texts_of(fitted))
        assert pictures_in(fitted) == pictures


def pictures_in(messages: Any) -> int:
    return sum(isinstance(part, Image) for each in messages for part in each.content)


@given(asked())
def test_a_lenient_endpoint_gets_what_it_got(messages: list[LLMMessage]):
    assert conform(messages, ANY) is messages


def test_speakers_are_named_where_names_are_not_taken():
    messages = [
        SystemMessage(content="one"),
        SystemMessage(content="two"),
        UserMessage(content="Write.", source="user"),
        UserMessage(content="Draft.", source="writer"),
        AssistantMessage(content="Hm.", source="reviewer"),
        UserMessage(content="Better.", source="writer"),
    ]
    fitted = conform(messages, ALTERNATING)
    assert [(type(each).__name__, each.content) for each in fitted] == [
        ("SystemMessage", "one\n\ntwo"),
        ("UserMessage", "Write.\n\nwriter said:\nDraft."),
        ("AssistantMessage", "Hm."),
        ("UserMessage", "writer said:\nBetter."),
    ]
    assert [each.content for each in conform(messages, Rules(names=False))][3] == "writer said:\nDraft."
    assert conform(messages, NO_SYSTEM)[0].content == "one\n\ntwo\n\nWrite.\n\nwriter said:\nDraft."
    assert [each.content for each in with_prompt(messages, "three")][:4] == ["one", "two", "three", "Write."]


REFUSALS = [
    ("Conversation roles must alternate user/assistant/user/assistant/...", ALTERNATING),
    ("After the optional system message, conversation roles must alternate user and assistant roles", ALTERNATING),
    ("Error rendering prompt with jinja template: conversation roles must alternate", ALTERNATING),
    ("deepseek-reasoner does not support successive user or assistant messages", ALTERNATING),
    ("Unexpected role 'user' after role 'user'", ALTERNATING),
    ("Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant", ALTERNATING),
    ("System message must be at the beginning.", ALTERNATING),
    ("System role not supported", NO_SYSTEM),
    ("Developer instruction is not enabled for models/gemma-3-27b-it", NO_SYSTEM),
    ("Unsupported value: 'messages[0].role' does not support 'system' with this model.", NO_SYSTEM),
    ('{"loc":["body","messages",1,"user","name"],"msg":"Extra inputs are not permitted"}', Rules(names=False)),
    ("Requests which include `tool_use` blocks in their history must define tools", Rules(undeclared=False)),
    ("Anthropic expects the `tools=` param to be passed in.", Rules(undeclared=False)),
    ("The toolConfig field must be defined when using toolUse content blocks.", Rules(undeclared=False)),
    ("'messages.1' : for 'role:user' the property 'name' is unsupported", Rules(names=False)),
    ("This model's maximum context length is 8192 tokens.", None),
    ("The model `x` does not exist", None),
    ("Incorrect API key provided", None),
]


@pytest.mark.parametrize(("text", "rules"), REFUSALS)
async def test_what_refusals_teach(text: str, rules: Rules | None, server: ModelServer):
    server.script(None, [Failure(400, text), "fine", "fine"])
    inner = OpenAIChatCompletionClient(model="gpt-4o", api_key="k", base_url=server.base_url, max_retries=0)
    shared = MessageRules()
    client = RunModelClient(inner, rules=shared)
    messages = [
        SystemMessage(content="s"),
        UserMessage(content="a", source="user"),
        UserMessage(content="b", source="ann"),
    ]
    if rules is None:
        with pytest.raises(openai.BadRequestError):
            await client.create(messages)
        assert len(server.requests) == 1
        await inner.close()
        return
    assert (await client.create(messages)).content == "fine"
    again = RunModelClient(inner, rules=shared)
    async for _ in again.create_stream(messages):
        pass
    assert len(server.requests) == 3, "refused once"
    assert server.requests[1].messages == server.requests[2].messages
    assert shared.of(client._where) == rules
    await inner.close()


@pytest.mark.parametrize("heals", [False, True])
async def test_what_an_endpoint_quotes_of_a_request_is_no_lesson(heals: bool, server: ModelServer):
    text = 'the system role\n"is" \u2013 not supported here'
    refusal = Failure(400, f"bad input: {json.dumps([{'role': 'user', 'content': text}])}")
    server.script(None, [refusal, "fine" if heals else refusal, "fine"])
    inner = OpenAIChatCompletionClient(model="gpt-4o", api_key="k", base_url=server.base_url, max_retries=0)
    shared = MessageRules()
    prompt = SystemMessage(content="s")
    asking = RunModelClient(inner, rules=shared).create([prompt, UserMessage(content=text, source="user")])
    if heals:
        assert (await asking).content == "fine"
    else:
        with pytest.raises(openai.BadRequestError):
            await asking
    await RunModelClient(inner, rules=shared).create([prompt, UserMessage(content="hello", source="user")])
    assert [each["role"] for each in server.requests[-1].messages] == ["system", "user"], "for another user"
    await inner.close()


async def test_a_lesson_that_does_not_help_is_forgotten(server: ModelServer):
    refusal = Failure(400, "System role not supported")
    server.script(None, [refusal, Failure(400, "no"), "fine"])
    inner = OpenAIChatCompletionClient(model="gpt-4o", api_key="k", base_url=server.base_url, max_retries=0)
    shared = MessageRules()
    messages = [SystemMessage(content="s"), UserMessage(content="hello", source="user")]
    with pytest.raises(openai.BadRequestError):
        await RunModelClient(inner, rules=shared).create(messages)
    await RunModelClient(inner, rules=shared).create(messages)
    assert [each["role"] for each in server.requests[-1].messages] == ["system", "user"]
    await inner.close()


async def test_it_is_learnt_in_a_stream_too(server: ModelServer):
    with ModelServer() as strict:
        client = RunModelClient(OpenAIChatCompletionClient(model="gpt-4o", api_key="k", base_url=strict.base_url))
        messages = [UserMessage(content="a", source="user"), UserMessage(content="b", source="ann")]
        items = [item async for item in client.create_stream(messages)]
        assert items[0] == "ok"
        assert [each["content"] for each in strict.requests[0].messages] == ["a\n\nann said:\nb"]
        assert len(strict.refused) == 2, "for names, and for turns"
        assert client.meter.calls == 1
        await client.close()


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("google/gemma-2-9b-it", NO_SYSTEM),
        ("gemma-7b-it", NO_SYSTEM),
        ("gemma3:27b", ALTERNATING),
        ("mistralai/Mistral-7B-Instruct-v0.3", ALTERNATING),
        ("Mixtral-8x7B", ALTERNATING),
        ("meta-llama/Llama-2-7b-chat-hf", ALTERNATING),
        ("llama-3.3-70b", ANY),
        ("gpt-4o", ANY),
        ("qwen3", ANY),
    ],
)
def test_families(name: str, rules: Rules):
    assert MessageRules().of(("http://x", name)) == rules
    assert MessageRules({name: "any"}).of(("http://x", name)) == ANY
    assert MessageRules({"nobody": "any", "*": "no_system"}).of(("http://x", name)) == NO_SYSTEM
    assert MessageRules({"*": "no_system"}).of(("http://x", name), form="any") == ANY


async def test_the_settings_say_it(factory: MakeFactory, server: ModelServer):
    models = factory(model_messages='{"big-*": "alternating"}')
    messages = [UserMessage(content="a", source="user"), UserMessage(content="b", source="user")]
    for model, count in (("big-one", 1), ("small", 2)):
        await RunModelClient(models.create(model), rules=models.rules).create(messages)
        assert len(server.requests[-1].messages) == count
    await RunModelClient(models.create("small"), rules=models.rules, messages="alternating").create(messages)
    assert len(server.requests[-1].messages) == 1
    assert Settings(model_messages="no_system").model_messages == {"*": "no_system"}
    for bad in ("sometimes", "{", '{"a": "b"}'):
        with pytest.raises(ConfigurationError, match="DRSAI_MODEL_MESSAGES"):
            Settings(model_messages=bad)


async def test_any_is_not_learnt_against(factory: MakeFactory, server: ModelServer):
    server.script(None, [Failure(400, "conversation roles must alternate")])
    models = factory(model_messages="any")
    with pytest.raises(openai.BadRequestError):
        await RunModelClient(models.create("m"), rules=models.rules).create([UserMessage(content="a", source="user")])
    assert len(server.requests) == 1
