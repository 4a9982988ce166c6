"""`web_fetch` and `http_request`: what of an answer is given, and what is never reached."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from typing import Any

import psutil
import pytest

from drsai_backend.errors import ConfigurationError
from drsai_backend.tools import Approval, ToolBase, ToolRun, is_idempotent
from drsai_backend.tools.builtin import builtin_tools
from drsai_backend.tools.running import FileRef
from tests.tools.builtin.calling import said
from tests.tools.http.conftest import Said, Site

PAGE = """<!doctype html><html><head><title>All about tides</title><meta charset="{charset}">
<style>p {{ color: red }}</style></head><body>
<nav><a href="/">Home</a> <a href="/shop">Shop</a> <a href="/login">Log in</a></nav>
<article><h1>The tides</h1>
<p>Tides are the rise and fall of the sea, which the Moon and the Sun cause, in most places twice a day. Prüfung.</p>
<p>A <a href="/table?year=2026">table of the tides</a> says when they come, for each harbour of the coast.</p>
<table><tr><th>harbour</th><th>high water</th></tr><tr><td>Cuxhaven</td><td>04:12</td></tr></table></article>
<footer>Copyright. We use cookies.</footer><script>alert("never shown")</script></body></html>"""
REDIRECTS = ["http://127.0.0.2:1/", "https://10.0.0.1/", "http://[::1]/", "http://a@127.0.0.1/", "file:///etc/passwd"]


class Kept:
    """Keeps files in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    async def save(self, name: str, data: bytes, media_type: str) -> FileRef:
        self.files[name] = data
        return FileRef(f"file-{len(self.files)}", name, len(data), media_type)

    async def read(self, file_id: str) -> bytes:
        raise NotImplementedError


def made(name: str, **options: Any) -> ToolBase:
    return builtin_tools([name], **{name: {"allowed_addresses": ["127.0.0.1"], **options}})[0]


async def parser() -> psutil.Process:
    """The process that reads a page, once it is there."""
    while True:
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if any(part.endswith("inside_page.py") for part in child.cmdline()):
                    return child
        await asyncio.sleep(0.005)


