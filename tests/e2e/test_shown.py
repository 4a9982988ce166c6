"""Whose messages are the text of a group chat's answer, end to end: named speakers, the last one, forms, agents that
are used as tools; and that a chat with hidden speakers stays on its thread."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from pydantic import BaseModel

from drsai_backend import RunContext, answered_by, shows
from drsai_backend.caller import RunOptions
from drsai_backend.errors import InvalidRequest
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall


class Verdict(BaseModel):
    good: bool
    why: str


VERDICT = Verdict(good=True, why="short")
CREW = ("researcher", "writer", "critic")


def member(context: RunContext, name: str, **more: Any) -> AssistantAgent:
    """An agent that streams."""
    prompt = f"You are {name}."
    return AssistantAgent(
        name, context.model_client(), system_message=prompt, model_client_stream=True, description=name, **more
    )


def crew(context: RunContext, turns: int = 3) -> RoundRobinGroupChat:
    return RoundRobinGroupChat([member(context, name) for name in CREW], max_turns=turns)


def twice(context: RunContext) -> RoundRobinGroupChat:
    """Everybody speaks twice, and somebody else than the writer last."""
    return crew(context, 6)


def speaking(model: ModelServer, form: str = "writer") -> None:
    """Everybody says their name and which of their turns it is; whoever answers in the form says JSON."""
    turns: dict[str, int] = {}

    def answer(request: ModelRequest) -> Reply:
        name = (request.system or "").removeprefix("You are ").partition(".")[0]
        turns[name] = turns.get(name, 0) + 1
        if "response_format" in request.parameters:
            return Reply(VERDICT.model_dump())
        return Reply(f"{name} {turns[name]}", chunks=[name[:3], f"{name[3:]} {turns[name]}"])

    model.script(None, answer)


async def said(service: Service, team: str, text: str = "x", *, stream: bool, **more: Any) -> tuple[str, list[str]]:
    """The content of an answer, and who has said what `drsai.messages` has."""
    asked: dict[str, Any] = {"model": team, "messages": [{"role": "user", "content": text}], "extra_body": more}
    if not stream:
        whole = await service.client.chat.completions.create(**asked)
        return whole.choices[0].message.content or "", [each["source"] for each in whole.drsai["messages"]]  # type: ignore[attr-defined]
    parts: list[str] = []
    told: list[str] = []
    async for chunk in await service.client.chat.completions.create(**asked, stream=True):
        if chunk.choices and chunk.choices[0].finish_reason:
            told = [each["source"] for each in chunk.drsai["messages"]]  # type: ignore[attr-defined]
        parts += [choice.delta.content or "" for choice in chunk.choices]
    return "".join(parts), told


@pytest.mark.parametrize("stream", [False, True])
async def test_a_team_says_who_is_shown(serve: Serve, model: ModelServer, stream: bool) -> None:
    service = await serve({"all": crew, "one": shows("writer")(crew), "two": shows("critic", "writer")(crew)})
    speaking(model)
    assert await said(service, "one", stream=stream) == ("writer 1", [*CREW])
    speaking(model)
    assert await said(service, "two", stream=stream) == ("**writer**\n\nwriter 1\n\n**critic**\n\ncritic 1", [*CREW])
    speaking(model)
    text, told = await said(service, "all", stream=stream)
    assert text == "\n\n".join(f"**{name}**\n\n{name} 1" for name in CREW)
    assert told == [*CREW]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_last_message_alone(serve: Serve, model: ModelServer, stream: bool) -> None:
    service = await serve({"crew": shows("last")(crew), "twice": shows("last")(twice)})
    speaking(model)
    assert await said(service, "crew", stream=stream) == ("critic 1", [*CREW])
    speaking(model)
    assert await said(service, "twice", stream=stream) == ("critic 2", [*CREW, *CREW])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_goes_before_its_team(serve: Serve, model: ModelServer, stream: bool) -> None:
    service = await serve({"crew": shows("writer")(crew)})
    speaking(model)
    assert await said(service, "crew", stream=stream, shown=["critic"]) == ("critic 1", [*CREW])
    speaking(model)
    assert (await said(service, "crew", stream=stream, shown="last"))[0] == "critic 1"
    with pytest.raises(openai.BadRequestError) as refused:
        await said(service, "crew", stream=stream, shown=["writr"])
    assert refused.value.param == "shown"
    for name in ("writr", *CREW):
        assert name in refused.value.message


async def test_a_call_of_the_program_goes_before_its_team(serve: Serve, model: ModelServer) -> None:
    """As a request does: `start`, `run`, `run_stream`, and those of `sync`, which are made of them."""
    service = await serve({"crew": shows("writer")(crew)})
    drsai = service.drsai

    async def seen(thread_id: str) -> list[str]:
        stored = (await service.http.get(f"/v1/threads/{thread_id}/messages")).json()["data"]
        return [each["source"] for each in stored if each["shown"]]

    speaking(model)
    await (await drsai.start("crew", "x", thread_id="started", shown=["critic"])).wait()
    await drsai.run("crew", "x", thread_id="run", shown=["critic", "researcher"])
    async for _ in drsai.run_stream("crew", "x", thread_id="streamed", shown="last"):
        pass
    await drsai.run("crew", "x", thread_id="as it is")
    assert [await seen(each) for each in ("started", "run", "streamed", "as it is")] == [
        ["critic"],
        ["researcher", "critic"],
        ["critic"],
        ["writer"],
    ]
    with pytest.raises(InvalidRequest) as refused:
        await drsai.run("crew", "x", shown=["writr"])
    assert refused.value.param == "shown"
    assert "shown" in RunOptions.__annotations__, "the options of all three, of `sync` too (drsai_backend/sync.pyi)"


@pytest.mark.parametrize("team", ["crew", "twice", "last", "first"])
async def test_parse_reads_the_answer_of_a_group_chat(serve: Serve, model: ModelServer, team: str) -> None:
    """Whoever answers speaks once or twice, last or not; and the team's own setting does not come between."""
    teams = {
        "crew": answered_by("writer")(crew),
        "twice": answered_by("writer")(twice),
        "last": crew,
        "first": shows("critic")(answered_by("researcher")(crew)),
    }
    service = await serve(teams)
    speaking(model)
    chat: dict[str, Any] = {"model": team, "messages": [{"role": "user", "content": "x"}], "response_format": Verdict}
    parsed = await service.client.chat.completions.parse(**chat)
    assert parsed.choices[0].message.parsed == VERDICT
    assert len(parsed.drsai["messages"]) == (6 if team == "twice" else 3)  # type: ignore[attr-defined]
    async with service.client.chat.completions.stream(**chat) as stream:
        assert (await stream.get_final_completion()).choices[0].message.parsed == VERDICT
    response = await service.client.responses.parse(model=team, input="x", text_format=Verdict)
    assert response.output_parsed == VERDICT
    assert [item.type for item in response.output] == ["message"]
    async with service.client.responses.stream(model=team, input="x", text_format=Verdict) as events:
        final = await events.get_final_response()
    assert final.output_parsed == VERDICT
    stored = await service.client.responses.retrieve(final.id)
    assert [(item.id, item.type) for item in stored.output] == [(item.id, item.type) for item in final.output]
    assert stored.output_text == final.output_text


