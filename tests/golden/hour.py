"""An hour of a server in a second: all that its APIs store, with teams of each kind, and runs that are under way at its
end. `rows` is what the tables then hold, without what is another value each time.

The teams and what their models answer are those of `tests.recordings.release_0020`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import sqlalchemy as sa
from pydantic import SecretStr
from sqlmodel import SQLModel

from drsai_backend import DrSai
from drsai_backend.config import Settings
from drsai_backend.database import migrations, schemas
from drsai_backend.datamodel.base import is_secret
from drsai_backend.datamodel.owner import Owner
from drsai_backend.state import Entry
from drsai_backend.state.codec import decode_value
from tests.golden.lines import flat
from tests.recordings.release_0020.script import Script
from tests.recordings.release_0020.teams import KINDS, MODES, PROFILES, STRATEGIES, TEAMS, definitions, teams
from tests.support.effects import Site
from tests.support.model_server import ModelRequest, ModelServer, Reply
from tests.support.peer import Peer

Json = dict[str, Any]
WORLDS = [*KINDS, *(f"of_{each}" for each in STRATEGIES), *(f"team_of_{each}" for each in TEAMS)]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LOOK = {"type": "object", "properties": {"at": {"type": "string"}}}
_IDS = re.compile(
    r"((?:call_)?run_|resp_|thread_|evt_|key_|file-|msg_|call_|conv_)[0-9A-Za-z]{12,}"
    r"|\b(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})\b"
)
_TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?")
_PORT = re.compile(r"127\.0\.0\.1:\d+")
_MEASURED = {"seconds", "milliseconds", "duration", "journal_debt", "latency", "created"}
_SAME = {"id", "thread_key", "content_key", "created_at", "updated_at"}
_COMMON = {"tenant": "default", "user_id": "ada", "version": "0.0.1"}
_NAMED = {"lease_owner", "worker_id", "claim", "token", "request_id"}


class Hour(Script):
    """The models, whose calls have the same ids each time, and the clients."""

    def __init__(self, http: httpx.AsyncClient, site: Site, peer: Peer) -> None:
        super().__init__()
        self.http, self.site, self.peer = http, site, peer
        self.under_way: list[asyncio.Task[Any]] = []

    def _answer(self, asked: ModelRequest) -> Reply:
        reply = super()._answer(asked)
        calls = [
            replace(each, id="-".join([each.name, *map(str, dict(each.arguments).values())]))
            for each in reply.tool_calls
        ]
        return replace(reply, tool_calls=calls)

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> Json:
        answer = await self.http.request(method, path, json=body, **options)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.headers["content-type"] == "application/json" else {}

    async def chat(self, text: Any, thread: str, model: str = "talk", **values: Any) -> Json:
        headers = values.pop("headers", {})
        body: Json = {"model": model, "messages": [{"role": "user", "content": text}], "thread_id": thread, **values}
        return await self.call("POST", "/v1/chat/completions", body, headers=headers)

    async def respond(self, text: Any, **values: Any) -> Json:
        return await self.call("POST", "/v1/responses", {"model": "talk", "input": text, **values})

    async def messages(self, text: str, thread: str, **values: Any) -> Json:
        body = {"model": "talk", "max_tokens": 100, "messages": [{"role": "user", "content": text}], **values}
        return await self.call("POST", "/v1/messages", body, headers={"X-Thread-Id": thread})

    async def task(self, mode: str, thread: str) -> Json:
        body: Json = {"task": f"Settle it [task-{mode}].", "mode": mode, "conversation_id": thread}
        return await self.call("POST", "/api/v1/agent/execute", body | ({} if mode == "simple" else {"tools": ["pay"]}))

    async def begin(self, call: Any, true: Callable[[], Any]) -> None:
        """A request whose answer nobody waits for, up to where `true`."""
        self.under_way.append(asyncio.create_task(call))
        async with asyncio.timeout(30):
            while not (found := true()) or (asyncio.iscoroutine(found) and not await found):
                for each in self.under_way:
                    assert not each.done(), each.result()
                await asyncio.sleep(0.01)

    async def _queued(self, thread: str, number: int) -> bool:
        return (await self.call("GET", f"/v1/threads/{thread}"))["queued"] == number

    async def whole(self) -> None:
        await self.define()
        await self.say()
        await self.keep()
        await self.respond_and_converse()
        await self.wait()
        await self.tell()
        self.holding = True
        await self.hold()
        await self.queue()

    async def define(self) -> None:
        endpoint: Json = {"method": "POST", "url": f"{self.site.url}/pay/{{threadId}}~{{number}}/0/0"}
        parameters = [{"name": "number", "type": "integer", "required": True}]
        config = {"description": "Pay.", "parameters": parameters, "endpoint": endpoint}
        await self.call("POST", "/v1/tools", {"name": "pay", "config": config})
        ring: Json = {"method": "POST", "url": self.peer.url("/ring"), "headers": {"X-Word": "{secret:WORD}"}}
        config = {"description": "Ring.", "endpoint": ring}
        await self.call("POST", "/v1/tools", {"name": "ring", "config": config, "secrets": {"WORD": "the word"}})
        await self.call(
            "PUT", "/v1/tools/ring", {"config": {**config, "description": "Ring twice."}, "secrets": {"WORD": "x"}}
        )
        for name, definition in definitions().items():
            await self.call("POST", "/v1/agents", {"name": name, "definition": definition})
        poet = [{"definition": {"agents": {"poet": {"prompt": each, "model": "talk"}}}} for each in ("Old.", "New.")]
        await self.call("POST", "/v1/agents", {"name": "poet", "visibility": "tenant", **poet[0]})
        await self.call("PUT", "/v1/agents/poet", {"visibility": "tenant", **poet[1]})
        await self.call("POST", "/v1/agents/poet/rollback", {"to": 1, "visibility": "tenant"})

    async def say(self) -> None:
        """Runs that are over, of a few kinds; what a client can say with a request."""
        for world in ("agent", "nested_second", "plan", "reflexion", "router", "magentic", "of_tools", "team_of_swarm"):
            await self.chat("Settle it.", f"whole-{world}", world)
        await self.task("tools", "whole-task")
        await self.chat("A poem.", "poem", "poet")
        await self.chat("Two speak.", "pair", "pair", stream=True, stream_options={"include_usage": True})
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
        system = {"role": "system", "content": "Be brief."}
        messages = [system, {"role": "user", "content": [{"type": "text", "text": "See."}, image]}]
        more = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 9, "seed": 7, "stop": ["x"], "metadata": {"a": "b"}}
        more |= {"max_turns": 9, "user": "someone", "an_extra_field": [1]}
        await self.chat("", "said", **{"messages": messages, **more})
        await self.chat("", "named", messages=[{"role": "user", "content": "It is Ann.", "name": "ann"}])
        await self.messages("By messages.", "messages", system="Be kind.", stop_sequences=["x"])
        await self.call("POST", "/v1/completions", {"model": "talk", "prompt": "Complete.", "thread_id": "completed"})
        await self.chat("Do it once.", "keyed", headers={"Idempotency-Key": "k1"})
        await self.chat("Try it.", "tried", headers={"x-stainless-retry-count": "0"})
        await self.call("POST", "/v1/keys", {"user": "bob", "roles": ["treasurer"]}, headers={"Idempotency-Key": "k2"})

    async def keep(self) -> None:
        """Files, forks, rewinds, shares; an answer of a model that is kept."""
        files = {"file": ("notes.txt", b"The notes of Ada.\n", "text/plain"), "purpose": (None, "user_data")}
        await self.call("POST", "/v1/files", files=files)
        for text in ("One.", "Two.", "Three."):
            await self.chat(text, "told")
        await self.call("POST", "/v1/threads/told/fork", {"at": 2, "thread_id": "forked"})
        await self.call("POST", "/v1/threads/told/rewind", {"at": 2})
        await self.chat("Four.", "told")
        await self.call("POST", "/v1/threads/told/shares", {"with_user": "bob", "right": "read"})
        await self.call("POST", "/v1/threads/forked/shares", {"with_role": "treasurer", "right": "write"})
        loaded = [{"role": "user", "content": "Old words."}, {"role": "assistant", "content": "Old answer."}]
        await self.call("POST", "/v1/threads/loaded/history", {"model": "talk", "messages": loaded})
        await self.chat("Keep this answer.", "kept", "cached")

    async def respond_and_converse(self) -> None:
        first = await self.respond("Answer me.", metadata={"a": "b"}, instructions="Be kind.")
        await self.respond("And now?", previous_response_id=first["id"])
        items = [{"type": "message", "role": "user", "content": "I speak first."}]
        made = await self.call("POST", "/v1/conversations", {"metadata": {"topic": "rain"}, "items": items})
        await self.respond("Do you hear?", conversation=made["id"])

    async def wait(self) -> None:
        """Runs that wait for a person, or for a tool of their client's; and one that got its answer."""
        for text, thread in (("Wire it.", "approval"), ("Wire it too.", "denied"), ("Ask me.", "question")):
            await self.chat(text, thread)
        asked = (await self.call("GET", "/v1/threads/denied"))["input_request"]["id"]
        await self.call("POST", "/v1/threads/denied/input", {"id": asked, "decision": "deny", "reason": "It is late."})
        await self.chat("Hello.", "person", "person")
        tools = [{"type": "function", "function": {"name": "look", "parameters": LOOK}}]
        await self.chat("Look at it.", "looks-chat", tools=tools)
        await self.respond("Look at it.", tools=[{"type": "function", "name": "look", "parameters": LOOK}])
        await self.messages("Look at it.", "looks-messages", tools=[{"name": "look", "input_schema": LOOK}])

    async def tell(self) -> None:
        """Runs in the background, of which nobody could be told."""
        await self.call("POST", "/v1/webhooks/secret")
        where = {"background": True, "webhook_url": self.peer.url("/over")}
        await self.respond("Answer and tell.", **where)
        await self.chat("Run and tell.", "telling", **where)
        async with asyncio.timeout(30):
            while [each["status_code"] for each in await self._deliveries()] != [500, 500]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def _deliveries(self) -> list[Json]:
        return (await self.call("GET", "/v1/webhooks/deliveries"))["data"]

    async def hold(self) -> None:
        """Runs that have paid once, and whose model thinks about the next payment."""
        for world in WORLDS:
            await self.begin(self.chat("Settle it.", f"cut-{world}", world), lambda world=world: world in self.held)
        for mode in MODES:
            await self.begin(self.task(mode, f"cut-task-{mode}"), lambda mode=mode: f"task-{mode}" in self.held)

    async def queue(self) -> None:
        await self.begin(self.chat("Hold the line.", "busy"), lambda: "Hold the line." in self.held)
        image = [
            {"type": "text", "text": "By chat."},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        ]
        tools = [{"type": "function", "function": {"name": "look", "parameters": LOOK}}]
        calls = [
            self.chat(image, "busy", temperature=0.5, max_turns=3, tools=tools, an_extra_field=1),
            self.respond("By responses.", conversation="busy"),
            self.messages("By messages.", "busy"),
            self.chat("Be brief.", "busy", on_busy="steer"),
        ]
        for number, call in enumerate(calls, 1):
            await self.begin(call, lambda number=number: self._queued("busy", number))


