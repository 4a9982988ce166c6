"""Messages as they are sent, kept from call to call: always equal to a fresh conversion."""

from __future__ import annotations

import base64
import copy
import json
import logging
from pathlib import Path
from typing import Any, cast

import anthropic
from autogen_core import EVENT_LOGGER_NAME, FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelFamily,
    SystemMessage,
    UserMessage,
)
from autogen_ext.models.anthropic import BaseAnthropicChatCompletionClient
from autogen_ext.models.openai import BaseOpenAIChatCompletionClient
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import AsyncOpenAI
from PIL import Image as PILImage

from drsai_backend.config import Settings
from drsai_backend.drsai import DrSai
from drsai_backend.models import RunModelClient
from drsai_backend.models.endpoints.anthropic import NotingAnthropic, PooledAnthropicClient
from drsai_backend.models.endpoints.forms import Form, MessageForms, dumps
from drsai_backend.models.images import EncodedImage
from drsai_backend.models.openai import PooledOpenAIClient
from tests.models.conftest import MakeFactory
from tests.models.test_run_client import INFO
from tests.support.model_server import ModelServer
from tests.support.recorded_messages import WHOLE
from tests.support.streaming import feeding, plain

PIXEL = base64.b64encode(b"\x89PNG, as far as anybody looks").decode()
texts = st.sampled_from(["", " ", "Hello", "Grüße \u2028", "Hello ", "a" * 300])
names = st.sampled_from(["ada", "bob", "user"])
given_to = st.sampled_from(["{}", '{"a": 1}', '{"a": 10000000000000000000000, "b": ["\u00fc"]}', "no JSON", ""])
calls = st.builds(FunctionCall, id=st.sampled_from(["1", "2"]), name=names, arguments=given_to)
results = st.builds(
    FunctionExecutionResult, content=texts, name=names, call_id=st.sampled_from(["1", "2"]), is_error=st.booleans()
)
images = st.sampled_from([EncodedImage(PIXEL), Image(PILImage.new("RGB", (1, 1)))])
said = st.one_of(
    st.builds(UserMessage, content=st.one_of(texts, st.lists(st.one_of(texts, images), min_size=1)), source=names),
    st.builds(
        AssistantMessage,
        content=st.one_of(texts, st.lists(calls, min_size=1)),
        source=names,
        thought=st.one_of(st.none(), texts),
    ),
    st.builds(FunctionExecutionResultMessage, content=st.lists(results)),
)
prompts = st.builds(SystemMessage, content=texts)
contexts = st.one_of(
    st.builds(lambda first, then: [*first, *then], st.lists(prompts, max_size=2), st.lists(said, max_size=8)),
    st.lists(st.one_of(prompts, said), max_size=6),
).filter(bool)
clients = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["gpt-4o", "claude-3-5-haiku", "gemini-1.5-pro", "mistral-large", "m"]),
        "family": st.sampled_from([ModelFamily.UNKNOWN, ModelFamily.GPT_4O, ModelFamily.MISTRAL, "other"]),
        "vision": st.booleans(),
        "multiple": st.booleans(),
        "prefix": st.booleans(),
        "names": st.booleans(),
    }
)
FORMS = MessageForms(20_000)
"""Shared by all examples, whose messages come again under other rules; few fit in."""


def pair(how: dict[str, Any]) -> tuple[Any, Any]:
    """Our client and AutoGen's."""
    info: Any = {**INFO, "family": how["family"], "vision": how["vision"]}
    info["multiple_system_messages"] = how["multiple"]
    pool = AsyncOpenAI(api_key="k", base_url="http://127.0.0.1:9")
    ours = PooledOpenAIClient(pool, model=how["model"], model_info=info, forms=FORMS)
    stock = BaseOpenAIChatCompletionClient(pool, create_args={"model": how["model"]}, model_info=info)
    for each in (ours, stock):
        each._add_name_prefixes = how["prefix"]  # pyright: ignore[reportPrivateUsage]
        each._include_name_in_message = how["names"]  # pyright: ignore[reportPrivateUsage]
    return ours, stock