async def test_another_process_follows_and_tells_the_same(serve: Serve, model: ModelServer) -> None:
    """The answer is known at the end only, as that of an earlier turn."""
    goes = asyncio.Event()
    speaking(model)

    async def slow(_: ModelRequest) -> Reply:
        while not goes.is_set():  # noqa: ASYNC110 - the server is another thread
            await asyncio.sleep(0.01)
        return Reply("critic 1")

    model.script("critic", slow)
    teams = {"crew": answered_by("writer")(crew)}
    first, second = await serve(teams), await serve(teams)
    form: Any = {"format": {"type": "json_object"}}
    begun = await first.client.responses.create(model="crew", input="x", text=form, background=True)

    async def follow() -> list[Any]:
        return [event async for event in await second.client.responses.retrieve(begun.id, stream=True)]

    following = asyncio.create_task(follow())
    while len(model.requests) < 3:  # noqa: ASYNC110 - the server is another thread
        await asyncio.sleep(0.01)
    goes.set()
    told = await following
    stored = await first.client.responses.retrieve(begun.id)
    last = told[-1].response
    assert Verdict.model_validate_json(last.output_text) == VERDICT
    assert (last.status, [item.id for item in last.output]) == ("completed", [item.id for item in stored.output])
    assert "".join(event.delta for event in told if event.type == "response.output_text.delta") == stored.output_text
    numbers = [event.sequence_number for event in told]
    assert numbers == sorted({*numbers})


