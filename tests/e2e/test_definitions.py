"""A definition is what the same words in Python would be: its agents send their models the same requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import DiGraphBuilder
from autogen_agentchat.tools import AgentTool
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_core.tools import StaticStreamWorkbench

from drsai_backend import (
    DrSaiAgent,
    GraphFlow,
    PlanExecuteTeam,
    ReflexionTeam,
    RoundRobinGroupChat,
    RouterTeam,
    RunContext,
    SelectorGroupChat,
    Swarm,
    tool,
)
from drsai_backend.agents.contexts import TokenBufferedContext
from drsai_backend.definitions import DefinitionPolicy, load
from drsai_backend.strategies.router import Ask
from drsai_backend.tools.builtin import builtin_tools
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelServer, Reply, ToolCall


@tool
async def shout(text: str) -> str:
    """Say it loud.

    Args:
        text: what to say.
    """
    return text.upper()


FILE = """
tools:
  loud: {python: "tests.e2e.test_definitions:shout"}
agents:
  helper:
    description: A helpful assistant.
    prompt: "You help {{user_id}} of {{tenant}} on {{ thread_id }}, who is {{context.mood}}{{context.more}}. { no } {{{"
    examples: [{user: "1+1?", assistant: "2"}]
    model: {profile: gpt-4o-mini, temperature: 0.2, max_tokens: 50}
    tools: [calculator, loud]
    tool_choice: required
    max_iterations: 4
    context: {kind: token_buffered, max_tokens: 1000}
  plain: {strategy: simple, prompt: Hi., context: {kind: buffered, buffer_size: 3}, stream: false}
  ann: {prompt: I am Ann., handoffs: [bob]}
  bob: {prompt: I am Bob.}
  boss: {prompt: I am the boss., tools: [{agent: ann}]}
  careful:
    prompt: I am careful.
    tools: [loud]
    strategy: {kind: reflexion, threshold: 0.9, max_attempts: 2, criteria: Loud., judge_model: gpt-4o-mini}
  desk:
    prompt: I am the desk.
    tools: [loud]
    strategy:
      kind: router
      skills: [{agent: bob, when: it is about Bob}]
      flows: {form: {description: A form., fill: model, steps: [{ask: name, prompt: "Your name?", max_length: 2}]}}
      instructions: Choose well.
  planned:
    prompt: I plan.
    description: It plans.
    tools: [loud]
    max_iterations: 4
    context: {kind: buffered, buffer_size: 4}
    strategy: {kind: plan_execute, max_steps: 5, retries: 1, replans: 0, at_once: 1, planner_model: gpt-4o}
teams:
  crew:
    kind: round_robin
    description: Ann and Bob.
    participants: [ann, bob]
    termination: {text_mention: {text: DONE, sources: [bob]}, max_messages: 5}
    answered_by: ann
    shown: [ann, bob]
    limits: {max_turns: 9}
  chosen: {kind: selector, participants: [ann, bob], max_turns: 1, model: gpt-4o-mini}
  relay: {kind: swarm, participants: [ann, bob], max_turns: 2}
  line: {kind: graph, participants: [ann, bob], edges: [{from: ann, to: bob}]}
  inside: {kind: round_robin, participants: [crew, plain], max_turns: 2}
