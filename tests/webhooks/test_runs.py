"""Background runs tell webhooks of their ends, by the same transaction that stores them; other runs pay nothing."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import sqlalchemy as sa

from drsai_backend import DrSai
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.database.webhook_views import DeliveryInfo
from drsai_backend.datamodel import RunWebhook, WebhookDelivery, table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import InsufficientScope, InvalidRequest, NotFound, RefusedAddress
from drsai_backend.runs import InputMessage
from tests.e2e.conftest import Serve
from tests.e2e.conftest import model as _model
from tests.e2e.conftest import serve as _serve
from tests.support.asks import Asked, asks
from tests.support.model_server import Failure, ModelServer
from tests.support.peer import Answer, Peer
from tests.support.threads import settings, until
from tests.webhooks.conftest import QUICK

model, serve = _model, _serve
ANN = Owner("default", "anonymous")
HELLO = [{"role": "user", "content": "Hello."}]


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as peer:
        yield peer


def asking() -> Any:
    from autogen_agentchat.agents import UserProxyAgent
    from autogen_agentchat.teams import RoundRobinGroupChat

    return RoundRobinGroupChat([UserProxyAgent("person")], max_turns=1)


async def over(drsai: DrSai, count: int, owner: Owner = ANN) -> list[DeliveryInfo]:
    """The events of the owner, oldest first, once there are `count` and all have arrived."""

    async def all_arrived() -> bool:
        items = (await drsai.webhooks.list(owner)).items
        return len(items) >= count and all(item.state == "delivered" for item in items)

    await until(all_arrived)
    items = (await drsai.webhooks.list(owner)).items[::-1]
    assert len(items) == count
    return items


async def test_a_background_run_is_told_of(serve: Serve, model: ModelServer, peer: Peer) -> None:
    service = await serve(**QUICK)
    secret = (await service.http.post("/v1/webhooks/secret")).json()["secret"]
    body = {"model": "assistant", "messages": HELLO, "background": True, "webhook_url": peer.url("/a?b=c")}
    accepted = await service.http.post("/v1/chat/completions", json=body)
    assert accepted.status_code == 202
    [item] = await over(service.drsai, 1)
    with openai.OpenAI(api_key="unused", webhook_secret=secret) as client:
        event: Any = client.webhooks.unwrap(peer.told[0].body, peer.told[0].headers)
    assert (event.type, event.data.id) == ("run.completed", accepted.json()["id"])
    run = (await service.http.get(f"/v1/runs/{event.data.id}")).json()
    assert (run["status"], run["thread_id"]) == ("completed", event.data.thread_id)
    listed = (await service.http.get("/v1/webhooks/deliveries")).json()["data"]
    assert [(each["id"], each["state"], each["url"]) for each in listed] == [
        (item.event_id, "delivered", peer.url("/a?b=c"))
    ]
    again = await service.http.post(f"/v1/webhooks/deliveries/{item.event_id}/retry")
    assert again.json()["state"] == "pending"
    await over(service.drsai, 1)
    assert [told.id for told in peer.told] == [item.event_id] * 2
    assert b"Hello" not in peer.told[0].body


async def test_a_run_that_asks_for_more_webhooks_than_may_wait_is_refused(serve: Serve, model: ModelServer) -> None:
    """Nothing is stored; a run that asks for none begins."""
    with Peer(lambda _: Answer(hold=threading.Event())) as dead:
        service = await serve(**QUICK | {"webhook_timeout_seconds": 60}, webhook_max_pending=1)
        await service.drsai.webhooks.make_secret(ANN)
        body = {"model": "assistant", "messages": HELLO, "background": True, "thread_id": "t"}
        first = await service.http.post("/v1/chat/completions", json={**body, "webhook_url": dead.url()})
        await until(lambda: _pending(service.drsai))
        refused = await service.http.post(
            "/v1/chat/completions", json={**body, "thread_id": "u", "webhook_url": dead.url()}
        )
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_webhooks")
        assert (await service.http.get("/v1/threads/u")).status_code == 404
        plain = await service.http.post("/v1/chat/completions", json=body)
        assert (first.status_code, plain.status_code) == (202, 202)
        assert len((await service.http.get("/v1/runs")).json()["data"]) == 2


async def _pending(drsai: DrSai) -> bool:
    return len((await drsai.webhooks.list(ANN)).items) == 1


async def test_each_end_is_told_and_each_once(serve: Serve, model: ModelServer, peer: Peer) -> None:
    """It asks, is answered in the foreground, and ends; a second one is stopped while it asks."""
    service = await serve({"asking": asking}, **QUICK)
    drsai = service.drsai
    await drsai.webhooks.make_secret(ANN)
    first = await drsai.start("asking", "Plan.", background=True, thread_id="t", webhook_url=peer.url())
    assert (await over(drsai, 1))[0].type == "run.awaiting_input"
    await drsai.run("asking", "In June.", thread_id="t")
    assert [item.type for item in await over(drsai, 2)] == ["run.awaiting_input", "run.completed"]
    assert [told.event["data"]["id"] for told in peer.told] == [first.run_id] * 2
    assert len({told.id for told in peer.told}) == 2

    second = await drsai.start("asking", "Plan.", background=True, thread_id="u", webhook_url=peer.url())
    await over(drsai, 3)
    await drsai.engine.cancel(Principal(), "u")
    items = await over(drsai, 4)
    assert [(item.type, item.run_id) for item in items[2:]] == [
        ("run.awaiting_input", second.run_id),
        ("run.stopped", second.run_id),
    ]


async def test_an_answer_of_the_background_is_told_of_the_end_of_its_run(
    serve: Serve, model: ModelServer, peer: Peer
) -> None:
    service = await serve({"asking": asking}, **QUICK)
    drsai = service.drsai
    await drsai.webhooks.make_secret(ANN)
    await drsai.run("asking", "Plan.", thread_id="t")
    # To a thread that asks, an input is the answer: it joins the run, whose end is its own.
    joined = await drsai.start("asking", "In June.", background=True, thread_id="t", webhook_url=peer.url())
    [item] = await over(drsai, 1)
    assert (item.type, item.run_id) == ("run.completed", joined.run_id)


async def test_a_run_that_fails(serve: Serve, model: ModelServer, peer: Peer) -> None:
    service = await serve(**QUICK)
    await service.drsai.webhooks.make_secret(ANN)
    model.script(None, lambda _: Failure(400))
    handle = await service.drsai.start("assistant", "x", background=True, webhook_url=peer.url())
    [item] = await over(service.drsai, 1)
    assert (item.type, item.run_id) == ("run.failed", handle.run_id)


async def test_a_plain_run_makes_no_statement_of_webhooks(migrated_sqlite: str) -> None:
    told: list[str] = []

    def trace(connection: sqlite3.Connection, _: object) -> None:
        connection.set_trace_callback(told.append)

    sa.event.listen(sa.Engine, "connect", trace)
    try:
        async with DrSai(None, migrated_sqlite, settings=settings(sweep_seconds=3600)) as drsai:
            told.clear()
            await drsai.run("assistant", "x", thread_id="t")
            await drsai.run("assistant", "y", thread_id="t")
            assert any("UPDATE run SET" in statement for statement in told)
            # The sender looks once when it starts.
            assert [each for each in told if "webhook" in each and not each.startswith("SELECT 1")] == []
    finally:
        sa.event.remove(sa.Engine, "connect", trace)


async def test_the_url_of_a_key(serve: Serve, model: ModelServer, peer: Peer) -> None:
    """For background runs that name none; set and removed while the key works; its user gets a secret with it."""
    service = await serve(**QUICK)
    drsai, http = service.drsai, service.http
    admin = await drsai.keys.create(Owner("default", "root"), ["admin"])
    by_admin = {"Authorization": f"Bearer {admin.key.get_secret_value()}"}
    made = (await http.post("/v1/keys", json={"user": "bob", "webhook_url": peer.url("/key")}, headers=by_admin)).json()
    assert made["webhook_secret"].startswith("whsec_")
    assert made["webhook_url"] == peer.url("/key")
    by_bob, bob = {"Authorization": f"Bearer {made['key']}"}, Owner("default", "bob")
    body = {"model": "assistant", "messages": HELLO, "background": True}
    for url in (None, peer.url("/own")):
        asked = body if url is None else {**body, "webhook_url": url}
        assert (await http.post("/v1/chat/completions", json=asked, headers=by_bob)).status_code == 202
    await over(drsai, 2, bob)
    assert {told.path for told in peer.told} == {"/key", "/own"}
    with openai.OpenAI(api_key="unused", webhook_secret=made["webhook_secret"]) as client:
        client.webhooks.unwrap(peer.told[0].body, peer.told[0].headers)
    removed = await http.post(f"/v1/keys/{made['id']}/webhook", json={"webhook_url": None}, headers=by_admin)
    assert (removed.json()["webhook_url"], "webhook_secret" in removed.json()) == (None, False)
    await http.post("/v1/chat/completions", json=body, headers=by_bob)
    await over(drsai, 2, bob)
    refused = await http.post(
        f"/v1/keys/{made['id']}/webhook", json={"webhook_url": "http://10.0.0.1/"}, headers=by_admin
    )
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "address_refused")
    assert (await drsai.users.delete(bob))["webhook_secrets"] == 1
    assert await drsai.db.get(WebhookDelivery) == []


async def test_a_background_response_is_told_of_in_openais_words(serve: Serve, model: ModelServer, peer: Peer) -> None:
    service = await serve(**QUICK)
    made = await service.drsai.keys.create(Owner("default", "bob"), ["user"])
    _, secret = await service.drsai.webhooks.change_key("default", made.info.key_id, peer.url())
    assert secret is not None
    headers = {"Authorization": f"Bearer {made.key.get_secret_value()}"}
    body = {"model": "assistant", "input": "Hello.", "background": True}
    response = (await service.http.post("/v1/responses", json=body, headers=headers)).json()
    await over(service.drsai, 1, Owner("default", "bob"))
    with openai.OpenAI(api_key="unused", webhook_secret=secret.secret.get_secret_value()) as client:
        event: Any = client.webhooks.unwrap(peer.told[0].body, peer.told[0].headers)
    assert (event.type, event.data.id) == ("response.completed", response["id"])


def named(url: str, who: Principal, **more: Any) -> Asked:
    return asks("assistant", [InputMessage("user", "x")], who, background=True, webhook_url=url, **more)


async def test_what_is_refused_stores_nothing(serve: Serve, model: ModelServer, peer: Peer) -> None:
    service = await serve(**QUICK)
    engine, who = service.drsai.engine, Principal("ann")
    with pytest.raises(InvalidRequest, match="secret") as none:
        await engine.start(*named(peer.url(), who))
    assert none.value.param == "webhook_url"
    await service.drsai.webhooks.make_secret(Owner("default", "ann"))
    with pytest.raises(InsufficientScope, match="webhooks:write"):
        await engine.start(*named(peer.url(), Principal("ann", scopes=frozenset({Scope.CHAT}))))
    with pytest.raises(RefusedAddress):
        await engine.start(*named("https://169.254.169.254/latest", who))
    body = {"model": "assistant", "messages": HELLO, "user": "ann", "webhook_url": peer.url()}
    refused = await service.http.post("/v1/chat/completions", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "webhook_url")
    with pytest.raises(NotFound):
        await service.drsai.users.delete(Owner("default", "carl"))
    for table in map(table_of, (RunWebhook, WebhookDelivery)):
        count = sa.select(sa.func.count()).select_from(table)
        assert await service.drsai.database.read(lambda session, count=count: session.execute(count).scalar_one()) == 0
    assert (await service.http.get("/v1/threads", params={"user": "ann"})).json()["data"] == []


async def test_a_gateway_signs_for_all_whom_it_acts_as(serve: Serve, model: ModelServer, peer: Peer) -> None:
    service = await serve(**QUICK)
    gateway = await service.drsai.keys.create(Owner("default", "gateway"), ["user", "act-as"])
    key = {"Authorization": f"Bearer {gateway.key.get_secret_value()}"}
    headers = {**key, "X-OpenWebUI-User-Email": "ann"}
    refused = await service.http.post("/v1/webhooks/secret", headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    made = (await service.http.post("/v1/webhooks/secret", headers=key)).json()
    assert (made["user"], made["previous_until"]) == ("gateway", None)
    body = {"model": "assistant", "messages": HELLO, "background": True, "webhook_url": peer.url()}
    assert (await service.http.post("/v1/chat/completions", json=body, headers=headers)).status_code == 202
    [item] = await over(service.drsai, 1, Owner("default", "ann"))
    assert item.state == "delivered"
