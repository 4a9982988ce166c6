"""The `messages` of a request are read here: roles, text parts, images."""

from __future__ import annotations

import json
import mimetypes
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Final, Literal, TypeAlias, cast

from autogen_core import FunctionCall, Image
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, WithJsonSchema

from drsai_backend.api.openai.files.contents import DATA_URL, IMAGES, Noted, decoded, text_of
from drsai_backend.config import usable_key
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject, as_list, as_object, with_parts
from drsai_backend.models.images import FORMATS, MAX_PIXELS, EncodedImage, check_images
from drsai_backend.runs.messages import USER_LAST, continued
from drsai_backend.runs.requests import InputMessage
from drsai_backend.teams.client_tools.definitions import (
    CUSTOM_INPUT,
    MAX_RESULT_BYTES,
    MAX_RESULTS,
    ToolOutput,
    run_of_call,
)

INT32: Final = 2**31 - 1
INT64: Final = 2**63 - 1
SCHEMA_BYTES: Final = 262_144
"""As JSON: of the tools of a request, and of the form of its answer."""
optional: Final = partial(Field, None)
"""A field that may be left out, and has no default of its own."""
NO_ID: Final = "function:"
"""What a call of one of the deprecated functions has in place of an id begins with; its name follows."""
_FEW: Final = 256
"""Messages that are looked at in less than a millisecond."""
_HEAVY: Final = frozenset({"image_url", "file", "source"})
"""The fields of parts that bring an image or a file."""
_CONTENTS: Final = frozenset(("text", "refusal", "image_url", "input_audio", "file", "file_data", "file_id", "source"))
"""The fields of parts that hold what a part says."""
_HINTS: Final = frozenset(
    ("cache_control", "prompt_cache_breakpoint", "id", "status", "phase", "annotations", "logprobs")
)
"""Fields that change no answer, or come back from an answer that was given."""
_NO_OPTIONS: Final = frozenset(("messages", "input", "prediction", "response_format"))
"""Fields of bodies that are looked at by `unread_fields`, or are passed on as they came."""
_MOST_NAMED, _LONGEST = 32, 80
_NOTHING: Final[tuple[object, ...]] = (None, "", [], {}, "auto", False, "standard", ["direct"])
"""Values that ask for nothing."""
UNSEEN: Final = "[An image, which is not shown: what tools return is passed on as text.]"
_DATA_URL: Final = re.compile(r"data:image/[a-z0-9.+-]+;base64,", re.IGNORECASE)
_URL_SCHEMA: Final = {"type": "object", "properties": {"url": {"type": "string"}}}
_AUDIO_SCHEMA: Final = {
    "type": "object",
    "properties": {"data": {"type": "string"}, "format": {"type": "string"}},
}
_KEY_SCHEMA: Final = {
    "type": "string",
    "format": "password",
    "writeOnly": True,
    "pattern": r"^\s*[!-~]*\s*$",
}
ModelKey: TypeAlias = Annotated[SecretStr, AfterValidator(usable_key), WithJsonSchema(_KEY_SCHEMA)]
"""A key for model calls."""


class Wire(BaseModel):
    """A part of a request's body, taken as it is: a text that reads like a number is none."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)


class Said(Wire):
    """A message, a part of one, or an option that is kept whole. What of it nobody here reads is found by
    `unread_fields`, or `unread_options`."""

    model_config = ConfigDict(extra="allow")


class TextPart(Said):
    type: Literal["text"]
    text: str


class RefusalPart(Said):
    type: Literal["refusal"]
    refusal: str


class ImagePart(Said):
    type: Literal["image_url"]
    image_url: Annotated[object, WithJsonSchema(_URL_SCHEMA)] = None


class InlineFile(Said):
    """A file that a request brings along. `file_data`: its content in base64, by itself or in a `data:` URL."""

    file_data: str | None = None
    filename: str | None = None
    file_url: str | None = None


class FilePart(Said):
    type: Literal["file"]
    file: InlineFile


class RecordingPart(Said):
    """Audio or video of a user's, in the field that has the name of its type."""

    type: Literal["input_audio", "audio_url", "video_url"]
    input_audio: Annotated[object, WithJsonSchema(_AUDIO_SCHEMA)] = None
    audio_url: Annotated[object, WithJsonSchema(_URL_SCHEMA)] = None
    video_url: Annotated[object, WithJsonSchema(_URL_SCHEMA)] = None


NO_RECORDING: Final = "recordings are a user's, in a request that asks something"
Part: TypeAlias = Annotated[TextPart | RefusalPart | ImagePart | FilePart | RecordingPart, Field(discriminator="type")]


Content: TypeAlias = str | Annotated[list[Part], Field(fail_fast=True)] | None


class CalledFunction(Wire):
    name: str
    arguments: str


