"""The process is killed by SIGKILL, another one goes on by `thread_id`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.crash.conftest import Serving
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall


def said(request: ModelRequest) -> list[tuple[str, str]]:
    """What a model was asked: (who, text), where who is the name of another agent, "user", "me" or "system"."""
    who = {"assistant": "me"}
    return [
        (item.get("name") or who.get(item["role"], item["role"]), item.get("content") or "")
        for item in request.messages
    ]


def requests_of(model: ModelServer, name: str) -> list[ModelRequest]:
    return [request for request in model.requests if f"You are {name}." in request.system]


def numbered(model: ModelServer, *names: str) -> None:
    """Every agent counts its own answers, so that no two are alike."""
    for name in names:
        counter = iter(range(1, 1000))
        model.script(f"You are {name}.", lambda _, name=name, counter=counter: f"{name} says {next(counter)}")


def cut_in_the_middle(serving: Serving, thread_id: str, text: str, *, at: str, model: str = "pair") -> str:
    """Kill the server while `at` is shown to a streaming client. Returns what the client has seen."""
    seen = ""
    with serving.client() as client:
        stream = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": text}],
            stream=True,
            extra_body={"thread_id": thread_id},
        )
        for chunk in stream:
            seen += chunk.choices[0].delta.content or ""
            if at in seen:
                serving.process.die()
                return seen
    pytest.fail(f"the answer came to an end without {at!r}")


def test_killed_while_the_second_agent_speaks(serving: Serving, model: ModelServer) -> None:
    numbered(model, "ann", "bob")
    serving.say("t", "First.")
    model.script("You are bob.", lambda _: Reply(content="bob was cut off here" + ", and here" * 20, chunk_delay=0.15))
    cut_in_the_middle(serving, "t", "Second.", at="bob was")

    model.script("You are bob.", lambda _: "bob goes on")
    before = len(model.requests)
    serving.start()
    thread = serving.settled("t")
    assert (thread["status"], thread["error_message"]) == ("completed", None)
    whole = [(1, "user", "First."), (2, "ann", "ann says 1"), (3, "bob", "bob says 1")]
    whole += [(4, "user", "Second."), (5, "ann", "ann says 2"), (6, "bob", "bob goes on")]
    assert serving.messages("t") == whole
    runs = serving.get("/threads/t/runs")["data"]
    assert [(run["status"], run["attempt"]) for run in runs] == [("completed", 2), ("completed", 1)]

    # Ann's turn was stored: her model is not asked again.
    (bob,) = model.requests[before:]
    assert said(bob) == [
        ("system", "You are bob."),
        ("user", "First."),
        ("ann", "ann says 1"),
        ("me", "bob says 1"),
        ("user", "Second."),
        ("ann", "ann says 2"),
    ]
    answer = serving.say("t", "Third.")
    assert answer.choices[0].message.content == "**ann**\n\nann says 3\n\n**bob**\n\nbob goes on"


def test_killed_before_the_first_turn_ended(serving: Serving, model: ModelServer) -> None:
    """The user's message was acknowledged by the first frame of the stream, so it is there, and answered."""
    model.script("You are ann.", lambda _: Reply(content="ann was cut off here" + ", and here" * 20, chunk_delay=0.15))
    cut_in_the_middle(serving, "t", "First.", at="ann was")
    numbered(model, "ann", "bob")
    serving.start()
    assert serving.settled("t")["status"] == "completed"
    assert [text for _, _, text in serving.messages("t")] == ["First.", "ann says 1", "bob says 1"]
    serving.say("t", "Second.")
    assert [text for _, _, text in serving.messages("t")][3:] == ["Second.", "ann says 2", "bob says 2"]


def test_killed_between_runs(serving: Serving, model: ModelServer) -> None:
    numbered(model, "ann", "bob")
    for number in range(1, 4):
        serving.say("t", f"Message {number}.")
        serving.restart()
        assert serving.thread("t")["status"] == "completed"
    texts = [
        text for number in (1, 2, 3) for text in (f"Message {number}.", f"ann says {number}", f"bob says {number}")
    ]
    assert [(seq, text) for seq, _, text in serving.messages("t")] == list(enumerate(texts, 1))
    assert [text for _, text in said(model.requests[-1])[1:]] == texts[:-1]


