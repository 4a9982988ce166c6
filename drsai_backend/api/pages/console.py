"""`/console` is the page in which people chat with teams, and see and steer what runs: static files, made by `make
console` from `console/`. All that it shows, it asks the API for."""

from __future__ import annotations

import gzip
from functools import lru_cache
from html import escape
from pathlib import Path
from secrets import token_urlsafe
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

_FOLDER: Final = Path(__file__).parent / "console"
_KINDS: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
# Scripts are files of this server, and no text ever becomes markup or code (Trusted Types without a policy). The
# editor of definitions puts its styles into the page, by a nonce that each page has of its own.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data: blob:; "
    "media-src blob:; font-src 'self'; connect-src 'self'; worker-src 'none'; base-uri 'self'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_FOR_EVER: Final = "public, max-age=31536000, immutable"


@lru_cache(maxsize=64)
def _packed(path: Path) -> bytes:
    """A file as it is sent to whoever takes gzip: its name has the digest of what is in it."""
    return gzip.compress(path.read_bytes(), 9)


async def _asset(request: Request) -> Response:
    name: str = request.path_params["name"]
    path = _FOLDER / "assets" / name
    # Only what was built is there to be asked for.
    if "/" in name or path.suffix not in _KINDS or not path.is_file():
        return Response(status_code=404)
    headers = {"cache-control": _FOR_EVER, "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
        content = await run_in_threadpool(_packed, path)
    else:
        content = await run_in_threadpool(path.read_bytes)
    return Response(content, media_type=_KINDS[path.suffix], headers=headers)


async def _page(request: Request) -> Response:
    root = request.scope.get("root_path", "")
    if request.url.path == f"{root}/console":  # Addresses in the page are relative to a folder.
        return RedirectResponse(f"{root}/console/")
    text = (_FOLDER / "index.html").read_text(encoding="utf-8")
    nonce = token_urlsafe()
    text = text.replace('<base href="/console/"', f'<base href="{escape(root)}/console/"', 1)
    text = text.replace('name="csp-nonce" content=""', f'name="csp-nonce" content="{nonce}"', 1)
    headers = {"content-security-policy": _POLICY.format(nonce=nonce), "cache-control": "no-store"}
    return HTMLResponse(text, headers=headers)


def console_routes() -> list[BaseRoute]:
    """The routes of the console, whose files anybody may read. Below it each address is the page, which reads it."""
    return [
        Route("/console/assets/{name:path}", _asset, include_in_schema=False),
        Route("/console", _page, include_in_schema=False),
        Route("/console/{path:path}", _page, include_in_schema=False),
    ]
