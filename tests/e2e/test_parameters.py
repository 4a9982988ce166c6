"""Parameters of chat requests end to end: what reaches the model, what is refused, and how an answer finished."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from autogen_agentchat.agents import AssistantAgent as StockAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat as StockRoundRobin
from autogen_agentchat.teams import SelectorGroupChat
from autogen_core.models import ChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel

from drsai_backend import AssistantAgent, RunContext, answered_by
from drsai_backend.datamodel import UserInput
from tests.e2e.conftest import Serve
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall

ALL: dict[str, Any] = {
    "temperature": 0.3,
    "top_p": 0.9,
    "max_tokens": 77,
    "seed": 7,
    "stop": ["END", "\n\n"],
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "logit_bias": {"50256": -100},
    "reasoning_effort": "low",
    "verbosity": "high",
    "service_tier": "flex",
    "prediction": {"type": "content", "content": "most of it"},
    "modalities": ["text"],
    "response_format": {"type": "json_object"},
}
KEPT: dict[str, Any] = {
    "store": False,
    "safety_identifier": "s",
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
}


class Verdict(BaseModel):
    good: bool
    why: str


@pytest.fixture
def database_url(migrated_sqlite: str) -> str:
    return migrated_sqlite


def ask(text: str = "x", **values: Any) -> dict[str, Any]:
    return {"model": "assistant", "messages": [{"role": "user", "content": text}], **values}


def crew(context: RunContext) -> StockRoundRobin:
    def member(name: str, **more: Any) -> AssistantAgent:
        client = context.model_client()
        return AssistantAgent(name, model_client=client, system_message=f"You are {name}.", **more)

    return StockRoundRobin([member("writer"), member("reviewer")], termination_condition=MaxMessageTermination(3))


async def test_all_parameters_reach_the_model_and_those_after_it(serve: Serve, model: ModelServer) -> None:
    """Also where another process runs what waited, or resumes what was begun."""
    service = await serve()
    answer = await service.client.chat.completions.create(
        **ask(**ALL, **KEPT), extra_body={"thread_id": "t", "colour": "red"}
    )
    assert answer.choices[0].message.content == "ok"
    assert model.requests[-1].parameters == ALL
    [row] = await service.drsai.db.get(UserInput, filters={"thread_id": "t"})
    further = {name: value for name, value in ALL.items() if name not in ("temperature", "top_p", "max_tokens", "seed")}
    assert row.extra_requests == {**further, **KEPT, "colour": "red"}
    await service.client.chat.completions.create(**ask("more"), extra_body={"thread_id": "t"})
    assert model.requests[-1].parameters == {}


async def test_a_queued_and_a_resumed_run_ask_the_same(serve: Serve, model: ModelServer) -> None:
    def asks(context: RunContext) -> AssistantAgent:
        def look(where: str) -> str:
            """Look."""
            raise AssertionError("it needs an approval")

        from drsai_backend import requires_approval

        return AssistantAgent(
            "a", model_client=context.model_client(), tools=[requires_approval(look)], reflect_on_tool_use=True
        )

    sent = {**ALL, "parallel_tool_calls": False}
    model.script(None, [Reply(tool_calls=[ToolCall("look", {"where": "here"}, "c1")]), "done"])
    first = await serve({"assistant": asks})
    handle = await first.client.chat.completions.create(
        **ask(**{**sent, "response_format": {"type": "json_object"}}), extra_body={"thread_id": "t"}
    )
    assert handle.drsai["status"] == "awaiting_input"  # type: ignore[attr-defined]
    second = await serve({"assistant": asks})
    answered = await second.http.post(
        "/v1/threads/t/input",
        json={"id": handle.drsai["input_request"]["id"], "decision": "deny", "reason": "no"},  # type: ignore[attr-defined]
    )
    assert answered.status_code < 300, answered.text
    async with asyncio.timeout(10):
        while len(model.requests) < 2:  # noqa: ASYNC110 - the server is another thread
            await asyncio.sleep(0.01)
    assert model.requests[0].parameters == sent
    assert {name: model.requests[1].parameters.get(name) for name in ALL} == ALL


async def test_only_the_agent_that_answers_takes_the_form(serve: Serve, model: ModelServer) -> None:
    service = await serve({"crew": crew, "first": answered_by("writer")(crew)})
    for team, answering in (("crew", "reviewer"), ("first", "writer")):
        model.clear()
        await service.client.chat.completions.create(**{**ask(response_format={"type": "json_object"}), "model": team})
        asked = {request.system: request.parameters for request in model.requests}
        assert {name for name, sent in asked.items() if "response_format" in sent} == {f"You are {answering}."}


async def test_what_chooses_the_speaker_is_not_told_how_to_speak(serve: Serve, model: ModelServer) -> None:
    def team(context: RunContext) -> SelectorGroupChat:
        members = [AssistantAgent(name, model_client=context.model_client()) for name in ("a", "b")]
        return SelectorGroupChat(
            members,
            context.model_client(),
            termination_condition=MaxMessageTermination(2),
            selector_prompt="CHOOSE {roles}",
        )

    model.script("CHOOSE", lambda _: "a")
    service = await serve({"assistant": team})
    await service.client.chat.completions.create(**ask(temperature=0.5, stop="a"))
    chose = [request.parameters for request in model.requests if "CHOOSE" in str(request.messages)]
    spoke = [request.parameters for request in model.requests if "CHOOSE" not in str(request.messages)]
    assert chose == [{"temperature": 0.5}] * len(chose) != []
    assert spoke == [{"temperature": 0.5, "stop": "a"}] * len(spoke) != []


async def test_parse_gives_the_clients_own_class(serve: Serve, model: ModelServer) -> None:
    service = await serve()
    model.script(None, lambda _: Reply({"good": True, "why": "short"}))
    parsed = await service.client.chat.completions.parse(**ask(), response_format=Verdict)
    assert parsed.choices[0].message.parsed == Verdict(good=True, why="short")
    assert model.requests[-1].parameters["response_format"]["json_schema"]["name"] == "Verdict"
    async with service.client.chat.completions.stream(**ask(), response_format=Verdict) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.parsed == Verdict(good=True, why="short")


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
async def test_an_agent_with_a_form_of_its_own_keeps_it(serve: Serve, model: ModelServer) -> None:
    def own(context: RunContext) -> StockAgent:
        client = context.model_client()
        return StockAgent("a", model_client=client, output_content_type=Verdict)

    service = await serve({"assistant": own})
    model.script(None, lambda _: Reply({"good": True, "why": "short"}))
    await service.client.chat.completions.create(**ask(response_format={"type": "json_object"}))
    assert model.requests[-1].parameters["response_format"]["json_schema"]["name"] == "Verdict"


class Plain(ReplayChatCompletionClient):
    """A client that knows nothing of requests' parameters."""


