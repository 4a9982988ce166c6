"""Exchanges are what models were sent and have answered, packed so that they can be kept, read and sent again.

An exchange is JSON: `form` (whose form the request has: `openai` and `anthropic` as it went to the endpoint, `autogen`
where a client does not say what it sends), `request`, `answer` (AutoGen's result) and `left_out`, the number of images
and other long data in whose place the request has `[left out]`. Headers, and keys with them, are no part of it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import zlib
from collections.abc import Sequence
from typing import Final, cast

from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, UserMessage
from autogen_core.tools import Tool, ToolSchema
from pydantic import TypeAdapter

from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.models.answer import ModelCall
from drsai_backend.models.endpoints.answers import NOTES, CallNotes
from drsai_backend.models.endpoints.chunks import loads

log = logging.getLogger("drsai.model")

MOST: Final = 2 * 1024 * 1024
"""Bytes of an exchange's JSON, without what is left out: a longer one is not kept."""
_DATA: Final = re.compile(rb'(?<=[",])[A-Za-z0-9+/]{2048,}+={0,2}(?=")')
"""An image, a recording: base64, by itself or at the end of a data URL."""
_GZIP: Final = 31
_APART: Final = {"cancellation_token", "extra_headers", "extra_create_args", "tools"}
_MESSAGES: Final = TypeAdapter[list[LLMMessage]](list[LLMMessage])


async def exchange_of(notes: CallNotes, result: CreateResult) -> bytes | None:
    """Pack what was sent for a call, and its answer, in a thread, as it may take milliseconds; None: it is too long, or
    cannot be read."""
    try:
        return await asyncio.to_thread(_packed, notes, result)
    except Exception:
        # Messages and results of foreign clients may hold anything, and the run goes on.
        log.exception("what a model was sent cannot be kept")
        return None


def _packed(notes: CallNotes, result: CreateResult) -> bytes | None:
    form, body = notes.sent or ("autogen", _body_of(notes.asked))
    body, left_out = _DATA.subn(b"[left out]", body)
    answer = _dumps(result.model_dump(mode="json"))
    text = b'{"form":"%b","left_out":%d,"request":%b,"answer":%b}' % (form.encode(), left_out, body, answer)
    return zlib.compress(text, wbits=_GZIP) if len(text) <= MOST else None


def _body_of(call: ModelCall | None) -> bytes:
    """A request as AutoGen has it."""
    messages, options, streams = call or ModelCall((), {}, streams=False)
    args = {name: value for name, value in options.get("extra_create_args", {}).items() if name not in _APART}
    given: Sequence[Tool | ToolSchema] = options.get("tools", ())
    tools = [each.schema if isinstance(each, Tool) else each for each in given]
    told = {name: value for name, value in options.items() if name not in _APART}
    told |= {"tools": tools, "extra_create_args": args, "stream": streams}
    return _dumps({"messages": [each.model_dump(mode="json") for each in messages], **told})


def _dumps(value: JsonObject) -> bytes:
    """JSON in which what is none stands by its class."""
    return json.dumps(value, default=lambda odd: type(odd).__qualname__).encode()


def read_exchange(data: bytes) -> JsonObject:
    """Return what is packed."""
    return cast(JsonObject, loads(zlib.decompress(data, wbits=_GZIP)))


def changed(exchange: JsonObject, system: str | None, model: str | None) -> JsonObject:
    """The request of an exchange as it is sent again: for a whole answer, with another system message (in place of the
    one that it begins with), or to another model. Raises InvalidRequest: it is not kept as a whole."""
    if exchange["left_out"]:
        raise InvalidRequest("the call cannot be sent again: its request is kept without the images and data in it")
    request: JsonObject = {**exchange["request"]}
    for name in ("stream", "stream_options"):
        request.pop(name, None)
    if model is not None and "model" in request:
        request["model"] = model
    if system is None:
        return request
    if exchange["form"] == "anthropic":
        return {**request, "system": system}
    messages: list[JsonObject] = request["messages"]
    first: JsonObject = {"role": "system"} if exchange["form"] == "openai" else {"type": "SystemMessage"}
    if messages and messages[0].get("role", messages[0].get("type")) in ("system", "developer", "SystemMessage"):
        first, *messages = messages
    return {**request, "messages": [{**first, "content": system}, *messages]}


async def ask_again(client: ChatCompletionClient, form: str, request: JsonObject) -> tuple[CreateResult, CallNotes]:
    """Send a request once more, and return the answer, with what its endpoint says of it.

    Args:
        client: asks; of an endpoint whose requests have the form, for all but `autogen`.
        form: of the request.
        request: as `changed` makes it.

    Raises:
        InvalidRequest: the client's requests have another form.
        Exception: what the client raises.
    """
    notes, options = CallNotes(), JsonObject()
    messages: list[LLMMessage] = [UserMessage(content="The request is sent in place of this.", source="user")]
    if form == "autogen":
        messages = _MESSAGES.validate_python(request["messages"])
        options = {name: request[name] for name in ("tools", "extra_create_args")}
    elif getattr(client, "body_form", None) != form:
        raise InvalidRequest(f"the request has the form of {form}'s API: name a model that is asked so", param="model")
    else:
        notes.instead = _dumps(request)
    token = NOTES.set(notes)
    try:
        return await client.create(messages, **options), notes
    finally:
        NOTES.reset(token)
