"""The team is a group chat that attempts a task until a judge is content: an actor, a judge and a manager.

Each attempt is a turn of the actor's, each verdict one of the judge's. The manager gives the judge the task and the
attempt, and the actor what was said of it; at the end it says the best attempt once more, as the answer. What the actor
and the judge say themselves is shown as thoughts, as nobody knows yet whether it is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

# Private: the group chat protocol. tests/teams/test_upstream.py fails when it changes.
# pyright: reportPrivateUsage=false
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    MessageFactory,
    ModelClientStreamingChunkEvent,
    StopMessage,
    TextMessage,
    ThoughtEvent,
)
from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
from autogen_agentchat.teams._group_chat._events import GroupChatMessage, GroupChatStart
from autogen_agentchat.teams._group_chat._round_robin_group_chat import RoundRobinGroupChatManager
from autogen_core import DefaultTopicId
from autogen_core.models import ChatCompletionClient
from typing_extensions import override

from drsai_backend.json_types import JsonObject
from drsai_backend.models.endpoints.thoughts import ThoughtSplitter
from drsai_backend.strategies.reflexion.judge import Judge, shortened, verdict_in
from drsai_backend.strategies.reflexion.verdict import Verdict
from drsai_backend.teams.group_chats import DrSaiGroupChat
from drsai_backend.teams.imported import imported_role
from drsai_backend.teams.messages import ThoughtChunkEvent, dump_of
from drsai_backend.teams.team_tree import tree_of

MOST_ATTEMPTS: Final = 10


class ReflexionTeam(DrSaiGroupChat):
    """Attempts a task until a judge's score reaches the threshold; the best attempt answers.

    Args:
        actor: makes the attempts: an agent with its tools, or a team.
        judge_client: the model that scores them.
        threshold: a score from 0 to 1 that is enough.
        max_attempts: 1 to 10.
        criteria: what a good answer is, for the judge.
        judge_prompt: the judge's system message, in place of the one that comes along.
        judge_repairs: how often the judge is asked again where it gives no score.

    Raises:
        ValueError: `threshold` or `max_attempts` is out of its bounds.
    """

    def __init__(  # noqa: PLR0913 - options of a public class
        self,
        actor: ChatAgent | Team,
        judge_client: ChatCompletionClient,
        *,
        threshold: float = 0.7,
        max_attempts: int = 3,
        criteria: str = "",
        judge_prompt: str | None = None,
        judge_repairs: int = 2,
        name: str = "reflexion",
        description: str = "Attempts a task until it is done well.",
    ) -> None:
        if not 0 <= threshold <= 1:
            raise ValueError("`threshold` must be from 0 to 1")
        if not 1 <= max_attempts <= MOST_ATTEMPTS:
            raise ValueError(f"`max_attempts` must be from 1 to {MOST_ATTEMPTS}")
        self._threshold, self._max_attempts, self._criteria = threshold, max_attempts, criteria
        judge = Judge(f"{actor.name}_judge", judge_client, prompt=judge_prompt, repairs=judge_repairs)
        super().__init__(
            name=name,
            description=description,
            # The last one that asks a model is the one that answers.
            participants=[judge, actor],
            group_chat_manager_name=f"{actor.name}_attempts",
            group_chat_manager_class=ReflexionManager,
        )

    @override
    def _create_group_chat_manager_factory(self, *args: Any, **options: Any) -> Callable[[], ReflexionManager]:
        judge, actor = self._participant_names
        members = frozenset({judge, actor, *(each.name for each in tree_of(self).agents)})
        return lambda: ReflexionManager(
            *args,
            **options,
            actor=actor,
            judge=judge,
            members=members,
            threshold=self._threshold,
            max_attempts=self._max_attempts,
            criteria=self._criteria,
        )

    @override
    def _create_participant_factory(
        self,
        parent_topic_type: str,
        output_topic_type: str,
        agent: ChatAgent | Team,
        message_factory: MessageFactory,
    ) -> Callable[[], ChatAgentContainer]:
        manager, judge = self._group_chat_manager_name, self._participant_names[0]

        def hears(source: str, waiting: int) -> bool:
            # The judge hears its question, and what a person adds while it waits for its turn.
            return source == manager or waiting > 0 if agent.name == judge else source != judge

        return lambda: _Aside(parent_topic_type, output_topic_type, agent, message_factory, hears)


class _Aside(ChatAgentContainer):
    """Shows what its agent says as thoughts. `hears`: whether the agent is told what somebody of that name says, where
    so many messages wait for it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        *rest, self._hears = args
        super().__init__(*rest, **options)
        self._splitters: dict[str, tuple[str | None, ThoughtSplitter]] = {}

    @override
    def _buffer_message(self, message: BaseChatMessage) -> None:
        if self._hears(message.source, len(self._message_buffer)):
            super()._buffer_message(message)

    @override
    async def _log_message(self, message: BaseAgentEvent | BaseChatMessage) -> None:
        if isinstance(message, ModelClientStreamingChunkEvent) and not isinstance(message, ThoughtChunkEvent):
            for piece in self._pieces(message):
                await super()._log_message(piece)
        elif not isinstance(message, BaseChatMessage):
            await super()._log_message(message)
        elif text := message.to_text():
            said = ThoughtEvent(content=text, source=message.source, models_usage=message.models_usage)
            await super()._log_message(said)

    def _pieces(self, chunk: ModelClientStreamingChunkEvent) -> list[ThoughtChunkEvent]:
        """A piece of an answer as pieces of thoughts, what the model itself thinks apart from what it says."""
        source, message_id = chunk.source, chunk.full_message_id
        known = self._splitters.get(source)
        if known is None or not chunk.content or known[0] != message_id:  # an empty piece begins a model call
            known = self._splitters[source] = message_id, ThoughtSplitter()
        return [
            ThoughtChunkEvent(
                content=text, source=source, full_message_id=f"{message_id}:thought" if is_thought else message_id
            )
            for is_thought, text in known[1].feed(chunk.content)
        ]


