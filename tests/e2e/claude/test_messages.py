"""Claude-speaking clients: the real `anthropic` package, and a strict model over HTTP."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import anthropic
import pytest
from PIL import Image as PILImage
from pydantic import SecretStr

from drsai_backend import AssistantAgent, RunContext
from drsai_backend.datamodel import AutoGenMessage, Run, UserInput
from tests.e2e.claude.conftest import SCHEMA, WEATHER, Claude, ask, text_of
from tests.support.model_server import Failure, ModelServer, Reply, ToolCall


async def test_a_message(claude: Claude, model: ModelServer) -> None:
    client, service = await claude()
    model.script(None, ["Hello Ann!", "Ann, as you said."])
    raw = await client.messages.with_raw_response.create(
        model="assistant",
        max_tokens=77,
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        messages=[{"role": "user", "content": [{"type": "text", "text": "I am Ann."}]}],
        extra_body={"temperature": 0.5, "top_p": 0.9},  # of earlier releases of the package
        metadata={"user_id": "hashed"},
    )
    message = await raw.parse()
    assert (message.type, message.role, message.model) == ("message", "assistant", "assistant")
    assert [(block.type, text_of(message)) for block in message.content] == [("text", "Hello Ann!")]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert (message.usage.input_tokens, message.usage.output_tokens) == (10, 5)
    thread = raw.headers["x-thread-id"]
    assert message.thread_id == thread  # type: ignore[attr-defined]
    assert raw.headers["request-id"] == raw.headers["x-request-id"]
    sent = model.requests[0]
    assert (sent.body["max_tokens"], sent.body["temperature"], sent.body["top_p"]) == (77, 0.5, 0.9)
    assert "Be brief." in sent.system
    [given] = await service.drsai.db.get(UserInput, {"thread_id": thread})
    assert given.extra_requests == {"metadata": {"user_id": "hashed"}}
    again = await ask(client, "Who am I?", extra_headers={"X-Thread-Id": thread})
    assert text_of(again) == "Ann, as you said."
    assert [each["content"] for each in model.requests[1].messages if each["role"] != "system"] == [
        "I am Ann.",
        "Hello Ann!",
        "Who am I?",
    ]


async def test_a_stream(claude: Claude, model: ModelServer) -> None:
    client, _ = await claude()
    model.script(None, lambda _: Reply("One two three.", chunks=["One ", "two ", "three."]))
    asked: Any = {"model": "assistant", "max_tokens": 100, "messages": [{"role": "user", "content": "Count."}]}
    names: list[str] = []
    async for event in await client.messages.create(**asked, stream=True):
        names.append(event.type)
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[2:-3]) == {"content_block_delta"}
    async with client.messages.stream(**asked) as stream:
        text = "".join([each async for each in stream.text_stream])
        message = await stream.get_final_message()
    assert text == text_of(message) == "One two three."
    assert (message.stop_reason, message.usage.input_tokens, message.usage.output_tokens) == ("end_turn", 10, 5)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_group_chat_is_one_text(claude: Claude, model: ModelServer, streamed: bool) -> None:
    client, _ = await claude()
    model.script("You are a writer", lambda _: "A haiku.")
    model.script("You are a reviewer", lambda _: "APPROVE")
    asked: Any = {"model": "writers", "max_tokens": 100, "messages": [{"role": "user", "content": "A haiku, please."}]}
    if streamed:
        async with client.messages.stream(**asked) as stream:
            message = await stream.get_final_message()
    else:
        message = await client.messages.create(**asked)
    assert text_of(message) == "**writer**\n\nA haiku.\n\n**reviewer**\n\nAPPROVE"
    assert len(message.content) == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_tools(claude: Claude, model: ModelServer, streamed: bool) -> None:
    """Two calls in one answer, one of which fails; the results resume the run, without a thread's id."""
    client, service = await claude()
    calls = [ToolCall("weather", {"city": "Bonn"}), ToolCall("weather", {"city": "Rome"})]
    model.script(None, [Reply("Let me look.", tool_calls=calls), "Sun in Bonn."])

    async def say(*messages: Any) -> anthropic.types.Message:
        asked: Any = {"model": "assistant", "max_tokens": 100, "tools": [WEATHER], "messages": messages}
        if not streamed:
            return await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            return await stream.get_final_message()

    hello = {"role": "user", "content": "Weather in Bonn and Rome?"}
    first = await say(hello)
    assert first.stop_reason == "tool_use"
    assert text_of(first) == "Let me look."
    uses = [block for block in first.content if block.type == "tool_use"]
    assert [(use.name, use.input) for use in uses] == [("weather", {"city": "Bonn"}), ("weather", {"city": "Rome"})]
    results: list[Any] = [
        {"type": "tool_result", "tool_use_id": uses[1].id, "content": "no such city", "is_error": True},
        {"type": "tool_result", "tool_use_id": uses[0].id, "content": [{"type": "text", "text": "sun"}]},
    ]
    second = await say(hello, first.to_param(), {"role": "user", "content": results})
    assert text_of(second) == "Sun in Bonn."
    assert second.stop_reason == "end_turn"
    assert second.thread_id == first.thread_id  # type: ignore[attr-defined]
    told = {each["tool_call_id"]: each["content"] for each in model.requests[1].messages if each["role"] == "tool"}
    assert sorted(told.values()) == ["no such city", "sun"]
    assert len(await service.drsai.db.get(Run)) == 1
    stored = [row.config for row in await service.drsai.db.get(AutoGenMessage)]
    [results_stored] = [each["content"] for each in stored if each["type"] == "ToolCallExecutionEvent"]
    assert {each["content"]: each["is_error"] for each in results_stored} == {"no such city": True, "sun": False}
    with pytest.raises(anthropic.BadRequestError) as caught:
        await say(hello, first.to_param(), {"role": "user", "content": results[:1]})
    error: Any = caught.value.body
    assert error["error"]["param"] == "messages[1].content"


