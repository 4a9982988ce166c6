"""Teams of an unusual make on the turn runtime: what must work works, what cannot is refused with a clear text."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, CodeExecutorAgent, SocietyOfMindAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import ExternalTermination, FunctionalTermination, MaxMessageTermination
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, TextMessage
from autogen_agentchat.teams import (
    BaseGroupChat,
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_agentchat.teams._group_chat._base_group_chat_manager import BaseGroupChatManager
from autogen_agentchat.teams._group_chat._events import GroupChatRequestPublish
from autogen_agentchat.teams._group_chat._round_robin_group_chat import RoundRobinGroupChatManager
from autogen_core import (
    AgentId,
    AgentRuntime,
    CancellationToken,
    DefaultTopicId,
    FunctionCall,
    SingleThreadedAgentRuntime,
)
from autogen_core.model_context import UnboundedChatCompletionContext

from drsai_backend.errors import DamagedState, StateError, TeamBuildError
from drsai_backend.state import expand
from drsai_backend.teams.runtime.turn_runtime import TurnRuntime
from drsai_backend.teams.runtime.wiring import wire
from drsai_backend.teams.team_tree import as_team
from tests.support.running import Stored, TurnRun, as_messages, comparable, run_stock
from tests.support.scripted import Answer, ScriptedClient, counting
from tests.support.teams.foreign import Tally
from tests.support.teams.scenarios import agent, ledger_rule, selecting

pytestmark = pytest.mark.usefixtures("spotless")

Build = Callable[[], BaseGroupChat]


async def prepared(team: BaseGroupChat, stored: Stored | None = None, **options: Any) -> TurnRun:
    run = TurnRun(team, stored or Stored(), **options)
    await run.prepare()
    return run


async def same_as_stock(build: Build, tasks: Sequence[Any] = ("Begin.", "Go on.")) -> TurnRun:
    """Two runs, each on a fresh team, like two runs of one team on stock. Returns the last."""
    stock, stored = build(), Stored()
    run: TurnRun | None = None
    for task in tasks:
        expected, reason = await run_stock(stock, task)
        run = await prepared(build(), stored)
        if stored.payloads:
            await run.session.load(stored.document(), stored.configs)
        async with asyncio.timeout(30):
            assert await run.run(task) == reason
        assert run.emitted == expected
        assert comparable(await run.session.team.save_state()) == comparable(await stock.save_state())
    assert run is not None
    return run


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
    assert await run.run("Begin.") == "Maximum number of turns 1 reached."
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


class Repeating(BaseChatAgent):
    """Shows one and the same message object every time."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "repeats")
        self.message = TextMessage(source=name, content="As I always say.")

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        return Response(chat_message=self.message)

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        pass


class Echoing(Repeating):
    """Shows the very object that it was given."""

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        return Response(chat_message=messages[0])


@pytest.mark.parametrize("member", [Repeating, Echoing])
async def test_a_message_that_is_shown_again_is_stored_again(member: type[Repeating]) -> None:
    def build() -> BaseGroupChat:
        return RoundRobinGroupChat([member("ann"), agent("bob", False)], max_turns=4)

    stored = Stored()
    run = await prepared(build(), stored, check_state=True)
    task = as_messages("Begin.")
    run.session.recorder.know(1, task[0])
    stored.configs[1] = dict(task[0].dump())
    run.session.recorder.next_seq = 2
    result, last = await run.run_session(task)
    await run._turn(last)
    assert [comparable(config) for config in stored.configs.values()] == run.emitted
    assert len(stored.configs) == 5
    assert expand(stored.document(), stored.configs)[0] == stored.states[-1]
    assert result.stop_reason == "Maximum number of turns 4 reached."


async def test_equal_texts_are_different_messages() -> None:
    def build() -> BaseGroupChat:
        members = [agent(name, False, lambda messages, options: "yes") for name in ("ann", "bob")]
        return RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(6))

    run = await same_as_stock(build, ["yes", "yes"])
    assert len(run.stored.configs) == 12


