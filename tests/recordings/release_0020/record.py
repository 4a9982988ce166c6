"""Makes the databases of this folder with the code of the release that they are of, 3fc5aee, and kills its server.

It runs in a checkout of that commit, on the package and the `tests.support` that are there::

    git worktree add --detach /tmp/old 3fc5aee
    cp -r tests/recordings/release_0020 /tmp/old/tests/recordings/
    cd /tmp/old && python -m venv .venv && .venv/bin/pip install -e . --group dev
    .venv/bin/python -m tests.recordings.release_0020.record

It writes, into its own folder, `sqlite.sql.gz` and `postgresql.sql.gz`, what the clients of each had noted as JSON
(`noted`), and `told.thread`; copy them back. Ids, keys and times are other ones each time, texts are the same.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr
from sqlmodel import SQLModel

from drsai_backend import DrSai
from drsai_backend.config import Settings
from drsai_backend.database import migrations
from tests.recordings.release_0020.script import Script
from tests.recordings.release_0020.teams import (
    KEPT_PORT,
    KINDS,
    MODES,
    PROFILES,
    SETTINGS,
    STRATEGIES,
    TEAMS,
    definitions,
    teams,
)
from tests.support import postgres
from tests.support.effects import Site
from tests.support.model_server import ModelServer
from tests.support.peer import Peer

HERE = Path(__file__).parent
SERVED = HERE / "teams.py"
JOBS = "drsai_jobs.procrastinate_jobs"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LOOK = {"type": "object", "properties": {"at": {"type": "string"}}}
Json = dict[str, Any]


class Recorder:
    """The clients of a server that is killed at last, and what they note."""

    def __init__(self, database_url: str, folder: Path, model: ModelServer, site: Site, peer: Peer) -> None:
        self.database_url, self.folder, self.site, self.peer = database_url, folder, site, peer
        self.script = Script()
        model.script(None, self.script)
        self.noted: Json = {}
        self.effects = folder / "effects"
        profiles = folder / "models.json"
        profiles.write_text(json.dumps(PROFILES))
        self.environment = {
            **SETTINGS,
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(HERE.parents[2]),
            "DRSAI_DATABASE_URL": database_url,
            "DRSAI_MODELS": str(profiles),
            "DRSAI_SWEEP_SECONDS": "0.5",
            "OPENAI_BASE_URL": model.base_url,
            "CHAOS_TOOLS": str(self.effects),
            "DIGGING_SECONDS": "600",
        }
        os.environ.update({name: self.environment[name] for name in ("CHAOS_TOOLS", "DIGGING_SECONDS")})
        self.asking: list[asyncio.Task[Any]] = []
        self.client: httpx.AsyncClient

    def command(self, *arguments: str) -> str:
        ran = [sys.executable, "-m", "drsai_backend", *arguments]
        done = subprocess.run(ran, env=self.environment, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        """A server, which dies at the end."""
        ran = [sys.executable, "-m", "drsai_backend", "serve", str(SERVED), "--port", "0"]
        log = self.folder / "log"
        with log.open("w") as out:
            process = subprocess.Popen(ran, env=self.environment, cwd=self.folder, stdout=out, stderr=out)  # noqa: ASYNC220
        try:
            url = None
            while url is None:
                if process.poll() is not None:
                    raise RuntimeError(log.read_text())
                await asyncio.sleep(0.1)
                url = re.search(r"serves (https?://\S+)/v1\n", log.read_text())
            yield url.group(1)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> Json:
        answer = await self.client.request(method, path, json=body, **options)
        if answer.is_error:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text}")
        return {
            "thread_id": answer.headers.get("x-thread-id"),
            "run_id": answer.headers.get("x-run-id"),
        } | answer.json()

    async def chat(self, text: Any, thread: str | None = None, model: str = "talk", **values: Any) -> Json:
        headers = values.pop("headers", {})
        body: Json = {"model": model, "messages": [{"role": "user", "content": text}], **values}
        if thread is not None:
            body["thread_id"] = thread
        return await self.call("POST", "/v1/chat/completions", body, headers=headers)

    def ask(self, call: Any) -> None:
        """Send a request whose answer the client does not live to see."""
        self.asking.append(asyncio.create_task(call))

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not true():
                for each in self.asking:
                    if each.done():
                        each.result()  # it raises what has failed
                await asyncio.sleep(0.1)

    async def record(self) -> None:
        # Whom a kept answer is of is part of what finds it: that model is asked at a port that is always the same.
        async with await asyncio.start_server(self.relay, "127.0.0.1", KEPT_PORT):
            await self.record_all()

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = int(self.environment["OPENAI_BASE_URL"].removesuffix("/v1").rpartition(":")[2])
        answers, requests = await asyncio.open_connection("127.0.0.1", port)

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
            target.close()

        await asyncio.gather(pump(reader, requests), pump(answers, writer))

    async def record_all(self) -> None:
        keys = {"ada": self.command("keys", "create", "--user", "ada", "--scope", "admin").strip()}
        async with self.serving() as url:
            headers = {"authorization": f"Bearer {keys['ada']}"}
            self.client = httpx.AsyncClient(base_url=url, headers=headers, timeout=None)
            for user in ("bob", "gone"):
                made = await self.call("POST", "/v1/keys", {"user": user, "roles": ["treasurer"]})
                keys[user] = made["key"]
                if user == "gone":
                    await self.call("DELETE", f"/v1/keys/{made['id']}")
            self.noted["keys"] = keys
            await self.store_definitions()
            await self.finish_runs()
            await self.say_and_keep()
            await self.wait_for_people()
            self.script.holding = True
            await self.cut_runs()
            await self.pause_and_steer()
            await self.queue_inputs()
            await self.background()
        await asyncio.gather(*self.asking, return_exceptions=True)
        self.noted["held"] = sorted(self.script.held)
        self.noted["effects"] = [f"{each['tool']} {each['token']}" for each in self.lines()]

    def lines(self) -> list[Json]:
        return [json.loads(line) for line in self.effects.read_text().splitlines()]

    # --- what is stored and over -------------------------------------------------------------------------------------

    async def store_definitions(self) -> None:
        endpoint: Json = {"method": "POST", "url": f"{self.site.url}/pay/{{threadId}}~{{number}}/0/0"}
        parameters = [{"name": "number", "type": "integer", "required": True}]
        config = {"description": "Pay.", "parameters": parameters, "endpoint": endpoint}
        await self.call("POST", "/v1/tools", {"name": "pay", "config": config})
        endpoint = {"method": "POST", "url": self.peer.url("/ring"), "headers": {"X-Word": "{secret:WORD}"}}
        config = {"description": "Ring.", "endpoint": endpoint}
        await self.call("POST", "/v1/tools", {"name": "ring", "config": config, "secrets": {"WORD": "the word"}})
        for name, definition in definitions().items():
            await self.call("POST", "/v1/agents", {"name": name, "definition": definition})
        old, new = [
            {"definition": {"agents": {"poet": {"prompt": prompt, "model": "talk"}}}, "visibility": "tenant"}
            for prompt in ("You are old.", "You are new.")
        ]
        await self.call("POST", "/v1/agents", {"name": "poet", **old})
        await self.call("PUT", "/v1/agents/poet", new)

    def worlds(self) -> list[str]:
        return [*KINDS, *(f"of_{each}" for each in STRATEGIES), *(f"team_of_{each}" for each in TEAMS)]

    def settle(self, how: str) -> list[Any]:
        """A request to each team, and a task in each mode."""
        chats = [self.chat("Settle it.", f"{how}-{world}", world) for world in self.worlds()]
        tasks = [self.task(f"Settle it [task-{mode}].", f"{how}-task-{mode}", mode) for mode in MODES]
        return [*chats, *tasks]

    async def task(self, text: str, thread: str, mode: str) -> Json:
        body: Json = {"task": text, "mode": mode, "conversation_id": thread}
        if mode != "simple":
            body["tools"] = ["pay"]
        return await self.call("POST", "/api/v1/agent/execute", body)

    async def finish_runs(self) -> None:
        """Each kind of team settles it whole, which tells how often its models are asked."""
        for each in await asyncio.gather(*self.settle("whole")):
            status = each["status"] if "status" in each else each["drsai"]["status"]
            assert status in ("success", "completed"), each
        self.noted["whole"] = dict(self.script.answered)
        self.script.answered.clear()

    async def say_and_keep(self) -> None:
        noted = self.noted
        for text in ("My name is Ada.", "I like rain."):
            await self.chat(text, "told")
        await self.call("POST", "/v1/threads/told/fork", {"at": 2, "thread_id": "forked"})
        for text in ("One.", "Two.", "Three."):
            await self.chat(text, "rewound")
        await self.call("POST", "/v1/threads/rewound/rewind", {"at": 2})
        await self.chat("Four.", "rewound")
        # The newest words are for nobody: it is the history that finds the thread.
        unnamed = await self.chat("Nobody names me.")
        noted["unnamed"] = {"thread": unnamed["thread_id"], "said": unnamed["choices"][0]["message"]["content"]}
        keyed = await self.chat("Do it once.", "keyed", headers={"Idempotency-Key": "k1"})
        noted["keyed"] = {"run": keyed["run_id"], "said": keyed["choices"][0]["message"]["content"]}
        tried = await self.chat("Try it.", "tried", headers={"x-stainless-retry-count": "0"})
        noted["tried"] = tried["run_id"]
        await self.chat("Keep this answer.", "kept", "cached")
        await self.chat("A poem.", "poem", "poet")
        noted["file"] = await self.upload("notes.txt", b"The notes of Ada.\n")
        noted["long_file"] = await self.upload("long.txt", b"0123456789abcdef" * 40_000)
        for right, thread in (("read", "told"), ("write", "forked")):
            grantee = {"with_user": "bob"} if right == "read" else {"with_role": "treasurer"}
            await self.call("POST", f"/v1/threads/{thread}/shares", {**grantee, "right": right})
        first = await self.call(
            "POST", "/v1/responses", {"model": "talk", "input": "Answer me.", "metadata": {"a": "b"}}
        )
        second = await self.call(
            "POST", "/v1/responses", {"model": "talk", "input": "And now?", "previous_response_id": first["id"]}
        )
        noted["responses"] = [first["id"], second["id"]]
        items = [{"type": "message", "role": "user", "content": "I speak first."}]
        made = await self.call("POST", "/v1/conversations", {"metadata": {"topic": "rain"}, "items": items})
        body = {"model": "talk", "input": "Do you hear?", "conversation": made["id"]}
        spoken = await self.call("POST", "/v1/responses", body)
        noted["conversation"] = {"id": made["id"], "response": spoken["id"]}
        loaded = [{"role": "user", "content": "Old words."}, {"role": "assistant", "content": "Old answer."}]
        await self.call("POST", "/v1/threads/loaded/history", {"model": "talk", "messages": loaded})

    async def upload(self, name: str, content: bytes) -> str:
        files = {"file": (name, content, "text/plain"), "purpose": (None, "user_data")}
        made = await self.call("POST", "/v1/files", files=files)
        return made["id"]

    # --- what waits --------------------------------------------------------------------------------------------------

    async def wait_for_people(self) -> None:
        noted = self.noted
        await self.chat("Wire it.", "approval")
        await self.chat("Wire it too.", "denial")
        await self.chat("Ask me.", "question")
        await self.chat("Hello.", "person", "person")
        tools = [{"type": "function", "function": {"name": "look", "parameters": LOOK}}]
        called = await self.chat("Look at it.", "looks-chat", tools=tools)
        [call] = called["choices"][0]["message"]["tool_calls"]
        noted["look_chat"] = call["id"]
        flat = [{"type": "function", "name": "look", "parameters": LOOK}]
        called = await self.call("POST", "/v1/responses", {"model": "talk", "input": "Look at it.", "tools": flat})
        [item] = [each for each in called["output"] if each["type"] == "function_call"]
        noted["look_responses"] = {"response": called["id"], "call": item["call_id"]}
        schema = [{"name": "look", "input_schema": LOOK}]
        called = await self.messages("Look at it.", "looks-messages", tools=schema)
        [block] = [each for each in called["content"] if each["type"] == "tool_use"]
        noted["look_messages"] = block["id"]

    async def messages(self, text: str, thread: str, **values: Any) -> Json:
        body = {"model": "talk", "max_tokens": 100, "messages": [{"role": "user", "content": text}], **values}
        return await self.call("POST", "/v1/messages", body, headers={"X-Thread-Id": thread})

    # --- what is cut -------------------------------------------------------------------------------------------------

    async def cut_runs(self) -> None:
        """Each has paid once, and its model thinks about the next payment; a tool is under way."""
        for call in self.settle("cut"):
            self.ask(call)
        self.ask(self.chat("Dig.", "digs"))
        self.ask(self.chat("Hold and repeat.", "cut-keyed", headers={"Idempotency-Key": "k2"}))
        expected = {*self.worlds(), *(f"task-{mode}" for mode in MODES), "Hold and repeat."}
        await self.until(lambda: expected <= self.script.held and any(each["tool"] == "dig" for each in self.lines()))
        self.noted["asked"] = dict(self.script.answered)

    async def pause_and_steer(self) -> None:
        """One run is paused, another is to be; and to one a word is said, for its next speaker."""
        self.script.paused = False
        self.ask(self.chat("Pause.", "paused", "pair"))
        await self.until(lambda: self.is_thread("paused", "running"))
        await self.call("POST", "/v1/threads/paused/pause", {})
        self.script.paused = True
        await self.until(lambda: self.is_thread("paused", "paused"))
        for text, thread in (("Hold and pause.", "pausing"), ("Hold and listen.", "steered")):
            self.ask(self.chat(text, thread, "pair"))
        await self.until(lambda: {"Hold and pause.", "Hold and listen."} <= self.script.held)
        await self.call("POST", "/v1/threads/pausing/pause", {})
        self.ask(self.chat("Be brief.", "steered", "pair", on_busy="steer"))
        await self.until(lambda: self.of_thread("steered", "queued") == 1)

    async def queue_inputs(self) -> None:
        """On a thread whose run is live; one after the other, so that their order is known."""
        self.ask(self.chat("Hold the line.", "busy"))
        await self.until(lambda: "Hold the line." in self.script.held)
        number = 0

        async def queue(call: Any) -> None:
            nonlocal number
            number += 1
            self.ask(call)
            await self.until(lambda: self.of_thread("busy", "queued") == number)

        image = [
            {"type": "text", "text": "By chat."},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        ]
        await queue(self.chat(image, "busy", temperature=0.5))
        await queue(
            self.call("POST", "/v1/responses", {"model": "talk", "input": "By responses.", "conversation": "busy"})
        )
        await queue(self.messages("By messages.", "busy"))
        background = await self.chat("By background.", "busy", background=True)
        self.noted["queued_background"] = background["id"]
        number += 1
        # The same database, the same teams, and a program without HTTP.
        url, key = self.environment["OPENAI_BASE_URL"], SecretStr("k")
        settings = Settings(_env_file=None, openai_base_url=url, openai_api_key=key, secret_key=SecretStr("test"))
        async with DrSai(teams, self.database_url, settings=settings) as drsai:
            await queue(drsai.start("talk", "By Python.", user_id="ada", thread_id="busy"))
        self.ask(self.task("Settle it [task-tools], too.", "cut-task-tools", "tools"))
        await self.until(lambda: self.of_thread("cut-task-tools", "queued") == 1)

    def of_thread(self, thread: str, column: str) -> Any:
        """A column of a thread's row."""
        statement = f"SELECT {column} FROM thread WHERE thread_id = '{thread}'"
        if not self.database_url.startswith("sqlite"):
            rows = postgres.query(self.database_url, statement)
        else:
            with closing(sqlite3.connect(self.database_url.removeprefix("sqlite:///"))) as connection:
                rows = connection.execute(statement).fetchall()
        return rows[0][0] if rows else None

    def is_thread(self, thread: str, status: str) -> bool:
        return self.of_thread(thread, "status") == status

    async def background(self) -> None:
        """A response that is cut, and one, and a chat's run, that have ended, of which nobody could be told."""
        made = await self.call("POST", "/v1/webhooks/secret")
        self.noted["webhook_secret"] = made["secret"]
        url = self.peer.url("/over")
        body = {"model": "talk", "input": "Answer and tell.", "background": True, "webhook_url": url}
        response = await self.call("POST", "/v1/responses", body)
        run = await self.chat("Run and tell.", "telling", background=True, webhook_url=url)
        await self.until(lambda: len(self.peer.told) == 2)
        async with asyncio.timeout(60):
            while [each["status_code"] for each in await self.deliveries()] != [500, 500]:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.1)
        self.noted["told_of"] = [response["id"], run["id"]]
        body = {
            "model": "talk",
            "input": "Hold this response.",
            "background": True,
            "webhook_url": self.peer.url("/held"),
        }
        self.noted["held_response"] = (await self.call("POST", "/v1/responses", body))["id"]
        await self.until(lambda: "Hold this response." in self.script.held)

    async def deliveries(self) -> list[Json]:
        return (await self.call("GET", "/v1/webhooks/deliveries"))["data"]


