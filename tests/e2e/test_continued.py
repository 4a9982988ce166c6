"""A history that ends with an answer: where the model can, it continues that answer, and the thread has it as one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage

from drsai_backend import AssistantAgent, RoundRobinGroupChat, RunContext, requires_approval, stop_on_disconnect
from tests.e2e.conftest import Serve, Service, listening
from tests.e2e.test_disconnect import read_until
from tests.support.model_server import Failure, ModelServer, Reply, ToolCall

URL = "/v1/chat/completions"
PARTIAL, REST = "Once upon", " a time."
TOOLS = [{"type": "function", "function": {"name": "client_tool", "parameters": {"type": "object"}}}]


def lone(context: RunContext) -> AssistantAgent:
    def look_up(what: str) -> str:
        """Look something up."""
        return what

    return AssistantAgent("teller", context.model_client(), tools=[look_up], model_client_stream=True)


def quiet(context: RunContext) -> AssistantAgent:
    return AssistantAgent("quiet", context.model_client())


def pair(context: RunContext) -> RoundRobinGroupChat:
    return RoundRobinGroupChat([lone(context), quiet(context)], max_turns=2)


def careful(context: RunContext) -> AssistantAgent:
    @requires_approval
    def pay() -> str:
        """Pay."""
        return "paid"

    return AssistantAgent("payer", context.model_client(), tools=[pay])


class Parrot(BaseChatAgent):
    """Asks its model in a way of its own."""

    def __init__(self, context: RunContext) -> None:
        super().__init__("parrot", "repeats")
        self._model_client = context.model_client()

    @property
    def produced_message_types(self) -> Any:
        return (TextMessage,)

    async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
        return Response(chat_message=TextMessage(content=messages[-1].to_text(), source=self.name))

    async def on_reset(self, cancellation_token: Any) -> None:
        pass


TEAMS: dict[str, Callable[[RunContext], Any]] = {
    "lone": stop_on_disconnect(lone),
    "quiet": quiet,
    "pair": pair,
    "careful": careful,
    "parrot": Parrot,
}


def history(*texts: str) -> list[dict[str, str]]:
    return [{"role": "assistant" if number % 2 else "user", "content": text} for number, text in enumerate(texts)]


async def say(service: Service, *texts: str, model: str = "lone", **values: Any) -> tuple[str, str]:
    """The answer, and its thread."""
    chat = values.pop("chat", None)
    headers = {} if chat is None else {"X-OpenWebUI-Chat-Id": chat}
    body = {"model": model, "messages": history(*texts), **values}
    response = await service.http.post(URL, json=body, headers=headers)
    assert response.status_code == 200, response.text
    if not values.get("stream"):
        return response.json()["choices"][0]["message"]["content"], response.json()["thread_id"]
    chunks = [httpx.Response(200, text=line[6:]).json() for line in response.text.splitlines() if line[6:7] == "{"]
    deltas = [choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]]
    return "".join(deltas), chunks[0]["thread_id"]


async def refused(service: Service, *texts: str, model: str = "lone", **values: Any) -> dict[str, Any]:
    response = await service.http.post(URL, json={"model": model, "messages": history(*texts), **values})
    assert response.status_code == 400, response.text
    return response.json()["error"]


async def stored(service: Service, thread_id: str, **who: str) -> list[str]:
    answer = await service.http.get(f"/v1/threads/{thread_id}/messages", params=who)
    return [each["content"] for each in answer.json()["data"]]


async def threads(service: Service) -> list[dict[str, Any]]:
    return (await service.http.get("/v1/threads")).json()["data"]


def asked_last(model: ModelServer) -> list[tuple[str, str]]:
    return [(each["role"], each["content"]) for each in model.requests[-1].messages if each["role"] != "system"]


def refused_to_continue(model: ModelServer) -> bool:
    return any(request.messages[-1]["role"] == "assistant" for request in model.refused)


@pytest.mark.parametrize("how", ["plain", "prefix", "vllm"])
@pytest.mark.parametrize("team", ["lone", "quiet"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_an_answer_is_continued(serve: Serve, model: ModelServer, how: str, team: str, stream: bool) -> None:
    """Its client gets the rest, the thread has one answer, and the next request finds it: without any id, also where
    another process takes it."""
    service = await serve(TEAMS, model_continues=how)
    model.continues = how
    model.script(None, ["Hello!", PARTIAL, REST, "The end."])
    _, thread = await say(service, "Hi", model=team)
    _, thread = await say(service, "Hi", "Hello!", "A story", model=team)
    said = ("Hi", "Hello!", "A story", PARTIAL)
    rest, continued = await say(service, *said, model=team, stream=stream, tools=TOOLS)
    assert (rest, continued) == (REST, thread)
    assert asked_last(model) == [(each["role"], each["content"]) for each in history(*said)]
    assert await stored(service, thread) == ["Hi", "Hello!", "A story", PARTIAL + REST]

    other = await serve(TEAMS, model_continues=how)
    said = ("Hi", "Hello!", "A story", PARTIAL + REST, "And?")
    assert await say(other, *said, model=team) == ("The end.", thread)
    assert asked_last(model) == [(each["role"], each["content"]) for each in history(*said)]
    assert len(await threads(service)) == 1
    # What was there before is on a branch of its own.
    branches = (await service.http.get(f"/v1/threads/{thread}/branches")).json()["data"]
    assert len(branches) == 2
    assert not refused_to_continue(model)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_an_endpoint_that_says_the_beginning_again(serve: Serve, model: ModelServer, stream: bool) -> None:
    """As Mistral's does."""
    service = await serve(TEAMS, model_continues="prefix")
    model.continues = "prefix"
    model.script(None, [PARTIAL, Reply(PARTIAL + REST, chunks=["Once", " upo", "n a", " time."])])
    _, thread = await say(service, "A story")
    assert (await say(service, "A story", PARTIAL, stream=stream))[0] == REST
    assert await stored(service, thread) == ["A story", PARTIAL + REST]