class ReflexionManager(RoundRobinGroupChatManager):
    """Gives the attempts to the judge and its reflections to the actor, and keeps what they have given so far.

    Of a round robin it has the saved state alone; nothing of a task is needed for the next one.
    """

    durable_fields = ("_task", "_attempts", "_attempt", "_best")

    def __init__(
        self,
        *args: Any,
        actor: str,
        judge: str,
        members: frozenset[str],
        threshold: float,
        max_attempts: int,
        criteria: str,
        **options: Any,
    ) -> None:
        super().__init__(*args, emit_team_events=False, **options)
        self._actor, self._judge, self._members = actor, judge, members
        self._threshold, self._max_attempts, self._criteria = threshold, max_attempts, criteria
        self._begin("")

    def _begin(self, task: str) -> None:
        self._task = task
        self._attempts: list[JsonObject] = []
        """Of each that was judged: `score` (None: there is none), `reasons` and `reflection`."""
        self._attempt: JsonObject | None = None
        """The dump of the one that is being judged."""
        self._best: JsonObject | None = None
        """The best so far: its `number`, `score` and `message`."""

    # --- what the group chat asks -----------------------------------------------------------------------------------

    @override
    async def validate_group_state(self, messages: list[BaseChatMessage] | None) -> None:
        if messages is not None:
            self._begin("")

    @override
    async def reset(self) -> None:
        await super().reset()
        self._begin("")

    @override
    async def update_message_thread(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> None:
        """Keep of a conversation the task alone, and what a person adds to it."""
        for message in messages:
            own = self._active_speakers and message.source in self._members
            if own or not isinstance(message, BaseChatMessage) or imported_role(message) is not None:
                continue
            told = message.to_model_text()
            self._task = shortened(f"{self._task}\n\n{told}" if self._task else told)

    @override
    async def select_speaker(self, thread: Sequence[BaseAgentEvent | BaseChatMessage]) -> str:
        if self._attempt is not None:
            await self._tell(self._judge, self._question(self._attempt))
            return self._judge
        if self._attempts:
            await self._tell(self._actor, self._reflection())
        return self._actor

    @override
    async def _apply_termination_condition(
        self, delta: Sequence[BaseAgentEvent | BaseChatMessage], increment_turn_count: bool = False
    ) -> bool:
        if not increment_turn_count:
            return False
        said = next((each for each in reversed(delta) if isinstance(each, BaseChatMessage)), None)
        if self._attempt is None:
            self._attempt = dump_of(said or TextMessage(content="", source=self._actor))
            return False
        return said is not None and await self._judged(verdict_in(said), self._attempt)

    # --- attempts ---------------------------------------------------------------------------------------------------

    async def _judged(self, verdict: Verdict | None, attempt: Mapping[str, object]) -> bool:
        """Note a verdict. True: it was the last one, and the answer is given."""
        number = len(self._attempts) + 1
        self._attempt = None
        if verdict is None:
            self._attempts = [*self._attempts, {"score": None, "reasons": "", "reflection": ""}]
        else:
            kept = {"score": verdict.score, "reasons": verdict.reasons, "reflection": verdict.reflection}
            self._attempts = [*self._attempts, kept]
        if self._best is None or (verdict is not None and verdict.score > self._best["score"]):
            self._best = {"number": number, "score": None if verdict is None else verdict.score, "message": attempt}
        enough = verdict is not None and verdict.score >= self._threshold
        if not enough and verdict is not None and number < self._max_attempts:
            return False
        reason = self._reason(verdict)
        if not enough:
            await self._show(ThoughtEvent(content=reason, source=self._name))
        await self._answer(self._best, is_newest=self._best["number"] == number)
        await self._signal_termination(StopMessage(content=reason, source=self._name))
        return True

    def _reason(self, verdict: Verdict | None) -> str:
        best = cast("JsonObject", self._best)
        number = len(self._attempts)
        if verdict is None:
            said = f"Attempt {number} could not be judged."
            known = "" if best["score"] is None else f" Attempt {best['number']}, scored {best['score']:.2f}, answers."
            return said + known
        if verdict.score >= self._threshold:
            return f"Attempt {number} was scored {verdict.score:.2f}; {self._threshold:.2f} is enough."
        which = f"The maximum number of attempts, {number}, is reached"
        return f"{which}: the best one, attempt {best['number']}, was scored {best['score']:.2f}."

    async def _answer(self, best: JsonObject, *, is_newest: bool) -> None:
        given = {name: value for name, value in best["message"].items() if name not in ("id", "created_at")}
        # Its tokens were counted when it was made.
        message = self._message_factory.create({**given, "models_usage": None})
        await self._show(message)
        if not is_newest:
            await self._tell(self._actor, f"Of your attempts, number {best['number']} was given as the answer.")

    async def _show(self, message: BaseAgentEvent | BaseChatMessage) -> None:
        await self.publish_message(
            GroupChatMessage(message=message), topic_id=DefaultTopicId(type=self._output_topic_type)
        )
        await self._output_message_queue.put(message)

    async def _tell(self, name: str, text: str) -> None:
        """Tell one participant something, and nobody else."""
        await self.publish_message(
            GroupChatStart(messages=[TextMessage(content=text, source=self._name)]),
            topic_id=DefaultTopicId(type=self._participant_name_to_topic_type[name]),
        )

    def _question(self, attempt: Mapping[str, object]) -> str:
        parts = [("Task", self._task), ("Criteria", self._criteria)]
        message = cast("BaseChatMessage", self._message_factory.create(attempt))
        parts.append(("Attempt", shortened(message.to_model_text()) or "(it is empty)"))
        return "\n\n".join(f"# {title}\n\n{text}" for title, text in parts if text)

    def _reflection(self) -> str:
        last, number = self._attempts[-1], len(self._attempts)
        verdict = Verdict(last["score"], last["reasons"], last["reflection"])
        return (
            f"Your attempt {number} was judged; {self._threshold:.2f} is needed.\n{verdict.told()}\n"
            f"Make attempt {number + 1} of {self._max_attempts}: answer the task anew, complete in itself, and do not "
            "speak of earlier attempts."
        )
