"""A request that is repeated with its idempotency key is answered as it was the first time: whole and streamed, at once
and when the conversation has moved on, by the same process and by another one."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from autogen_agentchat.agents import UserProxyAgent
from autogen_core import FunctionCall
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from PIL import Image as PILImage

from drsai_backend import AssistantAgent, DrSai, RoundRobinGroupChat, requires_approval
from tests.e2e.conftest import Serve
from tests.support.scripted import ScriptedClient
from tests.support.teams.scenarios import SCENARIOS
from tests.support.threads import settings as settings_with

pytestmark = pytest.mark.both_databases

URL = "/v1/chat/completions"


def asking(stream: bool) -> RoundRobinGroupChat:
    """Asks a person in the middle of a turn: first for leave to use a tool, then what they think of it."""

    @requires_approval
    def send(to: str) -> str:
        """Send a mail."""
        return f"sent to {to}"

    def rule(messages: Any, _: Any) -> Any:
        if type(messages[-1]).__name__ == "FunctionExecutionResultMessage":
            return f"told after {len(messages)}"
        return [FunctionCall("1", '{"to": "ada"}', "send")]

    clerk = AssistantAgent(
        "clerk", ScriptedClient(rule), tools=[send], reflect_on_tool_use=True, model_client_stream=stream
    )
    return RoundRobinGroupChat([clerk, UserProxyAgent("boss")], max_turns=3)


TEAMS = {"asking": asking, **{scenario.name: scenario.build for scenario in SCENARIOS}}
# What a stream has shown cannot be taken back: speakers at once, in the order in which they began.
LIVE_ORDER = {"graph_fan_out"}


def png(colour: str) -> str:
    buffer = io.BytesIO()
    PILImage.new("RGB", (2, 2), colour).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def look(colour: str) -> list[Any]:
    return [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": png(colour)}}]


def read(response: httpx.Response) -> dict[str, Any]:
    """What a client sees of an answer, streamed or not, as the object of one that is not."""
    seen = {"status": response.status_code, "run": response.headers.get("x-run-id")}
    if "event-stream" not in response.headers["content-type"]:
        body = response.json()
        if "choices" in body:
            body["text"] = body.pop("choices")[0]["message"]["content"]
            body.pop("object")
        return {**seen, **body}
    frames = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
    if "error" in frames[-1]:
        return {**seen, "status": 424, **frames[-1]}
    text = "".join(choice["delta"].get("content") or "" for frame in frames for choice in frame["choices"])
    names = ("id", "created", "model", "thread_id")
    seen |= {name: frames[-2].get(name) for name in ("service_tier", "system_fingerprint")}
    last = {**{name: frames[0][name] for name in names}, "drsai": frames[-2]["drsai"], "usage": frames[-1]["usage"]}
    return {**seen, **last, "text": text}


async def send(http: httpx.AsyncClient, body: dict[str, Any], key: str, *, stream: bool) -> dict[str, Any]:
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return read(await http.post(URL, json={**body, **options}, headers={"Idempotency-Key": key}))


conversations = st.fixed_dictionaries(
    {
        "team": st.sampled_from(sorted(TEAMS)),
        "models_stream": st.booleans(),
        "streamed": st.booleans(),
        "history": st.booleans(),
        "texts": st.lists(st.sampled_from(["approve", "Begin.", "Go on.", "deny"]), min_size=1, max_size=3),
    }
)


# Not shrunk: that takes longer than to read a conversation of three messages.
@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(conversations)
def test_a_repeated_request_is_answered_as_it_was(sqlite_template: bytes, given: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "a.db"
        file.write_bytes(sqlite_template)
        asyncio.run(_converse(f"sqlite:///{file}", given))


async def _converse(url: str, given: dict[str, Any]) -> None:
    team, streamed = given["team"], given["streamed"]
    async with AsyncExitStack() as stack:
        clients: list[httpx.AsyncClient] = []
        for _ in range(2):
            teams = {team: lambda: TEAMS[team](given["models_stream"])}
            drsai = await stack.enter_async_context(DrSai(teams, url, settings=settings_with()))
            transport = httpx.ASGITransport(app=drsai.app())
            clients.append(
                await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1"))
            )
        answers: list[tuple[dict[str, Any], dict[str, Any]]] = []
        used = 0
        for number, text in enumerate(given["texts"]):
            messages = [{"role": "user", "content": text}]
            if number == 0 and given["history"]:
                earlier = [("system", "Be brief."), ("user", "Before."), ("assistant", "**ann**\n\nEarlier.")]
                messages = [{"role": role, "content": content} for role, content in earlier] + messages
            body = {"model": team, "thread_id": "t", "messages": messages}
            first = await send(clients[0], body, f"k{number}", stream=streamed)
            answers.append((body, first))
            used += first.get("usage", {}).get("total_tokens", 0)
        for number, (body, first) in enumerate([*answers, *reversed(answers)]):
            key = f"k{answers.index((body, first))}"
            for stream in (False, True):
                again = await send(clients[number % 2], body, key, stream=stream)
                if streamed and team in LIVE_ORDER:
                    again["text"] = first["text"]
                assert again == first
        page = (await clients[0].get("/v1/threads/t/runs", params={"limit": 100})).json()["data"]
        runs = [run for run in page if run["joined"] is None]
        assert sum((run["usage"] or {}).get("total_tokens", 0) for run in runs) == used


async def test_an_answer_repeated_on_either_database(serve: Serve) -> None:
    """And the usage of its run is told once."""
    service, other = await serve({"crew": lambda: asking(False)}), await serve({"crew": lambda: asking(False)})
    body: dict[str, Any] = {"model": "crew", "thread_id": "t"}
    firsts: list[dict[str, Any]] = []
    for number, text in enumerate(["Send it.", "approve", "Fine.", "approve"]):
        said = {**body, "messages": [{"role": "user", "content": text}]}
        firsts.append(await send(service.http, said, f"k{number}", stream=False))
        assert await send(other.http, said, f"k{number}", stream=False) == firsts[-1]
    assert len({first["run"] for first in firsts}) == 1
    assert [first["drsai"]["status"] for first in firsts] == ["awaiting_input"] * 3 + ["completed"]
    assert not any("boss" in first["text"].split("\n")[0] for first in firsts[1:])
    run = (await service.http.get(f"/v1/runs/{firsts[0]['run']}")).json()
    assert sum(first["usage"]["total_tokens"] for first in firsts) == run["usage"]["total_tokens"] > 0


@pytest.mark.parametrize("changed", [look("blue"), look("red")[::-1], "look"])
async def test_another_image_is_another_request(serve: Serve, changed: Any) -> None:
    service = await serve({"crew": lambda: AssistantAgent("ann", ScriptedClient(lambda m, o: "I see.", vision=True))})
    body = {"model": "crew", "thread_id": "t", "messages": [{"role": "user", "content": look("red")}]}
    first = await send(service.http, body, "k", stream=False)
    assert first["text"] == "I see."
    assert await send(service.http, body, "k", stream=False) == first
    refused = await send(service.http, {**body, "messages": [{"role": "user", "content": changed}]}, "k", stream=False)
    assert (refused["status"], refused["error"]["code"]) == (409, "idempotency_mismatch")
