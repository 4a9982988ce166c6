"""Endpoints of other shapes than OpenAI's own, scripted as `ModelServer`: Anthropic's Messages, and Azure's paths."""

from __future__ import annotations

import json
from typing import Any

from tests.support.model_server import Failure, ModelRequest, ModelServer, Raw, Reply, _json

_TAKEN = {
    *("model", "messages", "max_tokens", "temperature", "system", "tools", "tool_choice", "stream", "top_p", "top_k"),
    *("stop_sequences", "metadata", "thinking", "output_config"),
}


class AzureServer(ModelServer):
    """`/openai/deployments/{name}/chat/completions?api-version=…`, by `api-key`; else 404."""

    async def _app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        path: str = scope["path"]
        headers = dict(scope["headers"])
        if (
            path.startswith("/openai/deployments/")
            and scope["query_string"].startswith(b"api-version=")
            and b"api-key" in headers
        ):
            await super()._app({**scope, "path": "/v1/chat/completions"}, receive, send)
            return
        await _json(send, 404, {"error": {"message": f"no such path: {path}"}})


class AnthropicServer(ModelServer):
    """`/v1/messages`, whole and streamed, with the usage of its prompt cache. It refuses fields that it does not know,
    a request without `max_tokens`, more than four marks, `tool_choice` and calls of tools without tools, and thinking
    blocks with a wrong signature or none where it thinks."""

    async def _app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        request = ModelRequest(json.loads(body), headers, scope["path"], len(self.requests))
        refusal = "no such path" if scope["path"] != "/v1/messages" else _refusal_of(request.body)
        if refusal is not None:
            self.refused.append(request)
            await _json(send, 400, _failed("invalid_request_error", refusal))
            return
        self.requests.append(request)
        answer: Any = self._find(request)(request)
        answer = Reply(answer) if isinstance(answer, str) else answer
        if isinstance(answer, Failure):
            await _json(send, answer.status, _failed("api_error", answer.message), answer.headers)
        elif isinstance(answer, Raw):
            await self._raw(request, answer, send)
        elif request.stream:
            start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            await send(start)
            for number, told in enumerate(_events(request, answer)):
                if number == answer.break_after:
                    return
                line = f"event: {told['type']}\ndata: {json.dumps(told)}\n\n"
                await send({"type": "http.response.body", "body": line.encode(), "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        else:
            stop = "tool_use" if answer.tool_calls else "end_turn"
            usage = _usage(answer) | {"output_tokens": answer.completion_tokens}
            await _json(send, 200, _message(request, usage) | {"content": _content(answer), "stop_reason": stop})


def _refusal_of(body: dict[str, Any]) -> str | None:
    """Why Anthropic does not take a request."""
    if unknown := sorted(body.keys() - _TAKEN):
        return f"{unknown[0]}: Extra inputs are not permitted"
    if "max_tokens" not in body:
        return "max_tokens: Field required"
    if json.dumps(body).count('"cache_control"') > 4:
        return "A maximum of 4 blocks with cache_control may be provided."
    if "tool_choice" in body and not body.get("tools"):
        return "tool_choice: may only be specified while providing tools"
    turn: list[dict[str, Any]] = []
    for message in body["messages"]:
        blocks: list[dict[str, Any]] = [] if isinstance(message["content"], str) else message["content"]
        if not body.get("tools") and any(each["type"] in ("tool_use", "tool_result") for each in blocks):
            return "Requests which have `tool_use` or `tool_result` blocks in messages must define tools"
        for block in blocks:
            if block["type"] == "thinking" and block["signature"] != _signature(block["thinking"]):
                return "messages: Invalid `signature` in `thinking` block"
        if message["role"] == "assistant":
            turn = turn or blocks
        elif not any(each["type"] == "tool_result" for each in blocks):
            turn = []
    thinks = body.get("thinking", {}).get("type") == "enabled"
    if thinks and turn and turn[0]["type"] not in ("thinking", "redacted_thinking"):
        return f"Expected `thinking` or `redacted_thinking`, but found `{turn[0]['type']}`."
    return None


def _signature(thought: str) -> str:
    return f"signed:{len(thought)}"


def _failed(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _usage(reply: Reply) -> dict[str, Any]:
    return {"input_tokens": reply.prompt_tokens, "output_tokens": 1, "cache_read_input_tokens": 7}


def _message(request: ModelRequest, usage: dict[str, Any]) -> dict[str, Any]:
    head = {"id": f"msg_{request.number}", "type": "message", "role": "assistant", "model": request.model}
    return head | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}


def _content(reply: Reply) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    if reply.reasoning is not None:
        parts.append({"type": "thinking", "thinking": reply.reasoning, "signature": _signature(reply.reasoning)})
    parts += [{"type": "text", "text": reply.text}] if reply.text else []
    for number, call in enumerate(reply.tool_calls):
        parts.append({"type": "tool_use", "id": call.id or f"t{number}", "name": call.name, "input": call.arguments})
    return parts


def _events(request: ModelRequest, reply: Reply) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": _message(request, _usage(reply))}]
    for index, part in enumerate(_content(reply)):
        if part["type"] == "thinking":
            events += _thinking(index, part)
            continue
        is_text = part["type"] == "text"
        block = part | ({"text": ""} if is_text else {"input": {}})
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        pieces = part["text"].split(" ") if is_text else [json.dumps(part["input"])]
        for place, piece in enumerate(pieces):
            text = piece if place == 0 else f" {piece}"
            delta = {"type": "text_delta", "text": text}
            if not is_text:
                delta = {"type": "input_json_delta", "partial_json": piece}
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    stop = "tool_use" if reply.tool_calls else "end_turn"
    ended = {"stop_reason": stop, "stop_sequence": None}
    usage = {"output_tokens": reply.completion_tokens}
    return [*events, {"type": "message_delta", "delta": ended, "usage": usage}, {"type": "message_stop"}]


def _thinking(index: int, block: dict[str, Any]) -> list[dict[str, Any]]:
    begin = {"type": "thinking", "thinking": "", "signature": ""}
    pieces: list[dict[str, Any]] = [
        {"type": "thinking_delta", "thinking": piece} for piece in block["thinking"].partition(" ")
    ]
    pieces.append({"type": "signature_delta", "signature": block["signature"]})
    return [
        {"type": "content_block_start", "index": index, "content_block": begin},
        *({"type": "content_block_delta", "index": index, "delta": piece} for piece in pieces),
        {"type": "content_block_stop", "index": index},
    ]
