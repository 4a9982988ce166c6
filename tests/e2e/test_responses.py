"""Responses and conversations with the real client: what is stored, what reaches the model, what can be asked for."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from autogen_agentchat.agents import UserProxyAgent

from drsai_backend import AssistantAgent, RoundRobinGroupChat, RunContext
from drsai_backend.agents import requires_approval
from drsai_backend.datamodel.owner import Owner
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import Failure, ModelServer, Reply, ToolCall
from tests.support.open_responses import check_events
from tests.support.threads import until
from tests.support.websocket import Refused, connected


def asked(model: ModelServer) -> list[str]:
    return [str(message["content"]) for message in model.requests[-1].messages if message["role"] != "system"]


async def create(service: Service, given: Any, **more: Any) -> Any:
    return await service.client.responses.create(model="assistant", input=given, **more)


async def told(stream: Any) -> list[Any]:
    async with stream:
        return [event.to_dict() async for event in stream]


def untimed(response: Any) -> Any:
    """A response without the second in which it was completed: a reader may look a second later."""
    return {name: value for name, value in response.items() if name != "completed_at"}


async def test_a_response_can_be_asked_for_as_it_was_told(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    given = {"metadata": {"a": "b"}, "instructions": "Answer in Latin.", "temperature": 0.5, "max_output_tokens": 50}
    first = await create(service, "Hi.", user="ann", safety_identifier="s", prompt_cache_key="p", **given)
    assert (first.output_text, first.metadata, first.temperature) == ("ok", {"a": "b"}, 0.5)
    assert (model.requests[-1].body["temperature"], model.requests[-1].body["max_tokens"]) == (0.5, 50)
    events = await told(await create(service, "More.", previous_response_id=first.id, stream=True, user="ann"))
    last = check_events(events)
    for elsewhere in (service, await serve()):
        client = elsewhere.client.with_options(default_query={"user": "ann"})
        assert untimed((await client.responses.retrieve(first.id)).to_dict()) == untimed(first.to_dict())
        assert untimed((await client.responses.retrieve(last["id"])).to_dict()) == untimed(last)
        again = check_events(await told(await client.responses.retrieve(last["id"], stream=True)))
        assert untimed(again) == untimed(last)
        rest = await told(await client.responses.retrieve(last["id"], stream=True, starting_after=2))
        assert rest[0]["type"] == "response.output_item.added"
        [item] = (await client.responses.input_items.list(last["id"])).data
        assert item.to_dict()["content"] == [{"type": "input_text", "text": "More."}]
    for call in (service.client.responses.retrieve, service.client.responses.delete, service.client.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            await call(first.id)  # as anonymous


async def test_instructions_are_of_one_request_and_system_items_of_the_conversation(
    serve: Serve, model: ModelServer
) -> None:
    service = await serve()
    said = [{"role": "developer", "content": "You are a pirate."}, {"role": "user", "content": "Hi."}]
    first = await create(service, said, instructions="Answer in Latin.")
    assert "You are a pirate.\n\nAnswer in Latin." in model.requests[-1].system
    second = await create(service, "Again.", previous_response_id=first.id)
    assert "pirate" in model.requests[-1].system
    assert "Latin" not in model.requests[-1].system
    await create(service, "Again.", previous_response_id=second.id, instructions="Be long.")
    assert "You are a pirate.\n\nBe long." in model.requests[-1].system
    items = (await service.client.responses.input_items.list(first.id, order="asc")).data
    assert [(item.to_dict()["role"], item.to_dict()["content"][0]["text"]) for item in items] == [
        ("system", "You are a pirate."),
        ("user", "Hi."),
    ]


async def test_a_conversation(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    conversations = service.client.conversations
    history: Any = [{"role": "user", "content": "I am Ann."}, {"role": "assistant", "content": "Hello Ann."}]
    made = await conversations.create(items=history, metadata={"topic": "names"})
    assert [item.to_dict()["role"] for item in (await conversations.items.list(made.id, order="asc")).data] == [
        "user",
        "assistant",
    ]
    first = await create(service, "Who am I?", conversation=made.id)
    assert first.conversation is not None
    assert first.conversation.id == made.id
    assert asked(model) == ["I am Ann.", "Hello Ann.", "Who am I?"]
    more: Any = [{"role": "user", "content": "I am Bob, too."}]
    [added] = (await conversations.items.create(made.id, items=more)).data
    [gone] = (await conversations.items.create(made.id, items=more)).data
    assert (await conversations.items.retrieve(gone.id, conversation_id=made.id)).id == gone.id
    await conversations.items.delete(gone.id, conversation_id=made.id)
    # In another process, and by the id of the response.
    other = await serve()
    await create(other, "And now?", conversation={"id": made.id})
    assert asked(model) == ["I am Ann.", "Hello Ann.", "Who am I?", "ok", "I am Bob, too.\n\nAnd now?"]
    texts = [item async for item in conversations.items.list(made.id, order="asc", limit=2)]
    assert [item.to_dict()["content"][0]["text"] for item in texts] == [
        "I am Ann.",
        "Hello Ann.",
        "Who am I?",
        "ok",
        "I am Bob, too.",
        "And now?",
        "ok",
    ]
    newest = [item.id async for item in conversations.items.list(made.id, limit=3)]
    assert newest == [item.id for item in reversed(texts)]
    assert added.id not in newest
    answer = await conversations.items.retrieve(first.output[0].id or "", conversation_id=made.id)
    assert answer.to_dict()["content"][0]["text"] == "ok"
    for refused in ([{"role": "assistant", "content": "No."}], [{"type": "reasoning", "id": "r", "summary": []}]):
        with pytest.raises(openai.BadRequestError) as error:
            await conversations.items.create(made.id, items=refused)  # type: ignore[arg-type]
        assert str(error.value.param).startswith("items[0]")
    with pytest.raises(openai.ConflictError):
        await conversations.items.delete(newest[0], conversation_id=made.id)
    assert (await conversations.update(made.id, metadata={"topic": "more"})).metadata == {"topic": "more"}
    assert (await conversations.retrieve(made.id)).metadata == {"topic": "more"}
    await conversations.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        await conversations.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        await create(service, "Still there?", conversation=made.id)


async def test_what_is_not_stored(serve: Serve) -> None:
    service = await serve()
    response = await create(service, "Hi.", store=False)
    assert response.store is False
    with pytest.raises(openai.NotFoundError):
        await service.client.responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError) as error:
        await create(service, "More.", previous_response_id=response.id)
    assert (error.value.code, error.value.param) == ("previous_response_not_found", "previous_response_id")
    await told(await create(service, "Hi.", store=False, stream=True))
    app = service.drsai.app()
    async with connected(app) as socket:
        one = {"type": "response.create", "model": "assistant", "store": False, "input": "x"}
        first = check_events(await socket.turn(one))
        await socket.turn({**one, "previous_response_id": first["id"]})
        assert len((await service.drsai.list_threads()).items) >= 1
    async with asyncio.timeout(10):
        while (await service.drsai.list_threads()).items:  # noqa: ASYNC110 - they are deleted when their runs are over
            await asyncio.sleep(0.02)


async def test_deleting(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    first = await create(service, "One.")
    second = await create(service, "Two.", previous_response_id=first.id)
    await service.client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        await service.client.responses.retrieve(first.id)
    # What was said is still part of the conversation.
    third = await create(service, "Three.", previous_response_id=second.id)
    assert asked(model) == ["One.", "ok", "Two.", "ok", "Three."]
    assert third.output_text == "ok"
    alone = await create(service, "Alone.")
    await service.client.responses.delete(alone.id)
    assert len((await service.drsai.list_threads()).items) == 1


async def test_a_branch(serve: Serve, model: ModelServer) -> None:
    """What follows an older response is a conversation of its own, which begins as that one was after the response."""
    model.script(None, lambda request: f"{len(request.messages)}.")
    service = await serve()
    first = await create(service, "One.", instructions="Be brief.")
    await create(service, "Two.", previous_response_id=first.id)
    header = {"Idempotency-Key": "k"}
    made = [
        await create(service, "Another two.", previous_response_id=first.id, extra_headers=header) for _ in range(2)
    ]
    assert made[0].id == made[1].id
    assert asked(model) == ["One.", first.output_text, "Another two."]
    third = await create(service, "Three.", previous_response_id=made[0].id)
    assert asked(model) == ["One.", first.output_text, "Another two.", made[0].output_text, "Three."]
    threads = {each.model_extra["drsai"]["thread_id"] for each in (first, made[0], third)}
    assert len(threads) == 2
    with pytest.raises(openai.BadRequestError):
        await create(service, "Another.", previous_response_id=first.id, extra_body={"max_turns": 10**6})
    unstored = await create(service, "A third two.", previous_response_id=first.id, store=False)
    assert unstored.output_text

    async def is_gone() -> bool:
        return len((await service.drsai.list_threads()).items) == 2

    await until(is_gone)


async def test_items_that_are_only_named(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    model.script(None, ["Nice to meet you, Ann.", "You are Ann."])
    first = await create(service, "I am Ann.")
    given: Any = [
        {"role": "user", "content": "I am Ann."},
        {"type": "item_reference", "id": first.output[0].id},
        {"role": "user", "content": "Who am I?"},
    ]
    await create(service, given)
    assert asked(model) == ["I am Ann.", "Nice to meet you, Ann.", "Who am I?"]
    with pytest.raises(openai.BadRequestError) as error:
        await create(service, given, user="bob")
    assert error.value.param == "input[1].id"


async def test_all_items_of_a_conversation_may_be_named(serve: Serve, model: ModelServer) -> None:
    """An approval, too: its question and its answer are not shown again."""
    service = await serve({"assistant": clerk})
    model.script(None, [Reply(tool_calls=[ToolCall("pay", {"euros": 5})]), "Done.", "Fine."])
    first = await create(service, "Pay five.")
    answer: Any = {"type": "mcp_approval_response", "approval_request_id": first.output[-1].id, "approve": True}
    second = await create(service, [answer])
    came = (await service.client.responses.input_items.list(second.id)).data
    named = [{"type": "item_reference", "id": each.id} for each in (*first.output, *came, *second.output)]
    given: Any = [{"role": "user", "content": "Pay five."}, *named, {"role": "user", "content": "Thanks."}]
    assert (await create(service, given)).output_text == "Fine."


async def test_in_the_background(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    model.script(None, lambda _: Reply("slowly", delay=0.3))
    response = await create(service, "Hi.", background=True)
    assert response.status in ("queued", "in_progress")
    assert (response.background, response.output) == (True, [])
    events = await told(await service.client.responses.retrieve(response.id, stream=True))
    assert check_events(events)["status"] == "completed"
    done = await service.client.responses.retrieve(response.id)
    assert (done.status, done.output_text) == ("completed", "slowly")
    model.script(None, lambda _: Reply("for ever", hang=True))
    hanging = await create(service, "Hi.", background=True)
    async with asyncio.timeout(20):
        while (await service.client.responses.retrieve(hanging.id)).status == "queued":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    cancelled = await service.client.responses.cancel(hanging.id)
    assert cancelled.status == "cancelled"
    assert (await service.client.responses.retrieve(cancelled.id)).status == "cancelled"
    with pytest.raises(openai.ConflictError):
        await service.client.responses.cancel(done.id)
    with pytest.raises(openai.BadRequestError):
        await create(service, "Hi.", background=True, store=False)


async def test_a_run_that_fails(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    model.script(None, lambda _: Failure(401, "no such key"))
    with pytest.raises(openai.APIStatusError) as error:
        await create(service, "Hi.")
    assert error.value.status_code == 424
    assert error.value.response.headers["x-should-retry"] == "false"
    events = await told(await create(service, "Hi.", stream=True))
    failed = check_events(events)
    assert failed["status"] == "failed"
    assert failed["error"]["message"]
    assert (await service.client.responses.retrieve(failed["id"])).status == "failed"


@requires_approval
async def pay(euros: int) -> str:
    """Pays."""
    return f"paid {euros}"


def clerk(context: RunContext) -> AssistantAgent:
    return AssistantAgent("clerk", context.model_client(), tools=[pay], reflect_on_tool_use=True)


async def test_an_approval_in_another_process_and_by_its_id_alone(serve: Serve, model: ModelServer) -> None:
    service = await serve({"assistant": clerk})
    model.script(None, [Reply(tool_calls=[ToolCall("pay", {"euros": 5})]), "Done.", "Fine."])
    first = await create(service, "Pay five.")
    request = first.output[-1]
    assert request.type == "mcp_approval_request"
    assert (request.name, request.arguments, request.server_label) == ("pay", '{"euros":5}', "clerk")
    assert first.status == "completed"
    other = await serve({"assistant": clerk})
    given: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    second = await create(other, [given])
    assert second.id != first.id
    assert second.output_text == "Done."
    # Each is what its own part of the run has told.
    for response in (first, second):
        again = await service.client.responses.retrieve(response.id)
        assert (again.output_text, again.id) == (response.output_text, response.id)
        assert [item.id for item in again.output] == [item.id for item in response.output]
        assert again.usage == response.usage
    [item] = (await service.client.responses.input_items.list(second.id)).data
    assert item.to_dict()["approval_request_id"] == request.id
    third = await create(service, "Thanks.", previous_response_id=second.id)
    assert third.output_text == "Fine."
    with pytest.raises(openai.ConflictError):
        await create(service, [given])
    with pytest.raises(openai.BadRequestError):
        await create(service, [given], user="bob")
    listed = [item.to_dict()["type"] for item in (await _items(service, first, second)).data]
    assert listed == ["message", "mcp_approval_response", "message", "message", "message"]


async def _items(service: Service, *_: Any) -> Any:
    [thread] = (await service.drsai.list_threads()).items
    return await service.client.conversations.items.list(thread.thread_id, order="asc")


async def test_a_question_is_answered_by_text(serve: Serve, model: ModelServer) -> None:
    def asking(context: RunContext) -> RoundRobinGroupChat:
        return RoundRobinGroupChat([UserProxyAgent("boss"), AssistantAgent("ann", context.model_client())], max_turns=2)

    service = await serve({"assistant": asking})
    first = await create(service, "Hi.")
    assert first.output_text
    second = await create(service, "Yes, do.", previous_response_id=first.id)
    assert second.id != first.id
    assert "ok" in second.output_text
    assert (await service.client.responses.retrieve(second.id)).output_text == second.output_text
    [item] = (await service.client.responses.input_items.list(second.id)).data
    assert item.to_dict()["content"][0]["text"] == "Yes, do."


async def test_a_repeated_request_with_a_key_joins_the_first(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    key = {"Idempotency-Key": "k"}
    first = await create(service, "Hi.", extra_headers=key)
    again = await create(await serve(), "Hi.", extra_headers=key)
    assert (again.id, again.output_text) == (first.id, first.output_text)
    assert len(model.requests) == 1
    with pytest.raises(openai.ConflictError):
        await create(service, "Something else.", extra_headers=key)


async def test_who_may_open_a_websocket(serve: Serve) -> None:
    service = await serve(auth="required")
    app = service.drsai.app()
    with pytest.raises(Refused) as refused:
        async with connected(app):
            pass
    assert (refused.value.status, refused.value.body["error"]["code"]) == (401, "invalid_api_key")
    headers: dict[str, str] = {}
    for scope in ("threads:read", "chat"):
        made = await service.drsai.keys.create(Owner("default", "ann"), [scope])
        headers = {"Authorization": f"Bearer {made.key.get_secret_value()}"}
        if scope == "threads:read":
            with pytest.raises(Refused) as refused:
                async with connected(app, headers=headers):
                    pass
            assert (refused.value.status, refused.value.body["error"]["code"]) == (403, "insufficient_scope")
    async with connected(app, headers=headers) as socket:
        one = {"type": "response.create", "model": "assistant", "input": "x"}
        assert check_events(await socket.turn(one))["status"] == "completed"
        [error] = await socket.turn("{")
        assert error["error"]["code"] == "invalid_json"
        await service.drsai.keys.revoke("default", made.info.key_id)
        async with asyncio.timeout(10):
            while (events := await socket.turn(one))[-1]["type"] != "error":  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert (events[-1]["status"], await socket.hear(), socket.closed) == (401, None, 1008)
    with pytest.raises(Refused) as refused:
        async with connected(app, headers={"Origin": "https://evil.example"}):
            pass
    assert refused.value.body["error"]["code"] == "origin_not_allowed"
