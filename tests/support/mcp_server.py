"""A tool server over stdio: `python mcp_server.py`."""

from mcp.server.fastmcp import FastMCP

server = FastMCP("numbers")


@server.tool()
def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


if __name__ == "__main__":
    server.run("stdio")
