"""What is taken for housekeeping of a chat window: all that is recorded of it, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend.errors import ConfigurationError
from drsai_backend.models.demo import DemoChatCompletionClient
from drsai_backend.runs import InputMessage
from drsai_backend.runs.side_calls.housekeeping import Housekeeping
from drsai_backend.runs.side_calls.side_calls import _as_model_messages  # pyright: ignore[reportPrivateUsage]
from tests.recordings import Exchange, names, recording

EXCHANGES = [
    (f"{name} {number} {exchange.kind}", exchange)
    for name in names()
    for number, exchange in enumerate(recording(name).exchanges)
    if exchange.path.endswith("/chat/completions")
]


def messages_of(exchange: Exchange) -> list[InputMessage]:
    found: list[InputMessage] = []
    for message in exchange.body["messages"]:
        content: Any = message.get("content") or ""
        if not isinstance(content, str):
            content = [part["text"] for part in content if part["type"] == "text"]
        if message["role"] != "tool":
            found.append(InputMessage(message["role"], content))
    return found


HOUSEKEEPING = [messages_of(exchange) for _, exchange in EXCHANGES if exchange.is_housekeeping]


def test_all_that_is_recorded_is_told_apart() -> None:
    rule = Housekeeping()
    wrong = {
        name: found
        for name, exchange in EXCHANGES
        if (found := rule.kind_of(messages_of(exchange))) != (exchange.kind if exchange.is_housekeeping else None)
    }
    assert not wrong
    assert len(HOUSEKEEPING) > 80
    off = Housekeeping("off")
    assert not any(off.kind_of(messages) for messages in HOUSEKEEPING)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(HOUSEKEEPING), st.text(min_size=1), st.text(), st.booleans())
def test_a_person_who_quotes_a_prompt_is_taken_at_their_word(
    messages: list[InputMessage], before: str, after: str, is_long: bool
) -> None:
    """Whatever is said before a prompt, or said in a conversation before that."""
    rule, prompt = Housekeeping(), messages[-1].text
    assert rule.kind_of([InputMessage("user", f"{before}> {prompt}{after}")]) is None
    if rule.kind_of(messages) != "summary":
        asked = [InputMessage("user", before), InputMessage("assistant", after), InputMessage("user", prompt)]
        assert rule.kind_of(asked[0 if is_long else 1 :]) is None


@pytest.mark.parametrize(
    "text",
    [
        "### Task:\nWrite a poem.",
        "### Task:\nSummarise this.\n<chat_history>\nUSER: a\n</chat_history>\nIn two lines, please.",
        "Write a concise title for my talk about whales.",
        "Query: how many rows has the table?",
        "",
    ],
)
def test_a_task_of_a_persons_own_is_a_message(text: str) -> None:
    assert Housekeeping().kind_of([InputMessage("user", text)]) is None


def test_a_prompt_may_be_all_that_is_sent_as_one_system_message() -> None:
    rule = Housekeeping()
    [[lone]] = [messages for messages in HOUSEKEEPING if len(messages) == 1 and messages[0].role == "system"]
    assert rule.kind_of([lone]) == "title"
    assert rule.kind_of([lone, InputMessage("user", "Is this a test?")]) is None
    assert rule.kind_of([InputMessage("system", f"Quote this: {lone.text}")]) is None
    [lobechat] = recording("lobechat/title").exchanges
    assert rule.kind_of(messages_of(lobechat)[:1]) == "title"
    assert rule.kind_of([InputMessage("system", "You are a writer.")]) is None


def test_older_chinese_prompts_are_known_with_the_chats_messages_after_them() -> None:
    [title] = recording("lobechat/title_2024").exchanges
    system, _ = messages_of(title)
    chat = [InputMessage("user", "你好"), InputMessage("user", "再见")]
    assert Housekeeping().kind_of([system, *chat]) == "title"
    assert Housekeeping().kind_of(chat) is None


def test_a_server_may_know_more_prompts() -> None:
    rule = Housekeeping(r"^\[bot\] name this chat")
    assert rule.kind_of([InputMessage("user", "hi"), InputMessage("user", "[bot] name this chat: …")]) == "other"
    assert rule.kind_of([InputMessage("user", "hi")]) is None
    assert rule.kind_of(HOUSEKEEPING[0]) is not None
    with pytest.raises(ConfigurationError, match="DRSAI_HOUSEKEEPING"):
        Housekeeping("(")


async def test_the_demo_model_answers_in_the_form_that_is_asked_for() -> None:
    demo = DemoChatCompletionClient(0)
    keys = {"title": "title", "tags": "tags", "follow_ups": "follow_ups", "queries": "queries", "autocomplete": "text"}
    for exchange in recording("openwebui/tasks").exchanges:
        if not exchange.is_housekeeping:
            continue
        answer = (await demo.create(_as_model_messages(messages_of(exchange)))).content
        assert isinstance(answer, str)
        assert "demo model" not in answer
        if exchange.kind in keys:
            assert answer.startswith(f'{{"{keys[exchange.kind]}": ')
    for name in ("librechat/title_completion", "librechat/title_system", "lobechat/title", "lobechat/title_2024"):
        [title] = recording(name).exchanges
        assert (await demo.create(_as_model_messages(messages_of(title)))).content == "Is this a test", name