async def test_the_log_of_a_thread_has_what_is_not_shown(serve: Serve, model: ModelServer) -> None:
    service = await serve({"crew": shows("last")(crew), "lone": lambda context: member(context, "writer")})
    speaking(model)
    async with asyncio.timeout(30):
        await said(service, "crew", stream=True, thread_id="t")
    messages = (await service.http.get("/v1/threads/t/messages")).json()["data"]
    assert [(each["source"], each["shown"]) for each in messages if each["source"] in CREW] == [
        ("researcher", False),
        ("writer", False),
        ("critic", True),
    ]
    # Another team gets to know the conversation as it was shown.
    model.clear()
    await said(service, "lone", "And now?", stream=False, thread_id="t")
    assert [each["content"] for each in model.requests[-1].messages[1:]] == ["x", "critic 1", "And now?"]


def with_tools(context: RunContext) -> AssistantAgent:
    """An agent with an agent of its own name for a tool, and a team."""
    inner = RoundRobinGroupChat([member(context, "drafter"), member(context, "checker")], max_turns=2, name="desk")
    tools: list[Any] = [AgentTool(member(context, "helper")), TeamTool(inner, "desk", "the desk")]
    return member(context, "boss", tools=tools, reflect_on_tool_use=True)


def as_participant(context: RunContext) -> RoundRobinGroupChat:
    """An agent is used as a tool, and takes part by itself."""
    helper = member(context, "helper")
    return RoundRobinGroupChat([with_tools(context), helper], max_turns=2)


@pytest.mark.parametrize("stream", [False, True])
async def test_who_is_used_as_a_tool_is_not_shown(serve: Serve, model: ModelServer, stream: bool) -> None:
    def boss(request: ModelRequest) -> Reply:
        if any(message["role"] == "tool" for message in request.messages):
            return Reply("done")
        calls = [ToolCall("helper", {"task": "inner task"}, "c1"), ToolCall("desk", {"task": "inner task"}, "c2")]
        return Reply(tool_calls=calls)

    def scripts() -> None:
        speaking(model)
        model.script("boss", boss)

    service = await serve({"boss": with_tools, "both": as_participant})
    scripts()
    assert await said(service, "boss", stream=stream, thread_id="t") == ("done", ["boss"])
    scripts()
    text, told = await said(service, "both", stream=stream)
    assert text == "**boss**\n\ndone\n\n**helper**\n\nhelper 2"
    assert told == ["boss", "helper"]
    run = (await service.http.get("/v1/threads/t/runs")).json()["data"][0]["run_id"]
    steps = (await service.http.get(f"/v1/runs/{run}/steps")).json()["data"]
    assert {"helper", "drafter", "checker", "boss"} <= {step["source"] for step in steps}
    # What is no part of the answer is no word of the user's either.
    memory = (await service.http.get("/api/v1/agent/memory/t")).json()["short_term"]
    assert [(each["role"], each["content"]) for each in memory] == [("user", "x"), ("assistant", "done")]


TEAMS: dict[str, Any] = {"one": shows("writer")(crew), "last": shows("last")(crew), "boss": with_tools, "form": crew}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("team", [*TEAMS])
async def test_what_is_resent_finds_its_thread(serve: Serve, model: ModelServer, team: str, stream: bool) -> None:
    """By a client that names no thread, in the process that has it warm and in others."""
    speaking(model)
    form: dict[str, Any] = {"response_format": {"type": "json_object"}} if team == "form" else {}
    history: list[Any] = []
    threads: list[str] = []
    service = await serve(TEAMS)
    for number in range(4):
        history.append({"role": "user", "content": f"question {number}"})
        asked: dict[str, Any] = {"model": team, "messages": history, **form}
        if stream:
            parts: list[str] = []
            async for chunk in await service.client.chat.completions.create(**asked, stream=True):
                threads.append(chunk.thread_id)  # type: ignore[attr-defined]
                parts += [choice.delta.content or "" for choice in chunk.choices]
            history.append({"role": "assistant", "content": "".join(parts)})
        else:
            whole = await service.client.chat.completions.create(**asked)
            threads.append(whole.thread_id)  # type: ignore[attr-defined]
            history.append({"role": "assistant", "content": whole.choices[0].message.content})
        assert "researcher" not in history[-1]["content"]
        if number:
            service = await serve(TEAMS)
    assert len({*threads}) == 1
