"""Two databases with two servers each behind the router of `deploy/sharded`: a tenant moves while clients of two chat
with one base URL, and nobody loses a message, sees another's, or is refused but the one that moves."""

from __future__ import annotations

import asyncio
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import jwt
import openai
import pytest
import yaml
from websockets.sync.client import connect

from tests.cli.test_serve_websocket import turn
from tests.crash.conftest import TEAMS
from tests.crash.test_backup import until
from tests.jobs.test_poolers import of
from tests.support import invariants, postgres
from tests.support.commands import ROOT, Command, Commands, clean_environment
from tests.support.issuer import AUDIENCE, ISSUER, all_claims
from tests.support.model_server import ModelRequest, ModelServer
from tests.support.poolers import HAPROXY, running

SHARDED = ROOT / "deploy/sharded"
CONFIGURATION = (SHARDED / "haproxy.cfg").read_text("utf-8")
SERVERS = re.findall(r"^    server \w+ (\w+):8000 ", CONFIGURATION, re.MULTILINE)
SECRET = "what the tests and the issuer know, and nobody else"
REFUSED = (503, "switched_off")


def configured(folder: str, bound: str, servers: Sequence[str]) -> str:
    """The router's configuration as it is shipped, but for where it listens, its folder and its servers' addresses."""
    text = CONFIGURATION
    changed = {":8443 ssl crt /var/lib/router/drsai.pem alpn h2,http/1.1": bound}
    changed |= {f" {name}:8000 ": f" {address} " for name, address in zip(SERVERS, servers, strict=True)}
    for shipped, ours in changed.items():
        assert text.count(shipped) == 1, shipped
        text = text.replace(shipped, ours)
    return text.replace("/var/lib/router/", f"{folder}/")


class Sharded:
    """The router, its databases by the names of their servers, and the program that keeps its directory."""

    def __init__(self, commands: Commands, folder: Path, databases: dict[str, str], model: ModelServer) -> None:
        self._commands, self._folder = commands, folder
        self.databases = databases
        self.maps = Path()
        self.url = ""
        self._addresses = list[str]()
        self._settings = {
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": "unused",
            "CHAOS_TOOLS": str(folder / "effects"),
            "DRSAI_SECRET_KEY": "the secret of both",
            "DRSAI_AUTH": "required",
            "DRSAI_JWT_ISSUER": ISSUER,
            "DRSAI_JWT_AUDIENCE": AUDIENCE,
            "DRSAI_JWT_SECRET": SECRET,
            "DRSAI_JWT_TENANT_CLAIM": "tenant",
        }

    @contextmanager
    def serving(self) -> Iterator[None]:
        """The servers and the router, as long as they are used."""
        started = [
            self._commands.start(
                "serve",
                str(TEAMS),
                "--port",
                "0",
                cwd=self._folder,
                env=self._settings | {"DRSAI_DATABASE_URL": self.databases[name[:-1]]},
            )
            for name in SERVERS
        ]
        self._addresses = [httpx.URL(each.base_url(120)).netloc.decode() for each in started]
        # The path of a socket has at most a hundred characters.
        with tempfile.TemporaryDirectory(prefix="drsai-router-", dir="/tmp") as folder:
            self.maps = Path(folder)
            (self.maps / "tenants.map").write_bytes((SHARDED / "tenants.map").read_bytes())
            (self.maps / "keys.map").touch()
            with self.routing():
                yield

    @contextmanager
    def routing(self) -> Iterator[None]:
        """A router that has just been started, in place of the one before."""

        def configuration(port: int) -> str:
            return configured(str(self.maps), f"127.0.0.1:{port}", self._addresses)

        with running([str(HAPROXY), "-f"], "haproxy.cfg", configuration) as port:
            self.url = f"http://127.0.0.1:{port}/v1"
            yield

    def make_key(self, tenant: str, shard: str) -> str:
        """A key of ada's."""
        made = ("keys", "add", "--tenant", tenant, "--user", "ada", "--database-url", self.databases[shard])
        done = self._commands.start(*made, cwd=self._folder, env=self._settings)
        assert done.wait(60) == 0, done.stderr
        return done.stdout.strip()

    def start(self, *words: str) -> Command:
        """Start `route.py WORDS`."""
        shards = " ".join(f"{name}={url}" for name, url in self.databases.items())
        env = clean_environment(**self._settings, SHARDS=shards, ROUTER=str(self.maps))
        return self._commands.program(str(SHARDED / "route.py"), *words, cwd=self._folder, env=env)

    def route(self, *words: str) -> None:
        """Do `route.py WORDS`."""
        done = self.start(*words)
        assert done.wait(120) == 0, done.stderr

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers=headers, timeout=60)

    def run_later(self, key: str, thread: str) -> None:
        """Begin a run that no client waits for."""
        body = {"model": "solo", "messages": [{"role": "user", "content": f"{thread} on"}], "thread_id": thread}
        headers = {"authorization": f"Bearer {key}"}
        httpx.post(
            f"{self.url}/chat/completions", json=body | {"background": True}, headers=headers, timeout=60
        ).raise_for_status()

    def texts(self, key: str, thread: str) -> list[str]:
        """What is stored of a thread, page by page."""
        found, after = list[str](), 0
        while True:
            answer = self.get(f"/threads/{thread}/messages?after={after}", authorization=f"Bearer {key}")
            page: dict[str, Any] = answer.raise_for_status().json()
            found += [item["content"] for item in page["data"]]
            if not page["has_more"]:
                return found
            after = page["data"][-1]["seq"]


