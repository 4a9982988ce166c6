"""Requests and tokens a minute: who has used up a limit is told when to ask again, and nothing is stored for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import openai
import pytest

from drsai_backend import DrSai
from drsai_backend.database.backends import round_trip
from drsai_backend.database.hooks import CallsOf, Hooks, MadeCall
from drsai_backend.errors import TooManyRequests
from drsai_backend.features.limits import buckets
from drsai_backend.features.limits.base import Bound, Who
from tests.features.limits.conftest import Asking, Make, ahead, asking, error_of, threads, use_up
from tests.support.model_server import ModelServer

ANN = Who("user", "acme", "ann")
TENANT = Who("tenant", "acme")


def told(response: httpx.Response, measure: str = "requests") -> tuple[int, int]:
    """The limit, and what is left of it."""
    names = (f"x-ratelimit-{what}-{measure}" for what in ("limit", "remaining"))
    limit, left = (int(response.headers[name]) for name in names)
    return limit, left


async def test_a_user_has_so_many_a_minute(make: Make) -> None:
    drsai = await make(limit_user={"requests": 3})
    ann, bob = asking(drsai), asking(drsai, "bob")
    for left in (2, 1, 0):
        response = await ann.chat()
        assert response.status_code == 200, response.text
        assert told(response) == (3, left)
        assert int(response.headers["x-ratelimit-limit"]) == 3
        assert int(response.headers["x-ratelimit-remaining"]) == left
        assert 0 < int(response.headers["x-ratelimit-reset"]) <= 60
    for thread in ("u", "v"):
        refused = await ann.chat(thread)
        assert refused.status_code == 429
        assert 0 < int(refused.headers["retry-after"]) <= 20
        assert told(refused) == (3, 0)
        assert error_of(refused) == {
            "message": error_of(refused)["message"],
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
        assert "the limit of 3 requests a minute for you is reached: try again in" in error_of(refused)["message"]
    assert (await bob.chat()).status_code == 200
    assert await threads(drsai) == 2
    # What begins no run is told how much is left, and takes nothing.
    listed = await ann.http.get("/v1/threads")
    assert (listed.status_code, told(listed)) == (200, (3, 0))


async def test_another_process_knows_it(make: Make) -> None:
    here, there = await make(limit_user={"requests": 4}), await make(limit_user={"requests": 4})
    asked = [asking(drsai) for drsai in (here, there)]
    answers = [await asked[n % 2].chat() for n in range(6)]
    assert [each.status_code for each in answers] == [200] * 4 + [429] * 2
    # The thread was another process's each time: what was stored for nobody is charged to nobody.
    assert [told(each)[1] for each in answers] == [3, 2, 1, 0, 0, 0]


async def test_a_clock_that_is_set_back_locks_nobody_out(make: Make) -> None:
    here, there = await make(limit_user={"requests": 2}), await make(limit_user={"requests": 2})
    await use_up(here, Bound(ANN, "requests", 2), 3600)
    for drsai in (here, there):
        assert await asking(drsai).statuses(1) == [200]
    assert await asking(here).statuses(1) == [429]
    assert await ahead(here, Bound(ANN, "requests", 2)) == pytest.approx(2, abs=0.5)


async def test_each_who_is_limited_counts_and_a_refusal_takes_nothing(make: Make) -> None:
    drsai = await make(limit_user={"requests": 2}, limit_tenant={"requests": 3}, limit_all={"requests": 100})
    assert await asking(drsai).statuses(4) == [200, 200, 429, 429]
    assert await asking(drsai, "bob").statuses(2) == [200, 429]
    assert await asking(drsai, "bob", "other").statuses(1) == [200]
    assert await ahead(drsai, Bound(TENANT, "requests", 3)) == pytest.approx(3, abs=0.5)


async def test_a_key_has_its_own(make: Make) -> None:
    drsai = await make(limit_key={"requests": 1})
    assert await asking(drsai, key_id="key_a").statuses(2) == [200, 429]
    assert await asking(drsai, key_id="key_b").statuses(1) == [200]
    assert await asking(drsai).statuses(2) == [200, 200]


async def test_who_is_refused_asks_the_database_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    drsai = await make(limit_user={"requests": 1})
    ann = asking(drsai)
    monkeypatch.setattr(buckets, "_BELIEVED", 10**12)
    assert await ann.statuses(2) == [200, 429]

    async def write(*_: Any, **__: Any) -> None:
        raise AssertionError("the database is asked")

    monkeypatch.setattr(drsai.database, "write", write)
    assert await ann.statuses(3) == [429] * 3
    monkeypatch.undo()


async def test_a_repeat_of_what_was_served_is_no_request(make: Make) -> None:
    drsai = await make(limit_user={"requests": 1})
    ann = asking(drsai)
    body = {"model": "plain", "messages": [{"role": "user", "content": "Hello"}]}
    answers = [
        await ann.http.post("/v1/chat/completions", json=body, headers={"Idempotency-Key": "k"}) for _ in range(3)
    ]
    assert [each.status_code for each in answers] == [200] * 3
    assert (await ann.chat()).status_code == 429


async def test_the_words_of_each_api(make: Make) -> None:
    drsai = await make(limit_user={"requests": 60})
    await use_up(drsai, Bound(ANN, "requests", 60), 110)
    http = asking(drsai).http
    hello = [{"role": "user", "content": "Hello"}]
    asked: dict[str, dict[str, Any]] = {
        "/v1/messages": {"model": "plain", "messages": hello, "max_tokens": 5},
        "/v1/responses": {"model": "plain", "input": "Hello"},
        "/v1/completions": {"model": "plain", "prompt": "Hello"},
        "/api/v1/agent/execute": {"task": "Hello", "mode": "simple"},
    }
    for path, body in asked.items():
        refused = await http.post(path, json=body)
        assert refused.status_code == 429, path
        assert 30 < int(refused.headers["retry-after"]) <= 60, path
        assert refused.headers["x-ratelimit-limit-requests"] == "60", path
        said = refused.json()
        if path == "/v1/messages":
            assert (said["type"], said["error"]["type"]) == ("error", "rate_limit_error")
        elif path == "/api/v1/agent/execute":
            assert "try again in" in said["detail"]
        assert said["error"]["code"] == "rate_limit_exceeded"
    streamed = await asking(drsai).chat(stream=True)
    assert (streamed.status_code, streamed.headers["content-type"]) == (429, "application/json")


async def test_the_official_client_waits_and_asks_again(make: Make) -> None:
    drsai = await make(limit_user={"requests": 100})
    await use_up(drsai, Bound(Who("user", "default", "anonymous"), "requests", 100), 64)
    seen: list[int] = []

    async def note(response: httpx.Response) -> None:
        seen.append(response.status_code)

    transport = httpx.ASGITransport(app=drsai.app(is_open=True))
    http: Any = httpx.AsyncClient(transport=transport, event_hooks={"response": [note]})
    async with openai.AsyncOpenAI(base_url="http://test/v1", api_key="k", http_client=http, max_retries=1) as client:
        said = await client.chat.completions.create(model="plain", messages=[{"role": "user", "content": "Hello"}])
        assert said.choices[0].message.content == "Fine."
        assert seen == [429, 200]
        await use_up(drsai, Bound(Who("all"), "requests", 1), 120)
        await drsai.limits.set("all", requests=1)
        await drsai.limits.set("user", "anonymous", requests=0)  # Its bucket is full for a moment still.
        once = client.with_options(max_retries=0)
        assert (await once.models.list()).data
        with pytest.raises(openai.RateLimitError) as refused:
            await once.responses.create(model="plain", input="Hello")
    assert refused.value.code == "rate_limit_exceeded"
    assert 100 < int(refused.value.response.headers["retry-after"]) <= 120


async def test_programs_are_limited_as_clients_are(make: Make) -> None:
    drsai = await make(limit_user={"requests": 1})
    await drsai.user("ann").run("plain", "Hello")
    for background in (False, True):
        with pytest.raises(TooManyRequests) as refused:
            await drsai.user("ann").start("plain", "Hello", background=background)
        assert 0 < refused.value.after <= 60


async def test_what_waits_in_a_queue_is_charged_when_it_is_stored(make: Make) -> None:
    drsai = await make(limit_user={"requests": 2})
    ann = asking(drsai)
    assert await ann.statuses(3, background=True) == [202, 202, 429]


async def test_tokens_are_taken_before_and_settled_after(make: Make, model: ModelServer) -> None:
    drsai = await make(limit_user={"tokens": 600})
    of, ann = Bound(ANN, "tokens", 600), asking(drsai)
    response = await ann.chat(max_tokens=400)
    # The headers are those of the beginning: a word, and the longest answer.
    assert told(response, "tokens") == (600, 198)
    assert await ahead(drsai, of) == pytest.approx(110, abs=80)
    assert told(await ann.http.get("/v1/threads"), "tokens")[1] == pytest.approx(490, abs=80)
    # More than there ever is passes when all of it is there, and alone.
    refused = await ann.chat(max_tokens=10_000)
    assert refused.status_code == 429
    assert "the limit of 600 tokens a minute" in error_of(refused)["message"]
    for _ in range(4):
        assert (await ann.chat()).status_code == 200
    assert 400 < await ahead(drsai, of) <= 550
    assert (await ann.chat(max_tokens=500)).status_code == 429


async def test_what_was_taken_before_is_given_back_where_calls_are_given_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the first write with them was cut off."""
    once = Hooks.of_calls

    def again(hooks: Hooks, of: CallsOf, calls: Sequence[MadeCall]) -> list[Any]:
        once(hooks, of, calls)
        return once(hooks, of, calls)

    monkeypatch.setattr(Hooks, "of_calls", again)
    drsai = await make(limit_user={"tokens": 600})
    assert (await asking(drsai).chat(max_tokens=400)).status_code == 200
    assert await ahead(drsai, Bound(ANN, "tokens", 600)) == pytest.approx(110, abs=80)