class CalledCustom(Wire):
    name: str
    input: str


class FunctionToolCall(Wire):
    id: str = Field(min_length=1)
    type: Literal["function"] = "function"  # not every client says it
    function: CalledFunction


class CustomToolCall(Wire):
    id: str = Field(min_length=1)
    type: Literal["custom"]
    custom: CalledCustom


ToolCallPart: TypeAlias = FunctionToolCall | CustomToolCall


class SystemMessage(Said):
    role: Literal["system", "developer"]
    content: Content = None


class UserMessage(Said):
    """`name`: who of several users speaks."""

    role: Literal["user"]
    content: Content = None
    name: str | None = Field(default=None, max_length=255)


class AssistantMessage(Said):
    """An answer, and the calls of the client's tools in it, with what was thought beside them."""

    role: Literal["assistant"]
    content: Content = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallPart] | None = None
    function_call: CalledFunction | None = None


class ToolMessage(Said):
    """What a tool of the client's has returned."""

    role: Literal["tool"]
    tool_call_id: str = Field(min_length=1)
    content: Content = None
    name: str | None = Field(default=None, description="The tool's; the call says it.")


class FunctionMessage(Said):
    """The same of one of the deprecated functions, whose calls have no ids."""

    role: Literal["function"]
    name: str = Field(min_length=1)
    content: Content = None


Message: TypeAlias = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage, Field(discriminator="role")
]


class History(Wire):
    """A conversation by itself."""

    messages: list[Message] = Field(min_length=1, fail_fast=True)


def read_messages(
    given: Sequence[Message], raw: Sequence[JsonObject], noted: Noted
) -> tuple[list[InputMessage], list[JsonObject], list[ToolOutput]]:
    """The conversation, those messages as they came (`raw`), one for one, and the results of the client's tools that
    it ends with. The system's messages come first, wherever they stand: they hold for the whole conversation. Decodes
    images, which takes a while: call it in a thread when there are any. `noted`: the files of messages.

    Raises:
        InvalidRequest: `param` names what cannot be used, as in `messages[0].content[1].image_url`.
    """
    sent = read_history(given, noted)
    order = sorted(range(len(sent)), key=[each.role != "system" for each in sent].__getitem__)
    messages = list(map(sent.__getitem__, order))
    last, path = messages[-1], f"messages[{order[-1]}]"
    # One of the system's alone may be housekeeping, and is refused where it is not.
    is_alone = len(messages) == 1 and last.role == "system"
    if last.role not in ("user", "tool") and not is_alone and continued(messages) is None:
        raise InvalidRequest(USER_LAST, param=f"{path}.role")
    if last.role == "user" and isinstance(last.content, str) and not last.content.strip():
        raise InvalidRequest(f"`{path}.content` must not be empty", param=f"{path}.content")
    return messages, list(map(raw.__getitem__, order)), read_results(sent)


def read_history(given: Sequence[Message], noted: Noted | None = None) -> list[InputMessage]:
    """The conversation, which may end with any message. Decodes images, as `read_messages`, and raises as it does."""
    images = Images()
    messages = [_read(message, index, images) for index, message in enumerate(given)]
    images.check()
    if not noted:
        return messages
    return [replace(each, noted=noted.get(f"messages[{at}]", {})) for at, each in enumerate(messages)]


def _read(message: Message, index: int, images: Images) -> InputMessage:
    content = message.content
    if not isinstance(content, str):
        content = _read_parts(message, f"messages[{index}].content", images)
    match message:
        case AssistantMessage():
            return InputMessage("assistant", content, calls=_calls(message), thought=message.reasoning_content)
        case ToolMessage():
            return InputMessage("tool", content, call_id=message.tool_call_id)
        case FunctionMessage():
            return InputMessage("tool", content, call_id=f"{NO_ID}{message.name}")
        case SystemMessage():
            return InputMessage("system", content)
        case UserMessage():
            return InputMessage("user", content, name=None if message.name in ("", "user") else message.name)


def _calls(message: AssistantMessage) -> list[FunctionCall]:
    calls: list[FunctionCall] = []
    for call in message.tool_calls or ():
        if isinstance(call, FunctionToolCall):
            calls.append(FunctionCall(call.id, call.function.arguments, call.function.name))
        else:
            arguments = json.dumps({CUSTOM_INPUT: call.custom.input}, ensure_ascii=False)
            calls.append(FunctionCall(call.id, arguments, call.custom.name))
    if (old := message.function_call) is not None:
        calls.append(FunctionCall(f"{NO_ID}{old.name}", old.arguments, old.name))
    return calls


