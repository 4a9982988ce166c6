"""A stored request is an input as JSON, while it waits in the queue; and what the run of a thread was asked, from its
rows."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final, cast

from autogen_agentchat.messages import BaseChatMessage
from autogen_core import FunctionCall, Image
from pydantic import SecretStr

from drsai_backend import log_context
from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import UserInput
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import UnsupportedStateVersion
from drsai_backend.json_types import JsonObject
from drsai_backend.models import ModelParams
from drsai_backend.models.images import EncodedImage
from drsai_backend.runs.messages import CONTINUES, SHOWN, TRACE
from drsai_backend.runs.requests import Ask, How, InputMessage, Placed, RunLimits, Where
from drsai_backend.state.codec import load_json
from drsai_backend.teams.client_tools.definitions import STORED_AS, ClientTools
from drsai_backend.teams.messages import read_message
from drsai_backend.teams.recording.recorder import dump_message, storable

VERSION: Final = 1
"""Of the form that `to_json` gives. A field that readers of the form need not know leaves it as it is; any other change
makes the next one, and counts `drsai_backend.runs.recovery.announcements.FORMS` on."""
STORED: Final = "stored"
"""The key of a stored request that says that its team is a stored definition."""


def to_json(given: Placed) -> JsonObject:
    """Everything of an input but whose it is, its thread, its team and its key, which have columns of their own."""
    ask, limits = given.ask, given.ask.how.limits
    return {
        "version": VERSION,
        "messages": [_dump_message(message) for message in ask.messages],
        "params": ask.params.create_args(),
        "stream": ask.stream,
        "n": ask.n,
        "extra": ask.extra,
        "limits": limits.as_dict() or {},
        "raw": list(ask.raw_messages),
        **({} if ask.history == "continue" else {"history": ask.history}),
        **({} if ask.shown is None else {"shown": ask.shown}),
        **({} if given.author is None else {"author": given.author}),
        **({} if ask.client_tools is None else {"tools": ask.client_tools.to_json()}),
        **({} if (trace := log_context.trace.get()) is None else {"trace": trace}),
    }


def from_json(stored: JsonObject, *, team: str, name: ThreadName, api_key: str | None) -> Ask:
    """Return what was asked by the input that `to_json` was given.

    Raises:
        UnsupportedStateVersion: it was stored by a later version of this package.
    """
    return Ask(
        team,
        messages_from(stored),
        stored["raw"],
        ModelParams(**stored["params"]),
        api_key=None if api_key is None else SecretStr(api_key),
        stream=stored["stream"],
        n=stored["n"],
        extra=stored["extra"],
        client_tools=ClientTools.from_json(stored["tools"]) if "tools" in stored else None,
        shown=stored.get("shown"),
        history=stored.get("history", "continue"),
        trace=stored.get("trace"),
        where=Where(name.thread_id, name.user_id),
        how=How(limits=RunLimits(**stored.get("limits", {}))),
    )


def messages_from(stored: JsonObject) -> list[InputMessage]:
    """The messages of a stored request. Releases before the first version wrote none. Raises as `from_json`."""
    if (version := stored.get("version", 1)) > VERSION:
        text = f"the stored message has format version {version}; this version of drsai_backend reads {VERSION}"
        raise UnsupportedStateVersion(text, param="messages")
    return [_load_message(message) for message in stored["messages"]]


def _dump_message(message: InputMessage) -> JsonObject:
    if message.message is not None:
        return {"role": message.role, "message": load_json(storable(dump_message(message.message)).encode())}
    content = message.content
    if not isinstance(content, str):
        content = [part if isinstance(part, str) else {"image": part.to_base64()} for part in content]
    calls = {"calls": [asdict(call) for call in message.calls]} if message.calls else {}
    named = {name: value for name in ("call_id", "name") if (value := getattr(message, name)) is not None}
    noted = {"metadata": message.noted} if message.noted else {}
    return {"role": message.role, "content": content, **calls, **named, **noted}


def _load_message(stored: JsonObject) -> InputMessage:
    if "message" in stored:
        return InputMessage.of(cast(BaseChatMessage, read_message(stored["message"])))
    content: str | list[str | dict[str, str]] = stored["content"]
    if isinstance(content, str):
        calls = [FunctionCall(**call) for call in stored.get("calls", ())]
        named = {name: stored.get(name) for name in ("call_id", "name")}
        return InputMessage(stored["role"], content, calls=calls, noted=stored.get("metadata", {}), **named)
    parts: list[str | Image] = [part if isinstance(part, str) else EncodedImage(part["image"]) for part in content]
    return InputMessage(stored["role"], parts, name=stored.get("name"), noted=stored.get("metadata", {}))


async def ask_of_thread(db: DatabaseManager, team: str, name: ThreadName) -> Ask:
    """The latest input of a thread without its messages: parameters, key and extra fields, for a resumed run."""
    named = name._asdict()
    rows = await db.get(UserInput, filters=named)
    given = rows[0] if rows else UserInput(**named)
    columns = {"temperature": given.temperature, "max_tokens": given.max_tokens, "top_p": given.top_p}
    params, extra = ModelParams.of_stored({**columns, "seed": given.cache_seed}, given.extra_requests or {})
    tools, continues, shown, trace = (extra.pop(name, None) for name in (STORED_AS, CONTINUES, SHOWN, TRACE))
    return Ask(
        team,
        params=params,
        api_key=None if given.api_key is None else SecretStr(given.api_key),
        stream=bool(given.stream),
        n=given.n,
        extra=extra,
        client_tools=None if tools is None else ClientTools.from_json(tools),
        continues=continues,
        shown=shown,
        trace=trace if isinstance(trace, str) else None,  # Clients name fields as they like.
        where=Where(name.thread_id, name.user_id),
    )
