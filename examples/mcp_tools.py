"""The tools of an MCP server, which is this file as well: `python mcp_tools.py serve` over stdio.

Runs offline. Needs the package `mcp`.
"""

import asyncio
import sys

from drsai_backend.tools.mcp import McpStdio, McpWorkbench


def serve() -> None:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("shop")

    @server.tool()
    def price(article: str) -> str:
        """The price of an article."""
        return {"apple": "0.40 EUR", "pear": "0.55 EUR"}.get(article, "not sold here")

    @server.resource("shop://hours")
    def hours() -> str:
        """When the shop is open."""
        return "8 to 18, not on Sundays"

    _ = price, hours
    server.run("stdio")


async def main() -> None:
    shop = McpStdio(name="shop", command=sys.executable, args=(__file__, "serve"), resources=True, timeout=10)
    async with McpWorkbench([shop]) as workbench:
        for tool in await workbench.list_tools():
            print(f"{tool['name']}: {tool.get('description', '')}")
        for name, arguments in (
            ("shop__price", {"article": "pear"}),
            ("shop__read_resource", {"uri": "shop://hours"}),
            ("shop__nothing", {}),
        ):
            # An error is a result, too: agents read it.
            result = await workbench.call_tool(name, arguments)
            print(f"{name}: {result.to_text()}" + (" (an error)" if result.is_error else ""))
    # An agent has them as `AssistantAgent(…, workbench=McpWorkbench([shop]))`.


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else asyncio.run(main())
