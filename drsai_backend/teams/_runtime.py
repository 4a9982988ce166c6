"""The turn runtime: an AutoGen `AgentRuntime` on which a group chat runs turn by turn.

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

Nested teams run on the same runtime object in lanes of their own; only the outermost team has turn boundaries.

AutoGen passes errors on as text: `run_stream` raises a `RuntimeError` of it. The lane keeps the exception itself, and
recognises the text when it comes back from an inner team (`_original`).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from autogen_agentchat.messages import StopMessage, ToolCallRequestEvent

# Private: the group chat protocol. tests/teams/test_upstream.py fails when it changes.
from autogen_agentchat.teams._group_chat._base_group_chat_manager import BaseGroupChatManager
from autogen_agentchat.teams._group_chat._events import (
    GroupChatError,
    GroupChatMessage,
    GroupChatRequestPublish,
    GroupChatStart,
    GroupChatTermination,
    SerializableException,
)
from autogen_core import (
    Agent,
    AgentId,
    AgentInstantiationContext,
    AgentMetadata,
    AgentRuntime,
    AgentType,
    CancellationToken,
    MessageContext,
    MessageSerializer,
    Subscription,
    TopicId,
    TypeSubscription,
)
from autogen_core._message_handler_context import MessageHandlerContext

from drsai_backend.errors import StateError
from drsai_backend.teams._orphans import tool_tasks, watch_tools
from drsai_backend.teams.suspension import InputRequired

logger = logging.getLogger("drsai.turns")
T = TypeVar("T", bound=Agent)
Delivery = tuple[Any, TopicId, AgentId | None, CancellationToken]
BoundaryCallback = Callable[[list[str]], Awaitable[None]]

# How long cancelled tasks may take to end before they are cancelled again, and how often that is done.
_PATIENCE = 1.0
_ATTEMPTS = 5


class Lane:
    """What is under way in one team: its queue, held requests, speakers, and the task that drives them."""

    __slots__ = (
        "deferred",
        "direct",
        "driver",
        "echo",
        "error",
        "held",
        "manager",
        "manager_id",
        "queue",
        "resume",
        "signalled",
        "speaking",
        "started",
        "stopping",
        "token",
        "wake",
    )

    def __init__(self) -> None:
        self.queue: deque[tuple[AgentId, Delivery]] = deque()
        self.held: list[Delivery] = []
        self.speaking: dict[AgentId, asyncio.Task[None] | None] = {}
        self.deferred: dict[AgentId, deque[Delivery]] = {}
        self.manager: BaseGroupChatManager | None = None
        self.manager_id: AgentId | None = None
        self.driver: asyncio.Task[None] | None = None
        self.started: asyncio.Future[Any] | None = None
        self.wake: asyncio.Future[None] | None = None
        self.resume: Sequence[str] | None = None
        self.token: CancellationToken | None = None
        self.error: BaseException | None = None
        self.echo: str | None = None
        """The text as which AutoGen passes `error` on."""
        self.direct = False
        """What participants show may go to the output queue without asking the manager."""
        self.signalled = False
        self.stopping = False

    def clear(self) -> None:
        self.queue.clear()
        self.held.clear()
        self.deferred.clear()

    def notify(self) -> None:
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)

    def cancel(self) -> None:
        """Cancel everything under way. Safe inside a cancellation token's callback: it calls no token method."""
        self.stopping = True
        self.clear()
        current = _current_task()
        for task in (self.driver, *self.speaking.values()):
            if task is not None and task is not current and not task.done():
                task.cancel()


