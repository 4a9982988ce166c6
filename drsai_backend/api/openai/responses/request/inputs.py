"""Inputs are made of the body of a request for a response: what the engine is asked, and what is kept of the
request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, TypeVar, cast

import orjson
from pydantic import BaseModel

from drsai_backend.api.http.checking import check_names, checked
from drsai_backend.api.http.json import dumps
from drsai_backend.api.openai.messages import SCHEMA_BYTES
from drsai_backend.api.openai.responses.request.body import (
    COMPACT_TEXTS,
    TEXTS,
    CompactBody,
    InputBody,
    Item,
    MessageItem,
    ResponseBody,
    TextPart,
)
from drsai_backend.api.openai.responses.request.items import Placed, ReadItems
from drsai_backend.api.openai.responses.request.parameters import SEARCH_RESULTS
from drsai_backend.api.openai.responses.request.tools import FileSearch, Tool, shown_tool
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import InputMessage

_TOLD_AGAIN: Final = (
    *("instructions", "previous_response_id", "temperature", "top_p", "max_output_tokens", "truncation"),
    *("parallel_tool_calls", "service_tier", "store", "background", "metadata"),
)
"""Fields that a response has as its request had them."""
_OWN_FIELDS: Final = ("webhook_url", "on_busy", "max_turns", "max_run_seconds", "max_run_tokens")
"""Fields that OpenAI does not have."""
_Body = TypeVar("_Body", bound=InputBody)


class PreviousNotFound(NotFound, code="previous_response_not_found", status=400):
    """The response to be continued is none of this user's, or was not stored."""


def parse(kind: type[_Body], body: JsonObject, max_items: int) -> _Body:
    """The checked body of a request.

    Raises:
        InvalidRequest: something cannot be used; `param` names the field.
    """
    given = body.get("input")
    items = cast(list[object], given) if isinstance(given, list) else []
    if len(items) > max_items:
        raise InvalidRequest(f"`input` has {len(items)} items; this server accepts {max_items}", param="input")
    return checked(kind.model_validate, body, COMPACT_TEXTS if kind is CompactBody else TEXTS)


def fingerprint_of(body: Mapping[str, object]) -> str:
    """SHA-256 of what makes a request with an idempotency key the same request: all that it says, but how it is told.
    Takes a while for a large one."""
    said = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    return sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()


def check(asked: ResponseBody) -> None:
    """Check what no type tells. Raises InvalidRequest."""
    check_names(asked.model_extra or (), _OWN_FIELDS)
    if asked.conversation is not None and asked.previous_response_id is not None:
        text = "`conversation` and `previous_response_id` cannot be combined: either names what is continued"
        raise InvalidRequest(text, param="previous_response_id")
    if asked.webhook_url is not None and not asked.background:
        text = "`webhook_url` is for runs of the background: say `background: true`"
        raise InvalidRequest(text, param="webhook_url")
    if asked.background and asked.store is False:
        raise InvalidRequest("`background` needs `store`: nobody could ask for the response", param="background")
    for place, name in enumerate(asked.include or ()):
        if name == "message.output_text.logprobs":
            raise InvalidRequest("there are no log probabilities", param=f"include[{place}]")
    if (
        asked.tools is not None
        and len(dumps([tool.model_dump(exclude_none=True) for tool in asked.tools])) > SCHEMA_BYTES
    ):
        raise InvalidRequest(f"`tools` must have at most {SCHEMA_BYTES} bytes as JSON", param="tools")


def placed(given: str | Sequence[Item] | None, place: str = "input") -> list[Placed]:
    """The items of a request, and what names each."""
    if given is None:
        return []
    if isinstance(given, str):
        return [(place, MessageItem(role="user", content=given))]
    return [(f"{place}[{index}]", item) for index, item in enumerate(given)]


def record_of(asked: ResponseBody, conversation: str | None, system: str | None, added: Sequence[str]) -> JsonObject:
    """Return what a response tells of its request again (see `wire`); besides, for requests that follow it, `system`:
    the texts that the conversation's own system messages have, and `system_items`: those that came with this
    request."""
    choice = asked.tool_choice
    record = {
        **{name: getattr(asked, name) for name in _TOLD_AGAIN},
        "tool_choice": choice.model_dump(mode="json") if isinstance(choice, BaseModel) else choice,
        "safety_identifier": asked.safety_identifier,
        "prompt_cache_key": asked.prompt_cache_key,
        "user": asked.user,
        "tools": [shown_tool(tool) for tool in asked.tools or () if isinstance(tool, Tool | FileSearch)] or None,
        "conversation": None if conversation is None else {"id": conversation},
        "search_results": SEARCH_RESULTS in (asked.include or ()) or None,
    }
    if asked.reasoning is not None:
        record["reasoning"] = {
            "effort": asked.reasoning.effort,
            "summary": asked.reasoning.summary or asked.reasoning.generate_summary,
        }
    if asked.text is not None:
        record["text"] = {"format": _format(asked), "verbosity": asked.text.verbosity or "medium"}
    record = {name: value for name, value in record.items() if value is not None}
    return {**record, "system": system, **({"system_items": list(added)} if added else {})}


def _format(asked: ResponseBody) -> JsonObject:
    form = None if asked.text is None else asked.text.format
    if form is None or form.type != "json_schema":
        return {"type": "text" if form is None else form.type}
    return {
        "type": "json_schema",
        "name": form.name,
        "description": form.description,
        "schema": form.schema_,
        "strict": bool(form.strict),
    }


def joined_system(*said: str | None) -> str | None:
    """Texts as one system message; None: there are none."""
    texts = [text for text in said if text is not None]
    return "\n\n".join(text for text in texts if text.strip()) if texts else None


def with_system(read: ReadItems, text: str | None) -> tuple[list[InputMessage], list[JsonObject]]:
    """The messages of a run, with one system message in front, and the same in the shape of Chat Completions."""
    pairs = [pair for pair in zip(read.messages, read.raw, strict=True) if pair[0].role != "system"]
    if text is not None:
        pairs.insert(0, (InputMessage("system", text), {"role": "system", "content": text}))
    return [message for message, _ in pairs], [raw for _, raw in pairs]


def check_last(read: ReadItems, place: str) -> None:
    """Raise InvalidRequest unless the newest item, but for the system's, is a user's message that says something, or a
    tool's result."""
    last = next((each for each in reversed(read.messages) if each.role != "system"), None)
    if last is None or last.role not in ("user", "tool"):
        text = f"the last item of `{place}` must be a message of the user's, or the result of a tool"
        raise InvalidRequest(text, param=place)
    if last.role == "user" and last.is_empty:
        raise InvalidRequest(f"the last message of `{place}` must not be empty", param=place)


def is_heavy(items: Sequence[Placed]) -> bool:
    """Whether reading them takes long: many, or images."""
    return len(items) > 256 or any(
        isinstance(item, MessageItem)
        and not isinstance(item.content, str)
        and any(not isinstance(part, TextPart) for part in item.content)
        for _, item in items
    )
