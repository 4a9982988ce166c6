"""What is switched off is refused over each API with the operator's words, before anything is stored; what was begun
before is left alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest

from drsai_backend import DrSai, RunStatus
from drsai_backend.datamodel import utcnow
from drsai_backend.errors import SwitchedOff
from drsai_backend.runs.requests import Answer
from tests.features.switches.conftest import GONE, Make, asking, later_on, threads
from tests.support.model_server import ModelServer
from tests.support.teams.crew import Asker, Crew
from tests.support.threads import QUICK

HELLO: Any = [{"role": "user", "content": "Hello"}]


def openai_of(drsai: DrSai, seen: list[int]) -> openai.AsyncOpenAI:
    async def note(response: httpx.Response) -> None:
        seen.append(response.status_code)

    http: Any = httpx.AsyncClient(transport=asking(drsai).transport, event_hooks={"response": [note]})
    return openai.AsyncOpenAI(base_url="http://test/v1", api_key="k", http_client=http, max_retries=2)


async def test_openais_client_is_told_the_operators_words_at_once(make: Make, model: ModelServer) -> None:
    """And tries it no second time by itself."""
    drsai = await make(embeddings_model="small")
    await drsai.switches.off("team", "research", message=GONE)
    await drsai.switches.off("model", "small", message=GONE)
    seen: list[int] = []
    async with openai_of(drsai, seen) as client:
        calls: list[Any] = [
            lambda: client.chat.completions.create(model="research", messages=HELLO),
            lambda: client.chat.completions.create(model="research", messages=HELLO, stream=True),
            lambda: client.responses.create(model="research", input="Hello"),
            lambda: client.responses.create(model="research", input="Hello", background=True),
            lambda: client.completions.create(model="research", prompt="Hello"),
            lambda: client.embeddings.create(model="small", input="Hello"),
        ]
        for call in calls:
            seen.clear()
            with pytest.raises(openai.InternalServerError) as refused:
                await call()
            assert (refused.value.status_code, refused.value.code) == (503, "switched_off")
            assert GONE in refused.value.message
            assert refused.value.type == "server_error"
            assert "retry-after" not in refused.value.response.headers
            assert seen == [503]
        assert (await client.chat.completions.create(model="other", messages=HELLO)).choices[0].message.content
    assert await threads(drsai) == 1
    assert len(model.requests) == 1


async def test_so_are_the_others(make: Make) -> None:
    drsai = await make()
    await drsai.switches.off("all", message=GONE, until=utcnow() + timedelta(hours=2))
    ann = asking(drsai)
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=ann.app))
    async with anthropic.AsyncAnthropic(api_key="k", base_url="http://test", http_client=http) as client:
        with pytest.raises(anthropic.InternalServerError) as refused:
            await client.messages.create(model="research", max_tokens=5, messages=HELLO)
    assert refused.value.status_code == 503
    said: Any = refused.value.body
    assert (said["type"], said["error"]["message"], said["error"]["code"]) == ("error", GONE, "switched_off")
    assert 7100 < int(refused.value.response.headers["retry-after"]) <= 7200
    task = await ann.http.post("/api/v1/agent/execute", json={"task": "Hello", "mode": "simple"})
    assert (task.status_code, task.json()["detail"], task.json()["error"]["code"]) == (503, GONE, "switched_off")
    titled = await ann.chat(housekeeping=True)
    assert (titled.status_code, titled.json()["error"]["message"]) == (503, GONE)
    with pytest.raises(SwitchedOff, match="Ask the desk") as told:
        await drsai.user("ann").run("research", "Hello")
    assert 7100 < (told.value.after or 0) <= 7200
    assert await threads(drsai) == 0
    assert (await ann.http.get("/v1/threads")).status_code == 200, "reading goes on"


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ({"kind": "team", "name": "research"}, {("acme", "research"), ("other", "research")}),
        ({"kind": "team", "name": "research", "tenant": "acme"}, {("acme", "research")}),
        ({"kind": "tenant", "name": "acme"}, {("acme", "research"), ("acme", "other")}),
        ({"kind": "team", "name": "another"}, set[Any]()),
        ({"kind": "tool", "name": "research"}, set[Any]()),
    ],
)
async def test_only_what_is_off_is_refused(make: Make, said: dict[str, Any], refused: set[tuple[str, str]]) -> None:
    drsai = await make()
    await drsai.switches.off(**said, message=GONE)
    for tenant in ("acme", "other"):
        for team in ("research", "other"):
            status = await asking(drsai, tenant=tenant).status(team, team)
            assert status == (503 if (tenant, team) in refused else 200), (tenant, team)
    assert await drsai.switches.on(**said)
    assert await asking(drsai).status() == 200


async def test_it_is_on_again_when_its_time_is_over(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    drsai = await make()
    await drsai.switches.off("team", "research", message=GONE, until=utcnow() + timedelta(hours=1))
    ann = asking(drsai)
    refused = await ann.chat()
    assert refused.status_code == 503
    assert 3000 < int(refused.headers["retry-after"]) <= 3600
    assert (await drsai.switches.list()).items
    later_on(monkeypatch)
    assert await ann.status() == 200
    assert (await drsai.switches.list()).items == []
    assert not await drsai.switches.on("team", "research"), "it is on"
    assert not drsai.models.switches.off


async def test_runs_under_way_and_what_waits_are_left_alone(make: Make) -> None:
    crew, asker = Crew(), Asker()
    crew.ann.hold()
    drsai = await make({"crew": crew, "asker": asker}, **QUICK)
    ann = drsai.user("ann")
    waiting = await ann.run("asker", "Hello", thread_id="asks")
    live = await ann.start("crew", "One", thread_id="t")
    await crew.ann.asked.wait()
    queued = await ann.start("crew", "Two", thread_id="t", background=True)
    await ann.run("asker", "Hello", thread_id="asks too")
    assert waiting.input_request is not None
    await drsai.switches.off("all", message=GONE)
    with pytest.raises(SwitchedOff):
        await ann.start("crew", "Three", thread_id="t")
    crew.ann.release()
    assert (await live.wait()).status is RunStatus.COMPLETED
    assert (await queued.wait()).status is RunStatus.COMPLETED
    answered = await ann.answer("asks", Answer(str(waiting.input_request["id"]), "This."))
    assert (await answered.wait()).status is RunStatus.COMPLETED
    # A message that says no question's id may begin a run as well.
    with pytest.raises(SwitchedOff):
        await ann.run("asker", "That.", thread_id="asks too")
    assert (await ann.get_thread("asks too")).status is RunStatus.AWAITING_INPUT


async def test_what_was_served_is_answered_again(make: Make) -> None:
    drsai = await make()
    ann, key = asking(drsai), {"Idempotency-Key": "k"}
    body = {"model": "research", "messages": HELLO}
    first = await ann.http.post("/v1/chat/completions", json=body, headers=key)
    await drsai.switches.off("team", "research", message=GONE)
    again = await ann.http.post("/v1/chat/completions", json=body, headers=key)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    other = await ann.http.post("/v1/chat/completions", json=body, headers={"Idempotency-Key": "l"})
    assert other.status_code == 503
    assert await threads(drsai) == 1


async def test_who_may_not_ask_learns_nothing_of_it(make: Make) -> None:
    drsai = await make()
    await drsai.switches.off("team", "secret", message=GONE)
    refused = await asking(drsai).chat("secret")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
