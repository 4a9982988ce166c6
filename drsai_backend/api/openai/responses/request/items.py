"""Items become messages of a run where a request has them, and are made of what a run has said for its answer.

Pure functions; who looks items up that are only named (`item_reference`, `compaction`) is `stored.named`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from autogen_core import FunctionCall, Image

from drsai_backend.api.openai.messages import NO_RECORDING, UNSEEN, Images, RecordingPart, read_file, read_results
from drsai_backend.api.openai.responses.request.body import (
    ApprovalResponseItem,
    CallOutputItem,
    CustomCallItem,
    FilePart,
    FunctionCallItem,
    ImagePart,
    Item,
    MessageItem,
    Part,
    ReasoningItem,
    RefusalPart,
    TextPart,
)
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Answer, InputMessage
from drsai_backend.teams.client_tools.definitions import CUSTOM_INPUT, ToolOutput

RUN: Final = "run_"
RESPONSE: Final = "resp_"
Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]
_ROLES: Final[dict[str, Literal["system", "user", "assistant"]]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_ONLY_OF: Final = {
    "refusal": ("assistant", "only assistants may refuse"),
    "input_image": ("user", "only user messages may hold images"),
    "input_file": ("user", "only user messages may hold files"),
}
"""Parts that the messages of one role alone may have."""


def response_id(run_id: str) -> str:
    """The id of the response that a run is."""
    return RESPONSE + run_id.removeprefix(RUN)


def run_of(response: str) -> str:
    """The id of the run that a response is; of something that is no response's id, one that no run has."""
    return RUN + response.removeprefix(RESPONSE) if response.startswith(RESPONSE) else ""


def run_of_item(item_id: str) -> str:
    """The id of the run that an item is of: it is part of the item's."""
    return RUN + item_id.partition("_")[2].partition("_")[0]


def approval_id(run_id: str, question: str) -> str:
    """The id of the item that asks for an approval. It names the run, so that an answer finds its thread by itself."""
    return f"mcpr_{run_id.removeprefix(RUN)}_{question}"


def read_approval_id(text: str) -> tuple[str, str] | None:
    """The run and the question that such an id names; None: it is none."""
    kind, _, rest = text.partition("_")
    run, _, question = rest.partition("_")
    return (RUN + run, question) if kind == "mcpr" and run and question else None


# --- from a request ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ReadItems:
    """The input of a request: its messages, the same in the shape of Chat Completions (`raw`), what names each in the
    request (`paths`), the texts of those that are the system's, an approval, where it is the newest thing said, and the
    thought whose answer or calls are still to come."""

    messages: list[InputMessage] = field(default_factory=list[InputMessage])
    raw: list[JsonObject] = field(default_factory=list[JsonObject])
    paths: list[str] = field(default_factory=list[str])
    system: list[str] = field(default_factory=list[str])
    approval: ApprovalResponseItem | None = None
    thought: str | None = None

    def add(self, path: str, message: InputMessage, raw: JsonObject) -> None:
        self.approval = None
        self.messages.append(replace(message, thought=self.thought) if message.role == "assistant" else message)
        self.thought = None
        self.raw.append(raw)
        self.paths.append(path)

    def call(self, path: str, call: FunctionCall, raw: JsonObject) -> None:
        """A call of one of the client's tools: part of the answer before it, as calls are in Chat Completions."""
        if not self.messages or self.messages[-1].role != "assistant":
            self.add(path, InputMessage("assistant", ""), {"role": "assistant", "content": None})
        last, shown = self.messages[-1], self.raw[-1]
        self.messages[-1] = replace(last, calls=[*last.calls, call], thought=self.thought or last.thought)
        self.thought = None
        self.raw[-1] = {**shown, "tool_calls": [*shown.get("tool_calls", ()), raw]}

    def after(self, first: ReadItems) -> ReadItems:
        """Both, one after the other; the system's texts are those of this one."""
        messages, raw, paths = [*first.messages, *self.messages], [*first.raw, *self.raw], [*first.paths, *self.paths]
        return ReadItems(messages, raw, paths, self.system, self.approval)

    def results(self) -> list[ToolOutput]:
        """The results of the client's tools that it ends with. Raises InvalidRequest, as `messages.read_results`."""
        return read_results(self.messages, [f"{path}.call_id" for path in self.paths])


Placed: TypeAlias = tuple[str, Item]
"""An item, and what names it in the request, as `input[0]`."""


def read_items(items: Sequence[Placed], *, were_added: bool = False) -> ReadItems:
    """The input that these items are. Decodes images, which takes a while, but for those of items that `were_added`
    to a conversation: each was looked at with those that came with it, and together they may be larger.

    Raises:
        InvalidRequest: `param` names what cannot be used, as in `input[0].content[1].image_url`.
    """
    read, images = ReadItems(), Images()
    for path, item in items:
        match item:
            case MessageItem():
                content, raw = _read_content(item, f"{path}.content", images)
                role = _ROLES[item.role]
                if role == "system" and isinstance(content, str):
                    read.system.append(content)
                read.add(path, InputMessage(role, content), {"role": item.role, "content": raw})
            case FunctionCallItem():
                function = {"name": item.name, "arguments": item.arguments}
                raw_call = {"id": item.call_id, "type": "function", "function": function}
                read.call(path, FunctionCall(item.call_id, item.arguments, item.name), raw_call)
            case CustomCallItem():
                arguments = json.dumps({CUSTOM_INPUT: item.input}, ensure_ascii=False)
                custom = {"name": item.name, "input": item.input}
                raw_call = {"id": item.call_id, "type": "custom", "custom": custom}
                read.call(path, FunctionCall(item.call_id, arguments, item.name), raw_call)
            case CallOutputItem():
                text = _text_of(item.output, f"{path}.output")
                raw_result = {"role": "tool", "tool_call_id": item.call_id, "content": text}
                read.add(path, InputMessage("tool", text, call_id=item.call_id), raw_result)
            case ReasoningItem():
                parts = item.content or item.summary or ()
                read.thought = "\n\n".join(str(part.get("text") or "") for part in parts)
            case ApprovalResponseItem():
                read.approval = item
            case _:
                pass
    if not were_added:
        images.check()
    return read