class Chat(threading.Thread):
    """A client of openai that sends message after message of a thread, each until it is accepted.

    Attributes:
        accepted: its messages that were answered, each with its answer.
        refused: statuses and codes of those that were not.
        failure: what else has happened; that is its end.
    """

    def __init__(self, url: str, key: str, thread: str, *, stream: bool, most: int | None = None) -> None:
        super().__init__(daemon=True)
        self.thread, self.stream, self.most = thread, stream, most
        self.accepted = list[tuple[str, str]]()
        self.refused = set[tuple[int, str | None]]()
        self.failure: Exception | None = None
        self.stopping = threading.Event()
        self._client = openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=120)

    def run(self) -> None:
        with self._client:
            while not self.stopping.is_set() and len(self.accepted) != self.most:
                text = f"{self.thread} says {len(self.accepted)}"
                try:
                    self.accepted.append((text, self._say(text)))
                except openai.APIStatusError as error:
                    self.refused.add((error.status_code, error.code))
                    time.sleep(0.05)
                except Exception as error:  # noqa: BLE001 - the test tells it
                    self.failure = error
                    return

    def _say(self, text: str) -> str:
        chats = self._client.chat.completions
        more: Any = {"model": "solo", "messages": [{"role": "user", "content": text}]}
        more["extra_body"] = {"thread_id": self.thread}
        if not self.stream:
            return chats.create(**more).choices[0].message.content or ""
        pieces = list(chats.create(**more, stream=True))
        assert pieces[-1].choices[0].finish_reason == "stop"
        return "".join(piece.choices[0].delta.content or "" for piece in pieces)


class Model:
    """Says which message of the user's it answers: what a thread has from before is counted. Of threads whose name is
    in `held` it answers when that is no longer so."""

    def __init__(self) -> None:
        self.held, self.asked = set[str](), set[str]()

    async def __call__(self, request: ModelRequest) -> str:
        thread = request.last.partition(" ")[0]
        self.asked.add(thread)
        while thread in self.held:  # noqa: ASYNC110 - the server has a loop of its own
            await asyncio.sleep(0.02)
        return f"{sum(message['role'] == 'user' for message in request.messages)}: {request.last}"


@pytest.fixture
def sharded(
    commands: Commands, model: ModelServer, postgres_databases: postgres.Databases, tmp_path: Path
) -> Iterator[Sharded]:
    with postgres_databases.migrated() as one, postgres_databases.migrated() as two:
        sharded = Sharded(commands, tmp_path, {"one": one, "two": two}, model)
        with sharded.serving():
            yield sharded
            commands.kill()
        for url in (one, two):
            invariants.check(url)


