"""Digests of conversations: the same for both sides, whatever clients do to texts; another one for anything else."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.datamodel.owner import Owner
from drsai_backend.runs.history.digest import (
    Conversation,
    Histories,
    HistoryPoint,
    flat,
    plain,
    plain_answer,
    points,
    seed_of,
)
from drsai_backend.runs.requests import InputMessage

SEED = seed_of(Owner("t", "u"), "m")
Role = Literal["system", "user", "assistant"]
roles: st.SearchStrategy[Role] = st.sampled_from(["user", "assistant", "user", "assistant", "system"])
texts = st.sampled_from(["yes", "no", " ", "", "a b", "**ann**\n\nyes", "é\u3000é", "<think>x</think>"])
messages = st.lists(st.builds(InputMessage, roles, texts), max_size=60)


@given(messages, st.integers(0, 60), messages)
def test_what_was_digested_before_changes_nothing(
    first: list[InputMessage], kept: int, more: list[InputMessage]
) -> None:
    """A history is continued, cut and continued otherwise: as if each had been the first."""
    histories = Histories()
    histories.digest(SEED, first)
    for said in ([*first, *more], [*first[:kept], *more], first):
        found = histories.digest(SEED, said)
        fresh = points(SEED, said)
        assert found.last == (fresh[-1] if fresh else None)


@given(messages)
def test_one_message_more_or_less(said: list[InputMessage]) -> None:
    found = points(SEED, said)
    assert len({each.digest for each in found}) == len(found)
    assert (
        points(seed_of(Owner("t", "v"), "m"), said) == []
        or points(seed_of(Owner("t", "v"), "m"), said)[-1] != found[-1]
    )
    for each in found:
        # The messages up to a point are all that counts.
        assert points(SEED, said[: each.length])[-1] == each


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("a\r\n b\u00a0", "ab"),
        ("<details type='reasoning' done=\"true\">\n<summary>x</summary>\n</details>\nyes", "yes"),
        ("<think>so <think>deep</think> down</think>yes", "yes"),
        ("<think>not closed yes", "<think>notclosedyes"),
        ("a</think>b", "a</think>b"),
        ("**ann**\n\nyes\n\n**bob**\n\nno", "yesno"),
        ("this is **bold**", "thisis**bold**"),
        ("<thinking>no</thinking>", "<thinking>no</thinking>"),
    ],
)
def test_what_counts_of_an_answer(sent: str, shown: str) -> None:
    assert plain_answer(sent) == shown.encode()


@pytest.mark.parametrize(
    ("sent", "question"),
    [
        ("### Task:\nUse it.\n<context>\n<source>x</source>\n</context>\n\nwho?", "who?"),
        ("### Task:\n<context>x</context>\n<user_query>\nwho?\n</user_query>\n", "who?"),
        ("### Task:\n<context>x</context>\n", "### Task:\n<context>x</context>\n"),
        ("### Task: do it", "### Task: do it"),
        ("see <context>x</context> who?", "see <context>x</context> who?"),
    ],
)
def test_what_counts_of_a_question_with_what_was_found_for_it(sent: str, question: str) -> None:
    asked = [InputMessage("user", sent), InputMessage("assistant", "a")]
    alone = [InputMessage("user", question), InputMessage("assistant", "a")]
    assert points(SEED, asked) == points(SEED, alone)


def test_what_a_user_says_about_tags_counts() -> None:
    assert plain("<think>x</think> **a**") == b"<think>x</think>**a**"


@pytest.mark.parametrize(
    "hostile", ["<think>", "<think ", "</think>", "**", "**a\n", "\n", "<details", "</details><think>"]
)
def test_no_text_takes_long(hostile: str) -> None:
    """One pass over a megabyte: a quadratic one would take hours."""
    begin = time.process_time()
    plain_answer("</think>" + hostile * (1_000_000 // len(hostile)))
    assert time.process_time() - begin < 30


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_no_spread_over_messages_takes_long(role: Role) -> None:
    """20 MB in consecutive messages of one role: what is quadratic in them takes a minute and more."""
    messages = [InputMessage("user", "x"), *[InputMessage(role, f"{number} " * 800) for number in range(4_094)]]
    begin = time.process_time()
    history = Histories().digest(SEED, messages)
    assert history.first_new(history.conversation.point_said) is None
    points(SEED, messages)
    Conversation(SEED).heard(messages)
    assert time.process_time() - begin < 15


@given(messages, st.sampled_from([b"", b"yes", b"no", b"yesno", b"ab"]))
def test_what_is_new_of_a_history(sent: list[InputMessage], said: bytes) -> None:
    """As if all the user's texts after the last answer were put together, message by message."""
    found = Histories().digest(SEED, sent)
    so_far, expected = b"", None
    for index in range(found.last.length if found.last else 0, len(sent)):
        if sent[index].role == "user":
            if so_far == said:
                expected = index
                break
            so_far += plain(flat(sent[index].content))
    assert found.first_new(said) == expected


