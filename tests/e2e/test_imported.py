"""Histories that a client brings along reach the models in the roles they had, on endpoints that insist on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import (
    BaseChatAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    PerSourceFilter,
    SocietyOfMindAgent,
)
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, MagenticOneGroupChat
from autogen_core import CancellationToken
from autogen_core.model_context import BufferedChatCompletionContext

from drsai_backend import AssistantAgent, RoundRobinGroupChat, RunContext, SelectorGroupChat, Swarm, Thread
from drsai_backend.datamodel import AutoGenMessage
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply
from tests.support.threads import until

Said = list[dict[str, Any]]
SYSTEM = {"role": "system", "content": "Be kind."}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str | None, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


async def say(service: Service, messages: Said, model: str = "assistant", **values: Any) -> str:
    body = {"model": model, "messages": messages, **values}
    response = await service.http.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


def shown(request: ModelRequest) -> list[tuple[str, Any]]:
    return [(message["role"], message.get("content")) for message in request.messages]


def agent(context: RunContext, name: str, **values: Any) -> AssistantAgent:
    return AssistantAgent(name, context.model_client(), system_message=f"You are {name}.", **values)


def lone(context: RunContext) -> Any:
    return agent(context, "ann")


def pair(context: RunContext) -> Any:
    return RoundRobinGroupChat([agent(context, "ann"), agent(context, "bob")], max_turns=2)


def selected(context: RunContext) -> Any:
    def turns(thread: Sequence[Any]) -> str:
        return "bob" if thread[-1].source == "ann" else "ann"

    members = [agent(context, "ann"), agent(context, "bob")]
    return SelectorGroupChat(members, context.model_client(), selector_func=turns, max_turns=2)


def swarm(context: RunContext) -> Any:
    return Swarm([agent(context, "ann"), agent(context, "bob")], max_turns=1)


def graph(context: RunContext) -> Any:
    ann, bob = agent(context, "ann"), agent(context, "bob")
    builder = DiGraphBuilder()
    builder.add_node(ann).add_node(bob).add_edge(ann, bob)
    return GraphFlow([ann, bob], builder.build())


def nested(context: RunContext) -> Any:
    inner = RoundRobinGroupChat([agent(context, "ann"), agent(context, "bob")], max_turns=2, name="inner")
    return RoundRobinGroupChat([inner, agent(context, "eve")], max_turns=2)


def filtered(context: RunContext) -> Any:
    only = MessageFilterConfig(per_source=[PerSourceFilter(source="user")])
    return RoundRobinGroupChat(
        [agent(context, "ann"), MessageFilterAgent("bob", agent(context, "bob"), filter=only)], max_turns=2
    )


SAME = {"lone": lone, "pair": pair, "selected": selected, "swarm": swarm, "graph": graph, "nested": nested}


def numbered(request: ModelRequest) -> str:
    """The agent's name and what it was shown: an answer that no other request gets."""
    return f"{request.system.split('.')[0]} heard {sum(len(str(each['content'])) for each in request.messages)}."


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", SAME)
async def test_an_imported_conversation_is_as_if_it_had_been_had_here(
    kind: str, strict: bool, serve: Serve, model: ModelServer
) -> None:
    model.strict = strict
    model.script(None, numbered)
    service = await serve(SAME, warm_threads=0)
    first = await say(service, [SYSTEM, user("one")], kind, thread_id="here")
    model.requests.clear()
    second = await say(service, [SYSTEM, user("one"), answer(first), user("two")], kind, thread_id="here")
    here = [shown(request) for request in model.requests]
    model.requests.clear()
    assert await say(service, [SYSTEM, user("one"), answer(first), user("two")], kind) == second
    assert [shown(request) for request in model.requests] == here
    assert any(role == "assistant" for request in here for role, _ in request)
    assert all("Be kind." in str(request[:2]) for request in here)
    model.requests.clear()
    # So is one that is loaded without a run, in parts or whole.
    for parts in ([[SYSTEM, user("one"), answer(first)]], [[user("one")], [answer(first)]]):
        name = f"loaded-in-{len(parts)}"
        for part in parts:
            body = {"messages": part, "model": kind}
            loaded = await service.http.post(f"/v1/threads/{name}/history", json=body)
            assert loaded.status_code == 200, loaded.text
        model.requests.clear()
        assert await say(service, [SYSTEM, user("two")], kind, thread_id=name) == second
        assert [shown(request) for request in model.requests] == here
    model.requests.clear()
    # A thread that began with an import continues like one that did not, in another process, with another prompt.
    history = [
        {**SYSTEM, "content": "Be calm."},
        user("one"),
        answer(first),
        user("two"),
        answer(second),
        user("three"),
    ]
    third = await say(await serve(SAME), history, kind, thread_id="here")
    here = [shown(request) for request in model.requests]
    model.requests.clear()
    await say(service, history[:4], kind, thread_id="there")
    model.requests.clear()
    assert await say(await serve(SAME), history, kind, thread_id="there") == third
    assert [shown(request) for request in model.requests] == here
    assert all("Be calm." in str(request[:2]) and "Be kind." not in str(request[:2]) for request in here)


