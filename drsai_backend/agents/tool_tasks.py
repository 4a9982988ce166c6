"""Tool tasks are those in which an `AssistantAgent` runs its tools, which it neither cancels nor guards.

The agent starts one task for all calls of a step and waits on a queue until that task puts `None` there. Two things
are missing, and this module adds them from outside:

- when a tool raises something that is no `Exception` (`InputRequired`, a stray `CancelledError`), the `None` never
  comes, and the agent waits for ever: `watch_tools` puts it there, and the agent finds what was raised;
- when the agent is cancelled, the task runs on: `tool_tasks` finds it.

Both look at all tasks of the process, which takes milliseconds beside a thousand runs. So a `DrSaiAgent` says when it
calls a tool (`calling`), and they look only where a call has raised something or is under way.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

from autogen_core import CancellationToken

# Private: where the agent does that. tests/teams/test_upstream_agents.py fails when it moves.
ALL_CALLS: Final = "AssistantAgent._process_model_result.<locals>._execute_tool_calls"
ONE_CALL: Final = "AssistantAgent._execute_tool_call"
OUR_CALL: Final = "DrSaiAgent._execute_tool_call"
# The task that `replay.tool_calls` makes of a call.
_MADE: Final = "make_call"


_calls: WeakKeyDictionary[CancellationToken, float] = WeakKeyDictionary()
"""How many calls are under way with a token."""


def calls_tools(token: CancellationToken) -> None:
    """Note that an agent which does not say when calls tools next, with this token."""
    _calls[token] = math.inf


@contextmanager
def calling(token: CancellationToken | None) -> Generator[None]:
    """Say that a tool is called with a token, and see to it that the agent learns of what that raises."""
    if token is None:
        yield
        return
    _calls[token] = _calls.get(token, 0) + 1
    try:
        yield
    except BaseException:
        watch_tools(token)
        raise
    finally:
        _calls[token] -= 1


def tool_tasks(token: CancellationToken | None) -> set[asyncio.Task[None]]:
    """Unfinished tasks of tool calls that were given `token`."""
    if token is None or not _calls.get(token):
        return set()
    where = ALL_CALLS, ONE_CALL, OUR_CALL, _MADE
    return {task for task in asyncio.all_tasks() if _local(task, "cancellation_token", *where) is token}


def call_siblings(task: asyncio.Task[None]) -> set[asyncio.Task[None]]:
    """The tasks in which an agent makes the calls of the same answer as in `task`, that one included."""
    where = ONE_CALL, OUR_CALL
    stream = _local(task, "stream", *where)
    return set() if stream is None else {t for t in asyncio.all_tasks() if _local(t, "stream", *where) is stream}


def watch_tools(token: CancellationToken) -> None:
    """Make sure that an agent which has started its tools learns of their end."""
    for task in asyncio.all_tasks():
        if _local(task, "cancellation_token", ALL_CALLS) is token:
            queue = _local(task, "stream_queue", ALL_CALLS)
            if queue is not None:
                task.add_done_callback(lambda done, queue=queue: _wake(done, queue))


def _wake(done: asyncio.Task[None], queue: asyncio.Queue[object]) -> None:
    if done.cancelled() or done.exception() is not None:
        queue.put_nowait(None)


def _local(task: asyncio.Task[None], name: str, *where: str) -> Any:
    """A local variable of a task's coroutine, if that is one of the functions `where`."""
    coroutine = task.get_coro()
    if getattr(coroutine, "__qualname__", None) not in where:
        return None
    frame = getattr(coroutine, "cr_frame", None)
    return None if frame is None else frame.f_locals.get(name)
