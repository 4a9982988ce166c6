"""Secrets are planted everywhere they can come in, everything happens that can happen to them, and they are looked for
everywhere they must not be: the database, its files, exports, answers, logs and the list of processes."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import jwt
import psutil
import pytest
import sqlalchemy as sa
import zstandard

from drsai_backend.access.keys import make_key
from drsai_backend.database import migrations
from tests.support.commands import Command, Commands, clean_environment
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply
from tests.support.peer import Peer
from tests.support.plants import Plants

ISSUER, AUDIENCE = "https://login.example.org", "drsai"
TEAMS = """
import logging
from drsai_backend import AssistantAgent

def parrot(context):
    return AssistantAgent("parrot", context.model_client())

def careless(context):
    raise ValueError("no login with " + context.api_key.get_secret_value())

def webhook(context):
    url = "https://bot:{in_url}@hooks.example.org/x"
    logging.getLogger("mine").warning("hook %s", url, extra={{"assertion": "{jwt}"}})
    raise OSError(url + " refused {{'Authorization': 'Bearer {bearer}'}}")

config = {{
    "provider": "autogen_agentchat.agents.AssistantAgent",
    "config": {{
        "name": "parrot",
        "description": "Of a component config.",
        "model_client": {{
            "provider": "autogen_ext.models.openai.OpenAIChatCompletionClient",
            "config": {{"model": "gpt-4o", "api_key": "{in_config}", "base_url": "{config_url}", "max_retries": 0}},
        }},
    }},
}}
teams = {{"parrot": parrot, "careless": careless, "webhook": webhook, "config": config}}
"""


class World:
    """A server with secrets in its settings, its teams and its clients; and all that was seen of it."""

    def __init__(self, commands: Commands, folder: Path, url: str, form: str, model: ModelServer) -> None:
        self.plants = plant = Plants()
        self.commands, self.folder, self.url, self.model = commands, folder, url, model
        self.shown: dict[str, str] = {}
        self.started: list[Command] = []
        level = {"json": "INFO", "console": "DEBUG"}[form]
        self.environment = {
            "DRSAI_DATABASE_URL": url,
            "DRSAI_SECRET_KEY_OLD": f"{plant('old secret key')},{plant('older secret key')}",
            "DRSAI_JWT_ISSUER": ISSUER,
            "DRSAI_JWT_AUDIENCE": AUDIENCE,
            "DRSAI_JWT_SECRET": plant("shared secret of tokens", "Zq-shared-" + "s" * 30),
            "OPENAI_API_KEY": plant("the server's model key"),
            "OPENAI_BASE_URL": model.base_url,
            "DRSAI_MODEL_MAX_RETRIES": "0",
            "DRSAI_LOG_FORMAT": form,
            "DRSAI_LOG_LEVEL": level,
            "DRSAI_ALLOWED_ADDRESSES": "127.0.0.1",
        }
        if url.startswith("postgresql"):
            self.environment["DRSAI_SECRET_KEY"] = plant("secret key")
            with_password = sa.make_url(url).set(password=plant("database password", "Zqplantedpassword"))
            self.environment["DRSAI_DATABASE_URL"] = with_password.render_as_string(hide_password=False)
        config_url = model.base_url.replace("//", f"//bot:{quote(plant('password in a URL'), safe='')}@")
        teams = TEAMS.format(
            in_url=quote(plant("password in a webhook's URL"), safe=""),
            in_config=plant("key in a component config"),
            config_url=config_url,
            bearer=plant("somebody's bearer token"),
            jwt=self.token("logged by a team", sub="x"),
        )
        (folder / "teams.py").write_text(teams)

    def token(self, name: str, *, secret: str | None = None, **claims: Any) -> str:
        now = int(time.time())
        payload = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600, **claims}
        made = jwt.encode(payload, secret or self.environment["DRSAI_JWT_SECRET"], algorithm="HS256")
        return self.plants(f"token {name}", made)

    def serve(self, *options: str) -> Command:
        server = self.start("serve", "teams.py", "--port", "0", "--access-log", *options)
        self.address = server.base_url()
        return server

    def look_at_processes(self) -> None:
        """At a server that was not forked, as the others are, and at the database's sessions."""
        command = [sys.executable, "-m", "drsai_backend", "serve", "teams.py", "--port", "0"]
        environment = clean_environment(**self.environment)
        with subprocess.Popen(command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                assert "serves" in server.stdout.readline()
                processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
                self.shown["list of processes"] = "\n".join(f"{each.name()} {each.cmdline()}" for each in processes)
                if self.url.startswith("postgresql"):
                    with migrations.connecting(self.url) as connection:
                        sessions = connection.execute(sa.text("SELECT * FROM pg_stat_activity")).all()
                    self.shown["sessions of the database"] = "\n".join(map(str, sessions))
            finally:
                server.kill()

    def start(self, *arguments: str, **environment: str) -> Command:
        command = self.commands.start(*arguments, cwd=self.folder, env={**self.environment, **environment})
        self.started.append(command)
        return command

    def run(self, *arguments: str, code: int = 0, **environment: str) -> str:
        command = self.start(*arguments, **environment)
        assert command.wait() == code, command.stderr
        return command.stdout

    def ask(
        self,
        status: int,
        text: str = "Hello.",
        *,
        model: str = "parrot",
        key: str | None = None,
        headers: dict[str, Any] | None = None,
        path: str = "/chat/completions",
        content: str | None = None,
        **fields: Any,
    ) -> httpx.Response:
        body: Any = {"model": model, "messages": [{"role": "user", "content": text}], **fields}
        named = {"Authorization": f"Bearer {key or self.key}", **(headers or {})}
        sent: dict[str, Any] = {"json": body} if content is None else {"content": content}
        if content is not None:
            named["content-type"] = "application/json"
        encoded = [(name.encode(), str(value).encode()) for name, value in named.items()]
        response = httpx.post(self.address + path, headers=encoded, timeout=20, **sent)
        number = len(self.shown)
        assert response.status_code == status, f"{number}: {response.text}"
        self.shown[f"answer {number}"] = f"{response.headers} {response.text}"
        return response

    def get(self, path: str, status: int = 200) -> Any:
        headers = {"Authorization": f"Bearer {self.key}"}
        response = httpx.get(self.address + path, headers=headers, timeout=20)
        assert response.status_code == status, response.text
        self.shown[f"answer of {path.partition('?')[0]}"] = f"{response.headers} {response.text}"
        return response.json()

    def is_settled(self, thread_id: str) -> bool:
        thread = self.get(f"/threads/{thread_id}")
        return thread["status"] not in ("running", "created") and not thread["queued"]

    @property
    def key(self) -> str:
        return self.plants.found["API key"]

    def read(self, path: str) -> str:
        """A stream of events, to its end."""
        headers = {"Authorization": f"Bearer {self.key}"}
        response = httpx.get(self.address + path, headers=headers, timeout=20)
        assert response.status_code == 200, response.text
        return response.text

    def places(self) -> dict[str, str]:
        """All that a secret could be in, by name."""
        places = dict(self.shown)
        for number, command in enumerate(self.started):
            places |= {f"output {number}": command.stdout, f"log {number}": command.stderr}
        with migrations.connecting(self.url) as connection:
            for table in sa.inspect(connection).get_table_names():
                places[f"table {table}"] = str(connection.execute(sa.text(f'SELECT * FROM "{table}"')).all())
            if connection.dialect.name == "postgresql":
                segments = "SELECT pg_read_binary_file('pg_wal/' || name) FROM pg_ls_waldir()"
                wal = connection.scalars(sa.text(f"{segments} ORDER BY modification DESC LIMIT 2"))
                places["write-ahead log"] = "".join(bytes(each).decode("latin-1") for each in wal)
        for file in self.folder.glob("drsai.db*"):
            if file.name != "drsai.db.key":
                places[file.name] = file.read_bytes().decode("latin-1")
        return places

    def leaks(self) -> dict[str, list[str]]:
        """Where which secrets are, that must be nowhere: by the lines that have them."""
        places = {place: text for place, text in self.places().items() if self.plants.seen_in(text)}
        lines = (
            (f"{place}: {line[:2000]}", self.plants.seen_in(line))
            for place in places
            for line in places[place].split("\n")
        )
        return {place: seen for place, seen in lines if seen}


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not met():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def answer(request: ModelRequest) -> Any:
    """An endpoint that repeats the key it was sent, when it fails."""
    key = request.headers.get("authorization", "")
    echoed = f"Incorrect API key provided: {request.api_key}. {key!r} {base64.b64encode(key.encode()).decode()}"
    words = {
        "refused": Failure(401, echoed, "invalid_api_key"),
        "limited": Failure(429, echoed),
        "broken": Failure(500, echoed, headers={"x-key": request.api_key}),
        "odd": Failure(400, echoed),
    }
    return next((made for word, made in words.items() if word in request.last), "Said.")


@pytest.mark.parametrize(("form", "fixture"), [("console", "migrated_sqlite"), ("json", "migrated_postgres")])
def test_no_secret_is_anywhere(
    commands: Commands, tmp_path: Path, request: pytest.FixtureRequest, form: str, fixture: str
) -> None:
    with ModelServer(answer) as model:
        world = World(commands, tmp_path, request.getfixturevalue(fixture), form, model)
        use(world)
        leaks = world.leaks()
    if fixture == "migrated_sqlite":
        key_file = (tmp_path / "drsai.db.key").read_text().strip()
        assert not [place for place, text in world.shown.items() if key_file in text]
    assert len(world.plants.found) >= 20
    assert leaks == {}
    # Each place was there to be searched, and what is in it is found: these are no secrets.
    places = world.places()
    for text, found_in in EVERYWHERE.items():
        in_them = {re.sub(r" \d+$", "", place) for place in places if text in places[place]}
        assert in_them >= {*found_in.split(", ")} - {"drsai.db", "drsai.db-wal before"}
    if fixture == "migrated_sqlite":
        written = {place for place in places if "All of this is stored." in places[place]}
        assert written & {"drsai.db", "drsai.db-wal"}
        assert "drsai.db-wal before" in written
    else:
        assert "All of this is stored." in places["write-ahead log"]


EVERYWHERE = {
    "All of this is stored.": "table autogenmessage, answer of /threads/t/messages, export of t, output, events of t",
    "/v1/chat/completions": "log",
    "Traceback": "log",
    "teams.py": "list of processes",
    "invalid_api_key": "answer",
}
"""By texts that are no secrets: the places where they are."""


def tell_a_webhook(world: World) -> None:
    """Two secrets sign what a peer refuses: each is shown once, where it was made."""
    for name in ("webhook secret", "webhook secret after it"):
        made = world.commands.run("webhooks", "secret", "--user", "ann", cwd=world.folder, env=world.environment)
        world.plants(name, re.findall(r"whsec_([\w+/=]+)", made.stdout)[0])
        world.shown[f"log of {name}"] = made.stderr
    with Peer(lambda _: 410) as peer:
        world.ask(202, thread_id="told", background=True, webhook_url=peer.url())
        until(lambda: [each["state"] for each in world.get("/webhooks/deliveries")["data"]] == ["given_up"])
        assert len(peer.told[0].headers["webhook-signature"].split(" ")) == 2
    world.run("webhooks", "list", "--user", "ann", "--json")


def use(world: World) -> None:
    plant, ask = world.plants, world.ask
    # What is made or told once is where it has to be.
    for name in ("API key", "revoked key"):
        made = world.commands.run("keys", "add", "--user", "ann", cwd=world.folder, env=world.environment)
        plant(name, made.stdout.strip())
        world.shown[f"log of {name}"] = made.stderr
        if name == "revoked key":
            world.run("keys", "remove", re.findall(r"key_\w+", made.stderr)[0])
    server = world.serve()

    header, in_body = plant("key in the header"), plant("key in the body")
    ask(200, "All of this is stored.", thread_id="t", headers={"X-Model-Api-Key": header})
    ask(200, thread_id="t", api_key=in_body, stream=True)
    ask(200, key=world.token("that is valid"))
    assert [each.api_key for each in world.model.requests[:2]] == [header, in_body]
    tell_a_webhook(world)

    # Refused before anything is done.
    for bad in (plant("revoked key"), plant("unknown key", make_key()), plant("no key at all")):
        ask(401, key=bad)
        ask(401, headers={"Authorization": "", "x-api-key": bad})
    ask(401, key=plant("mistyped key", world.key[:-1] + ("y" if world.key.endswith("x") else "x")))
    ask(401, key=world.token("that is expired", exp=1))
    ask(401, key=world.token("that is forged", secret=plant("secret of a forger", "Zq-forged-" + "f" * 30)))
    ask(401, key=jwt.encode({"sub": plant("claim of a token without signature")}, "", algorithm="none"))
    basic = base64.b64encode(plant("basic password").encode()).decode()
    ask(401, headers={"Authorization": f"Basic {basic}"})
    ask(401, key="", headers={"Cookie": f"session={plant('cookie')}", "Authorization": ""})
    ask(400, headers={"X-Model-Api-Key": plant("one of two keys")}, api_key=plant("the other of two keys"))
    ask(400, headers={"X-Model-Api-Key": plant("header with another alphabet") + "ключ"})
    ask(400, headers={"X-Model-Api-Key": plant("header with a space") + " two"})
    ask(400, api_key=plant("body with a line end") + "\ntwo")
    ask(400, api_key=[plant("key in a list")], temperature=9)
    ask(400, api_key={"key": plant("key in an object")})
    ask(400, api_key=plant("key beside what is wrong"), temperature=9, tools=[{"type": "function"}])
    ask(400, content='{"model": "parrot", "api_key": "' + plant("key in broken JSON") + '"')
    ask(400, path=f"/chat/completions?api_key={quote(plant('key in the query'), safe='')}")
    world.get(f"/threads?access_token={quote(plant('token in the query'), safe='')}", 400)
    world.get(f"/threads?q={quote(plant('something in the query'), safe='')}", 400)

    # Failures of endpoints and factories that repeat what they were given.
    failures = [("refused", 424), ("limited", 424), ("broken", 424), ("odd", 424)]
    for number, (word, status) in enumerate(failures):
        secret = plant(f"key that is echoed {number}")
        ask(status, word, thread_id=f"echo{number}", api_key=secret)
        ask(status, word, thread_id=f"echo{number}", stream=False)
        ask(200, word, thread_id=f"stream{number}", headers={"X-Model-Api-Key": secret}, stream=True)
    ask(200, model="config", thread_id="config")
    ask(424, "refused", model="config", thread_id="config")
    ask(500, model="careless", headers={"X-Model-Api-Key": plant("key that a factory repeats")})
    ask(500, model="webhook")

    # A process that dies with a run under way and another input in the queue; both have keys of their own.
    world.model.script(None, lambda _: Reply(hang=True))
    before = len(world.model.requests)
    live, queued = plant("key of a live run"), plant("key of a queued input")
    ask(202, thread_id="killed", headers={"X-Model-Api-Key": live}, background=True)
    while len(world.model.requests) == before:
        time.sleep(0.01)
    ask(202, thread_id="killed", api_key=queued, background=True)
    world.shown |= {f"{file.name} before": file.read_bytes().decode("latin-1") for file in world.folder.glob("*.db-*")}
    server.die()
    world.model.script(None, answer)
    before = len(world.model.requests)
    server = world.serve()
    until(lambda: world.is_settled("killed"))
    assert world.get("/threads/killed")["status"] == "completed"
    assert [each.api_key for each in world.model.requests[before:]] == [live, queued]

    world.look_at_processes()

    # What others may read.
    for path in ("/threads", "/threads/t", "/threads/t/messages", "/runs", "/models", "/threads/echo0/messages"):
        world.get(path)
    for thread_id in ("t", "killed", "echo0", "config", "stream0"):
        for run in world.get(f"/threads/{thread_id}/runs")["data"]:
            text = world.read(f"/runs/{run['id']}/events")
            world.shown[f"events of {thread_id}"] = world.shown.get(f"events of {thread_id}", "") + text
    for thread_id in ("t", "killed", "echo0", "config"):
        world.run("threads", "export", thread_id, "--user", "ann", "--output", "exported")
        exported = (world.folder / "exported").read_bytes()
        body = zstandard.ZstdDecompressor().decompress(exported[54:])
        world.shown[f"export of {thread_id}"] = (exported[:54] + body).decode("latin-1")
        world.run("threads", "show", thread_id, "--user", "ann", "--json")
        has_state = thread_id != "echo0"
        world.run("threads", "state", thread_id, "--user", "ann", "--decoded", code=0 if has_state else 1)
    for arguments in (("keys", "list"), ("audit",), ("users", "list")):
        world.run(*arguments, "--json")

    # Settings and teams that cannot be used are said without what they hold.
    for name, value in (
        ("OPENAI_API_KEY", plant("key of the settings with a space") + " two"),
        ("OPENAI_BASE_URL", f"http://bot:{plant('password of the endpoint')}@127.0.0.1/v1"),
        ("DRSAI_JWT_SECRET", plant("short secret", "Zq-short-secret")),
        ("DRSAI_DATABASE_URL", f"mysql://u:{plant('password of another database', 'Zqpasswordmysql')}@h/d"),
        ("DRSAI_JWT_KEYS", f"https://bot:{plant('password of a key set', 'Zqpasswordkeys')}@login.example.org/"),
    ):
        world.run("serve", "teams.py", "--port", "0", code=1, **{name: value})
    broken = "teams:\n  a:\n    provider: autogen_agentchat.agents.AssistantAgent\n    config: {api_key: %s, name: 3}\n"
    (world.folder / "broken.yaml").write_text(broken % plant("key in a broken file"))
    world.run("serve", "broken.yaml", "--port", "0", code=1)
    server.die()
