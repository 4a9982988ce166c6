"""What stands for an agent's workbenches: each call that the agent makes, and how it is made in the end."""

from __future__ import annotations

# Private: how AutoGen's workbenches keep their tools, and make text of errors. tests/teams/test_upstream_agents.py.
# pyright: reportPrivateUsage=false
import asyncio
import base64
import json
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol, cast

from autogen_core import CancellationToken, Image
from autogen_core.tools import (
    ImageResultContent,
    StaticStreamWorkbench,
    StaticWorkbench,
    TextResultContent,
    ToolResult,
    ToolSchema,
    Workbench,
)

from drsai_backend.errors import DrSaiError
from drsai_backend.json_types import JsonObject
from drsai_backend.models.calls.requests import digest_of
from drsai_backend.models.calls.seen_images import reference
from drsai_backend.teams.messages import put_aside
from drsai_backend.teams.suspension import Branch, current_branch
from drsai_backend.teams.team_tree import AnyTool, task_runner
from drsai_backend.tools import (
    Approval,
    ToolBase,
    ToolIdentity,
    ToolOptions,
    ToolRun,
    approval_of,
    call_tool,
    is_idempotent,
)
from drsai_backend.tools.calling import failure
from drsai_backend.tools.middleware import ToolCall, chain
from drsai_backend.tools.results import ToolOutput, to_result
from drsai_backend.tools.running import FileSaver, tool_run

END: Final = object()
_current_call: ContextVar[Call | None] = ContextVar("current_call", default=None)


def _note_errors(workbench: Workbench) -> None:
    """AutoGen makes a text of what a tool raises; the exception itself is for the log."""
    if not isinstance(workbench, StaticWorkbench) or "_format_errors" in vars(workbench):
        return
    format_errors, itself = type(workbench)._format_errors, weakref.proxy(workbench)  # which keeps what is returned

    def noting(error: Exception) -> str:
        call = _current_call.get()
        if call is not None:
            call.raised = call.raised or error
        return format_errors(itself, error)

    setattr(workbench, "_format_errors", noting)  # noqa: B010 - private: see test_upstream_agents


class Calls(Protocol):
    """Makes the calls of an agent; see `ToolCalls`."""

    def stream(self, call: Call) -> AsyncGenerator[object, None]: ...
    async def listed(self, place: int, workbench: Workbench) -> list[ToolSchema]: ...


class RecordedWorkbench:
    """Stands for the workbench at `place` in an agent's list. `calls` makes its calls, and says what tools there are;
    all else is the workbench's own, its class included: agents ask for it, and we look for tools in it."""

    def __init__(self, inner: Workbench, calls: Calls, place: int) -> None:
        self.__inner = inner
        self.__calls = calls
        self.__place = place
        self.listed: Sequence[ToolSchema] = ()
        """The tools as they were listed last."""

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        return type(self.__inner)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_RecordedWorkbench__"):  # Not there yet: somebody makes a copy.
            raise AttributeError(name)
        return getattr(self.__inner, name)

    async def list_tools(self) -> list[ToolSchema]:
        """See `autogen_core.tools.Workbench.list_tools`."""
        self.listed = tools = await self.__calls.listed(self.__place, self.__inner)
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
        result = [item async for item in self.__calls.stream(call)][-1]
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
        async for item in self.__calls.stream(call):
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
    run: ToolRun | None = None
    """What a tool of this package knows of its run, and where images of any tool are kept."""
    raised: BaseException | None = None
    """What the tool raised, where its workbench has made a text of it."""

    @cached_property
    def tool(self) -> AnyTool | None:
        """The tool, where the workbench shows it."""
        workbench = self.workbench
        if not isinstance(workbench, StaticWorkbench):
            find: Callable[[str], AnyTool | None] | None = getattr(workbench, "find_tool", None)
            return None if find is None else find(self.name)
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
        if (mark := approval_of(self.tool, self.marks, self.workbench)) is not None:
            return mark
        tool = self.tool
        if not isinstance(tool, ToolBase):
            return None
        return tool.options.approval(self.shown)

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

    @property
    def shown(self) -> JsonObject:
        """The arguments as an object, also where the model gave none."""
        given = cast("object", self.arguments)
        return dict(cast("JsonObject", given)) if isinstance(given, Mapping) else {}

    def digest(self) -> str:
        return digest_of([self.name, self.arguments])

    def said(self, text: str, *, is_error: bool = False) -> ToolResult:
        """A result that the tool did not give."""
        return ToolResult(name=self.name, result=[TextResultContent(content=text)], is_error=is_error)