async def test_a_recycled_id_is_not_mistaken_for_a_message() -> None:
    """Message objects come and go; the book must not take a new one for an old one at the same address."""

    class Churning(Repeating):
        async def on_messages_stream(
            self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
        ) -> AsyncGenerator[Any, None]:
            for number in range(50):
                yield TextMessage(source=self.name, content=f"{number}")
            gc.collect()
            yield Response(chat_message=TextMessage(source=self.name, content="done"))

    run = await prepared(RoundRobinGroupChat([Churning("ann")], max_turns=3))
    await run.run("Begin.")
    assert len(run.stored.configs) == 1 + 3 * 51
    assert [comparable(config) for config in run.stored.configs.values()] == run.emitted


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


# --- going on after a cut -------------------------------------------------------------------------------------------


async def cut_after(build: Build, turns: int) -> Stored:
    """A thread whose run was cut at that boundary."""
    run = await prepared(build())

    async def cut(turn: Any) -> None:
        await run._turn(turn)
        if len(run.stored.payloads) == turns:
            raise InterruptedError

    run.on_turn = cut
    with pytest.raises(InterruptedError):
        await run.run("Begin.")
    return run.stored


async def new_task(build: Build, stored: Stored, task: Any = "Another task.") -> TurnRun:
    run = await prepared(build(), stored)
    await run.session.load(stored.document(), stored.configs, keep_run=False)
    async with asyncio.timeout(30):
        await run.run(task)
    return run


def sources(run: TurnRun) -> list[str]:
    return [event["source"] for event in run.emitted]


def graph() -> BaseGroupChat:
    a, b, c = agent("a", False), agent("b", False), agent("c", False)
    builder = DiGraphBuilder().add_node(a).add_node(b).add_node(c).add_edge(a, b).add_edge(b, c)
    return GraphFlow([a, b, c], graph=builder.build())


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_a_graph_takes_a_new_task_after_a_cut(turns: int) -> None:
    run = await new_task(graph, await cut_after(graph, turns))
    assert sources(run) == ["user", "a", "b", "c"]


