"""An HTTP endpoint as a tool, by a config. The endpoint is a server on this machine; keeps `http_tools.db` here."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from drsai_backend import DrSai, DrSaiAgent, RunContext
from drsai_backend.tools.http import HttpTool


class Weather(BaseHTTPRequestHandler):
    """Stands for somebody's API."""

    def do_GET(self) -> None:
        print(f"   (the API is asked for {self.path} by {self.headers['X-User']})")
        body = json.dumps({"forecast": [{"text": "sunny, 21 degrees"}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


def main() -> None:
    api = HTTPServer(("127.0.0.1", 0), Weather)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    weather = HttpTool(
        {
            "name": "weather",
            "description": "The weather of a city.",
            "parameters": [{"name": "city", "type": "string", "description": "Its name.", "required": True}],
            "endpoint": {
                "url": f"http://127.0.0.1:{api.server_port}/cities/{{city}}",
                "headers": {"X-User": "{userId}"},
                "timeout": 5,
            },
            "result": "$.forecast[0].text",
        },
        # Only public addresses are called unless the operator says otherwise.
        allowed_addresses=("127.0.0.0/8",),
    )

    def forecaster(context: RunContext) -> DrSaiAgent:
        return DrSaiAgent("forecaster", context.model_client(), tools=[weather], reflect_on_tool_use=True)

    async def ask() -> None:
        async with DrSai(teams={"forecaster": forecaster}, database_url="sqlite:///http_tools.db") as drsai:
            async for message in drsai.user("ada").run_stream("forecaster", "What is the weather in Rome?"):
                print("  ", type(message).__name__, getattr(message, "content", ""))

    asyncio.run(ask())
    api.shutdown()
    api.server_close()


if __name__ == "__main__":
    main()