def unread_fields(said: Iterable[BaseModel], place: str) -> list[str]:
    """Find the fields of messages, and of their parts, with which nothing is done, as `messages.content.citations`:
    each once, the first few, as they may stand in a header.

    Raises:
        InvalidRequest: a part is of two kinds; `param` names the second one.
    """
    found: dict[str, None] = {}
    for index, message in enumerate(said):
        # Looked at as they are: of a long history most messages are a text.
        if message.__pydantic_extra__:
            found |= dict.fromkeys(f"{place}.{name}" for name in _unread(message))
        match fields := message.__dict__:
            case {"output": list()}:
                if "input_image" in [getattr(part, "type", "") for part in fields["output"]]:
                    found[f"{place}.output.image"] = None
            case {"content": list()}:
                unread = _unread_of(fields["content"], f"{place}[{index}]")
                found |= dict.fromkeys(f"{place}.content.{name}" for name in unread)
            case _:
                pass
    return _as_told(found) if found else []


def _as_told(names: Iterable[str]) -> list[str]:
    told = [*dict.fromkeys(names)][:_MOST_NAMED]
    # Of a field without a name, the header would end in a space, which none may.
    return [re.sub(r"[^\w.-]", "?", name, flags=re.ASCII)[:_LONGEST] or "?" for name in told]


def unread_names(asked: BaseModel) -> list[str]:
    """Find the fields of a body, itself, with which nothing is done, as they may stand in a header."""
    return _as_told(_unread(asked))


def unread_options(asked: BaseModel, body: Mapping[str, object]) -> list[str]:
    """Find the fields of objects in a body with which nothing is done, as `reasoning.mode`: each once, the first few,
    as they may stand in a header. `asked`: what the body was read as; fields of its own that it does not have are kept
    for the agents."""
    found: list[str] = []
    for name, value in body.items():
        match value:
            case dict() | list() if name not in _NO_OPTIONS:
                found += _unread_within(asked.__dict__.get(name), cast(object, value), name)
            case _:
                pass
    return _as_told(found) if found else []


def ignored_header(names: Sequence[str]) -> dict[str, str]:
    """Return the header that names fields; none, where there are none."""
    return {"x-ignored-fields": ", ".join(names)} if names else {}


def _unread_within(read: object, given: object, place: str) -> Iterator[str]:
    if isinstance(read, list):
        for each, one in zip(cast(list[object], read), as_list(given), strict=False):
            yield from _unread_within(each, one, place)
    elif isinstance(read, BaseModel):
        names = {field.alias or name: name for name, field in type(read).model_fields.items()}
        # What is left aside as a whole is named by its type.
        is_read = isinstance(read, Said) or read.model_config.get("extra") != "allow"
        for name, value in as_object(given).items():
            if name in names:
                yield from _unread_within(getattr(read, names[name]), value, f"{place}.{name}")
            elif is_read and value not in _NOTHING and name not in _HINTS:
                yield f"{place}.{name}"


def _unread_of(parts: Iterable[object], path: str) -> Iterator[str]:
    for at, part in enumerate(parts):
        for name in _unread(part) if isinstance(part, Said) else ():
            if name in _CONTENTS:
                param = f"{path}.content[{at}].{name}"
                raise InvalidRequest(f"`{param}`: a part is of one kind; send another part with this", param=param)
            yield name


def _unread(said: BaseModel) -> list[str]:
    asked = [name for name, value in (said.model_extra or {}).items() if value not in _NOTHING and name not in _HINTS]
    url = said.image_url if isinstance(said, ImagePart) else None
    if as_object(url).get("detail") not in _NOTHING:
        asked.append("image_url.detail")
    return asked


def read_results(messages: Sequence[InputMessage], places: Sequence[str] | None = None) -> list[ToolOutput]:
    """The results of the client's tools that a conversation ends with, before what the user has said since. `places`:
    what names each message in the request, where that is not Chat Completions' way.

    Raises:
        InvalidRequest: a result is of no call before it, a call of this server's has none, or they are too many or too
            large; `param` names the message.
    """
    if not any([message.role == "tool" or message.calls for message in messages]):  # noqa: C419 - one call
        return []
    answered = next((index for index in reversed(range(len(messages))) if messages[index].role == "assistant"), -1)
    calls = [] if answered < 0 else [call.id for call in messages[answered].calls]
    results: list[ToolOutput] = []
    size = 0
    for index in range(answered + 1, len(messages)):
        message = messages[index]
        if message.role != "tool":
            continue
        call_id = message.call_id or ""
        is_old = call_id.startswith(NO_ID)
        name = call_id.removeprefix(NO_ID) if is_old else None
        where = f"messages[{index}].{'name' if is_old else 'tool_call_id'}" if places is None else places[index]
        if answered >= 0 and call_id not in calls:
            said = "calls no function of that name" if is_old else f"has no call {call_id!r}"
            raise InvalidRequest(f"`{where}`: the assistant's message before it {said}", param=where)
        size += len(message.text)
        if len(results) == MAX_RESULTS or size > MAX_RESULT_BYTES:
            most = f"{MAX_RESULTS} results of tools, of {MAX_RESULT_BYTES} characters together"
            raise InvalidRequest(f"`{where}`: a request may bring {most}", param=where)
        results.append(ToolOutput("" if is_old else call_id, message.text, name=name, where=where))
    given = {each.call_id for each in results}
    missing = [call for call in calls if run_of_call(call) is not None and call not in given]
    if missing:
        where = f"messages[{answered}].tool_calls" if places is None else places[answered]
        text = "must be followed by the result of each call; there is none for"
        raise InvalidRequest(f"`{where}` {text} {', '.join(missing)}", param=where)
    return results


