"""What a run's error says: an endpoint's own words of a request that it refuses, and what a team raised for admins."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from drsai_backend import AssistantAgent, RunContext
from drsai_backend.datamodel.owner import Owner
from drsai_backend.models.endpoints.refused import words_of
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import Failure, ModelServer

PLANTED = "hunter2 of postgresql://app:pa55word-x@db.inner/x"


async def _failed(service: Service, **more: Any) -> str:
    with pytest.raises(openai.APIStatusError) as failed:
        await service.client.chat.completions.create(
            model="assistant", messages=[{"role": "user", "content": "Hi."}], **more
        )
    return failed.value.message


async def test_the_endpoints_own_words(serve: Serve, model: ModelServer) -> None:
    service = await serve(model_fallbacks=(), openai_api_key="planted-key-of-the-server")
    says = "messages[0] is too odd,\nsaid with planted-key-of-the-server and sk-abcdefghijklmnop1234"
    model.script(None, lambda _: Failure(400, says, "odd_request"))
    told = await _failed(service)
    assert "(HTTP 400): messages[0] is too odd, said with [credential] and $" in told
    assert "planted" not in told
    assert "sk-abc" not in told
    [thread] = (await service.drsai.list_threads()).items
    run = (await service.drsai.list_runs(thread.thread_id)).items[0]
    assert "messages[0] is too odd" in (run.error_message or "")
    assert "planted" not in str(run)


async def test_a_refused_key_is_not_told_in_words(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    model.script(None, lambda _: Failure(401, "Incorrect API key provided: sk-ser*er"))
    assert "sk-ser" not in await _failed(service)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"message": "It is odd."}, "It is odd."),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "It is odd."}}, "It is odd."),
        ({"detail": "It is odd."}, "It is odd."),
        ("It is odd.", "It is odd."),
        ({"detail": [{"loc": ["body"], "msg": "odd"}]}, "[{'loc': ['body'], 'msg': 'odd'}]"),
        ({}, None),
        (None, None),
        ({"message": "x" * 10_000}, "x" * 500),
    ],
)
def test_bodies_of_all_kinds(body: Any, words: str | None) -> None:
    answer = httpx.Response(400, request=httpx.Request("POST", "https://inner.example/", headers={"x-api-key": "k"}))
    refused: Any = openai.BadRequestError
    assert words_of(refused("…", response=answer, body=body)) == words
    assert words_of(ValueError(str(body))) is None


async def test_admins_read_what_was_raised(serve: Serve, model: ModelServer) -> None:
    class Breaking(AssistantAgent):
        async def on_messages_stream(self, *_: Any) -> Any:  # type: ignore[override]
            raise AttributeError(f"no such thing, {PLANTED}")
            yield

    def broken(context: RunContext) -> AssistantAgent:
        return Breaking("breaking", context.model_client())

    service = await serve({"assistant": broken}, auth="required")
    keys = {
        role: (await service.drsai.keys.create(Owner("default", "ann"), [role])).key.get_secret_value()
        for role in ("user", "operator", "admin")
    }
    headers = {role: {"Authorization": f"Bearer {key}"} for role, key in keys.items()}
    told = await _failed(service, extra_headers=headers["user"])
    assert "AttributeError was raised" in told
    assert "no such thing" not in told
    listed = await service.http.get("/v1/threads", headers=headers["user"])
    thread_id = listed.json()["data"][0]["thread_id"]
    runs = await service.http.get(f"/v1/threads/{thread_id}/runs", headers=headers["admin"])
    run_id = runs.json()["data"][0]["run_id"]
    assert "no such thing" not in runs.text
    for role in headers:
        run = (await service.http.get(f"/v1/runs/{run_id}", headers=headers[role])).json()
        assert run["error_message"].endswith("AttributeError was raised.")
        assert "pa55word" not in str(run)
        if role == "admin":
            assert run["error_detail"].startswith("AttributeError: no such thing, hunter2")
        else:
            assert run["error_detail"] is None
    for path in (f"/v1/threads/{thread_id}", f"/v1/threads/{thread_id}/messages", f"/v1/runs/{run_id}/steps"):
        assert "no such thing" not in (await service.http.get(path, headers=headers["user"])).text
    read = (await service.http.get(f"/v1/runs/{run_id}/events", headers=headers["user"])).text  # of what is stored
    assert '"status":"error"' in read
    assert "no such thing" not in read
