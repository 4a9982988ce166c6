"""Responses and what is stored: what is not to be stored takes nothing with it, what continues one place at the same
moment, and items that wait are taken once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import openai
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend import AssistantAgent, RoundRobinGroupChat, RunContext
from drsai_backend.access.principal import ROLES, Principal
from drsai_backend.agents import requires_approval
from drsai_backend.api.http import stream
from drsai_backend.api.openai.responses import service as responses_service
from drsai_backend.api.openai.responses.stored import temporary
from drsai_backend.database.responses import is_temporary
from drsai_backend.datamodel.owner import Owner
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelServer, Reply, ToolCall
from tests.support.open_responses import check_events
from tests.support.threads import until
from tests.support.websocket import connected

pytestmark = pytest.mark.both_databases


def said(model: ModelServer) -> list[list[str]]:
    """What each request to the model held but the system's."""
    return [[str(each["content"]) for each in one.messages if each["role"] != "system"] for one in model.requests]


async def create(service: Service, given: Any, **more: Any) -> Any:
    return await service.client.responses.create(model="assistant", input=given, **more)


async def threads(service: Service) -> list[str]:
    return sorted(each.thread_id for each in (await service.drsai.list_threads()).items)


async def settled(service: Service, expected: list[str]) -> None:
    async def is_so() -> bool:
        return await threads(service) == sorted(expected)

    await until(is_so)


async def chat(service: Service, *texts: str) -> Any:
    roles = ("user", "assistant")
    messages: Any = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    return await service.client.chat.completions.create(model="assistant", messages=messages)


def items(*texts: str) -> Any:
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


