"""Events arrive at peers that are slow, hang, fail, redirect or are not there; each at least once, with one id."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from email.utils import formatdate
from functools import partial

import openai
import pytest

from drsai_backend.database.webhooks import LOOKED_AT, PER_ENDPOINT, claim, mark_delivered
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import NotFound
from drsai_backend.webhooks.webhooks import Webhooks
from tests.support.peer import Answer, Peer
from tests.support.threads import settings
from tests.webhooks.conftest import ANN, QUICK, Outbox, Send


async def test_signed_as_openais_client_checks_it(outbox: Outbox, send: Send, peer: Peer) -> None:
    send()
    [event_id] = await outbox.put(peer.url("/hook?token=1"))
    [item] = await outbox.over()
    assert (item.state, item.attempts, item.status_code, item.error) == ("delivered", 1, 200, None)
    [told] = peer.told
    assert (told.path, told.id, told.headers["content-type"]) == ("/hook?token=1", event_id, "application/json")
    with openai.OpenAI(api_key="unused", webhook_secret=outbox.secrets[ANN]) as client:
        event = client.webhooks.unwrap(told.body, told.headers)
        assert (event.id, event.type, event.object) == (event_id, "run.completed", "event")
        assert event.created_at == int(item.created_at.timestamp())
        assert told.event["data"] == {"id": "run_0001", "thread_id": "t"}
        with pytest.raises(openai.InvalidWebhookSignatureError):
            client.webhooks.unwrap(told.body + b" ", told.headers)
        with pytest.raises(openai.InvalidWebhookSignatureError):
            client.webhooks.unwrap(told.body, {**told.headers, "webhook-id": "evt_0002"})


@pytest.mark.parametrize(
    ("type", "shown"),
    [("run.completed", "completed"), ("run.failed", "failed"), ("run.stopped", "cancelled")],
)
async def test_a_response_is_told_in_openais_words(
    outbox: Outbox, send: Send, peer: Peer, type: str, shown: str
) -> None:
    send()
    await outbox.put(peer.url(), kind="response", type=type)
    await outbox.over()
    with openai.OpenAI(api_key="unused", webhook_secret=outbox.secrets[ANN]) as client:
        event = client.webhooks.unwrap(peer.told[0].body, peer.told[0].headers)
    assert (event.type, event.data.id) == (f"response.{shown}", "resp_0001")


async def test_a_rotated_secret_signs_beside_the_one_before(outbox: Outbox, send: Send, peer: Peer) -> None:
    await outbox.put(peer.url())
    second = await outbox.webhooks.make_secret(ANN)
    assert second.previous_until is not None
    send()
    await outbox.over()
    [told] = peer.told
    assert len(told.headers["webhook-signature"].split(" ")) == 2
    for secret in (outbox.secrets[ANN], second.secret.get_secret_value()):
        with openai.OpenAI(api_key="unused", webhook_secret=secret) as client:
            client.webhooks.unwrap(told.body, told.headers)
    third = await outbox.webhooks.make_secret(ANN)
    await outbox.put(peer.url())
    await outbox.over()
    with openai.OpenAI(api_key="unused", webhook_secret=third.secret.get_secret_value()) as client:
        client.webhooks.unwrap(peer.told[-1].body, peer.told[-1].headers)
    with (
        openai.OpenAI(api_key="unused", webhook_secret=outbox.secrets[ANN]) as client,
        pytest.raises(openai.InvalidWebhookSignatureError),
    ):
        client.webhooks.unwrap(peer.told[-1].body, peer.told[-1].headers)


async def test_repeated_with_the_same_id_until_it_arrives(outbox: Outbox, send: Send, peer: Peer) -> None:
    answers = iter([500, 429, 404, 204])
    peer.answer = lambda _: next(answers)
    send()
    [event_id] = await outbox.put(peer.url())
    [item] = await outbox.over()
    assert (item.state, item.attempts, item.status_code) == ("delivered", 4, 204)
    assert [(told.id, told.body) for told in peer.told] == [(event_id, peer.told[0].body)] * 4


async def test_given_up_after_the_last_wait_and_retried_by_hand(outbox: Outbox, send: Send, peer: Peer) -> None:
    peer.answer = lambda _: 500
    send()
    [event_id] = await outbox.put(peer.url())
    [item] = await outbox.over()
    assert (item.state, item.attempts, item.status_code) == ("given_up", 4, 500)
    assert item.error == "the answer was 500: no success"
    assert len(peer.told) == 4
    with pytest.raises(NotFound):
        await outbox.webhooks.retry(Owner("default", "bob"), event_id)
    peer.answer = lambda _: 200
    assert (await outbox.webhooks.retry(ANN, event_id)).state == "pending"
    [item] = await outbox.over()
    assert (item.state, item.attempts, peer.told[-1].id) == ("delivered", 1, event_id)


async def test_a_peer_that_wants_no_more_gets_no_more(outbox: Outbox, send: Send, peer: Peer) -> None:
    peer.answer = lambda told: 410 if told.path == "/gone" else 200
    ids = await outbox.put(*[peer.url("/gone")] * 12, peer.url("/other"))
    await outbox.put(peer.url("/gone"), owner=Owner("default", "bob"), attempts=1)
    send()
    items = await outbox.over()
    assert [item.state for item in items] == ["given_up"] * 12 + ["delivered"]
    gone = {told.id for told in peer.told if told.path == "/gone"}
    assert len(gone & {*ids}) <= PER_ENDPOINT  # those that were under way together
    [bobs] = await outbox.over(Owner("default", "bob"))
    assert (bobs.state, bobs.attempts) == ("given_up", 2)


@pytest.mark.parametrize(
    ("status", "headers"), [(302, {"location": "http://127.0.0.1:1/"}), (307, {"location": "/other"})]
)
async def test_redirects_are_not_followed(
    outbox: Outbox, send: Send, peer: Peer, status: int, headers: dict[str, str]
) -> None:
    peer.answer = lambda told: Answer(status, headers) if told.path == "/hook" else 200
    send(webhook_retry_seconds=[])
    await outbox.put(peer.url())
    [item] = await outbox.over()
    assert item.error == f"the answer was {status}: a redirect, which is not followed"
    assert [told.path for told in peer.told] == ["/hook"]


async def test_what_must_not_be_reached_is_not(outbox: Outbox, send: Send, peer: Peer) -> None:
    """Whoever stored the URL, and whatever its name stands for by now."""

    async def rebound(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.2"]

    send(rebound, webhook_retry_seconds=[])
    await outbox.put(f"http://rebound.example:{peer.port}/", "nonsense", "http://[::1", "https://x y/")
    items = await outbox.over()
    assert [item.state for item in items] == ["given_up"] * 4
    assert "must not reach" in (items[0].error or "")
    assert "127.0.0.2" not in (items[0].error or "")
    assert peer.told == []


async def test_peers_that_hang_hold_up_nobody_else(outbox: Outbox, send: Send, peer: Peer) -> None:
    """A thousand events are due; most of them for a peer that never answers, or never ends its answer."""
    with Peer(lambda told: Answer(hold=threading.Event()) if told.path == "/hangs" else Answer(drip=True)) as dead:
        dead_ids = await outbox.put(*[dead.url("/hangs"), dead.url("/drips")] * 400)
        live_ids = await outbox.put(*[peer.url()] * 200)
        bob = Owner("default", "bob")
        bobs = await outbox.put(*[peer.url("/bob")] * 5, owner=bob)
        send(webhook_timeout_seconds=60)
        assert {item.state for item in await outbox.over(bob)} == {"delivered"}
        async with asyncio.timeout(60):
            while len(peer.told) < 205:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert {told.id for told in peer.told} == {*live_ids, *bobs}
        assert len(dead.told) <= PER_ENDPOINT
        assert peer.most <= PER_ENDPOINT
        states = Counter(item.state for item in await outbox.all() if item.event_id in dead_ids)
        assert states == {"pending": 800}


async def test_two_senders_send_each_once(outbox: Outbox, send: Send, peer: Peer) -> None:
    ids = await outbox.put(*[peer.url(f"/{number}") for number in range(60)])
    for _ in range(2):
        send()
    items = await outbox.over()
    assert {(item.state, item.attempts) for item in items} == {("delivered", 1)}
    assert sorted(told.id for told in peer.told) == sorted(ids)


async def test_a_claim_looks_past_an_endpoint_that_is_full_and_at_no_more_than_it_must(outbox: Outbox) -> None:
    """Which it chooses from is bounded; whoever comes after that many is still reached."""
    await outbox.put(*["https://dead.example/"] * (LOOKED_AT + 1))
    bob = Owner("default", "bob")
    [late] = await outbox.put("https://live.example/", owner=bob)
    take = partial(claim, lease=timedelta(seconds=60), limit=16)
    first = await outbox.db.database.write(partial(take, name="first"))
    assert [due.endpoint for due in first] == ["https://dead.example"] * PER_ENDPOINT
    second = await outbox.db.database.write(partial(take, name="second", full_endpoints=["https://dead.example"]))
    assert [due.event_id for due in second] == [late]
    assert await outbox.db.database.write(partial(take, name="third", full_users=[ANN])) == []


async def test_a_claim_ends_with_its_holder(outbox: Outbox, send: Send, peer: Peer) -> None:
    """A sender that died after the peer had answered: once more, with the same id; the dead one marks nothing."""
    [event_id] = await outbox.put(peer.url())
    database = outbox.db.database
    # In one transaction, as the claim ends soon.
    [due], of_others = await database.write(
        lambda session: (
            claim(session, "dead", timedelta(seconds=0.3), 10),
            claim(session, "other", timedelta(seconds=9), 10),
        )
    )
    assert of_others == []
    send()
    [item] = await outbox.over()
    assert (item.state, item.attempts, [told.id for told in peer.told]) == ("delivered", 2, [event_id])
    assert not await database.write(lambda session: mark_delivered(session, due, 200))


async def test_processes_that_die_of_an_event_do_not_for_ever(outbox: Outbox, send: Send, peer: Peer) -> None:
    await outbox.put(peer.url(), attempts=4)
    send()
    [item] = await outbox.over()
    assert (item.state, peer.told) == ("given_up", [])


@pytest.mark.parametrize("as_date", [False, True])
async def test_a_peer_may_ask_for_time(outbox: Outbox, send: Send, peer: Peer, as_date: bool) -> None:
    wait = formatdate(time.time() + 3600, usegmt=True) if as_date else "3600"
    peer.answer = lambda _: Answer(503, {"retry-after": wait})
    send()
    await outbox.put(peer.url())
    async with asyncio.timeout(30):
        while (await outbox.all())[0].status_code is None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    [item] = await outbox.all()
    assert item.next_at is not None
    assert 3500 < (item.next_at - item.created_at).total_seconds() < 3700


async def test_what_a_peer_wants_kept_is_not(outbox: Outbox, send: Send, peer: Peer) -> None:
    """Neither sent to it with another user's event, nor held without a bound."""
    peer.answer = lambda told: Answer(200, {"set-cookie": f"seen{len(peer.told)}={told.id}; Path=/"})
    sender = send()
    for number in (1, 2):
        await outbox.put(peer.url())
        sender.wake()
        await outbox.over()
        assert len(peer.told) == number
    assert [told.headers.get("cookie") for told in peer.told] == [None, None]


async def test_old_ones_are_pruned_and_pending_ones_are_not(outbox: Outbox, send: Send, peer: Peer) -> None:
    send()
    await outbox.put(peer.url())
    await outbox.over()
    await outbox.put("https://127.0.0.1/", next_at=(await outbox.all())[0].created_at + timedelta(days=1))
    assert await outbox.webhooks.prune() == 0
    at_once = Webhooks(outbox.db, settings(**QUICK, webhook_keep_days=1e-9))
    assert await at_once.prune() == 1
    assert [item.state for item in await outbox.all()] == ["pending"]


async def test_a_secret_is_ciphertext_in_the_database(outbox: Outbox) -> None:
    secret = (await outbox.webhooks.make_secret(ANN)).secret
    assert await outbox.webhooks.ensure_secret(ANN) is None
    from drsai_backend.datamodel import WebhookSecret

    [row] = await outbox.db.get(WebhookSecret)
    assert secret.get_secret_value() not in repr(row) + json.dumps(row.model_dump(mode="json"))
    assert secret.get_secret_value() not in repr(secret)