async def test_a_swarm_takes_a_new_task_after_a_cut() -> None:
    def hands_off(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return [FunctionCall(id="1", name="transfer_to_bob", arguments="{}")]

    def build() -> BaseGroupChat:
        return Swarm([agent("ann", False, hands_off, handoffs=["bob"]), agent("bob", False)], max_turns=3)

    run = await new_task(build, await cut_after(build, 2))
    assert sources(run) == ["user", "bob", "bob", "bob"]


async def test_magentic_takes_a_new_task_after_a_cut() -> None:
    def build() -> BaseGroupChat:
        return MagenticOneGroupChat(
            [agent("ann", False), agent("bob", False)], ScriptedClient(ledger_rule), max_turns=9
        )

    stored = await cut_after(build, 2)
    run = await new_task(build, stored)
    assert (
        "Another task."
        in run.session.team._runtime._agents[  # type: ignore[attr-defined]
            AgentId(run.session.team._group_chat_manager_topic_type, run.session.team._team_id)
        ]._task
    )
    assert sources(run)[0] == "user"


async def test_counters_of_a_cut_run_are_forgotten_for_a_new_task() -> None:
    def build() -> BaseGroupChat:
        inner = RoundRobinGroupChat([agent("bob", False)], name="inner", max_turns=2)
        return RoundRobinGroupChat(
            [agent("ann", False), inner], termination_condition=MaxMessageTermination(5), max_turns=9
        )

    run = await new_task(build, await cut_after(build, 3))
    # It was to be bob's team's turn when the run was cut.
    assert sources(run) == ["user", "bob", "bob", "ann", "bob", "bob"]


async def test_held_speakers_who_have_left_are_named() -> None:
    stored = await cut_after(graph, 2)
    run = await prepared(RoundRobinGroupChat([agent("x", False)], max_turns=1), stored)
    with pytest.raises(StateError, match="'b' was to speak"):
        await run.run(pending=stored.pending[-1])


# --- teams that have been changed since -----------------------------------------------------------------------------


def three() -> BaseGroupChat:
    return RoundRobinGroupChat([agent("ann", False), agent("bob", False), agent("cid", False)], max_turns=2)


CHANGED: dict[str, Build] = {
    "fewer": lambda: RoundRobinGroupChat([agent("ann", False), agent("bob", False)], max_turns=2),
    "more": lambda: RoundRobinGroupChat([*three()._participants, agent("dee", False)], max_turns=2),
    "other kind": lambda: RoundRobinGroupChat([agent("ann", False), Tally("bob"), agent("cid", False)], max_turns=2),
    "a team instead": lambda: RoundRobinGroupChat(
        [agent("ann", False), RoundRobinGroupChat([agent("x", False)], name="bob", max_turns=1), agent("cid", False)],
        max_turns=2,
    ),
    "other order": lambda: RoundRobinGroupChat(three()._participants[::-1], max_turns=2),
    "other team": lambda: Swarm([agent("ann", False), agent("bob", False), agent("cid", False)], max_turns=2),
    "a graph": graph,
    "nobody stayed": lambda: RoundRobinGroupChat([agent("x", False)], max_turns=2),
}


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("keep_run", [True, False])
async def test_a_changed_team_keeps_what_fits(name: str, keep_run: bool) -> None:
    first = await prepared(three())
    await first.run("Begin.")
    run = await prepared(CHANGED[name](), first.stored, check_state=True)
    await run.session.load(first.stored.document(), first.stored.configs, keep_run=keep_run)
    await run.run("Go on.")
    assert sources(run)[0] == "user"
    assert len(run.emitted) >= 2
    assert expand(run.stored.document(), run.stored.configs)[0] == run.stored.states[-1]
    if name in ("fewer", "more", "other order"):
        ann = run.stored.states[-1]["agent_states"]["ann"]
        assert "Begin." in str(ann)


async def test_a_document_without_its_messages_is_refused() -> None:
    first = await prepared(three())
    await first.run("Begin.")
    run = await prepared(three())
    with pytest.raises(DamagedState):
        await run.session.load(first.stored.document(), {})


# --- warm states ----------------------------------------------------------------------------------------------------


async def test_a_warm_state_keeps_no_team_alive() -> None:
    """Model clients hold connections and keys; what waits in memory for the next run holds messages only."""
    run = await prepared(three())
    await run.run("Begin.")
    client = weakref.ref(run.session.team._participants[0]._model_client)  # type: ignore[union-attr]
    warm = run.session.release(run.stored.document().resume)
    del run
    gc.collect()
    assert client() is None
    again = await prepared(three())
    assert await again.session.adopt(warm)


async def test_a_warm_state_of_another_shape_is_not_taken() -> None:
    run = await prepared(three())
    await run.run("Begin.")
    warm = run.session.release(run.stored.document().resume)
    for build in CHANGED.values():
        other = await prepared(build())
        assert not await other.session.adopt(warm)


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


@pytest.mark.parametrize(
    "item", [["z", 1], ["u", 99], ["u"], [], 99, None, "text", 1.5, ["a", 1, 2], {"type": "Nothing"}, {}]
)
@pytest.mark.parametrize("in_context", [True, False])
async def test_a_damaged_document_is_refused(item: Any, in_context: bool) -> None:
    first = await prepared(three())
    await first.run("Begin.")
    document = first.stored.document()
    name = "messages" if in_context else "message_thread"
    cell = next(number for number in document.lists if document.cells[number][-1] == name)
    document.lists[cell].append(item)
    run = await prepared(three())
    with pytest.raises((DamagedState, ValueError)):
        await run.session.load(document, first.stored.configs)
