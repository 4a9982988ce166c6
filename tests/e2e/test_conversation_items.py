"""Items of tools in conversations, as openai-agents' `OpenAIConversationsSession` adds them after each turn."""

from __future__ import annotations

import base64
import io
from typing import Any

import openai
import PIL.Image
import pytest

from drsai_backend import AssistantAgent, RunContext
from drsai_backend.agents import requires_approval
from tests.e2e.conftest import Serve
from tests.e2e.tool_calls import lonely
from tests.support.model_server import ModelServer, Reply, ToolCall

pytestmark = pytest.mark.both_databases
TOOL: Any = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def test_a_session_with_a_function_tool(serve: Serve, model: ModelServer) -> None:
    """All of it is sent with each request, which names no conversation; what is new is added afterwards."""
    model.script(None, [Reply(tool_calls=[ToolCall("weather", {}, "w")]), "Sun.", "Rain."])
    service = await serve({"assistant": lonely})
    conversations = service.client.conversations
    made = await conversations.create(items=[])
    kept: list[Any] = []

    async def turn(*new: Any) -> list[Any]:
        history = [each.to_dict() async for each in conversations.items.list(made.id, order="asc", limit=2)]
        assert [each["type"] for each in history] == [each["type"] for each in kept]
        given: Any = [*history, *new]
        answer = await service.client.responses.create(model="assistant", input=given, tools=[TOOL])
        added = [{"type": "message", **each} if "type" not in each else each for each in new]
        added += [each.to_dict() for each in answer.output]
        await conversations.items.create(made.id, items=added)
        kept.extend(added)
        return [each.to_dict() for each in answer.output]

    [call] = await turn(user("Weather?"))
    assert call["type"] == "function_call"
    await turn({"type": "function_call_output", "call_id": call["call_id"], "output": "sun"})
    await turn(user("And tomorrow?"))
    roles = [each["role"] for each in model.requests[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    listed = [each.to_dict() async for each in conversations.items.list(made.id, limit=1)][::-1]
    expected = ["message", "function_call", "function_call_output", "message", "message", "message"]
    assert [each["type"] for each in listed] == expected
    assert (listed[1]["name"], listed[1]["arguments"], listed[1]["call_id"]) == ("weather", "{}", call["call_id"])
    assert (listed[2]["output"], listed[2]["call_id"]) == ("sun", call["call_id"])
    assert len({each["id"] for each in listed}) == 6
    again = await conversations.items.retrieve(listed[1]["id"], conversation_id=made.id)
    assert again.to_dict() == listed[1]


async def test_a_conversation_that_begins_with_calls(serve: Serve, model: ModelServer) -> None:
    """The next response that names it takes them up, in order."""
    model.script(None, lambda _: "Fine.")
    service = await serve({"assistant": lonely})
    conversations = service.client.conversations
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "sun"}]}
    thought: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    thought["content"] = [{"type": "reasoning_text", "text": "Hm."}]
    items: Any = [user("Weather?"), thought, call, output, {"role": "assistant", "content": "Sun."}]
    made = await conversations.create(items=items)
    listed = [each.to_dict() async for each in conversations.items.list(made.id, order="asc")]
    assert [each["type"] for each in listed] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert listed[1]["summary"] == thought["summary"]
    await service.client.responses.create(model="assistant", input="And tomorrow?", conversation=made.id)
    said = model.requests[-1].messages[1:]
    assert [each["role"] for each in said] == ["user", "assistant", "tool", "assistant", "user"]
    assert said[2]["content"] == "sun"
    listed = [each.to_dict() async for each in conversations.items.list(made.id, order="asc", limit=1)]
    assert [each["type"] for each in listed] == [
        *("message", "function_call", "function_call_output", "message", "message", "message")
    ]
    for late in (call, output):
        with pytest.raises(openai.BadRequestError, match="has begun") as refused:
            await conversations.items.create(made.id, items=[late])  # type: ignore[list-item]
        assert refused.value.param == "items[0].type"


@requires_approval
async def pay(euros: int) -> str:
    """Pays."""
    return f"paid {euros}"


def clerk(context: RunContext) -> AssistantAgent:
    return AssistantAgent("clerk", context.model_client(), tools=[pay], reflect_on_tool_use=True)


