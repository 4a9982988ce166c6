"""`/docs` asks no other host, and what browsers are told of it and of every other answer."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from drsai_backend import DrSai
from tests.support.listening import PromptServer, listening_socket
from tests.support.threads import settings


@pytest.fixture
async def drsai(migrated_sqlite: str) -> AsyncIterator[DrSai]:
    async with DrSai(None, migrated_sqlite, settings=settings()) as made:
        yield made


@pytest.fixture
async def http(drsai: DrSai) -> AsyncIterator[httpx.AsyncClient]:
    """Of the application, mounted below a path."""
    outer = FastAPI()
    outer.mount("/below", drsai.app())
    transport = httpx.ASGITransport(outer)
    async with httpx.AsyncClient(transport=transport, base_url="http://test/below/") as made:
        yield made


@pytest.mark.parametrize("path", ["docs", "redoc"])
async def test_all_that_a_page_loads_comes_along(http: httpx.AsyncClient, path: str) -> None:
    page = await http.get(path)
    assert page.status_code == 200
    assert re.findall(r"<script>|<style|\son\w+=|\sstyle=|//", page.text) == []
    loaded = [each for each in re.findall(r'(?:src|href)="([^"]+)"', page.text) if not each.startswith("data:")]
    assert len(loaded) == 3
    for each in loaded:
        part = await http.get(str(page.url.join(each)))
        assert part.status_code == 200, each
        assert part.headers["content-type"].startswith(("text/javascript", "application/javascript", "text/css"))
    policy = dict(each.strip().split(" ", 1) for each in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == policy["style-src"] == "'self'"
    begun = await http.get(str(page.url.join(loaded[-1])))
    [document] = re.findall(r'url: "([^"]+)"', begun.text)
    assert (await http.get(str(page.url.join(document)))).json()["openapi"]
    assert (await http.get("docs/static/../__init__.py")).status_code == 404


async def test_the_console_works_where_it_is_mounted(http: httpx.AsyncClient) -> None:
    moved = await http.get("console")
    assert (moved.status_code, moved.headers["location"]) == (307, "/below/console/")
    page = await http.get("console/runs/run_1")
    assert re.findall(r'<base href="([^"]+)"', page.text) == ["/below/console/"]
    [nonce] = re.findall(r'name="csp-nonce" content="([^"]+)"', page.text)
    assert f"style-src 'self' 'nonce-{nonce}'" in page.headers["content-security-policy"]
    assert nonce not in (await http.get("console/")).text
    assert re.findall(r"<script>|<style|\son\w+=|\sstyle=|//", page.text) == []
    loaded = re.findall(r'(?:src|href)="\./(assets/[^"]+)"', page.text)
    assert len(loaded) > 1
    for each in loaded:
        packed, plain = [
            await http.get(f"console/{each}", headers={"accept-encoding": encoding})
            for encoding in ("gzip", "identity")
        ]
        assert packed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert packed.content == plain.content  # httpx has unpacked it.


async def test_every_answer_bounds_what_a_browser_does_with_it(http: httpx.AsyncClient) -> None:
    file = await http.post("v1/files", files={"file": ("a.html", b"<script>1</script>")}, data={"purpose": "user_data"})
    chat = {"model": "assistant", "messages": [{"role": "user", "content": "Hi."}], "stream": True}
    for method, path, body in (
        ("GET", "healthz", None),
        ("GET", "openapi.json", None),
        ("GET", "docs", None),
        ("GET", "docs/static/docs.js", None),
        ("GET", "console/", None),
        ("GET", "console/assets/nothing.js", None),
        ("GET", "nothing", None),
        ("GET", "v1/threads?limit=x", None),
        ("POST", "v1/chat/completions", chat),
        ("GET", f"v1/files/{file.json()['id']}/content", None),
        ("DELETE", "v1/models", None),
    ):
        headers = (await http.request(method, path, json=body)).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "no-referrer", path
        assert len(headers.get_list("content-security-policy")) == 1, path
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path


@pytest.mark.skipif(shutil.which("chromium") is None, reason="WITHOUT chromium: apt-get installs it, as .ci/run does")
async def test_a_browser_shows_the_document(drsai: DrSai, tmp_path: Path) -> None:
    port = listening_socket()
    server = PromptServer(uvicorn.Config(drsai.app(), lifespan="off", log_config=None))
    serving = asyncio.create_task(server.serve([port]))
    url = f"http://127.0.0.1:{port.getsockname()[1]}/docs"
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    command += [f"--user-data-dir={tmp_path}", "--virtual-time-budget=30000", url]
    try:
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120)
    finally:
        server.stop()
        await serving
    assert 'id="operations-chat-create_chat_completion"' in done.stdout
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
