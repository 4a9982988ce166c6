"""The served teams as the tools of an MCP server: over streamable HTTP (`route`), and over stdio by `drsai mcp`."""
