"""An agent's tool calls: recorded, replayed, approved by a person, and ended in good order when one of them asks.

`RecordedWorkbench` sees each `Call` as the agent makes it, and hands it to the agent's `ToolCalls`.
"""

from __future__ import annotations

# Private: how AutoGen's workbenches keep their tools, and make text of errors. tests/teams/test_upstream_agents.py.
# pyright: reportPrivateUsage=false
import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from autogen_core import CancellationToken
from autogen_core.tools import (
    StaticStreamWorkbench,
    StaticWorkbench,
    TextResultContent,
    ToolResult,
    ToolSchema,
    Workbench,
)

from drsai_backend.json_types import JsonObject
from drsai_backend.models.calls.requests import digest_of
from drsai_backend.teams.replay.steps import AgentSteps, CallName, Step, ToolFinished, ToolStarted
from drsai_backend.teams.runtime.tool_tasks import call_siblings, watch_tools
from drsai_backend.teams.suspension import Branch, InputBroker, InputRequired, StopRequested, current_branch
from drsai_backend.teams.team_tree import AnyTool, has_state, task_runner
from drsai_backend.tools import Approval, approval_of, is_idempotent

log = logging.getLogger("drsai.tools")

_END = object()
_current_call: ContextVar[Call | None] = ContextVar("current_call", default=None)


def _noting(format_errors: Callable[[Exception], str]) -> Callable[[Exception], str]:
    """AutoGen makes a text of what a tool raises; the exception itself is for the log."""

    def noting(error: Exception) -> str:
        call = _current_call.get()
        if call is not None:
            call.raised = call.raised or error
        return format_errors(error)

    return noting


class RecordedWorkbench:
    """Stands for a workbench in an agent's list. Calls go to `stream`; all else is the workbench's own, its class
    included: agents ask for it, and we look for tools in it."""

    def __init__(self, inner: Workbench, stream: Callable[[Call], AsyncGenerator[object, None]]) -> None:
        self.__inner = inner
        self.__stream = stream
        self.listed: Sequence[ToolSchema] = ()
        """The tools as they were listed last."""
        if isinstance(inner, StaticWorkbench) and "_format_errors" not in vars(inner):
            setattr(inner, "_format_errors", _noting(inner._format_errors))  # noqa: B010 - private: see test_upstream_agents

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        return type(self.__inner)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_RecordedWorkbench__"):  # Not there yet: somebody makes a copy.
            raise AttributeError(name)
        return getattr(self.__inner, name)

    async def list_tools(self) -> list[ToolSchema]:
        """See `autogen_core.tools.Workbench.list_tools`."""
        self.listed = tools = await self.__inner.list_tools()
        return tools

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """See `autogen_core.tools.Workbench.call_tool`, and `ToolCalls.stream` for what is raised."""
        call = Call(self.__inner, name, arguments or {}, cancellation_token, call_id, stream=False)
        result = [item async for item in self.__stream(call)][-1]
        assert isinstance(result, ToolResult)
        return result

    async def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[object, None]:
        """See `autogen_core.tools.StreamWorkbench.call_tool_stream`, and `ToolCalls.stream` for what is raised."""
        call = Call(self.__inner, name, arguments or {}, cancellation_token, call_id, stream=True)
        async for item in self.__stream(call):
            yield item


@dataclass
class Call:
    """One call, as the agent makes it."""

    workbench: Workbench
    name: str
    arguments: Mapping[str, object]
    token: CancellationToken | None
    id: str | None
    stream: bool
    raised: BaseException | None = None
    """What the tool raised, where its workbench has made a text of it."""

    @cached_property
    def tool(self) -> AnyTool | None:
        """The tool, where the workbench shows it."""
        workbench = self.workbench
        if not isinstance(workbench, StaticWorkbench):
            return None
        name = workbench._override_name_to_original.get(self.name, self.name)
        return next((tool for tool in workbench._tools if tool.name == name), None)

    @cached_property
    def marks(self) -> object:
        """What carries the marks that its workbench gives this tool, where it tells its tools apart (`marks_of`)."""
        marks_of: Callable[[str], object] | None = getattr(self.workbench, "marks_of", None)
        return None if marks_of is None else marks_of(self.name)

    @cached_property
    def approval(self) -> Approval | None:
        """By whom it is to be approved; None: it needs no approval."""
        return approval_of(self.tool, self.marks, self.workbench)

    @cached_property
    def repeatable(self) -> bool:
        """It may be made twice: it is said to be idempotent, or it runs agents whose own steps are recorded."""
        return self.runs_agents or is_idempotent(self.tool, self.marks, self.workbench)

    @property
    def runs_agents(self) -> bool:
        return task_runner(self.tool) is not None

    @property
    def written(self) -> str:
        """The arguments as JSON text."""
        return json.dumps(self.arguments, ensure_ascii=False, default=str)

    def digest(self) -> str:
        return digest_of([self.name, self.arguments])

    def said(self, text: str, *, is_error: bool = False) -> ToolResult:
        """A result that the tool did not give."""
        return ToolResult(name=self.name, result=[TextResultContent(content=text)], is_error=is_error)