def converted(client: Any, messages: list[LLMMessage], extra: dict[str, Any]) -> Any:
    """What a client makes of messages, what it leaves of them, and what is sent."""
    messages = copy.deepcopy(messages)
    try:
        params = client._process_create_args(messages, (), "auto", None, extra)
    except (ValueError, IndexError) as error:  # IndexError: AutoGen's, of Claude models without a message
        return str(error)
    left = [each.model_dump(mode="json") for each in messages]
    return params.messages, params.create_args, left, json.loads(dumps({"messages": params.messages, "n": 1}))


@given(clients, st.lists(contexts, min_size=1, max_size=3), st.sampled_from([{}, {"model": "claude-3-opus"}]))
@settings(max_examples=300, deadline=None)
def test_they_are_equal_to_a_fresh_conversion(
    how: dict[str, Any], asked: list[list[LLMMessage]], extra: dict[str, Any]
) -> None:
    ours, stock = pair(how)
    for messages in asked:
        made = converted(ours, messages, extra)
        assert made == converted(stock, messages, extra)
        assert isinstance(made, str) or made[3]["messages"] == made[0]


class Sent:
    """Anthropic's client, whose answers are in memory; `sent` has the bodies of its requests."""

    def __init__(self, *, marks: bool) -> None:
        http = feeding(anthropic.DefaultAsyncHttpxClient, [WHOLE["text"]], "application/json")
        self.sent: list[bytes] = http.asked
        self.client = NotingAnthropic(api_key="k", http_client=http())
        self.client.marks = marks


async def asked_of(client: Any, sent: list[bytes], messages: list[LLMMessage], tools: list[Any]) -> Any:
    """What a client sends, what it leaves of the messages, and what AutoGen logs."""
    messages, log = copy.deepcopy(messages), LogCapture()
    sent.clear()
    with log:
        try:
            await client.create(messages, tools=tools)
        except (ValueError, IndexError) as error:  # IndexError: AutoGen's, of a call without a message
            return str(error)
    [body], [event] = sent, log.events
    left = [each.model_dump(mode="json") for each in messages]
    return json.loads(body), left, [plain(each) for each in event.kwargs["messages"]]


