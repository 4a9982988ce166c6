"""The process is killed by SIGKILL while a client waits; its repeated request joins the run that is resumed."""

from __future__ import annotations

import threading
import time
from typing import Any

import openai
import pytest

from tests.crash.conftest import Serving
from tests.support.model_server import ModelServer, Reply


@pytest.mark.parametrize("thread", [{}, {"thread_id": "t"}])
def test_killed_while_a_client_waits(serving: Serving, model: ModelServer, thread: dict[str, str]) -> None:
    model.script(None, lambda _: Reply("It is done.", delay=1))
    body: dict[str, Any] = {"model": "pair", "messages": [{"role": "user", "content": "Do it."}], "extra_body": thread}
    failed: list[Exception] = []

    def ask() -> None:
        with serving.client() as client:
            try:
                client.chat.completions.create(**body)
            except openai.APIConnectionError as error:
                failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    while not model.requests:
        time.sleep(0.01)
    serving.process.die()
    asking.join(10)
    assert failed
    serving.start()
    with serving.client() as client:
        # What the official client says by itself when it sends a request again.
        answer: Any = client.chat.completions.create(**body, extra_headers={"x-stainless-retry-count": "1"})
    assert "It is done." in answer.choices[0].message.content
    [stored] = serving.get("/threads")["data"]
    [run] = serving.get(f"/threads/{stored['thread_id']}/runs")["data"]
    assert (run["run_id"], run["attempt"], run["status"]) == (answer.drsai["run_id"], 2, "completed")
    assert sum(source == "user" for _, source, _ in serving.messages(stored["thread_id"])) == 1
