"""What tools that are not in the process do: each call is a line in the file `CHAOS_TOOLS`, written with one write.

`Site` is the HTTP server behind HTTP tools. Run as a program, this file is a tool server that speaks MCP over stdio; it
needs nothing but Python, so that it starts in no time.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote


def take_effect(path: str | Path, tool: str, token: str, before: float, after: float) -> str:
    """Wait, write the line, wait again. Returns what the model is told."""
    time.sleep(before)
    line = json.dumps({"tool": tool, "token": token, "time": time.time(), "pid": os.getpid()}) + "\n"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, line.encode())
    os.close(file)
    time.sleep(after)
    return f"{tool} {token} done"


class Site:
    """`/<tool>/<token>/<before>/<after>`, whatever the method. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None: ...

            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                tool, token, before, after = map(unquote, self.path[1:].split("/"))
                text = take_effect(path, tool, token, float(before), float(after)).encode()
                try:
                    self.send_response(200)
                    self.send_header("content-type", "text/plain; charset=utf-8")
                    self.send_header("content-length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)
                except OSError:
                    pass  # Who asked was killed.

            do_GET = do_POST = _answer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Site:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


_ARGUMENTS = {"token": {"type": "string"}, "before": {"type": "number"}, "after": {"type": "number"}}
_TOOL = {
    "name": "mark",
    "description": "Marks something; must not be called again.",
    "inputSchema": {"type": "object", "properties": _ARGUMENTS, "required": list(_ARGUMENTS)},
}


def _serve() -> None:
    lock = threading.Lock()

    def answer(asked: dict[str, Any]) -> None:
        found: dict[str, Any] = {}
        match asked["method"]:
            case "initialize":
                version = asked["params"]["protocolVersion"]
                info = {"name": "effects", "version": "1"}
                found = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                found = {"tools": [_TOOL]}
            case "tools/call":
                text = take_effect(os.environ["CHAOS_TOOLS"], "n__mark", **asked["params"]["arguments"])
                found = {"content": [{"type": "text", "text": text}], "isError": False}
            case "ping":
                pass
            case _:
                error = {"code": -32601, "message": "there is no such method"}
                _say(lock, {"jsonrpc": "2.0", "id": asked["id"], "error": error})
                return
        _say(lock, {"jsonrpc": "2.0", "id": asked["id"], "result": found})

    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked and "method" in asked:
            threading.Thread(target=answer, args=(asked,)).start()  # It ends when all is answered, and not before.


def _say(lock: threading.Lock, message: dict[str, Any]) -> None:
    with lock:
        print(json.dumps(message), flush=True)


if __name__ == "__main__":
    _serve()