class TestWebFetch:
    @pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1"])
    async def test_a_page_is_its_readable_text(self, site: Site, charset: str) -> None:
        site.answer = lambda sent: Said(PAGE.format(charset=charset).encode(charset), type="text/html")
        told = await said(made("web_fetch"), url=f" {site.url}/a#part ")
        assert told.startswith("# All about tides\n\n")
        assert "twice a day. Prüfung." in told
        assert f"[table of the tides]({site.url}/table?year=2026)" in told
        assert "| Cuxhaven | 04:12 |" in told
        assert not any(each in told for each in ("Shop", "cookies", "never shown", "color"))
        assert site.requests[0].target == "/a"

    async def test_a_parser_that_dies_is_an_error_of_the_call(self, site: Site) -> None:
        site.answer = lambda sent: Said(PAGE.format(charset="utf-8").encode(), type="text/html")
        tool = made("web_fetch")
        for _ in range(2):
            asked = asyncio.create_task(said(tool, url=site.url))
            (await parser()).kill()
            assert await asked == "! The page cannot be read: it ended without a result."
        # The third time it is not even tried; who reads other pages is not concerned.
        assert await said(tool, url=site.url) == "! The page cannot be read: it ended without a result."
        assert "# All about tides" in await said(tool, url=f"{site.url}/other")

    @pytest.mark.parametrize(
        ("body", "kind", "text"),
        [
            ("plain text: <b>", "text/plain", "plain text: <b>"),
            ('{"a": "ü"}', "application/json", '{"a": "ü"}'),
            ("Grüße".encode("utf-16"), "text/plain", "Grüße"),
            ("Grüße".encode("latin-1"), "text/plain; charset=latin-1", "Grüße"),
            ("Привет, как дела? Сегодня хорошая погода.".encode("cp1251"), "text/plain", "Привет"),
            ("Grüße", "text/plain; charset=none-such", "Grüße"),
            ("Grüße", "text/plain; charset=base64", "Grüße"),
            ("Grüße", "text/plain; charset=idna", "Grüße"),
            ("Grüße", "text/plain; charset=undefined", "Grüße"),
            ("g" * 200_000, "text/plain; charset=Punycode", "ggg"),
            ('<html><meta charset="punycode"><body><p>' + "g" * 200_000, "text/html", "ggg"),
            ("<!DOCTYPE html><p>Hi there", "text/plain", "Hi there"),
            ("<html><body></body></html>", "text/html", "(The page has no text"),
            ("<div>" * 100_000 + "deep", "text/html", "("),
            ("", "text/html", "(The page is empty.)"),
            (b"%PDF-1.7", "application/pdf", "! The page is no text but application/pdf"),
            (b"x" * 5_001, "text/html", "! The page answered with more than 5000 bytes."),
        ],
    )
    async def test_other_answers(self, site: Site, body: Any, kind: str, text: str) -> None:
        site.answer = lambda sent: Said(body, type=kind)
        most = 5_000 if isinstance(body, bytes) else 1_000_000
        assert (await said(made("web_fetch", max_bytes=most), url=site.url)).startswith(text)

    async def test_a_long_text_is_cut_and_kept(self, site: Site) -> None:
        site.answer = lambda sent: Said("x" * 60_000)
        kept = Kept()
        told = await said(made("web_fetch"), ToolRun(files=kept), url=site.url)
        assert told.endswith("[The result was cut: 50000 of 60000 characters are shown. The whole is the file file-1.]")
        assert len(kept.files["web_fetch.txt"]) == 60_000

    @pytest.mark.parametrize(
        ("answer", "text"),
        [
            (Said("no", 404), "! The page answered with 404 Not Found."),
            (Said("", 429), "! The page answered with 429"),
            (Said("", 304), "! The page answered with 304 Not Modified."),
            (Said("", drop=True), "! The page could not be reached (RemoteProtocolError)."),
            (Said("", 302, headers={"location": "/again"}), "! The page was sent on more than 5 times."),
            *((Said("", 302, headers={"location": each}), "! The page leads to an address that") for each in REDIRECTS),
        ],
    )
    async def test_what_goes_wrong(self, site: Site, answer: Said, text: str) -> None:
        site.answer = lambda sent: answer
        assert (await said(made("web_fetch"), url=site.url)).startswith(text)

    async def test_a_redirect_is_followed(self, site: Site) -> None:
        site.answer = lambda sent: Said("here") if sent.path == "/b" else Said("", 301, headers={"location": "/b"})
        assert await said(made("web_fetch"), url=site.url) == "here"

    async def test_a_page_that_hangs(self, site: Site) -> None:
        site.answer = lambda sent: Said("", delay=5)
        assert (await said(made("web_fetch", timeout=0.1), url=site.url)).startswith("! ")

    @pytest.mark.parametrize(
        "url",
        ["http://127.0.0.1/", "https://localhost:1/", "https://2130706433/", "https://[::ffff:10.0.0.1]/",
         "https://u:p@example.org/", "ftp://example.org/", "example.org", "https://a b/", "https://x\n.y/", "https:///x"],
    )  # fmt: skip
    async def test_addresses_that_are_not_public(self, url: str) -> None:
        assert (await said(made("web_fetch", allowed_addresses=[]), url=url)).startswith("! ")

    async def test_http_is_asked_by_https(self) -> None:
        looked: list[tuple[str, int]] = []

        async def resolve(host: str, port: int) -> Sequence[str]:
            looked.append((host, port))
            return ["127.0.0.1"]

        tool = made("web_fetch", allowed_addresses=[], resolve=resolve)
        assert "must not be reached" in await said(tool, url="http://example.org:80/x")
        assert looked == [("example.org", 443)]

    def test_without_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "trafilatura", None)
        with pytest.raises(ConfigurationError, match=r"^web_fetch: .*drsai-backend\[web\]"):
            made("web_fetch")