def test_a_person_answers_after_any_number_of_kills(serving: Serving, model: ModelServer) -> None:
    def asker(request: ModelRequest) -> Reply | str:
        last = said(request)[-1]
        if last == ("person", "In June."):
            return "June it is. DONE"
        if last[0] == "person":
            return Reply("What do you mean by that?")
        return "When does it start?"

    model.script("You are asker.", asker)
    asked = serving.say("t", "Plan a trip.", model="asking")
    assert asked.drsai["status"] == "awaiting_input"
    question = asked.drsai["input_request"]["prompt"]
    assert question in asked.choices[0].message.content
    for _ in range(2):
        serving.restart()
        thread = serving.thread("t")
        assert (thread["status"], thread["error_message"]) == ("awaiting_input", None)
        assert thread["input_request"]["prompt"] == question
    again = serving.say("t", "Soon.", model="asking")
    assert again.drsai["status"] == "awaiting_input"
    serving.restart()
    done = serving.say("t", "In June.", model="asking")
    assert done.drsai["status"] == "completed"
    assert said(model.requests[-1])[1:] == [
        ("user", "Plan a trip."),
        ("me", "When does it start?"),
        ("person", "Soon."),
        ("me", "What do you mean by that?"),
        ("person", "In June."),
    ]
    assert [text for _, source, text in serving.messages("t") if source == "asker"] == [
        "When does it start?",
        "What do you mean by that?",
        "June it is. DONE",
    ]


def test_killed_while_an_answer_is_worked_on(serving: Serving, model: ModelServer) -> None:
    model.script("You are asker.", lambda _: "When does it start?")
    serving.say("t", "Plan a trip.", model="asking")
    model.script("You are asker.", lambda _: Reply("June it is and nothing else", chunk_delay=0.15))
    cut_in_the_middle(serving, "t", "In June.", at="June it", model="asking")
    model.script("You are asker.", lambda _: "June it is. DONE")
    serving.start()
    assert serving.settled("t")["status"] == "completed"
    said = [(source, text) for _, source, text in serving.messages("t") if text]
    # The turn in which the person answered was finished, so the answer is remembered, once: as what was decided about
    # the question, and as what the person says in the chat.
    assert said == [
        ("user", "Plan a trip."),
        ("asker", "When does it start?"),
        ("user", "In June."),
        ("person", "In June."),
        ("asker", "June it is. DONE"),
    ]


def test_a_swarm_that_asked_the_user_goes_on_with_whom_asked(serving: Serving, model: ModelServer) -> None:
    def expert(request: ModelRequest) -> Reply | str:
        if any("Blue." in text for _, text in said(request)):
            return "Blue is in stock. DONE"
        return Reply(tool_calls=[ToolCall("transfer_to_user")])

    model.script("You are clerk.", lambda _: Reply(tool_calls=[ToolCall("transfer_to_expert")]))
    model.script("You are expert.", expert)
    asked = serving.say("t", "I want a lamp.", model="desk")
    assert asked.drsai["status"] == "awaiting_input"
    assert asked.drsai["input_request"]["source"] == "expert"
    for _ in range(2):
        serving.restart()
        assert serving.thread("t")["status"] == "awaiting_input"
    clerks = len(requests_of(model, "clerk"))
    done = serving.say("t", "Blue.", model="desk")
    assert done.drsai["status"] == "completed"
    assert "Blue is in stock. DONE" in done.choices[0].message.content
    assert len(requests_of(model, "clerk")) == clerks
    texts = [text for _, text in said(model.requests[-1])]
    assert [texts.count(text) for text in ("I want a lamp.", "Blue.")] == [1, 1]


@pytest.fixture
def other(commands: Any, model: ModelServer, database_url: str, tmp_path: Any) -> Iterator[Serving]:
    """A second server on the same database."""
    folder = tmp_path / "other"
    folder.mkdir()
    second = Serving(commands, model, database_url, folder)
    second.start()
    yield second
    second.process.die()


def test_another_server_takes_over_at_once(serving: Serving, other: Serving, model: ModelServer) -> None:
    """It need not be started after the death: the dead owner is noticed when the thread is asked for. What was under
    way comes first."""
    numbered(model, "bob")
    model.script("You are ann.", lambda _: Reply("ann was cut off here" + ", and here" * 20, chunk_delay=0.15))
    cut_in_the_middle(serving, "t", "First.", at="ann was")
    model.script("You are ann.", lambda _: "ann goes on")
    other.say("t", "Second.")
    texts = ["First.", "ann goes on", "bob says 1", "Second.", "ann goes on", "bob says 2"]
    assert [text for _, _, text in other.messages("t")] == texts