async def test_approvals_that_were_given_out_come_back(serve: Serve, model: ModelServer) -> None:
    """They are kept as they were, until the next response, whose model is not shown them."""
    model.script(None, [Reply(tool_calls=[ToolCall("pay", {"euros": 5})]), "Done.", "Fine."])
    service = await serve({"assistant": clerk})
    client = service.client
    asked = await client.responses.create(model="assistant", input="Pay five.")
    question = asked.output[-1]
    answer: Any = {"type": "mcp_approval_response", "approval_request_id": question.id, "approve": True, "reason": "ok"}
    done = await client.responses.create(model="assistant", input=[answer])
    came: Any = [item.to_dict() for item in (await client.responses.input_items.list(done.id)).data]
    told: Any = [item.to_dict() for item in (*asked.output, *done.output)]
    made = await client.conversations.create(items=[])
    items: Any = [user("Pay five."), *told[:-1], *came, told[-1]]
    await client.conversations.items.create(made.id, items=items)
    listed = [each.to_dict() async for each in client.conversations.items.list(made.id, order="asc")]
    types = ["message", "message", "mcp_approval_request", "mcp_approval_response", "message"]
    assert [each["type"] for each in listed] == types
    for given, kept in ((question.to_dict(), listed[2]), (came[0], listed[3])):
        assert {**given, "id": kept["id"], "status": "completed"} == kept
    await client.responses.create(model="assistant", input="Thanks.", conversation=made.id)
    assert [each["role"] for each in model.requests[-1].messages[1:]] == ["user", "assistant", "user"]
    for late in (told[1], came[0]):
        with pytest.raises(openai.BadRequestError, match="has begun") as refused:
            await client.conversations.items.create(made.id, items=[late])
        assert refused.value.param == "items[0].type"


async def test_a_compaction_brings_what_it_holds(serve: Serve, model: ModelServer) -> None:
    service = await serve({"assistant": lonely})
    conversations = service.client.conversations
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "sun"}
    said: Any = [user("Weather?"), call, output, {"role": "assistant", "content": "Sun."}]
    answer = await service.client.responses.compact(model="assistant", input=said)
    compacted: Any = answer.to_dict()["output"]
    made = await conversations.create(items=compacted)
    more: Any = [*compacted, user("Well?")]
    added = await conversations.items.create(made.id, items=more)
    types = ["message", "function_call", "function_call_output", "message"]
    assert [each.type for each in added.data] == [*types, "message"]
    assert [each.type async for each in conversations.items.list(made.id)] == ["message", *types[::-1], *types[::-1]]
    await service.client.responses.create(model="assistant", input="And tomorrow?", conversation=made.id)
    roles = ["user", "assistant", "tool", "assistant"]
    assert [each["role"] for each in model.requests[-1].messages[1:]] == [*roles, *roles, "user"]
    foreign: Any = {"type": "compaction", "encrypted_content": "gAAA"}
    with pytest.raises(openai.BadRequestError, match="has begun") as refused:
        await conversations.items.create(made.id, items=compacted)
    assert refused.value.param == "items[0].type"
    two: Any = [user("Hi."), foreign]
    with pytest.raises(openai.BadRequestError, match="not made by this server") as refused:
        await conversations.create(items=two)
    assert refused.value.param == "items[1].encrypted_content"


async def test_images_of_several_posts_may_be_larger_together_than_those_of_one(
    serve: Serve, model: ModelServer
) -> None:
    """Each post was looked at by itself; what waits of them all stops no response."""
    service = await serve({"assistant": lonely})
    conversations = service.client.conversations
    made = await conversations.create(items=[])
    picture = io.BytesIO()
    PIL.Image.new("1", (6000, 5000)).save(picture, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()}"
    item: Any = {"role": "user", "content": [{"type": "input_image", "image_url": url}]}
    with pytest.raises(openai.BadRequestError, match="pixels"):
        await conversations.items.create(made.id, items=[item, item])
    for _ in range(2):
        await conversations.items.create(made.id, items=[item])
    answer = await service.client.responses.create(model="assistant", input="What is it?", conversation=made.id)
    assert answer.status == "completed"
    assert [each.to_dict()["type"] async for each in conversations.items.list(made.id)] == ["message"] * 4
    assert str(model.requests[-1].messages).count(url) == 2


async def test_pages_of_long_messages_are_short(serve: Serve, model: ModelServer) -> None:
    """All is listed, and told, whatever a page has."""
    model.script(None, lambda _: "Fine.")
    service = await serve({"assistant": lonely})
    texts = [f"{number}" + "x" * 1_500_000 for number in range(6)]
    for text in texts:
        body = {"model": "assistant", "messages": [user(text)]}
        answer = await service.http.post("/v1/threads/long/history", json=body)
        assert answer.status_code < 300, answer.text
    sizes, found, after = [], list[str](), 0
    while after is not None:
        page = (await service.http.get(f"/v1/threads/long/messages?limit=100&after={after}")).json()
        found += [each["content"] for each in page["data"]]
        sizes.append(len(page["data"]))
        assert page["has_more"] == (page["next"] is not None)
        after = page["next"]
    assert (found == texts, sizes) == (True, [3, 3])
    await service.client.responses.create(model="assistant", input="Well?", conversation="long")
    for order, said in (("asc", texts), ("desc", texts[::-1])):
        listed, after = list[str](), ""
        while True:
            answer = await service.http.get(f"/v1/conversations/long/items?limit=100&order={order}{after}")
            page = answer.json()
            assert len(page["data"]) <= 5
            listed += [each["content"][0]["text"] for each in page["data"]]
            if not page["has_more"]:
                break
            after = f"&after={page['last_id']}"
        assert [text for text in listed if len(text) > 9] == said
        assert len(listed) == 8