async def test_what_models_have_used_is_taken_though_it_is_too_much(make: Make) -> None:
    drsai = await make(limit_user={"tokens": 100}, limit_tenant={"tokens": 1000})
    ann = asking(drsai)
    assert (await ann.chat()).status_code == 200
    assert await ahead(drsai, Bound(ANN, "tokens", 100)) == pytest.approx(110, abs=9)
    assert await ahead(drsai, Bound(TENANT, "tokens", 1000)) == pytest.approx(110, abs=80)
    assert (await ann.chat()).status_code == 429


async def test_calls_beside_runs_count_as_tokens(make: Make) -> None:
    drsai = await make(limit_user={"tokens": 1000})
    ann = asking(drsai)
    assert (await ann.chat(housekeeping=True)).status_code == 200
    assert await ahead(drsai, Bound(ANN, "tokens", 1000)) == pytest.approx(110, abs=80)
    await drsai.limits.set("user", "ann", tenant="acme", requests=1)
    assert [(await ann.chat(housekeeping=True)).status_code for _ in range(2)] == [200, 429]


async def test_many_on_one_thread_do_not_lock_each_other_out(make: Make) -> None:
    """Requests lock limits before their thread, turns of runs their thread before limits."""
    given = {"limit_user": {"requests": 1000, "tokens": 1_000_000}, "limit_tenant": {"tokens": 1_000_000}}
    asked = [asking(await make(**given)) for _ in range(2)]
    answers = await asyncio.gather(*(asked[n % 2].chat(background=n % 3 == 0) for n in range(24)))
    assert [each.text for each in answers if each.status_code not in (200, 202)] == []


