"""A lane of the turn runtime holds what is under way in one team."""

from __future__ import annotations

import asyncio
import logging
import types
from collections import deque
from collections.abc import Coroutine, Generator, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

# Private: the group chat protocol. tests/teams/test_upstream.py fails when it changes.
# pyright: reportPrivateUsage=false
from autogen_agentchat.messages import StopMessage
from autogen_agentchat.teams._group_chat._base_group_chat_manager import BaseGroupChatManager
from autogen_agentchat.teams._group_chat._events import GroupChatTermination
from autogen_core import Agent, AgentId, CancellationToken, MessageContext, TopicId
from autogen_core._message_handler_context import MessageHandlerContext

from drsai_backend.agents.tool_tasks import tool_tasks
from drsai_backend.teams.runtime.error_texts import TeamErrors, as_text
from drsai_backend.teams.suspension import Branch, InputRequired, current_branch, runs_here

T = TypeVar("T")

logger = logging.getLogger("drsai.turns")
Delivery: TypeAlias = tuple[object, TopicId, AgentId | None, CancellationToken]
Publication: TypeAlias = tuple[object, TopicId, AgentId | None, CancellationToken | None]

PATIENCE = 1.0
"""How long cancelled tasks may take to end before they are cancelled again."""
_ATTEMPTS = 5


@dataclass(slots=True, eq=False)
class Lane:
    """What is under way in the team of that id: its queue, held requests, speakers, and the task that drives them."""

    key: str
    errors: TeamErrors
    queue: deque[tuple[AgentId, Delivery]] = field(default_factory=deque)
    held: list[Delivery] = field(default_factory=list)
    speaking: dict[AgentId, asyncio.Task[None] | None] = field(default_factory=dict)
    deferred: dict[AgentId, deque[Delivery]] = field(default_factory=dict)
    branch: Branch | None = None
    """The part of a turn that this lane's run belongs to."""
    order: deque[AgentId] = field(default_factory=deque)
    """Concurrent speakers whose words are to be heard in the order in which they were released."""
    outbox: dict[AgentId, list[Publication]] = field(default_factory=dict)
    """What these have published, but for the first of them, who is heard at once and is not in here."""
    manager: BaseGroupChatManager | None = None
    manager_id: AgentId | None = None
    driver: asyncio.Task[None] | None = None
    started: asyncio.Future[object] | None = None
    wake: asyncio.Future[None] | None = None
    resume: Sequence[str] | None = None
    token: CancellationToken | None = None
    error: BaseException | None = None
    echo: str | None = None
    """The text as which AutoGen passes `error` on."""
    direct: bool = False
    """What participants show may go to the output queue without asking the manager."""
    signalled: bool = False
    stopping: bool = False

    def begin(self, token: CancellationToken, loop: asyncio.AbstractEventLoop) -> asyncio.Future[object]:
        """A run of the team begins, in the branch that the caller belongs to. Returns what says that it has begun."""
        self.signalled = False
        self.error = self.echo = None
        self.branch = current_branch.get()
        self.token = token
        self.started = started = loop.create_future()
        return started

    def has_started(self, result: object) -> None:
        if self.started is not None and not self.started.done():
            self.started.set_result(result)

    def clear(self) -> None:
        self.queue.clear()
        self.held.clear()
        self.deferred.clear()
        self.order.clear()
        self.outbox.clear()

    def notify(self) -> None:
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)

    def note(self, error: BaseException, agent: object) -> None:
        """A speaker has ended with `error`. The first one counts, but a question to a person gives way to any other."""
        error = self.errors.original(error)
        self.errors.blame(agent, error)
        if isinstance(error, InputRequired):
            error.caught = True
        if self.error is None or (isinstance(self.error, InputRequired) and not isinstance(error, InputRequired)):
            self.error = error

    def fail(self, error: BaseException) -> None:
        """End the run with `error`."""
        self.error = error
        self.clear()
        self.stopping = True
        for task in self.speaking.values():
            if task is not None:
                task.cancel()
        if not self.signalled:
            self.signal("An exception occurred in the runtime.", error)
        if self.echo is not None:
            self.errors.by_text[self.echo] = error
        if self.started is not None and not self.started.done() and isinstance(error, Exception):
            self.started.set_exception(error)
            self.started.exception()  # Whoever waits may be cancelled before he sees it.
        self.has_started(None)

    def signal(self, text: str, error: BaseException | None) -> None:
        """Tell `run_stream` that the run is over."""
        self.signalled = True
        manager = self.manager
        assert manager is not None
        detail = None if error is None else as_text(error)
        if error is not None:
            self.echo = str(detail)
            self.errors.by_text[self.echo] = error
        manager._output_message_queue.put_nowait(
            GroupChatTermination(message=StopMessage(content=text, source=manager._name), error=detail)
        )

    def cancel(self) -> None:
        """Cancel everything under way. Safe inside a cancellation token's callback: it calls no token method."""
        self.stopping = True
        self.clear()
        for task in self.live_tasks():
            task.cancel()

    def live_tasks(self) -> set[asyncio.Task[None]]:
        """Return what is under way, but for the task that asks."""
        current = asyncio.current_task()
        tasks = (self.driver, *self.speaking.values())
        return {task for task in tasks if task is not None and task is not current and not task.done()}

    async def abort(self) -> None:
        """Cancel everything under way and wait until it is gone. The team is then fit for a new start only."""
        for _ in range(_ATTEMPTS):
            tasks = self.live_tasks()
            if not tasks:
                break
            tasks |= tool_tasks(self.token)
            self.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=PATIENCE)
        if self.live_tasks():
            logger.error("an agent of a cancelled run cannot be cancelled and was left behind")
        self.clear()
        self.speaking.clear()
        self.stopping = False


async def handle(agent: Agent, message: object, context: MessageContext) -> object:
    """Give an agent a message."""
    # As on stock, where each delivery is a task: what an agent sets in a context variable nobody else sees.
    return await in_context(copy_context(), _handle_here(agent, message, context))


async def _handle_here(agent: Agent, message: object, context: MessageContext) -> object:
    with MessageHandlerContext.populate_context(agent.id):
        return await agent.on_message(message, context)


@types.coroutine
def in_context(context: Context, work: Coroutine[object, Any, T]) -> Generator[object, Any, T]:
    """Await `work` in this task, but with the context variables of `context`: what a task of its own would do, at a
    fifth of its price (4 µs a turn of a round robin, where a task costs 20)."""
    step, value = work.send, None
    while True:
        try:
            awaited = context.run(step, value)
        except StopIteration as stop:
            return stop.value
        try:
            step, value = work.send, (yield awaited)
        except GeneratorExit:
            context.run(work.close)
            raise
        except BaseException as error:  # noqa: BLE001 - handed on to `work`
            step, value = work.throw, error
        awaited = None  # A task that failed keeps its error, and the error this frame: a cycle.


def cancel_requested() -> bool:
    """Whether the current task was really asked to cancel: only then may its CancelledError travel on."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def cancel_lane(lane: Lane, driver: asyncio.Task[None], loop: asyncio.AbstractEventLoop) -> None:
    """Do what a cancelled token does to the lane that `driver` drove when it was linked."""
    if driver.done() or lane.driver is not driver:
        return
    if runs_here(loop):
        lane.cancel()
    else:
        loop.call_soon_threadsafe(lane.cancel)