async def test_a_client_without_threads(serve: Serve, model: ModelServer) -> None:
    model.strict = False
    service = await serve({"assistant": lone})
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    await say(
        service,
        [
            SYSTEM,
            {"role": "developer", "content": "Rhyme."},
            answer("Hello!"),
            user(""),
            user("one"),
            answer(None, tool_calls=[call]),
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
            answer(""),
            answer("It is 42."),
            user("two"),
            user("three"),
        ],
    )
    assert shown(model.requests[0]) == [
        ("system", "You are ann."),
        ("system", "Be kind.\n\nRhyme."),
        ("assistant", "Hello!"),
        ("user", "one"),
        ("assistant", None),
        ("tool", "42"),
        ("assistant", "It is 42."),
        ("user", "two"),
        ("user", "three"),
    ]
    assert model.requests[0].messages[4]["tool_calls"] == [call]
    rows = await service.drsai.db.get(AutoGenMessage)
    assert [(row.config["source"], row.config["metadata"].get("drsai.imported")) for row in rows] == [
        ("system", "system"),
        ("ann", "assistant"),
        ("user", "user"),
        ("ann", "calls"),
        ("ann", "tool"),
        ("ann", "assistant"),
        ("user", None),
        ("user", None),
        ("ann", None),
    ]


async def test_a_strict_endpoint_is_learnt_once(serve: Serve, model: ModelServer) -> None:
    service = await serve({"assistant": lone, "pair": pair})
    history: Said = [SYSTEM, user("one")]
    for text in ("two", "three"):
        history += [answer(await say(service, history)), user(text)]
    await say(service, history, "pair")
    assert len(model.refused) == 2, "for its names, and for its system messages"
    assert shown(model.requests[2])[0] == ("system", "You are ann.\n\nBe kind.")
    assert [role for role, _ in shown(model.requests[2])[1:]] == ["user", "assistant"] * 2 + ["user"]


async def test_an_answer_without_headings_is_the_first_agents(serve: Serve, model: ModelServer) -> None:
    model.strict = False
    service = await serve({"pair": pair, "filtered": filtered})
    history = [user("one"), answer("Intro.\n\n**bob**\n\nFrom **ann**.\n\n**carl**\n\nNobody."), user("two")]
    await say(service, history, "pair")
    ann, bob = ([(each["role"], each.get("name"), each["content"]) for each in r.messages[1:]] for r in model.requests)
    theirs = "From **ann**.\n\n**carl**\n\nNobody."
    assert ann == [
        ("user", "user", "one"),
        ("assistant", None, "Intro."),
        ("user", "bob", theirs),
        ("user", "user", "two"),
    ]
    assert bob[:4] == [
        ("user", "user", "one"),
        ("user", "ann", "Intro."),
        ("assistant", None, theirs),
        ("user", "user", "two"),
    ]
    model.requests.clear()
    await say(service, history, "filtered")
    assert [each[1] for each in shown(model.requests[1])[1:]] == ["one", theirs, "two"]


def ending(context: RunContext) -> Any:
    stop = TextMentionTermination("APPROVE")
    return RoundRobinGroupChat([agent(context, "ann"), agent(context, "bob")], termination_condition=stop, max_turns=2)


async def test_an_imported_word_ends_no_run(serve: Serve, model: ModelServer) -> None:
    service = await serve({"ending": ending})
    text = await say(service, [user("one"), answer("**bob**\n\nAPPROVE"), user("two")], "ending")
    assert text == "**ann**\n\nok\n\n**bob**\n\nok"


