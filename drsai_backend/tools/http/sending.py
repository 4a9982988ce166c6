"""Sending takes requests to addresses that somebody else names: checked hop by hop, bounded in bytes.

Every failure is a `ToolError`, whose text is safe to show."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import unquote

import httpx

from drsai_backend.errors import DrSaiError, InvalidRequest, RefusedAddress, ToolError, TransientToolError
from drsai_backend.net.addresses import Reachable, endpoint_of
from drsai_backend.net.bodies import Packed
from drsai_backend.net.clients import client
from drsai_backend.net.transport import Resolve
from drsai_backend.tools.results import FileOutput

SAFE: Final = ("GET", "HEAD")
REDIRECTS: Final = 5
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_OF_NAMES: Final = frozenset(("punycode", "idna", "undefined"))
"""What Python calls charsets, and are for names of hosts or for nothing: the time of one grows with the square of the
text, and the others replace nothing."""
_OF_THE_CONNECTION: Final = frozenset(("host", "content-length", "transfer-encoding", "connection", "upgrade", "te"))


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise ValueError for headers that no request can have, or that would be another one's."""
    for name, value in headers.items():
        if _HEADER.fullmatch(name) is None:
            raise ValueError(f"{name!r} is no name of a header")
        if name.lower() in _OF_THE_CONNECTION:
            raise ValueError(f"{name!r} is made with the request and cannot be set")
        # A line break would begin another header, or the body.
        if any(ord(char) < 32 or ord(char) == 127 for char in value):
            raise ValueError(f"the value of {name!r} has control characters")


def decoded(content: bytes, charset: str) -> str | None:
    """The text in a charset that somebody else names, with what is none of it replaced; None: it is no charset of
    texts."""
    try:
        return None if codecs.lookup(charset).name in _OF_NAMES else content.decode(charset, "replace")
    except (LookupError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: `response` for its status and headers, and all of its `content`, unpacked."""

    response: httpx.Response
    content: bytes

    @property
    def kind(self) -> str:
        """The media type, in lower case, without parameters; "" where the answer names none."""
        return self.response.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def text(self) -> str:
        """The content as text, in the charset that the answer names, else UTF-8; what is none of it is replaced."""
        text = decoded(self.content, self.response.charset_encoding or "utf-8")
        return self.content.decode("utf-8", "replace") if text is None else text

    def as_file(self) -> FileOutput:
        """The content as a file, by the last part of the URL's path."""
        last = unquote(self.response.request.url.path).rstrip("/").rpartition("/")[2]
        name = "".join(char for char in last if char.isprintable() and char not in '\\/:*?"<>|')[:100] or "answer"
        return FileOutput(name, self.content, self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Sends the requests of a tool.

    Attributes:
        name: of the tool or the service, for the texts.
        reachable: which addresses may be reached, on redirects too.
        resolve: how host names are resolved; None: as the system does.
        timeout: seconds without a byte. How long a call may take is up to the options of the tool.
        max_bytes: of an answer; a longer one is refused while it arrives.
        redirects: how many are followed, by GET and HEAD alone.
        upgrades: where http may not be asked, https is asked in its place.
    """

    name: str
    reachable: Reachable
    resolve: Resolve | None = None
    timeout: float = 30.0
    max_bytes: int = 1_000_000
    redirects: int = REDIRECTS
    upgrades: bool = False

    async def send(
        self,
        method: str,
        url: httpx.URL | str,
        headers: Mapping[str, str] | Mapping[str, bytes] | None = None,
        content: bytes | None = None,
    ) -> Answer:
        """The answer to a request, whatever its status. `headers` and `content` go to the host of `url` alone.

        Raises:
            ToolError: nothing was answered that can be used; `TransientToolError` where GET or HEAD found nobody.
        """
        try:
            async with client(self.reachable, self.max_bytes, resolve=self.resolve, timeout=self.timeout) as http:
                for _ in range(self.redirects + 1):
                    url = self._upgraded(httpx.URL(url))
                    self.reachable.check_url(str(url), "url")
                    response = await http.request(method, url, headers=cast("Any", headers), content=content)
                    if not response.has_redirect_location:  # 300 and 304 name no other address.
                        return Answer(response, response.content)
                    if method not in SAFE:
                        raise ToolError(f"{self.name} was sent on to another address, which only GET follows.")
                    onward = url.join(response.headers["location"])
                    if endpoint_of(onward) != endpoint_of(url):
                        headers = content = None  # Credentials, in either, are for the host that was named.
                    url = onward.copy_with(fragment=None)
            often = (
                f"more than {self.redirects} times" if self.redirects else "to another address, which is not followed"
            )
            raise ToolError(f"{self.name} was sent on {often}.")
        except InvalidRequest as error:
            why = "must not be reached from here" if isinstance(error, RefusedAddress) else "cannot be called"
            raise ToolError(f"{self.name} leads to an address that {why}.") from error
        except DrSaiError:
            raise
        except Packed as refused:
            raise ToolError(f"{self.name} {refused}") from None
        except httpx.StreamError:
            raise ToolError(f"{self.name} answered with more than {self.max_bytes} bytes.") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            # Its text may hold the URL, and that a credential.
            text = f"{self.name} could not be reached ({type(error).__name__})."
            raise (TransientToolError if method in SAFE else ToolError)(text) from None

    def _upgraded(self, url: httpx.URL) -> httpx.URL:
        if not self.upgrades or url.scheme != "http" or self.reachable.has_private:
            return url
        return url.copy_with(scheme="https", port=None if url.port == 80 else url.port)
