"""HTTP tools: what is sent, what of the answer is given, and what is never reached."""

from __future__ import annotations

import base64
import gzip
import html
import json
import random
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from traceback import walk_stack
from typing import Any
from urllib.parse import quote, quote_plus

import psutil
import pytest
from autogen_core.tools import ToolResult
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from drsai_backend.access.principal import Principal
from drsai_backend.errors import InvalidRequest, ToolError
from drsai_backend.tools.calling import call_tool
from drsai_backend.tools.http import HttpTool, openapi_tools
from drsai_backend.tools.http.placeholders import Values
from drsai_backend.tools.running import FileRef, ToolRun
from tests.tools.http.conftest import Said, Sent, Site

LOCAL = ("127.0.0.0/8",)
CITY = {"name": "city", "type": "string", "required": True}


def made(site: Site, path: str = "/x", *, secrets: dict[str, str] | None = None, **values: Any) -> HttpTool:
    names = ("method", "headers", "query", "body", "timeout")
    endpoint = {"url": site.url + path, **{name: values.pop(name) for name in names if name in values}}
    config = {"name": "ask", "description": "Asks.", "endpoint": endpoint, **values}
    return HttpTool(config, secrets or {}, allowed_addresses=LOCAL)


@dataclass
class Context:
    thread_id: str = "th"
    run_id: str = "run_1"


RUN = ToolRun("ann", "c0", {Principal: Principal("ü", tenant="acme"), Context: Context()})


async def ask(tool: HttpTool, run: ToolRun = RUN, **arguments: Any) -> ToolResult:
    return await call_tool(tool, arguments, run)


async def said(tool: HttpTool, **arguments: Any) -> str:
    result = await ask(tool, **arguments)
    return ("! " if result.is_error else "") + result.to_text(replace_image="[image]")