class Parrot(BaseChatAgent):
    """An agent with neither model context nor model client: all it knows is what it is told."""

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        heard = " ".join(f"{message.source}:{message.to_model_text()}" for message in messages)
        return Response(chat_message=TextMessage(content=heard, source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        pass


async def test_an_agent_without_a_context_hears_it_all(serve: Serve) -> None:
    service = await serve({"parrot": lambda: Parrot("polly", "repeats")})
    history = [SYSTEM, user("one"), answer("uno"), user("two")]
    text = await say(service, history, "parrot", thread_id="t")
    assert text == "system:Be kind. user:one polly:uno user:two"
    history = [{**SYSTEM, "content": "Be calm."}, *history[1:], answer(text), user("three")]
    assert await say(await serve({"parrot": lambda: Parrot("polly", "repeats")}), history, "parrot", thread_id="t") == (
        "system:Be calm. user:three"
    )


def magentic(context: RunContext) -> Any:
    return MagenticOneGroupChat([agent(context, "ann")], context.model_client())


def society(context: RunContext) -> Any:
    inner = RoundRobinGroupChat([agent(context, "ann")], max_turns=1)
    return SocietyOfMindAgent("mind", inner, context.model_client())


def buffered(context: RunContext) -> Any:
    return agent(context, "ann", model_context=BufferedChatCompletionContext(2))


async def test_other_teams(serve: Serve, model: ModelServer) -> None:
    satisfied = {
        key: {"answer": True, "reason": "r"} for key in ("is_request_satisfied", "is_in_loop", "is_progress_being_made")
    }
    ledger = {
        **satisfied,
        "next_speaker": {"answer": "ann", "reason": "r"},
        "instruction_or_question": {"answer": "x", "reason": "r"},
    }
    model.script(None, lambda request: Reply(ledger) if "pure JSON" in request.last else "ok")
    teams = {"magentic": magentic, "society": society, "buffered": buffered}
    service = await serve(teams, model_structured_output=False)
    history = [SYSTEM, user("one"), answer("uno"), user("two"), answer("due"), user("three")]
    for kind in ("magentic", "society", "buffered"):
        model.requests.clear()
        await say(service, history, kind)
        assert all(str(request.messages[0]).count("Be kind.") == 1 for request in model.requests), kind
        if kind != "buffered":
            assert "uno" in str(model.requests[0].messages)
    assert shown(model.requests[0]) == [
        ("system", "You are ann.\n\nBe kind."),
        ("user", "Continue."),
        ("assistant", "due"),
        ("user", "three"),
    ]


@pytest.mark.parametrize("kind", SAME)
async def test_an_import_survives_a_first_turn_that_failed(kind: str, serve: Serve, model: ModelServer) -> None:
    model.strict = False
    model.script(None, [Failure(500)])
    service = await serve(SAME)
    history = [SYSTEM, user("one"), answer("uno"), user("two")]
    response = await service.http.post(
        "/v1/chat/completions", json={"model": kind, "messages": history, "thread_id": "t"}
    )
    assert response.status_code == 424
    model.script(None, numbered)
    service = await serve(SAME)
    text = await say(service, [*history, user("three")], kind, thread_id="t")
    failed, now = shown(model.requests[0]), shown(model.requests[1])
    assert now == [*failed, ("user", "three")]
    assert ("assistant", "uno") in now
    page = (await service.http.get("/v1/threads/t/messages")).json()["data"]
    assert [item["content"] for item in page[:5]] == ["Be kind.", "one", "uno", "two", "three"]
    assert "uno" not in text


async def test_an_import_survives_its_process(serve: Serve, model: ModelServer) -> None:
    model.strict = False
    model.script(None, [Reply("late", hang=True)])
    first = await serve({"pair": pair}, shutdown_grace_seconds=0)
    history = [SYSTEM, user("one"), answer("**bob**\n\nuno"), user("two")]
    started = await first.http.post(
        "/v1/chat/completions", json={"model": "pair", "messages": history, "thread_id": "t", "background": True}
    )
    assert started.status_code == 202, started.text
    await until(lambda: asyncio.sleep(0, bool(model.requests)))
    model.script(None, numbered)
    await first.drsai.engine.close()
    second = await serve({"pair": pair})

    async def completed() -> bool:
        return (await second.http.get("/v1/threads/t")).json()["status"] == "completed"

    await until(completed)
    assert shown(model.requests[1]) == shown(model.requests[0])
    assert shown(model.requests[2])[2:5] == [("user", "one"), ("assistant", "uno"), ("user", "two")]


async def test_a_repeat_with_a_key_shows_no_imported_message(serve: Serve) -> None:
    service = await serve({"pair": pair})
    history = [SYSTEM, user("one"), answer("**bob**\n\nuno"), user("two")]
    body = {"model": "pair", "messages": history, "thread_id": "t"}
    first, again = [
        (await service.http.post("/v1/chat/completions", json=body, headers={"Idempotency-Key": "k"})).json()
        for _ in range(2)
    ]
    assert again["choices"] == first["choices"]
    assert "uno" not in str(first)


async def test_threads_of_before_go_on(serve: Serve, model: ModelServer) -> None:
    """Histories used to be stored as messages of "system" and "assistant"; the system message is one when sent anew."""
    model.strict = False
    service = await serve({"assistant": lone}, warm_threads=0)
    old = [TextMessage(content="Be kind.", source="system"), TextMessage(content="one", source="user")]
    old += [TextMessage(content="uno", source="assistant")]
    await say(service, [user("zero")], thread_id="t")
    [thread] = await service.drsai.db.get(Thread)
    thread.messages = [*thread.messages, *(message.dump() for message in old)]
    await service.drsai.db.upsert(thread)
    await say(service, [SYSTEM, user("one"), answer("uno"), user("two")], thread_id="t")
    assert shown(model.requests[-1])[1:] == [
        ("system", "Be kind."),
        ("user", "zero"),
        ("assistant", "ok"),
        ("user", "Be kind."),
        ("user", "one"),
        ("user", "uno"),
        ("user", "two"),
    ]
