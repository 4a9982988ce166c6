"""The tools of MCP servers are made for agents here. Importing this is cheap: the `mcp` package is imported when a
server is asked first."""

from drsai_backend.tools.mcp.servers import McpHttp, McpServers, McpSse, McpStdio, OAuthClient
from drsai_backend.tools.mcp.workbench import McpWorkbench

__all__ = ["McpHttp", "McpServers", "McpSse", "McpStdio", "McpWorkbench", "OAuthClient"]
