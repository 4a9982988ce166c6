"""Model profiles behind the API: one endpoint fails, another answers once, and everything says which it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_agentchat.tools import TeamTool
from autogen_core.model_context import TokenLimitedChatCompletionContext

from drsai_backend import AssistantAgent, PlanExecuteTeam, RunContext, requires_approval, tool
from drsai_backend.datamodel import StoredAnswer
from drsai_backend.datamodel.owner import DEFAULT_TENANT, Owner
from drsai_backend.models import tokens
from tests.api.bodies import image, png
from tests.e2e.conftest import Serve
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall

pytestmark = pytest.mark.both_databases
SPARE: dict[str, Any] = {"model": "spare"}


def profiles(folder: Path, **named: Any) -> dict[str, Path]:
    """The setting for a file of these profiles."""
    file = folder / "models.json"
    file.write_text(json.dumps({"profiles": named}))
    return {"models": file}


def writer(context: RunContext) -> RoundRobinGroupChat:
    """A lone agent that streams."""
    agent = AssistantAgent("writer", context.model_client("fast"), model_client_stream=True)
    return RoundRobinGroupChat([agent], max_turns=1)


def _asked(text: str = "Hello", **more: Any) -> dict[str, Any]:
    return {"model": "writer", "messages": [{"role": "user", "content": text}], "user": "ann", **more}


async def _messages(service: Any, thread_id: str) -> list[dict[str, Any]]:
    listed = await service.http.get(f"/v1/threads/{thread_id}/messages", params={"user": "ann"})
    return [item["message"] for item in listed.json()["data"]]


async def _run(service: Any, thread_id: str) -> dict[str, Any]:
    listed = await service.http.get(f"/v1/threads/{thread_id}/runs", params={"user": "ann"})
    run_id = listed.json()["data"][0]["run_id"]
    found: dict[str, Any] = (await service.http.get(f"/v1/runs/{run_id}", params={"user": "ann"})).json()
    return found


@pytest.mark.parametrize("stream", [True, False])
async def test_the_answer_comes_once_and_says_from_whom(
    serve: Serve, model: ModelServer, tmp_path: Path, stream: bool
) -> None:
    model.script("cut-http", lambda _: Reply("never", break_after=1) if stream else Failure(502))
    model.script("spare", lambda _: Reply("Hi there.", details={"completion_tokens_details": {"reasoning_tokens": 2}}))
    fast = {"model": "cut-http", "retries": 0, "breaker": {"failures": 1000}, "fallback": ["spare"]}
    service = await serve({"writer": writer}, **profiles(tmp_path, fast=fast, spare=SPARE))
    answer = await service.http.post("/v1/chat/completions", json=_asked(stream=stream, thread_id="t"))
    if stream:
        chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
    else:
        text = answer.json()["choices"][0]["message"]["content"]
    assert text.strip() == "Hi there."
    assert [request.model for request in model.requests if request.model == "spare"] == ["spare"]
    said = (await _messages(service, "t"))[-1]
    assert (said["content"], said["metadata"]) == ("Hi there.", {"model": "spare", "profile": "spare"})
    [call] = (await _run(service, "t"))["calls"]
    assert call.pop("seconds") >= 0
    assert call == {
        "agent": "writer",
        "step": "m0",
        "profile": "spare",
        "model": "spare",
        "attempts": 2,
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "reasoning_tokens": 2,
    }


async def test_a_stream_that_broke_after_text_is_an_error_of_the_run(
    serve: Serve, model: ModelServer, tmp_path: Path
) -> None:
    model.script("broken-http", lambda _: Reply("One two three", break_after=2))
    fast = {"model": "broken-http", "fallback": ["spare"], "breaker": {"failures": 1000}}
    service = await serve({"writer": writer}, **profiles(tmp_path, fast=fast, spare=SPARE))
    answer = await service.http.post("/v1/chat/completions", json=_asked(stream=True))
    assert "model_unreachable" in answer.text
    assert [request.model for request in model.requests] == ["broken-http"]


async def test_nobody_answers(serve: Serve, model: ModelServer, tmp_path: Path) -> None:
    model.script("none-http", lambda _: Failure(429, "words of the endpoint"))
    fast = {"model": "none-http", "retries": 0, "breaker": {"failures": 1000}}
    service = await serve({"writer": writer}, **profiles(tmp_path, fast=fast))
    answer = await service.http.post("/v1/chat/completions", json=_asked())
    error = answer.json()["error"]
    assert answer.status_code == 424
    assert "model_rate_limit" in answer.text
    assert "words of the endpoint" not in error["message"]


def clerk(context: RunContext) -> RoundRobinGroupChat:
    """An agent whose tool is approved by a person."""

    @requires_approval
    async def pay(to: str) -> str:
        """Pays."""
        return f"paid {to}"

    agent = AssistantAgent("clerk", context.model_client("fast"), tools=[pay], reflect_on_tool_use=True)
    return RoundRobinGroupChat([agent], max_turns=1)


async def test_another_process_gives_a_recorded_answer_again_without_asking(
    serve: Serve, model: ModelServer, tmp_path: Path
) -> None:
    def spare(request: ModelRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply("It is paid.")
        return Reply(tool_calls=[ToolCall("pay", {"to": "ada"}, id="c1")])

    model.script("down-http", lambda _: Failure(500))
    model.script("spare", spare)
    fast = {"model": "down-http", "retries": 0, "breaker": {"failures": 1000}, "fallback": ["spare"]}
    given = profiles(tmp_path, fast=fast, spare=SPARE)
    first = await serve({"writer": clerk}, **given)
    await first.http.post("/v1/chat/completions", json=_asked("Pay ada", thread_id="t"))
    assert [request.model for request in model.requests] == ["down-http", "spare"]
    await first.drsai.drain()
    second = await serve({"writer": clerk}, **given)
    answer = await second.http.post("/v1/chat/completions", json=_asked("yes", thread_id="t"))
    assert "It is paid." in answer.json()["choices"][0]["message"]["content"]
    assert [request.model for request in model.requests] == ["down-http", "spare"] * 2
    by = [message["metadata"].get("model") for message in await _messages(second, "t") if message["models_usage"]]
    assert by == ["spare", "spare"]
    run = await _run(second, "t")
    assert [(call["step"], call["attempts"]) for call in run["calls"]] == [("m0", 2), ("m1", 2)]
    assert run["usage"]["prompt_tokens"] == sum(call["prompt_tokens"] for call in run["calls"]) == 20


async def test_a_cached_answer_is_marked_and_goes_with_its_user(
    serve: Serve, model: ModelServer, tmp_path: Path
) -> None:
    model.script("kept-http", ["first", "second", "third"])
    service = await serve({"writer": writer}, **profiles(tmp_path, fast={"model": "kept-http", "cache": {"ttl": 60}}))

    async def ask(thread_id: str, **more: Any) -> Any:
        answer = await service.http.post("/v1/chat/completions", json=_asked(thread_id=thread_id, **more))
        return answer.json()

    first, again, other = await ask("a"), await ask("b"), await ask("c", cache_seed=5)
    said = [each["choices"][0]["message"]["content"].strip() for each in (first, again, other)]
    assert said == ["first", "first", "second"]
    assert (first["usage"]["total_tokens"], again["usage"]["total_tokens"]) == (15, 0)
    assert (await _messages(service, "b"))[-1]["metadata"] == {
        "model": "kept-http",
        "profile": "fast",
        "cached": "true",
    }
    assert (await _run(service, "b"))["calls"][0]["cached"] is True
    deleted = await service.drsai.users.delete(Owner(DEFAULT_TENANT, "ann"))
    assert deleted["stored_answers"] == 2
    assert await service.drsai.db.get(StoredAnswer) == []
    await ask("d")
    assert [request.model for request in model.requests] == ["kept-http"] * 3


@pytest.mark.parametrize("sees_first", [True, False])
async def test_a_turn_that_waits_goes_on_when_its_model_sees_images_no_more_or_by_now(
    serve: Serve, model: ModelServer, tmp_path: Path, sees_first: bool
) -> None:
    def eyes(request: ModelRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply("It is paid.")
        return Reply(tool_calls=[ToolCall("pay", {"to": "ada"}, id="c1")])

    def mixed(context: RunContext) -> RoundRobinGroupChat:
        """`clerk` beside an agent that always sees: else a request with images is refused."""
        watcher = AssistantAgent("watcher", context.model_client("other"))
        return RoundRobinGroupChat([*clerk(context)._participants, watcher], max_turns=1)  # type: ignore[list-item]

    model.script("eyes", eyes)
    then, now = ({"model": "eyes", "can": {"vision": each}} for each in (sees_first, not sees_first))
    other = {"model": "other", "can": {"vision": True}}
    first = await serve({"writer": mixed}, **profiles(tmp_path, fast=then, other=other))
    asked = _asked(thread_id="t")
    asked["messages"][0]["content"] = [{"type": "text", "text": "Pay."}, image(f"data:image/png;base64,{png()}")]
    await first.http.post("/v1/chat/completions", json=asked)
    await first.drsai.drain()
    second = await serve({"writer": mixed}, **profiles(tmp_path, fast=now, other=other))
    answer = await second.http.post("/v1/chat/completions", json=_asked("yes", thread_id="t"))
    assert "It is paid." in answer.json()["choices"][0]["message"]["content"], answer.text
    sent = [json.dumps(request.messages) for request in model.requests]
    assert [("image_url" in each, "<image>" in each) for each in sent] == [
        (sees_first, not sees_first),
        (not sees_first, sees_first),
    ]


@tool
@requires_approval
async def spend(to: str) -> str:
    """Pays."""
    return f"paid {to}"


def planned(context: RunContext) -> PlanExecuteTeam:
    """A planner, which asks for JSON as its model knows it, before an agent whose tool is approved."""
    return PlanExecuteTeam(context.model_client("fast"), [spend], name="team")


def chosen(context: RunContext) -> SelectorGroupChat:
    """A group chat that asks for a speaker as the family of its model wants it."""
    tools: Any = [spend]
    clerks: list[Any] = [
        AssistantAgent(name, context.model_client("other"), tools=tools, reflect_on_tool_use=True) for name in "ab"
    ]
    return SelectorGroupChat(clerks, context.model_client("fast"), max_turns=1)


@pytest.mark.parametrize(
    ("team", "then", "now"),
    [
        (chosen, {"family": "gpt-4o"}, {"family": "unknown"}),
        (chosen, {"family": "llama-3.3-70b"}, {"family": "gpt-4o"}),
        (planned, {"can": {"json": True, "structured_output": True}}, {"can": {"json": False}}),
        (planned, {"can": {"json": True, "structured_output": False}}, {"can": {"structured_output": True}}),
        (planned, {"can": {"json": False, "structured_output": False}}, {"can": {"json": True}}),
    ],
)
async def test_a_turn_that_waits_goes_on_when_its_model_is_asked_in_another_form_by_now(
    serve: Serve, model: ModelServer, tmp_path: Path, team: Any, then: Any, now: Any
) -> None:
    plan = json.dumps({"steps": [{"id": "a", "do": "Pay.", "needs": []}]})

    def acting(request: ModelRequest) -> Reply:
        if "paid" in str(request.messages):
            return Reply("It is paid.")
        return Reply(tool_calls=[ToolCall("spend", {"to": "ada"}, id="c1")])

    def fast(request: ModelRequest) -> Reply:
        if team is chosen:
            return Reply("a")
        names = [each["function"]["name"] for each in request.body.get("tools", ())]
        if names == ["spend"] or "paid" in str(request.messages):
            return acting(request)
        return Reply(tool_calls=[ToolCall(names[0], json.loads(plan), id="p1")]) if names else Reply(plan)

    def boss(context: RunContext) -> RoundRobinGroupChat:
        """All that the team does is one call of a tool, and so in one turn."""
        tools: Any = [TeamTool(team(context), "crew", "Pays.", return_value_as_last_message=True)]
        return RoundRobinGroupChat([AssistantAgent("boss", context.model_client("boss"), tools=tools)], max_turns=1)

    model.script("fast", fast)
    model.script("other", acting)
    model.script("boss", lambda _: Reply(tool_calls=[ToolCall("crew", {"task": "Pay ada."}, id="b1")]))
    others = {name: {"model": name} for name in ("other", "boss")}
    first = await serve({"writer": boss}, **profiles(tmp_path, fast={"model": "fast", **then}, **others))
    asked = await first.http.post("/v1/chat/completions", json=_asked("Pay ada.", thread_id="t"))
    assert "spend" in asked.text, asked.text
    await first.drsai.drain()
    count = len(model.requests)
    second = await serve({"writer": boss}, **profiles(tmp_path, fast={"model": "fast", **now}, **others))
    answer = await second.http.post("/v1/chat/completions", json=_asked("yes", thread_id="t"))
    assert answer.status_code == 200, answer.text
    assert "paid" in answer.json()["choices"][0]["message"]["content"]
    assert model.requests[count].messages[-1]["role"] == "tool", "what was asked before is not asked again"


class Words:
    """A vocabulary in which a word is a token."""

    def encode(self, text: str) -> list[str]:
        return text.split()


def brief_clerk(context: RunContext) -> RoundRobinGroupChat:
    """`clerk`, who remembers what fits into a few tokens."""
    team = clerk(context)
    held = TokenLimitedChatCompletionContext(context.model_client("fast"), token_limit=90)
    team._participants[0]._model_context = held  # type: ignore[attr-defined]
    return team


@pytest.mark.parametrize("is_exact_first", [True, False])
async def test_a_turn_that_waits_goes_on_when_tokens_are_counted_otherwise(
    serve: Serve, model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_exact_first: bool
) -> None:
    """They are estimated until the vocabulary is there, which another process may have sooner, or never."""
    counted = is_exact_first

    def ready(model: str) -> bool:
        return counted

    def words(model: str) -> Words:
        return Words()

    monkeypatch.setattr(tokens.VOCABULARIES, "ready", ready)
    monkeypatch.setattr(tiktoken, "encoding_for_model", words)
    long = "c" * 600
    replies = ["Good.", long, Reply(tool_calls=[ToolCall("pay", {"to": "ada"}, id="c1")]), "It is paid."]
    model.script("gpt-4o", replies)
    given = profiles(tmp_path, fast={"model": "gpt-4o"})
    first = await serve({"writer": brief_clerk}, **given)
    for text in ("Hello", "Hello again", "Pay ada."):
        await first.http.post("/v1/chat/completions", json=_asked(text, thread_id="t"))
    await first.drsai.drain()
    counted = not is_exact_first
    second = await serve({"writer": brief_clerk}, **given)
    answer = await second.http.post("/v1/chat/completions", json=_asked("yes", thread_id="t"))
    assert answer.json()["choices"][0]["message"]["content"] == "It is paid.", answer.text
    whole = [is_exact_first, not is_exact_first]
    assert [long in json.dumps(request.messages) for request in model.requests[-2:]] == whole
