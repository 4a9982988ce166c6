"""A translation makes of a request of Anthropic's Messages the body of Chat Completions that says the same, and knows
where each part of that came from, so that an error names what the client has written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from drsai_backend.api.anthropic.body import (
    AssistantMessage,
    ContentSource,
    CustomTool,
    DocumentBlock,
    FileSource,
    ForeignTool,
    ImageBlock,
    MessagesBody,
    Prompt,
    SearchResultBlock,
    SystemText,
    TextBlock,
    ThinkingBlock,
    ToolChoice,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from drsai_backend.api.openai.files.contents import decoded, text_of
from drsai_backend.api.openai.messages import UNSEEN, unread_fields
from drsai_backend.errors import DrSaiError, InvalidRequest
from drsai_backend.json_types import JsonObject

_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}
_TIERS: Final = {"auto": "auto", "standard_only": "default"}
_NAMES: Final = {
    "stop": "stop_sequences",
    "reasoning_effort": "output_config.effort",
    "response_format": "output_config.format",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
}
"""Fields of Chat Completions that have another name here."""
_PLACE: Final = re.compile(r"messages\[(\d+)\](?:\.(tool_call_id|tool_calls|content|role|name)(\[\d+\])?)?(?:\.\w+)*")


@dataclass(slots=True)
class Translation:
    """A request in the words of Chat Completions.

    Attributes:
        body: the fields that have a counterpart there.
        places: where each of its messages came from.
        parts: where the parts of each message's content came from.
        failed: the ids of the calls whose result says that they failed.
        aside: fields with which nothing is done.
    """

    body: JsonObject = field(default_factory=dict[str, object])
    places: list[str] = field(default_factory=list[str])
    parts: list[list[str]] = field(default_factory=list[list[str]])
    failed: set[str] = field(default_factory=set[str])
    aside: list[str] = field(default_factory=list[str])

    def add(self, message: Mapping[str, object], place: str, parts: Sequence[str] = ()) -> None:
        """One more message."""
        self.body.setdefault("messages", []).append(message)
        self.places.append(place)
        self.parts.append(list(parts))

    def rename(self, error: DrSaiError) -> DrSaiError:
        """Give fields in an error the names that the client knows; the same error."""
        if error.param is not None:
            old = error.param
            error.param = self.place_of(old)
            error.message = error.message.replace(f"`{old}`", f"`{error.param}`")
        return error

    def place_of(self, param: str) -> str:
        """The field of the client's request that a field of the translated one came from."""
        found = _PLACE.fullmatch(param)
        if found is None:
            return _NAMES.get(param, param).replace(".function.parameters", ".input_schema").replace(".function", "")
        index = int(found[1])
        if index >= len(self.places):
            return param
        place, parts = self.places[index], self.parts[index]
        match found[2]:
            case "tool_call_id":
                return f"{place}.tool_use_id"
            case "content" if found[3] and int(found[3][1:-1]) < len(parts):
                return parts[int(found[3][1:-1])]
            case "role":
                return f"{place.partition('.')[0]}.role"
            case "content" if not place.endswith("]"):
                return place
            case "content" | "tool_calls" if "." not in place:
                return f"{place}.content"
            case _:
                return place


def translate_prompt(asked: Prompt) -> Translation:
    """The messages and tools of a request.

    Raises:
        InvalidRequest: they do not fit together; `param` names what.
    """
    made = Translation(aside=unread_fields(asked.messages, "messages"))
    if asked.system is not None and (text := _text_of(asked.system)).strip():
        made.add({"role": "system", "content": text}, "system")
    for index, message in enumerate(asked.messages):
        where = f"messages[{index}]"
        if isinstance(message, UserMessage):
            _add_user(made, message, where)
        elif isinstance(message, AssistantMessage):
            _add_assistant(made, message, where)
        elif (text := _text_of(message.content)).strip():
            made.add({"role": "system", "content": text}, where)
    foreign = [tool for tool in asked.tools or () if isinstance(tool, ForeignTool)]
    if asked.tools:
        tools = [_tool(tool, index, made) for index, tool in enumerate(asked.tools)]
        made.body["tools"] = [tool for tool in tools if tool is not None]
    if asked.tool_choice is not None:
        _add_choice(made, asked.tool_choice, foreign)
    if asked.thinking is not None and asked.thinking.budget_tokens is not None:
        made.aside.append("thinking.budget_tokens")
    return made


def translate(asked: MessagesBody) -> Translation:
    """A whole request; fields that only Chat Completions has are the caller's to add. Raises as `translate_prompt`."""
    made = translate_prompt(asked)
    tier = asked.service_tier
    wanted = {
        "model": asked.model,
        "max_tokens": asked.max_tokens,
        "stream": asked.stream,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "stop": asked.stop_sequences or None,
        "metadata": asked.metadata or None,
        "service_tier": None if tier is None else _TIERS[tier],
    }
    if (output := asked.output_config) is not None:
        wanted["reasoning_effort"] = output.effort
        if output.format is not None:
            form = {"name": "answer", "schema": output.format.schema_, "strict": True}
            wanted["response_format"] = {"type": "json_schema", "json_schema": form}
    made.body |= {name: value for name, value in wanted.items() if value is not None}
    return made