async def test_a_window_that_names_its_chat(serve: Serve, model: ModelServer) -> None:
    """The answer is as the window has it: edited, or continued twice."""
    service = await serve(TEAMS, model_continues='{"other*": "no", "gpt-4o*": "vllm"}')
    model.continues = "vllm"
    model.script(None, ["Hello!", "Never", REST, " Twice.", "The end."])
    await say(service, "Hi", chat="c")
    await say(service, "Hi", "Hello!", "A story", chat="c")
    said = ["Hi", "Hello!", "A story", PARTIAL]
    for rest in (REST, " Twice."):
        assert await say(service, *said, chat="c") == (rest, "c")
        said[-1] += rest
        assert await stored(service, "c") == said
    assert await say(service, *said, "And?", chat="c") == ("The end.", "c")
    assert asked_last(model) == [(each["role"], each["content"]) for each in history(*said, "And?")]


async def test_a_thread_that_is_named_by_a_program(serve: Serve, model: ModelServer) -> None:
    """It need not send all of the conversation otherwise: here it must, or its answer could be any."""
    service = await serve(TEAMS, model_continues="vllm")
    model.continues = "vllm"
    model.script(None, [PARTIAL, REST, "The end."])
    await say(service, "A story", thread_id="t")
    assert await say(service, "A story", PARTIAL, thread_id="t") == (REST, "t")
    await say(service, "And?", thread_id="t")
    before = await stored(service, "t")
    assert before == ["A story", PARTIAL + REST, "And?", "The end."]
    error = await refused(service, "And?", "The end.", thread_id="t")
    assert error["param"] == "messages"
    assert "send the whole conversation" in error["message"]
    assert await stored(service, "t") == before


async def test_an_unknown_history_is_imported(serve: Serve, model: ModelServer) -> None:
    service = await serve(TEAMS, model_continues="plain")
    model.continues = "plain"
    model.script(None, [REST])
    said = ("Hi", "Hello!", "A story", PARTIAL)
    rest, thread = await say(service, *said)
    assert rest == REST
    assert asked_last(model) == [(each["role"], each["content"]) for each in history(*said)]
    assert await stored(service, thread) == ["Hi", "Hello!", "A story", PARTIAL + REST]