class LogCapture(logging.Handler):
    """AutoGen's events of model calls."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.events.append(record.msg)

    def __enter__(self) -> None:
        logger = logging.getLogger(EVENT_LOGGER_NAME)
        self._level = logger.level
        logger.addHandler(self)
        logger.setLevel(logging.INFO)

    def __exit__(self, *_: object) -> None:
        logging.getLogger(EVENT_LOGGER_NAME).removeHandler(self)
        logging.getLogger(EVENT_LOGGER_NAME).setLevel(self._level)


TOOL: Any = {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}


@given(st.booleans(), st.booleans(), st.lists(contexts, min_size=1, max_size=3), st.sampled_from([[], [TOOL]]))
@settings(max_examples=200, deadline=None)
async def test_anthropics_are_equal_to_a_fresh_conversion(
    marks: bool, vision: bool, asked: list[list[LLMMessage]], tools: list[Any]
) -> None:
    to: dict[str, Any] = {"create_args": {"model": "m"}, "model_info": {**INFO, "vision": vision}}
    sides = Sent(marks=marks)
    ours, stock = [
        PooledAnthropicClient(sides.client, **to, forms=FORMS),
        BaseAnthropicChatCompletionClient(client=sides.client, **to),
    ]
    for messages in asked:
        stock._last_used_tools = []  # pyright: ignore[reportPrivateUsage] - what it keeps from call to call, ours does not
        made = await asked_of(ours, sides.sent, messages, tools)
        fresh = await asked_of(stock, sides.sent, messages, tools)
        if isinstance(fresh, tuple) and fresh[0].get("tools") == []:
            del fresh[0]["tools"], fresh[0]["tool_choice"]  # Endpoints refuse a choice of no tools: ours sends neither.
        assert made == fresh


async def test_anthropics_are_converted_once() -> None:
    """A call converts what is new, and joins what is known as it is."""
    sides, forms = Sent(marks=True), MessageForms(100_000)
    client = PooledAnthropicClient(sides.client, create_args={"model": "m"}, model_info=INFO, forms=forms)
    messages: list[LLMMessage] = [SystemMessage(content="Be kind.")]
    before: set[int] = set()
    for number in range(5):
        messages = [*copy.deepcopy(messages), *context(number)]
        await client.create(messages)
        made = {id(form) for found, _ in forms._new.values() for form in found}  # pyright: ignore[reportPrivateUsage]
        assert (len(made), len(made - before)) == (2 * number + 1, 2 if number else 1)
        before = made
        assert json.loads(sides.sent[-1])["system"][0]["text"] == "Be kind."
        for _ in range(number):
            [form] = next(iter(forms._new.values()))[0]  # pyright: ignore[reportPrivateUsage]
            assert form.encoded in sides.sent[-1]


def context(number: int) -> list[LLMMessage]:
    user: LLMMessage = UserMessage(content=f"What is {number}?", source="user")
    return [user, AssistantMessage(content=f"It is {number}.", source="ada")]


async def test_a_message_is_converted_once(server: ModelServer, factory: MakeFactory) -> None:
    """A call converts what is new, also where the messages are other objects with the same content."""
    made = factory()
    client = cast(PooledOpenAIClient, made.create("m"))
    before: set[int] = set()
    messages: list[LLMMessage] = [SystemMessage(content="Be kind.")]
    for number in range(5):
        messages = [*copy.deepcopy(messages), *context(number)]
        params = client._process_create_args(messages, (), "auto", None, {})  # pyright: ignore[reportPrivateUsage]
        forms = {id(each) for each in params.messages if isinstance(each, Form)}
        assert (len(forms), len(forms - before)) == (2 * number + 1, 2 if number else 1)
        before = forms
        await RunModelClient(client, rules=made.rules).create(messages)
        assert server.requests[-1].messages == params.messages


ALIKE: list[LLMMessage] = [
    UserMessage(content=PIXEL, source="a"),
    UserMessage(content=[PIXEL], source="a"),
    UserMessage(content=[EncodedImage(PIXEL)], source="a"),
    UserMessage(content=[], source="a"),
    AssistantMessage(content=PIXEL, source="a"),
    AssistantMessage(content=[], source="a"),
    AssistantMessage(content=[], source="a", thought=PIXEL),
    FunctionExecutionResultMessage(content=[]),
]


def test_messages_that_are_alike_have_forms_of_their_own() -> None:
    forms = MessageForms(100_000)
    for _ in range(2):
        made = forms.of(ALIKE, "m", lambda message: [{"is": repr(message)}])
        assert [form["is"] for form in made] == [repr(each) for each in ALIKE]


def test_they_are_bounded() -> None:
    def convert(message: LLMMessage) -> Any:
        return [{"role": "user", "content": message.content}]

    forms = MessageForms(100_000)
    for number in range(1000):
        many = [UserMessage(content=f"{number} {each}" * 50, source="user") for each in range(3)]
        assert forms.of(many, "m", convert) == [convert(each)[0] for each in many]
        kept = [size for held in (forms._new, forms._old) for _, size in held.values()]  # pyright: ignore[reportPrivateUsage]
        assert sum(kept) <= 100_000
    assert len(kept) > 10
    large = UserMessage(content="x" * 60_000, source="user")
    for most in (100_000, 0):
        forms = MessageForms(most)
        assert forms.of([large], "m", convert)[0] is not forms.of([large], "m", convert)[0]


def test_they_are_counted_with_the_warm_threads(tmp_path: Path) -> None:
    drsai = DrSai({}, f"sqlite:///{tmp_path / 'a.db'}", settings=Settings(warm_bytes=1_000_000))  # pyright: ignore[reportArgumentType]
    warm = drsai.engine._warm  # pyright: ignore[reportPrivateUsage]
    assert warm.maxsize + drsai.models.forms.most == 1_000_000


def test_what_is_asked_for_stays() -> None:
    made: list[str] = []

    def convert(message: LLMMessage) -> Any:
        made.append(str(message.content))
        return [{"role": "user", "content": message.content}]

    forms = MessageForms(50_000)
    for number in range(500):
        forms.of([UserMessage(content=each, source="user") for each in ("again", f"{number}" * 50)], "m", convert)
    assert (made.count("again"), len(made)) == (1, 501)