class TestHttpRequest:
    async def test_a_get(self, site: Site) -> None:
        site.answer = lambda sent: Said({"a": 1}, headers={"etag": '"1"', "set-cookie": "secret=1"})
        told = await said(made("http_request"), url=f"{site.url}/x?y=%20z", headers={"X-Ask": "é"})
        assert told == '200 OK\ncontent-type: application/json\ncontent-length: 8\netag: "1"\n\n{"a": 1}'
        [sent] = site.requests
        assert (sent.method, sent.target) == ("GET", "/x?y=%20z")
        assert sent.headers["x-ask"].encode("latin-1").decode() == "é"

    async def test_an_error_of_the_server_is_an_answer(self, site: Site) -> None:
        site.answer = lambda sent: Said("gone", 410)
        assert (await said(made("http_request"), url=site.url)).startswith("410 Gone\n")

    @pytest.mark.parametrize("charset", ["none-such", "base64", "idna", "undefined", "punycode"])
    async def test_a_charset_that_is_none_of_texts(self, site: Site, charset: str) -> None:
        site.answer = lambda sent: Said("Grüße" + "g" * 200_000, type=f"text/plain; charset={charset}")
        assert "\n\nGrüßeggg" in await said(made("http_request"), url=site.url)

    async def test_other_methods_are_for_those_who_may(self, site: Site) -> None:
        told = await said(made("http_request"), url=site.url, method="POST")
        assert told.startswith("! ")
        assert "GET" in told
        assert "body" not in made("http_request").schema["parameters"]["properties"]
        tool = made("http_request", methods=["GET", "POST"])
        assert (await said(tool, url=site.url, method="POST", body='{"a": 1}')).startswith("200 OK")
        assert (await said(tool, url=site.url, body="x")).startswith("! A GET request has no body")
        assert [(sent.method, sent.body) for sent in site.requests] == [("POST", b'{"a": 1}')]

    def test_who_approves_and_what_is_repeated(self) -> None:
        safe = made("http_request")
        both = made("http_request", methods=["GET", "POST"])
        assert (is_idempotent(safe), is_idempotent(both)) == (True, False)
        assert both.options.approval({"url": "x"}) is None
        assert both.options.approval({"url": "x", "method": "POST"}) == Approval()
        assert made("http_request", methods=["POST"]).options.approval({"url": "x"}) == Approval()
        assert made("http_request", methods=["POST"], requires_approval=False).options.approval({"url": "x"}) is None
        assert made("http_request", requires_approval=True).options.approval({"url": "x"}) == Approval()

    @pytest.mark.parametrize(
        "headers",
        [
            {"Host": "other"},
            {"Content-Length": "0"},
            {"Transfer-Encoding": "chunked"},
            {"X-A": "b\r\nX-C: d"},
            {"X-A": "b\0"},
            {"X-A\r\nX-B": "c"},
            {"X A": "b"},
            {"": "b"},
            {"X-A": "\ud800"},
        ],
    )
    async def test_headers_that_would_be_another_request(self, site: Site, headers: dict[str, str]) -> None:
        assert (await said(made("http_request"), url=site.url, headers=headers)).startswith("! ")
        assert site.requests == []

    @pytest.mark.parametrize("target", REDIRECTS)
    async def test_redirects_are_checked(self, site: Site, target: str) -> None:
        site.answer = lambda sent: Said("", 307, headers={"location": target})
        assert (await said(made("http_request"), url=site.url)).startswith("! The request leads to an address that")
        told = await said(made("http_request", methods=["POST"]), url=site.url, body="x")
        assert told == "! The request was sent on to another address, which only GET follows."
        assert len(site.requests) == 2

    async def test_headers_do_not_follow_to_another_host(self, site: Site) -> None:
        other = Site()
        try:
            site.answer = lambda sent: Said("", 302, headers={"location": f"{other.url}/y"})
            await said(made("http_request"), url=site.url, headers={"Authorization": "Bearer x"})
            assert "authorization" not in other.requests[0].headers
        finally:
            other.close()

    async def test_only_some_hosts(self, site: Site) -> None:
        tool = made("http_request", hosts=["127.0.0.1", "*.example.org"])
        assert (await said(tool, url=site.url)).startswith("200 OK")
        for host in ("example.org", "evil.org", "127.0.0.1.evil.org", "a.example.org.evil.org"):
            assert f"! The host '{host}' may not be asked" in await said(tool, url=f"https://{host}/")
        site.answer = lambda sent: Said("", 302, headers={"location": "http://127.0.0.1:1/"})
        assert "not followed" in await said(tool, url=site.url)

    @pytest.mark.parametrize("status", [300, 304])
    async def test_an_answer_that_names_no_other_address_is_a_result(self, site: Site, status: int) -> None:
        site.answer = lambda sent: Said("", status)
        assert (await said(made("http_request"), url=site.url)).startswith(f"{status} ")

    async def test_what_is_no_text_is_a_file(self, site: Site) -> None:
        site.answer = lambda sent: Said(b"\x89PNG", type="image/png")
        kept = Kept()
        told = await said(made("http_request"), ToolRun(files=kept), url=f"{site.url}/b%22.png")
        assert told.endswith("[file b.png, image/png, 4 bytes, id file-1]")

    @pytest.mark.parametrize(
        "options",
        [{"methods": []}, {"methods": ["TRACE"]}, {"hosts": "example.org"}, {"hosts": ["https://x/"]},
         {"allowed_addresses": ["home"]}, {"timeout": 0},
         {"requires_approval": "never"}],
    )  # fmt: skip
    def test_options_that_cannot_work(self, options: Any) -> None:
        with pytest.raises(ConfigurationError, match=f"^http_request: {next(iter(options))}"):
            made("http_request", **options)
