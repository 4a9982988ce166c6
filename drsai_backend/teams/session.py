"""A session is one run of one team on a turn runtime: built, loaded, run or continued, and ended cleanly whatever
happens."""

from __future__ import annotations

# Private: how AutoGen's teams, conditions and workbenches keep what they are. tests/teams/test_upstream.py.
# pyright: reportPrivateUsage=false
import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import TaskResult, TerminationCondition
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
    StopMessage,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallSummaryMessage,
)
from autogen_agentchat.teams import BaseGroupChat
from autogen_agentchat.teams._group_chat._base_group_chat_manager import BaseGroupChatManager
from autogen_core import CancellationToken

from drsai_backend.datamodel import citations
from drsai_backend.datamodel.file import to_note
from drsai_backend.json_types import JsonObject
from drsai_backend.state import Document, ResumeRecord
from drsai_backend.teams.messages import RECALLED, put_aside, thought_beside
from drsai_backend.teams.recording.recorder import Recorder, Turn, WarmState
from drsai_backend.teams.replay.steps import TurnSteps
from drsai_backend.teams.runtime.turn_runtime import TurnRuntime
from drsai_backend.teams.runtime.wiring import container_of, manager_of, wire
from drsai_backend.teams.suspension import InputBroker
from drsai_backend.teams.team_tree import TeamTree, tree_of

