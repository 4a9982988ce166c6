"""`web_search`, against a server that answers as each engine does."""

from __future__ import annotations

from typing import Any

import pytest

from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError
from drsai_backend.tools import ToolBase
from drsai_backend.tools.builtin import builtin_tools
from tests.tools.builtin.calling import said
from tests.tools.http.conftest import Said, Site

TIDES = "https://example.org/tides"
ANSWERS: dict[str, Any] = {
    "searxng": {
        "query": "tides",
        "number_of_results": 0,
        "results": [
            {
                "url": TIDES,
                "title": "Tides",
                "content": "They rise & fall.",
                "engine": "duckduckgo",
                "parsed_url": ["https", "example.org", "/tides", "", "", ""],
                "template": "default.html",
                "engines": ["duckduckgo", "brave"],
                "positions": [1, 2],
                "publishedDate": None,
                "score": 3.0,
                "category": "general",
            },
            {"url": "https://example.org/moon", "title": "The\nMoon", "content": "", "engine": "brave", "score": 1.0},
            {"url": "https://example.org/sun", "title": "The Sun", "content": "Far away.", "engine": "brave"},
        ],
        "answers": [],
        "corrections": [],
        "infoboxes": [],
        "suggestions": ["tide table"],
        "unresponsive_engines": [["google", "timeout"]],
    },
    "brave": {
        "type": "search",
        "query": {"original": "tides", "more_results_available": True},
        "mixed": {"type": "mixed", "main": [{"type": "web", "index": 0, "all": False}], "top": [], "side": []},
        "web": {
            "type": "search",
            "results": [
                {
                    "title": "Tides",
                    "url": TIDES,
                    "is_source_local": False,
                    "description": "They <strong>rise</strong> &amp; fall.",
                    "profile": {"name": "Example", "url": TIDES},
                    "language": "en",
                    "family_friendly": True,
                    "meta_url": {"scheme": "https", "netloc": "example.org"},
                },
                {"title": "The Moon", "url": "https://example.org/moon", "description": ""},
            ],
            "family_friendly": True,
        },
    },
    "tavily": {
        "query": "tides",
        "follow_up_questions": None,
        "answer": None,
        "images": [],
        "results": [
            {"title": "Tides", "url": TIDES, "content": "They rise & fall.", "score": 0.98, "raw_content": None},
            {"title": "The Moon", "url": "https://example.org/moon", "content": "", "score": 0.5, "raw_content": None},
        ],
        "response_time": 1.09,
        "request_id": "123e4567-e89b-12d3-a456-426614174111",
    },
    "google": {
        "kind": "customsearch#search",
        "url": {"type": "application/json", "template": "https://www.googleapis.com/customsearch/v1?q={searchTerms}"},
        "queries": {"request": [{"title": "Google Custom Search - tides", "totalResults": "2", "count": 2}]},
        "context": {"title": "All"},
        "searchInformation": {"searchTime": 0.2, "totalResults": "2"},
        "items": [
            {
                "kind": "customsearch#result",
                "title": "Tides",
                "htmlTitle": "<b>Tides</b>",
                "link": TIDES,
                "displayLink": "example.org",
                "snippet": "They rise & fall.",
                "htmlSnippet": "They <b>rise</b> &amp; fall.",
            },
            {"kind": "customsearch#result", "title": "The Moon", "link": "https://example.org/moon", "snippet": ""},
        ],
    },
}
NOTHING: dict[str, Any] = {
    "searxng": {"query": "x", "number_of_results": 0, "results": [], "unresponsive_engines": []},
    "brave": {"type": "search", "query": {"original": "x"}},
    "tavily": {"query": "x", "answer": None, "images": [], "results": [], "response_time": 0.4},
    "google": {"kind": "customsearch#search", "searchInformation": {"totalResults": "0"}},
}
KEY = "brv-key/with+signs"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BRAVE_API_KEY", "TAVILY_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, KEY)


def search(site: Site, provider: Any = "searxng", **options: Any) -> ToolBase:
    """The tool as `serve` makes it: of the settings."""
    settings = Settings(_env_file=None, search_provider=provider, search_url=f"{site.url}/", search_engine_id="cx:1")
    [tool] = builtin_tools(["web_search"], settings, web_search=options)
    return tool


@pytest.mark.parametrize("provider", ANSWERS)
async def test_results_are_a_short_list(site: Site, provider: str) -> None:
    site.answer = lambda sent: Said(ANSWERS[provider])
    assert await said(search(site, provider), query="tides", count=2) == (
        f"1. Tides\n   {TIDES}\n   They rise & fall.\n\n2. The Moon\n   https://example.org/moon"
    )
    site.answer = lambda sent: Said(NOTHING[provider])
    assert await said(search(site, provider), query="x") == "Nothing was found for: x"


