"""A search asks the web: SearXNG, Brave, Tavily or Google."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from drsai_backend.errors import ConfigurationError
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.builtin.services import ask, endpoint, rows
from drsai_backend.tools.function import tool

Provider: TypeAlias = Literal["searxng", "brave", "tavily", "google"]
MAX_QUERY: Final = 400
"""Characters of a query: the fewest that one of the engines takes."""
_TITLE, _SNIPPET = 200, 500
_TAG: Final = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_LANGUAGE: Final = r"^[a-z]{2}(-[A-Za-z]{2,4})?$"
_BRAVE_NAMES: Final = {"ja": "jp", "pt": "pt-pt", "zh": "zh-hans", "zh-cn": "zh-hans", "zh-tw": "zh-hant"}
_BRAVE_WHOLE: Final = ("en-gb", "pt-br", "pt-pt", "zh-hans", "zh-hant")


@dataclass(frozen=True, slots=True)
class _Asked:
    """A search, as an engine is asked for it."""

    url: str
    query: str
    count: int
    language: str | None
    key: str
    engine: str
    timeout: float


async def _searxng(asked: _Asked) -> list[JsonObject]:
    # It has no parameter for how many.
    query = {"q": asked.query, "format": "json", **({"language": asked.language} if asked.language else {})}
    headers = {"authorization": f"Bearer {asked.key}"} if asked.key else {}
    found = await ask("SearXNG", f"{asked.url}/search", query, headers=headers, timeout=asked.timeout)
    return rows("SearXNG", found, "results")


async def _brave(asked: _Asked) -> list[JsonObject]:
    query: dict[str, str | int | float] = {"q": asked.query, "count": asked.count, "text_decorations": "false"}
    if asked.language:
        full = asked.language.lower()
        base = full.partition("-")[0]
        query["search_lang"] = _BRAVE_NAMES.get(full) or (
            full if full in _BRAVE_WHOLE else _BRAVE_NAMES.get(base, base)
        )
    headers = {"x-subscription-token": asked.key}
    found = await ask("Brave", f"{asked.url}/res/v1/web/search", query, headers=headers, timeout=asked.timeout)
    return rows("Brave", found, "web", "results", optional=found.get("type") == "search")


async def _tavily(asked: _Asked) -> list[JsonObject]:
    body: JsonObject = {"query": asked.query, "max_results": asked.count, "search_depth": "basic"}
    headers = {"authorization": f"Bearer {asked.key}"}
    found = await ask("Tavily", f"{asked.url}/search", headers=headers, body=body, timeout=asked.timeout)
    return rows("Tavily", found, "results")


async def _google(asked: _Asked) -> list[JsonObject]:
    query: dict[str, str | int | float] = {"key": asked.key, "cx": asked.engine, "q": asked.query, "num": asked.count}
    if asked.language:
        base, _, region = asked.language.partition("-")
        query["lr"] = "lang_" + (f"zh-{region.upper() or 'CN'}" if base == "zh" else base)
    found = await ask("Google", f"{asked.url}/customsearch/v1", query, timeout=asked.timeout)
    # Without results it has no list of them.
    return rows("Google", found, "items", optional="searchInformation" in found)


@dataclass(frozen=True, slots=True)
class _Engine:
    """An engine: where it is, the variable with its key, the most results, and their fields."""

    ask: Callable[[_Asked], Awaitable[list[JsonObject]]]
    url: str | None
    key_env: str | None
    most: int
    link: str
    snippet: str


_ENGINES: Final[dict[str, _Engine]] = {
    "searxng": _Engine(_searxng, None, None, 20, "url", "content"),
    "brave": _Engine(_brave, "https://api.search.brave.com", "BRAVE_API_KEY", 20, "url", "description"),
    "tavily": _Engine(_tavily, "https://api.tavily.com", "TAVILY_API_KEY", 20, "url", "content"),
    "google": _Engine(_google, "https://www.googleapis.com", "GOOGLE_API_KEY", 10, "link", "snippet"),
}


def web_search(  # noqa: PLR0913 - a tool's options
    *,
    provider: Provider | None = None,
    url: str | None = None,
    key_env: str | None = None,
    engine_id: str | None = None,
    count: int = 5,
    language: str | None = None,
    timeout: float = 15.0,
) -> ToolBase:
    """A tool that searches the web: a query gives a list of titles, URLs and snippets.

    Args:
        provider: who is asked.
        url: where, without the path of the API. SearXNG needs it, and must be set to answer with JSON; the others'
            default is their own. It may be in a private network.
        key_env: the environment variable with the key. Default: `BRAVE_API_KEY`, `TAVILY_API_KEY`, `GOOGLE_API_KEY`;
            SearXNG needs none.
        engine_id: the id (`cx`) of Google's programmable search engine.
        count: results, where the model does not say how many; at most 20, of Google 10.
        language: of the results, as `de` or `pt-BR`, where the model does not say it.
        timeout: seconds of a search.

    Raises:
        ConfigurationError: no provider, or something that it needs is missing.
    """
    if provider not in _ENGINES:
        raise ConfigurationError(f"provider: one of {', '.join(_ENGINES)} (DRSAI_SEARCH_PROVIDER)")
    engine = _ENGINES[provider]
    where = url or engine.url
    if where is None:
        raise ConfigurationError("url: SearXNG needs one, that of your own instance (DRSAI_SEARCH_URL)")
    where = endpoint("url (DRSAI_SEARCH_URL)", where)
    if not 1 <= count <= engine.most:
        raise ConfigurationError(f"count: from 1 to {engine.most}")
    if language is not None and not re.fullmatch(_LANGUAGE, language):
        raise ConfigurationError("language: as de or pt-BR")
    key = _key(key_env or engine.key_env)
    if provider == "google" and not engine_id:
        raise ConfigurationError("engine_id: Google needs the id of a search engine (DRSAI_SEARCH_ENGINE_ID)")
    usual, usual_language = count, language

    @tool(name="web_search", idempotent=True, timeout=timeout)
    async def search(
        query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY)],
        count: Annotated[int, Field(ge=1, le=engine.most)] = usual,
        language: Annotated[str, Field(pattern=_LANGUAGE)] | None = usual_language,
    ) -> str:
        """Search the web. Gives titles, URLs and snippets; read a page for more than that.

        Args:
            query: what to search for, as in a search engine
            count: how many results
            language: of the results, as "de" or "pt-BR"
        """
        asked = _Asked(where, query, count, language, key, engine_id or "", timeout)
        found = await engine.ask(asked)
        lines = [_entry(each, engine) for each in found if _is_link(each.get(engine.link))][:count]
        note = "\n\n(This search engine does not choose by language.)" if language and provider == "tavily" else ""
        if not lines:
            return f"Nothing was found for: {query}{note}"
        return "\n\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1)) + note

    return search


def _key(variable: str | None) -> str:
    if variable is None:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigurationError(f"key_env: the variable {variable} is not set: it holds the search engine's key")
    if not all("!" <= char <= "~" for char in key):
        raise ConfigurationError(f"key_env: what the variable {variable} holds is no key")
    return key


def _is_link(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("http://", "https://"))


def _entry(found: Mapping[str, object], engine: _Engine) -> str:
    title = _plain(found.get("title"), _TITLE) or "(no title)"
    snippet = _plain(found.get(engine.snippet), _SNIPPET)
    link = "".join(str(found[engine.link]).split())
    return f"{title}\n   {link}" + (f"\n   {snippet}" if snippet else "")


def _plain(value: object, most: int) -> str:
    """A text of a result in one line, without marks of HTML."""
    text = " ".join(html.unescape(_TAG.sub("", value)).split()) if isinstance(value, str) else ""
    return text if len(text) <= most else text[:most].rstrip() + "…"
