"""`drsai serve` with a certificate: https, and clients that do not speak it as they should."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from tests.support.certificates import self_signed
from tests.support.commands import Command, Commands
from tests.support.model_server import ModelServer, Reply


@contextlib.contextmanager
def serving(commands: Commands, folder: Path, **env: str) -> Iterator[tuple[Command, ssl.SSLContext]]:
    """A server, and what trusts its certificate."""
    certificate, key = self_signed(folder)
    tls = ("--ssl-certfile", str(certificate), "--ssl-keyfile", str(key))
    server = commands.start("serve", "--port", "0", *tls, cwd=folder, env=env)
    assert server.base_url().startswith("https://127.0.0.1:")
    yield server, ssl.create_default_context(cafile=certificate)
    server.die()


def connect(server: Command) -> socket.socket:
    url = urlsplit(server.base_url())
    return socket.create_connection((url.hostname, url.port), timeout=20)


def healthy(server: Command, trusting: ssl.SSLContext) -> bool:
    url = server.base_url().removesuffix("/v1") + "/healthz"
    return httpx.get(url, timeout=20, verify=trusting).json()["status"] == "ok"


def test_https_serves_streams_to_openais_client(commands: Commands, tmp_path: Path) -> None:
    with serving(commands, tmp_path) as (server, trusting):
        http = httpx.Client(verify=trusting)
        with openai.OpenAI(base_url=server.base_url(), api_key="unused", max_retries=0, http_client=http) as client:
            stream = client.chat.completions.create(
                model="writers", messages=[{"role": "user", "content": "Write about rain."}], stream=True
            )
            assert "**writer**" in "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(server.base_url() + "/models")
        assert "CLEAR TEXT" not in server.stdout


def test_the_chat_talks_to_a_certificate_that_it_trusts(commands: Commands, tmp_path: Path) -> None:
    with serving(commands, tmp_path) as (server, _):
        ask = ("chat", "--base-url", server.base_url())
        trusting = {"SSL_CERT_FILE": str(tmp_path / "certificate.pem")}
        command = commands.run(*ask, cwd=tmp_path, stdin="My name is Ada.\n", env=trusting)
        assert "Nice to meet you, Ada" in command.stdout
        refused = commands.run(*ask, cwd=tmp_path, stdin="Hello.\n")
        assert refused.wait() == 1
        assert "SSL_CERT_FILE" in refused.stderr
        assert refused.stderr.count("\n") == 1


def test_what_is_no_tls_harms_nobody(commands: Commands, tmp_path: Path) -> None:
    with serving(commands, tmp_path) as (server, trusting):
        plain = server.base_url().replace("https:", "http:") + "/models"
        for _ in range(3):
            with pytest.raises(httpx.TransportError):
                httpx.get(plain)
            for garbage in (b"", b"\x16", b"\x00" * 4096, b"\x16\x03\x01\xff\xff" + b"\xff" * 4096):
                with connect(server) as client, contextlib.suppress(ConnectionError):
                    client.sendall(garbage)
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(4096):
                        pass
            assert healthy(server, trusting)
        assert "Traceback" not in server.stderr
        assert server.stderr.count("a client does not speak TLS as this server does: HTTP_REQUEST") == 1
        assert server.stderr.count("\n") < 10


def test_a_handshake_has_its_time_and_blocks_nobody(commands: Commands, tmp_path: Path) -> None:
    with serving(commands, tmp_path, DRSAI_HEADER_SECONDS="1") as (server, trusting), contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in range(100)]
        silent[0].sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of one
        assert healthy(server, trusting)
        for client in silent:
            with contextlib.suppress(ConnectionError):
                assert client.recv(1) == b""
        # A client that is itself held up for a second has begun no request, and is cut without a word: then again.
        assert any(begun(server, trusting) == b"HTTP/1.1 408" for _ in range(5))
        # A machine that is busy with something else is said, and is nobody's fault here.
        assert [line for line in server.stderr.splitlines() if "did not run for" not in line] == []


def begun(server: Command, trusting: ssl.SSLContext) -> bytes:
    """What the server says first to a request whose headers never end."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        plain = stack.enter_context(connect(server))
        client = stack.enter_context(trusting.wrap_socket(plain, server_hostname="127.0.0.1"))
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
        return client.recv(12)
    return b""