class TurnRuntime(AgentRuntime):
    """An `AgentRuntime` for one team and the teams nested in it.

    Args:
        on_boundary: awaited at every turn boundary of the lane `outermost` with the names of the held speakers. Raising
            ends the run with that error.
    """

    def __init__(self, on_boundary: BoundaryCallback | None = None) -> None:
        self._on_boundary = on_boundary
        self._factories: dict[str, Callable[[], Any]] = {}
        self._agents: dict[AgentId, Agent] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._by_topic_type: dict[str, list[Subscription]] = {}
        self._recipients: dict[tuple[str, str], list[AgentId]] = {}
        self._lanes: dict[str, Lane] = {}
        self.mark = object()
        """What belongs to this runtime's run bears it."""
        self._echoes: dict[str, BaseException] = {}
        self.outermost: str | None = None
        self.asked: InputRequired | None = None
        """The question to a person that ended the current run."""

    def lane(self, key: str) -> Lane:
        """The lane of the team with that id."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane()
        return lane

    # --- registration -------------------------------------------------------------------------------------------

    async def register_factory(
        self,
        type: str | AgentType,
        agent_factory: Callable[[], T | Awaitable[T]],
        *,
        expected_class: type[T] | None = None,
    ) -> AgentType:
        agent_type = AgentType(type) if isinstance(type, str) else type
        if agent_type.type in self._factories:
            raise ValueError(f"Agent with type {agent_type.type} already exists.")
        self._factories[agent_type.type] = agent_factory
        return agent_type

    async def register_agent_instance(self, agent_instance: Agent, agent_id: AgentId) -> AgentId:
        await agent_instance.bind_id_and_runtime(id=agent_id, runtime=self)
        self.place(agent_id, agent_instance)
        return agent_id

    def place(self, agent_id: AgentId, agent: Agent) -> None:
        """Make a constructed agent reachable under `agent_id`."""
        self._agents[agent_id] = agent
        if isinstance(agent, BaseGroupChatManager):
            lane = self.lane(agent_id.key)
            lane.manager, lane.manager_id = agent, agent_id
            own = type(agent).handle_group_chat_message, type(agent).on_message_impl
            stock = BaseGroupChatManager.handle_group_chat_message, BaseGroupChatManager.on_message_impl
            lane.direct = own == stock

    def route(self, topic_id: TopicId, recipients: list[AgentId]) -> None:
        """Deliver what is published to `topic_id` to these agents, in order."""
        self._recipients[topic_id.type, topic_id.source] = recipients

    async def instance(self, agent_id: AgentId) -> Agent:
        """The agent of that id, made by its factory when it is first asked for."""
        agent = self._agents.get(agent_id)
        if agent is None:
            factory = self._factories.get(agent_id.type)
            if factory is None:
                raise LookupError(f"Agent with name {agent_id.type} not found.")
            with AgentInstantiationContext.populate_context((self, agent_id)):
                made = factory()
                agent = cast(Agent, await made if inspect.isawaitable(made) else made)
            self.place(agent_id, agent)
        return agent

    async def add_subscription(self, subscription: Subscription) -> None:
        if subscription.id in self._subscriptions:
            raise ValueError("Subscription already exists")
        self._subscriptions[subscription.id] = subscription
        if isinstance(subscription, TypeSubscription):
            self._by_topic_type.setdefault(subscription.topic_type, []).append(subscription)
            self._recipients.clear()

    async def remove_subscription(self, id: str) -> None:
        subscription = self._subscriptions.pop(id)
        if isinstance(subscription, TypeSubscription):
            self._by_topic_type[subscription.topic_type].remove(subscription)
            self._recipients.clear()

    def recipients(self, topic_id: TopicId) -> list[AgentId]:
        # Not by the TopicId itself: its subclass DefaultTopicId never equals it.
        key = (topic_id.type, topic_id.source)
        found = self._recipients.get(key)
        if found is None:
            subscriptions = self._by_topic_type.get(topic_id.type, ())
            found = self._recipients[key] = [s.map_to_agent(topic_id) for s in subscriptions]
        return found

    # --- sending ------------------------------------------------------------------------------------------------

    async def send_message(
        self,
        message: Any,
        recipient: AgentId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> Any:
        token = cancellation_token or CancellationToken()
        agent = self._agents.get(recipient) or await self.instance(recipient)
        context = MessageContext(
            sender=sender, topic_id=None, is_rpc=True, cancellation_token=token, message_id=message_id or ""
        )
        lane = self.lane(recipient.key)
        if isinstance(message, GroupChatStart) and agent is lane.manager:
            return await self._start(recipient.key, lane, message, context)
        if lane.queue and recipient not in lane.speaking:
            # What was published before is handled before.
            earlier = [delivery for agent_id, delivery in lane.queue if agent_id == recipient]
            lane.queue = deque(each for each in lane.queue if each[0] != recipient)
            for delivery in earlier:
                await self._deliver(lane, recipient, delivery)
        return await _handle(agent, message, context)

    async def publish_message(
        self,
        message: Any,
        topic_id: TopicId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> None:
        lane = self.lane(topic_id.source)
        if lane.stopping:
            return
        kind = message.__class__
        manager = lane.manager
        if manager is not None:
            if kind is GroupChatTermination:
                lane.signalled = True
                if message.error is not None and lane.echo is None:
                    lane.echo = str(message.error)
            if sender is not None and (sender is lane.manager_id or sender == lane.manager_id):
                if topic_id.type == manager._output_topic_type:
                    return  # A copy for the log: the manager has put it on the output queue itself.
            elif kind is GroupChatMessage:
                if type(message.message) is ToolCallRequestEvent and lane.token is not None:
                    asyncio.get_running_loop().call_soon(watch_tools, lane.token)
                if lane.direct:
                    manager._output_message_queue.put_nowait(message.message)
                    return
        delivery = (message, topic_id, sender, cancellation_token or CancellationToken())
        if kind is GroupChatRequestPublish:
            lane.held.append(delivery)
        else:
            for agent_id in self.recipients(topic_id):
                if agent_id is not sender and agent_id != sender:
                    lane.queue.append((agent_id, delivery))
        if lane.wake is not None:
            lane.notify()

    # --- one run of a lane --------------------------------------------------------------------------------------

    async def _start(self, key: str, lane: Lane, message: GroupChatStart, context: MessageContext) -> Any:
        await self.abort(key)
        manager = lane.manager
        assert manager is not None
        # Left over from a run that was cut: stale speakers would make the manager wait for them for ever.
        manager._active_speakers.clear()
        queue = manager._output_message_queue
        while not queue.empty():
            queue.get_nowait()
        lane.signalled = False
        lane.error = lane.echo = None
        lane.token = context.cancellation_token
        loop = asyncio.get_running_loop()
        lane.started = started = loop.create_future()
        lane.driver = driver = asyncio.create_task(self._drive(key, lane, message, context))
        # A task that is cancelled before its first step runs none of its code.
        driver.add_done_callback(lambda _: started.done() or started.cancel())
        context.cancellation_token.add_callback(lambda: _cancel_lane(lane, driver, loop))
        return await started

    async def _drive(self, key: str, lane: Lane, start: GroupChatStart, context: MessageContext) -> None:
        """The lane's driver task; see the module's docstring."""
        assert lane.manager is not None
        assert lane.started is not None
        try:
            result = None
            if lane.resume is not None and start.messages is None:
                self._hold_again(key, lane, context)
            else:
                result = await _handle(lane.manager, start, context)
            if not lane.started.done():
                lane.started.set_result(result)
            await self._turns(key, lane)
        except (KeyboardInterrupt, SystemExit):
            raise
        except asyncio.CancelledError as error:
            if _cancel_requested():
                raise
            self._fail(lane, _leaked(error))
        except BaseException as error:  # noqa: BLE001 - the boundary at which it becomes the lane's
            self._fail(lane, error)

    def _hold_again(self, key: str, lane: Lane, context: MessageContext) -> None:
        """Go on from a boundary: hold the requests that were held there instead of asking the manager again."""
        manager = lane.manager
        assert manager is not None
        assert lane.resume is not None
        for name in lane.resume:
            if name not in manager._participant_name_to_topic_type:
                raise StateError(f"the run was cut when {name!r} was to speak, who is not in the team any more")
            topic = TopicId(manager._participant_name_to_topic_type[name], key)
            lane.held.append((GroupChatRequestPublish(), topic, manager.id, context.cancellation_token))
            manager._active_speakers.append(name)
        lane.resume = None

    async def _turns(self, key: str, lane: Lane) -> None:
        while True:
            while lane.queue:
                await self._deliver(lane, *lane.queue.popleft())
            if lane.error is not None:
                raise lane.error
            if lane.speaking:
                lane.wake = asyncio.get_running_loop().create_future()
                await lane.wake
                lane.wake = None
            elif lane.held:
                await self._turn(key, lane)
            else:
                break
        if not lane.signalled:
            self._signal(lane, "The group chat is stopped.", None)

    async def _turn(self, key: str, lane: Lane) -> None:
        """One turn boundary, and the release of the speakers held there."""
        manager = lane.manager
        assert manager is not None
        speakers = [
            (agent_id, delivery)
            for delivery in lane.held
            for agent_id in self.recipients(delivery[1])
            if agent_id != delivery[2]
        ]
        if self._on_boundary is not None and key == self.outermost:
            names = {topic: name for name, topic in manager._participant_name_to_topic_type.items()}
            await self._on_boundary([names[agent_id.type] for agent_id, _ in speakers if agent_id.type in names])
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
        for agent_id, delivery in released:
            lane.speaking[agent_id] = asyncio.create_task(self._speak(lane, agent_id, delivery))

    async def _speak(self, lane: Lane, agent_id: AgentId, delivery: Delivery) -> None:
        """Let one participant speak, then give it what arrived meanwhile."""
        error: BaseException | None = None
        try:
            agent = self._agents.get(agent_id) or await self.instance(agent_id)
            current: Delivery | None = delivery
            while current is not None:
                message, topic_id, sender, token = current
                try:
                    await _handle(agent, message, _event_context(topic_id, sender, token))
                except Exception as raised:  # noqa: BLE001 - the boundary at which a speaker's error becomes the lane's
                    error = error or raised
                waiting = lane.deferred.get(agent_id) if lane.deferred else None
                current = waiting.popleft() if waiting else None
        except (KeyboardInterrupt, SystemExit):
            raise
        except asyncio.CancelledError as cancelled:
            if lane.stopping or delivery[3].is_cancelled() or _cancel_requested():
                raise
            error = _leaked(cancelled)
        except BaseException as raised:  # noqa: BLE001 - as above
            error = raised
        finally:
            lane.speaking.pop(agent_id, None)
            lane.deferred.pop(agent_id, None)
            if error is not None and lane.error is None:
                lane.error = error
            lane.notify()

    async def _deliver(self, lane: Lane, agent_id: AgentId, delivery: Delivery) -> None:
        message, topic_id, sender, token = delivery
        if lane.speaking and agent_id in lane.speaking:
            lane.deferred.setdefault(agent_id, deque()).append(delivery)
            return
        agent = self._agents.get(agent_id) or await self.instance(agent_id)
        if type(message) is GroupChatError and agent is not lane.manager:
            return  # Participants have no handler for it; on stock their complaint ends up in a log.
        try:
            await _handle(agent, message, _event_context(topic_id, sender, token))
        except Exception as raised:  # noqa: BLE001 - the boundary at which a handler's error becomes the lane's
            if lane.error is None:
                lane.error = raised

    def _fail(self, lane: Lane, error: BaseException) -> None:
        lane.error = error = self._original(error)
        lane.clear()
        lane.stopping = True
        for task in lane.speaking.values():
            if task is not None:
                task.cancel()
        if not lane.signalled:
            self._signal(lane, "An exception occurred in the runtime.", error)
        if lane.echo is not None:
            self._echoes[lane.echo] = error
        if lane.started is not None and not lane.started.done():
            if isinstance(error, Exception):
                lane.started.set_exception(error)
                lane.started.exception()  # Whoever waits may be cancelled before he sees it.
            else:
                lane.started.set_result(None)
        if isinstance(error, InputRequired):
            self.suspend(error)

    def _original(self, error: BaseException) -> BaseException:
        """What was raised in the first place, where AutoGen has put something else in its stead."""
        frame = error.__traceback__
        while frame is not None:
            # It makes text of every error, and fails at those whose text cannot be had or is not valid Unicode.
            if frame.tb_frame.f_code is _SERIALISING:
                error = frame.tb_frame.f_locals["exc"]
                break
            frame = frame.tb_next
        if type(error) is RuntimeError:
            return self._echoes.get(str(error), error)
        return error

    def suspend(self, question: InputRequired) -> None:
        """A person is asked somewhere inside: nothing of this turn can go on, in whatever team it happened."""
        if self.asked is not None:
            return
        self.asked = question
        for lane in self._lanes.values():
            if lane.driver is None or lane.driver.done():
                continue
            if not lane.signalled:
                self._signal(lane, "A person is asked.", question)
            lane.cancel()

    def _signal(self, lane: Lane, text: str, error: BaseException | None) -> None:
        lane.signalled = True
        manager = lane.manager
        assert manager is not None
        detail = None
        if error is not None:
            detail = _as_text(error)
            lane.echo = str(detail)
        manager._output_message_queue.put_nowait(
            GroupChatTermination(message=StopMessage(content=text, source=manager._name), error=detail)
        )

    # --- ends ---------------------------------------------------------------------------------------------------

    async def idle(self, key: str) -> None:
        """Wait until nothing of this team is in flight. Raises nothing of what its tasks raised."""
        lane = self.lane(key)
        while tasks := _live_tasks(lane):
            await asyncio.wait(tasks)

    async def abort(self, key: str) -> None:
        """Cancel everything of this team and wait until it is gone. The team is then fit for a new start only."""
        lane = self.lane(key)
        for _ in range(_ATTEMPTS):
            tasks = _live_tasks(lane)
            if not tasks:
                break
            tasks |= tool_tasks(lane.token)
            lane.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_PATIENCE)
        if _live_tasks(lane):
            logger.error("an agent of a cancelled run cannot be cancelled and was left behind")
        lane.clear()
        lane.speaking.clear()
        lane.stopping = False

    async def abort_all(self) -> None:
        """`abort` for every team of this runtime, the outermost first; tools left behind are cancelled too."""
        tokens = {id(lane.token): lane.token for lane in self._lanes.values()}
        for key in list(self._lanes):
            await self.abort(key)
        left: set[asyncio.Task[Any]] = set()
        for token in tokens.values():
            left |= tool_tasks(token)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_PATIENCE)

    async def settle(self) -> None:
        """Wait until the outermost team is idle, and cancel what an inner one has left running behind its back."""
        assert self.outermost is not None
        await self.idle(self.outermost)
        for key, lane in self._lanes.items():
            if key != self.outermost and lane.driver is not None and not lane.driver.done():
                await self.abort(key)

    # --- the rest of the protocol -------------------------------------------------------------------------------

    async def try_get_underlying_agent_instance(self, id: AgentId, type: type[T] = Agent) -> T:  # type: ignore[assignment]
        agent = await self.instance(id)
        if not isinstance(agent, type):
            raise TypeError(f"Agent with name {id.type} is not of type {type.__name__}.")
        return agent

    async def get(
        self, id_or_type: AgentId | AgentType | str, /, key: str = "default", *, lazy: bool = True
    ) -> AgentId:
        if isinstance(id_or_type, AgentId):
            agent_id = id_or_type
        else:
            agent_id = AgentId(id_or_type if isinstance(id_or_type, str) else id_or_type.type, key)
        if not lazy:
            await self.instance(agent_id)
        return agent_id

    async def agent_metadata(self, agent: AgentId) -> AgentMetadata:
        return (await self.instance(agent)).metadata

    async def agent_save_state(self, agent: AgentId) -> Mapping[str, Any]:
        return await (await self.instance(agent)).save_state()

    async def agent_load_state(self, agent: AgentId, state: Mapping[str, Any]) -> None:
        await (await self.instance(agent)).load_state(state)

    async def save_state(self) -> Mapping[str, Any]:
        return {str(agent_id): dict(await agent.save_state()) for agent_id, agent in self._agents.items()}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        for name, agent_state in state.items():
            await (await self.instance(AgentId.from_str(name))).load_state(agent_state)

    def add_message_serializer(self, serializer: MessageSerializer[Any] | Sequence[MessageSerializer[Any]]) -> None:
        """Nothing is serialised on the way: messages stay objects of this process."""


async def _handle(agent: Agent, message: Any, context: MessageContext) -> Any:
    with MessageHandlerContext.populate_context(agent.id):
        return await agent.on_message(message, context)


def _event_context(topic_id: TopicId, sender: AgentId | None, token: CancellationToken) -> MessageContext:
    return MessageContext(sender=sender, topic_id=topic_id, is_rpc=False, cancellation_token=token, message_id="")


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _live_tasks(lane: Lane) -> set[asyncio.Task[Any]]:
    """What is under way in a lane, but for the task that asks."""
    current = _current_task()
    return {t for t in (lane.driver, *lane.speaking.values()) if t is not None and t is not current and not t.done()}


def _cancel_lane(lane: Lane, driver: asyncio.Task[None], loop: asyncio.AbstractEventLoop) -> None:
    """What a cancelled token does to the lane that `driver` drove when it was linked."""
    if driver.done() or lane.driver is not driver:
        return
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        lane.cancel()
    else:
        loop.call_soon_threadsafe(lane.cancel)


def _cancel_requested() -> bool:
    """Whether the current task was really asked to cancel: only then may its CancelledError travel on."""
    task = _current_task()
    return task is not None and task.cancelling() > 0


def _leaked(cancelled: asyncio.CancelledError) -> RuntimeError:
    error = RuntimeError("CancelledError was raised although nothing had been cancelled")
    error.__cause__ = cancelled
    return error


_SERIALISING = SerializableException.from_exception.__func__.__code__  # type: ignore[attr-defined]


def _as_text(error: BaseException) -> SerializableException:
    try:
        return SerializableException.from_exception(cast(Exception, error))
    except Exception:  # noqa: BLE001 - an error whose text cannot be had
        return SerializableException(error_type=type(error).__name__, error_message=f"(no text, {id(error):x})")
