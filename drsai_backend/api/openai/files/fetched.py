"""Fetched files are those that a request names by URL: a guarded client fetches each once, it is looked at, and kept as
a file of who asks."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from drsai_backend.database.files import FileInfo
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import InvalidRequest, ToolError
from drsai_backend.files import Files
from drsai_backend.models.images import FORMATS, MAX_PIXELS, EncodedImage, check_images
from drsai_backend.net.addresses import Reachable
from drsai_backend.tools.http.sending import Answer, Sender
from drsai_backend.tools.results import FileOutput

SECONDS: Final = 20.0
"""How long the files of a request may take together."""
MOST: Final = 8 * 1024 * 1024
"""Bytes of a file."""
REDIRECTS: Final = 3
_SERVER: Final = "The server of its URL"


async def image_at(files: Files, reachable: Reachable, owner: Owner, url: str, where: str, end: float) -> FileInfo:
    """The image of a URL, as a file of who asks: the one that it was when they named it first.

    Args:
        files: keep it.
        reachable: from where it may be fetched.
        owner: who asks.
        url: of the image.
        where: the field that it comes from.
        end: on the clock of the event loop, until when it may take.

    Raises:
        InvalidRequest: it cannot be had, or is no image; `param` names the field, and the text says why.
        FilesFull, FileTooLarge: there is no room for it.
    """
    origin = origin_of(url)
    if (known := await files.made_by(owner, origin)) is not None:
        return known
    answer = await _fetched(reachable, url, _Asked(where, end, "image"), _check_image)
    kind = EncodedImage(base64.b64encode(answer.content).decode()).data_uri[5:].partition(";")[0]
    name = answer.as_file().name
    return await files.create(owner, name, answer.content, purpose="vision", media_type=kind, origin=origin)


async def document_at(reachable: Reachable, url: str, where: str, end: float) -> tuple[FileOutput, str]:
    """The document of a URL, which is not kept yet, and its media type. Arguments and errors are those of
    `image_at`."""
    answer = await _fetched(reachable, url, _Asked(where, end, "file"))
    return answer.as_file(), answer.kind


def origin_of(url: str) -> str:
    """Return what says of a file that it came from a URL."""
    return f"url/{hashlib.sha256(url.encode()).hexdigest()}"


class _Asked(NamedTuple):
    """Which field names the URL, until when it may take, and what is wanted."""

    where: str
    end: float
    what: str


async def _check_image(answer: Answer) -> None:
    text = base64.b64encode(answer.content).decode()
    [pixels] = await asyncio.to_thread(check_images, [text])  # In a process that may die of it.
    if pixels is None or pixels > MAX_PIXELS:
        what = f"no readable image ({', '.join(FORMATS)}) of at most {MAX_PIXELS} pixels"
        raise ToolError(f"{_SERVER} answered with {answer.kind or 'something'} that is {what}.")


async def _fetched(
    reachable: Reachable, url: str, asked: _Asked, check: Callable[[Answer], Awaitable[None]] | None = None
) -> Answer:
    sender = Sender(
        name=_SERVER, reachable=reachable, timeout=SECONDS, max_bytes=MOST, redirects=REDIRECTS, upgrades=True
    )
    try:
        async with asyncio.timeout_at(asked.end):
            answer = await sender.send("GET", url)
        if answer.response.status_code != 200:
            raise ToolError(f"{_SERVER} answered with HTTP {answer.response.status_code}.")
        if check is not None:
            await check(answer)
    except TimeoutError:
        why = f"The {asked.what}s of the request were not there within {SECONDS:g} seconds."
    except ToolError as error:
        # Its cause says which address is refused, and by which setting.
        told = error.__cause__ if isinstance(error.__cause__, InvalidRequest) else error
        why = f"{told.message.removesuffix('.')}.".replace("`url`", "its URL")
    else:
        return answer
    instead = "Send the image as a `data:` URL" if asked.what == "image" else "Send its content"
    raise InvalidRequest(f"`{asked.where}`: {why} {instead}, or name another URL", param=asked.where)
