"""Teams of an unusual make on the turn runtime: what must work works, what cannot is refused with a clear text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, CodeExecutorAgent, SocietyOfMindAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import ExternalTermination, FunctionalTermination, MaxMessageTermination
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, TextMessage
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat, SelectorGroupChat
from autogen_agentchat.teams._group_chat._base_group_chat_manager import BaseGroupChatManager
from autogen_agentchat.teams._group_chat._events import GroupChatRequestPublish
from autogen_agentchat.teams._group_chat._round_robin_group_chat import RoundRobinGroupChatManager
from autogen_core import AgentRuntime, CancellationToken, DefaultTopicId, SingleThreadedAgentRuntime
from autogen_core.model_context import UnboundedChatCompletionContext

from drsai_backend.errors import TeamBuildError
from drsai_backend.teams.runtime.turn_runtime import TurnRuntime
from drsai_backend.teams.runtime.wiring import wire
from drsai_backend.teams.team_tree import as_team
from tests.support.running import Build, prepared, run_stock, same_as_stock
from tests.support.scripted import Answer, ScriptedClient, counting
from tests.support.teams.scenarios import agent, selecting

pytestmark = pytest.mark.usefixtures("spotless")


# --- teams that are refused -----------------------------------------------------------------------------------------


async def test_a_team_that_has_run_is_refused() -> None:
    team = RoundRobinGroupChat([agent("ann", False)], max_turns=1)
    await team.run(task="Begin.")
    with pytest.raises(TeamBuildError, match="fresh team"):
        await wire(team, TurnRuntime())


async def test_an_inner_team_that_has_run_is_refused() -> None:
    inner = RoundRobinGroupChat([agent("ann", False)], max_turns=1)
    await inner.run(task="Begin.")
    with pytest.raises(TeamBuildError, match="inner teams included"):
        await wire(RoundRobinGroupChat([inner]), TurnRuntime())


async def test_what_two_runs_would_share_is_refused() -> None:
    """One agent object for two threads would tell one person what another has said."""
    ann, context, end = agent("ann", False), UnboundedChatCompletionContext(), MaxMessageTermination(3)
    first = RoundRobinGroupChat([ann, agent("bob", False, model_context=context)], termination_condition=end | end)
    await wire(first, TurnRuntime())
    shared: list[Build] = [
        lambda: RoundRobinGroupChat([ann]),
        lambda: RoundRobinGroupChat([RoundRobinGroupChat([ann])]),
        lambda: RoundRobinGroupChat([agent("cid", False, model_context=context)]),
        lambda: RoundRobinGroupChat([agent("cid", False)], termination_condition=end),
        lambda: RoundRobinGroupChat([agent("cid", False)], termination_condition=MaxMessageTermination(9) & end),
    ]
    for build in shared:
        with pytest.raises(TeamBuildError, match="afresh for every run"):
            await wire(build(), TurnRuntime())


async def test_a_participant_with_the_managers_name_is_refused() -> None:
    with pytest.raises(TeamBuildError, match="RoundRobinGroupChatManager"):
        await wire(RoundRobinGroupChat([agent("RoundRobinGroupChatManager", False)]), TurnRuntime())


def test_what_is_no_team_is_refused() -> None:
    with pytest.raises(TeamBuildError, match="not int"):
        as_team(3)


# --- teams that work ------------------------------------------------------------------------------------------------


async def test_a_team_that_brings_its_own_runtime() -> None:
    run = await prepared(RoundRobinGroupChat([agent("ann", False)], max_turns=1, runtime=SingleThreadedAgentRuntime()))
    assert await run.run("Begin.") == "Maximum number of turns 1 reached."


class Registering(RoundRobinGroupChat):
    """A team with a way of its own to be put together: it registers its agents, and subscribes them."""

    async def _init(self, runtime: AgentRuntime) -> None:
        await super()._init(runtime)


@pytest.mark.parametrize("kinds", [(RoundRobinGroupChat, Registering), (Registering, RoundRobinGroupChat)])
async def test_a_team_that_registers_its_agents_beside_one_that_does_not(
    kinds: tuple[type[RoundRobinGroupChat], type[RoundRobinGroupChat]],
) -> None:
    outer, inner = kinds

    def build() -> BaseGroupChat:
        members = inner([agent(name, False) for name in ("ann", "bob")], name="inner", max_turns=2)
        return outer([agent("cid", False), members, agent("dan", False)], max_turns=3)

    await same_as_stock(build)


async def test_one_context_for_two_agents() -> None:
    def build() -> BaseGroupChat:
        context = UnboundedChatCompletionContext()
        members = [agent(name, False, model_context=context) for name in ("ann", "bob")]
        return RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(5))

    await same_as_stock(build, ["Begin.", "Go on.", "And on."])


class Memo(TextMessage):
    type: str = "Memo"  # type: ignore[assignment]


class Clerk(BaseChatAgent):
    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (Memo,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        return Response(chat_message=Memo(source=self.name, content="noted"))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        pass


async def test_a_lone_agent_with_a_message_type_of_its_own() -> None:
    run = await prepared(as_team(Clerk("clerk", "notes")))
    assert await run.run("Begin.") == "The agent has answered.", "a normal end, and no maximum that was reached"
    assert [event["type"] for event in run.emitted] == ["TextMessage", "Memo"]


class Broadcasting(RoundRobinGroupChatManager):
    """Asks everybody at once, with one message to the group."""

    async def _transition_to_next_speakers(self, cancellation_token: CancellationToken) -> None:
        self._active_speakers += self._participant_names
        await self.publish_message(
            GroupChatRequestPublish(),
            topic_id=DefaultTopicId(type=self._group_topic_type),
            cancellation_token=cancellation_token,
        )


class Filtering(RoundRobinGroupChatManager):
    """Lets through only what it likes."""

    async def handle_group_chat_message(self, message: Any, ctx: Any) -> None:  # type: ignore[override]
        if message.message.source != "bob":
            await super().handle_group_chat_message(message, ctx)

    for _name in ("is_message_handler", "target_types", "produces_types", "router"):
        setattr(handle_group_chat_message, _name, getattr(RoundRobinGroupChatManager.handle_group_chat_message, _name))


class Forgetful(BaseGroupChatManager):
    """A manager without `save_state`."""

    async def validate_group_state(self, messages: Any) -> None:
        pass

    async def select_speaker(self, thread: Sequence[BaseAgentEvent | BaseChatMessage]) -> str:
        return self._participant_names[len(thread) % 2]

    async def reset(self) -> None:
        self._message_thread.clear()


def of_manager(manager: Any, **options: Any) -> Build:
    class Team(RoundRobinGroupChat):
        def _create_group_chat_manager_factory(self, *args: Any, **kwargs: Any) -> Callable[[], Any]:
            return lambda: manager(*args, **kwargs, emit_team_events=False)

    def build() -> BaseGroupChat:
        team = Team([agent("ann", False), agent("bob", False)], **options)
        team._base_group_chat_manager_class = manager
        return team

    return build


async def test_a_manager_that_asks_the_whole_group() -> None:
    run = await prepared(of_manager(Broadcasting, max_turns=2)())
    async with asyncio.timeout(30):
        await run.run("Begin.")
    assert run.boundaries == [["ann", "bob"], ["ann", "bob"], None]
    again = await prepared(of_manager(Broadcasting, max_turns=2)(), run.stored)
    await again.session.load(run.stored.document(2), run.stored.configs)
    await again.run(pending=run.stored.pending[1])
    assert [event["source"] for event in again.emitted] == ["ann", "bob"]


async def test_a_manager_that_filters_what_is_shown() -> None:
    run = await prepared(of_manager(Filtering, max_turns=2)())
    await run.run("Begin.")
    assert [event["source"] for event in run.emitted] == ["user", "ann"]


@pytest.mark.filterwarnings("ignore:(save|load)_state not implemented")
async def test_a_manager_without_a_state_keeps_the_conversation() -> None:
    build = of_manager(Forgetful, max_turns=3)
    stock = build()
    await run_stock(stock, "Begin.")
    expected, _ = await run_stock(stock, "Go on.")
    first = await prepared(build())
    await first.run("Begin.")
    second = await prepared(build(), first.stored)
    await second.session.load(first.stored.document(), first.stored.configs)
    await second.run("Go on.")
    assert second.emitted == expected


async def test_external_termination() -> None:
    end = ExternalTermination()

    def stops(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        end.set()
        return "enough"

    run = await prepared(RoundRobinGroupChat([agent("ann", False, stops)], termination_condition=end))
    assert await run.run("Begin.") == "External termination requested"


async def test_functional_termination_with_a_coroutine() -> None:
    async def judge(messages: Sequence[Any]) -> bool:
        await asyncio.sleep(0)
        return messages[-1].source == "bob"

    def build() -> BaseGroupChat:
        members = [agent("ann", False), agent("bob", False)]
        return RoundRobinGroupChat(members, termination_condition=FunctionalTermination(judge))

    await same_as_stock(build)


async def test_a_code_executors_context_is_kept() -> None:
    from autogen_agentchat.agents._code_executor_agent import ApprovalResponse
    from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

    class Pretending(CodeExecutor):
        async def execute_code_blocks(
            self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
        ) -> CodeResult:
            return CodeResult(exit_code=0, output="42")

        async def start(self) -> None:
            pass

        async def stop(self) -> None:
            pass

        async def restart(self) -> None:
            pass

    approved = ApprovalResponse(approved=True, reason="harmless")

    def build() -> BaseGroupChat:
        client = ScriptedClient(counting("coder"))
        coder = CodeExecutorAgent("coder", Pretending(), model_client=client, approval_func=lambda request: approved)
        return RoundRobinGroupChat([coder, agent("ann", False)], max_turns=3)

    await same_as_stock(build)


async def test_a_society_around_a_team_of_ones_own() -> None:
    """A `Team` that is no group chat has its state saved whole, and the society's own context all the same."""
    from autogen_agentchat.base import Team

    class Proxying(Team):
        """Delegates everything to a group chat that nobody else knows of."""

        component_type = "team"

        def __init__(self) -> None:
            self.inner = RoundRobinGroupChat([agent("deep", False)], max_turns=1)

        name = property(lambda self: "proxying")  # type: ignore[assignment]
        description = property(lambda self: "delegates")  # type: ignore[assignment]

        async def run(self, **kwargs: Any) -> Any:
            return await self.inner.run(**kwargs)

        def run_stream(self, **kwargs: Any) -> Any:
            return self.inner.run_stream(**kwargs)

        async def reset(self) -> None:
            await self.inner.reset()

        async def pause(self) -> None: ...

        async def resume(self) -> None: ...

        async def save_state(self) -> Any:
            return await self.inner.save_state()

        async def load_state(self, state: Any) -> None:
            await self.inner.load_state(state)

    def build() -> BaseGroupChat:
        mind = SocietyOfMindAgent("mind", Proxying(), ScriptedClient(counting("mind")))
        return RoundRobinGroupChat([mind, agent("ann", False)], max_turns=2)

    await same_as_stock(build)


