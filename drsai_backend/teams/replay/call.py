"""A call is one call of an agent's tool: what is known of it, and how it is made, whoever made the tool.

A tool of this package is called as it is. Any other, one of AutoGen's or of a foreign workbench, is adapted to be one
(`ForeignTool`), so that nothing else asks whose it is.
"""

from __future__ import annotations

# Private: how AutoGen's workbenches keep their tools, and make text of errors. tests/teams/test_upstream_agents.py.
# pyright: reportPrivateUsage=false
import asyncio
import base64
import json
import sys
import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Final, cast

from autogen_core import CancellationToken, Image
from autogen_core.tools import (
    ImageResultContent,
    StaticStreamWorkbench,
    StaticWorkbench,
    TextResultContent,
    ToolResult,
    Workbench,
)
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from drsai_backend.errors import DrSaiError
from drsai_backend.json_types import JsonObject
from drsai_backend.models.calls.requests import digest_of
from drsai_backend.models.calls.seen_images import reference
from drsai_backend.teams.messages import put_aside
from drsai_backend.teams.suspension import Branch, current_branch
from drsai_backend.teams.team_tree import (
    SHARED,
    AnyTool,
    ToolState,
    WorkbenchState,
    has_state,
    keeps_state,
    task_runner,
)
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
from drsai_backend.tools.results import TaskComplete, ToolOutput, text_result, to_result
from drsai_backend.tools.running import FileSaver

END: Final = object()


@dataclass
class Call:
    """One call, as the agent makes it. `stream`: it asks for partial results, too."""

    workbench: Workbench
    name: str
    arguments: Mapping[str, object]
    token: CancellationToken | None
    id: str | None
    stream: bool
    items: asyncio.Queue[object] = field(default_factory=asyncio.Queue[object])
    """What the tool shows, and in the end its result."""

    @cached_property
    def origin(self) -> AnyTool | None:
        """The tool as its workbench has it, with its marks and its state; None: the workbench does not show it."""
        workbench = self.workbench
        if isinstance(workbench, StaticWorkbench):
            name = workbench._override_name_to_original.get(self.name, self.name)
            return next((tool for tool in workbench._tools if tool.name == name), None)
        find: Callable[[str], AnyTool | None] | None = getattr(workbench, "find_tool", None)
        return None if find is None else find(self.name)

    @cached_property
    def keeper(self) -> ToolState | WorkbenchState | None:
        """What has a state that the call may change, and this run alone; None: nothing has."""
        if self.origin is not None and has_state(self.origin):
            return ToolState(self.origin)
        kept = keeps_state(type(self.workbench)) and not hasattr(self.workbench, SHARED)
        return WorkbenchState(self.workbench) if kept else None

    @cached_property
    def tool(self) -> ToolBase:
        """The tool that is called."""
        return self.origin if isinstance(self.origin, ToolBase) else ForeignTool(self)

    @cached_property
    def approval(self) -> Approval | None:
        """By whom it is to be approved; None: it needs no approval."""
        options = self.tool.options
        seen = self._checked() if callable(options.requires_approval) else {}
        by_rule = options.requires_approval and options.approval(seen)
        return approval_of(self.origin, self.workbench) or by_rule or None

    def _checked(self) -> JsonObject:
        """The arguments that the tool gets, as JSON, for a rule to look at: a tool takes "true" for true, and has
        defaults. Those that it refuses are as the model gave them."""
        parts = cast("Mapping[str, JsonObject | bool]", self.tool.parameters.get("properties", {}))
        said = {key: part.get("default") for key, part in parts.items() if isinstance(part, dict)}
        defaults = {key: default for key, default in said.items() if default is not None}
        try:
            return defaults | _plain(self.tool.check(self.arguments))
        except Exception:  # noqa: BLE001 - a type's own check may raise anything; the call tells the model
            return self.shown

    @cached_property
    def idempotent(self) -> bool:
        return is_idempotent(self.origin, self.workbench)

    @property
    def repeatable(self) -> bool:
        """It may be made twice: it is said to be idempotent, or it runs agents whose own steps are recorded."""
        return self.runs_agents or self.idempotent

    @cached_property
    def runs_agents(self) -> bool:
        return task_runner(self.origin) is not None

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
        return text_result(self.name, text, is_error=is_error)

    def ended(self, task: asyncio.Task[None]) -> None:
        """Take note of the end of `make_call`'s task."""
        if not task.cancelled():
            task.exception()  # Whoever waits may be cancelled before he sees it.
        self.items.put_nowait(END)