def _text_of(content: str | Sequence[Part], path: str) -> str:
    if isinstance(content, str):
        return content
    if not all(isinstance(part, TextPart | ImagePart) for part in content):
        raise InvalidRequest(f"`{path}` must be text", param=path)
    return "\n\n".join(part.text if isinstance(part, TextPart) else UNSEEN for part in content)


def _read_content(
    item: MessageItem, path: str, images: Images
) -> tuple[str | list[str | Image], str | list[JsonObject]]:
    """The parts of a message, and the same in the shape of Chat Completions; one string when they are text only."""
    if isinstance(item.content, str):
        return item.content, item.content
    read = [_read_part(item.role, part, f"{path}[{index}]", images) for index, part in enumerate(item.content)]
    parts, raw = [part for part, _ in read], [shown for _, shown in read]
    texts = [part for part in parts if isinstance(part, str)]
    return (parts if len(texts) < len(parts) else "\n\n".join(texts)), raw


def _read_part(role: str, part: Part, where: str, images: Images) -> tuple[str | Image, JsonObject]:
    only, refusal = _ONLY_OF.get(part.type, (role, ""))
    if role != only:
        raise InvalidRequest(f"`{where}`: {refusal}", param=where)
    match part:
        case TextPart():
            return part.text, {"type": "text", "text": part.text}
        case RefusalPart():
            return part.refusal, {"type": "refusal", "refusal": part.refusal}
        case ImagePart():
            if part.image_url is None:
                reason = "an image needs `image_url`, or in a request over HTTP `file_id`"
                raise InvalidRequest(f"`{where}`: {reason}", param=f"{where}.file_id")
            image = images.read(part.image_url, f"{where}.image_url")
            return image, {"type": "image_url", "image_url": {"url": part.image_url}}
        case RecordingPart():
            raise InvalidRequest(f"`{where}`: {NO_RECORDING}", param=where)
        case FilePart():
            content = read_file(part, where, images)
            is_text = isinstance(content, str)
            shown = {"text": content} if is_text else {"image_url": {"url": content.data_uri}}
            return content, {"type": "text" if is_text else "image_url", **shown}


def answer_of(item: ApprovalResponseItem, question: str) -> Answer:
    """Return what an approval says to the question of that id."""
    return Answer(question, decision="approve" if item.approve else "deny", reason=item.reason)


# --- from a run ----------------------------------------------------------------------------------------------------


def text_part(text: str, cited: Sequence[JsonObject] = ()) -> JsonObject:
    """The content of an answer, and the files that it cites."""
    return {"type": "output_text", "text": text, "annotations": list(cited), "logprobs": []}


def message_item(
    item_id: str, text: str | None, *, status: Status = "completed", cited: Sequence[JsonObject] = ()
) -> JsonObject:
    """An answer; None: it has no text yet."""
    content = [] if text is None else [text_part(text, cited)]
    return {"type": "message", "id": item_id, "status": status, "role": "assistant", "content": content}


def summary_part(text: str) -> JsonObject:
    """The text of a thought. As a summary, because both OpenAI and Open Responses have events for those."""
    return {"type": "summary_text", "text": text}


def reasoning_item(item_id: str, text: str | None) -> JsonObject:
    """Return what an agent has thought; None: it has no text yet."""
    return {"type": "reasoning", "id": item_id, "summary": [] if text is None else [summary_part(text)]}


def approval_item(run_id: str, asked: JsonObject, arguments: str) -> JsonObject:
    """The question whether a tool may be called; `arguments` as JSON text. The server's label is the asking agent."""
    tool: JsonObject = asked.get("tool") or {}
    return {
        "type": "mcp_approval_request",
        "id": approval_id(run_id, str(asked["id"])),
        "server_label": str(asked.get("source") or ""),
        "name": str(tool.get("name") or ""),
        "arguments": arguments,
    }


def approval_answer_item(item_id: str, question: str, *, approve: bool, reason: str | None) -> JsonObject:
    """The answer to the question of that id, as the conversation keeps it."""
    return {
        "type": "mcp_approval_response",
        "id": item_id,
        "approval_request_id": question,
        "approve": approve,
        "reason": reason or "",
    }


def given_item(item_id: str | None, role: str, content: str | Sequence[JsonObject]) -> JsonObject:
    """A message that came from a client; `content`: text, or parts as they are shown. None: it gets its id later."""
    if isinstance(content, str):
        content = [text_part(content) if role == "assistant" else {"type": "input_text", "text": content}]
    item = {"type": "message", "status": "completed", "role": role, "content": list(content)}
    return item if item_id is None else {"id": item_id, **item}