def _add_user(made: Translation, message: UserMessage, where: str) -> None:
    """The results of tools come first, as in Chat Completions nothing may stand between calls and results."""
    if isinstance(message.content, str):
        made.add({"role": "user", "content": message.content}, where)
        return
    parts: list[JsonObject] = []
    places: list[str] = []
    for index, block in enumerate(message.content):
        place = f"{where}.content[{index}]"
        if isinstance(block, ToolResultBlock):
            content = block.content
            if not isinstance(content, str):
                if any(isinstance(part, ImageBlock) for part in content or ()):
                    made.aside.append("messages.content.content.image")
                said = [_said(part, f"{place}.content[{at}]") for at, part in enumerate(content or ())]
                content = "\n\n".join(said)
            made.add({"role": "tool", "tool_call_id": block.tool_use_id, "content": content}, place)
            if block.is_error:
                made.failed.add(block.tool_use_id)
        elif isinstance(block, ImageBlock):
            url = f"data:{block.source.media_type};base64,{block.source.data}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
            places.append(f"{place}.source")
        else:
            parts.append({"type": "text", "text": _said(block, place)})
            places.append(place)
    if parts:
        only_text = all(part["type"] == "text" for part in parts)
        content = "\n\n".join(part["text"] for part in parts) if only_text else parts
        made.add({"role": "user", "content": content}, where, places)


def _add_assistant(made: Translation, message: AssistantMessage, where: str) -> None:
    if isinstance(message.content, str):
        made.add({"role": "assistant", "content": message.content}, where)
        return
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[JsonObject] = []
    for block in message.content:
        if isinstance(block, ToolUseBlock):
            function = {"name": block.name, "arguments": json.dumps(block.input, ensure_ascii=False)}
            calls.append({"id": block.id, "type": "function", "function": function})
        elif isinstance(block, ThinkingBlock):
            thoughts.append(block.thinking)
        else:
            texts.append(block.text)
    said = {"role": "assistant", "content": "\n\n".join(texts), "reasoning_content": "".join(thoughts)}
    made.add({**said, "tool_calls": calls} if calls else said, where)


def _said(block: TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock, place: str) -> str:
    """Return what a block says, as text. Raises InvalidRequest: it is a file that is no text."""
    match block:
        case TextBlock():
            return block.text
        case DocumentBlock(source=source):
            match source:
                case FileSource():
                    said = text_of(decoded(source.data, f"{place}.source"), source.media_type, f"{place}.source")
                case ContentSource():
                    said = _text_of(source.content)
                case _:
                    said = source.data
            return "\n\n".join(text for text in (block.title, block.context, said) if text)
        case SearchResultBlock():
            return "\n\n".join([f"{block.title} ({block.source})", *(part.text for part in block.content)])
        case ImageBlock():
            return UNSEEN
        case ToolReferenceBlock():
            return f"Found the tool {block.tool_name}."


def _text_of(content: SystemText) -> str:
    return content if isinstance(content, str) else "\n\n".join(block.text for block in content)


def _tool(tool: CustomTool | ForeignTool, index: int, made: Translation) -> JsonObject | None:
    """A tool of the client's; None: it is none, and left aside."""
    if isinstance(tool, ForeignTool):
        made.aside.append(f"tools[{index}] ({tool.type})")
        return None
    if tool.defer_loading:
        made.aside.append(f"tools[{index}].defer_loading")
    description = tool.description or ""
    if tool.input_examples:
        examples = "\n".join(json.dumps(example, ensure_ascii=False) for example in tool.input_examples)
        description = f"{description}\n\nExamples of the input:\n{examples}".strip()
    function = {"name": tool.name, "description": description, "parameters": tool.input_schema}
    return {"type": "function", "function": function | ({} if tool.strict is None else {"strict": tool.strict})}


def _add_choice(made: Translation, choice: ToolChoice, foreign: Sequence[ForeignTool]) -> None:
    for tool in foreign:
        if choice.type == "any" or (choice.type == "tool" and choice.name == tool.name):
            text = f"`tool_choice` demands {tool.type!r}, which nobody here has: agents have tools of their own"
            raise InvalidRequest(f"{text}; say 'auto'", param="tool_choice")
    if choice.type == "tool":
        if not choice.name:
            raise InvalidRequest("`tool_choice.name` is required", param="tool_choice.name")
        made.body["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    else:
        made.body["tool_choice"] = _CHOICES[choice.type]
    if choice.disable_parallel_tool_use is not None and made.body.get("tools"):
        made.body["parallel_tool_calls"] = not choice.disable_parallel_tool_use