def call_ended(task: asyncio.Task[None], items: asyncio.Queue[object]) -> None:
    if not task.cancelled():
        task.exception()  # Whoever waits may be cancelled before he sees it.
    items.put_nowait(END)


async def make_call(
    call: Call, cancellation_token: CancellationToken | None, items: asyncio.Queue[object], branch: Branch
) -> None:
    """The task of one call; `tool_tasks` finds it by its name and its token."""
    current_branch.set(branch)
    _current_call.set(call)
    tool = call.tool
    if isinstance(tool, ToolBase):  # Past the workbench, which would make a task and a text of what it returns.
        task = asyncio.current_task()
        if cancellation_token is not None and task is not None:
            cancellation_token.link_future(task)
        result = await call_tool(tool, call.arguments, call.run)
    else:
        result = await _foreign(call, cancellation_token, items)
    run = call.run or ToolRun()
    items.put_nowait(await _keep_images(await to_result(call.name, result, run, run.max_output), run.files))


class _Foreign(ToolBase):
    """Stands for a tool that is none of this package's where middleware looks at it."""

    def __init__(self, call: Call) -> None:
        options = ToolOptions(timeout=None, idempotent=is_idempotent(call.tool, call.marks, call.workbench))
        super().__init__(ToolIdentity(call.name), getattr(call.tool, "description", ""), {}, options)

    async def invoke(self, arguments: JsonObject, run: ToolRun) -> ToolOutput:
        """Never called: its workbench makes its calls."""
        raise NotImplementedError


async def _foreign(call: Call, token: CancellationToken | None, items: asyncio.Queue[object]) -> ToolResult:
    """The result of a call that its workbench makes, with the agent's middleware around it."""
    run = call.run or ToolRun()
    raised = list[Exception]()  # by the workbench

    _note_errors(call.workbench)

    async def made(arguments: Mapping[str, object]) -> ToolResult:
        if not call.stream:
            return await call.workbench.call_tool(call.name, arguments, token, call.id)
        result: ToolResult | None = None
        stream = cast(StaticStreamWorkbench, call.workbench).call_tool_stream(call.name, arguments, token, call.id)
        async for item in stream:
            if isinstance(item, ToolResult):
                result = item
            else:
                put_aside(item, "tool")
                items.put_nowait(item)
        assert result is not None, "a workbench ends with a result"
        return result

    async def proceed(given: ToolCall) -> ToolResult:
        try:
            return await made(given.arguments)
        except Exception as error:
            raised.append(error)
            raise

    with tool_run(run):
        if not run.middleware:
            return await made(call.arguments)
        try:
            return await chain(run.middleware, proceed)(ToolCall(_Foreign(call), call.shown, run))
        except Exception as error:
            if error in raised:  # A workbench that raises is the agent's to deal with, as without middleware.
                raise
            return failure(call.name, error, run)


# --- images in results -----------------------------------------------------------------------------------------------
# AutoGen gives a model the text of a result, which of an image is its bytes in base64. What is stored, and recorded, is
# small instead: a line of text that refers to a file; `models.calls.seen_images` shows the image to models that see.

_NOT_SHOWN: Final = "[an image, which is not shown here]"
_TYPES: Final = {"/": "jpeg", "i": "png", "R": "gif", "U": "webp"}
"""By the first character of the base64 of a file, the format of an image."""


async def _keep_images(result: ToolResult, files: FileSaver | None) -> ToolResult:
    """The result with its images kept in `files`; with None, or where that fails, a text says that they are not."""
    if not any(isinstance(part, ImageResultContent) for part in result.result):
        return result
    content: list[TextResultContent] = []
    for number, part in enumerate(result.result, 1):
        if isinstance(part, TextResultContent):
            content.append(part)
        else:
            content.append(TextResultContent(content=await _kept(part.content, number, files)))
    return result.model_copy(update={"result": content})


async def _kept(image: Image, number: int, files: FileSaver | None) -> str:
    if files is None:
        return _NOT_SHOWN
    text = await asyncio.to_thread(image.to_base64)  # AutoGen's own encode their pixels.
    kind = _TYPES.get(text[:1], "png")
    try:
        kept = await files.save(f"image-{number}.{kind}", base64.b64decode(text), f"image/{kind}")
    except DrSaiError as error:
        return f"[an image, which could not be kept: {error.message}]"
    return reference(kept.name, kept.media_type, kept.bytes, kept.id)