async def test_a_model_that_cannot(serve: Serve, model: ModelServer) -> None:
    """Nothing that is stored changes, and it is said what to do."""
    service = await serve(TEAMS)
    model.script(None, [PARTIAL])
    _, thread = await say(service, "A story")
    for values in ({}, {"thread_id": thread}, {"history": "import"}):
        error = await refused(service, "A story", PARTIAL, **values)
        assert error["param"] == "messages"
        assert "'Continue.'" in error["message"]
    await refused(service, "Unknown", "history", "here", PARTIAL)
    assert await stored(service, thread) == ["A story", PARTIAL]
    assert len(await threads(service)) == 1
    assert len(model.requests) == 1
    assert not refused_to_continue(model)


@pytest.mark.parametrize("team", ["pair", "parrot"])
async def test_a_team_that_cannot(serve: Serve, model: ModelServer, team: str) -> None:
    """Which agent of a group chat is to continue is not known, nor how one of a class of its own asks its model."""
    service = await serve(TEAMS, model_continues="vllm")
    await say(service, "A story", model=team, thread_id="t")
    before = await stored(service, "t")
    error = await refused(service, "A story", before[-1], model=team, thread_id="t")
    assert error["param"] == "messages"
    assert "'Continue.'" in error["message"]
    assert ("group chat" in error["message"]) == (team == "pair")
    assert await stored(service, "t") == before


async def test_what_is_no_answer_to_continue(serve: Serve, model: ModelServer) -> None:
    service = await serve(TEAMS, model_continues="vllm")
    hi, answer = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}
    for messages in ([answer], [hi, {**answer, "content": " "}], [hi, answer, answer]):
        response = await service.http.post(URL, json={"model": "lone", "messages": messages})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == f"messages[{len(messages) - 1}].role"
    assert (await refused(service, "Hi", "Hello", background=True))["param"] == "background"
    assert not await threads(service)


async def test_a_question_is_not_continued(serve: Serve, model: ModelServer) -> None:
    """It waits for its answer as before."""
    service = await serve(TEAMS, model_continues="vllm")
    model.continues = "vllm"
    model.script(None, ["Hello!", Reply(tool_calls=[ToolCall("pay")]), REST])
    await say(service, "Hi", model="careful")
    prompt, thread = await say(service, "Hi", "Hello!", "Pay", model="careful")
    for values in ({}, {"thread_id": thread}):
        said = ("Hi", "Hello!", "Pay", prompt)
        assert "waits" in (await refused(service, *said, model="careful", **values))["message"]
    assert [each["status"] for each in await threads(service)] == ["awaiting_input"]


async def test_another_users_thread(serve: Serve, model: ModelServer) -> None:
    """Equal conversations of two users stay apart."""
    service = await serve(TEAMS, model_continues="vllm")
    model.continues = "vllm"
    model.script(None, [PARTIAL, REST])
    _, thread = await say(service, "A story", user="ann")
    rest, other = await say(service, "A story", PARTIAL, user="bob")
    assert rest == REST
    assert other != thread
    assert await stored(service, thread, user="ann") == ["A story", PARTIAL]
    assert await stored(service, other, user="bob") == ["A story", PARTIAL + REST]


async def test_a_request_that_is_repeated(serve: Serve, model: ModelServer) -> None:
    """With an idempotency key it gets the same rest, of one run."""
    service = await serve(TEAMS, model_continues="vllm")
    model.continues = "vllm"
    model.script(None, [PARTIAL, REST])
    _, thread = await say(service, "A story")
    body = {"model": "lone", "messages": history("A story", PARTIAL)}
    for _ in range(2):
        answer = (await service.http.post(URL, json=body, headers={"Idempotency-Key": "k"})).json()
        assert (answer["choices"][0]["message"]["content"], answer["thread_id"]) == (REST, thread)
    assert await stored(service, thread) == ["A story", PARTIAL + REST]
    other = {**body, "messages": history("A story", "Once")}
    response = await service.http.post(URL, json={**other, "thread_id": thread}, headers={"Idempotency-Key": "k"})
    assert response.json()["error"]["code"] == "idempotency_mismatch"


