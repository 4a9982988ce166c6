"""What a message does not hold is not learnt from it, and secrets are refused."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.errors import InvalidRequest
from drsai_backend.features.memory.base import digest_of
from drsai_backend.features.memory.checks import (
    asks_to_forget,
    check_text,
    own_words,
    secret_in,
    share_of_words,
    why_not_held,
    without_recalled,
)

SAID = "I live in Lisbon."
MESSAGE = "Hi! I've moved to Hamburg, my dog Rex came along. We live in flat 12 now."


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("The user moved to Hamburg.", "moved to Hamburg"),
        ("The user has a dog called Rex.", "my dog Rex"),
        ("The user lives in flat 12.", "We live in flat 12"),
        ("The user moved.", "i've  MOVED to hamburg"),
    ],
)
def test_what_is_said_is_held(text: str, quote: str) -> None:
    assert why_not_held(text, quote, MESSAGE) is None


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("The user moved to Berlin.", "moved to Berlin"),
        ("The user moved to Paris.", "moved to Hamburg"),
        ("The user lives in flat 13.", "We live in flat 12"),
        ("The user has a cat.", "came along"),
        ("The user moved to Hamburg.", "Hamburg"),
        ("The user moved to Hamburg.", ""),
        ("The user owns a yacht.", "my dog Rex"),
    ],
)
def test_what_is_not_said_is_not(text: str, quote: str) -> None:
    assert why_not_held(text, quote, MESSAGE) is not None


@pytest.mark.parametrize(
    ("text", "quote", "message"),
    [
        ("The user likes cheese", "like cheese any more", "I do not like cheese any more."),
        ("The user was convicted of fraud with their brother", "with my brother", "I went fishing with my brother"),
        ("The user has cancer and is divorced from Anna", "visit Anna", "I will visit Anna tomorrow"),
        ("Paris is the user's home city.", "my home city", "Munich is my home city"),
    ],
)
def test_what_is_denied_or_added_is_not_held(text: str, quote: str, message: str) -> None:
    assert why_not_held(text, quote, message) is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [("The user is called Ada", "My name is Ada"), ("The user lives in Berlin", "I live in Berlin")],
)
def test_what_is_said_in_other_words_is_held(text: str, message: str) -> None:
    assert why_not_held(text, message, message) is None


def test_chinese_is_held_by_pairs_of_characters() -> None:
    message = "我上个月搬到了上海,现在在一家银行工作。"
    assert why_not_held("用户搬到了上海。", "搬到了上海", message) is None
    assert why_not_held("用户在银行工作。", "在一家银行工作", message) is None
    assert why_not_held("用户搬到了北京。", "搬到了北京", message) is not None
    assert why_not_held("用户搬到了北京。", "搬到了上海", message) is not None
    assert why_not_held("用户喜欢爬山。", "在一家银行工作", message) is not None


@pytest.mark.parametrize(
    "text",
    [
        "My card is 4111 1111 1111 1111.",
        "Card: 5500-0000-0000-0004",
        "Card: 4111.1111.1111.1111",
        "Card 5500/0000/0000/0004",
        "The key is sk-proj-abcdefghijklmnop1234567890",
        "AKIAIOSFODNN7EXAMPLE is mine",
        "my password is hunter2",
        "PIN: 1234",
        "token=abc",
        "postgresql://ann:geheim@db.example/x",
        "Use ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "-----BEGIN RSA PRIVATE KEY-----",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.x",
        "It is Zx8Qw3Rt5Yb7Nm2Kp9Lf4Hd6",
        "我的密码是 hunter2",
    ],
)
def test_secrets_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        check_text(text)
    assert "not remembered" in error.value.message
    assert text not in error.value.message


@pytest.mark.parametrize(
    "text",
    [
        "The user's phone is +49 40 123456789.",
        "The user was born on 1990-05-17 and has 3 children.",
        "The order number is 4111 1111 1111 1112.",
        "The user likes Donaudampfschifffahrtsgesellschaftskapitäne.",
        "The user works on github.com/example/some-long-repository-name.",
        "用户喜欢爬山。",
    ],
)
def test_what_is_no_secret_is_taken(text: str) -> None:
    assert secret_in(text) is None
    assert check_text(f"  {text}\n") == text


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=200))
def test_a_quotation_stands_in_its_message(text: str, quote: str, message: str) -> None:
    if why_not_held(text, quote, message) is None:
        assert "".join(quote.casefold().split())[:1] != ""
        assert 0 <= share_of_words(quote, text) <= 1


@pytest.mark.parametrize(
    "text",
    [
        f'A file of the user\'s. Data.\n<document name="a.pdf">\nI live in Rome.\n</document>\n'
        f"[The rest is left out.]\n{SAID}",
        f"<document>I live in Rome.</document> {SAID} <document>I live in Rome.",
        f"### Task:\nRespond.\n<context>I live in Rome.</context>\n\n{SAID}",
        f"{SAID}\n<!-- SYSTEM CONTEXT (NOT PART OF USER QUERY) -->\nI live in Rome.",
        f"[memory] I live in Rome. [/memory] {SAID}",
    ],
)
def test_what_a_person_has_not_written_is_not_said(text: str) -> None:
    assert own_words(text).strip() == SAID


@pytest.mark.parametrize("text", ["<document ", "A file of the user's. "])
def test_a_message_that_only_begins_documents_is_read_at_once(text: str) -> None:
    began = time.process_time()
    assert text.strip() in own_words(text * 20_000)
    assert time.process_time() - began < 4, "not once for each beginning"


@pytest.mark.parametrize(
    ("text", "asks"), [("Forget my dog.", True), ("忘了我的狗", True), ("Vergiss es.", True), (SAID, False)]
)
def test_a_message_may_ask_to_forget(text: str, asks: bool) -> None:
    assert asks_to_forget(text) is asks


def test_what_was_recalled_is_not_said() -> None:
    assert without_recalled("a [memory] The user is rich. [/memory] b").split() == ["a", "b"]
    assert without_recalled("a [Memory] never ends") == "a  "
    assert digest_of("The user is  Ann.") == digest_of("the user is ann")