@asynccontextmanager
async def lived(url: str, folder: Path) -> Any:
    """The hour, at its end: runs are under way."""
    with ModelServer(strict=False) as model, Peer(lambda _: 500) as peer, Site(folder / "effects") as site:
        kept = {**PROFILES["profiles"]["kept"], "endpoint": model.base_url}
        profiles = folder / "models.json"
        profiles.write_text(json.dumps({"profiles": {**PROFILES["profiles"], "kept": kept}}))
        settings = Settings(
            _env_file=None,
            openai_api_key=SecretStr("k"),
            openai_base_url=model.base_url,
            secret_key=SecretStr("test"),
            model_vision=True,
            allowed_addresses=["127.0.0.1"],
            models=str(profiles),
            sweep_seconds=600,
            webhook_retry_seconds=[3600],
            shutdown_grace_seconds=0.1,
        )
        with patch.dict(os.environ, CHAOS_TOOLS=str(folder / "effects")):
            async with DrSai(teams, url, settings=settings) as drsai:
                made = await drsai.keys.create(Owner("default", "ada"), ["admin"])
                headers = {"authorization": f"Bearer {made.key.get_secret_value()}"}
                transport = httpx.ASGITransport(drsai.app())
                async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as http:
                    hour = Hour(http, site, peer)
                    model.script(None, hour)
                    try:
                        await hour.whole()
                        yield
                    finally:
                        for each in hour.under_way:
                            each.cancel()
                        await asyncio.gather(*hour.under_way, return_exceptions=True)


