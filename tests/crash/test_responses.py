"""A response in the background outlives the process that makes it, and so does the place up to which it was read."""

from __future__ import annotations

import time
from typing import Any

from tests.crash.conftest import Serving
from tests.support.model_server import ModelServer, Reply
from tests.support.open_responses import check_events


def test_a_stream_that_was_cut_by_sigkill_is_continued_by_another_process(serving: Serving, model: ModelServer) -> None:
    model.script("You are ann.", lambda _: "ann says it all")
    model.script("You are bob.", lambda _: Reply("bob was cut off here", chunk_delay=0.2))
    read: list[Any] = []
    with serving.client() as client:
        stream = client.responses.create(model="pair", input="Go.", background=True, stream=True)
        for event in stream:
            read.append(event.to_dict())
            if event.type == "response.output_text.delta" and "was" in event.delta:
                serving.process.die()
                break
    assert any(each["type"] == "response.output_item.done" for each in read), "ann's turn was stored"

    before = len(model.requests)
    model.script("You are bob.", lambda _: "bob was cut off here")
    serving.start()
    response_id, number = read[0]["response"]["id"], read[-1]["sequence_number"]
    with serving.client() as client:
        rest = client.responses.retrieve(response_id, stream=True, starting_after=number)
        events = [*read, *(event.to_dict() for event in rest)]
        last = check_events(events)
        assert last["status"] == "completed"
        texts = [item["content"][0]["text"] for item in last["output"]]
        assert texts == ["**ann**\n\nann says it all", "\n\n**bob**\n\nbob was cut off here"]
        shown = client.responses.retrieve(response_id)
        assert shown.output_text == "".join(texts)
    assert len(model.requests) == before + 1, "ann is not asked again"


def _asked(model: ModelServer, times: int) -> None:
    end = time.monotonic() + 60
    while len(model.requests) < times:
        assert time.monotonic() < end, "no model is asked"
        time.sleep(0.05)


def test_the_process_that_resumes_knows_the_last_message_of_the_one_before(
    serving: Serving, model: ModelServer
) -> None:
    """The answer is that of a turn which was stored before the kill: the run is stopped in the next one."""
    model.script("You are ann.", lambda _: "ann says it all")
    model.script("You are bob.", lambda _: Reply("bob has no end", hang=True))
    with serving.client() as client:
        begun = client.responses.create(model="pair", input="Go.", background=True, extra_body={"shown": "last"})
    _asked(model, 2)
    serving.restart()
    _asked(model, 3)
    with serving.client() as client:
        client.responses.cancel(begun.id)
        end = time.monotonic() + 60
        while (response := client.responses.retrieve(begun.id)).status == "in_progress":
            assert time.monotonic() < end, "the run does not come to an end"
            time.sleep(0.05)
    assert response.output_text == "ann says it all"