@of(HAPROXY)
def test_a_tenant_moves_while_two_are_served(sharded: Sharded, model: ModelServer) -> None:
    answers = Model()
    model.script(None, answers)
    mine, theirs = sharded.make_key("acme & co", "one"), sharded.make_key("beta", "one")
    sharded.route("keys")

    def chat(name: str, key: str, number: int, most: int | None = None) -> Chat:
        return Chat(sharded.url, key, f"{name}{number}", stream=number % 2 == 0, most=most)

    acme = [chat("acme", mine, number) for number in range(3)]
    beta = [chat("beta", theirs, number) for number in range(3)]
    held = [chat("acme-held", mine, 0, 1), chat("beta-held", theirs, 0, 1)]
    chats = [*acme, *beta, *held]
    answers.held |= {each.thread for each in held}

    def when(true: Callable[[], bool]) -> None:
        until(lambda: true() or any(each.failure for each in chats), 120)
        assert [each.failure for each in chats if each.failure] == []

    def more() -> Callable[[], bool]:
        before = {each: len(each.accepted) for each in [*acme, *beta]}
        return lambda: all(len(each.accepted) >= count + 3 for each, count in before.items())

    for each in chats:
        each.start()
    when(more())
    when(lambda: answers.held <= answers.asked)

    # One of its streams is under way, and then only a run: it is not moved, and nothing is cut.
    answers.held.add("later")
    sharded.run_later(mine, "later")
    when(lambda: "later" in answers.asked)
    moving = sharded.start("move", "acme & co", "one", "two")
    when(lambda: "waiting for" in moving.stdout or not moving.running)
    assert moving.running, moving.stderr
    when(lambda: all(each.refused for each in acme))
    assert held[0].accepted == []
    answers.held.discard(held[0].thread)
    when(lambda: "later is not over: wait" in moving.stdout or not moving.running)
    assert moving.running, moving.stderr
    answers.held.discard("later")
    when(lambda: not moving.running)
    assert moving.wait() == 0, moving.stderr

    when(more())
    for each in [*acme, *beta]:
        each.stopping.set()
    answers.held.clear()  # The other tenant's stream was open all the time.
    for each in chats:
        each.join(120)
    when(lambda: not any(each.is_alive() for each in chats))

    # The one that was moved saw this refusal, and the other none.
    assert set[Any]().union(*(each.refused for each in acme)) == {REFUSED}
    assert [each.refused for each in [*beta, *held] if each.refused] == []
    # Nothing is lost, nothing is there twice, and each thread went on where it was.
    for each in chats:
        assert [answer for _, answer in each.accepted] == [
            f"{number}: {text}" for number, (text, _) in enumerate(each.accepted, 1)
        ]
        key = mine if each.thread.startswith("acme") else theirs
        assert sharded.texts(key, each.thread) == [text for said in each.accepted for text in said]
    assert sharded.texts(mine, "later") == ["later on", "1: later on"]
    # Nobody sees another's, and each database has one of them.
    for key, thread in ((mine, "beta0"), (theirs, "acme0")):
        assert sharded.get(f"/threads/{thread}", authorization=f"Bearer {key}").status_code == 404
    tenants = "SELECT DISTINCT tenant FROM thread"
    assert [postgres.query(url, tenants) for url in sharded.databases.values()] == [[("beta",)], [("acme & co",)]]
    # However a key or token is sent.
    token = jwt.encode(all_claims(sub="ada", tenant="acme & co"), SECRET, "HS256")
    for headers in ({"x-api-key": mine}, {"api-key": mine}, {"authorization": f"bearer {token}"}):
        assert sharded.get("/threads/acme0", **headers).status_code == 200
    forged = jwt.encode(all_claims(sub="ada", tenant="acme & co"), "of somebody else who is not the issuer", "HS256")
    for key in ("sk-drsai-unknown", forged):
        assert sharded.get("/threads/acme0", authorization=f"Bearer {key}").status_code == 401
    assert sharded.get("/threads/acme0").status_code == 401
    assert httpx.get(f"{sharded.url.removesuffix('/v1')}/metrics").status_code == 404
    mine_alone = {"Authorization": f"Bearer {mine}"}
    with connect(f"{sharded.url.replace('http', 'ws', 1)}/responses", additional_headers=mine_alone) as socket:
        assert turn(socket, model="solo", input="socket on")[-1]["type"] == "response.completed"
    # A move that was cut off between its end and the new route is done again, and a router that starts knows of it.
    sharded.route("put", "acme & co", "moving")
    assert sharded.get("/threads/acme0", authorization=f"Bearer {mine}").json()["error"]["code"] == "switched_off"
    sharded.route("move", "acme & co", "one", "two")
    with sharded.routing():
        for key, thread in ((mine, "acme0"), (theirs, "beta0")):
            assert sharded.get(f"/threads/{thread}", authorization=f"Bearer {key}").status_code == 200


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder for a socket, whose path has 97 characters at most."""
    with tempfile.TemporaryDirectory(prefix="drsai-router-", dir="/tmp") as folder:
        yield Path(folder)


@of(HAPROXY)
def test_the_router_takes_its_files(short_path: Path) -> None:
    """When it starts again, it knows what it was told."""
    for name in ("tenants.map", "keys.map"):
        (short_path / name).write_text("# the directory\nacme two\n")
    file = short_path / "haproxy.cfg"
    file.write_text(configured(str(short_path), "127.0.0.1:8443", ["127.0.0.1:8000"] * len(SERVERS)))
    checked = subprocess.run([str(HAPROXY), "-c", "-f", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert checked.stderr == ""


def test_the_router_passes_what_nginx_passes() -> None:
    [nginx] = re.findall(r"location ~ (\S+) {", (ROOT / "deploy/nginx.conf").read_text("utf-8"))
    assert f"unless {{ path_reg {nginx} }}" in CONFIGURATION


def test_compose_has_the_servers_of_the_router() -> None:
    services: dict[str, Any] = yaml.safe_load((SHARDED / "compose.yaml").read_text("utf-8"))["services"]
    assert SERVERS == ["one1", "one2", "two1", "two2"]
    for name in SERVERS:
        shard = name[:-1]
        assert services[name]["environment"]["DRSAI_DATABASE_URL"].endswith(f"@database-{shard}/drsai")
        assert services[name]["depends_on"] == {f"migrate-{shard}": {"condition": "service_completed_successfully"}}
        assert f"{shard}=postgresql://" in services["directory"]["environment"]["SHARDS"]
    for service in services.values():
        mounted = [each.split(":")[0] for each in service.get("volumes", []) if each.startswith("./")]
        assert all(each == "./router" or (SHARDED / each).is_file() for each in mounted)