class ToolCalls:
    """All tool calls of one agent."""

    def __init__(self, steps: AgentSteps, broker: InputBroker) -> None:
        self.steps = steps
        self._turn = steps.turn
        self.broker = broker
        self._busy: set[asyncio.Task[None]] = set()
        self._asking: list[asyncio.Task[None]] = []
        self._changed: asyncio.Future[None] | None = None
        self._states: dict[str, int] = {}

    async def stream(self, call: Call) -> AsyncGenerator[object, None]:
        """What the tool shows, then its `ToolResult`, which is recorded by then; or the recorded one alone.

        Raises:
            InputRequired: a person has to approve the call, or to say what becomes of one that may have been made
                before a crash, or is asked by the tool. The agent's other calls have come to their end.
            StopRequested: he wants the run to stop.
            ReplayMismatch: the recorded result is one of another call.
        """
        name = self.steps.name_call(call.id, call.name)
        if (recorded := await self._recorded(call, name)) is not None:
            yield recorded
            return
        with self.calling(call.token) as task:
            made, result = await self._decide(call, name, task)
            if result is None:
                start = await self._start(made, name)
                try:
                    async for item in self._run(made):
                        if isinstance(item, ToolResult):
                            result = item
                        else:
                            yield item
                except InputRequired as question:
                    question.caught = True
                    if start:
                        self._turn.keep(lambda: Step(self.steps.path, f"{name.step}?{start}", "", {}))
                    await self.wait_for_others(task)
                    raise self.broker.report(question) from None
                except Exception as error:
                    self._log_failure(made, error)
                    raise
                self._turn.check()
                assert result is not None, "a workbench ends with a result"
                if result.is_error:
                    self._log_failure(made, made.raised)
                self._show_end(call, result)
            await self._record(call, name, result)
            yield result

    @contextmanager
    def calling(self, token: CancellationToken | None) -> Generator[asyncio.Task[None]]:
        """One call of the agent, in the current task: its other calls that ask somebody wait for this one's end."""
        task: asyncio.Task[None] | None = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            yield task
        except BaseException:
            if token is not None:
                watch_tools(token)  # The agent expects a workbench to raise nothing, and would wait for ever.
            raise
        finally:
            self._busy.discard(task)
            if task in self._asking:
                self._asking.remove(task)
            self._wake()

    # --- the record ---------------------------------------------------------------------------------------------

    async def _recorded(self, call: Call, name: CallName) -> ToolResult | None:
        if name.step is None or not name.replayed:
            return None
        value = self._turn.replay(self.steps.path, name.step, call.digest)
        if value is None:
            return None
        if "state" in value and call.tool is not None and self._states.get(call.name, -1) < value["number"]:
            # The tool was not called in this process: bring it to where it was. The latest of several calls counts.
            self._states[call.name] = value["number"]
            await call.tool.load_state_json(value["state"])
        return ToolResult.model_validate(value["result"])

    async def _record(self, call: Call, name: CallName, result: ToolResult) -> None:
        if name.step is None:
            return
        if call.runs_agents:
            # Its agents must take part when the turn is repeated, for they have states. What they did is recorded.
            await self._turn.flush()
            return
        value: JsonObject = {"result": result.model_dump(mode="json")}
        if call.tool is not None and has_state(call.tool):
            self._turn.saved += 1
            value |= {"state": dict(await call.tool.save_state_json()), "number": self._turn.saved}
        await self._turn.save(Step(self.steps.path, name.step, call.digest(), value))

    def _starts(self, call: Call, name: CallName) -> int:
        """How often a call was started according to the record, the first time, which is not recorded, included."""
        starts = 1 if call.approval is None else 0
        while self._turn.replay(self.steps.path, f"{name.step}!{starts + 1}") is not None:
            starts += 1
        return starts

    async def _start(self, call: Call, name: CallName) -> int:
        """Record that a call starts, where that cannot be told from the model's answer alone. Returns which start of
        the call it is; 0 where nobody needs to know."""
        start = 0
        if name.step is not None and not call.repeatable:
            start = 1
            if name.replayed:
                start += self._starts(call, name)
                await self._turn.save(Step(self.steps.path, f"{name.step}!{start}", "", {}))
        if self._turn.on_tool is not None:
            self._turn.on_tool(ToolStarted(self.steps.source, call.id or "", call.name, call.written))
        return start

    def _log_failure(self, call: Call, error: BaseException | None) -> None:
        names = {"tool": call.name, "agent": self.steps.path, "call_id": call.id}
        log.warning("tool failed", extra=names, exc_info=error)

    def _show_end(self, call: Call, result: ToolResult) -> None:
        if self._turn.on_tool is not None:
            text = result.to_text(replace_image="[image]")
            self._turn.on_tool(ToolFinished(self.steps.source, call.id or "", call.name, text, result.is_error))

    # --- a person's part ----------------------------------------------------------------------------------------

    async def _decide(self, call: Call, name: CallName, task: asyncio.Task[None]) -> tuple[Call, ToolResult | None]:
        """The call that is to be made, or the result where none is."""
        made = call
        if (approval := call.approval) is not None:
            question = InputRequired(
                self.steps.source,
                f"{self.steps.source} wants to call {call.name} with {call.written}. Is that approved?",
                key=name.key,
                type="approval",
                kind="approval",
                choices=["approve", "deny", "edit"],
                deadline=approval.deadline,
                by=approval.by,
                not_by=approval.not_by,
                tool=self._shown(call),
            )
            answer = await self._answer(question, task)
            if answer["decision"] == "deny":
                reason = answer.get("reason") or "no reason was given"
                return call, call.said(f"The call was denied: {reason}", is_error=True)
            if answer["decision"] == "edit":
                made = replace(call, arguments=answer["arguments"])
        if name.replayed and name.step is not None and not call.repeatable:
            starts = self._starts(call, name)
            ended = self._turn.replay(self.steps.path, f"{name.step}?{starts}") is not None
            if starts and not ended:
                return made, await self._retry(made, name, starts, task)
        return made, None

    async def _retry(self, call: Call, name: CallName, starts: int, task: asyncio.Task[None]) -> ToolResult | None:
        """What a person gives as the result of a call that may have been made; None to make it once more."""
        question = InputRequired(
            self.steps.source,
            f"The run was interrupted when {self.steps.source} may have called {call.name} with {call.written}; the "
            "result is not known. Run the call again, give its result, or stop?",
            key=f"{name.key}!{starts}",
            type="approval",
            kind="tool_retry",
            choices=["run", "result", "stop"],
            tool=self._shown(call),
        )
        answer = await self._answer(question, task)
        if answer["decision"] == "stop":
            raise self.broker.end(StopRequested(f"Stopped, as the outcome of a call of {call.name} is not known."))
        return call.said(str(answer["content"])) if answer["decision"] == "result" else None

    async def _answer(self, question: InputRequired, task: asyncio.Task[None]) -> JsonObject:
        assert question.key is not None
        answer = self.broker.find(question.key)
        if answer is None:
            await self.wait_for_others(task)
            raise self.broker.report(question)
        return answer

    def _shown(self, call: Call) -> JsonObject:
        return {"name": call.name, "arguments": dict(call.arguments), "call_id": call.id}

    # --- beside others ------------------------------------------------------------------------------------------

    async def _run(self, call: Call) -> AsyncGenerator[object, None]:
        """Make the call, in a task of its own, so that a question in it ends nothing else."""
        branch = Branch(current_branch.get())
        items: asyncio.Queue[object] = asyncio.Queue()
        branch.task = task = asyncio.create_task(make_call(call, call.token, items, branch))
        task.add_done_callback(lambda done: _ended(done, items))
        try:
            while (item := await items.get()) is not _END:
                if branch.question is None:
                    yield item
        finally:
            if not task.done():
                task.cancel()
        if branch.question is not None:
            raise branch.question
        task.result()

    async def wait_for_others(self, task: asyncio.Task[None]) -> None:
        """Wait until the agent's other calls have ended, but for those that wait for a person too: the first of these
        goes first."""
        self._asking.append(task)
        self._wake()
        while True:
            others = {each for each in self._busy | call_siblings(task) if not each.done()}.difference(self._asking)
            if not others and self._asking[0] is task:
                return
            if self._changed is None:
                self._changed = asyncio.get_running_loop().create_future()
            await asyncio.wait({*others, self._changed}, return_when=asyncio.FIRST_COMPLETED)

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None


def _ended(task: asyncio.Task[None], items: asyncio.Queue[object]) -> None:
    if not task.cancelled():
        task.exception()  # Whoever waits may be cancelled before he sees it.
    items.put_nowait(_END)


async def make_call(
    call: Call, cancellation_token: CancellationToken | None, items: asyncio.Queue[object], branch: Branch
) -> None:
    """The task of one call; `tool_tasks` finds it by its name and its token."""
    current_branch.set(branch)
    _current_call.set(call)
    inner = call.workbench
    if call.stream:
        stream = cast(StaticStreamWorkbench, inner).call_tool_stream(
            call.name, call.arguments, cancellation_token, call.id
        )
        async for item in stream:
            items.put_nowait(item)
    else:
        items.put_nowait(await inner.call_tool(call.name, call.arguments, cancellation_token, call.id))