class TestWhatIsSent:
    async def test_values_are_encoded_where_they_land(self, site: Site) -> None:
        tool = made(
            site,
            "/cities/{city}/at?k={city}",
            parameters=[CITY, {"name": "days", "type": "array"}, {"name": "more", "type": "string"}],
            query={"day": "{days}", "more": "{more}", "who": "{userId}"},
            headers={"X-City": "in {city}", "X-More": "{more}"},
        )
        assert await said(tool, city="a/b?c&d=é %2e", days=[1, 2]) == "ok"
        [sent] = site.requests
        assert sent.path == "/cities/a%2Fb%3Fc%26d%3D%C3%A9%20%252e/at"
        assert sent.query == [("k", "a/b?c&d=é %2e"), ("day", "1"), ("day", "2"), ("who", "ü")]
        assert sent.headers["x-city"].encode("latin-1").decode() == "in a/b?c&d=é %2e"
        assert "x-more" not in sent.headers

    async def test_types_are_kept(self, site: Site) -> None:
        parameters: Any = {
            "type": "object",
            "properties": {"count": {"type": "integer"}, "tags": {"type": "array"}, "note": {"type": "string"}},
        }
        body = {
            "n": "{count}",
            "t": "{tags}",
            "s": "{count} of {tags}",
            "note": "{note}",
            "in": [{"a": "{note}"}, "{{x}}"],
        }
        tool = made(
            site, method="POST", parameters=parameters, body={**body, "thread": "{dialogId}/{tenantId}/{runId}"}
        )
        await said(tool, count=3, tags=["a", "ü"])
        [sent] = site.requests
        assert sent.headers["content-type"] == "application/json"
        assert sent.json == {
            "n": 3, "t": ["a", "ü"], "s": '3 of ["a", "ü"]', "in": [{}, "{x}"], "thread": "th/acme/run_1"
        }  # fmt: skip

    @given(city=st.text(min_size=1))
    def test_no_value_leaves_its_place(self, city: str) -> None:
        values = Values({"city": city}, {})
        try:
            url = values.url("https://example.com/a/{city}/b?x={city}")
        except ToolError:
            assert city in (".", "..")
            return
        except UnicodeEncodeError:
            assert any(0xD800 <= ord(char) < 0xE000 for char in city)
            return
        assert url.startswith("https://example.com/a/")
        assert url.count("/") == 5
        assert (url.count("?"), url.count("&"), url.count("#")) == (1, 0, 0)
        assert url.isascii()

    @pytest.mark.parametrize("value", ["a\r\nX-Admin: 1", "a\nb", "a\0b"])
    async def test_no_header_is_smuggled_in(self, site: Site, value: str) -> None:
        tool = made(site, parameters=[CITY], headers={"X-City": "{city}"})
        assert "cannot hold line breaks" in await said(tool, city=value)
        assert site.requests == []

    @pytest.mark.parametrize("value", ["", ".", ".."])
    async def test_no_path_is_changed(self, site: Site, value: str) -> None:
        tool = made(site, "/users/{city}/", parameters=[CITY])
        assert (await said(tool, city=value)).startswith("! `city`")
        assert site.requests == []

    async def test_the_model_sets_no_variable(self, site: Site) -> None:
        tool = made(site, query={"u": "{userId}"})
        assert "userId" in await said(tool, userId="eve")
        assert site.requests == []
        await said(tool)
        assert site.requests[0].query == [("u", "ü")]

    async def test_the_model_sets_no_variable_that_nobody_knows(self, site: Site) -> None:
        """Also where the schema forbids no further arguments."""
        tool = made(site, query={"u": "{userId}"}, parameters={"type": "object", "properties": {}})
        await ask(tool, ToolRun(), userId="eve")
        assert site.requests[0].query == []

    async def test_credentials_go_out_and_do_not_come_back(self, site: Site, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", logger="drsai")
        site.answer = lambda sent: Said(f"you sent {sent.headers['authorization']}", status=403)
        tool = made(site, headers={"Authorization": "Bearer {secret:KEY}"}, secrets={"KEY": "hunter2"})
        assert await said(tool) == "! ask answered with 403 Forbidden: you sent Bearer [credential]"
        assert site.requests[0].headers["authorization"] == "Bearer hunter2"
        assert "hunter2" not in caplog.text + repr(tool) + str(tool.schema)

    @pytest.mark.parametrize("written", [None, "$.said"])
    async def test_credentials_do_not_come_back_in_other_forms(self, site: Site, written: str | None) -> None:
        key, basic = 'p/4"ä&hünter2', base64.b64encode(b"me:s3cret!!").decode()
        forms = [
            key,
            json.dumps(key)[1:-1],
            "".join(f"\\u{ord(char):04X}" for char in key),
            quote(key, safe=""),
            quote_plus(key),
            html.escape(key),
            key.encode().hex(),
            *(base64.b64encode(b"x" * n + key.encode() + b"yy").decode() for n in range(3)),
            base64.urlsafe_b64encode(key.encode()).decode(),
            basic,
            "s3cret!!",
        ]
        headers = {"A": "Basic {secret:BASIC}", "K": "{secret:KEY}"}
        tool = made(site, headers=headers, result=written, secrets={"KEY": key, "BASIC": basic})
        for form in forms:
            plain = form.replace('\\"', '"').replace('"', '\\"')
            site.answer = lambda sent, plain=plain: Said(f'{{"said": "<{plain}>"}}', type="application/json")
            text = await said(tool)
            assert "[credential]" in text, form
            assert not any(part in text for part in (form, key, "unter2", "s3cret"))

    async def test_credentials_do_not_come_back_in_files(self, site: Site) -> None:
        kept: list[bytes] = []

        class Keeper:
            async def save(self, name: str, data: bytes, media_type: str) -> FileRef:
                kept.append(data)
                return FileRef("f", name, len(data), media_type)

            async def read(self, file_id: str) -> bytes:
                raise NotImplementedError

        site.answer = lambda sent: Said(b"\xff\x00" + b"key=hunter2" + b"\xff", type="application/pdf")
        tool = made(site, "/x/{secret:KEY}", secrets={"KEY": "hunter2"})
        text = await ask(tool, ToolRun(files=Keeper()))
        assert "[file [credential], application/pdf, 14 bytes" in text.to_text()
        assert kept == [b"\xff\x00key=*******\xff"]

    async def test_credentials_of_the_environment(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DRSAI_TOOL_SECRET_KEY", "k")
        monkeypatch.setenv("OTHER", "o")
        config = {"name": "ask", "description": "x", "endpoint": {"url": site.url, "headers": {"K": "{secret:KEY}"}}}
        await said(HttpTool(config, allowed_addresses=LOCAL))
        assert site.requests[0].headers["k"] == "k"
        config["endpoint"] = {"url": site.url, "headers": {"K": "{secret:OTHER}"}}
        assert "The credential OTHER of this tool is not set" in await said(HttpTool(config, allowed_addresses=LOCAL))


class TestAnswers:
    @pytest.mark.parametrize(
        ("path", "result"),
        [
            (None, '{"a": [{"b": 1}, {"b": 2}]}'),
            ("$.a[0].b", "1"),
            ("$.a[*].b", "[1,2]"),
            ("$.nothing", "[]"),
        ],
    )
    async def test_what_is_wanted_is_picked(self, site: Site, path: str | None, result: str) -> None:
        site.answer = lambda sent: Said({"a": [{"b": 1}, {"b": 2}]})
        assert await said(made(site, result=path)) == result

    async def test_answers_are_bounded(self, site: Site) -> None:
        site.answer = lambda sent: Said("x" * 1001)
        assert await said(made(site, max_bytes=1000)) == "! ask answered with more than 1000 bytes."

    async def test_plain_bytes_are_asked_for(self, site: Site) -> None:
        await said(made(site, headers={"Accept-Encoding": "br"}))
        assert site.requests[0].headers["accept-encoding"] == "identity"

    @pytest.mark.parametrize("kind", ["gzip", " GZip", "x-gzip"])
    async def test_packed_answers_are_bounded_unpacked(self, site: Site, kind: str) -> None:
        site.answer = lambda sent: Said(
            gzip.compress(b"xy" * 5_000), type="text/plain", headers={"content-encoding": kind}
        )
        assert await said(made(site, max_bytes=10_000)) == "xy" * 5_000
        assert "more than 9999 bytes" in await said(made(site, max_bytes=9_999))

    async def test_a_bomb_is_never_unpacked(self, site: Site) -> None:
        bomb = gzip.compress(bytes(500_000_000), 1)
        site.answer = lambda sent: Said(bomb, headers={"content-encoding": "gzip"})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert "more than 100000 bytes" in await said(made(site, max_bytes=100_000))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "50 MB"

    @pytest.mark.parametrize("kind", ["zstd", "br", "deflate", "gzip, gzip", "gzip, zstd"])
    async def test_what_is_packed_otherwise_is_refused(self, site: Site, kind: str) -> None:
        site.answer = lambda sent: Said(b"x", headers={"content-encoding": kind})
        assert await said(made(site)) == "! ask answered with packed bytes although it was asked for plain ones."

    @pytest.mark.parametrize("body", [b"x" * 100, gzip.compress(random.Random(1).randbytes(5000))[:-9]])
    async def test_what_is_no_gzip_or_a_part_of_one_is_an_error(self, site: Site, body: bytes) -> None:
        site.answer = lambda sent: Said(body, headers={"content-encoding": "gzip"})
        assert await said(made(site)) == "! ask answered with bytes that cannot be unpacked."

    async def test_other_types_are_files(self, site: Site) -> None:
        site.answer = lambda sent: Said(b"%PDF", type="application/pdf")
        assert "report.pdf" in await said(made(site, "/a/report.pdf"))

    @pytest.mark.parametrize(("method", "times"), [("GET", 3), ("POST", 1)])
    async def test_only_safe_methods_are_tried_again(
        self, site: Site, method: str, times: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("drsai_backend.tools.calling._FIRST_PAUSE", 0.001)
        site.answer = lambda sent: Said("busy", status=503)
        assert await said(made(site, method=method)) == "! ask answered with 503 Service Unavailable: busy"
        assert len(site.requests) == times
        site.answer = lambda sent: Said(drop=True)
        assert (await said(made(site, method=method))).startswith("! ask could not be reached (Remote")

    async def test_a_server_says_when_it_may_be_asked_again(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("drsai_backend.tools.calling._FIRST_PAUSE", 0.001)
        times: list[float] = []

        def answer(sent: Sent) -> Said:
            times.append(time.monotonic())
            return Said("slow down", status=429, headers={"retry-after": after}) if len(times) < 2 else Said("ok")

        after = "0.3"
        site.answer = answer
        assert await said(made(site)) == "ok"
        assert times[1] - times[0] >= 0.3
        times.clear()
        after = "600"
        assert "It wants to be asked again after 600 s." in await said(made(site))
        assert len(times) == 1

    async def test_an_address_that_is_too_long(self, site: Site) -> None:
        assert "an address that is too long" in await said(
            made(site, query={"q": "{city}"}, parameters=[CITY]), city="x" * 70_000
        )

    @pytest.mark.parametrize("count", [1, 20_000])
    async def test_what_is_picked_of_short_and_long_answers(self, site: Site, count: int) -> None:
        site.answer = lambda sent: Said({"a": [{"b": n} for n in range(count)], "s": "é\\ \n", "n": None})
        assert await said(made(site, result="$.a[?@.b < 1].b")) == "0"
        assert await said(made(site, result="$.s")) == "é\\ \n"
        assert await said(made(site, result="$.n")) == ""
        assert await said(made(site, result="$.s.x")) == "[]"

    async def test_what_is_picked_for_ever_is_stopped(self, site: Site) -> None:
        deep: Any = 1
        for _ in range(60):
            deep = {"a": deep}
        site.answer = lambda sent: Said([deep] * 2000)
        assert "1 seconds" in await said(made(site, result="$..*..*", timeout=1, retries=0))
        frames = [walked for frame in sys._current_frames().values() for walked, _ in walk_stack(frame)]
        assert not [each for each in frames if "/jsonpath/" in each.f_code.co_filename], "no thread goes on with it"
        children = [" ".join(each.cmdline()) for each in psutil.Process().children(recursive=True)]
        assert not [line for line in children if "inside_jsonpath" in line], "no process goes on with it"

    async def test_a_server_that_hangs(self, site: Site) -> None:
        site.answer = lambda sent: Said(delay=0.5)
        assert "0.1 seconds" in await said(made(site, timeout=0.1, retries=0))

    def test_what_may_be_sent_again_after_a_crash(self, site: Site) -> None:
        assert made(site).options.idempotent
        assert not made(site, method="POST").options.idempotent
        assert made(site, method="POST", idempotent=True).options.idempotent


class TestAddresses:
    @pytest.mark.parametrize(
        "host",
        [
            "127.0.0.1", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "10.0.0.1",
            "169.254.169.254", "[fe80::1]", "[64:ff9b::7f00:1]", "0.0.0.0", "[::]", "192.168.1.1", "100.64.0.1",
        ],
    )  # fmt: skip
    def test_addresses_that_are_not_public(self, host: str) -> None:
        with pytest.raises(InvalidRequest):
            HttpTool({"name": "x", "description": "x", "endpoint": {"url": f"https://{host}/"}}, {})

    @pytest.mark.parametrize(
        "url", ["https://a@b.example/", "https://a:b@127.0.0.1/", "https://b.example\\@c/", "file:///x"]
    )
    def test_urls_that_lead_astray(self, url: str) -> None:
        with pytest.raises((InvalidRequest, ValidationError)):
            HttpTool({"name": "x", "description": "x", "endpoint": {"url": url}}, {})

    async def test_a_name_that_changes_its_address(self, site: Site) -> None:
        """DNS rebinding: the first look gives a public address, the next one loopback."""
        looked: list[str] = []

        async def resolve(host: str, port: int) -> Sequence[str]:
            looked.append(host)
            return ["203.0.113.1"] if len(looked) == 1 else ["127.0.0.1"]

        async def at_once(host: str, port: int) -> Sequence[str]:
            return ["127.0.0.1"]

        for resolver in (at_once, resolve):
            config = {
                "name": "x",
                "description": "x",
                "endpoint": {"url": f"https://a.example:{site.port}/", "timeout": 1},
            }
            tool = HttpTool({**config, "retries": 1}, {}, resolve=resolver)
            assert (await said(tool)).startswith("! x leads to an address that must not be reached")
        assert site.requests == []

    @pytest.mark.parametrize(
        "target", ["http://127.0.0.2:1/", "https://10.0.0.1/", "http://[::1]/", "http://a@127.0.0.1/"]
    )
    async def test_redirects_are_checked(self, site: Site, target: str) -> None:
        site.answer = lambda sent: Said(status=302, headers={"location": target})
        tool = HttpTool(
            {"name": "x", "description": "x", "endpoint": {"url": site.url}}, {}, allowed_addresses=("127.0.0.1",)
        )
        assert (await said(tool)).startswith("! x leads to an address that")
        assert len(site.requests) == 1

    async def test_credentials_do_not_follow_to_another_host(self, site: Site) -> None:
        other = Site()
        try:
            site.answer = lambda sent: Said(status=302, headers={"location": f"{other.url}/y"})
            headers, body = {"Authorization": "{secret:KEY}"}, {"key": "{secret:KEY}"}
            tool = made(site, headers=headers, body=body, secrets={"KEY": "hunter2"})
            assert await said(tool) == "ok"
            assert site.requests[0].json == {"key": "hunter2"}
            assert "authorization" not in other.requests[0].headers
            assert other.requests[0].body == b""
        finally:
            other.close()

    async def test_redirects_end(self, site: Site) -> None:
        site.answer = lambda sent: Said(status=302, headers={"location": "/x"})
        assert await said(made(site)) == "! ask was sent on more than 5 times."
        assert len(site.requests) == 6
        site.answer = lambda sent: Said(status=307, headers={"location": "/x"})
        assert "which only GET follows" in await said(made(site, method="POST"))


@pytest.mark.parametrize("path", ["$..a..b..c", "$[?$..a]", "$..a[?@.b][?@.c]"])
def test_paths_that_take_for_ever(path: str) -> None:
    endpoint = {"url": "https://a.example/"}
    with pytest.raises(ValidationError, match="at its beginning only"):
        HttpTool({"name": "ask", "description": "x", "endpoint": endpoint, "result": path}, {})
    HttpTool({"name": "ask", "description": "x", "endpoint": endpoint, "result": "$..a['$..?']..b"}, {})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"endpoint": {"url": "https://{city}.example/"}}, "must not stand in the host"),
        ({"endpoint": {"url": "ftp://a.example/"}}, "must begin with https://"),
        ({"endpoint": {"url": "https://a.example/{town}"}}, "{town} is no parameter"),
        ({"endpoint": {"url": "https://a.example/", "headers": {"Host": "b"}}}, "'Host' is made with the request"),
        ({"endpoint": {"url": "https://a.example/", "headers": {"A B": "b"}}}, "no name of a header"),
        ({"endpoint": {"url": "https://a.example/", "verb": "GET"}}, "verb"),
        ({"parameters": [{"name": "userId", "type": "string"}]}, "userId is filled in by the system"),
        ({"parameters": [{"type": "string"}]}, "`name`"),
        ({"result": "$["}, "no JSONPath"),
        ({"result": "$[?match(@.a, '(a+)+')]"}, "regular expressions"),
        ({"name": "a b"}, "name"),
        ({"retries": 9}, "retries"),
        *[
            ({name: True}, f"{name}\n  Value error, must be a number")
            for name in ("retries", "max_bytes", "max_output")
        ],
        (
            {"endpoint": {"url": "https://a.example/", "timeout": True}},
            "endpoint.timeout\n  Value error, must be a number",
        ),
    ],
    ids=str,
)
def test_configs_that_cannot_be(change: dict[str, Any], said: str) -> None:
    config = {
        "name": "x",
        "description": "x",
        "parameters": [CITY],
        "endpoint": {"url": "https://a.example/"},
        **change,
    }
    with pytest.raises(ValidationError) as raised:
        HttpTool(config, {})
    assert said in str(raised.value)