@pytest.mark.parametrize("streamed", [False, True])
async def test_thoughts_and_parameters(claude: Claude, model: ModelServer, streamed: bool) -> None:
    client, _ = await claude(model="o3")
    model.script(None, lambda _: Reply("42.", reasoning="Six times seven.", finish_reason="length"))

    async def think(**values: Any) -> anthropic.types.Message:
        asked: Any = {"model": "assistant", "max_tokens": 9, "messages": [{"role": "user", "content": "6*7?"}]}
        asked |= values
        if not streamed:
            return await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            return await stream.get_final_message()

    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    config: Any = {"effort": "high", "format": {"type": "json_schema", "schema": SCHEMA}}
    message = await think(thinking=thinking, output_config=config, stop_sequences=["end"], service_tier="standard_only")
    thought, said = message.content
    assert (thought.type, said.type) == ("thinking", "text")
    assert (thought.thinking, thought.signature, said.text) == ("Six times seven.", "", "42.")  # type: ignore[union-attr]
    assert message.stop_reason == "max_tokens"
    sent = model.requests[-1].body
    assert (sent["reasoning_effort"], sent["stop"], sent["service_tier"]) == ("high", ["end"], "default")
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMA
    assert [block.type for block in (await think()).content] == ["text"]
    model.script(None, lambda _: Failure(400, "Unsupported parameter: 'stop' is not supported with this model."))
    with pytest.raises(anthropic.APIStatusError) as refused:
        await think(stop_sequences=["end"])
    error: Any = refused.value.body
    assert (error["error"]["type"], error["error"]["param"]) == ("invalid_request_error", "stop_sequences")


async def test_which_tools_may_be_called(claude: Claude, model: ModelServer) -> None:
    client, _ = await claude()
    model.script(None, lambda _: Reply(tool_calls=[ToolCall("weather", {"city": "Bonn"})]))
    choice: Any = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
    await ask(client, "Weather?", tools=[WEATHER, {**WEATHER, "name": "news"}], tool_choice=choice)
    sent = model.requests[0].body
    assert (sent["tool_choice"], model.requests[0].tools) == ("required", ["weather"])
    assert sent["parallel_tool_calls"] is False
    with pytest.raises(anthropic.BadRequestError, match="tool_choice"):
        await ask(client, "Weather?", tools=[WEATHER], tool_choice={"type": "tool", "name": "nothing"})


async def test_tools_that_nobody_here_has(claude: Claude, model: ModelServer) -> None:
    """They are left aside, and named; one that a search of the client's has found is offered as any other."""
    client, _ = await claude()
    found: Any = {**WEATHER, "defer_loading": True}
    foreign: Any = [{"type": "bash_20250124", "name": "bash"}, {"type": "web_search_20250305", "name": "web_search"}]
    calls = [ToolCall("find", {"city": "all"})]
    model.script(None, lambda asked: Reply(tool_calls=calls) if asked.last == "Which tools?" else "Found.")
    find: Any = {**WEATHER, "name": "find"}
    given: Any = [{"role": "user", "content": "Which tools?"}]
    raw = await client.messages.with_raw_response.create(
        model="assistant", max_tokens=9, messages=given, tools=[find, *foreign], tool_choice={"type": "auto"}
    )
    assert raw.headers["x-ignored-fields"] == "tools[1] (bash_20250124), tools[2] (web_search_20250305)"
    assert not {"bash", "web_search"} & {*model.requests[0].tools}
    answer = await raw.parse()
    result = {"type": "tool_result", "tool_use_id": answer.content[0].id}
    result["content"] = [{"type": "tool_reference", "tool_name": "weather"}]
    given += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    assert text_of(await ask(client, *given, tools=[find, found])) == "Found."
    assert model.requests[1].messages[-1]["content"] == "Found the tool weather."
    assert {"find", "weather"} <= {*model.requests[1].tools}
    assert text_of(await ask(client, "Hello", tools=foreign, tool_choice={"type": "auto"})) == "Found."


