"""A piece that has been read from an endpoint is one write to each who follows."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from autogen_agentchat.agents import AssistantAgent
from starlette.types import Message, Receive, Scope, Send

from drsai_backend import DrSai
from drsai_backend.teams.context import RunContext
from tests.support.model_server import ModelServer, Reply
from tests.support.threads import settings

PIECES = [f"piece{number} " for number in range(8)]
SAID: dict[str, Any] = {"model": "solo", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": SAID,
    "/v1/messages": {**SAID, "max_tokens": 99},
    "/v1/responses": {"model": "solo", "input": "Hi", "stream": True},
}


def solo(context: RunContext) -> AssistantAgent:
    return AssistantAgent("solo", context.model_client(), model_client_stream=True)


@pytest.mark.parametrize("path", ASKED)
async def test_a_piece_is_one_write_to_each_who_follows(path: str, database_url: str) -> None:
    writes: dict[str, list[str]] = {}
    with ModelServer() as models:
        models.script(None, lambda _: Reply("".join(PIECES), chunks=PIECES, chunk_delay=0.3))
        endpoint = {"openai_base_url": models.base_url, "openai_api_key": "unused"}
        async with DrSai({"solo": solo}, database_url, settings=settings(**endpoint)) as drsai:
            app = drsai.app()

            async def recording(scope: Scope, receive: Receive, send: Send) -> None:
                async def sending(message: Message) -> None:
                    if message["type"] == "http.response.body":
                        writes.setdefault(scope["path"], []).append(message["body"].decode())
                    await send(message)

                await app(scope, receive, sending)

            async with httpx.AsyncClient(transport=httpx.ASGITransport(recording), base_url="http://test") as http:
                asked = asyncio.create_task(http.post(path, json=ASKED[path], headers={"X-Thread-Id": "t"}))
                while not (runs := (await http.get("/v1/runs")).json()["data"]):  # noqa: ASYNC110 - the answer tells its run when it has ended
                    await asyncio.sleep(0.01)
                followed = asyncio.create_task(http.get(events := f"/v1/runs/{runs[0]['id']}/events"))
                assert (await asked).status_code == (await followed).status_code == 200
    for sent in writes[path], writes[events]:
        for piece in PIECES[1:]:  # The first may come with what an answer begins with.
            with_it = [write for write in sent if piece in write and PIECES[0] not in write]
            assert [write.count("data: ") for write in with_it] == [1], with_it