TurnCallback = Callable[[Turn], Awaitable[None]]
ChunkCallback = Callable[[ModelClientStreamingChunkEvent], None]
BoundaryCallback = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Saying:
    """What belongs to what a team's agents say.

    Attributes:
        answered: by agent, which model gave its newest answer; messages that are made of one keep it.
        thoughts: by agent, what its model has thought beside its calls of tools and is not told yet: AutoGen's agents
            know nothing of it. It is told, and taken from here, before what the agent shows next.
        told: what was thought and said beside calls of a client's tools, and told with them. Its event is no part of
            the answer, and it is taken from here.
        mark: called with all that the team shows, chunks included, before it is recorded.
    """

    answered: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    thoughts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    told: list[str] = field(default_factory=list[str])
    mark: Callable[[BaseAgentEvent | BaseChatMessage], None] | None = None


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who is told of a run while it lasts.

    Attributes:
        on_turn: awaited at every turn boundary with what the turn added; the next speakers start when it returns. What
            it raises ends the run.
        on_chunk: called with every streamed chunk, at once. The same object may come again with the next piece.
        on_resumed: awaited when a run resumes at a boundary, before the held speakers start.
        on_nested_turn: awaited at every turn boundary of a nested team; by default the steps are flushed.
    """

    on_turn: TurnCallback | None = None
    on_chunk: ChunkCallback | None = None
    on_resumed: BoundaryCallback | None = None
    on_nested_turn: BoundaryCallback | None = None


NOBODY: Final = Watcher()
ANSWERED: Final = "The agent has answered."
"""Why a run of a team that has one turn ended, where AutoGen calls that turn the maximum."""
_ONE_TURN: Final = "Maximum number of turns 1 reached."


class TeamSession:
    """A fresh team for one run.

    Args:
        team: a group chat that has not run yet.
        next_seq: number of the next message that the thread will store.
        broker: through which the team's agents ask a person. Its questions end the run even where the `InputRequired`
            that it raises would be caught on its way, as in a tool that runs a team of its own.
        steps: the record of the turn in flight; what it keeps in memory is stored at nested teams' turn boundaries.
        known: what the team is made of, if that is known already.
        saying: what belongs to what its agents say.

    Attributes:
        report_first_boundary: False passes the boundary between the task and the first speakers by: what happened until
            then is reported with the first turn.
    """

    def __init__(
        self,
        team: BaseGroupChat,
        *,
        next_seq: int = 1,
        broker: InputBroker | None = None,
        steps: TurnSteps | None = None,
        known: TeamTree | None = None,
        saying: Saying | None = None,
    ) -> None:
        self.team = team
        self._tree = tree_of(team) if known is None else known
        self._next_seq = next_seq
        self._saying = saying or Saying()
        self._watcher = NOBODY
        self.report_first_boundary = True
        self._runtime = TurnRuntime(self._boundary, self._nested_boundary)
        self._broker = broker
        self.steps = steps
        if steps is not None:
            steps.on_complete = self._complete
        self._resumed = False
        self._paused = False
        self._pending: list[str] = []
        self._recorder: Recorder | None = None

    @property
    def recorder(self) -> Recorder:
        assert self._recorder is not None, "call prepare() first"
        return self._recorder

    async def prepare(self) -> None:
        """Put the team on its runtime.

        Raises:
            TeamBuildError: the team has run before.
        """
        await wire(self.team, self._runtime, self._emit, self._tree)
        self._recorder = Recorder(self._tree, self._next_seq)

    async def load(self, document: Document, configs: Mapping[int, JsonObject], *, keep_run: bool = True) -> list[str]:
        """Load a stored state; see `Recorder.load`."""
        left_out = await self.recorder.load(document, configs, keep_run=keep_run)
        self._paused = document.resume.paused
        return left_out

    async def adopt(self, warm: WarmState, *, keep_run: bool = True) -> bool:
        """Take over a state that is still in memory; see `Recorder.adopt`."""
        return await self.recorder.adopt(warm, keep_run=keep_run)

    async def run(
        self,
        task: Sequence[BaseChatMessage] | None = None,
        *,
        pending: Sequence[str] | None = None,
        token: CancellationToken | None = None,
        watcher: Watcher = NOBODY,
    ) -> tuple[TaskResult, Turn]:
        """Run the team on `task`, or resume at the boundary where `pending` were held.

        Returns:
            AutoGen's result (its messages are left empty: they went to the recorder) and the last turn, which has not
            been reported to the watcher.

        Raises:
            InputRequired: an agent asks a person; the last reported turn stands, and what ran beside the agent is in
                `steps`.
            StopRequested: a person who was asked wants the run to stop.
            asyncio.CancelledError: the token or the task was cancelled.
            Exception: whatever an agent, a tool, a model client, a condition or a selector raised first.
        """
        token = token or CancellationToken()
        self._watcher = watcher
        runtime, key = self._runtime, self.team._team_id
        runtime.asked = None
        if self._broker is not None:
            self._broker.on_question(runtime.suspend)
        lane = runtime.lane(key)
        lane.error = None
        lane.resume = None if pending is None else list(pending)
        self._resumed = pending is not None
        if pending is not None:
            self.report_first_boundary = False  # The boundary where they were held is stored already.
        stream = self.team.run_stream(task=None if task is None else list(task), cancellation_token=token)
        result: TaskResult | None = None
        raised: BaseException | None = None
        try:
            async for item in stream:
                if isinstance(item, TaskResult):
                    result = item
                else:
                    # Only a run_stream of the user's own yields anything else: the queue's items went to the sink.
                    self._emit(item)
            await runtime.settle()
            raised = lane.error  # after the manager had signalled the end
        except asyncio.CancelledError as cancelled:
            raised = runtime.asked or cancelled
        except Exception as error:  # noqa: BLE001 - it is raised again below, or what it stands for
            raised = runtime.asked or lane.error or error
        finally:
            if result is None or raised is not None:
                await _undisturbed(self._end(stream, token))
        if raised is not None:
            try:
                raise raised
            finally:
                del raised
        assert result is not None
        if result.stop_reason == _ONE_TURN and getattr(self.team, "has_one_turn", False):
            result.stop_reason = ANSWERED
        return result, await self.recorder.capture(None)

    def blamed(self, error: BaseException) -> str | None:
        """The name of the agent that raised what `run` has raised; None: it was none."""
        return self._runtime.errors.blamed(error)

    async def _end(self, stream: AsyncGenerator[object, None], token: CancellationToken) -> None:
        token.cancel()
        await stream.aclose()
        await self._runtime.abort_all()

    def _emit(self, message: BaseAgentEvent | BaseChatMessage) -> None:
        saying = self._saying
        if isinstance(message, ModelClientStreamingChunkEvent):
            if saying.mark is not None:
                saying.mark(message)
            if self._watcher.on_chunk is not None:
                self._watcher.on_chunk(message)
            return
        if message.source in saying.thoughts:
            thought = "\n\n".join(saying.thoughts.pop(message.source))
            self._emit(thought_beside(message.source, thought, message.metadata))
        if saying.told and isinstance(message, ThoughtEvent) and message.content in saying.told:
            saying.told.remove(message.content)
            put_aside(message, "told")
        if saying.mark is not None:
            saying.mark(message)
        if message.models_usage is not None and (by := saying.answered.get(message.source)) is not None:
            message.metadata = {**message.metadata, **by}
        if self.steps is not None and (self.steps.files or self.steps.passages or self.steps.recalled):
            self._note(message, self.steps)
        self.recorder.emit(message)

    def _note(self, message: BaseAgentEvent | BaseChatMessage, steps: TurnSteps) -> None:
        """Let a message with results of tools have the files that they have made, one that answers what it cites of
        the files that its speaker was shown, and what a model has answered the names of what that was shown beside."""
        if message.models_usage is not None and (names := steps.recalled.get(message.source)):
            message.metadata = {**message.metadata, RECALLED: " ".join(names)}
        if isinstance(message, ToolCallExecutionEvent | ToolCallSummaryMessage):
            results = message.content if isinstance(message, ToolCallExecutionEvent) else message.results
            if files := [file for each in results for file in steps.files.get((message.source, each.call_id), ())]:
                message.metadata = {**message.metadata, **to_note(files)}
        elif isinstance(message, TextMessage) and (passages := steps.passages.get(message.source)):
            cited = citations.cited_in(message.content, passages)
            message.metadata = {**message.metadata, **citations.to_note(cited)}

    async def _boundary(self, pending: list[str]) -> None:
        self._pending = pending
        if self._paused:
            self._paused = False
            await self.team.resume()
        if not self.report_first_boundary:
            self.report_first_boundary = True
            if self._resumed and self._watcher.on_resumed is not None:
                await self._watcher.on_resumed()
            return
        turn = await self.recorder.capture(pending)
        if self._watcher.on_turn is not None:
            await self._watcher.on_turn(turn)

    def _complete(self, path: str, tool: str) -> None:
        """A call of an agent's tool has completed the task: the team that the agent is a member of ends with its
        answer. Where agents do steps of something, only the step is done (`ends_by_tools`)."""
        agent = self._tree.parts[path]
        for team in self._tree.teams:
            manager = manager_of(team)
            if getattr(manager, "ends_by_tools", True) and any(each is agent for each in team._participants):
                manager._termination_condition = _Completed(manager, tool)

    async def _nested_boundary(self) -> None:
        if self._watcher.on_nested_turn is not None:
            await self._watcher.on_nested_turn()
        elif self.steps is not None:
            await self.steps.flush()

    async def steer(self, messages: Sequence[BaseChatMessage]) -> None:
        """At a boundary, from `on_turn` or `on_resumed` of the watcher: let all participants and the manager hear new
        messages, as if they had been part of the task. The speakers that are held hear them first. `capture_turn`
        stores them.

        Raises:
            ValueError: a message of a type that the team does not know; nobody has heard any.
        """
        team = self.team
        for message in messages:
            if not team._message_factory.is_registered(type(message)):
                raise ValueError(f"the team does not know messages of type {type(message).__name__}")
        for position in range(len(team._participants)):
            for message in messages:
                container_of(team, position)._buffer_message(message)
        await manager_of(team).update_message_thread(messages)
        for message in messages:
            self._emit(message)

    async def pause(self) -> Turn | None:
        """At a boundary, as `steer`: call the agents' `on_pause`. The next run of the state calls their `on_resume`
        before anybody speaks. Returns the turn to store; None: no agent listens for pauses."""
        listens = [getattr(type(agent), "on_pause", None) is not BaseChatAgent.on_pause for agent in self._tree.agents]
        if not any(listens):
            return None
        await self.team.pause()
        return await self.recorder.capture(self._pending, paused=True)

    async def capture_turn(self) -> Turn:
        """At a boundary: what has changed since it was reported, as a turn with the same held speakers."""
        return await self.recorder.capture(self._pending)

    def close(self) -> None:
        """Let go of the team, which is not needed any more."""
        self._runtime.close()
        self._watcher, self._saying = NOBODY, Saying()
        self._recorder = None
        del self.team, self._tree

    def release(self, resume: ResumeRecord) -> WarmState:
        """The state as live objects, once the run has ended and is stored. The team must not run again."""
        return self.recorder.give(resume)


class _Completed(TerminationCondition):
    """Ends a team at its next decision, as a call of a tool has completed the task. `manager`: the team's, whose own
    condition is reset as where that ends it, and counts again: a nested team is asked once more."""

    def __init__(self, manager: BaseGroupChatManager, tool: str) -> None:
        self._manager, self._before = manager, manager._termination_condition
        self._reason = f"The tool {tool} has completed the task."

    @property
    def terminated(self) -> bool:
        return False

    async def __call__(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> StopMessage:
        return StopMessage(content=self._reason, source="tool")

    async def reset(self) -> None:
        self._manager._termination_condition = self._before
        if self._before is not None:
            await self._before.reset()


async def _undisturbed(work: Awaitable[None]) -> None:
    """Await `work` to its end, however often this task is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    with anyio.CancelScope(shield=True):
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
    task.result()