async def test_a_history_keeps_its_roles(claude: Claude, model: ModelServer) -> None:
    client, _ = await claude()
    picture = io.BytesIO()
    PILImage.new("RGB", (2, 2)).save(picture, "PNG")
    data = base64.b64encode(picture.getvalue()).decode()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    notes = {
        "type": "document",
        "title": "Notes",
        "source": {"type": "text", "media_type": "text/plain", "data": "abc"},
    }
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bonn"}}
    history: list[Any] = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "x"}, use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sun"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Sun."}]},
        {"role": "user", "content": [image, notes, {"type": "text", "text": "And this?"}]},
    ]
    client, _ = await claude(model_vision=True)
    assert text_of(await ask(client, *history)) == "ok"
    said = [each for each in model.requests[-1].messages if each["role"] != "system"]
    assert [each["role"] for each in said][:2] == ["user", "assistant"]
    assert said[-1]["role"] == "user"
    parts = said[-1]["content"]
    assert [part["type"] for part in parts if part["type"] == "image_url"] == ["image_url"]
    assert "Notes\n\nabc" in str([part.get("text") for part in parts]).replace("\\n", "\n")
    assert "Hm." not in json.dumps(model.requests[-1].body)


async def test_tokens_are_counted(claude: Claude, model: ModelServer) -> None:
    client, _ = await claude()
    asked: Any = {"model": "assistant", "messages": [{"role": "user", "content": "word " * 100}]}
    few = (await client.messages.count_tokens(**asked)).input_tokens
    assert 100 <= few <= 150
    more = (await client.messages.count_tokens(**asked, system="word " * 100, tools=[WEATHER])).input_tokens
    assert more > few + 100
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.count_tokens(**{**asked, "model": "nobody"})
    assert model.requests == []


async def test_a_count_names_what_it_does_nothing_with(claude: Claude) -> None:
    client, _ = await claude()
    text: Any = {"type": "text", "text": "Hi", "tone": "warm", "cache_control": {"type": "ephemeral"}}
    asked: Any = {
        "model": "assistant",
        "messages": [{"role": "user", "content": [text]}],
        "tools": [{"type": "bash_20250124", "name": "bash"}],
        "thinking": {"type": "enabled", "budget_tokens": 1024, "depth": 3},
        "extra_body": {"context_management": {"edits": [{"type": "clear"}]}},
    }
    counted = await client.messages.with_raw_response.count_tokens(**asked)
    answered = await client.messages.with_raw_response.create(**asked, max_tokens=9)
    names = counted.headers["x-ignored-fields"].split(", ")
    assert sorted(names) == sorted(answered.headers["x-ignored-fields"].split(", "))
    assert {"messages.content.tone", "tools[0] (bash_20250124)", "thinking.depth"} <= set(names)
    plain: Any = {"model": "assistant", "messages": [{"role": "user", "content": "Hi"}], "cache_control": None}
    assert "x-ignored-fields" not in (await client.messages.with_raw_response.count_tokens(**plain)).headers


async def test_what_a_cache_had_and_got_is_told_apart(claude: Claude, model: ModelServer) -> None:
    client, _ = await claude()
    details = {"prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3}}
    model.script(None, lambda _: Reply("Hi.", details=details))
    asked: Any = {"model": "assistant", "max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}]}
    async with client.messages.stream(**asked) as stream:
        streamed = await stream.get_final_message()
    for usage in (streamed.usage, (await client.messages.create(**asked)).usage):
        assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (3, 4, 3)


async def test_models_are_listed(claude: Claude) -> None:
    client, _ = await claude(model_context=5000, model_vision=True)
    [assistant, writers] = [each async for each in client.models.list()]
    assert (assistant.id, assistant.type, assistant.display_name) == ("assistant", "model", "assistant")
    assert assistant.max_input_tokens == 5000
    assert assistant.capabilities is not None
    assert assistant.capabilities.image_input.supported
    type(assistant.capabilities).model_validate(assistant.capabilities.to_dict())
    assert assistant.created_at.tzinfo is not None
    assert writers.id == "writers"
    assert [each.id async for each in client.models.list(limit=1)] == ["assistant", "writers"]
    assert (await client.models.retrieve("writers")).id == "writers"


async def test_a_question_is_answered_by_the_next_message(claude: Claude, model: ModelServer) -> None:
    def team(context: RunContext) -> AssistantAgent:
        async def pay(amount: int) -> str:
            """Pay."""
            return f"paid {amount}"

        from drsai_backend import requires_approval

        return AssistantAgent("payer", context.model_client(), tools=[requires_approval(pay)], reflect_on_tool_use=True)

    client, _ = await claude({"payer": team})
    model.script(None, [Reply(tool_calls=[ToolCall("pay", {"amount": 5})]), "Done."])
    asked = await ask(client, "Pay 5.", model="payer", extra_body={"thread_id": "t"})
    assert asked.stop_reason == "end_turn"
    assert "pay" in text_of(asked)
    assert asked.drsai["status"] == "awaiting_input"  # type: ignore[attr-defined]
    answer = await ask(client, "approve", model="payer", extra_body={"thread_id": "t"})
    assert text_of(answer) == "Done."


async def test_the_key_of_a_request_reaches_the_model(claude: Claude, model: ModelServer) -> None:
    client, _ = await claude(secret_key=SecretStr("s"))
    await ask(client, "Hello", extra_headers={"X-Model-Api-Key": "sk-mine"})
    assert model.requests[0].api_key == "sk-mine"
