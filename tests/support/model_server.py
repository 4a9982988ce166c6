"""A scripted model server: OpenAI Chat Completions over real HTTP, on a free port of 127.0.0.1.

::

    with ModelServer() as server:
        server.script("gpt-4o-mini", ["Hello!", Reply(tool_calls=[ToolCall("add", {"a": 1, "b": 2})]), "It is 3."])
        server.script("reviewer", lambda request: "APPROVE" if len(request.messages) > 3 else "Shorter, please.")
        client = OpenAIChatCompletionClient(model="gpt-4o-mini", api_key="k", base_url=server.base_url)
        ...
        assert server.requests[-1].body["temperature"] == 0.2

A script is found by the request's model name, else by a word of its system messages, else it is the default script
(`server.script(None, ...)`; at first every request is answered "ok"). It is a list, used up in order (an exhausted list
answers 400 `script_exhausted`), or a function, sync or async, of the `ModelRequest`. An answer is a `Reply`, a
`Failure`, `Raw` bytes, or a string, which is short for `Reply(content)`. All requests are in `server.requests`.

The server is as strict as the strictest real ones, unless `strict=False`: one system message at most, and first; then
user and assistant in turns, as the chat templates of Gemma and Mistral want it; no empty message, no unknown parameter,
no `name`, as Mistral's API wants it. It continues an answer at the end only where `continues` says how it is to be
asked. What it refuses is in `server.refused`, and not in `server.requests`.

Replies can be slow (`delay`, `chunk_delay` seconds), break the connection after some chunks (`break_after`), or hang
until the client goes away or the server stops (`hang`). `request.disconnected` says whether the client went away.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from autogen_ext.models.openai import _model_info

from tests.support.listening import PromptServer
from tests.support.strict_endpoint import refusal_of

_NO_PARAMETERS = frozenset({"model", "messages", "stream", "stream_options", "tools", "tool_choice"})


@dataclass
class ToolCall:
    """One function call of the model. `arguments` is a dict, or the raw text for broken JSON."""

    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict)
    id: str | None = None


@dataclass
class Reply:
    """An answer of the model. `content` as a dict is sent as JSON text; `chunks` sets how a stream is cut."""

    content: str | dict[str, Any] | None = None
    tool_calls: Sequence[ToolCall] = ()
    prompt_tokens: int = 10
    completion_tokens: int = 5
    usage: bool = True
    """False: a server that never reports usage."""
    finish_reason: str | None = None
    model: str | None = None
    """The name the answer carries; the request's, resolved as OpenAI does it, when omitted."""
    chunks: Sequence[str] | None = None
    delay: float = 0.0
    chunk_delay: float = 0.0
    break_after: int | None = None
    hang: bool = False
    reasoning: str | None = None
    """What it thinks, given apart in the field `reasoned`; in a stream word by word."""
    reasoned: str = "reasoning_content"
    details: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of its usage, as `prompt_tokens_details` and `completion_tokens_details`."""
    service_tier: str | None = None
    system_fingerprint: str | None = None

    @property
    def text(self) -> str | None:
        return json.dumps(self.content) if isinstance(self.content, dict) else self.content


@dataclass
class Failure:
    """An error answer, in OpenAI's shape."""

    status: int
    message: str = "scripted failure"
    code: str | None = None
    param: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0


@dataclass
class Raw:
    """An answer of any bytes, sent one after the other as the client takes them."""

    body: Iterable[bytes]
    type: str = "application/json"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0


