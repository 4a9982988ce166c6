"""A tool that is registered while the program runs, and served to an agent that names it.

`POST /v1/tools` and `drsai tools apply` do the same. The endpoint is a server on this machine; keeps
`registered_tools.db` here.
"""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from drsai_backend import DrSai, DrSaiAgent, RegisteredTools, RunContext
from drsai_backend.config import Settings
from drsai_backend.errors import InvalidRequest


class Weather(BaseHTTPRequestHandler):
    """Stands for somebody's API, which wants a key."""

    def do_GET(self) -> None:
        is_known = self.headers["X-Key"] == "open sesame"
        body = json.dumps({"text": "sunny, 21 degrees" if is_known else "who are you?"}).encode()
        self.send_response(200 if is_known else 403)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


def forecaster(context: RunContext) -> DrSaiAgent:
    tools = RegisteredTools(["weather"])
    return DrSaiAgent("forecaster", context.model_client(), workbench=tools, reflect_on_tool_use=True)


async def main(url: str) -> None:
    # Only public addresses are called unless the operator says otherwise.
    settings = Settings(allowed_addresses=("127.0.0.0/8",))
    headers = {"X-Key": "{secret:KEY}"}
    config = {
        "description": "The weather of a city.",
        "parameters": [{"name": "city", "type": "string", "description": "Its name.", "required": True}],
        "endpoint": {"url": f"{url}/cities/{{city}}", "headers": headers},
        "check": {"url": f"{url}/me", "headers": headers},
        "result": "$.text",
    }
    teams = {"forecaster": forecaster}
    async with DrSai(teams=teams, database_url="sqlite:///registered_tools.db", settings=settings) as drsai:
        try:
            await drsai.tools.put("weather", config, secrets={"KEY": "wrong"})
        except InvalidRequest as error:
            print(f"refused: {error}")
        made = await drsai.tools.put("weather", config, secrets={"KEY": "open sesame"})
        print(f"{made.name}, its credentials: {', '.join(made.secrets)}")
        print("tried:", (await drsai.tools.invoke("weather", {"city": "Rome"})).to_text())

        result = await drsai.user("ada").run("forecaster", "What is the weather in Rome?")
        print("the agent:", result.text)
    async with DrSai(teams=teams, database_url="sqlite:///registered_tools.db", settings=settings) as drsai:
        print("calls:", (await drsai.tools.statistics("weather")).calls)
        await drsai.tools.delete("weather")


if __name__ == "__main__":
    api = HTTPServer(("127.0.0.1", 0), Weather)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    asyncio.run(main(f"http://127.0.0.1:{api.server_port}"))
    api.shutdown()
    api.server_close()