async def test_an_address_has_so_many_whoever_asks(make: Make) -> None:
    drsai = await make(limit_address=3, auth="required")
    nobody = Asking(drsai, None)
    answers = [await nobody.http.get("/v1/threads") for _ in range(5)]
    assert [each.status_code for each in answers] == [401] * 3 + [429] * 2
    assert [each.headers["x-ratelimit-remaining"] for each in answers] == ["2", "1", "0", "0", "0"]
    assert 0 < int(answers[-1].headers["retry-after"]) <= 20
    assert error_of(answers[-1])["code"] == "rate_limit_exceeded"
    spoken = await nobody.http.post("/v1/messages", json={})
    assert spoken.json()["error"]["type"] == "rate_limit_error"
    assert (await nobody.http.get("/healthz")).status_code == 200


async def test_nothing_is_told_where_no_limit_is_set(make: Make) -> None:
    response = await asking(await make()).chat()
    assert response.status_code == 200
    assert not [name for name in response.headers if "ratelimit" in name]


@pytest.mark.parametrize("limits", [{"requests": 50}, {"requests": 50, "tokens": 100_000}])
async def test_a_limit_takes_no_round_trip(make: Make, monkeypatch: pytest.MonkeyPatch, limits: Any) -> None:
    """One statement more, in the write that there is: counted on PostgreSQL, where it matters."""
    trips: list[int] = []
    at_once = round_trip.in_one_round_trip

    async def counted(driver: Any, texts: Any, *args: Any, **more: Any) -> Any:
        trips.append(len(texts))
        return await at_once(driver, texts, *args, **more)

    monkeypatch.setattr(round_trip, "in_one_round_trip", counted)

    async def of(drsai: DrSai) -> list[int]:
        ann = asking(drsai)
        for _ in range(2):
            trips.clear()
            assert (await ann.chat()).status_code == 200
        return [*trips]

    without = await of(await make())
    limited = await of(await make(limit_user=limits))
    if without:  # on PostgreSQL
        assert len(limited) == len(without)
        assert sum(limited) == sum(without) + 1 + int("tokens" in limits)
