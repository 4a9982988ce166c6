"""Who may ask `drsai serve`: what it says of it, where it refuses to start, and which proxies it believes."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from drsai_backend.database import migrations
from drsai_backend.datamodel.access import ApiKey
from tests.support.certificates import self_signed
from tests.support.commands import Command, Commands, clean_environment

EVERYWHERE = ("--host", "0.0.0.0", "--port", "0")


@contextlib.contextmanager
def serving(commands: Commands, folder: Path, *arguments: str, **env: str) -> Iterator[Command]:
    server = commands.start("serve", *arguments, cwd=folder, env=env)
    server.base_url()
    yield server
    server.die()


def make_key(commands: Commands, folder: Path, *more: str, **env: str) -> str:
    return commands.run("keys", "add", "--user", "ann", *more, cwd=folder, env=env).stdout.strip()


def status(server: Command, key: str | None = None) -> int:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.get(server.base_url() + "/threads", headers=headers, timeout=20).status_code


def test_alone_on_loopback_it_is_open_until_a_key_is_made(commands: Commands, tmp_path: Path) -> None:
    with serving(commands, tmp_path, "--port", "0") as server:
        assert re.search(
            r"access +open: nobody needs a key until the first one is made\n +drsai keys add --user NAME makes it\n",
            server.stdout,
        )
        assert "Authorization" not in server.stdout
        assert not {"INSECURE", "CLEAR TEXT"} & set(re.findall(r"[A-Z]+(?: [A-Z]+)?", server.stdout))
        assert status(server) == 200
        key = make_key(commands, tmp_path)
        time.sleep(1)  # so soon the first key is seen in other processes
        assert (status(server), status(server, key)) == (401, 200)
    with serving(commands, tmp_path, "--port", "0") as again:
        assert re.search(r"access +by API key\n +drsai keys add --user NAME makes one\n", again.stdout)
        assert (status(again), status(again, key)) == (401, 200)


def test_what_it_prints_to_try_takes_the_key(commands: Commands, tmp_path: Path) -> None:
    key = make_key(commands, tmp_path)
    with serving(commands, tmp_path, "--port", "0") as server:
        shell = server.stdout[server.stdout.index("curl ") : server.stdout.index("\n\nCtrl-C")]
        environment = clean_environment(DRSAI_API_KEY=key)
        pasted = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True, env=environment)
        assert "Ada" in json.loads(pasted.stdout)["choices"][0]["message"]["content"]


def test_where_a_key_is_required_before_there_is_one(commands: Commands, tmp_path: Path) -> None:
    with serving(commands, tmp_path, *EVERYWHERE, DRSAI_AUTH="required") as server:
        assert "drsai keys add --user NAME makes the first one" in server.stdout
        assert "CLEAR TEXT" in server.stdout
        assert "INSECURE" not in server.stdout
        assert status(server) == 401
        assert status(server, make_key(commands, tmp_path)) == 200


def test_not_on_loopback_a_key_that_was_made_is_enough(commands: Commands, tmp_path: Path, database_url: str) -> None:
    where = {"DRSAI_DATABASE_URL": database_url}
    refused = commands.run("serve", *EVERYWHERE, cwd=tmp_path, env=where)
    assert refused.wait() == 1
    assert "nobody needs a key" in refused.stderr
    assert refused.stderr.count("\n") == 1
    key = make_key(commands, tmp_path, **where)
    with serving(commands, tmp_path, *EVERYWHERE, **where) as server:
        assert "by API key\n" in server.stdout
        assert (status(server), status(server, key)) == (401, 200)
        with migrations.connecting(database_url) as connection:
            connection.execute(sa.delete(ApiKey))  # another database in its place, say
        time.sleep(3)
        assert (status(server), status(server, key)) == (401, 401)


def test_tokens_are_enough_too(commands: Commands, tmp_path: Path) -> None:
    tokens = {
        "DRSAI_JWT_ISSUER": "https://id.example",
        "DRSAI_JWT_AUDIENCE": "drsai",
        "DRSAI_JWT_SECRET": "0123456789abcdef" * 4,
    }
    with serving(commands, tmp_path, *EVERYWHERE, **tokens) as server:
        assert "by API key, or token of https://id.example\n" in server.stdout
        assert status(server) == 401


@pytest.mark.parametrize("has_key", [False, True])
def test_insecure_is_said_only_where_it_is_true(commands: Commands, tmp_path: Path, has_key: bool) -> None:
    if has_key:
        make_key(commands, tmp_path)
    with serving(commands, tmp_path, *EVERYWHERE, "--insecure") as server:
        assert ("INSECURE" in server.stdout) == (not has_key)
        assert "CLEAR TEXT" in server.stdout
        assert status(server) == (401 if has_key else 200)


def test_with_a_certificate_nothing_is_in_clear_text(commands: Commands, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    tls = {"DRSAI_SSL_CERTFILE": str(certificate), "DRSAI_SSL_KEYFILE": str(key)}
    with serving(commands, tmp_path, *EVERYWHERE, DRSAI_AUTH="required", **tls) as server:
        assert "serves https://127.0.0.1:" in server.stdout
        assert "CLEAR TEXT" not in server.stdout


def test_a_gateways_headers_of_somebody_else(commands: Commands, tmp_path: Path) -> None:
    ann = make_key(commands, tmp_path)
    gateway = make_key(commands, tmp_path, "--user", "portal", "--scope", "user", "--scope", "act-as")
    env = {"DRSAI_USER_HEADER": "X-Person"}
    hello = {"model": "assistant", "thread_id": "t", "messages": [{"role": "user", "content": "Hello."}]}
    with serving(commands, tmp_path, "--port", "0", **env) as server:
        for header in ("X-OpenWebUI-User-Email", "X-Person"):
            for key, name in ((ann, f"bob of {header}"), (gateway, f"cid of {header}")):
                headers = {"Authorization": f"Bearer {key}", header: name}
                answer = httpx.post(f"{server.base_url()}/chat/completions", json=hello, headers=headers, timeout=20)
                assert answer.status_code == 200
    listed = [
        json.loads(commands.run("threads", "list", "--user", user, "--json", cwd=tmp_path).stdout)
        for user in ("ann", "portal", "bob of X-Person", "cid of X-Person", "cid of X-OpenWebUI-User-Email")
    ]
    # Where a header is set, Open WebUI's own is one that a gateway may have passed on: the gateway asks as itself.
    assert [len(threads) for threads in listed] == [1, 1, 0, 1, 0]


# --- proxies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trusted", "forwarded", "logged"),
    [
        (None, "203.0.113.7", "127.0.0.1"),
        ("10.1.0.0/16", "203.0.113.7", "127.0.0.1"),
        ("127.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("127.0.0.0/8,10.1.0.0/16", "198.51.100.9, 203.0.113.7, 10.1.2.3", "203.0.113.7"),
    ],
)
def test_only_named_proxies_say_who_the_client_is(
    commands: Commands, tmp_path: Path, trusted: str | None, forwarded: str, logged: str
) -> None:
    """uvicorn by itself believes 127.0.0.1, where every user of the machine is. And FORWARDED_ALLOW_IPS."""
    more = () if trusted is None else ("--forwarded-allow-ips", trusted)
    with serving(commands, tmp_path, "--port", "0", "--access-log", *more, FORWARDED_ALLOW_IPS="*") as server:
        httpx.get(server.base_url() + "/models", headers={"X-Forwarded-For": forwarded, "X-Forwarded-Proto": "https"})
        assert f" {logged}:" in server.stderr
        assert all(f"{each}:" not in server.stderr for each in ("203.0.113.7", "198.51.100.9") if each != logged)


def test_a_proxy_over_a_socket_for_both_is_known_by_its_ipv4(commands: Commands, tmp_path: Path) -> None:
    env = {"DRSAI_TRUSTED_PROXIES": "127.0.0.1", "DRSAI_AUTH": "required"}
    with serving(commands, tmp_path, "--host", "::", "--port", "0", "--access-log", **env) as server:
        url = server.base_url().replace("[::1]", "127.0.0.1") + "/models"
        httpx.get(url, headers={"X-Forwarded-For": "203.0.113.7"})
        assert " 203.0.113.7:" in server.stderr


@pytest.mark.parametrize("named", ["*", "localhost", "10.1.2.3/16", "10.0.0.0/33", "10.0.0.1:80"])
def test_proxies_that_are_no_addresses_are_refused(commands: Commands, tmp_path: Path, named: str) -> None:
    command = commands.run("serve", "--port", "0", "--forwarded-allow-ips", named, cwd=tmp_path)
    assert command.wait() == 2
    assert command.stderr.startswith("Error: --forwarded-allow-ips: must be IP addresses or networks")
    assert command.stderr.count("\n") == 1
