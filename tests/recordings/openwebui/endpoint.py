"""The scripted model endpoint that Open WebUI is recorded in front of."""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TASKS = {
    "title": {"title": "A Title"},
    "follow_ups": {"follow_ups": ["And then?", "Why?", "How much?"]},
    "tags": {"tags": ["Science", "Testing"]},
    "queries": {"queries": ["first query", "second query"]},
    "text": {"text": " and how does it work?"},
    "prompt": {"prompt": "a lighthouse at night"},
}


class Endpoint:
    """An OpenAI-compatible server that answers by what it is asked, and writes everything down."""

    def __init__(self) -> None:
        self.exchanges: list[dict[str, Any]] = []
        self.running = self.asked = 0
        self.last = time.monotonic()
        self._lock = threading.Lock()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                names = ["assistant", "writers"]
                data = [{"id": n, "object": "model", "created": 1767225600, "owned_by": "drsai"} for n in names]
                self._json(200, {"object": "list", "data": data})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self.path.endswith("/embeddings"):
                    given = body["input"] if isinstance(body["input"], list) else [body["input"]]
                    data = [{"object": "embedding", "index": n, "embedding": [1.0, 0.5]} for n, _ in enumerate(given)]
                    exchange = endpoint.begin(self.path, dict(self.headers.items()), body)
                    exchange["answer"] = {"vectors": len(given)}
                    self._json(200, {"object": "list", "data": data, "model": body["model"], "usage": {}})
                    endpoint.end()
                    return
                exchange = endpoint.begin(self.path, dict(self.headers.items()), body)
                try:
                    self._answer(exchange, body, answer_to(body, endpoint.asked))
                except (BrokenPipeError, ConnectionResetError):
                    exchange["answer"]["left_by_client"] = True
                finally:
                    endpoint.end()

            def _json(self, status: int, data: Any) -> None:
                text = json.dumps(data).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def _answer(self, exchange: dict[str, Any], body: dict[str, Any], answer: dict[str, Any]) -> None:
                exchange["answer"] = {key: value for key, value in answer.items() if key != "slow"}
                finish = "tool_calls" if "tool_calls" in answer else "stop"
                head = {"id": "chatcmpl-1", "created": int(time.time()), "model": body["model"]}
                usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
                if not body.get("stream"):
                    message = {"role": "assistant", "content": None, **exchange["answer"]}
                    choice = {"index": 0, "message": message, "finish_reason": finish}
                    self._json(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})
                    return
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True

                def event(delta: dict[str, Any], end: str | None = None, **more: Any) -> None:
                    choices = [{"index": 0, "delta": delta, "finish_reason": end}]
                    data = {**head, "object": "chat.completion.chunk", "choices": choices, **more}
                    self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())
                    self.wfile.flush()

                event({"role": "assistant", "content": ""})
                for piece in re.findall(r"\s*\S+", answer.get("reasoning_content", "")):
                    event({"reasoning_content": piece})
                shown = ""
                for piece in re.findall(r"\s*\S+", answer.get("content") or ""):
                    event({"content": piece})
                    shown += piece
                    if answer.get("slow"):
                        exchange["answer"]["content"] = shown
                        time.sleep(0.5)
                for index, call in enumerate(answer.get("tool_calls", [])):
                    event({"tool_calls": [{"index": index, **call}]})
                event({}, finish)
                self.wfile.write(f"data: {json.dumps({**head, 'choices': [], 'usage': usage})}\n\n".encode())
                self.wfile.write(b"data: [DONE]\n\n")

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def begin(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            request = {"method": "POST", "path": path, "headers": headers, "body": body}
            self.exchanges.append({"request": request, "answer": {}})
            self.running += 1
            self.asked += bool(body.get("stream"))
            return self.exchanges[-1]

    def end(self) -> None:
        with self._lock:
            self.running -= 1
            self.last = time.monotonic()

    def settle(self, quiet: float = 2.5, at_most: float = 60) -> None:
        """Wait until nothing has arrived for a while: titles, tags and follow-ups come after the answer."""
        deadline = time.monotonic() + at_most
        while time.monotonic() < deadline:
            if not self.running and time.monotonic() - self.last > quiet:
                return
            time.sleep(0.1)

    def take(self) -> list[dict[str, Any]]:
        with self._lock:
            taken, self.exchanges, self.asked = self.exchanges, [], 0
            return taken


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def answer_to(body: dict[str, Any], number: int) -> dict[str, Any]:
    """The answer of a well-behaved model: JSON to a task, a call of a tool where asked for, else a sentence, that no
    other request of the scene has got (`number`: how many of them were streamed)."""
    messages = body["messages"]
    last = messages[-1]
    text = text_of(last)
    if "### Task:" in text and "Respond to the user query" not in text:  # the latter is a person's question
        asked = next((key for key in TASKS if f'"{key}"' in text), None)
        return {"content": json.dumps(TASKS[asked]) if asked else "What was said so far, in short."}
    if "emoji" in text:
        return {"content": "🔬"}
    if messages[0]["role"] == "system" and "Available Tools" in text_of(messages[0]):
        return {"content": json.dumps({"tool_calls": [{"name": "double", "parameters": {"number": 21}}]})}
    if last["role"] == "tool":
        return {"content": f"The tool said it (answer {number})."}
    if last["role"] == "assistant":
        return {"content": " And this is the rest of it."}
    offered = [tool["function"]["name"] for tool in body.get("tools", [])]
    if "time" in text and "get_current_timestamp" in offered:
        function = {"name": "get_current_timestamp", "arguments": "{}"}
        return {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    if "Count" in text:
        return {"content": " ".join(str(n) for n in range(1, 60)), "slow": True}
    if "Think" in text:
        return {"reasoning_content": "The user wants me to think.", "content": f"I thought (answer {number})."}
    if body["model"] == "writers":
        return {"content": f"**writer**\n\nDraft {number}.\n\n**reviewer**\n\nAPPROVE"}
    return {"content": f"Answer {number}: yes."}
