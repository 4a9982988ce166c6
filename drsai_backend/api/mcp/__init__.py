"""The MCP server has the served teams as its tools: over streamable HTTP (`route`), and over stdio by `drsai mcp`."""