DOCUMENT: Any = {
    "openapi": "3.0.3",
    "servers": [{"url": "http://127.0.0.1:{port}/v1", "variables": {"port": {"default": "0"}}}],
    "security": [{"key": []}],
    "paths": {
        "/pets/{petId}": {
            "parameters": [{"$ref": "#/components/parameters/petId"}],
            "get": {
                "operationId": "getPet",
                "summary": "One pet.",
                "parameters": [
                    {"name": "fields", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string", "nullable": True}},
                ],
            },
            "put": {
                "security": [{"token": []}],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
                },
            },
        },
        "/away": {"get": {"operationId": "away", "parameters": [{"$ref": "http://evil.example/p.json"}]}},
        "/form": {"post": {"operationId": "form", "requestBody": {"content": {"text/csv": {}}}}},
    },
    "components": {
        "parameters": {"petId": {"name": "petId", "in": "path", "required": True, "schema": {"type": "integer"}}},
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "parent": {"$ref": "#/components/schemas/Pet"}},
            }
        },
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
            "token": {"type": "http", "scheme": "bearer"},
        },
    },
}


class TestOpenApi:
    async def test_operations_are_tools(self, site: Site) -> None:
        secrets = {"key": "kkkk", "token": "tttt"}
        get, put = openapi_tools(
            DOCUMENT, ["getPet", "PUT /pets/{petId}"], secrets, server=f"{site.url}/v1", allowed_addresses=LOCAL
        )
        assert (get.name, get.description) == ("getPet", "One pet.")
        assert get.parameters["properties"]["X-Trace"] == {"type": ["string", "null"]}
        assert await said(get, petId=7, fields=["a", "b"]) == "ok"
        assert await said(put, petId=7, name="Rex", parent={"name": "Max"}) == "ok"
        assert "'name' is a required property" in await said(put, petId=7)
        first, second = site.requests
        assert (first.method, first.path, first.query) == ("GET", "/v1/pets/7", [("fields", "a"), ("fields", "b")])
        assert first.headers["x-key"] == "kkkk"
        assert (second.method, second.json) == ("PUT", {"name": "Rex", "parent": {"name": "Max"}})
        assert second.headers["authorization"] == "Bearer tttt"

    async def test_what_documents_have(self, site: Site) -> None:
        """Two references with one last part are two schemas; a path has servers; some headers are no parameters; a
        property may be called as a keyword of OpenAPI."""
        text: Any = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Item"}, "a": {}}}
        other: Any = {
            "type": "object",
            "properties": {
                "next": {"$ref": "#/components/parameters/Item/schema/x-of/Item"},
                "example": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
            },
        }
        parameter: Any = {"name": "Item", "in": "query", "schema": {**other, "x-of": {"Item": other}}}
        headers: Any = [
            {"name": name, "in": "header", "schema": {"type": "string"}}
            for name in ("Accept", "content-type", "Authorization")
        ]
        operation: Any = {
            "operationId": "get",
            "parameters": [{"$ref": "#/components/parameters/Item"}, *headers],
            "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Item"}}}},
        }
        document: Any = {
            "servers": [{"url": "https://other.example"}],
            "paths": {"/x": {"servers": [{"url": f"{site.url}/of-path"}], "post": operation}},
            "components": {"schemas": {"Item": text}, "parameters": {"Item": parameter}},
        }
        [tool] = openapi_tools(document, ["get"], {}, allowed_addresses=LOCAL)
        assert tool.parameters["properties"].keys() == {"Item", "next", "a"}
        assert await said(tool, Item={"next": {"example": 1}}, next={"next": {"a": 1}}) == "ok"
        assert "is less than or equal to the minimum" in await said(tool, Item={"next": {"example": 0}})
        [sent] = site.requests
        assert sent.path == "/of-path/x"
        assert "authorization" not in sent.headers

    async def test_a_document_takes_no_credential_of_the_operator(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DRSAI_TOOL_SECRET_key", "hunter2")
        [get] = openapi_tools(DOCUMENT, ["getPet"], server=f"{site.url}/v1", allowed_addresses=LOCAL)
        assert "The credential key of this tool is not set" in await said(get, petId=7)
        assert site.requests == []
        thief = {**DOCUMENT, "paths": {"/{secret:key}": {"get": {"operationId": "x", "security": []}}}}
        with pytest.raises(Exception, match="its URL names a credential"):
            openapi_tools(thief, ["x"], {}, server=site.url, allowed_addresses=LOCAL)

    @pytest.mark.parametrize(
        ("operation", "text"),
        [("nothing", "there are: .*getPet"), ("away", "nothing is fetched"), ("form", "only JSON is supported")],
    )
    def test_operations_that_cannot_be(self, operation: str, text: str) -> None:
        with pytest.raises(Exception, match=text):
            openapi_tools(DOCUMENT, [operation], {}, server="https://a.example")


async def test_variables_of_its_own_and_defaults(site: Site) -> None:
    days = {"name": "days", "type": "integer", "default": 3}
    tool = made(
        site,
        "/{bot}",
        method="POST",
        body={"bot": "{bot}", "days": "{days}", "rest": "{rest}", "note": "for {bot}"},
        parameters=[days, {"name": "rest", "type": "object"}],
        context_vars={"bot": 7},
        check={"url": site.url + "/check/{bot}"},
    )
    await said(tool)
    await said(tool, days=1, bot=8)
    assert [each.json for each in site.requests if each.method == "POST"] == [
        {"bot": 7, "days": 3, "note": "for 7"},
    ], "an argument of that name is refused, as it is no parameter"
    await tool.validate_credentials()
    assert site.requests[-1].path == "/check/7"
    assert "bot" not in tool.schema["parameters"]["properties"]