serve: [helper, plain, boss, crew, chosen, relay, line, inside, desk, planned, careful]
"""


def _agent(context: RunContext, name: str, prompt: str, **values: Any) -> DrSaiAgent:
    return DrSaiAgent(
        name,
        values.pop("model_client", None) or context.model_client(),
        description=values.pop("description", name),
        system_message=prompt,
        model_client_stream=values.pop("stream", True),
        reflect_on_tool_use=values.pop("reflects", False),
        **values,
    )


def helper(context: RunContext) -> DrSaiAgent:
    client = context.model_client("gpt-4o-mini")
    client.params = type(client.params)(temperature=0.2, max_tokens=50)
    client = type(client)(client.inner, params=client.params, meter=context.meter, rules=context.models.rules)
    prompt = f"You help {context.user_id} of default on {context.thread_id}, who is glad. {{ no }} {{{{{{"
    return _agent(
        context,
        "helper",
        prompt + "\n\nExample:\nUser: 1+1?\nAssistant: 2",
        model_client=client,
        description="A helpful assistant.",
        workbench=[StaticStreamWorkbench([*builtin_tools(["calculator"]), shout])],
        reflects=True,
        max_tool_iterations=3,
        tool_choice="required",
        model_context=TokenBufferedContext(1000),
    )


def plain(context: RunContext) -> DrSaiAgent:
    return _agent(context, "plain", "Hi.", stream=False, model_context=BufferedChatCompletionContext(3))


def ann(context: RunContext) -> DrSaiAgent:
    return _agent(context, "ann", "I am Ann.", handoffs=["bob"])


def bob(context: RunContext) -> DrSaiAgent:
    return _agent(context, "bob", "I am Bob.")


def boss(context: RunContext) -> DrSaiAgent:
    tools = StaticStreamWorkbench([AgentTool(ann(context))])
    return _agent(context, "boss", "I am the boss.", workbench=[tools], reflects=True, max_tool_iterations=9)


def careful(context: RunContext) -> ReflexionTeam:
    tools = StaticStreamWorkbench([shout])
    actor = _agent(context, "careful", "I am careful.", workbench=[tools], reflects=True, max_tool_iterations=9)
    judge = context.model_client("gpt-4o-mini")
    return ReflexionTeam(actor, judge, threshold=0.9, max_attempts=2, criteria="Loud.", name="careful")


def crew(context: RunContext) -> RoundRobinGroupChat:
    ends = TextMentionTermination("DONE", sources=["bob"]) | MaxMessageTermination(5)
    return RoundRobinGroupChat([ann(context), bob(context)], termination_condition=ends, name="crew")


def chosen(context: RunContext) -> SelectorGroupChat:
    return SelectorGroupChat([ann(context), bob(context)], context.model_client("gpt-4o-mini"), max_turns=1)


def relay(context: RunContext) -> Swarm:
    return Swarm([ann(context), bob(context)], max_turns=2)


def line(context: RunContext) -> GraphFlow:
    first, then = ann(context), bob(context)
    builder = DiGraphBuilder()
    builder.add_node(first).add_node(then).add_edge(first, then)
    return GraphFlow([first, then], builder.build())


def inside(context: RunContext) -> RoundRobinGroupChat:
    return RoundRobinGroupChat([crew(context), plain(context)], max_turns=2)


def desk(context: RunContext) -> RouterTeam:
    form = {"description": "A form.", "fill": "model", "steps": [Ask(ask="name", prompt="Your name?", max_length=2)]}
    return RouterTeam(
        "desk",
        context.model_client(),
        {"flows": {"form": form}, "instructions": "Choose well."},
        skills=[bob(context)],
        when={"bob": "it is about Bob"},
        tools=[shout],
        description="desk",
        system_message="I am the desk.",
    )


def planned(context: RunContext) -> PlanExecuteTeam:
    return PlanExecuteTeam(
        context.model_client("gpt-4o"),
        [shout],
        executor_client=context.model_client(),
        name="planned",
        description="It plans.",
        system_message="I plan.",
        model_context=lambda: BufferedChatCompletionContext(4),
        max_steps=5,
        retries=1,
        replans=0,
        at_once=1,
        max_tool_iterations=3,
    )


PYTHON: dict[str, Callable[[RunContext], Any]] = {
    each.__name__: each for each in (helper, plain, boss, crew, chosen, relay, line, inside, desk, planned, careful)
}


def _answer(request: Any) -> Any:
    if "You make the plan" in request.system:
        steps = [("1", "Shout.", []), ("2", "Whisper.", []), ("3", "Listen.", ["1", "2"])]
        return json.dumps({"steps": [{"id": id, "do": do, "needs": needs} for id, do, needs in steps]})
    tools = [each["function"]["name"] for each in request.body.get("tools", ())]
    asked = request.body["messages"][-1]["role"] == "user"
    if "You judge an attempt" in str(request.messages):
        return Reply({"score": 0.5, "reasons": "Quiet.", "reflection": "Shout."})
    if "route" in tools:
        to = "flow:form" if "user: Go." in str(request.messages) and "desk" not in str(request.messages) else "answer"
        return Reply(tool_calls=[ToolCall("route", {"to": to, "confidence": 1, "reason": "so"})])
    if "fill" in tools:
        return Reply(tool_calls=[ToolCall("fill", {"name": "Ann"})])
    if asked and "loud" in tools:
        return Reply(tool_calls=[ToolCall("loud", {"text": "hey"})])
    if asked and "shout" in tools:
        return Reply(tool_calls=[ToolCall("shout", {"text": "hey"})])
    if asked and "ann" in tools:
        return Reply(tool_calls=[ToolCall("ann", {"task": "Help."})])
    return "ann" if "Read the above conversation" in str(request.messages) else "As you say."


@pytest.fixture
async def both(serve: Serve, model: ModelServer, tmp_path: Path) -> tuple[Service, Service]:
    file = tmp_path / "team.yaml"
    file.write_text(FILE)
    model.script(None, _answer)
    return await serve(load(str(file), DefinitionPolicy(("tests.e2e",)))), await serve(PYTHON)


@pytest.mark.parametrize("name", PYTHON)
async def test_the_models_are_sent_the_same(
    both: tuple[Service, Service],
    model: ModelServer,
    name: str,
) -> None:
    sent: list[Any] = []
    for number, service in enumerate(both):
        model.requests.clear()
        for text in ("Go.", "And now?"):
            body = {
                "model": name,
                "messages": [{"role": "user", "content": text}],
                "thread_id": "t",
                "user": f"u{number}",
                "context": {"mood": "glad"},
            }
            answer = await service.http.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
        sent.append([str(request.body).replace(f"u{number}", "u") for request in model.requests])
    assert sent[0] == sent[1]
    assert len(sent[0]) >= 2


async def test_what_a_request_says_goes_before_the_definition(
    both: tuple[Service, Service], model: ModelServer
) -> None:
    body = {"model": "helper", "messages": [{"role": "user", "content": "Go."}], "temperature": 1}
    assert (await both[0].http.post("/v1/chat/completions", json=body)).status_code == 200
    assert (model.requests[0].body["temperature"], model.requests[0].body["max_tokens"]) == (1, 50)


async def test_what_clients_are_told(both: tuple[Service, Service]) -> None:
    engine = both[0].drsai.engine
    assert engine.teams.names() == [*PYTHON]
    assert engine.teams.description("crew") == "Ann and Bob."
    assert engine.catalog.own("crew").limits.max_turns == 9
    assert engine.teams.get("crew").options.answered_by == "ann"
    assert engine.teams.get("crew").options.shown == ["ann", "bob"]
