"""What a request only names counts as if it had sent it: items by reference, and compactions."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from tests.api.bodies import png
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelServer

SMALL: dict[str, Any] = {"max_body_bytes": 256 * 1024, "max_bodies_bytes": 256 * 1024}
NEW = {"role": "user", "content": "And now?"}


async def post(service: Service, given: Any, path: str = "/v1/responses") -> httpx.Response:
    return await service.http.post(path, json={"model": "assistant", "input": given})


async def compacted(service: Service, *texts: str) -> Any:
    answer = await post(service, [{"role": "user", "content": text} for text in texts], "/v1/responses/compact")
    assert answer.status_code == 200, answer.text
    [item] = answer.json()["output"]
    return item


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["param"]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/compact"])
async def test_a_compaction_has_no_more_bytes_than_a_body(serve: Serve, model: ModelServer, path: str) -> None:
    large, small = await serve(), await serve(**SMALL)
    fits, long = await compacted(large, "a" * 150_000), await compacted(large, "a" * 300_000)
    assert len(long["encrypted_content"]) < 2000
    assert refused(await post(small, [NEW, long, NEW], path)) == (400, "input[1]")
    # Each counts, as often as it is there.
    assert refused(await post(small, [fits, NEW, fits, NEW], path)) == (400, "input[2]")
    assert model.requests == []
    assert (await post(small, [fits, NEW], path)).status_code == 200


async def test_a_compaction_holds_the_files_that_its_input_names(serve: Serve, model: ModelServer) -> None:
    service = await serve(model_vision=True)
    client = service.client
    notes = await client.files.create(file=("notes.txt", b"Plan A"), purpose="user_data")
    picture = await client.files.create(file=("red.png", base64.b64decode(png())), purpose="vision")
    parts: Any = [
        {"type": "input_file", "file_id": notes.id},
        {"type": "input_image", "file_id": picture.id, "detail": "auto"},
    ]
    answer = await post(service, [{"role": "user", "content": parts}], "/v1/responses/compact")
    assert answer.status_code == 200, answer.text
    assert (await post(service, [*answer.json()["output"], NEW])).status_code == 200
    shown = str(model.requests[-1].messages)
    assert "Plan A" in shown
    assert "data:image/png;base64," in shown
    unknown = [{"role": "user", "content": [{"type": "input_file", "file_id": "file-unknown"}]}]
    assert (await post(service, unknown, "/v1/responses/compact")).status_code == 404


async def test_a_compaction_has_no_more_items_than_a_request(serve: Serve, model: ModelServer) -> None:
    large, small = await serve(), await serve(max_messages=4)
    three = await compacted(large, "One.", "Two.", "Three.")
    assert refused(await post(small, [NEW, three, NEW])) == (400, "input[1]")
    assert model.requests == []
    assert (await post(small, [three, NEW])).status_code == 200
    assert model.requests[-1].last == "One.\n\nTwo.\n\nThree.\n\nAnd now?"


async def test_an_item_that_is_named_often_counts_as_often(serve: Serve, model: ModelServer) -> None:
    large, small = await serve(), await serve(**SMALL)
    model.script(None, ["b" * 100_000] * 3)
    first = (await post(large, "Hi.")).json()
    name = {"type": "item_reference", "id": first["output"][0]["id"]}
    assert refused(await post(small, [name, NEW, name, name, NEW])) == (400, "input[3]")
    assert len(model.requests) == 1
    assert (await post(small, [name, NEW, name, NEW])).status_code == 200
    said = [each["content"] for each in model.requests[-1].messages if each["role"] == "assistant"]
    assert [len(each) for each in said] == [100_000, 100_000]


async def test_what_is_named_counts_among_all_bodies_under_way(serve: Serve, model: ModelServer) -> None:
    large, small = await serve(), await serve(**SMALL)
    item = await compacted(large, "a" * 150_000)
    body = {"role": "user", "content": "b" * 150_000}
    assert (await post(small, [item, body])).json()["error"]["code"] == "overloaded"
    assert model.requests == []
    for _ in range(3):
        assert (await post(small, [item, NEW])).status_code == 200


async def test_what_a_compaction_does_nothing_with_is_named(serve: Serve) -> None:
    service = await serve()
    message = {"role": "user", "content": [{"type": "input_text", "text": "Hi.", "size": 1}], "metadata": {"a": 1}}
    body = {"model": "assistant", "input": [message], "prompt_cache_key": "k", "a\r\nb": 1, "tools": [], "user": "ann"}
    answer = await service.http.post("/v1/responses/compact", json=body)
    named = "prompt_cache_key, a??b, input.metadata, input.content.size"
    assert (answer.status_code, answer.headers.get("x-ignored-fields")) == (200, named)
    plain = await service.http.post("/v1/responses/compact", json={"model": "assistant", "input": "Hi."})
    assert (plain.status_code, plain.headers.get("x-ignored-fields")) == (200, None)


async def test_calls_are_sealed_with_the_messages(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    said = [
        {"role": "user", "content": "Weather?"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "sun"},
        {"type": "custom_tool_call", "call_id": "d", "name": "note", "input": "sun"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "noted"},
        {"role": "assistant", "content": "Sun."},
    ]
    assert (await post(service, [*said, NEW])).status_code == 200
    plain = model.requests[-1].messages
    answer = await post(service, said, "/v1/responses/compact")
    assert (await post(service, [*answer.json()["output"], NEW])).status_code == 200
    assert model.requests[-1].messages == plain
    assert "noted" in str(plain)


async def test_nothing_is_sealed_that_could_not_be_opened(serve: Serve) -> None:
    small = await serve(max_body_bytes=150_000)
    short = [{"role": "user", "content": ""}] * 4000  # Each has more bytes once it is read.
    assert refused(await post(small, short, "/v1/responses/compact")) == (400, "input")
    few = await serve(max_messages=2)
    body = {"model": "assistant", "input": [NEW, NEW], "instructions": "Be brief."}
    answer = await few.http.post("/v1/responses/compact", json=body)
    assert refused(answer) == (400, "input")