def test_those_that_only_connect_take_no_place_from_others(commands: Commands, tmp_path: Path) -> None:
    """The limit is reached by handshakes that do not end: the longest gives way."""
    with ModelServer(lambda _: Reply("never ends", hang=True)) as model:
        env = {"DRSAI_MAX_CONNECTIONS": "4", "OPENAI_BASE_URL": model.base_url, "DRSAI_SHUTDOWN_GRACE_SECONDS": "0"}
        with serving(commands, tmp_path, **env) as (server, trusting), contextlib.ExitStack() as stack:
            for _ in range(12):
                stack.enter_context(connect(server))
            assert healthy(server, trusting)
            body = json.dumps({"model": "assistant", "messages": [{"role": "user", "content": "x"}], "stream": True})
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"  # noqa: E501
            for _ in range(4):
                busy = trusting.wrap_socket(connect(server), server_hostname="127.0.0.1")
                stack.enter_context(busy).sendall((head + body).encode())
                assert b"200 OK" in busy.recv(15)
            with pytest.raises(
                httpx.TransportError
            ):  # All places are taken by requests: nothing is said in clear text.
                healthy(server, trusting)
            assert "Traceback" not in server.stderr


def test_it_stops_with_clients_in_every_state(commands: Commands, tmp_path: Path) -> None:
    with serving(commands, tmp_path) as (server, trusting), connect(server), connect(server) as idle:
        with trusting.wrap_socket(idle, server_hostname="127.0.0.1"):
            assert healthy(server, trusting)
            server.kill(15)
            assert server.wait(10) == 0
        assert "Traceback" not in server.stderr


def _files(folder: Path) -> dict[str, str]:
    good, encrypted, other = (folder / name for name in ("good", "encrypted", "other"))
    for each in (good, encrypted, other):
        each.mkdir()
    self_signed(good)
    self_signed(encrypted, b"hushhush")
    self_signed(other)
    (folder / "text.pem").write_text("no certificate")
    return {"DRSAI_SSL_CERTFILE": str(good / "certificate.pem"), "DRSAI_SSL_KEYFILE": str(good / "key.pem")}


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"DRSAI_SSL_KEYFILE": ""}, "--ssl-certfile and --ssl-keyfile (DRSAI_SSL_CERTFILE, DRSAI_SSL_KEYFILE) must be"),
        ({"DRSAI_SSL_CERTFILE": ""}, "--ssl-certfile and --ssl-keyfile (DRSAI_SSL_CERTFILE, DRSAI_SSL_KEYFILE) must"),
        ({"DRSAI_SSL_CERTFILE": "missing.pem"}, "--ssl-certfile: missing.pem cannot be read: No such file"),
        ({"DRSAI_SSL_KEYFILE": "missing.pem"}, "--ssl-keyfile: missing.pem cannot be read: No such file"),
        ({"DRSAI_SSL_KEYFILE": "."}, "--ssl-keyfile: . cannot be read: Is a directory"),
        ({"DRSAI_SSL_KEYFILE": "other/key.pem"}, "the key other/key.pem is not that of the certificate"),
        ({"DRSAI_SSL_KEYFILE": "text.pem"}, "good/certificate.pem and text.pem cannot be used"),
        ({"DRSAI_SSL_CERTFILE": "text.pem"}, "text.pem and "),
        (
            {"DRSAI_SSL_CERTFILE": "encrypted/certificate.pem", "DRSAI_SSL_KEYFILE": "encrypted/key.pem"},
            "encrypted/certificate.pem and encrypted/key.pem cannot be used: is there a PEM certificate in the one",
        ),
    ],
)
def test_certificates_that_cannot_be_used(
    commands: Commands, tmp_path: Path, changed: dict[str, str], complaint: str
) -> None:
    command = commands.run("serve", "--port", "0", cwd=tmp_path, env={**_files(tmp_path), **changed})
    assert command.wait() == 1
    assert command.stderr.startswith("Error: ")
    assert complaint in command.stderr
    assert command.stderr.count("\n") == 1
    assert list(tmp_path.glob("*.db")) == []
