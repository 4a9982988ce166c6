"""A server is killed between sending a webhook and noting that it has arrived, or between the end of a run and sending;
another one sends it, with the same id."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import openai

from tests.crash.conftest import TEAMS
from tests.support.commands import Command, Commands
from tests.support.model_server import ModelServer, Reply
from tests.support.peer import Answer, Peer

SETTINGS = {
    "DRSAI_ALLOWED_ADDRESSES": "127.0.0.1",
    "DRSAI_WEBHOOK_TIMEOUT_SECONDS": "1",
    "DRSAI_SWEEP_SECONDS": "0.1",
    "DRSAI_HEARTBEAT_SECONDS": "0.3",
    "DRSAI_LEASE_SECONDS": "1",
    "DRSAI_SECRET_KEY": "test",
}


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_killed_between_sending_and_marking_and_before(
    commands: Commands, model: ModelServer, database_url: str, tmp_path: Path
) -> None:
    environment = {"OPENAI_BASE_URL": model.base_url, "DRSAI_DATABASE_URL": database_url, **SETTINGS}

    def serve() -> Command:
        return commands.start("serve", str(TEAMS), "--port", "0", cwd=tmp_path, env=environment)

    process, hold = serve(), threading.Event()
    url = process.base_url()
    secret = httpx.post(f"{url}/webhooks/secret").raise_for_status().json()["secret"]
    with Peer(lambda told: Answer(hold=hold)) as peer:

        def begin(text: str) -> str:
            message = {"role": "user", "content": text}
            body = {"model": "pair", "messages": [message], "background": True, "webhook_url": peer.url()}
            return httpx.post(f"{url}/chat/completions", json=body).raise_for_status().json()["id"]

        # 1. The peer has it, and nobody notes that.
        first = begin("First.")
        until(lambda: bool(peer.told))
        process.die()
        hold.set()
        process = serve()
        url = process.base_url()
        until(lambda: len(peer.told) > 1)
        assert {told.id for told in peer.told} == {peer.told[0].id}
        assert {told.event["data"]["id"] for told in peer.told} == {first}

        def states() -> list[tuple[str, str]]:
            listed = httpx.get(f"{url}/webhooks/deliveries").raise_for_status().json()["data"]
            return [(item["run_id"], item["state"]) for item in listed]

        until(lambda: states() == [(first, "delivered")])

        # 2. The run is cut in the middle of its last turn: another process ends it, and tells of it.
        speaking = threading.Event()

        def cut(_: object) -> Reply:
            speaking.set()
            return Reply(content="bob is cut off here", chunk_delay=0.3)

        model.script("You are bob.", cut)
        second = begin("Second.")
        assert speaking.wait(30)
        process.die()
        model.script("You are bob.", lambda _: "bob resumes")
        process = serve()
        url = process.base_url()
        until(lambda: states() == [(second, "delivered"), (first, "delivered")])
        told = [told for told in peer.told if told.event["data"]["id"] == second]
        assert {each.event["type"] for each in told} == {"run.completed"}
        assert len({each.id for each in told}) == 1
        with openai.OpenAI(api_key="unused", webhook_secret=secret) as client:
            for each in peer.told:
                client.webhooks.unwrap(each.body, each.headers)
    process.die()