@dataclass
class ModelRequest:
    """A request as it arrived. Header names are lower case."""

    body: dict[str, Any]
    headers: dict[str, str]
    path: str
    number: int
    disconnected: bool = False

    @property
    def model(self) -> str:
        return self.body.get("model", "")

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body.get("messages", [])

    @property
    def parameters(self) -> dict[str, Any]:
        """What is asked of the answer, besides the tools."""
        return {name: value for name, value in self.body.items() if name not in _NO_PARAMETERS}

    @property
    def system(self) -> str:
        return "\n".join(str(item["content"]) for item in self.messages if item["role"] in ("system", "developer"))

    @property
    def last(self) -> str:
        """The text of the newest message."""
        content = self.messages[-1].get("content") if self.messages else ""
        if isinstance(content, list):
            return "\n".join(part["text"] for part in content if part["type"] == "text")
        return content or ""

    @property
    def tools(self) -> list[str]:
        """Names of the tools that are offered."""
        return [tool["function"]["name"] for tool in self.body.get("tools", [])]

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def api_key(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")


Answer = Reply | Failure | Raw | str
Script = Iterable[Answer] | Callable[[ModelRequest], Answer | Awaitable[Answer]]


class ModelServer:
    """Serves from a thread of its own between `__enter__` and `__exit__`; usable from sync and async tests."""

    def __init__(self, script: Script | None = None, *, strict: bool = True) -> None:
        self.requests: list[ModelRequest] = []
        self.refused: list[ModelRequest] = []
        self.strict = strict
        self.continues: str | None = None
        """How an answer at the end is continued: `plain`, `prefix`, `vllm`; None: such a request is refused."""
        self.reasons = False
        """Refuse requests whose calls of tools lack what was thought beside them, as DeepSeek's and Moonshot's models
        do that think between their calls; other servers refuse it where it is there."""
        self.declared = False
        """Refuse requests without tools whose messages call some, as Anthropic's API does."""
        self.embedded: Callable[[ModelRequest], dict[str, Any] | Failure] = embeddings_of
        self._scripts: dict[str | None, Callable[[ModelRequest], Answer | Awaitable[Answer]]] = {}
        self.script(None, script if script is not None else lambda _: "ok")
        self._stopping = threading.Event()
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        config = uvicorn.Config(
            self._app,
            log_config=None,
            lifespan="off",
            interface="asgi3",
            timeout_graceful_shutdown=1,
            timeout_keep_alive=60,
        )
        self._server = PromptServer(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    def script(self, key: str | None, script: Script) -> None:
        """Set what requests get: `key` is a model name or a word of the system messages; None: all other requests."""
        if callable(script):
            self._scripts[key] = script
            return
        answers = iter(script)
        self._scripts[key] = lambda _: next(answers, Failure(400, "the script is exhausted", "script_exhausted"))

    def clear(self) -> None:
        """Forget all scripts and requests; requests are answered "ok" again."""
        self.requests.clear()
        self.refused.clear()
        self._scripts.clear()
        self.script(None, lambda _: "ok")

    def __enter__(self) -> ModelServer:
        self._thread.start()
        deadline = time.monotonic() + 10
        while not self._server.started:
            if time.monotonic() > deadline:
                raise RuntimeError("the model server did not start")
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.stop()
        self._thread.join(10)
        self._socket.close()

    def _find(self, request: ModelRequest) -> Callable[[ModelRequest], Answer | Awaitable[Answer]]:
        if request.model in self._scripts:
            return self._scripts[request.model]
        system = request.system
        return next((found for key, found in self._scripts.items() if key and key in system), self._scripts[None])

    async def _app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body = b""
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                return  # the client died before it had sent all
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        if scope["method"] == "GET" and scope["path"] == "/v1/models":
            names = [key for key in self._scripts if key]
            await _json(send, 200, {"object": "list", "data": [{"id": name, "object": "model"} for name in names]})
            return
        if scope["path"] == "/v1/embeddings":
            headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
            await self._embed(ModelRequest(json.loads(body), headers, scope["path"], len(self.requests)), receive, send)
            return
        if scope["path"] != "/v1/chat/completions":
            await _json(send, 404, _error(f"no such path: {scope['path']}", "not_found"))
            return
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        request = ModelRequest(json.loads(body), headers, scope["path"], len(self.requests))
        refusal = refusal_of(request.body, self.continues, reasons=self.reasons) if self.strict else None
        if self.declared and not request.tools and any(each.get("tool_calls") for each in request.messages):
            refusal = "Requests which include `tool_use` or `tool_result` blocks must define tools"
        if refusal is not None:
            self.refused.append(request)
            await _json(send, 400, _error(refusal, "invalid_request"))
            return
        self.requests.append(request)
        watcher = asyncio.create_task(self._watch(request, receive))
        try:
            answer = self._find(request)(request)
            if inspect.isawaitable(answer):
                answer = await answer
            if isinstance(answer, str):
                answer = Reply(answer)
            await self._pause(request, answer.delay)
            if isinstance(answer, Failure):
                await _json(send, answer.status, _error(answer.message, answer.code, answer.param), answer.headers)
            elif isinstance(answer, Raw):
                await self._raw(request, answer, send)
            elif request.stream:
                await self._stream(request, answer, send)
            else:
                await self._whole(request, answer, send)
        finally:
            watcher.cancel()

    async def _embed(self, request: ModelRequest, receive: Any, send: Any) -> None:
        """Two numbers for each input: its length, and its place. `embedded` changes the answer."""
        unknown = sorted(request.body.keys() - {"model", "input", "encoding_format", "dimensions"})
        if unknown:
            self.refused.append(request)
            await _json(send, 400, _error(f"body.{unknown[0]}: Extra inputs are not permitted", "invalid_request"))
            return
        self.requests.append(request)
        watcher = asyncio.create_task(self._watch(request, receive))
        try:
            answer = self.embedded(request)
            if isinstance(answer, Failure):
                await self._pause(request, answer.delay)
                await _json(send, answer.status, _error(answer.message, answer.code), answer.headers)
            else:
                await _json(send, 200, answer)
        finally:
            watcher.cancel()

    async def _watch(self, request: ModelRequest, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        request.disconnected = True

    async def _pause(self, request: ModelRequest, seconds: float) -> None:
        """Sleep, but no longer than the client or the server lives."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not (  # noqa: ASYNC110  # another thread stops the server
            request.disconnected or self._stopping.is_set()
        ):
            await asyncio.sleep(min(left, 0.01))

    async def _whole(self, request: ModelRequest, reply: Reply, send: Any) -> None:
        if reply.hang:
            await self._pause(request, 3600)
            return
        message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None}
        if reply.reasoning is not None:
            message[reply.reasoned] = reply.reasoning
        if reply.tool_calls:
            message["tool_calls"] = [_call(request, reply, index) for index in range(len(reply.tool_calls))]
        choice = {"index": 0, "message": message, "finish_reason": _finish(reply), "logprobs": None}
        answer = _head(request, reply, "chat.completion") | {"choices": [choice]}
        if reply.usage:
            answer["usage"] = _usage(reply)
        await _json(send, 200, answer)

    async def _raw(self, request: ModelRequest, answer: Raw, send: Any) -> None:
        headers = {"content-type": answer.type, **answer.headers}
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
        for part in answer.body:
            if request.disconnected or self._stopping.is_set():
                return
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})

    async def _stream(self, request: ModelRequest, reply: Reply, send: Any) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
        await send(start)
        for number, event in enumerate(_events(request, reply)):
            if number == reply.break_after:
                return  # uvicorn closes the connection in the middle of the body
            if number:
                await self._pause(request, reply.chunk_delay)
            await send({"type": "http.response.body", "body": f"data: {event}\n\n".encode(), "more_body": True})
            if reply.hang:
                await self._pause(request, 3600)
        await send({"type": "http.response.body", "body": b""})


def embeddings_of(request: ModelRequest) -> dict[str, Any]:
    """The answer of an endpoint that knows both encodings."""
    given = request.body["input"]
    inputs = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
    vectors: list[Any] = [[float(len(each)), index + 0.5] for index, each in enumerate(inputs)]
    if request.body.get("encoding_format") == "base64":
        vectors = [base64.b64encode(struct.pack("<2f", *vector)).decode() for vector in vectors]
    data = [{"object": "embedding", "index": index, "embedding": each} for index, each in enumerate(vectors)]
    used = {"prompt_tokens": len(inputs), "total_tokens": len(inputs)}
    return {"object": "list", "data": data, "model": request.model, "usage": used}


def _events(request: ModelRequest, reply: Reply) -> list[str]:
    head = _head(request, reply, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        return json.dumps(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]})

    text = reply.text
    pieces = reply.chunks if reply.chunks is not None else re.findall(r"\s*\S+\s*$|\s*\S+|\s+", text or "")
    events = [chunk({"role": "assistant", "content": ""})]
    thoughts = re.findall(r"\s*\S+\s*$|\s*\S+|\s+", reply.reasoning or "")
    events += [chunk({reply.reasoned: piece}) for piece in thoughts]
    events += [chunk({"content": piece}) for piece in pieces]
    for index in range(len(reply.tool_calls)):
        call = _call(request, reply, index)
        arguments: str = call["function"]["arguments"]
        half = len(arguments) // 2
        first = call | {"index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        events.append(chunk({"tool_calls": [first]}))
        for part in (arguments[:half], arguments[half:]):
            events.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]}))
    events.append(chunk({}, _finish(reply)))
    if reply.usage and (request.body.get("stream_options") or {}).get("include_usage"):
        events.append(json.dumps(head | {"choices": [], "usage": _usage(reply)}))
    return [*events, "[DONE]"]


def _head(request: ModelRequest, reply: Reply, kind: str) -> dict[str, Any]:
    model = reply.model or _model_info.resolve_model(request.model)
    head = {"id": f"chatcmpl-{request.number}", "object": kind, "created": int(time.time()), "model": model}
    said = {"service_tier": reply.service_tier, "system_fingerprint": reply.system_fingerprint}
    return head | {name: value for name, value in said.items() if value is not None}


def _usage(reply: Reply) -> dict[str, Any]:
    asked, said = reply.prompt_tokens, reply.completion_tokens
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said, **reply.details}


def _finish(reply: Reply) -> str:
    return reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")


def _call(request: ModelRequest, reply: Reply, index: int) -> dict[str, Any]:
    call = reply.tool_calls[index]
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id or f"call_{request.number}_{index}", "type": "function", "function": function}


def _error(message: str, code: str | None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "scripted", "param": param, "code": code}}


async def _json(send: Any, status: int, data: dict[str, Any], headers: dict[str, str] | None = None) -> None:
    named = {"content-type": "application/json", **(headers or {})}
    encoded = [(name.encode(), value.encode()) for name, value in named.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": json.dumps(data).encode()})
