"""A catalogue of teams, one or more of every kind AutoGen has, each with a scripted model and tasks for two runs.

Every call of a builder makes a fresh team. Nothing depends on anything but the messages a model is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autogen_agentchat.agents import (
    AssistantAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    PerSourceFilter,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.conditions import (
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    TextMentionTermination,
    TimeoutTermination,
    TokenUsageTermination,
)
from autogen_agentchat.messages import HandoffMessage, MultiModalMessage, StructuredMessage
from autogen_agentchat.teams import (
    BaseGroupChat,
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_core import CancellationToken, FunctionCall
from autogen_core.memory import ListMemory, MemoryContent
from autogen_core.model_context import BufferedChatCompletionContext, HeadAndTailChatCompletionContext
from pydantic import BaseModel

from tests.support.scripted import Answer, ScriptedClient, counting, user_count
from tests.support.teams.foreign import Chatty, Tally, Trimmed, tiny_image


@dataclass(frozen=True)
class Scenario:
    name: str
    build: Callable[[bool], BaseGroupChat]
    """Takes whether the models stream."""
    tasks: list[Any] = field(default_factory=lambda: ["Begin.", "Go on."])


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def fail(reason: str) -> str:
    """Always fails."""
    raise ValueError(reason)


def agent(name: str, stream: bool, rule: Any = None, **kwargs: Any) -> AssistantAgent:
    client = ScriptedClient(
        rule or counting(name), vision=kwargs.pop("vision", False), thought=kwargs.pop("thought", None)
    )
    return AssistantAgent(name, client, model_client_stream=stream, description=f"{name} helps.", **kwargs)


def round_robin(stream: bool) -> BaseGroupChat:
    members = [agent("ann", stream), agent("bob", stream), agent("cid", stream)]
    return RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(5))


def single(stream: bool) -> BaseGroupChat:
    return RoundRobinGroupChat([agent("solo", stream)], max_turns=1)


def combined_conditions(stream: bool) -> BaseGroupChat:
    condition = (
        (MaxMessageTermination(4) & SourceMatchTermination(["bob"]))
        | TextMentionTermination("NEVER")
        | (TokenUsageTermination(max_total_token=10_000) | TimeoutTermination(3600))
    )
    return RoundRobinGroupChat(
        [agent("ann", stream), agent("bob", stream)],
        termination_condition=condition,
        max_turns=7,
        emit_team_events=True,
    )


def contexts(stream: bool) -> BaseGroupChat:
    memory = ListMemory()
    memory.content.append(MemoryContent(content="The sky is blue.", mime_type="text/plain"))
    members = [
        agent("ann", stream, model_context=BufferedChatCompletionContext(buffer_size=3)),
        agent("bob", stream, model_context=HeadAndTailChatCompletionContext(head_size=1, tail_size=2)),
        agent("cid", stream, memory=[memory], thought="Let me think."),
    ]
    return RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(7))


def selecting(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
    text = messages[0].content
    history = text.split("Read the above")[0]
    said = {name: history.count(f"{name}: ") for name in ("ann", "bob", "cid")}
    return min(said, key=lambda name: (said[name], name))


def selector_model(stream: bool) -> BaseGroupChat:
    return SelectorGroupChat(
        [agent("ann", stream), agent("bob", stream), agent("cid", stream)],
        ScriptedClient(selecting),
        termination_condition=MaxMessageTermination(5),
        selector_prompt="Roles:\n{roles}\n\n{history}\n\nRead the above and pick one of {participants}.",
        emit_team_events=stream,
        model_client_streaming=stream,
    )


def selector_function(stream: bool) -> BaseGroupChat:
    async def choose(thread: Sequence[Any]) -> str | None:
        return None if len(thread) % 3 == 0 else ("ann" if len(thread) % 2 else "bob")

    return SelectorGroupChat(
        [agent("ann", stream), agent("bob", stream)],
        ScriptedClient(lambda messages, options: "bob"),
        selector_func=choose,
        candidate_func=lambda thread: ["ann", "bob"],
        allow_repeated_speaker=True,
        max_turns=4,
    )


def swarm_rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
    names = [tool["name"] if isinstance(tool, dict) else tool.name for tool in options["tools"]]
    handoffs = [name for name in names if name.startswith("transfer_to_")]
    turn = len(messages)
    if turn % 3 == 0 and handoffs:
        return [FunctionCall(id=f"h{turn}", name=handoffs[turn % len(handoffs)], arguments="{}")]
    if turn % 3 == 1 and "add" in names:
        return [FunctionCall(id=f"a{turn}", name="add", arguments=json.dumps({"a": turn, "b": 1}))]
    return f"answer {turn}"


def swarm(stream: bool) -> BaseGroupChat:
    members = [
        agent("ann", stream, swarm_rule, handoffs=["bob"], tools=[add]),
        agent("bob", stream, swarm_rule, handoffs=["ann"], tools=[add], reflect_on_tool_use=False),
    ]
    return Swarm(members, termination_condition=MaxMessageTermination(6))


def swarm_to_user(stream: bool) -> BaseGroupChat:
    def asks(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        if user_count(messages) == 1:
            return [FunctionCall(id="h1", name="transfer_to_user", arguments="{}")]
        return "Thank you, that is all. TERMINATE"

    members = [agent("clerk", stream, asks, handoffs=["user"])]
    return Swarm(members, termination_condition=HandoffTermination("user") | TextMentionTermination("TERMINATE"))


def tool_rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
    if options["tool_choice"] == "none":
        return f"reflected over {len(messages)} messages"
    results = sum(type(message).__name__ == "FunctionExecutionResultMessage" for message in messages)
    turn = len(messages)
    if results % 2 == 0:
        return [
            FunctionCall(id=f"c{turn}a", name="add", arguments='{"a": 1, "b": 2}'),
            FunctionCall(id=f"c{turn}b", name="fail", arguments='{"reason": "broken"}'),
            FunctionCall(id=f"c{turn}c", name="unknown", arguments="{}"),
        ]
    if results % 4 == 1:
        return [FunctionCall(id=f"c{turn}d", name="add", arguments="not json")]
    return f"done after {turn}"


def tools(stream: bool) -> BaseGroupChat:
    members = [
        agent("ann", stream, tool_rule, tools=[add, fail]),
        agent("bob", stream, tool_rule, tools=[add, fail], reflect_on_tool_use=True),
        agent("cid", stream, tool_rule, tools=[add, fail], max_tool_iterations=3),
    ]
    return RoundRobinGroupChat(members, max_turns=4)


def graph_sequence(stream: bool) -> BaseGroupChat:
    a, b, c = agent("a", stream), agent("b", stream), agent("c", stream)
    builder = DiGraphBuilder().add_node(a).add_node(b).add_node(c)
    graph = builder.add_edge(a, b).add_edge(b, c).build()
    return GraphFlow([a, b, c], graph=graph)


def graph_fan_out(stream: bool) -> BaseGroupChat:
    # Equal agents in the middle: their order may differ from run to run, what is said may not.
    members = [agent(name, stream) for name in ("a", "b", "c", "d", "e")]
    a, b, c, d, e = members
    builder = DiGraphBuilder()
    for member in members:
        builder.add_node(member)
    for middle in (b, c, d):
        builder.add_edge(a, middle).add_edge(middle, e)
    return GraphFlow(members, graph=builder.build(), termination_condition=MaxMessageTermination(50))


def graph_condition(stream: bool) -> BaseGroupChat:
    a, b, c, d = (agent(name, stream) for name in ("a", "b", "c", "d"))
    builder = DiGraphBuilder().add_node(a).add_node(b).add_node(c).add_node(d)
    builder.add_edge(a, b, condition=lambda message: "sees 1 " in message.to_model_text())
    builder.add_edge(a, c, condition=lambda message: "sees 1 " not in message.to_model_text())
    builder.add_edge(b, d, activation_group="x", activation_condition="any")
    builder.add_edge(c, d, activation_group="x", activation_condition="any")
    return GraphFlow([a, b, c, d], graph=builder.build())


def graph_loop(stream: bool) -> BaseGroupChat:
    def judge(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return "good" if len(messages) % 7 >= 5 else "again"

    w, r, f = agent("w", stream), agent("r", stream, judge), agent("f", stream)
    builder = DiGraphBuilder().add_node(w).add_node(r).add_node(f)
    builder.add_edge(w, r)
    builder.add_edge(r, w, condition=lambda message: "again" in message.to_model_text(), activation_group="redo")
    builder.add_edge(r, f, condition="good")
    builder.set_entry_point(w)
    graph = builder.build()
    return GraphFlow([w, r, f], graph=graph, termination_condition=MaxMessageTermination(30))


def ledger_rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
    if options["json_output"] is None:
        return f"plan over {len(messages)} messages"
    said = sum(str(message.content).startswith(("ann sees", "bob sees")) for message in messages)
    stalled = said == 1 and len(messages) < 5
    answers: dict[str, Any] = {
        "is_request_satisfied": said >= 3,
        "is_in_loop": False,
        "is_progress_being_made": not stalled,
        "next_speaker": "ann" if said % 2 == 0 else "bob",
        "instruction_or_question": f"step {said}",
    }
    return json.dumps({key: {"reason": "because", "answer": value} for key, value in answers.items()})


def magentic(stream: bool) -> BaseGroupChat:
    return MagenticOneGroupChat(
        [agent("ann", stream), agent("bob", stream)], ScriptedClient(ledger_rule), max_turns=8, max_stalls=1
    )


def nested(stream: bool) -> BaseGroupChat:
    innermost = RoundRobinGroupChat([agent("deep", stream)], name="deepest", max_turns=1)
    inner = RoundRobinGroupChat(
        [agent("ann", stream), innermost], name="inner", termination_condition=MaxMessageTermination(3)
    )
    return RoundRobinGroupChat([inner, agent("cid", stream)], max_turns=3)


def society(stream: bool) -> BaseGroupChat:
    inner = RoundRobinGroupChat([agent("ann", stream), agent("bob", stream)], max_turns=2)
    mind = SocietyOfMindAgent("mind", inner, ScriptedClient(counting("mind")))
    return RoundRobinGroupChat([mind, agent("cid", stream)], max_turns=3)


def user_proxy(stream: bool) -> BaseGroupChat:
    async def answer(prompt: str, token: CancellationToken | None) -> str:
        return "I approve."

    proxy = UserProxyAgent("human", input_func=answer)
    return RoundRobinGroupChat([agent("ann", stream), proxy], termination_condition=MaxMessageTermination(5))


class Verdict(BaseModel):
    good: bool
    why: str


def structured(stream: bool) -> BaseGroupChat:
    def verdict(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return Verdict(good=len(messages) > 2, why=f"saw {len(messages)}").model_dump_json()

    judge = agent("judge", stream, verdict, output_content_type=Verdict)
    return RoundRobinGroupChat(
        [judge, agent("ann", stream)], max_turns=3, custom_message_types=[StructuredMessage[Verdict]]
    )


def foreign(stream: bool) -> BaseGroupChat:
    members = [
        Tally("tally"),
        agent("ann", stream, model_context=Trimmed(buffer_size=10), vision=True),
        Chatty("chatty", "chats"),
    ]
    return RoundRobinGroupChat(members, max_turns=5)


def filtered(stream: bool) -> BaseGroupChat:
    inner = agent("bob", stream)
    keep = MessageFilterConfig(per_source=[PerSourceFilter(source="user", position="last", count=1)])
    return RoundRobinGroupChat(
        [agent("ann", stream), MessageFilterAgent("bob", inner, keep)], termination_condition=MaxMessageTermination(6)
    )


def odd_texts(stream: bool) -> BaseGroupChat:
    def odd(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return f"nul \0 and \ud800 surrogate {len(messages)}"

    return RoundRobinGroupChat([agent("ann", False, odd), agent("bob", stream)], max_turns=3)


SCENARIOS = [
    Scenario("round_robin", round_robin),
    Scenario("single", single),
    Scenario("combined_conditions", combined_conditions),
    Scenario("contexts", contexts),
    Scenario("selector_model", selector_model),
    Scenario("selector_function", selector_function),
    Scenario("swarm", swarm),
    Scenario("swarm_to_user", swarm_to_user, ["Help.", HandoffMessage(source="user", target="clerk", content="Yes.")]),
    Scenario("tools", tools),
    Scenario("graph_sequence", graph_sequence),
    Scenario("graph_fan_out", graph_fan_out),
    Scenario("graph_condition", graph_condition),
    Scenario("graph_loop", graph_loop),
    Scenario("magentic", magentic),
    Scenario("nested", nested),
    Scenario("society", society),
    Scenario("user_proxy", user_proxy),
    Scenario("structured", structured),
    Scenario("foreign", foreign, [MultiModalMessage(source="user", content=["look", tiny_image()]), "Go on."]),
    Scenario("filtered", filtered),
    Scenario("odd_texts", odd_texts),
]