def rows(url: str) -> Iterator[str]:
    """Each value of each row; rows are named by table and thread, and numbered in their order."""
    own = schemas.own_tables()
    with migrations.connecting(url, write=False) as connection:
        threads = {each.id: each.thread_id for each in connection.execute(sa.text("SELECT id, thread_id FROM thread"))}
        for table in sorted(SQLModel.metadata.tables.values(), key=lambda table: table.name):
            if table.name not in own or table.name == "toolstatistic":
                continue  # That is written now and then.
            seen: Counter[str] = Counter()
            lines: dict[str, list[str]] = defaultdict(list)  # Those of threads that lived at once, each by itself.
            for row in connection.execute(sa.select(table).order_by(*table.primary_key.columns)).mappings():
                thread = row.get("thread_id") or row.get("thread") or threads.get(row.get("thread_key"))
                name = " ".join([table.name, *([] if thread is None else [neutral(thread)])])
                for column in table.columns:
                    if row[column.name] in (thread, None) or _is_drawn(column, str(thread)):
                        continue
                    if (value := _value(column, row[column.name])) is not None:
                        found = flat(value, f"{name} {seen[name]} {column.name}", whole=_is_plain)
                        lines[name] += (each for each in found if not each.endswith(' = "…"'))
                seen[name] += 1
            yield from (line for _, each in sorted(lines.items()) for line in each)