async def test_what_no_model_takes_is_told_or_refused(serve: Serve) -> None:
    def plain() -> StockAgent:
        client: ChatCompletionClient = Plain(["hello"])
        return StockAgent("a", model_client=client)

    service = await serve({"assistant": plain})
    raw = await service.client.chat.completions.with_raw_response.create(**ask(stop="x", temperature=1))
    assert raw.headers["x-ignored-fields"] == "temperature, stop"
    later = await service.http.post("/v1/chat/completions", json=ask(stop="x", background=True))
    assert (later.status_code, later.headers["x-ignored-fields"]) == (202, "stop")
    with pytest.raises(openai.BadRequestError) as refused:
        await service.client.chat.completions.create(**ask(response_format={"type": "json_object"}))
    assert refused.value.param == "response_format"
    assert len((await service.drsai.list_threads()).items) == 2


async def test_the_demo_model_calls_a_clients_tool_by_its_name_only(serve: Serve) -> None:
    """As Claude Code offers its tools, which run what they are given: the team's own calculator answers."""
    service = await serve(openai_api_key=None, openai_base_url=None, model=None)
    command = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    text = "Runs a command, and says what it is and what 12*7 is."
    tools = [{"name": name, "description": text, "input_schema": command} for name in ("Bash", "calculate", "what")]
    body = {"model": "assistant", "max_tokens": 99, "tools": tools}
    said = "<system-reminder>\nBash runs commands.\n</system-reminder>\n\n"
    for words, called in (("What is 12*7?", None), ('Bash command="pwd"', {"command": "pwd"})):
        messages = [{"role": "user", "content": said + words}]
        answer = await service.http.post("/v1/messages", json={**body, "messages": messages})
        content = answer.json()["content"]
        assert [each["input"] for each in content if each["type"] == "tool_use"] == ([called] if called else [])
        assert called or "84" in content[0]["text"]


async def test_the_demo_model_takes_what_it_can(serve: Serve) -> None:
    service = await serve(openai_api_key=None, openai_base_url=None, model=None)
    raw = await service.client.chat.completions.with_raw_response.parse(
        **ask("Is it good?", temperature=1, max_tokens=500), response_format=Verdict
    )
    assert raw.headers["x-ignored-fields"] == "temperature"
    assert isinstance(raw.parse().choices[0].message.parsed, Verdict)
    answer = await service.client.chat.completions.create(**ask("Hello", max_tokens=4))
    assert answer.choices[0].finish_reason == "length"


async def read(answer: Any) -> None:
    async for _ in answer:
        pass


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "failure",
    [
        Failure(400, "Unsupported parameter", "unsupported_parameter", "logit_bias"),
        Failure(422, "body.logit_bias: Extra inputs are not permitted"),
    ],
)
async def test_a_parameter_that_the_endpoint_refuses(
    serve: Serve, model: ModelServer, failure: Failure, stream: bool
) -> None:
    model.script(None, lambda _: failure)
    service = await serve()
    with pytest.raises(openai.APIError) as refused:
        await read(await service.client.chat.completions.create(**ask(logit_bias={"1": 2}, stream=stream)))
    assert (refused.value.param, refused.value.code) == ("logit_bias", "parameter_refused")
    assert isinstance(refused.value, openai.BadRequestError) is not stream
    assert "logit_bias" in refused.value.message
    # Of another's making, it is no fault of the request.
    model.script(None, lambda _: Failure(400, "Unsupported parameter", None, "temperature"))
    with pytest.raises(openai.APIStatusError):
        await service.client.chat.completions.create(**ask(logit_bias={"1": 2}))


