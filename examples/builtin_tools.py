"""Built-in tools: the model searches the web, reads a file, and asks a person, who answers after the process has ended.

Runs offline: a server on this machine stands for SearXNG. Keeps `builtin_tools.db` and the folder `handbook` here.
"""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from drsai_backend import Answer, DrSai, DrSaiAgent, RunContext, builtin_tools

DATABASE = "sqlite:///builtin_tools.db"
HANDBOOK = Path("handbook")
TASKS = (
    "Web search, please: 'tide table'.",
    "Use the file reader with 'harbour.txt'.",
    "Ask person: 'Which day suits you?'",
)


class SearXNG(BaseHTTPRequestHandler):
    """Stands for a search engine of one's own."""

    def do_GET(self) -> None:
        found = {"title": "Tide tables", "url": "https://example.org/tides", "content": "High and low water, by day."}
        body = json.dumps({"query": "tides", "results": [found]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


def main() -> None:
    engine = HTTPServer(("127.0.0.1", 0), SearXNG)
    threading.Thread(target=engine.serve_forever, daemon=True).start()
    HANDBOOK.mkdir(exist_ok=True)
    (HANDBOOK / "harbour.txt").write_text("The harbour is open from 8 to 18.\nBring a lamp.\n", encoding="utf-8")

    def guide(context: RunContext) -> DrSaiAgent:
        # What is not said here comes from DRSAI_SEARCH_PROVIDER, DRSAI_SEARCH_URL, DRSAI_FILE_FOLDERS and the like.
        tools = builtin_tools(
            ["web_search", "file_reader", "ask_person"],
            web_search={"provider": "searxng", "url": f"http://127.0.0.1:{engine.server_port}"},
            file_reader={"folders": [HANDBOOK]},
        )
        return DrSaiAgent("guide", context.model_client(), tools=tools, reflect_on_tool_use=True)

    async def ask() -> str:
        async with DrSai({"guide": guide}, DATABASE) as drsai:
            for task in TASKS:
                print(f"> {task}")
                result = await drsai.run("guide", task, thread_id="trip")
                if result.input_request is not None:
                    print(f"({result.status}: {result.input_request['prompt']})")
                    return result.input_request["id"]
                print(result.task_result["messages"][-1]["content"])
        raise RuntimeError("nobody was asked")

    async def answer(request_id: str) -> None:
        async with DrSai({"guide": guide}, DATABASE) as drsai:
            handle = await drsai.answer("trip", Answer(request_id, "Monday"))
            end = await handle.wait()
            print(f"{end.status}: {handle.transcript()[-1].message.to_text()}")

    asyncio.run(answer(asyncio.run(ask())))
    engine.shutdown()
    engine.server_close()


if __name__ == "__main__":
    main()
