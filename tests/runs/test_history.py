"""A client that resends its history says every message once, whatever became of the answers."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend import DrSai, RunStatus, Thread
from drsai_backend.access.principal import Principal
from drsai_backend.database.runs.history import find_points
from drsai_backend.datamodel import AutoGenMessage
from drsai_backend.errors import (
    InvalidRequest,
)
from drsai_backend.runs.history import compared, recognise, stored
from drsai_backend.runs.history.stored import read_conversation
from drsai_backend.runs.messages import first_new, new_messages, system_text
from drsai_backend.runs.requests import InputMessage
from drsai_backend.state.travel import Place
from tests.support.asks import admitted, asks
from tests.support.teams.crew import Crew, pair
from tests.support.threads import WHERE, Make, request, thread_of, two
from tests.support.threads import said as said_on


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
        handle = await drsai.engine.start(*asks("pair", list(history), thread_id="t"))
        await handle.wait()
        if number != 1:  # an answer that was lost
            history.append(InputMessage("assistant", "whatever the client made of it"))
        if number == 2:
            drsai = await make({"pair": pair})
    stored = [row.config for row in await drsai.db.get(AutoGenMessage, filters=WHERE)]
    assert [c["content"] for c in stored if c["source"] == "user"] == [f"question {n}" for n in range(4)]
    assert [c["content"] for c in stored if c["source"] == "system"] == ["Be brief."]


@pytest.mark.parametrize("how", ["another tab", "a queue", "the window", "interrupt"])
async def test_an_edit_of_a_thread_that_is_at_work(make: Make, where: int, how: str) -> None:
    """Its run ends where the window does not show its question any more, and where that helps."""
    crew = Crew()
    workers = await two(make, crew)
    first = await workers[0].engine.start(*request("one"))
    await first.wait()
    answer = "\n\n".join(done.message.to_text() for done in first.transcript() if done.shown)
    crew.ann.hold()
    live = await workers[0].engine.start(*request("two"))
    waiting = [await workers[0].engine.start(*request("three"))] if how == "a queue" else []
    sent = [user("one"), assistant(answer), user("edited")]
    values = {"resends": how in ("a queue", "the window"), "on_busy": "interrupt" if how == "interrupt" else "enqueue"}
    edited = asks("crew", sent, thread_id="t", **values)  # type: ignore[arg-type]
    is_gone = how in ("the window", "interrupt")
    handle = await workers[where].engine.start(*edited)
    crew.ann.release()
    assert (await live.wait()).status is (RunStatus.STOPPED if is_gone else RunStatus.COMPLETED)
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert all([(await each.wait()).status is RunStatus.COMPLETED for each in waiting])
    rest = ["edited"] if is_gone else ["two", *(["three"] if waiting else []), "edited"]
    assert said_on(await thread_of(workers[0])) == ["one", *rest]


async def test_what_is_new_in_the_background(make: Make) -> None:
    """An answer that its client has changed, and a question that is asked anew: the same as in the foreground."""
    drsai = await make({"crew": Crew()})

    async def texts(thread_id: str, messages: list[InputMessage], background: bool) -> list[str]:
        asked = asks("crew", messages, thread_id=thread_id, background=background)
        handle = await drsai.engine.start(*asked)
        assert (await handle.wait()).status is RunStatus.COMPLETED
        return [done.message.to_text() for done in handle.transcript() if done.shown]

    found: list[list[list[str]]] = []
    for background in (False, True):
        thread_id = str(background)
        first = assistant("\n\n".join(await texts(thread_id, [user("one")], background)))
        await texts(thread_id, [user("one"), first, user("two")], background)
        changed = [user("one"), first, user("two"), assistant("Changed."), user("three")]
        again = [user("one"), first, user("two")]
        found.append([await texts(thread_id, sent, background) for sent in (changed, again)])
    assert found[0] == found[1]


async def test_many_equal_conversations_are_not_all_read(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many that begin alike and have gone on, a few are read, and not in the event loop."""
    drsai = await make({"crew": Crew()}, warm_threads=0)
    answer = ""
    for number in range(6):
        handle = await drsai.engine.start(*asks("crew", [user("hi")], thread_id=str(number)))
        await handle.wait()
        answer = "\n\n".join(done.message.to_text() for done in handle.transcript() if done.shown)
        await (await drsai.engine.start(*asks("crew", [user("more")], thread_id=str(number)))).wait()
    where: list[int] = []

    def reading(*given: object) -> object:
        where.append(threading.get_ident())
        return read_conversation(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(compared, "read_conversation", reading)
    handle = await drsai.engine.start(*asks("crew", [user("hi"), assistant(answer), user("else")]))
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert handle.name.thread_id not in {str(number) for number in range(6)}
    assert 0 < len(where) <= 3
    assert threading.get_ident() not in where or drsai.db.database.dialect == "postgresql"
    path = [
        row.config["content"]
        for row in await drsai.db.get(AutoGenMessage, filters={"thread_id": handle.name.thread_id})
    ]
    assert "more" not in path
    assert path[0] == "hi"


async def spoken(drsai: DrSai, sent: list[InputMessage], thread_id: str | None = None) -> tuple[str, str]:
    """The thread that a history leads to, and what was answered."""
    handle = await drsai.engine.start(*asks("crew", sent, thread_id=thread_id))
    assert (await handle.wait()).status is RunStatus.COMPLETED
    return handle.name.thread_id, "\n\n".join(done.message.to_text() for done in handle.transcript() if done.shown)


async def test_a_thread_that_is_warm_is_found_without_a_query(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    drsai = await make({"crew": Crew()})
    said, asked = [user("one")], 0

    def asking(*given: Any) -> Any:
        nonlocal asked
        asked += 1
        return find_points(*given)

    monkeypatch.setattr(recognise, "find_points", asking)
    thread_id, answer = await spoken(drsai, said)
    for text in ("two", "three"):
        said += [assistant(answer), user(text)]
        found, answer = await spoken(drsai, said)
        assert (found, asked) == (thread_id, 0)
    # Where it is at work, or stands elsewhere now, the query says where it stands.
    assert (await spoken(drsai, [*said[:-1], user("else")]))[0] != thread_id
    assert asked > 0


@pytest.mark.parametrize("who", ["the same process", "another process"])
@pytest.mark.parametrize(
    "what", ["nothing", "said more", "rewound", "deleted", "an equal one", "edited", "said by hand", "another model"]
)
async def test_a_thread_that_is_warm_was_changed(make: Make, what: str, who: str) -> None:
    """A history leads to what the database says, whatever a process remembers."""
    crew = Crew()
    teams = {"crew": crew, "other": crew}
    drsai, another = await make(teams), await make(teams)
    actor = drsai if who == "the same process" else another
    _, first = await spoken(drsai, [user("one")], "t")
    history = [user("one"), assistant(first), user("two")]
    _, second = await spoken(drsai, history)
    sent = [*history, assistant(second), user("three")]
    if what == "said more":
        await spoken(actor, [user("more")], "t")
    elif what == "rewound":
        await actor.engine.rewind(Principal(), "t", Place(at=0))
    elif what == "deleted":
        await actor.engine.delete_thread(Principal(), "t")
    elif what == "an equal one":
        await spoken(actor, [user("one")], "equal")
        assert (await spoken(actor, [user("two")], "equal"))[1] == second
    elif what == "edited":
        thread = await thread_of(actor)
        thread.title = "another title"
        await actor.db.upsert(thread)
    elif what == "said by hand":
        thread = await thread_of(actor)
        thread.messages = [*thread.messages, {**thread.messages[0], "content": "by hand"}]
        await actor.db.upsert(thread)
    elif what == "another model":
        handle = await actor.engine.start(*asks("other", [user("more")], thread_id="t"))
        await handle.wait()
    cold = await make(teams, warm_threads=0)
    recogniser = cold.engine._recogniser
    assert recogniser is not None
    placed = await recogniser.place(admitted("crew", sent))
    found, _ = await spoken(drsai, sent)
    known = {each.thread_id for each in await drsai.db.get(Thread, filters={"user_id": "anonymous"})}
    assert found in known
    if placed.where.thread_id is not None:
        assert found == placed.where.thread_id
    else:
        assert found not in ("t", "equal")
        [made] = await drsai.db.get(Thread, filters={"user_id": "anonymous", "thread_id": found})
        assert said_on(made) == ["one", "two", "three"]
    expected = {"nothing": "t", "edited": "t", "an equal one": "equal"}
    assert placed.where.thread_id == expected.get(what)


async def test_a_window_that_slides_costs_the_same_however_long_the_thread_is(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that names its thread and sends its newest messages alone has no point in common with it."""
    drsai = await make({"crew": Crew()}, warm_threads=0)
    read: list[int] = []
    of_storage = stored.numbered_since, stored.said_since

    def counting(which: int, *given: object) -> list[object]:
        rows = of_storage[which](*given)  # type: ignore[arg-type]
        read.append(len(rows))
        return rows  # type: ignore[return-value]

    counts: list[int] = []
    answer = ""
    for number in range(12):
        sent = [user(f"question {number}")]
        if number in (6, 11):
            sent = [user(f"question {number - 1}"), assistant(answer), *sent]
            read.clear()
            with monkeypatch.context() as patched:
                patched.setattr(stored, "numbered_since", partial(counting, 0))
                patched.setattr(stored, "said_since", partial(counting, 1))
                handle = await drsai.engine.start(*asks("crew", sent, thread_id="t"))
            counts.append(sum(read))
        else:
            handle = await drsai.engine.start(*asks("crew", sent, thread_id="t"))
        assert (await handle.wait()).status is RunStatus.COMPLETED
        answer = "\n\n".join(done.message.to_text() for done in handle.transcript() if done.shown)
    assert counts[0] == counts[1] > 0
    assert said_on(await thread_of(drsai)) == [f"question {number}" for number in range(12)]