def is_heavy(body: Mapping[str, object]) -> bool:
    """Tell whether to look at a request's messages takes long: they are many, or bring images or files."""
    messages = body.get("messages")
    if len(as_list(messages)) > _FEW:
        return True
    return any(not _HEAVY.isdisjoint(as_object(part)) for _, _, parts in with_parts(messages) for part in parts)


def _read_parts(message: Message, path: str, images: Images) -> str | list[str | Image]:
    """The parts of a message; one string when they are text only."""
    parts: list[str | Image] = []
    if message.content is None and message.role != "assistant":  # else an answer that only called tools
        raise InvalidRequest(f"`{path}` is required", param=path)
    for index, part in enumerate(message.content or ()):
        where = f"{path}[{index}]"
        if isinstance(part, TextPart):
            parts.append(part.text)
        elif isinstance(part, RefusalPart) and message.role == "assistant":
            parts.append(part.refusal)
        elif isinstance(part, ImagePart) and message.role == "user":
            parts.append(images.read(part.image_url, f"{where}.image_url"))
        elif isinstance(part, FilePart) and message.role == "user":
            parts.append(read_file(part.file, f"{where}.file", images))
        else:
            if isinstance(part, RecordingPart):
                raise InvalidRequest(f"`{where}`: {NO_RECORDING}", param=where)
            refuses = isinstance(part, RefusalPart)
            only = "assistants may refuse" if refuses else "user messages may hold images and files"
            raise InvalidRequest(f"`{where}`: only {only}", param=where)
    return parts if any(isinstance(part, Image) for part in parts) else "\n\n".join(cast(list[str], parts))


def read_file(file: InlineFile, path: str, images: Images) -> str | Image:
    """Return what a file of a request holds: its name and its text, or the image that it is. Raises InvalidRequest."""
    if (data := file.file_data) is None:
        reason = "a file needs `file_data`, or in a request over HTTP `file_id`"
        if file.file_url is not None:
            reason = "this server fetches no addresses for its clients; send the file as `file_data`"
        raise InvalidRequest(f"`{path}`: {reason}", param=path)
    head, name = DATA_URL.match(data), file.filename or ""
    kind = (head[1] if head is not None else mimetypes.guess_type(name)[0] or "").lower()
    text = data if head is None else data[head.end() :]
    if kind in IMAGES:
        return images.read(f"data:{kind};base64,{text}", path)
    said = text_of(decoded(text, path), kind, path)
    return f"{name}\n\n{said}" if name else said


class Images:
    """The images of one request."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._paths: list[str] = []

    def read(self, source: object, path: str) -> Image:
        text = _image_text(source, path)
        self._texts.append(text)
        self._paths.append(path)
        return EncodedImage(text)

    def check(self) -> None:
        """Raises:
        InvalidRequest: one of those that were read cannot be decoded, or together they are too large.
        """
        found = check_images(self._texts) if self._texts else []
        for path, pixels in zip(self._paths, found, strict=False):
            if pixels is None:
                complaint = f"`{path}` is not a readable image ({', '.join(FORMATS)})"
                raise InvalidRequest(complaint, param=path)
        if sum(filter(None, found)) > MAX_PIXELS:
            path = self._paths[len(found) - 1]
            raise InvalidRequest(f"the images up to `{path}` have more than {MAX_PIXELS} pixels", param=path)


def _image_text(source: object, path: str) -> str:
    """An image's file as base64."""
    url = as_object(source).get("url") if isinstance(source, dict) else source
    if not isinstance(url, str):
        raise InvalidRequest(f"`{path}.url` must be a string", param=path)
    if url[:6].lower().startswith(("http:", "https:")):
        reason = "this server fetches no addresses for its clients; send the image as a `data:` URL"
        raise InvalidRequest(f"`{path}`: {reason}", param=path)
    head = _DATA_URL.match(url)
    if head is None:
        raise InvalidRequest(f"`{path}` must be a URL of the form data:image/…;base64,…", param=path)
    text = url[head.end() :]
    decoded(text, path)
    return text
