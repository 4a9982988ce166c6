"""OpenAI's legacy completions, with the real client and a strict model over HTTP."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.types.completion_create_params import CompletionCreateParamsBase

from drsai_backend.datamodel import Run
from tests.e2e.conftest import Serve
from tests.support.model_server import ModelServer, Reply


@pytest.fixture
def database_url(migrated_sqlite: str) -> str:
    """Nothing here is about storage."""
    return migrated_sqlite


async def test_a_prompt(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    model.script(None, ["is blue.", "Yes."])
    raw = await service.client.completions.with_raw_response.create(
        model="assistant", prompt="The sky ", max_tokens=20, temperature=0.5, echo=True, n=1, best_of=1
    )
    answer = raw.parse()
    assert (answer.object, answer.model, len(answer.choices)) == ("text_completion", "assistant", 1)
    [choice] = answer.choices
    assert (choice.text, choice.index, choice.finish_reason, choice.logprobs) == ("The sky is blue.", 0, "stop", None)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (10, 5)
    assert answer.id == f"cmpl-{raw.headers['x-run-id']}"
    sent = model.requests[0]
    assert (sent.last, sent.body["max_tokens"], sent.body["temperature"]) == ("The sky ", 20, 0.5)
    again: Any = await service.client.completions.create(
        model="assistant", prompt=["Really?"], extra_body={"thread_id": raw.headers["x-thread-id"]}
    )
    assert (again.choices[0].text, again.thread_id) == ("Yes.", raw.headers["x-thread-id"])
    assert model.requests[1].messages[-2]["content"] == "is blue."


async def test_a_stream(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    model.script(None, lambda _: Reply("One two.", chunks=["One ", "two."]))
    stream = await service.client.completions.create(
        model="assistant", prompt="Count: ", stream=True, echo=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert {chunk.object for chunk in chunks} == {"text_completion"}
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == "Count: One two."
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 15
    assert chunks[-2].drsai["status"] == "completed"  # type: ignore[attr-defined]


REFUSED: dict[str, dict[str, Any]] = {
    "prompt": {"prompt": ["a", "b"]},
    "suffix": {"suffix": "end"},
    "logprobs": {"logprobs": 0},
    "best_of": {"best_of": 3},
    "n": {"n": 2},
    "messages": {"extra_body": {"messages": []}},
    "temperature": {"temperature": 3},
}


async def test_what_cannot_be_is_refused_by_name(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    cases: list[tuple[str, dict[str, Any]]] = [
        *REFUSED.items(),
        *(("prompt", {"prompt": prompt}) for prompt in ("", " ", [], [1, 2], [[1, 2]], None)),
    ]
    for param, values in cases:
        with pytest.raises(openai.BadRequestError) as caught:
            await service.client.completions.create(**{"model": "assistant", "prompt": "Hello", **values})
        assert caught.value.param == param, values
        assert f"`{param}`" in caught.value.message
    with pytest.raises(openai.NotFoundError):
        await service.client.completions.create(model="nobody", prompt="Hello")
    assert model.requests == []
    assert await service.drsai.db.get(Run) == []


def test_parameters_of_the_package_are_known() -> None:
    """A new one should be looked at: this API's own, or that of Chat Completions."""
    of_chat = {"frequency_penalty", "logit_bias", "max_tokens", "presence_penalty", "seed", "stop"}
    of_chat |= {"stream_options", "temperature", "top_p", "user"}
    own = {"model", "prompt", "best_of", "echo", "logprobs", "n", "suffix"}
    assert set(CompletionCreateParamsBase.__annotations__) == of_chat | own