async def test_stopped_while_it_is_continued(serve: Serve, model: ModelServer) -> None:
    """What the window shows is what the thread has: the beginning, and what came of the rest."""
    service = await serve(TEAMS, model_continues="vllm")
    model.continues = "vllm"
    rest = [" a", " time", *[" there"] * 200]
    model.script(None, [PARTIAL, Reply("".join(rest), chunks=rest, chunk_delay=0.05), "The end."])
    await say(service, "A story", thread_id="t")
    body = {"model": "lone", "messages": history("A story", PARTIAL), "thread_id": "t"}
    async with listening(service.drsai) as url, httpx.AsyncClient(base_url=url) as http:
        await read_until(http, body, "time")
    while (await threads(service))[0]["status"] == "running":  # noqa: ASYNC110  # another connection's run
        await asyncio.sleep(0.02)
    question, answer = await stored(service, "t")
    assert question == "A story"
    assert answer.startswith(f"{PARTIAL} a time")
    assert (await say(service, "A story", answer, "And?", thread_id="t"))[0] == "The end."
    assert asked_last(model) == [("user", "A story"), ("assistant", answer), ("user", "And?")]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_in_the_words_of_anthropic(serve: Serve, model: ModelServer, stream: bool) -> None:
    """There it is called a prefill."""
    service = await serve(TEAMS, model_continues="vllm")
    model.continues = "vllm"
    model.script(None, [REST])
    body = {"model": "lone", "max_tokens": 100, "messages": history("A story", PARTIAL), "stream": stream}
    response = await service.http.post("/v1/messages", json=body)
    assert response.status_code == 200, response.text
    if stream:
        deltas = [line for line in response.text.splitlines() if "text_delta" in line]
        assert PARTIAL not in "".join(deltas)
        assert "time." in "".join(deltas)
    else:
        assert response.json()["content"][0]["text"] == REST
    [thread] = await threads(service)
    assert await stored(service, thread["id"] if "id" in thread else thread["thread_id"]) == ["A story", PARTIAL + REST]


def _profiles(path: Path) -> Path:
    """Of a model that continues answers, and of one that may take its place."""
    own = {"model": "own-1", "parameters": {"temperature": 0.2}, "messages": "alternating", "fallback": ["spare"]}
    own |= {"can": {"continuation": "vllm"}, "cache": {"ttl": 60}, "routes": [{"use": "spare", "language": "latin"}]}
    file = path / "models.json"
    file.write_text(json.dumps({"default": "own", "profiles": {"own": own, "spare": {"model": "spare-1"}}}))
    return file


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_profile_continues_an_answer_as_it_answers(
    serve: Serve, model: ModelServer, tmp_path: Path, stream: bool
) -> None:
    """With its parameters and retries, and as a call of its own; its own model alone. What follows is asked as ever."""
    service = await serve(TEAMS, models=_profiles(tmp_path), model=None)
    model.continues = "vllm"
    model.script("own-1", [Failure(503), REST])
    model.script("spare-1", ["The end."])
    rest, thread = await say(service, "A story", PARTIAL, stream=stream, max_tokens=50)
    assert rest == REST
    [request] = [each for each in model.requests if each.model == "own-1"][1:]
    assert (request.body["temperature"], request.body["max_tokens"]) == (0.2, 50)
    assert request.body["continue_final_message"] is True
    run = (await service.http.get("/v1/runs", params={"limit": 1})).json()["data"][0]["run_id"]
    [call] = (await service.http.get(f"/v1/runs/{run}")).json()["calls"]
    assert (call["profile"], call["model"], call["attempts"]) == ("own", "own-1", 2)
    assert await say(service, "A story", PARTIAL + REST, "And?") == ("The end.", thread)


@pytest.mark.parametrize("name", ["own", "own-1"])
async def test_a_profile_that_is_off_continues_nothing(
    serve: Serve, model: ModelServer, tmp_path: Path, name: str
) -> None:
    service = await serve(TEAMS, models=_profiles(tmp_path), model=None)
    model.continues = "vllm"
    await service.drsai.switches.off("model", name, message="Not today.")
    answer = await service.http.post(URL, json={"model": "lone", "messages": history("A story", PARTIAL)})
    assert (answer.status_code, answer.json()["error"]["code"]) == (424, "switched_off")
    assert model.requests == []
