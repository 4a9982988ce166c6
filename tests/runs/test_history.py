"""A client that resends its history says every message once, whatever became of the answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.datamodel import AutoGenMessage
from drsai_backend.errors import (
    InvalidRequest,
)
from drsai_backend.runs import RunRequest
from drsai_backend.runs.events import InputMessage
from drsai_backend.runs.messages import first_new, new_messages, system_text
from tests.support.teams.crew import pair
from tests.support.threads import WHERE, Make


def user(text: str) -> InputMessage:
    return InputMessage("user", text)


def assistant(text: str) -> InputMessage:
    return InputMessage("assistant", text)


def system(text: str) -> InputMessage:
    return InputMessage("system", text)


def new_texts(sent: list[InputMessage], known_texts: list[str], last_system: str | None = None) -> list[str]:
    return [message.text for message in new_messages(sent, known_texts, known=True, last_system=last_system)]


# Few different words, so that a user often repeats themselves.
rounds = st.lists(st.tuples(st.sampled_from(["yes", "no", "go on"]), st.booleans()), min_size=1, max_size=8)


@given(rounds, st.booleans())
def test_resending_everything_stores_each_message_once(said: list[tuple[str, bool]], with_system: bool) -> None:
    """`said`: what the user says in each round, and whether the client got the answer."""
    client: list[InputMessage] = [system("be brief")] if with_system else []
    stored: list[str] = []
    last_system: str | None = None
    for number, (text, answered) in enumerate(said):
        client.append(user(text))
        new = new_messages(client, stored[-len(client) :], known=number > 0, last_system=last_system)
        assert [message for message in new if message.role == "assistant"] == []
        assert [message.text for message in new if message.role == "system"] == (
            ["be brief"] if with_system and number == 0 else []
        )
        stored += [message.text for message in new if message.role == "user"]
        last_system = system_text(client) or last_system
        if answered:
            client.append(assistant(f"answer {number}"))
    assert stored == [text for text, _ in said]


@given(rounds)
def test_sending_only_the_last_message_stores_each_once(said: list[tuple[str, bool]]) -> None:
    stored: list[str] = []
    for number, (text, _) in enumerate(said):
        new = new_messages([user(text)], stored[-1:], known=number > 0, last_system=None)
        stored += [message.text for message in new]
    assert stored == [text for text, _ in said]


def test_a_client_that_moves_over_brings_its_history() -> None:
    sent = [system("s"), user("a"), assistant("b"), user("c")]
    assert new_messages(sent, [], known=False, last_system=None) == sent
    assert first_new(sent, [], known=False) == 0


def test_only_what_follows_the_last_answer_is_new() -> None:
    sent = [user("a"), assistant("b"), user("c"), user("d")]
    assert new_texts(sent, ["a"]) == ["c", "d"]
    assert first_new(sent, ["a"], known=True) == 2


def test_messages_whose_answer_was_lost_are_not_taken_twice() -> None:
    sent = [user("a"), assistant("b"), user("c"), user("d")]
    assert new_texts(sent, ["a", "c"]) == ["d"]
    assert first_new(sent, ["a", "c"], known=True) == 3


def test_the_same_words_again_are_a_new_message() -> None:
    assert new_texts([user("a")], ["a"]) == ["a"]
    assert new_texts([user("a"), user("a")], ["a", "a"]) == ["a"]


def test_system_messages_come_along_when_they_changed() -> None:
    sent = [system("one"), system("two"), user("a"), assistant("b"), user("c")]
    assert new_texts(sent, ["a"], "one\n\ntwo") == ["c"]
    assert new_texts(sent, ["a"], "other") == ["one", "two", "c"]
    assert new_texts(sent, ["a"], None) == ["one", "two", "c"]
    assert new_texts([user("c")], ["a"], "one") == ["c"]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("sent", [[], [assistant("a")], [user("a"), assistant("b")], [user("a"), system("b")]])
def test_the_last_word_must_be_the_users(sent: list[InputMessage], known: bool) -> None:
    with pytest.raises(InvalidRequest) as caught:
        new_messages(sent, [], known=known, last_system=None)
    assert caught.value.param == "messages"


async def test_a_resent_history_is_stored_once(make: Make) -> None:
    drsai = await make({"pair": pair})
    history: list[InputMessage] = [InputMessage("system", "Be brief.")]
    for number in range(4):
        history.append(InputMessage("user", f"question {number}"))
        handle = await drsai.engine.start(RunRequest("pair", list(history), thread_id="t"))
        await handle.wait()
        if number != 1:  # an answer that was lost
            history.append(InputMessage("assistant", "whatever the client made of it"))
        if number == 2:
            drsai = await make({"pair": pair})
    stored = [row.config for row in await drsai.db.get(AutoGenMessage, filters=WHERE)]
    assert [c["content"] for c in stored if c["source"] == "user"] == [f"question {n}" for n in range(4)]
    assert [c["content"] for c in stored if c["source"] == "system"] == ["Be brief."]