async def test_what_each_engine_is_asked(site: Site) -> None:
    site.answer = lambda sent: Said(NOTHING["searxng"])
    await said(search(site), query="a&b=c", language="de")
    assert site.requests[-1].path == "/search"
    assert dict(site.requests[-1].query) == {"q": "a&b=c", "format": "json", "language": "de"}

    site.answer = lambda sent: Said(NOTHING["brave"])
    await said(search(site, "brave", count=7), query="tides", language="zh")
    sent = site.requests[-1]
    assert (sent.path, sent.headers["x-subscription-token"]) == ("/res/v1/web/search", KEY)
    assert dict(sent.query) == {"q": "tides", "count": "7", "text_decorations": "false", "search_lang": "zh-hans"}

    site.answer = lambda sent: Said(NOTHING["tavily"])
    assert "does not choose by language" in await said(search(site, "tavily"), query="tïdes", language="de")
    sent = site.requests[-1]
    assert (sent.method, sent.path, sent.headers["authorization"]) == ("POST", "/search", f"Bearer {KEY}")
    assert sent.json == {"query": "tïdes", "max_results": 5, "search_depth": "basic"}

    site.answer = lambda sent: Said(NOTHING["google"])
    await said(search(site, "google", language="pt-BR"), query="tides")
    sent = site.requests[-1]
    assert sent.path == "/customsearch/v1"
    assert dict(sent.query) == {"key": KEY, "cx": "cx:1", "q": "tides", "num": "5", "lr": "lang_pt"}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Said("slow down", 429, headers={"retry-after": "30"}), "(429). Try again in 30 seconds"),
        (Said("", 429, headers={"retry-after": "Wed, 21 Oct"}), "Try again later"),
        (Said({"error": {"code": 403, "message": f"bad key {KEY}"}}, 403), "refuses this server (403)"),
        (Said("<h1>Oops</h1>", 500), "an error (500)"),
        (Said("<html>", 200, "text/html"), "no JSON"),
        (Said("[" * 100_000, 200), "no JSON"),
        (Said([1, 2]), "another form"),
        (Said({"web": []}), "another form"),
        (Said({"type": "search", "web": {"results": "none"}}), "another form"),
        (Said(b"x" * 2_100_000), "more than 2000000 bytes"),
        (Said("", 302, headers={"location": "http://127.0.0.1:1/secret"}), "sent on to another address"),
        (Said("", drop=True), "could not be reached"),
    ],
)
async def test_what_goes_wrong_is_said_without_the_key(site: Site, answer: Said, text: str) -> None:
    site.answer = lambda sent: answer
    told = await said(search(site, "brave"), query="tides")
    assert told.startswith("! ")
    assert text in told
    assert KEY not in told
    assert site.url not in told
    assert len(site.requests) == 1


async def test_an_engine_that_hangs(site: Site) -> None:
    site.answer = lambda sent: Said("", delay=5)
    assert await said(search(site, timeout=0.1), query="tides") in (
        "! The tool web_search gave no answer within 0.1 seconds, and was stopped.",
        "! SearXNG could not be reached (ReadTimeout).",
    )


async def test_results_that_are_odd(site: Site) -> None:
    """What is no result is left out; a page's own text cannot begin another entry of the list."""
    odd = [
        {"url": "javascript:alert(1)", "title": "x"},
        {"title": "without URL"},
        "text",
        {
            "url": "https://a.example/ x\n2. y",
            "title": None,
            "content": "a\n\n2. b <b onclick=x>c</b> 1 < 2" + "d" * 900,
        },
    ]
    site.answer = lambda sent: Said({"results": odd})
    lines = (await said(search(site), query="x")).splitlines()
    assert lines[:2] == ["1. (no title)", "   https://a.example/x2.y"]
    assert lines[2].startswith("   a 2. b c 1 < 2ddd")
    assert len(lines[2]) < 520
    assert len(lines) == 3


@pytest.mark.parametrize("arguments", [{"query": ""}, {"query": "x", "count": 0}, {"query": "x", "count": 21},
                                       {"query": "x", "language": "de&q=y"}])  # fmt: skip
async def test_arguments_are_checked(site: Site, arguments: dict[str, Any]) -> None:
    assert (await said(search(site), **arguments)).startswith("! ")
    assert site.requests == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"provider": "bing"}, "provider: one of searxng, brave, tavily, google"),
        ({"provider": None}, "DRSAI_SEARCH_PROVIDER"),
        ({"provider": "searxng", "url": None}, "DRSAI_SEARCH_URL"),
        ({"url": "ftp://x"}, "DRSAI_SEARCH_URL"),
        ({"url": "https://u:p@x"}, "DRSAI_SEARCH_URL"),
        ({"provider": "google", "engine_id": ""}, "DRSAI_SEARCH_ENGINE_ID"),
        ({"provider": "google", "count": 11}, "from 1 to 10"),
        ({"provider": "brave", "key_env": "NOT_SET"}, "NOT_SET is not set"),
        ({"language": "german"}, "language"),
        ({"colour": "red"}, "'colour'. It has: provider"),
    ],
)
def test_options_that_cannot_work(site: Site, options: dict[str, Any], text: str) -> None:
    settings = Settings(_env_file=None, search_url=site.url, search_engine_id="cx:1")
    with pytest.raises(ConfigurationError, match=r"^web_search: ") as error:
        builtin_tools(["web_search"], settings, web_search={"provider": "searxng", **options})
    assert text in str(error.value)


def test_a_key_that_is_none(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAVE_API_KEY", "a\nb: c")
    with pytest.raises(ConfigurationError, match="BRAVE_API_KEY holds is no key"):
        search(site, "brave")
    with pytest.raises(ConfigurationError, match="DRSAI_SEARCH_KEY_ENV: must be the name"):
        Settings(_env_file=None, search_key_env="sk-123")
