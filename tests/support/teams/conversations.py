"""Random teams and conversations, described by JSON, so that another process builds the same.

A member's answer is chosen by a hash of the seed, its name and what it is shown. As a program, it continues a cut run:
`python -m tests.support.teams.conversations` reads a JSON object from standard input and writes the rest of the run.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from autogen_agentchat.agents import (
    AssistantAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    PerSourceFilter,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.base import TerminationCondition
from autogen_agentchat.conditions import (
    FunctionalTermination,
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    TextMentionTermination,
    TokenUsageTermination,
)
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, MultiModalMessage, TextMessage
from autogen_agentchat.teams import (
    BaseGroupChat,
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import CancellationToken, FunctionCall
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)

from drsai_backend.agents.contexts import CompactionContext, EphemeralOutputsContext, TokenBufferedContext
from drsai_backend.state import expand
from tests.support.running import Stored, TurnRun, comparable
from tests.support.scripted import Answer, Rule, ScriptedClient
from tests.support.teams.foreign import Chatty, Counter, Remembering, Tally, Trimmed, tiny_image
from tests.support.teams.scenarios import add, fail, ledger_rule

Spec = dict[str, Any]

KINDS = [
    "round_robin",
    "selector",
    "selector_function",
    "swarm",
    "sequence",
    "fan_out",
    "loop",
    "magentic",
    "nested",
    "society",
]
MEMBERS = ["assistant", "assistant", "assistant", "tally", "chatty", "human", "filtered"]
CONTEXTS = [
    "unbounded",
    "buffered",
    "head_and_tail",
    "trimmed",
    "token_limited",
    "shared",
    "ephemeral",
    "token_buffered",
]
CONTEXTS.append("compacted")
NAMES = ["ann", "bob", "cid", "dee", "eve"]


def pick(options: Sequence[Any], *key: Any) -> Any:
    """One of the options; which, only `key` decides."""
    return options[zlib.crc32(repr(key).encode("utf-8", "backslashreplace")) % len(options)]


def _shown(messages: Sequence[Any]) -> list[Any]:
    """What an answer may depend on: no ids, no addresses."""
    last = messages[-1].content if messages else ""
    return [len(messages), last if isinstance(last, str) else [part if isinstance(part, str) else 0 for part in last]]


def condition(spec: Spec) -> TerminationCondition:
    """Always one that comes to an end."""
    if spec["kind"] == "fan_out":
        # AutoGen shows a condition only what the last of concurrent speakers said, whoever that is.
        return MaxMessageTermination(100)
    most = spec["most"]
    end: TerminationCondition = MaxMessageTermination(most, include_agent_event=spec["seed"] % 2 == 0)
    for extra in spec["conditions"]:
        match extra:
            case "and":
                end = end | (MaxMessageTermination(max(most - 2, 1)) & SourceMatchTermination(["bob"]))
            case "text":
                end = end | TextMentionTermination("TERMINATE")
            case "tokens":
                end = end | TokenUsageTermination(max_total_token=40)
            case "handoff":
                end = end | HandoffTermination("nobody")
            case "function":
                end = end | FunctionalTermination(lambda messages: len(messages) > 9)
            case _:
                end = Remembering(end, most + 1)
    return end


def _answers(spec: Spec, name: str) -> Rule:
    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        seen = _shown(messages)
        tools = [tool["name"] if isinstance(tool, dict) else tool.name for tool in options["tools"]]
        if options["tool_choice"] != "none" and tools and pick([True, False, False], "call", spec["seed"], name, seen):
            count = pick([1, 1, 2, 3], "count", spec["seed"], name, seen)
            names = [pick(tools, n, spec["seed"], name, seen) for n in range(count)]
            if any(tool in ("agent", "team") or tool.startswith("transfer_to_") for tool in names):
                names = names[:1]  # AutoGen is not made for several of these at once.
            return [_call(tool, f"{name}{len(messages)}{n}", n) for n, tool in enumerate(names)]
        return str(pick(spec["texts"], "text", spec["seed"], name, seen))

    return rule


def _call(tool: str, call_id: str, n: int) -> FunctionCall:
    arguments = {
        "add": json.dumps({"a": 1, "b": n}),
        "fail": '{"reason": "so"}',
        "agent": '{"task": "do"}',
        "team": '{"task": "do"}',
    }
    return FunctionCall(id=call_id, name=tool, arguments=arguments.get(tool, "{}"))


def _client(spec: Spec, rule: Rule, thought: str | None = None) -> ScriptedClient:
    return ScriptedClient(rule, vision=True, thought=thought, piece=11)


class Builder:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.shared = UnboundedChatCompletionContext()

    def context(self, kind: str) -> ChatCompletionContext:
        match kind:
            case "buffered":
                return BufferedChatCompletionContext(buffer_size=3)
            case "head_and_tail":
                return HeadAndTailChatCompletionContext(head_size=1, tail_size=2)
            case "trimmed":
                return Trimmed(buffer_size=9)
            case "token_limited":
                return TokenLimitedChatCompletionContext(_client(self.spec, lambda m, o: ""), token_limit=9_000)
            case "ephemeral":
                return EphemeralOutputsContext({"add": 1, "count": 0})
            case "token_buffered":
                return TokenBufferedContext(60, ephemeral={"add": 1})
            case "compacted":
                client = _client(self.spec, lambda messages, _: f"{len(messages[-1].content)} characters")
                return CompactionContext(200, client, ephemeral={"add": 1})
            case "shared":
                return self.shared
            case _:
                return UnboundedChatCompletionContext()

    def tools(self, name: str, member: Spec) -> list[Any]:
        tools: list[Any] = []
        if self.spec["kind"] == "fan_out":  # In threads, so that nobody can say who ends first.
            return tools
        for kind in member["tools"]:
            match kind:
                case "count":
                    tools.append(Counter())
                case "agent":
                    inner = AssistantAgent("agent", _client(self.spec, _answers(self.spec, f"{name}'s agent")))
                    tools.append(AgentTool(inner))
                case "team":
                    deep = AssistantAgent("deep", _client(self.spec, _answers(self.spec, f"{name}'s team")))
                    inner_team = RoundRobinGroupChat(
                        [deep], max_turns=2, termination_condition=MaxMessageTermination(7)
                    )
                    tools.append(TeamTool(inner_team, "team", "a team"))
                case "fail":
                    tools.append(fail)
                case _:
                    tools.append(add)
        return tools

    def assistant(self, name: str, member: Spec, *, handoffs: Sequence[str] = (), tools: bool = True) -> AssistantAgent:
        return AssistantAgent(
            name,
            _client(self.spec, _answers(self.spec, name), member["thought"]),
            description=f"{name} helps.",
            model_client_stream=member["stream"],
            model_context=self.context(member["context"]),
            tools=self.tools(name, member) if tools else [],
            handoffs=list(handoffs) or None,
            reflect_on_tool_use=member["reflect"],
            max_tool_iterations=member["iterations"],
        )

    def member(self, name: str, member: Spec) -> Any:
        match member["kind"]:
            case "tally":
                return Tally(name)
            case "chatty":
                return Chatty(name, "chats")
            case "human":

                async def answer(prompt: str, token: CancellationToken | None) -> str:
                    return "I am a person."

                return UserProxyAgent(name, input_func=answer)
            case "filtered":
                keep = MessageFilterConfig(per_source=[PerSourceFilter(source="user", position="last", count=1)])
                return MessageFilterAgent(name, self.assistant(name, member), keep)
            case _:
                return self.assistant(name, member)

    def members(self) -> list[Any]:
        return [self.member(name, member) for name, member in zip(NAMES, self.spec["members"], strict=False)]

    def team(self) -> BaseGroupChat:
        spec = self.spec
        end = condition(spec)
        turns = spec["turns"]
        common: dict[str, Any] = {"termination_condition": end, "max_turns": turns}
        events = {"emit_team_events": spec["events"]}
        match spec["kind"]:
            case "round_robin":
                return RoundRobinGroupChat(self.members(), **common, **events)
            case "selector":
                names = NAMES[: len(spec["members"])]
                chooser = _client(
                    spec, lambda m, o: pick([*names, "nonsense"], spec["seed"], len(m), len(m[0].content))
                )
                return SelectorGroupChat(
                    self.members(), chooser, **common, **events, model_client_streaming=spec["seed"] % 3 == 0
                )
            case "selector_function":
                names = NAMES[: len(spec["members"])]
                return SelectorGroupChat(
                    self.members(),
                    _client(spec, lambda m, o: names[0]),
                    selector_func=lambda thread: pick([*names, None], spec["seed"], len(thread)),
                    allow_repeated_speaker=True,
                    **common,
                    **events,
                )
            case "swarm":
                names = NAMES[: len(spec["members"])]
                members = [
                    self.assistant(name, member, handoffs=[other for other in names if other != name])
                    for name, member in zip(names, spec["members"], strict=True)
                ]
                return Swarm(members, **common, **events)
            case "sequence" | "fan_out" | "loop":
                return self.graph(common)
            case "magentic":
                members = [self.assistant(name, member) for name, member in zip("ab", spec["members"], strict=False)]
                return MagenticOneGroupChat(
                    members, _client(spec, _ledger(spec, len(members))), max_turns=6, max_stalls=2
                )
            case "nested":
                members = self.members()
                innermost = RoundRobinGroupChat(members[:1], name="innermost", max_turns=1)
                inner_end = MaxMessageTermination(3) | TextMentionTermination("TERMINATE")
                inner = RoundRobinGroupChat(
                    [*members[1:2], innermost], name="inner", termination_condition=inner_end, max_turns=3
                )
                return RoundRobinGroupChat([inner, *members[2:]], **common, **events)
            case "society":
                members = self.members()
                inner = RoundRobinGroupChat(members[:2], max_turns=2)
                mind = SocietyOfMindAgent("mind", inner, _client(spec, _answers(spec, "mind")))
                return RoundRobinGroupChat([mind, *members[2:]], **common, **events)
            case kind:
                raise ValueError(kind)

    def graph(self, common: dict[str, Any]) -> BaseGroupChat:
        members = self.members()
        builder = DiGraphBuilder()
        for each in members:
            builder.add_node(each)
        if self.spec["kind"] == "sequence":
            for one, other in itertools.pairwise(members):
                builder.add_edge(one, other)
        elif self.spec["kind"] == "fan_out":
            for middle in members[1:-1]:
                builder.add_edge(members[0], middle).add_edge(middle, members[-1])
        else:
            for one, other in itertools.pairwise(members[:-1]):
                builder.add_edge(one, other)
            last = members[-2]
            again = _again(self.spec["seed"])
            builder.add_edge(last, members[0], condition=again, activation_group="again", activation_condition="any")
            builder.add_edge(last, members[-1], condition=lambda message: not again(message))
            builder.set_entry_point(members[0])
        return GraphFlow(members, graph=builder.build(), **common)


def _again(seed: int) -> Callable[[BaseChatMessage], bool]:
    return lambda message: bool(pick([True, False], seed, len(message.to_model_text())))


def _ledger(spec: Spec, members: int) -> Rule:
    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        answer = ledger_rule(messages, options)
        if options["json_output"] is None:
            return answer
        ledger = json.loads(str(answer))
        ledger["is_request_satisfied"]["answer"] = len(messages) > 5
        ledger["is_progress_being_made"]["answer"] = pick([True, True, False], spec["seed"], len(messages))
        ledger["next_speaker"]["answer"] = "ab"[len(messages) % members]
        return json.dumps(ledger)

    return rule


def build(spec: Spec) -> BaseGroupChat:
    return Builder(spec).team()


def task(spec: Spec, number: int) -> list[BaseChatMessage]:
    """The messages of a task; a fresh list of fresh ones."""
    text = spec["texts"][number % len(spec["texts"])]
    plain = TextMessage(content=f"{text} {number}", source="user")
    match spec["tasks"][number]:
        case "several":
            return [plain, TextMessage(content=text, source="user"), TextMessage(content=text, source="other")]
        case "handoff":
            target = "a" if spec["kind"] == "magentic" else "ann"
            return [HandoffMessage(content=text, source="user", target=target)]
        case "image":
            return [MultiModalMessage(content=[text, tiny_image(), text], source="user")]
        case _:
            return [plain]


async def continue_cut(cut: Spec) -> Spec:
    """What a fresh team does from a boundary on. `cut`: spec, payloads, configs, pending."""
    stored = Stored()
    stored.payloads = cut["payloads"]
    stored.configs = {int(seq): config for seq, config in cut["configs"].items()}
    run = TurnRun(build(cut["spec"]), stored)
    await run.prepare()
    await run.session.load(stored.document(), stored.configs)
    reason = await run.run(pending=cut["pending"])
    state, _ = expand(stored.document(), stored.configs)
    return {"events": run.emitted, "reason": reason, "state": comparable(state)}


if __name__ == "__main__":
    json.dump(asyncio.run(continue_cut(json.load(sys.stdin))), sys.stdout)