def _plain(value: Any) -> Any:
    """A value that was checked, as JSON has it; decimal numbers stay numbers."""
    if isinstance(value, BaseModel):
        value = value.model_dump(by_alias=True)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in cast("list[object]", value)]
    return value if isinstance(value, Decimal) else to_jsonable_python(value, serialize_unknown=True)


calling_tool: Final[ContextVar[str | None]] = ContextVar("calling_tool", default=None)
"""The name of the tool that the running code is a call of."""


async def make_call(call: Call, run: ToolRun, cancellation_token: CancellationToken | None, branch: Branch) -> None:
    """The task of one call; `tool_tasks` finds it by its name and its token."""
    current_branch.set(branch)
    calling_tool.set(call.name)
    task = asyncio.current_task()
    if cancellation_token is not None and task is not None:
        cancellation_token.link_future(task)
    result = await call_tool(call.tool, call.arguments, run)
    call.items.put_nowait(await _keep_images(await to_result(call.name, result, run, run.max_output), run.files))


# --- tools of others -------------------------------------------------------------------------------------------------

_calling: ContextVar[ForeignTool | None] = ContextVar("foreign_tool", default=None)
_ONCE: Final = ToolOptions(timeout=None, max_output=sys.maxsize)
_AGAIN: Final = replace(_ONCE, idempotent=True)


class ForeignTool(ToolBase):
    """A tool that is none of this package's, for one call: its workbench makes it."""

    def __init__(self, call: Call) -> None:
        identity, description = ToolIdentity(call.name), getattr(call.origin, "description", "")
        super().__init__(identity, description, {}, _AGAIN if call.idempotent else _ONCE)
        # Not the call, which knows its tool.
        self._workbench, self._token, self._id = call.workbench, call.token, call.id
        self._stream, self._items = call.stream, call.items
        self._says_no_time = call.origin is not None and not call.runs_agents

    @property
    def says_no_time(self) -> bool:
        """AutoGen's own tools say none. Those of other workbenches do there, and agents have the bounds of the run."""
        return self._says_no_time

    def check(self, arguments: Mapping[str, object]) -> JsonObject:
        """The arguments as the model gave them: the workbench looks at them."""
        return cast("JsonObject", arguments)

    async def invoke(self, arguments: JsonObject, run: ToolRun) -> ToolOutput:
        """See `ToolBase.invoke`; a workbench that raises is the agent's to deal with (`raised`)."""
        _calling.set(self)
        _note_errors(self._workbench)
        try:
            result: ToolResult | None = None
            if self._stream:
                workbench = cast("StaticStreamWorkbench", self._workbench)
                async for item in workbench.call_tool_stream(self.name, arguments, self._token, self._id):
                    if isinstance(item, ToolResult):
                        result = item
                    else:
                        put_aside(item, "tool")
                        self._items.put_nowait(item)
            else:
                result = await self._workbench.call_tool(self.name, arguments, self._token, self._id)
            if isinstance(self.raised, TaskComplete):
                raise self.raised
            assert result is not None, "a workbench ends with a result"
            return result
        except Exception as error:
            self.raised = error
            raise


def _note_errors(workbench: Workbench) -> None:
    """AutoGen makes a text of what a tool raises; the exception itself is for the log."""
    if not isinstance(workbench, StaticWorkbench) or "_format_errors" in vars(workbench):
        return
    format_errors, itself = type(workbench)._format_errors, weakref.proxy(workbench)  # which keeps what is returned

    def noting(error: Exception) -> str:
        tool = _calling.get()
        if tool is not None:
            tool.raised = tool.raised or error
        return format_errors(itself, error)

    setattr(workbench, "_format_errors", noting)  # noqa: B010 - private: see test_upstream_agents


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
