"""A tool server: `python mcp_server.py` over stdio, `python mcp_server.py http PORT` or `… sse PORT`."""

import os
import signal
import sys
import time
from pathlib import Path

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, ToolAnnotations
from pydantic import BaseModel

server = MCPServer("numbers", version="7.1")
PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde\x00\x00\x00\x0cIDATx"
    b"\x9cc\xf8\xcf\xc0\x00\x00\x03\x01\x01\x00\xc9\xfe\x92\xef\x00\x00\x00\x00IEND\xaeB`\x82"
)


class Point(BaseModel):
    x: int
    y: int


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


@server.tool()
def norm(point: Point) -> int:
    """The sum of the coordinates."""
    return point.x + point.y


@server.tool()
def count(path: str, wait: float = 0.0) -> str:
    """Adds a line to a file."""
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(wait)
    return "counted"


@server.tool()
def picture() -> Image:
    """A small picture."""
    return Image(data=PNG, format="png")


@server.tool()
def many(pictures: int, texts: int) -> list[Image | str]:
    """Pictures and texts."""
    return [*[Image(data=PNG, format="png")] * pictures, *map(str, range(texts))]


@server.tool()
def long(size: int) -> str:
    """A long text."""
    return "x" * size


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("no such thing")


@server.tool()
def refuse() -> str:
    """Answers with an error of the protocol."""
    raise MCPError(INVALID_REQUEST, "order numbers are not negative")


@server.tool()
async def wait(path: str) -> str:
    """Answers once the file is gone."""
    while await anyio.Path(path).exists():  # noqa: ASYNC110 - another process removes it
        await anyio.sleep(0.02)
    return "gone"


@server.tool()
def hang() -> str:
    """Blocks the whole server."""
    time.sleep(60)
    return "late"


@server.tool()
def die() -> str:
    """Ends the server at once."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


@server.tool()
def pid() -> int:
    """Its process."""
    return os.getpid()


@server.tool()
async def steps(number: int, context: Context) -> str:
    """Tells how far it is."""
    for done in range(1, number + 1):
        await context.report_progress(done, number, f"step {done}")
    return "all done"


@server.resource("files://reports/q1.pdf", mime_type="application/pdf")
def report() -> bytes:
    """No text."""
    return b"%PDF\xff"


@server.resource("note://hello")
def hello() -> str:
    """A note."""
    return "Hello."


@server.prompt()
def greet(name: str) -> str:
    """A greeting."""
    return f"Greet {name}."


if __name__ == "__main__":
    kind = sys.argv[1] if len(sys.argv) > 1 else "stdio"
    if kind == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http" if kind == "http" else "sse", port=int(sys.argv[2]))
