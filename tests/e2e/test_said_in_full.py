"""What a message says is done, refused by name, or named in `X-Ignored-Fields`: nothing of it is dropped in silence."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.bodies import png
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelServer

IMAGE = f"data:image/png;base64,{png()}"
HELLO = [{"role": "user", "content": "Hi."}]
FUNCTION: dict[str, Any] = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
BLOCK = {"type": "base64", "media_type": "image/png", "data": png()}


@pytest.fixture
def database_url(migrated_sqlite: str) -> str:
    """Nothing here is about storage."""
    return migrated_sqlite


@pytest.fixture
async def service(serve: Serve, model: ModelServer) -> Service:
    model.script(None, lambda request: f"You said: {request.last}")
    return await serve()


async def sent(service: Service, path: str, *messages: dict[str, Any], **more: Any) -> Any:
    said = {"input": messages} if path == "responses" else {"messages": messages, "max_tokens": 100}
    return await service.http.post(f"/v1/{path}", json={"model": "assistant", **said, **more})


@pytest.mark.parametrize(
    ("path", "part", "second"),
    [
        ("chat/completions", {"type": "text", "text": "Look.", "image_url": {"url": IMAGE}}, "image_url"),
        ("chat/completions", {"type": "image_url", "image_url": {"url": IMAGE}, "text": "Look."}, "text"),
        ("responses", {"type": "input_text", "text": "Look.", "image_url": IMAGE}, "image_url"),
        ("responses", {"type": "input_image", "image_url": IMAGE, "text": "Look."}, "text"),
        ("responses", {"type": "input_file", "file_id": "f", "file_data": "YQ=="}, "file_data"),
        ("messages", {"type": "text", "text": "Look.", "source": BLOCK}, "source"),
        ("messages", {"type": "image", "source": BLOCK, "text": "Look."}, "text"),
    ],
)
async def test_a_part_of_two_kinds_is_refused(
    service: Service, model: ModelServer, path: str, part: dict[str, Any], second: str
) -> None:
    answer = await sent(service, path, {"role": "user", "content": [part]})
    place = "input" if path == "responses" else "messages"
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == f"{place}[0].content[0].{second}"
    assert model.requests == []


async def test_fields_that_nobody_reads_are_named(service: Service, model: ModelServer) -> None:
    text = {"type": "text", "text": "Hello", "citations": {"enabled": True}, "cache_control": {"type": "ephemeral"}}
    picture = {"type": "image_url", "image_url": {"url": IMAGE, "detail": "high"}}
    answer = await sent(
        service,
        "chat/completions",
        {"role": "assistant", "content": "Hi.", "name": "ann", "refusal": None, "annotations": [{}]},
        {"role": "user", "content": [text, picture, picture], "metadata": {"a": 1}, "extra": None},
    )
    names = ["messages.name", "messages.metadata", "messages.content.citations", "messages.content.image_url.detail"]
    assert answer.headers["x-ignored-fields"].split(", ") == names
    answer = await sent(service, "messages", {"role": "user", "content": [text]})
    assert answer.headers["x-ignored-fields"] == "messages.content.citations"
    parts = [{"type": "input_image", "image_url": IMAGE, "detail": "low"}, {"type": "input_text", "text": "a"}]
    answer = await sent(service, "responses", {"role": "user", "content": parts, "id": "m", "status": "completed"})
    assert answer.headers["x-ignored-fields"] == "input.content.detail"
    evil = {"role": "user", "content": "Hi.", "a\r\nx-evil: 1": 1, "é" * 100: 1}
    answer = await sent(service, "chat/completions", evil)
    assert "x-evil" not in answer.headers
    assert answer.headers["x-ignored-fields"] == f"messages.a??x-evil??1, messages.{'?' * 71}"
    # As it is sent by clients that ask for nothing of the kind.
    parts = [{"type": "image_url", "image_url": {"url": IMAGE, "detail": "auto"}}]
    answer = await sent(service, "chat/completions", {"role": "user", "content": parts, "name": "user"})
    assert (answer.status_code, answer.headers.get("x-ignored-fields")) == (200, None)


OPTIONS: list[tuple[str, dict[str, Any], str | None]] = [
    (
        "responses",
        {"reasoning": {"mode": "pro", "context": "all_turns", "effort": "low"}, "text": {"a\r\nx-evil: 1": 1}},
        "reasoning.mode, reasoning.context, text.a??x-evil??1",
    ),
    (
        "responses",
        {
            "tools": [
                {**FUNCTION, "async": True, "allowed_callers": ["programmatic"], "output_schema": {"type": "object"}},
                {**FUNCTION, "name": "see", "async": True},
                {"type": "web_search", "search_context_size": "low"},
            ],
            "tool_choice": {"type": "function", "name": "see", "why": "so"},
        },
        "tools[2] (web_search), tools.async, tools.allowed_callers, tools.output_schema, tool_choice.why",
    ),
    (
        "responses",
        {
            "reasoning": {"mode": "standard", "context": "auto", "effort": None},
            "tools": [{**FUNCTION, "async": False, "allowed_callers": ["direct"], "output_schema": None}],
            "unknown": {"kept": "for agents"},
        },
        None,
    ),
    (
        "messages",
        {
            "output_config": {"effort": "low", "task_budget": {"type": "tokens", "total": 20000}},
            "context_management": {"edits": [{"type": "compact_20260112", "pause_after_compaction": True}]},
            "fallbacks": [{"model": "other"}],
            "billing_policy": {"type": "billing_policy", "bill_to": "user_profile"},
            "fallback_credit_token": "t",
        },
        "context_management, fallbacks, billing_policy, fallback_credit_token, output_config.task_budget",
    ),
    (
        "messages",
        {
            "tools": [
                {"name": "look", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}},
                {"name": "see", "input_schema": {"type": "object"}, "defer_loading": True, "secret": "s"},
                {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
            ],
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {}, "citations": [{"type": "page"}]}],
        },
        "tools[1].defer_loading, tools[2] (web_search_20250305), tools.secret, system.citations",
    ),
    (
        "chat/completions",
        {
            "tools": [{"type": "function", "function": {"name": "look", "returns": "text"}, "async": True}],
            "stream_options": {"include_usage": True, "every": 2},
        },
        "tools.function.returns, tools.async, stream_options.every",
    ),
    (  # These are passed on as they came.
        "chat/completions",
        {
            "prediction": {"type": "content", "content": "a", "more": 1},
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "more": 1}, "more": 1},
        },
        None,
    ),
]


@pytest.mark.parametrize(("path", "options", "named"), OPTIONS)
async def test_fields_of_options_that_nobody_reads_are_named(
    service: Service, path: str, options: dict[str, Any], named: str | None
) -> None:
    answer = await sent(service, path, *HELLO, **options)
    assert answer.status_code == 200, answer.text
    assert answer.headers.get("x-ignored-fields") == named


async def test_what_is_asked_for_of_an_answer_and_is_not_there_is_named(service: Service) -> None:
    made = (await service.http.post("/v1/conversations", json={})).json()["id"]
    answer = await sent(service, "responses", *HELLO, conversation=made)
    response = f"/v1/responses/{answer.json()['id']}"
    items = f"/v1/conversations/{made}/items"
    item = (await service.http.get(items)).json()["data"][0]["id"]
    paths = [response, f"{response}?stream=true", f"{response}/input_items", items, f"{items}/{item}"]
    there = ("reasoning.encrypted_content", "file_search_call.results", "message.input_image.image_url")
    for include in ("web_search_call.results", "message.output_text.logprobs", *there):
        expected = None if include in there else "include"
        for path in paths:
            told = await service.http.get(path, params={**httpx.URL(path).params, "include[]": include})
            assert (told.status_code, told.headers.get("x-ignored-fields")) == (200, expected), path
        added = await service.http.post(f"{items}?include[]={include}", json={"items": HELLO})
        assert (added.status_code, added.headers.get("x-ignored-fields")) == (200, expected)


async def test_fields_of_items_that_a_conversation_does_nothing_with_are_named(service: Service) -> None:
    items = [
        {**HELLO[0], "metadata": {"a": 1}},
        {"role": "user", "content": [{"type": "input_text", "text": "a", "b": 1}]},
    ]
    made = await service.http.post("/v1/conversations", json={"items": items, "title": "A", "": 1})
    names = "items.metadata, items.content.b"
    assert (made.status_code, made.headers.get("x-ignored-fields")) == (200, f"title, ?, {names}")
    path = f"/v1/conversations/{made.json()['id']}/items"
    changed = await service.http.post(path.removesuffix("/items"), json={"metadata": {"a": "b"}, "title": "A"})
    assert (changed.status_code, changed.headers.get("x-ignored-fields")) == (200, "title")
    added = await service.http.post(f"{path}?include[]=web_search_call.results", json={"items": items})
    assert (added.status_code, added.headers.get("x-ignored-fields")) == (200, f"{names}, include")
    plain = await service.http.post(path, json={"items": HELLO})
    assert (plain.status_code, plain.headers.get("x-ignored-fields")) == (200, None)


async def test_options_of_a_search_that_nobody_reads_are_named(service: Service) -> None:
    store = (await service.http.post("/v1/vector_stores", json={"name": "s"})).json()["id"]
    ranking = {"score_threshold": 0.5, "hybrid_search": {"embedding_weight": 1, "text_weight": 0}}
    search = {"type": "file_search", "vector_store_ids": [store], "ranking_options": ranking, "depth": 2}
    answer = await sent(service, "responses", *HELLO, tools=[search])
    assert answer.headers["x-ignored-fields"] == "tools.ranking_options.hybrid_search, tools.depth"


async def test_what_a_question_about_a_chat_says_in_vain_is_named(service: Service) -> None:
    message = {"role": "user", "content": "Name this chat.", "metadata": {"a": 1}}
    for path, option in (("chat/completions", "stream_options"), ("messages", "thinking")):
        value = {"every": 2} if option == "stream_options" else {"type": "adaptive", "every": 2}
        answer = await sent(service, path, message, housekeeping=True, **{option: value})
        assert answer.headers["x-housekeeping"]
        assert answer.headers["x-ignored-fields"] == f"messages.metadata, {option}.every"


@pytest.mark.parametrize(
    ("path", "field", "number"),
    [
        ("chat/completions", "n", 1),
        ("chat/completions", "top_logprobs", 0),
        ("responses", "top_logprobs", 0),
        ("completions", "n", 1),
        ("completions", "best_of", 1),
    ],
)
async def test_true_is_no_number(service: Service, path: str, field: str, number: int) -> None:
    said = {"completions": {"prompt": "Hi."}, "responses": {"input": "Hi."}}.get(path, {"messages": HELLO})
    for value, status in ((bool(number), 400), (number, 200), (float(number), 200), (None, 200)):
        answer = await service.http.post(f"/v1/{path}", json={"model": "assistant", **said, field: value})
        assert answer.status_code == status, answer.text
        if status == 400:
            error = answer.json()["error"]
            assert (error["param"], error["message"].startswith(f"`{field}` ")) == (field, True)


async def test_who_speaks(service: Service, model: ModelServer) -> None:
    """Several people in one chat are told apart; what they say is compared and answered as it was."""
    ann, bob = ({"role": "user", "content": text, "name": name} for text, name in (("One.", "ann"), ("Two.", "bob")))
    first = await sent(service, "chat/completions", ann)
    assert model.requests[-1].last == "ann said:\nOne."
    said = {"role": "assistant", "content": first.json()["choices"][0]["message"]["content"]}
    second = await sent(service, "chat/completions", ann, said, bob)
    assert second.json()["thread_id"] == first.json()["thread_id"]
    assert [each["content"] for each in model.requests[-1].messages[1:]] == [
        "ann said:\nOne.",
        said["content"],
        "bob said:\nTwo.",
    ]
    parts = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": IMAGE}}], "name": "cy"}
    await sent(service, "chat/completions", parts)
    assert model.requests[-1].messages[-1]["content"][0]["text"] == "cy said:\n"
    # The queue keeps it, too.
    queued = await sent(service, "chat/completions", {**parts, "name": "dee"}, background=True)
    assert queued.status_code == 202
    await service.http.get(f"/v1/runs/{queued.json()['id']}/events")
    assert model.requests[-1].messages[-1]["content"][0]["text"] == "dee said:\n"


async def test_named_speakers_are_other_requests(service: Service) -> None:
    key = {"Idempotency-Key": "k"}
    body: dict[str, Any] = {"model": "assistant", "messages": [{"role": "user", "content": "One.", "name": "ann"}]}
    assert (await service.http.post("/v1/chat/completions", json=body, headers=key)).status_code == 200
    body["messages"][0]["name"] = "bob"
    again = await service.http.post("/v1/chat/completions", json=body, headers=key)
    assert again.status_code == 409


@pytest.mark.parametrize("path", ["messages", "responses"])
async def test_an_image_that_a_tool_has_returned(service: Service, model: ModelServer, path: str) -> None:
    """Coding agents read pictures, and resend them for as long as their session lasts: the model is told that there was
    one, and the client that it is not shown."""
    if path == "messages":
        shown = [{"type": "text", "text": "a.png"}, {"type": "image", "source": BLOCK}]
        result = {"type": "tool_result", "tool_use_id": "c", "content": shown}
        call: dict[str, Any] = {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": "Read", "input": {}}],
        }
        said: list[dict[str, Any]] = [{"role": "user", "content": "Look."}, call, {"role": "user", "content": [result]}]
        tool: dict[str, Any] = {"name": "Read", "input_schema": {"type": "object"}}
    else:
        parts = [{"type": "input_text", "text": "a.png"}, {"type": "input_image", "image_url": IMAGE}]
        call = {"type": "function_call", "call_id": "c", "name": "Read", "arguments": "{}"}
        said = [{"role": "user", "content": "Look."}, call]
        said.append({"type": "function_call_output", "call_id": "c", "output": parts})
        tool = {"type": "function", "name": "Read", "parameters": {"type": "object", "properties": {}}}
    answer = await sent(service, path, *said, tools=[tool])
    assert answer.status_code == 200, answer.text
    assert "image" in answer.headers["X-Ignored-Fields"]
    assert "a.png\n\n[An image, which is not shown" in str(model.requests[-1].messages[-1]["content"]).replace(
        "\\n", "\n"
    )