def _is_drawn(column: sa.Column[Any], thread: str) -> bool:
    """A digest of something that has another value each time: an id, a number of a question, a port."""
    if column.name in ("point", "fingerprint"):
        return thread in ("approval", "denied", "telling") or thread.startswith(("thread_", "conv_"))
    return (column.table.name, column.name) == ("storedanswer", "digest")


def _is_plain(value: Any) -> bool:
    """A list that holds no others."""
    return isinstance(value, list) and not any(isinstance(each, dict | list) for each in value)


def _value(column: sa.Column[Any], value: Any) -> Any:
    """What a column holds, in JSON; None: nothing, what nearly all rows hold, or a number that the database gives."""
    name = column.name
    if value is None or name in _SAME or column.foreign_keys or _COMMON.get(name) == value:
        return None
    if is_secret(column) or (column.table.name, name) in (("answeredrequest", "answer"), ("apikey", "digest")):
        return "secret"
    if name in _NAMED:
        return "…"
    if isinstance(value, bytes):
        return sha256(value).hexdigest() if len(value) > 32 else value.hex()
    if name == "payload":
        # What a short entry says, as the long one has it.
        value = decode_value(value if value.startswith("RFMB") else Entry.decode(value).encode())
    return neutral(value, name)


def neutral(value: Any, name: str = "") -> Any:
    """The same without ids, times and ports; keys as well."""
    if (name in _MEASURED and not isinstance(value, dict | list)) or (name == "number" and isinstance(value, str)):
        return "…"
    if isinstance(value, dict):
        return {neutral(key): neutral(each, str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [neutral(each) for each in value]
    if isinstance(value, datetime):
        return "…"
    if isinstance(value, str):
        return _PORT.sub("127.0.0.1:…", _TIMES.sub("…", _IDS.sub(r"\1…", value)))
    return value
