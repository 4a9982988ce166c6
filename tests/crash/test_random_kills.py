"""One conversation, its server killed at random moments. What the API has acknowledged is never lost nor doubled."""

from __future__ import annotations

import itertools
import random
import threading
import time

import openai

from tests.crash.conftest import Serving
from tests.support.model_server import ModelServer, Reply

KILLS = 6
"""Per database."""
FRAMES = 30
"""A kill comes after up to so many frames: about three answers. Counted, not timed: machines differ."""
PAUSE = 0.05
"""Up to so many seconds later, so that it also falls between two frames."""


class Conversation:
    """Talks to the server until it dies, and notes what it was told.

    Acknowledged are: the user's message with the first frame of the stream, as by then it is stored; what an agent has
    said as soon as the next one speaks; everything with the end of the stream.
    """

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._numbers = itertools.count(1)
        self.acknowledged: list[tuple[str, str]] = []
        self.finished = 0
        self._frames = 0
        self._killer: threading.Timer

    def until_death(self, frames: int, pause: float) -> None:
        """Send message after message, and kill the server some seconds after some frames were received."""
        self._killer = threading.Timer(pause, self._serving.process.kill)
        self._frames = frames
        self._frame()
        with self._serving.client() as client:
            try:
                while True:
                    self._exchange(client)
            except AssertionError:
                raise
            except Exception as error:  # noqa: BLE001  # however a client says that nobody is there
                broken = error
        assert self._serving.process.wait(10) < 0, broken
        self._killer.join()

    def _frame(self) -> None:
        if self._frames == 0:
            self._killer.start()
        self._frames -= 1

    def _exchange(self, client: openai.OpenAI) -> None:
        text = f"Message {next(self._numbers)}."
        stream = client.chat.completions.create(
            model="pair",
            messages=[{"role": "user", "content": text}],
            stream=True,
            extra_body={"thread_id": "t"},
        )
        spoken: list[tuple[str, str]] = []
        for chunk in stream:
            self._frame()
            if ("user", text) not in self.acknowledged:
                self.acknowledged.append(("user", text))
            delta = chunk.choices[0].delta
            name = (chunk.model_extra or {}).get("drsai", {}).get("source")
            if name is not None:
                if spoken and spoken[0][0] != name:
                    self.acknowledged += spoken  # the agent before this one
                    spoken = []
                text_so_far = (spoken[0][1] if spoken else "") + (delta.content or "")
                spoken = [(name, text_so_far.rpartition("\n")[2])]
            if chunk.choices[0].finish_reason is not None:
                self.acknowledged += spoken
                self.finished += 1
                told = chunk.model_extra["drsai"]["messages"]
                assert [(item["source"], item["content"]) for item in told] == self.acknowledged[-2:]


def test_nothing_acknowledged_is_lost_or_doubled(serving: Serving, model: ModelServer) -> None:
    numbers = itertools.count(1)
    # Two answers are never alike.
    model.script(None, lambda _: Reply(f"answer {next(numbers)}", delay=0.01, chunk_delay=0.01))
    moments = random.Random(20 if serving.database_url.startswith("sqlite") else 18)
    conversation = Conversation(serving)
    seen: list[tuple[int, str, str]] = []
    for kill in range(KILLS):
        if kill % 5 == 4:
            # In the middle of starting, too: of opening the database and ending the runs of the dead.
            serving.process.die()
            serving.launch()
            time.sleep(moments.uniform(0, 0.6))
            serving.process.die()
            serving.start()
        conversation.until_death(moments.randrange(FRAMES), moments.uniform(0, PAUSE))
        serving.restart()
        seen = check(serving, conversation, seen)
    assert conversation.finished >= KILLS // 2
    before = len(model.requests)
    serving.say("t", "The last one.")
    asked = [item["content"] for item in model.requests[before].messages[1:]]
    # All that was said, once, in order.
    stored = [*[(source, text) for _, source, text in seen], ("user", "The last one.")]
    assert asked == [text for _, text in stored]


def check(
    serving: Serving, conversation: Conversation, before: list[tuple[int, str, str]]
) -> list[tuple[int, str, str]]:
    """What is stored when the run that was cut has been gone on with: nothing lost, doubled, out of order or changed
    since last time, and every message of the user is answered."""
    if not serving.get("/threads")["data"]:
        assert not conversation.acknowledged
        return before
    assert serving.settled("t")["status"] == "completed"
    stored: list[tuple[int, str, str]] = []
    while page := serving.get(f"/threads/t/messages?after={len(stored)}")["data"]:
        stored += [(item["seq"], item["source"], item["content"]) for item in page]
    assert [seq for seq, _, _ in stored] == list(range(1, len(stored) + 1))
    assert stored[: len(before)] == before
    assert [source for _, source, _ in stored] == ["user", "ann", "bob"] * (len(stored) // 3)
    texts = [text for _, _, text in stored]
    assert len(set(texts)) == len(texts)
    wanted = conversation.acknowledged
    assert [(source, text) for _, source, text in stored if (source, text) in set(wanted)] == wanted
    return stored
