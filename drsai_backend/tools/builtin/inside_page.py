"""The reader of HTML is inside the process that `tools.apart` starts. Nothing of the package is imported here."""

import json
from collections.abc import Callable

import trafilatura


def main(data: bytes) -> bytes:
    """The text of a page, a JSON object with `page` and `url`; all of its text where no article is found."""
    given = json.loads(data)
    extract: Callable[..., str | None] = trafilatura.extract
    text = extract(
        given["page"],
        url=given["url"],
        output_format="markdown",
        include_links=True,
        include_tables=True,
        include_comments=False,
    )
    return (text or trafilatura.html2txt(given["page"]) or "").strip().encode(errors="replace")