DETAILS = {
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


@pytest.mark.parametrize("reason", ["length", "content_filter", "stop"])
@pytest.mark.parametrize("streams", [False, True])
async def test_how_the_answering_call_finished(serve: Serve, model: ModelServer, reason: str, streams: bool) -> None:
    def team(context: RunContext) -> AssistantAgent:
        return AssistantAgent("a", model_client=context.model_client(), model_client_stream=streams)

    service = await serve({"assistant": team})
    model.script(
        None,
        lambda _: Reply("cut", finish_reason=reason, details=DETAILS, service_tier="flex", system_fingerprint="fp_1"),
    )
    whole = await service.client.chat.completions.create(
        **ask(), extra_headers={"Idempotency-Key": "k"}, extra_body={"thread_id": "t"}
    )
    assert whole.choices[0].finish_reason == reason
    assert (whole.service_tier, whole.system_fingerprint) == ("flex", "fp_1")
    assert whole.usage is not None
    assert whole.usage.prompt_tokens_details is not None
    assert whole.usage.completion_tokens_details is not None
    assert whole.usage.prompt_tokens_details.cached_tokens == 4
    assert whole.usage.completion_tokens_details.reasoning_tokens == 3
    streamed = await service.client.chat.completions.create(
        **ask(), stream=True, stream_options={"include_usage": True}
    )
    *_, end, counted = [chunk async for chunk in streamed]
    assert (end.choices[0].finish_reason, end.service_tier, end.system_fingerprint) == (reason, "flex", "fp_1")
    assert counted.usage == whole.usage
    other = await serve({"assistant": team})
    again = await other.client.chat.completions.create(
        **ask(), extra_headers={"Idempotency-Key": "k"}, extra_body={"thread_id": "t"}
    )
    assert (again.choices, again.usage) == (whole.choices, whole.usage)
    run = (await other.http.get(f"/v1/runs/{whole.drsai['run_id']}")).json()  # type: ignore[attr-defined]
    assert run["finish_reason"] == reason
    assert len(model.requests) == 2


@pytest.mark.parametrize("apart", [True, False])
async def test_thoughts_are_beside_the_answer(serve: Serve, model: ModelServer, apart: bool) -> None:
    """As `reasoning_content`, or in the text, whichever way the model gives them; live, whole and repeated."""
    thought, text = "think it over: i think", "Yes, it is."
    reply = Reply(text, reasoning=thought) if apart else Reply(f"<think>\n{thought}\n</think>\n\n{text}")
    model.script(None, lambda _: reply)
    service = await serve()
    whole = await service.client.chat.completions.create(**ask())
    message = whole.choices[0].message
    assert (message.content, message.reasoning_content) == (text, thought)  # type: ignore[attr-defined]
    chunks = [chunk async for chunk in await service.client.chat.completions.create(**ask(), stream=True)]
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].model_dump(exclude_unset=True) == {"role": "assistant", "content": "", "refusal": None}
    assert "".join(delta.content or "" for delta in deltas) == text
    told = [delta.reasoning_content for delta in deltas if hasattr(delta, "reasoning_content")]
    assert "".join(told) == thought
    assert len(told) > 1
    assert all(
        delta.model_dump(exclude_unset=True).keys() <= {"role", "content", "refusal", "reasoning_content"}
        for delta in deltas
    )
    async with service.client.chat.completions.stream(**ask()) as stream:
        final = await stream.get_final_completion()
    assert (final.choices[0].message.content, final.choices[0].message.reasoning_content) == (text, thought)  # type: ignore[attr-defined]
    # The model is not told its old thoughts as an answer.
    await service.client.chat.completions.create(**ask("more"), extra_body={"thread_id": whole.thread_id})  # type: ignore[attr-defined]
    assert thought not in json.dumps([each for each in model.requests[-1].messages if each["role"] == "assistant"])


async def test_text_beside_tool_calls_and_thoughts_of_several(serve: Serve, model: ModelServer) -> None:
    def answer(request: ModelRequest) -> Reply:
        return Reply("fine", reasoning=f"as {request.system[8:-1]}")

    model.script(None, answer)
    service = await serve({"assistant": crew})
    whole = await service.client.chat.completions.create(**ask())
    assert whole.choices[0].message.reasoning_content == "as writer\n\nas reviewer"  # type: ignore[attr-defined]
    assert whole.choices[0].message.content == "**writer**\n\nfine\n\n**reviewer**\n\nfine"
