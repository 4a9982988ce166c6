"""MCP servers are listed and asked whether they answer: those of a tenant, and those of the operator."""