async def test_an_assistant_of_ones_own_is_stored_whole() -> None:
    class Noting(AssistantAgent):
        notes = 0

        async def save_state(self) -> dict[str, Any]:
            return {**await super().save_state(), "notes": self.notes}

        async def load_state(self, state: Any) -> None:
            await super().load_state({key: value for key, value in state.items() if key != "notes"})
            self.notes = state["notes"]

        async def on_messages_stream(self, messages: Any, cancellation_token: Any) -> AsyncGenerator[Any, None]:
            self.notes += 1
            async for item in super().on_messages_stream(messages, cancellation_token):
                yield item

    def build() -> BaseGroupChat:
        return RoundRobinGroupChat([Noting("ann", ScriptedClient(counting("ann")))], max_turns=2)

    run = await same_as_stock(build)
    assert run.session.team._participants[0].notes == 4  # type: ignore[union-attr]


async def test_a_loader_of_ones_own_is_used() -> None:
    """Whoever overrides `load_state` alone, to mend old states say, is asked to load."""

    class Mending(AssistantAgent):
        async def load_state(self, state: Any) -> None:
            await super().load_state(state)
            self.mended = len(state["llm_context"]["messages"])

    class Selecting(SelectorGroupChat):
        async def load_state(self, state: Any) -> None:
            await super().load_state(state)

    def build() -> BaseGroupChat:
        members = [Mending("ann", ScriptedClient(counting("ann"))), agent("bob", False)]
        return Selecting(members, ScriptedClient(selecting), max_turns=2)

    run = await same_as_stock(build)
    assert run.session.team._participants[0].mended == 2  # type: ignore[union-attr]
