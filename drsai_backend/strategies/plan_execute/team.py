"""The team is a group chat of a planner, executors and one who answers, led by a manager that follows the plan."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    MessageFactory,
    MultiModalMessage,
    StopMessage,
    ThoughtEvent,
)

# Private: the group chat protocol. tests/teams/test_upstream.py fails when it changes.
# pyright: reportPrivateUsage=false
from autogen_agentchat.teams._group_chat._base_group_chat_manager import BaseGroupChatManager
from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
from autogen_agentchat.teams._group_chat._events import GroupChatMessage
from autogen_agentchat.teams._group_chat._round_robin_group_chat import RoundRobinGroupChatManager
from autogen_core import DefaultTopicId, Image
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, FunctionTool, StaticStreamWorkbench, Workbench

from drsai_backend.agents.base import AnyTool
from drsai_backend.datamodel.task_lists import TaskMark, dump_mark, mark_of
from drsai_backend.strategies.plan_execute import prompts
from drsai_backend.strategies.plan_execute.board import Board, Bounds, Next
from drsai_backend.strategies.plan_execute.members import Answerer, Executor, Member, PlanChecker, Planner
from drsai_backend.teams.group_chats import DrSaiGroupChat


class PlanExecuteTeam(DrSaiGroupChat):
    """Makes a plan, does its steps, and answers from their results.

    Each step is a turn, which is stored; steps that need nothing from each other are done in one turn. A step that
    fails is tried again, and where that does not help, the plan is changed. The plan and the steps' results are shown
    as thoughts, the answer as the text; `Thread.tasks` has the plan with the status of each step.

    Args:
        planner_client: the model that plans.
        tools: of the executors.
        workbench: makes workbenches of more tools, anew for each executor.
        executor_client: the model that does the steps; the planner's when omitted.
        answer_client: the model that answers; the executors' when omitted.
        name: of the team, and of the agent that answers.
        system_message: what all of them are told first.
        model_context: makes what of the conversation the planner and the answering agent are shown, and what of its
            step an executor is.
        max_steps: attempts at steps in a run, 1 to 99.
        retries: attempts at one step beside the first, 0 to 10.
        replans: plans beside the first, 0 to 10.
        at_once: steps that are done at the same time, 1 to 10.
        check: a person is asked about each plan before it is followed: they approve, edit or reject it.
        max_tool_iterations: answers of the model in one step that call tools.
        tool_choice: as of `DrSaiAgent`, in every step.
        model_client_stream: show the answer while it is made.

    Raises:
        ValueError: a number is out of its bounds.
    """

    def __init__(  # noqa: PLR0913 - options of a public class
        self,
        planner_client: ChatCompletionClient,
        tools: Sequence[AnyTool | Callable[..., object]] = (),
        *,
        workbench: Callable[[], Sequence[Workbench]] | None = None,
        executor_client: ChatCompletionClient | None = None,
        answer_client: ChatCompletionClient | None = None,
        name: str = "plan_execute",
        description: str = "Makes a plan, does its steps, and answers.",
        system_message: str | None = None,
        model_context: Callable[[], ChatCompletionContext] = UnboundedChatCompletionContext,
        max_steps: int = 20,
        retries: int = 3,
        replans: int = 2,
        at_once: int = 3,
        check: bool = False,
        max_tool_iterations: int = 10,
        tool_choice: str = "auto",
        model_client_stream: bool = True,
    ) -> None:
        bounds = {"max_steps": (max_steps, 1, 99), "retries": (retries, 0, 10), "replans": (replans, 0, 10)}
        for each, (value, least, most) in {**bounds, "at_once": (at_once, 1, 10)}.items():
            if not least <= value <= most:
                raise ValueError(f"{each} must be {least} to {most}, not {value}")
        executor_client = executor_client or planner_client
        answer_client = answer_client or executor_client
        self._bounds = Bounds(max_steps, retries, replans, at_once, check)

        def benches() -> list[Workbench]:
            own: list[Workbench] = [StaticStreamWorkbench(_as_tools(tools))] if tools else []
            return own if workbench is None else [*own, *workbench()]

        planner = Planner(
            f"{name}_planner",
            planner_client,
            system_message=prompts.told(system_message, prompts.PLANNER.format(most=max_steps)),
            model_context=model_context(),
            description="Makes the plan.",
        )
        executors = [
            Executor(
                f"{name}_executor_{number}",
                executor_client,
                workbench=benches() or None,
                system_message=prompts.told(system_message, prompts.EXECUTOR),
                model_context=model_context(),
                description="Does a step.",
                reflect_on_tool_use=bool(tools or workbench),
                max_tool_iterations=max_tool_iterations,
                tool_choice=tool_choice,
            )
            for number in range(1, at_once + 1)
        ]
        answerer = Answerer(
            name,
            answer_client,
            system_message=system_message,
            model_context=model_context(),
            description=description,
            model_client_stream=model_client_stream,
        )
        checkers = [PlanChecker(f"{name}_check", "Has a person check the plan.")] if check else []
        # The one who answers is the last: so it is found as that (`team_tree.answering_agent`).
        super().__init__(
            name, description, [planner, *checkers, *executors, answerer], "PlanExecuteManager", PlanExecuteManager
        )

    def _create_group_chat_manager_factory(self, *args: Any, **options: Any) -> Callable[[], BaseGroupChatManager]:
        members = [each for each in self._participants if isinstance(each, Member)]

        def make() -> PlanExecuteManager:
            manager = PlanExecuteManager(*args, **options, bounds=self._bounds, members=members, team=self.name)
            for each in members:
                each.desk = weakref.proxy(manager)  # which has them
            return manager

        return make

    def _create_participant_factory(
        self,
        parent_topic_type: str,
        output_topic_type: str,
        agent: ChatAgent | Team,
        message_factory: MessageFactory,
    ) -> Callable[[], ChatAgentContainer]:
        return lambda: _Container(parent_topic_type, output_topic_type, agent, message_factory)


class _Container(ChatAgentContainer):
    """Keeps what is said in the team for those members only that hear it: what a step costs does not grow with what
    was said before."""

    def _buffer_message(self, message: BaseChatMessage) -> None:
        if getattr(self._agent, "hears", False) and isinstance(cast("object", message), BaseChatMessage):
            super()._buffer_message(message)


class PlanExecuteManager(RoundRobinGroupChatManager):
    """Follows the plan. Its board is what the messages of the task add up to: it keeps nothing but where they begin.

    Of a round robin it has the saved state alone: the messages and the number of turns.
    """

    durable_fields = ("_began",)
    ends_by_tools = False

    def __init__(self, *args: Any, bounds: Bounds, members: Sequence[Member], team: str, **options: Any) -> None:
        super().__init__(*args, emit_team_events=False, **options)
        self._bounds = bounds
        self._team = team
        self._executors = [each for each in members if isinstance(each, Executor)]
        self._executor_names = [each.name for each in self._executors]
        self._began = 0
        self._forget()

    def _forget(self) -> None:
        self._folded = self._began
        self._of: list[BaseAgentEvent | BaseChatMessage] = self._message_thread
        self._restart()

    def _restart(self) -> None:
        """The next message is the first of a task."""
        self._board = Board(self._bounds, self._team)
        self._task: list[str] = []
        self._added: list[str] = []
        self._images: list[Image] = []
        self._is_over = False

    # --- what the members see ---------------------------------------------------------------------------------------

    @property
    def board(self) -> Board:
        """The board of the task, as far as its messages are there."""
        thread = self._message_thread
        if self._of is not thread or self._folded > len(thread):
            self._forget()  # A stored state was loaded.
        while self._folded < len(thread):
            self._fold(thread[self._folded])
            self._folded += 1
        return self._board

    def _fold(self, message: BaseAgentEvent | BaseChatMessage) -> None:
        if self._is_over:
            self._restart()
        board, own = self._board, message.source in self._participant_names or message.source == self._name
        mark = mark_of(message.metadata) if own else None
        if mark is not None:
            text = message.to_text()
            is_result = isinstance(message, ThoughtEvent) and message.source in self._executor_names
            board.take(mark, text.partition("\n\n")[2] if is_result else text)
        elif message.source == self._team:
            self._is_over = isinstance(message, BaseChatMessage)
        elif not own and isinstance(message, BaseChatMessage):
            (self._task if board.list is None else self._added).append(message.to_model_text())
            if isinstance(message, MultiModalMessage):
                self._images += [each for each in message.content if isinstance(each, Image)]

    @property
    def task(self) -> str:
        """What is to be done."""
        _ = self.board
        return "\n\n".join(self._task)

    @property
    def added(self) -> Sequence[str]:
        """What the user has said since the plan was made."""
        _ = self.board
        return self._added

    @property
    def images(self) -> Sequence[Image]:
        """What the user has shown."""
        _ = self.board
        return self._images

    @property
    def list_id(self) -> str:
        """Names the list of this task's steps, among those of the thread."""
        return f"{self._team}-{self._began}"

    def place_of(self, executor: str) -> int:
        """Return which of the steps of the turn in flight an executor does."""
        return self._executor_names.index(executor)

    async def tools(self) -> Sequence[tuple[str, str]]:
        """The names and descriptions of the executors' tools."""
        listed = [await each.list_tools() for each in self._executors[0]._workbench]
        return [(tool["name"], tool.get("description", "")) for tools in listed for tool in tools]

    # --- what the group chat asks -----------------------------------------------------------------------------------

    async def validate_group_state(self, messages: list[BaseChatMessage] | None) -> None:
        if messages is not None:
            self._began = len(self._message_thread)
            self._forget()

    async def reset(self) -> None:
        await super().reset()
        self._began = 0
        self._forget()

    async def select_speaker(self, thread: Sequence[BaseAgentEvent | BaseChatMessage]) -> list[str]:
        board = self.board
        what, steps = board.next()
        match what:
            case Next.PLAN:
                return [f"{self._team}_planner"]
            case Next.CHECK:
                return [f"{self._team}_check"]
            case Next.RUN:
                await self._say(prompts.begins(board, steps), board.started(steps))
                return self._executor_names[: len(steps)]
            case Next.ANSWER:
                if board.list is not None:
                    await self._say(prompts.left_over(board) or "No step is left.", board.finished())
            case Next.REFUSED:
                pass
        return [self._team]

    async def _say(self, text: str, mark: TaskMark) -> None:
        event = ThoughtEvent(content=text, source=self._name, metadata=dump_mark(mark))
        await self.publish_message(
            GroupChatMessage(message=event), topic_id=DefaultTopicId(type=self._output_topic_type)
        )
        await self._output_message_queue.put(event)
        await self.update_message_thread([event])

    async def _apply_termination_condition(
        self, delta: Sequence[BaseAgentEvent | BaseChatMessage], increment_turn_count: bool = False
    ) -> bool:
        last = delta[-1] if delta else None
        if not increment_turn_count or last is None or last.source != self._team:
            return await super()._apply_termination_condition(delta, increment_turn_count)
        self._current_turn = 0
        reason = prompts.left_over(self.board) or (
            "The task is done." if self.board.results else "Nothing had to be done before the answer."
        )
        if self.board.next()[0] is Next.REFUSED:
            reason = prompts.REJECTED
        await self._signal_termination(StopMessage(content=reason, source=self._name))
        return True


def _as_tools(tools: Sequence[AnyTool | Callable[..., object]]) -> list[AnyTool]:
    return [
        cast(AnyTool, each) if isinstance(each, BaseTool) else FunctionTool(each, description=each.__doc__ or "")
        for each in tools
    ]
