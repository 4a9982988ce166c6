"""Results are what a tool may return, and become what the model gets."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, is_dataclass
from typing import Literal, TypeAlias, cast

import pydantic_core
from autogen_core import Image
from autogen_core.tools import ImageResultContent, TextResultContent, ToolResult

from drsai_backend.errors import DrSaiError
from drsai_backend.tools.running import ToolRun

MAX_FILE_NAME = 200
ResultContent: TypeAlias = TextResultContent | ImageResultContent


@dataclass(frozen=True, slots=True)
class FileOutput:
    """A file as a result: it is kept, and the model gets its name and id.

    Attributes:
        name: its file name.
        data: its content.
        media_type: None: the name says it.
    """

    name: str
    data: bytes
    media_type: str | None = None


class TaskComplete(Exception):
    """Raised by a tool: the task is done, and `result` is the answer; a `ToolOutput`, mostly a text."""

    def __init__(self, result: ToolOutput) -> None:
        self.result = result


class FinalResult(ToolResult):
    """The result of a call that has raised `TaskComplete`."""

    completes: Literal[True] = True


ToolOutput: TypeAlias = object
"""str, dict or list, a pydantic model, a dataclass, None, `autogen_core.Image`, `FileOutput`, a `ToolResult`, a number,
or a list of parts of which some are images or files."""


async def to_result(name: str, output: ToolOutput, run: ToolRun, max_output: int) -> ToolResult:
    """The result of a call of the tool `name`: texts, cut where they are longer than `max_output` characters together,
    images and references to files."""
    if isinstance(output, str) and len(output) <= max_output:
        return text_result(name, output)
    if isinstance(output, ToolResult):
        content, is_error = list(output.result), output.is_error
    else:
        parts = cast("Sequence[object]", output) if _is_parts(output) else [output]
        content, is_error = [await _part(part, run) for part in parts], False
    total = sum(len(each.content) for each in content if isinstance(each, TextResultContent))
    if total > max_output:
        content = await _cut(name, content, run, max_output, total)
    kind = FinalResult if isinstance(output, FinalResult) else ToolResult
    return kind(name=name, result=content, is_error=is_error)


def text_result(name: str, text: str, *, is_error: bool = False) -> ToolResult:
    """A result of one text."""
    return ToolResult(name=name, result=[TextResultContent(content=text)], is_error=is_error)


def to_text(value: object) -> str:
    """A value as the model reads it: text as it is, None as "", all else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        value = dict(cast("Mapping[object, object]", value))
    try:
        return pydantic_core.to_json(value, fallback=str, inf_nan_mode="constants").decode()
    except ValueError:  # It refers to itself, or holds bytes that are no UTF-8.
        return str(value)


def _is_parts(output: object) -> bool:
    if not isinstance(output, list | tuple):
        return False
    return any(isinstance(part, Image | FileOutput | TextResultContent | ImageResultContent) for part in output)  # pyright: ignore[reportUnknownVariableType]


async def _part(part: object, run: ToolRun) -> ResultContent:
    if isinstance(part, TextResultContent | ImageResultContent):
        return part
    if isinstance(part, Image):
        return ImageResultContent(content=part)
    if isinstance(part, FileOutput):
        return TextResultContent(content=await _kept(part, run))
    return TextResultContent(content=to_text(part))


async def _kept(file: FileOutput, run: ToolRun) -> str:
    media_type = file.media_type or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    if run.files is None:
        return f"[The file {file.name} ({len(file.data)} bytes) was made, but this server keeps no files.]"
    kept = await run.files.save(file.name[:MAX_FILE_NAME], file.data, media_type)
    return f"[file {kept.name}, {kept.media_type}, {kept.bytes} bytes, id {kept.id}]"


async def _cut(
    name: str, content: Sequence[ResultContent], run: ToolRun, max_output: int, total: int
) -> list[ResultContent]:
    """The first `max_output` characters of the texts, a note, and the images."""
    note = f"[The result was cut: {max_output} of {total} characters are shown."
    if run.files is not None:
        whole = "\n".join(each.content for each in content if isinstance(each, TextResultContent))
        with suppress(DrSaiError):  # The call was made: that it is not kept does not change its result.
            kept = await run.files.save(f"{name}.txt", whole.encode(errors="replace"), "text/plain")
            note += f" The whole is the file {kept.id}."
    left, shown = max_output, list[ResultContent]()
    for each in content:
        if isinstance(each, ImageResultContent):
            shown.append(each)
        elif left:
            shown.append(TextResultContent(content=each.content[:left]))
            left -= min(left, len(each.content))
    return [*shown, TextResultContent(content=note + "]")]