# --- as text ---------------------------------------------------------------------------------------------------------


def neutral(text: str, recorder: Recorder) -> str:
    """Without the machine's name, and with words in place of the ports of what it called."""
    text = text.replace(recorder.site.url, "http://127.0.0.1:SITE").replace(
        f"127.0.0.1:{recorder.peer.port}", "127.0.0.1:PEER"
    )
    return re.sub(rf"\b{re.escape(socket.gethostname())}/[0-9a-f]+/\d+:\d+:\d+:", "recorder/0/0:1:1:", text)


def dump_sqlite(url: str) -> str:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    text = "\n".join(connection.iterdump()) + "\n"
    connection.close()
    return text


def dump_postgres(url: str) -> str:
    """Rows as COPY writes them, tables after those that they refer to."""
    parts: list[str] = []
    with postgres.connect(url) as connection:
        own = migrations.own_tables()
        tables = [each.name for each in SQLModel.metadata.sorted_tables if each.name in own]
        for table in [*tables, JOBS]:
            query = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
            names = [name for (name,) in connection.execute(query, [table]).fetchall()]
            names = [f'"{name}"' for name in names if (table, name) != (JOBS, "worker_id")]
            with connection.cursor().copy(f"COPY {table} ({', '.join(names)}) TO STDOUT") as copy:
                rows = b"".join(map(bytes, copy)).decode()
            if rows:
                parts.append(f"COPY {table} ({', '.join(names)}) FROM STDIN;\n{rows}\\.\n")
        found = connection.execute(
            "SELECT schemaname, sequencename, last_value FROM pg_sequences WHERE last_value IS NOT NULL"
        ).fetchall()
        parts += [f"SELECT setval('{schema}.{name}', {last});\n" for schema, name, last in sorted(found)]
    return "".join(parts)


@contextmanager
def database(kind: str, folder: Path) -> Generator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'drsai.db'}"
        return
    with postgres.own_server() as server, postgres.Databases(server.get_uri()).empty() as url:
        yield url


def main(kinds: list[str]) -> None:
    for kind in kinds:
        with tempfile.TemporaryDirectory() as name, ModelServer() as model, Peer(lambda _: 500) as peer:
            folder = Path(name)
            with database(kind, folder) as url, Site(folder / "effects") as site:
                migrations.upgrade(url)
                recorder = Recorder(url, folder, model, site, peer)
                asyncio.run(recorder.record())
                text = dump_sqlite(url) if kind == "sqlite" else dump_postgres(url)
                if kind == "sqlite":
                    recorder.command(
                        "threads", "export", "told", "--user", "ada", "--output", str(HERE / "told.thread")
                    )
            packed = gzip.compress(neutral(text, recorder).encode(), mtime=0)
            (HERE / f"{kind}.sql.gz").write_bytes(packed)
            (HERE / "noted" / f"{kind}.json").write_text(json.dumps(recorder.noted, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:] or ["sqlite", "postgresql"])