async def test_what_is_not_stored_leaves_a_known_conversation_alone(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    await chat(service, "Hi.")
    [thread] = await threads(service)
    await create(service, items("Hi.", "ok", "More."), store=False)
    assert said(model)[-1] == ["Hi.", "ok", "More."]
    async with connected(service.drsai.app()) as socket:
        one = {"type": "response.create", "model": "assistant", "store": False}
        check_events(await socket.turn({**one, "input": items("Hi.", "ok", "More.")}))
    await settled(service, [thread])
    assert [len(messages) for messages in said(model)] == [1, 3, 3]
    listed = await service.client.conversations.items.list(thread)
    assert len(listed.data) == 2
    # What names it, becomes a part of it.
    stored = await create(service, "And more.", conversation=thread, store=False)
    await create(service, "Even more.", previous_response_id=(await create(service, "Next.", conversation=thread)).id)
    assert stored.output_text == "ok"
    await settled(service, [thread])


@requires_approval
async def pay(euros: int) -> str:
    """Pays."""
    return f"paid {euros}"


def clerk(context: RunContext) -> AssistantAgent:
    return AssistantAgent("clerk", context.model_client(), tools=[pay], max_tool_iterations=5)


def paying(*euros: int) -> list[Any]:
    return [Reply(tool_calls=[ToolCall("pay", {"euros": each})]) for each in euros]


async def approve(service: Service, response: Any, **more: Any) -> Any:
    answer = {"type": "mcp_approval_response", "approval_request_id": response.output[-1].id, "approve": True}
    return await create(service, [answer], **more)


async def test_one_that_is_not_stored_goes_when_its_last_approval_was_given(serve: Serve, model: ModelServer) -> None:
    service = await serve({"assistant": clerk})
    model.script(None, [*paying(1, 2), "Done."])
    second = await approve(service, await create(service, "Pay.", store=False), store=False)
    assert len(await threads(service)) == 1
    assert (await approve(service, second, store=False)).output_text == "Done."
    await settled(service, [])
    model.script(None, [*paying(3, 4), "Done."])
    asking = await create(service, "Pay.", store=False)
    [thread] = await threads(service)
    kept = await approve(service, await approve(service, asking, store=True), store=False)
    assert kept.output_text == "Done."
    # A part of it was to be stored. Whoever is about to delete it asks this.
    name = Owner("default", "anonymous").thread(thread)
    assert not await service.drsai.db.database.write(lambda session: is_temporary(session, name))
    assert await threads(service) == [thread]


async def test_a_known_history_answers_what_its_run_asks(serve: Serve, model: ModelServer) -> None:
    service = await serve({"assistant": clerk})
    model.script(None, [*paying(5), "Done."])
    first = await create(service, "Pay.")
    second = await create(service, items("Pay.", first.output_text, "approve"))
    assert (second.output_text, second.id != first.id) == ("Done.", True)
    again = await service.client.responses.retrieve(second.id)
    assert (again.id, again.output_text) == (second.id, "Done.")
    [item] = (await service.client.responses.input_items.list(second.id)).data
    assert item.to_dict()["content"][0]["text"] == "approve"


async def test_siblings_at_the_same_moment(serve: Serve, model: ModelServer) -> None:
    service, other = await serve(), await serve()
    first = await create(service, "One.")
    model.clear()
    model.script(None, lambda _: Reply("ok", delay=0.1))
    answers = await asyncio.gather(
        create(service, "A.", previous_response_id=first.id),
        create(service, "B.", previous_response_id=first.id, background=True),
        create(other, "C.", previous_response_id=first.id),
    )
    while (await service.client.responses.retrieve(answers[1].id)).status != "completed":  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert sorted(said(model)) == [["One.", "ok", letter] for letter in ("A.", "B.", "C.")]
    assert len({each.model_extra["drsai"]["thread_id"] for each in answers}) == 3


async def test_a_repeated_request_that_follows_another(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    first = await create(service, "One.")
    key = {"Idempotency-Key": "k"}
    more = {"previous_response_id": first.id, "extra_headers": key, "instructions": "Be brief."}
    assert len({(await create(service, "Two.", **more)).id for _ in range(2)}) == 1
    made = await service.client.conversations.create(items=[{"role": "developer", "content": "Be kind."}])  # type: ignore[list-item]
    named = {"conversation": made.id, "extra_headers": {"Idempotency-Key": "c"}}
    assert len({(await create(service, "Hi.", **named)).id for _ in range(2)}) == 1
    assert len(model.requests) == 3
    with pytest.raises(openai.ConflictError):
        await create(service, "Hello.", **named)


async def test_items_that_wait_are_taken_once(
    serve: Serve, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, other = await serve(), await serve()
    conversations = service.client.conversations
    made = await conversations.create(items=items("I am Bob."))
    with monkeypatch.context() as patch:
        # Whatever dies: they are taken with the run, or wait.
        patch.setattr(responses_service, "response_steps", lambda *_: 1 / 0)
        with pytest.raises(openai.InternalServerError):
            await create(service, "Hi.", conversation=made.id)
    assert [item.id for item in (await conversations.items.list(made.id)).data] == ["msg_w1"]
    model.script(None, lambda _: Reply("ok", delay=0.05))
    await asyncio.gather(*(create(each, "Hi.", conversation=made.id) for each in (service, other)))
    texts = [item.to_dict()["content"][0]["text"] for item in (await conversations.items.list(made.id)).data]
    assert sorted(texts) == ["Hi.", "Hi.", "I am Bob.", "ok", "ok"]


async def test_the_items_of_a_conversation_are_those_of_its_branch(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    first = await create(service, "One.")
    second = await create(service, "Two.", previous_response_id=first.id)
    thread = first.model_extra["drsai"]["thread_id"]
    await service.drsai.rewind(thread, at=2)
    # It is where the first one left it, and the second one is a branch.
    third = await create(service, "Three.", previous_response_id=first.id)
    assert third.model_extra["drsai"]["thread_id"] == thread
    fourth = await create(service, "Four.", previous_response_id=second.id)
    assert said(model)[-2:] == [["One.", "ok", "Three."], ["One.", "ok", "Two.", "ok", "Four."]]
    assert fourth.model_extra["drsai"]["thread_id"] != thread
    for order, step in (("asc", 1), ("desc", -1)):
        listed = service.client.conversations.items.list(thread, order=order, limit=3)  # type: ignore[arg-type]
        texts = [item.to_dict()["content"][0]["text"] async for item in listed]
        assert texts == ["One.", "ok", "Three.", "ok"][::step]


async def test_a_client_that_repeats_its_request_by_itself_joins_the_first_try(
    serve: Serve, model: ModelServer
) -> None:
    service, other = await serve({"assistant": clerk}), await serve({"assistant": clerk})
    model.script(None, lambda request: paying(5)[0] if len(request.messages) == 2 else Reply("Paid.", delay=0.3))
    tries = [{"x-stainless-retry-count": str(number)} for number in range(3)]
    first = await create(service, "Pay.", extra_headers=tries[0])
    after = {"previous_response_id": first.id}
    begun = asyncio.create_task(create(service, "approve", **after, extra_headers=tries[0]))
    while len(model.requests) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    second = await create(service, "approve", **after, extra_headers=tries[1])
    third = await create(other, "approve", **after, extra_headers=tries[2])
    assert {each.id for each in (second, third)} == {(await begun).id}
    assert {each.output_text for each in (second, third)} == {"Paid."}
    again = await create(other, "Pay.", extra_headers=tries[1])
    assert (again.id, again.output) == (first.id, first.output)
    assert (len(await threads(service)), len(model.requests)) == (1, 2)


async def loaded(service: Service, thread_id: str) -> None:
    """A thread with a conversation that was had elsewhere."""
    body = {"model": "assistant", "messages": items("Before.", "Yes.")}
    answer = await service.http.post(f"/v1/threads/{thread_id}/history", json=body)
    assert answer.status_code == 200, answer.text


async def forked(service: Service, thread_id: str) -> None:
    """A thread that begins as another one is."""
    await chat(service, "Before.")
    [source] = await threads(service)
    answer = await service.http.post(f"/v1/threads/{source}/fork", json={"thread_id": thread_id})
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize("begin", [loaded, forked])
async def test_a_thread_that_was_there_before_stays(serve: Serve, model: ModelServer, begin: Any) -> None:
    service = await serve()
    await begin(service, "t")
    response = await create(service, "Now.", conversation="t")
    await service.client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        await service.client.responses.retrieve(response.id)
    listed = await service.client.conversations.items.list("t")
    assert len(listed.data) == 4
    assert "t" in await threads(service)


@pytest.mark.parametrize("begin", [loaded, forked])
async def test_one_that_is_not_stored_leaves_a_thread_that_was_there(
    serve: Serve, model: ModelServer, begin: Any
) -> None:
    service = await serve()
    await begin(service, "t")
    await create(service, "Now.", conversation="t", store=False)
    # Whoever is about to delete it asks this.
    name = Owner("default", "anonymous").thread("t")
    assert not await service.drsai.db.database.write(lambda session: is_temporary(session, name))


async def test_a_response_takes_what_it_has_imported_or_forked_with_it(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    imported = await create(service, items("One.", "ok", "Two."))
    await service.client.responses.delete(imported.id)
    assert await threads(service) == []
    first = await create(service, "One.")
    second = await create(service, "Two.", previous_response_id=first.id)
    branch = await create(service, "Another two.", previous_response_id=first.id)
    known = await create(service, items("One.", "ok", "A third two."))
    assert len(await threads(service)) == 3
    for response in (branch, known):
        await service.client.responses.delete(response.id)
    assert await threads(service) == [second.model_extra["drsai"]["thread_id"]]


async def test_what_is_not_stored_goes_though_its_socket_closes_first(
    serve: Serve, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporary, "_PAUSES", (0.0, 0.02))
    service = await serve()
    model.script(None, [Reply("one two three four", chunk_delay=0.3)])
    async with connected(service.drsai.app()) as socket:
        await socket.say({"type": "response.create", "model": "assistant", "store": False, "input": "Hi."})
        while (await socket.hear())["type"] != "response.output_text.delta":
            pass
        socket.gone = True
    assert len(await threads(service)) == 1
    await settled(service, [])


async def test_what_is_not_stored_goes_though_its_socket_ends_while_it_is_begun(
    serve: Serve, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login that ends cuts the connection while the request is being stored."""
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.05)
    service = await serve()
    now: list[Principal | None] = [Principal("anonymous", "default", ROLES["user"])]
    holds, begun = asyncio.Event(), asyncio.get_running_loop().call_soon_threadsafe

    def hold(session: Session) -> None:
        session.execute(sa.text("UPDATE thread SET status = status"))  # On SQLite, all others who write wait.
        begun(holds.set)
        time.sleep(1)

    async with connected(service.drsai.app(lambda _: now[0])) as socket:
        holding = asyncio.create_task(service.drsai.database.write(hold))
        await holds.wait()
        await socket.say({"type": "response.create", "model": "assistant", "store": False, "input": "Hi."})
        await asyncio.sleep(0.4)
        now[0] = None
        heard = [await socket.hear()]
        while heard[-1] is not None:
            heard.append(await socket.hear())
        assert heard[-2]["status"] == 401
        await holding

    async def has_run() -> bool:
        return len(model.requests) == 1

    await until(has_run)
    await settled(service, [])


def pair(context: RunContext) -> RoundRobinGroupChat:
    agents = [AssistantAgent(name, context.model_client()) for name in ("ann", "bob")]
    return RoundRobinGroupChat(agents, max_turns=2)


async def test_what_is_not_stored_goes_though_its_run_was_paused(
    serve: Serve, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporary, "_LOOK_SECONDS", 0.05)
    service, other = await serve({"assistant": pair}), await serve({"assistant": pair})
    model.script(None, [Reply("ok", delay=0.5)] * 2)
    asking = asyncio.create_task(create(service, "Hi.", store=False))

    async def is_live() -> bool:
        return any(each.status == "running" for each in (await service.drsai.list_threads()).items)

    await until(is_live)
    [thread] = await threads(service)
    await service.drsai.pause(thread)
    assert (await asking).model_extra["drsai"]["status"] == "paused"
    await asyncio.sleep(0.2)
    assert await threads(service) == [thread]
    await other.drsai.resume(thread)
    await settled(service, [])


async def test_items_that_wait_have_no_more_bytes_than_a_body(serve: Serve, model: ModelServer) -> None:
    service = await serve(max_body_bytes=100_000)
    conversation = await service.client.conversations.create()
    half: Any = [{"role": "user", "content": "a" * 40_000}]
    for _ in range(2):
        await service.client.conversations.items.create(conversation.id, items=half)
    with pytest.raises(openai.BadRequestError) as error:
        await service.client.conversations.items.create(conversation.id, items=half)
    assert error.value.param == "items"
    assert len((await service.client.conversations.items.list(conversation.id)).data) == 2
    await create(service, "Now.", conversation=conversation.id)
    assert [len(each) for each in said(model)[-1]] == [80_000 + len("\n\n\n\nNow.")]
    await service.client.conversations.items.create(conversation.id, items=half)


async def test_the_input_of_what_waits_in_the_queue(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    model.script(None, [Reply("ok", delay=1), "Fine."])
    first = await create(service, "One.", background=True)
    waiting = [
        await create(
            service,
            [{"role": "system", "content": "Be brief."}, *items(text)],
            previous_response_id=first.id,
            background=True,
        )
        for text in ("Two.", "Three.")
    ]

    async def given(response: Any) -> list[str]:
        listed = await service.client.responses.input_items.list(response.id, order="asc")
        return [each.to_dict()["content"][0]["text"] for each in listed.data]

    queued = [await given(each) for each in waiting]
    assert queued == [["Be brief.", "Two."], ["Be brief.", "Three."]]
    await service.client.responses.cancel(waiting[1].id)
    assert await given(waiting[1]) == queued[1]

    async def is_over() -> bool:
        return (await service.client.responses.retrieve(waiting[0].id)).status == "completed"

    await until(is_over)
    assert await given(waiting[0]) == queued[0]
