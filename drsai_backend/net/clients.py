"""The guarded client asks hosts which somebody else names, and reads no more of an answer than it may have."""

from __future__ import annotations

from types import ModuleType
from typing import NoReturn, cast

import httpx

from drsai_backend.net.addresses import Reachable
from drsai_backend.net.bodies import PLAIN, body_of
from drsai_backend.net.transport import Resolve, checked_transport


def client(
    reachable: Reachable | None,
    limit: int,
    *,
    package: ModuleType = httpx,
    resolve: Resolve | None = None,
    events: bool = False,
    **options: object,
) -> httpx.AsyncClient:
    """A client that asks for plain bytes. On reading an answer, it raises a `StreamError` of the package where that has
    more than `limit` bytes, and `Packed` where it is packed in a way that has no bound.

    Args:
        reachable: what may be reached, as `checked_transport` holds to it; None: anything, as the operator names it.
        limit: bytes of an answer, unpacked.
        package: whose client it is: httpx, or httpx2.
        resolve: how a name is resolved; default: as the system does.
        events: whether events are taken one by one, as they come: then `limit` is that of each.
        options: as the package's own client takes them; `timeout` among them.
    """
    body = body_of(package)

    def too_long(*_: object) -> NoReturn:
        raise package.StreamError(f"the answer has more than {limit} bytes")

    async def plain(request: httpx.Request) -> None:
        request.headers.update(PLAIN)

    async def bound(response: httpx.Response) -> None:
        response.stream = cast("httpx.AsyncByteStream", body(response, limit, too_long, events=events))

    if reachable is not None:
        options |= {"transport": checked_transport(package, reachable, resolve), "trust_env": False}
    return package.AsyncClient(event_hooks={"request": [plain], "response": [bound]}, **options)
