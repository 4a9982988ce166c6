"""A process is killed while an answer is continued: the next one continues it, from where it began."""

from __future__ import annotations

import pytest

from tests.crash.conftest import Serving
from tests.support.model_server import ModelServer, Reply

PARTIAL, REST = "Once upon", " a time there was."


@pytest.fixture(autouse=True)
def continuing(serving: Serving, model: ModelServer) -> None:
    serving.process.die()
    serving.environment["DRSAI_MODEL_CONTINUES"] = "vllm"
    serving.start()
    model.strict, model.continues = True, "vllm"


def seen_until(serving: Serving, word: str, model: str) -> str:
    """Have an answer continued, and kill the process when its client has been given the word. All that it was given."""
    said = [{"role": "user", "content": "A story"}, {"role": "assistant", "content": PARTIAL}]
    with serving.client() as client:
        stream = client.chat.completions.create(
            model=model,
            messages=said,  # type: ignore[arg-type]
            stream=True,
            extra_body={"thread_id": "t"},
        )
        seen = ""
        for chunk in stream:
            seen += chunk.choices[0].delta.content or ""
            if word in seen:
                break
        serving.process.die()
    return seen


def test_killed_while_an_answer_is_continued(serving: Serving, model: ModelServer) -> None:
    model.script(None, [PARTIAL, Reply(REST, chunks=[" a", " time", " there", " was."], chunk_delay=0.3)])
    serving.say("t", "A story", model="solo")
    assert seen_until(serving, "time", "solo") == " a time"

    model.script(None, [REST, "The end."])
    before = len(model.requests)
    serving.start()
    thread = serving.settled("t")
    assert (thread["status"], thread["error_message"]) == ("completed", None)
    assert [text for _, _, text in serving.messages("t")] == ["A story", PARTIAL + REST]
    [request] = model.requests[before:]
    assert [each["content"] for each in request.messages if each["role"] != "system"] == ["A story", PARTIAL]
    # It is over with that: the next question is one.
    assert serving.say("t", "And?", model="solo").choices[0].message.content == "The end."
    assert request.body["continue_final_message"] is True
    assert "continue_final_message" not in model.requests[-1].body


def test_killed_after_it_was_continued(serving: Serving, model: ModelServer) -> None:
    """Its turn is stored: what the agent says next is a message of its own."""
    model.script(None, [PARTIAL, "Second.", REST, Reply("cut off here", chunk_delay=0.3)])
    serving.say("t", "A story", model="twice")
    seen_until(serving, "off", "twice")
    model.script(None, ["Third."])
    serving.start()
    assert serving.settled("t")["error_message"] is None
    assert [text for _, _, text in serving.messages("t")] == ["A story", PARTIAL + REST, "Third."]
    assert "continue_final_message" not in model.requests[-1].body
