"""A tool server over stdio that says in which span it is called."""

from mcp.server.mcpserver import MCPServer
from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

server = MCPServer("traced")


@server.tool()
async def span() -> str:
    """The trace and the span of the caller."""
    where = get_current_span().get_span_context()
    return f"{format_trace_id(where.trace_id)} {format_span_id(where.span_id)}"


if __name__ == "__main__":
    server.run("stdio")