def test_consecutive_messages_of_a_role_are_one() -> None:
    apart = [
        InputMessage("user", "a"),
        InputMessage("user", "b"),
        InputMessage("assistant", "c"),
        InputMessage("assistant", "d"),
    ]
    joined = [InputMessage("user", "a b"), InputMessage("assistant", "c\n\nd")]
    assert [each.digest for each in points(SEED, apart)] == [each.digest for each in points(SEED, joined)]
    assert points(SEED, [InputMessage("user", "abc"), InputMessage("assistant", "d")]) != points(SEED, joined)
    assert points(SEED, apart) == [HistoryPoint(4, points(SEED, joined)[0].digest)]


def conversation(length: int, word: str = "w") -> list[InputMessage]:
    sides: tuple[Role, Role] = ("user", "assistant")
    return [InputMessage(sides[at % 2], f"{word} {at}") for at in range(length)]


@pytest.mark.parametrize("most", [0, 32_000_000], ids=["hashes", "texts"])
@given(st.integers(0, 598), st.sampled_from(["text", "role", "bound", "image"]))
def test_whatever_has_changed_in_what_is_known_is_noticed(most: int, at: int, what: str) -> None:
    histories, sent = Histories(most=most), conversation(601)
    histories.digest(SEED, sent)
    first, second = sent[at : at + 2]
    changed = [*sent, InputMessage("assistant", "a"), InputMessage("user", "b")]
    if what == "text":
        changed[at] = InputMessage(first.role, f"v{first.text[1:]}")
    elif what == "role":
        changed[at] = InputMessage("system", first.content)
    elif what == "bound":
        changed[at : at + 2] = [
            InputMessage(first.role, f"{first.text}w"),
            InputMessage(second.role, second.text[1:]),
        ]
    else:
        changed[at] = InputMessage(first.role, [first.text, " more"])
    assert histories.digest(SEED, changed).last == points(SEED, changed)[-1]
    assert asyncio.run(histories.digested(SEED, changed)).last == points(SEED, changed)[-1]


def test_what_is_kept_of_texts_is_bounded_and_what_must_go_is_known_by_its_hash() -> None:
    most, long = 20_000, Histories(most=5_000)
    histories, sent = Histories(most=most), [conversation(101, f"{number}") for number in range(50)]
    for each in sent:
        histories.digest(SEED, each)
        assert histories._kept._kept.currsize <= most
        long.digest(SEED, [*each, *conversation(1_000)])
    assert 0 < len(histories._kept._kept) < len(sent)
    assert not long._kept._kept  # One alone is more than all may have.
    for each in sent:
        found = histories._kept.find(SEED, [said.role for said in each], [said.text for said in each])
        assert found is not None
        assert found.length == 100
        assert histories.digest(SEED, each).last == points(SEED, each)[-1]
    histories.forget({SEED})
    assert not histories._kept._kept


def test_owners_share_nothing() -> None:
    histories, sent = Histories(), conversation(101)
    for seed in (SEED, seed_of(Owner("t", "v"), "m"), seed_of(Owner("t", "u"), "n")):
        found = histories._kept.find(seed, [each.role for each in sent], [each.text for each in sent])
        assert found is not None
        assert not found.length
        assert histories.digest(seed, sent).last == points(seed, sent)[-1]


@given(st.lists(st.tuples(st.sampled_from(["system", "tool", "user", "assistant"]), texts), max_size=60))
def test_where_messages_of_systems_and_tools_are(said: list[tuple[Any, str]]) -> None:
    histories, sent = Histories(), [InputMessage(role, text) for role, text in said]
    for more in range(3):
        sent = [*sent, InputMessage("assistant", "a"), InputMessage("user", f"{more}")]
        history = histories.digest(SEED, sent)
        assert history.systems == [index for index, each in enumerate(sent) if each.role == "system"]
        assert history.has_results == any(each.role == "tool" for each in sent)
