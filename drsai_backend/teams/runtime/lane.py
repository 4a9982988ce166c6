"""A lane of the turn runtime: what is under way in one team."""

from __future__ import annotations

import asyncio
import logging
import types
from collections import deque
from collections.abc import Coroutine, Generator, Sequence
from contextvars import Context
from typing import Any, TypeVar

# Private: the group chat protocol. tests/teams/test_upstream.py fails when it changes.
from autogen_agentchat.teams._group_chat._base_group_chat_manager import BaseGroupChatManager
from autogen_core import AgentId, CancellationToken, TopicId

from drsai_backend.teams.runtime.tool_tasks import tool_tasks
from drsai_backend.teams.suspension import Branch

T = TypeVar("T")

logger = logging.getLogger("drsai.turns")
Delivery = tuple[Any, TopicId, AgentId | None, CancellationToken]
Publication = tuple[Any, TopicId, AgentId | None, CancellationToken | None]

PATIENCE = 1.0
"""How long cancelled tasks may take to end before they are cancelled again."""
_ATTEMPTS = 5


class Lane:
    """What is under way in one team: its queue, held requests, speakers, and the task that drives them."""

    __slots__ = (
        "branch",
        "deferred",
        "direct",
        "driver",
        "echo",
        "error",
        "held",
        "manager",
        "manager_id",
        "order",
        "outbox",
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
        self.branch: Branch | None = None
        """The part of a turn that this lane's run belongs to."""
        self.order: deque[AgentId] = deque()
        """Concurrent speakers whose words are to be heard in the order in which they were released."""
        self.outbox: dict[AgentId, list[Publication]] = {}
        """What these have published, but for the first of them, who is heard at once and is not in here."""
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
        self.order.clear()
        self.outbox.clear()

    def notify(self) -> None:
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)

    def cancel(self) -> None:
        """Cancel everything under way. Safe inside a cancellation token's callback: it calls no token method."""
        self.stopping = True
        self.clear()
        for task in self.live_tasks():
            task.cancel()

    def live_tasks(self) -> set[asyncio.Task[None]]:
        """What is under way, but for the task that asks."""
        current = current_task()
        tasks = (self.driver, *self.speaking.values())
        return {task for task in tasks if task is not None and task is not current and not task.done()}

    async def abort(self) -> None:
        """Cancel everything under way and wait until it is gone. The team is then fit for a new start only."""
        for _ in range(_ATTEMPTS):
            tasks: set[asyncio.Task[Any]] = {*self.live_tasks()}
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


@types.coroutine
def in_context(context: Context, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
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


def current_task() -> asyncio.Task[Any] | None:
    """The task that runs; None outside any."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def cancel_requested() -> bool:
    """Whether the current task was really asked to cancel: only then may its CancelledError travel on."""
    task = current_task()
    return task is not None and task.cancelling() > 0


def cancel_lane(lane: Lane, driver: asyncio.Task[None], loop: asyncio.AbstractEventLoop) -> None:
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
