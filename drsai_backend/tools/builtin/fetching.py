"""Fetching (`web_fetch`) gives the readable text of a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from json import dumps
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from drsai_backend.errors import ConfigurationError, ToolError
from drsai_backend.net.addresses import MAX_URL
from drsai_backend.net.transport import Resolve
from drsai_backend.tools.apart import ApartError, apart
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.builtin.requesting import is_text, networks, parsed
from drsai_backend.tools.function import tool
from drsai_backend.tools.http.sending import Answer, Sender, decoded

MAX_BYTES: Final = 2_000_000
AT_ONCE: Final = 8
"""Pages of a process that are fetched and read at a time: each is many times its size in memory meanwhile."""
_INSIDE: Final = Path(__file__).with_name("inside_page.py")
_MEMORY: Final = 2048 * 1024 * 1024
_MOST: Final = 4
"""How many times as long as the longest page its text may be: Markdown repeats links."""
_HTML: Final = ("text/html", "application/xhtml+xml")
_LOOKS_LIKE_HTML: Final = re.compile(rb"\s*(<!doctype html|<html|<head|<body)", re.IGNORECASE)
_BOMS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_DECLARED: Final = re.compile(rb"""<(?:meta|\?xml)[^>]{0,300}?(?:charset|encoding)\s*=\s*["']?\s*([a-zA-Z0-9_:.-]+)""")
_TITLE: Final = re.compile(r"<title[^>]{0,200}>([^<]{1,500})", re.IGNORECASE)
_HEADERS: Final = {
    "accept": "text/html,application/xhtml+xml,application/json,text/plain;q=0.9,*/*;q=0.5",
    "user-agent": "drsai-backend (web_fetch)",
}


def web_fetch(
    *,
    allowed_addresses: Sequence[str] = (),
    max_bytes: int = MAX_BYTES,
    timeout: float = 30.0,
    resolve: Resolve | None = None,
) -> ToolBase:
    """A tool that reads a page: HTML as Markdown without what surrounds the article, plain text and JSON as they are.

    A URL with http is asked by https, unless private networks are allowed.

    Args:
        allowed_addresses: networks and addresses that may be reached although they are not public.
        max_bytes: of a page; a longer one is refused while it arrives.
        timeout: seconds of a call.
        resolve: how host names are resolved; default: as the system does.

    Raises:
        ConfigurationError: the extra `web` is not installed, or an option cannot be used.
    """
    if find_spec("trafilatura") is None:
        raise ConfigurationError("it needs the extra `web`: pip install 'drsai-backend[web]'")
    sender = Sender(
        name="The page",
        reachable=networks(allowed_addresses),
        resolve=resolve,
        timeout=timeout,
        max_bytes=max_bytes,
        upgrades=True,
    )

    @tool(name="web_fetch", idempotent=True, timeout=timeout, concurrency=AT_ONCE)
    async def fetch(url: Annotated[str, Field(min_length=1, max_length=MAX_URL)]) -> str:
        """Read a web page: its text, with links, without menus and advertisements. Text and JSON come as they are.

        Args:
            url: the whole URL, https://…
        """
        answer = await sender.send("GET", parsed(url), _HEADERS)
        response = answer.response
        if not response.is_success:
            raise ToolError(f"The page answered with {response.status_code} {response.reason_phrase}".rstrip() + ".")
        if not answer.content.strip():
            return "(The page is empty.)"
        if answer.kind in _HTML or (is_text(answer.kind) and _LOOKS_LIKE_HTML.match(answer.content)):
            return await _readable(_decoded(answer), str(response.url), timeout)
        if not is_text(answer.kind):
            raise ToolError(f"The page is no text but {answer.kind}, which this tool does not read.")
        return _decoded(answer)

    return fetch


async def _readable(page: str, url: str, seconds: float) -> str:
    """The text of an HTML page, with its title; all of its text where no article is found."""
    given = dumps({"page": page, "url": url}).encode()
    try:
        # Parsers of C, on what anybody writes: what it takes or breaks is that process's.
        text = (await apart(_INSIDE, given, seconds=seconds, memory=_MEMORY, most=_MOST * MAX_BYTES)).decode()
    except ApartError as error:
        raise ToolError(f"The page cannot be read: {error}.") from None
    if not text:
        return "(The page has no text; what it shows may be made by scripts.)"
    title = _TITLE.search(page[:100_000])
    name = " ".join(title[1].split()) if title is not None else ""
    return text if not name or name in text[:500] else f"# {name}\n\n{text}"


def _decoded(answer: Answer) -> str:
    """The text in the charset of its mark, of the answer's header, of the page's own word, or the one that it looks
    like."""
    content = answer.content
    declared = _DECLARED.search(content[:4_096])
    known = [charset for mark, charset in _BOMS if content.startswith(mark)]
    known += [answer.response.charset_encoding or "", declared[1].decode() if declared is not None else ""]
    for charset in filter(None, known):
        if (text := decoded(content, charset)) is not None:
            return text
    try:
        return content.decode()
    except UnicodeDecodeError:
        from charset_normalizer import from_bytes

        best = from_bytes(content[:100_000]).best()
        return content.decode(best.encoding if best is not None else "utf-8", "replace")
