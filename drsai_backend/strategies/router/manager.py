"""The manager of a router's group chat chooses one participant for each input, whose answer ends the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

# Private: the manager of a group chat. tests/teams/test_upstream.py fails when it changes.
# pyright: reportPrivateUsage=false
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, ThoughtEvent
from autogen_agentchat.teams._group_chat._round_robin_group_chat import RoundRobinGroupChatManager
from autogen_core.models import ChatCompletionClient, RequestUsage, UserMessage

from drsai_backend.strategies.asking import ask
from drsai_backend.strategies.router.answerer import Answerer
from drsai_backend.strategies.router.decisions import Choice, Decision, Kind, Nonsense, read, request
from drsai_backend.strategies.router.flows.agent import FlowAgent
from drsai_backend.strategies.router.flows.values import filled
from drsai_backend.strategies.router.flows.words import is_one_of, plain, rest_after
from drsai_backend.strategies.router.options import RouterOptions, Target
from drsai_backend.strategies.router.patterns import Patience
from drsai_backend.teams.replay.steps import AgentSteps

_MAX_SHOWN: Final = 2000
"""Characters of a message that the model is shown."""
_MAX_TEXT: Final = 10_000


@dataclass(frozen=True)
class RouterParts:
    """Who takes part, and how it is chosen.

    Attributes:
        skills: agents and teams by name, each with when it is right.
        flows: by name.
        answerer: answers for the router itself.
        client: the model that chooses; None: none is asked.
        steps: of the run; None outside of one.
    """

    options: RouterOptions
    skills: Mapping[str, str]
    flows: Mapping[str, FlowAgent]
    answerer: Answerer
    client: ChatCompletionClient | None
    steps: AgentSteps | None


class RouterManager(RoundRobinGroupChatManager):
    """See the module. What it keeps is which flows were left, the newest last; where they stand, they know. Its saved
    state is that of a round robin, whose messages are journaled as they come."""

    durable_fields = ("_left",)

    def __init__(self, *args: Any, parts: RouterParts, **options: Any) -> None:
        super().__init__(*args, emit_team_events=False, **options)
        self._parts = parts
        self._left: list[str] = []
        self._task_at = 0
        self._used: list[RequestUsage] = []

    async def validate_group_state(self, messages: list[BaseChatMessage] | None) -> None:
        """A run begins: what comes now is its task."""
        self._task_at = len(self._message_thread)
        for flow in self._parts.flows.values():
            flow.forget()

    async def update_message_thread(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> None:
        """Messages of the task, of a speaker, or sent while one is held."""
        await super().update_message_thread(messages)
        text = _text_of(messages)
        for flow in self._parts.flows.values():
            flow.hears(text)

    async def reset(self) -> None:
        await super().reset()
        self._left = []

    async def select_speaker(self, thread: Sequence[BaseAgentEvent | BaseChatMessage]) -> list[str] | str:
        """Decide about the newest input, tell it as a thought, and say to the chosen one what it is to do."""
        text = _text_of(_newest(thread[self._task_at :]))
        self._used = used = list[RequestUsage]()
        decision = await self._decide(text, thread)
        tokens = RequestUsage(
            prompt_tokens=sum(each.prompt_tokens for each in used),
            completion_tokens=sum(each.completion_tokens for each in used),
        )
        # Where no model was asked, it is no step.
        thought = ThoughtEvent(content=decision.thought, source=self._name, models_usage=tokens if used else None)
        await self._output_message_queue.put(thought)
        return self._hand_over(decision, text)

    # --- deciding -----------------------------------------------------------------------------------------------

    async def _decide(self, text: str, thread: Sequence[BaseAgentEvent | BaseChatMessage]) -> Decision:
        options, flows = self._parts.options, self._parts.flows
        active = next((name for name, flow in flows.items() if flow.waits), None)
        if active is None:
            return self._resumed(text) or self._matched(text) or await self._asked(thread)
        if is_one_of(text, options.leave):
            return Decision("leave", active, by="word")
        if options.switch != "never":
            found = self._matched(text)
            if found is not None and (found.kind, found.target) != ("flow", active):
                return found
        if options.switch == "model" and not flows[active].takes(text):
            chosen = await self._asked(thread, active)
            if chosen.by == "model" and (chosen.kind, chosen.target) not in (("flow", active), ("resume", active)):
                return chosen
        return Decision("flow", active, by="flow", reason="it waits for this answer")

    def _resumed(self, text: str) -> Decision | None:
        """The flow that a person wants to take up again, by their words."""
        left = [name for name, flow in self._parts.flows.items() if flow.was_left]
        left.sort(key=lambda name: self._left.index(name) if name in self._left else -1)
        rest = rest_after(text, self._parts.options.resume) if left else None
        if rest is None:
            return None
        named = [name for name in left if plain(name.replace("_", " ")) in rest or name.casefold() in rest]
        if rest and not named:
            return None
        return Decision("resume", (named or left)[-1], by="word")

    def _matched(self, text: str) -> Decision | None:
        patience = Patience()
        for pattern in self._parts.options.patterns:
            groups = patience.find(pattern.match, text)
            if groups is not None:
                return self._targeted(pattern, "pattern", 1.0, f"it matches {pattern.match!r}", groups)
        return None

    def _targeted(
        self, target: Target, by: str, confidence: float, reason: str, groups: Mapping[str, str] | None = None
    ) -> Decision:
        arguments: Mapping[str, object] = groups or {}
        if target.tool is not None and target.arguments:
            arguments = filled(target.arguments, arguments)
        name: str = getattr(target, target.kind)
        return Decision(cast("Kind", target.kind), name, confidence, by, reason, arguments)

    async def _asked(self, thread: Sequence[BaseAgentEvent | BaseChatMessage], active: str | None = None) -> Decision:
        """Return what the model chooses; the fallback where it fails, answers nonsense, or is not sure."""
        parts = self._parts
        choices = self._choices(active)
        tools = [schema for _, schema in (await parts.answerer.offered()).values()]
        if parts.client is None or not (choices or tools):
            return self._fallback(1.0, "there is nothing to choose from")
        calls = parts.client.model_info["function_calling"]
        tools = tools if calls else []
        messages, sent = request(choices, tools, self._transcript(thread), parts.options.instructions, calls=calls)
        problem = ""
        for _ in range(parts.options.repairs + 1):
            result = await ask(parts.client, parts.steps, messages, sent)
            if result is None:
                return self._fallback(0.0, "its model has failed")
            self._used.append(result.usage)
            try:
                decision = read(result, choices, tools)
            except Nonsense as error:
                problem = str(error)
                hint = f"Your last answer cannot be used: {problem}. Choose one of those that may handle the message."
                messages = [*messages, UserMessage(content=hint, source="user")]
                continue
            if decision.confidence >= parts.options.confidence:
                return decision
            sure = f"{decision.kind} {decision.target}".strip()
            return self._fallback(decision.confidence, f"not sure enough of {sure}")
        return self._fallback(0.0, f"its model has chosen nothing: {problem}")

    def _fallback(self, confidence: float, reason: str) -> Decision:
        target = self._parts.options.fallback
        if target is None:
            return Decision("answer", "", confidence, "fallback", reason)
        return self._targeted(target, "fallback", confidence, reason)

    def _choices(self, active: str | None) -> list[Choice]:
        parts = self._parts
        found = [Choice(f"agent:{name}", when) for name, when in parts.skills.items()]
        for name, flow in parts.flows.items():
            about = f"{flow.flow.description} {flow.flow.when}".strip()
            if name == active:
                found.append(Choice(f"resume:{name}", f"It is under way, and the message answers it: {about}"))
                continue
            found.append(Choice(f"flow:{name}", about))
            if flow.was_left:
                found.append(Choice(f"resume:{name}", f"Continues this where it was left: {about}"))
        if parts.options.answers:
            found.append(Choice("answer", "None of the others: small talk, or a question that you can answer at once."))
        return found

    def _transcript(self, thread: Sequence[BaseAgentEvent | BaseChatMessage]) -> str:
        said = [each for each in thread if isinstance(each, BaseChatMessage)][-self._parts.options.history :]
        lines = [f"{each.source}: {each.to_model_text()[:_MAX_SHOWN]}" for each in said]
        return "The conversation so far, the newest message last:\n\n" + "\n\n".join(lines)

    # --- handing over -------------------------------------------------------------------------------------------

    def _hand_over(self, decision: Decision, text: str) -> str:
        """Say to the chosen participant what it is to do. Returns its name."""
        parts, target = self._parts, decision.target
        answers_flow = decision.kind in ("flow", "resume", "leave")
        for name, flow in parts.flows.items():
            if flow.waits and not (answers_flow and name == target):
                flow.leave()
                self._remember(name)
        match decision.kind:
            case "agent":
                return target
            case "flow":
                flow = parts.flows[target]
                goes_on = decision.by == "flow" and flow.waits
                flow.give("answer" if goes_on else "start", text, None if goes_on else decision.arguments)
                return target
            case "resume":
                parts.flows[target].give("resume", text)
                return target
            case "leave":
                parts.flows[target].give("leave", text)
                self._remember(target)
                return target
            case "tool":
                phrase = parts.options.tool_answers == "phrased"
                parts.answerer.use(target, decision.arguments, phrase=phrase)
            case "say":
                parts.answerer.say(target)
            case "answer":
                parts.answerer.answer()
        return parts.answerer.name

    def _remember(self, name: str) -> None:
        self._left = [*(each for each in self._left if each != name), name]


def _newest(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> Sequence[BaseChatMessage]:
    """The last messages of the one who has said the last: a router inside another team also hears what was said
    between its turns."""
    said = [each for each in messages if isinstance(each, BaseChatMessage)]
    first = len(said)
    while first and said[first - 1].source == said[-1].source:
        first -= 1
    return said[first:]


def _text_of(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> str:
    return "\n".join(each.to_model_text() for each in messages if isinstance(each, BaseChatMessage))[:_MAX_TEXT]
