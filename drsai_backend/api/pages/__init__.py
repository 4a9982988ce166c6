"""The pages are for people: `/docs` shows the OpenAPI document, by Swagger UI, which comes along, and `/console` is the
console: no other host is asked.

`static/` has swagger-ui-dist 5.35.0 as it was published, and `docs.js`, which begins it: no page has a script in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from drsai_backend.api.pages.console import console_routes

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>drsai_backend</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/static/swagger-ui.css">
<div id="docs"></div>
<script src="docs/static/swagger-ui-bundle.js"></script>
<script src="docs/static/docs.js"></script>
</html>
"""


async def _docs(_: Request) -> HTMLResponse:
    return HTMLResponse(_PAGE, headers={"content-security-policy": _POLICY})


def page_routes() -> list[BaseRoute]:
    """The routes of the pages, which anybody may read, as they may the document."""
    static = Mount("/docs/static", StaticFiles(directory=Path(__file__).parent / "static"))
    docs = (Route(path, _docs, include_in_schema=False) for path in ("/docs", "/redoc"))
    return [*docs, static, *console_routes()]
