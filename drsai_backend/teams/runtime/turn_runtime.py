"""The turn runtime is an AutoGen `AgentRuntime` on which a group chat runs turn by turn.

AutoGen's teams talk through an `AgentRuntime` and take any. The stock one delivers every message in a task of its own,
so there is no moment at which nothing is in flight. This one keeps a **lane** per team, driven by one task:

1. `GroupChatStart`, sent by `run_stream`, starts the driver, which hands it to the manager.
2. Ordinary messages are delivered one at a time, to their recipients in order of subscription.
3. `GroupChatRequestPublish` messages, which start the next speakers, are held back until nothing else is in flight.
   That is the **turn boundary**: `on_boundary` is awaited, then all held speakers are released together, one inline,
   several as concurrent tasks.
4. A message for a participant that is speaking waits until it has spoken, as it would on stock behind its lock.
5. What participants show (`GroupChatMessage`) goes straight to the team's output queue.
6. The lane ends when it is idle. If the manager has not signalled the end by then, or something raised, it does so:
   a stream always ends.

Nested teams run on the same runtime object in lanes of their own. Only the outermost team's turn boundaries are
reported to `on_boundary`; at those of the others `on_nested_boundary` is awaited. What concurrent speakers of a nested
team say is heard in the order in which they were released, not in which they finish: the outer turn, of which all this
is a part, may be repeated, and must then ask the same.

A question to a person ends the branch that asks (see `suspension.Branch`): the speakers beside it finish,
and only then the lane ends with `InputRequired`. Where nothing runs beside it, everything ends at once.

AutoGen passes errors on as text: `run_stream` raises a `RuntimeError` of it. The lane keeps the exception itself, and
recognises the text when it comes back from an inner team (`error_texts`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from autogen_agentchat.messages import ModelClientStreamingChunkEvent, ToolCallRequestEvent

# Private: the group chat protocol. tests/teams/test_upstream.py fails when it changes.
# pyright: reportPrivateUsage=false
from autogen_agentchat.teams._group_chat._base_group_chat_manager import BaseGroupChatManager
from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
from autogen_agentchat.teams._group_chat._events import (
    GroupChatError,
    GroupChatMessage,
    GroupChatRequestPublish,
    GroupChatStart,
    GroupChatTermination,
)
from autogen_core import Agent, AgentId, CancellationToken, MessageContext, TopicId

from drsai_backend.agents.base import tells_its_calls
from drsai_backend.agents.tool_tasks import calls_tools, tool_tasks, watch_tools
from drsai_backend.errors import StateError
from drsai_backend.teams.messages import Message
from drsai_backend.teams.runtime.agent_directory import AgentDirectory
from drsai_backend.teams.runtime.error_texts import TeamErrors, leaked
from drsai_backend.teams.runtime.lane import PATIENCE, Delivery, Lane, cancel_lane, cancel_requested, handle
from drsai_backend.teams.suspension import Branch, InputRequired, StopRequested, current_branch
from drsai_backend.teams.team_tree import TeamTree, is_a

BoundaryCallback = Callable[[list[str]], Awaitable[None]]
OutputSink = Callable[[Message], None]


class TurnRuntime(AgentDirectory):
    """An `AgentRuntime` for one team and the teams nested in it.

    Args:
        on_boundary: awaited at every turn boundary of the lane `outermost` with the names of the held speakers. Raising
            ends the run with that error.
        on_nested_boundary: awaited at those of every other lane, likewise.
    """

    def __init__(
        self,
        on_boundary: BoundaryCallback | None = None,
        on_nested_boundary: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__()
        self._on_boundary = on_boundary
        self._on_nested_boundary = on_nested_boundary
        self._lanes: dict[str, Lane] = {}
        self.mark = object()
        """What belongs to this runtime's run bears it."""
        self.errors = TeamErrors()
        self.outermost: str | None = None
        self.sink: OutputSink | None = None
        """Takes what the outermost team shows; None: its queue keeps it."""
        self.tree: TeamTree | None = None
        """What the team that was put here is made of."""
        self.asked: BaseException | None = None
        """What ended the current run as a whole: a question to a person, or his wish that it stops."""

    def lane(self, key: str) -> Lane:
        """The lane of the team with that id."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key, self.errors)
        return lane

    def place(self, agent_id: AgentId, agent: Agent) -> None:
        """Make a constructed agent reachable under `agent_id`."""
        self._agents[agent_id] = agent
        if is_a(agent, BaseGroupChatManager):
            lane = self.lane(agent_id.key)
            lane.manager, lane.manager_id = agent, agent_id
            own = type(agent).handle_group_chat_message, type(agent).on_message_impl
            stock = BaseGroupChatManager.handle_group_chat_message, BaseGroupChatManager.on_message_impl
            lane.direct = own == stock

    def close(self) -> None:
        """Let go of all agents: no message comes to anybody any more."""
        self._on_boundary = self._on_nested_boundary = self.asked = self.tree = self.sink = None
        self.errors = TeamErrors()
        for lane in self._lanes.values():
            lane.manager = lane.token = lane.driver = lane.error = None
            lane.errors = self.errors
        for kept in (self._lanes, self._agents, self._factories):
            kept.clear()

    # --- sending ------------------------------------------------------------------------------------------------

    async def send_message(
        self,
        message: object,
        recipient: AgentId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> object:
        token = cancellation_token or CancellationToken()
        agent = self._agents.get(recipient) or await self.instance(recipient)
        context = MessageContext(
            sender=sender, topic_id=None, is_rpc=True, cancellation_token=token, message_id=message_id or ""
        )
        lane = self.lane(recipient.key)
        manager = lane.manager
        if manager is not None and manager is agent and isinstance(message, GroupChatStart):
            return await self._start(lane, manager, message, context)
        if lane.queue and recipient not in lane.speaking:
            # What was published before is handled before.
            earlier = [delivery for agent_id, delivery in lane.queue if agent_id == recipient]
            lane.queue = deque(each for each in lane.queue if each[0] != recipient)
            for delivery in earlier:
                await self._deliver(lane, recipient, delivery)
        return await handle(agent, message, context)

    async def publish_message(
        self,
        message: object,
        topic_id: TopicId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> None:
        branch, lane = current_branch.get(), self.lane(topic_id.source)
        if lane.stopping or (branch is not None and branch.question is not None):
            return
        shown = type(message.message) if type(message) is GroupChatMessage else None
        if shown is ToolCallRequestEvent and lane.token is not None and not self._tells_its_calls(sender):
            calls_tools(lane.token)
            asyncio.get_running_loop().call_soon(watch_tools, lane.token)
        unheard = lane.outbox.get(sender) if lane.order and sender is not None else None
        if unheard is not None and shown is not ModelClientStreamingChunkEvent:
            unheard.append((message, topic_id, sender, cancellation_token))
        else:
            self._publish(lane, message, topic_id, sender, cancellation_token)

    def _tells_its_calls(self, sender: AgentId | None) -> bool:
        """Whether a participant says itself when it calls a tool."""
        container = None if sender is None else self._agents.get(sender)
        return isinstance(container, ChatAgentContainer) and tells_its_calls(container._agent)

    def show_piece(self, piece: ModelClientStreamingChunkEvent, key: str) -> bool:
        """Show a piece of what a participant of the team with that id says, at once. False, and nothing done: its
        manager wants to be asked."""
        branch, lane = current_branch.get(), self._lanes.get(key)
        if lane is None or lane.manager is None or not lane.direct:
            return False
        if not lane.stopping and (branch is None or branch.question is None):
            lane.manager._output_message_queue.put_nowait(piece)
        return True

    def shows_text(self, begun: ModelClientStreamingChunkEvent, key: str) -> Callable[[str], None] | None:
        """Return what shows the further pieces of an answer, each as the one with which it has begun, which nobody
        keeps; None: an inner team's queue does. An empty one, which would begin another answer, is passed over."""
        sink, lane, branch = self.sink, self._lanes[key], current_branch.get()
        if sink is None or key != self.outermost:
            return None
        fields = vars(begun)  # Pydantic's way to set one takes longer than all the rest.

        def show(text: str) -> None:
            if text and not lane.stopping and (branch is None or branch.question is None):
                fields["content"] = text
                sink(begun)

        return show

    def _publish(
        self,
        lane: Lane,
        message: object,
        topic_id: TopicId,
        sender: AgentId | None,
        cancellation_token: CancellationToken | None,
    ) -> None:
        manager = lane.manager
        if manager is not None:
            if type(message) is GroupChatTermination:
                lane.signalled = True
                lane.echo = lane.echo or (None if message.error is None else str(message.error))
            if sender is not None and (sender is lane.manager_id or sender == lane.manager_id):
                if topic_id.type == manager._output_topic_type:
                    return  # A copy for the log: the manager has put it on the output queue itself.
            elif lane.direct and type(message) is GroupChatMessage:
                manager._output_message_queue.put_nowait(message.message)
                return
        delivery = (message, topic_id, sender, cancellation_token or CancellationToken())
        if type(message) is GroupChatRequestPublish:
            lane.held.append(delivery)
        else:
            for agent_id in self.recipients(topic_id):
                if agent_id is not sender and agent_id != sender:
                    lane.queue.append((agent_id, delivery))
        if lane.wake is not None:
            lane.notify()

    # --- one run of a lane --------------------------------------------------------------------------------------

    async def _start(
        self, lane: Lane, manager: BaseGroupChatManager, message: GroupChatStart, context: MessageContext
    ) -> object:
        await lane.abort()
        # Left over from a run that was cut: stale speakers would make the manager wait for them for ever.
        manager._active_speakers.clear()
        queue = manager._output_message_queue
        while not queue.empty():
            queue.get_nowait()
        loop = asyncio.get_running_loop()
        started = lane.begin(context.cancellation_token, loop)
        lane.driver = driver = asyncio.create_task(self._drive(lane, manager, message, context))
        # A task that is cancelled before its first step runs none of its code.
        driver.add_done_callback(lambda _: started.done() or started.cancel())
        context.cancellation_token.add_callback(lambda: cancel_lane(lane, driver, loop))
        return await started

    async def _drive(
        self, lane: Lane, manager: BaseGroupChatManager, start: GroupChatStart, context: MessageContext
    ) -> None:
        """The lane's driver task; see the module's docstring."""
        try:
            result = None
            if lane.resume is not None and start.messages is None:
                self._hold_again(lane, manager, lane.resume, context)
            else:
                result = await handle(manager, start, context)
            lane.has_started(result)
            await self._turns(lane, manager)
        except (KeyboardInterrupt, SystemExit):
            raise
        except asyncio.CancelledError as error:
            if cancel_requested():
                raise
            self._fail(lane, leaked(error))
        except BaseException as error:  # noqa: BLE001 - the boundary at which it becomes the lane's
            self._fail(lane, error)

    def _hold_again(
        self, lane: Lane, manager: BaseGroupChatManager, speakers: Sequence[str], context: MessageContext
    ) -> None:
        """Continue from a boundary: hold the requests that were held there instead of asking the manager again."""
        for name in speakers:
            if name not in manager._participant_name_to_topic_type:
                raise StateError(f"the run was cut when {name!r} was to speak, who is not in the team any more")
            topic = TopicId(manager._participant_name_to_topic_type[name], lane.key)
            lane.held.append((GroupChatRequestPublish(), topic, manager.id, context.cancellation_token))
            manager._active_speakers.append(name)
        lane.resume = None

    async def _turns(self, lane: Lane, manager: BaseGroupChatManager) -> None:
        while True:
            while lane.queue:
                await self._deliver(lane, *lane.queue.popleft())
            if lane.error is not None and not (lane.speaking and isinstance(lane.error, InputRequired)):
                raise lane.error
            if lane.speaking:
                lane.wake = asyncio.get_running_loop().create_future()
                await lane.wake
                lane.wake = None
            elif lane.held:
                await self._turn(lane, manager)
            else:
                break
        if not lane.signalled:
            lane.signal("The group chat is stopped.", None)

    async def _turn(self, lane: Lane, manager: BaseGroupChatManager) -> None:
        """One turn boundary, and the release of the speakers held there."""
        speakers = [
            (agent_id, delivery)
            for delivery in lane.held
            for agent_id in self.recipients(delivery[1])
            if agent_id != delivery[2]
        ]
        if self._on_boundary is not None and lane.key == self.outermost:
            names = {topic: name for name, topic in manager._participant_name_to_topic_type.items()}
            await self._on_boundary([names[agent_id.type] for agent_id, _ in speakers if agent_id.type in names])
        elif self._on_nested_boundary is not None and lane.key != self.outermost:
            await self._on_nested_boundary()
        lane.held = []
        released: list[tuple[AgentId, Delivery]] = []
        for agent_id, delivery in speakers:
            if agent_id in lane.speaking:
                lane.deferred.setdefault(agent_id, deque()).append(delivery)
            else:
                lane.speaking[agent_id] = None
                released.append((agent_id, delivery))
        if len(released) == 1:
            await self._speak(lane, *released[0])
            return
        if lane.key != self.outermost:
            lane.order = deque(agent_id for agent_id, _ in released)
            lane.outbox = {agent_id: [] for agent_id, _ in released[1:]}
        for agent_id, delivery in released:
            branch = Branch(lane.branch)
            branch.task = lane.speaking[agent_id] = task = asyncio.create_task(
                self._speak(lane, agent_id, delivery, branch)
            )
            task.add_done_callback(branch.ended)

    async def _speak(self, lane: Lane, agent_id: AgentId, delivery: Delivery, branch: Branch | None = None) -> None:
        """Let one participant speak, then give it what arrived meanwhile. `branch`: in this task, beside others."""
        error: BaseException | None = None
        if branch is not None:
            current_branch.set(branch)
        try:
            agent = self._agents.get(agent_id) or await self.instance(agent_id)
            current: Delivery | None = delivery
            while current is not None:
                message, topic_id, sender, token = current
                try:
                    await handle(agent, message, _event_context(topic_id, sender, token))
                except Exception as raised:  # noqa: BLE001 - the boundary at which a speaker's error becomes the lane's
                    error = error or raised
                waiting = lane.deferred.get(agent_id) if lane.deferred else None
                current = waiting.popleft() if waiting else None
        except (KeyboardInterrupt, SystemExit):
            raise
        except asyncio.CancelledError as cancelled:
            asked = branch is not None and branch.question is not None
            if lane.stopping or delivery[3].is_cancelled() or (cancel_requested() and not asked):
                raise
            error = leaked(cancelled)
        except BaseException as raised:  # noqa: BLE001 - as above
            error = raised
        finally:
            lane.speaking.pop(agent_id, None)
            lane.deferred.pop(agent_id, None)
            error = (branch and branch.question) or error
            if error is not None:
                lane.note(error, self._agents.get(agent_id))
                error = None  # Its traceback keeps this frame.
            if lane.order:
                self._hear(lane)
            lane.notify()

    def _hear(self, lane: Lane) -> None:
        """A concurrent speaker has ended: hear what others have said, as far as everybody before them has ended."""
        while lane.order and lane.order[0] not in lane.speaking:
            lane.order.popleft()
            if lane.order:
                for publication in lane.outbox.pop(lane.order[0]):
                    self._publish(lane, *publication)

    async def _deliver(self, lane: Lane, agent_id: AgentId, delivery: Delivery) -> None:
        message, topic_id, sender, token = delivery
        if lane.speaking and agent_id in lane.speaking:
            lane.deferred.setdefault(agent_id, deque()).append(delivery)
            return
        agent = self._agents.get(agent_id) or await self.instance(agent_id)
        if type(message) is GroupChatError and agent is not lane.manager:
            return  # Participants have no handler for it; on stock their complaint ends up in a log.
        try:
            await handle(agent, message, _event_context(topic_id, sender, token))
        except Exception as raised:  # noqa: BLE001 - the boundary at which a handler's error becomes the lane's
            self.errors.blame(agent, self.errors.original(raised))
            if lane.error is None:
                lane.error = raised

    def _fail(self, lane: Lane, error: BaseException) -> None:
        error = self.errors.original(error)
        lane.fail(error)
        if isinstance(error, InputRequired):
            error.caught = True
            self.suspend(error, lane.branch)
        elif isinstance(error, StopRequested):
            self.suspend(error, None)

    def suspend(self, reason: BaseException, branch: Branch | None) -> None:
        """A person is asked, or wants the run to stop: nothing of that branch of the turn continues, nor, without one,
        of the whole turn, in whatever team."""
        if branch is None:
            if self.asked is not None:
                return
            self.asked = reason
        elif branch.question is None and isinstance(reason, InputRequired):
            branch.question = reason
        for lane in self._lanes.values():
            if lane.driver is None or lane.driver.done():
                continue
            if branch is not None and (lane.branch is None or not lane.branch.within(branch)):
                continue
            if not lane.signalled:
                lane.signal("A person is asked.", reason)
            lane.cancel()
        if branch is not None and branch.task is not None and not branch.task.done():
            branch.task.cancel()

    # --- ends ---------------------------------------------------------------------------------------------------

    async def abort_all(self) -> None:
        """Cancel everything of every team, the outermost first, and wait until it is gone; tools left behind too."""
        tokens = {id(lane.token): lane.token for lane in self._lanes.values()}
        for lane in list(self._lanes.values()):
            await lane.abort()
        left = {task for token in tokens.values() for task in tool_tasks(token)}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=PATIENCE)

    async def settle(self) -> None:
        """Wait until the outermost team is idle, and cancel what an inner one has left running behind its back. Raises
        nothing of what tasks raised."""
        assert self.outermost is not None
        outermost = self.lane(self.outermost)
        while tasks := outermost.live_tasks():
            await asyncio.wait(tasks)
        for lane in self._lanes.values():
            if lane is not outermost and lane.driver is not None and not lane.driver.done():
                await lane.abort()


def _event_context(topic_id: TopicId, sender: AgentId | None, token: CancellationToken) -> MessageContext:
    return MessageContext(sender=sender, topic_id=topic_id, is_rpc=False, cancellation_token=token, message_id="")
