"""Streams of Anthropic's Messages as its API and those that speak as it send them, documented or recorded, shortened.

Each is what comes after the headers, byte for byte. `WHOLE` are whole answers of the same endpoints.
"""

from __future__ import annotations

import json
from typing import Any


def _sse(*events: Any, end: str = "\n\n", space: str = " ", stop: bool = True) -> bytes:
    """Text is sent as it is, all else as an event of its type."""
    told = [*events, *([{"type": "message_stop"}] if stop else [])]
    line = end[: len(end) // 2]
    sent = [
        each
        if isinstance(each, str)
        else f"event:{space}{each['type']}{line}data:{space}{json.dumps(each, ensure_ascii=False)}"
        for each in told
    ]
    return "".join(each + end for each in sent).encode()


_USED = {
    "input_tokens": 25, "cache_creation_input_tokens": 12, "cache_read_input_tokens": 7, "output_tokens": 1,
    "cache_creation": {"ephemeral_5m_input_tokens": 12, "ephemeral_1h_input_tokens": 0}, "service_tier": "standard",
}  # fmt: skip


def _start(usage: Any = _USED, **more: Any) -> dict[str, Any]:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    return {"type": "message_start", "message": {**head, "stop_sequence": None, "usage": usage, **more}}


def _block(index: int, block: Any, *deltas: Any) -> list[Any]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _text(index: int, *pieces: str, **more: Any) -> list[Any]:
    return _block(
        index, {"type": "text", "text": "", **more}, *({"type": "text_delta", "text": each} for each in pieces)
    )


def _call(index: int, name: str, *pieces: str, **more: Any) -> list[Any]:
    block = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}, **more}
    return _block(index, block, *({"type": "input_json_delta", "partial_json": each} for each in pieces))


def _end(reason: str | None = "end_turn", usage: Any = None, **more: Any) -> dict[str, Any]:
    used = {"output_tokens": 15} if usage is None else usage
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None, **more}, "usage": used}


_CITED = {
    "type": "char_location", "cited_text": "The sky is blue.", "document_index": 0, "document_title": "Facts",
    "start_char_index": 0, "end_char_index": 16, "file_id": None,
}  # fmt: skip
_FOUND = {
    "type": "web_search_result", "url": "https://example.com", "title": "Weather", "encrypted_content": "Eo8B",
    "page_age": None,
}  # fmt: skip
_PING = {"type": "ping"}
_THOUGHT = _block(
    0,
    {"type": "thinking", "thinking": "", "signature": ""},
    {"type": "thinking_delta", "thinking": "Let me"},
    {"type": "thinking_delta", "thinking": " see. 世界"},
    {"type": "signature_delta", "signature": "EqQBCgIYAhIM"},
)
_OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
_DETAILED = {
    "type": "error", "request_id": "req_1",
    "error": {"type": "invalid_request_error", "message": "No.", "details": {"error_code": "tool_name_conflict"}},
}  # fmt: skip

STREAMS: dict[str, bytes] = {
    "text": _sse(_start(), *_text(0, "Grüße", ", 世界 \u2028👋")[:2], _PING, *_text(0, "", "!")[1:], _end()),
    "calls": _sse(
        _start(),
        _PING,
        *_text(0, "I will", " look."),
        *_call(1, "get", "", '{"place": ', '"Zürich"', ', "days": 1}', caller={"type": "direct"}),
        *_call(2, "put.it"),
        *_call(3, "say", '{"a": [1, {"b": null}]}'),
        _end("tool_use", {**_USED, "output_tokens": 89}),
    ),
    "a call that is cut": _sse(_start(), *_call(0, "get", '{"place": "Z'), _end("max_tokens")),
    "thinking": _sse(_start(), *_THOUGHT, *_text(1, "4"), _end(usage={"output_tokens": 9})),
    "thinking and a call": _sse(_start(), *_THOUGHT, *_call(1, "get", "{}"), _end("tool_use")),
    "redacted thinking": _sse(
        _start(), *_THOUGHT, *_block(1, {"type": "redacted_thinking", "data": "EmwKAhgB"}), *_text(2, "4"), _end()
    ),
    "citations": _sse(
        _start(),
        *_block(
            0,
            {"type": "text", "text": "", "citations": []},
            {"type": "text_delta", "text": "It is blue."},
            {"type": "citations_delta", "citation": _CITED},
            {"type": "citations_delta", "citation": {**_CITED, "type": "page_location", "start_page_number": 1}},
        ),
        _end(),
    ),
    "web search": _sse(
        _start(),
        *_text(0, "I'll search."),
        *_block(
            1,
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"query": "weather"}'},
        ),
        *_block(2, {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [_FOUND, _FOUND]}),
        *_block(
            3,
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
            },
        ),
        *_text(4, "Sunny."),
        _end("pause_turn", {**_USED, "server_tool_use": {"web_search_requests": 1}}),
    ),
    "code execution": _sse(
        _start(container={"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}),
        *_block(
            0,
            {
                "type": "code_execution_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": {
                    "type": "code_execution_result",
                    "stdout": "4\n",
                    "stderr": "",
                    "return_code": 0,
                    "content": [{"type": "code_execution_output", "file_id": "file_1"}],
                },
            },
        ),
        *_text(1, "4"),
        _end(container=None),
    ),
    "a stop sequence": _sse(_start(), *_text(0, "1, 2"), _end("stop_sequence", stop_sequence="3")),
    "refusal": _sse(
        _start(),
        *_text(0, "I"),
        _end("refusal", stop_details={"type": "refusal", "category": "cyber", "explanation": None}),
    ),
    "context exceeded": _sse(_start(), *_text(0, "a"), _end("model_context_window_exceeded")),
    "nothing said": _sse(_start(), _end()),
    "overloaded": _sse(_start(), *_text(0, "It")[:2], _OVERLOADED, stop=False),
    "an error with details": _sse(_DETAILED, stop=False),
    "an error in words": b"event: error\ndata: upstream went away\n\n",
    "an error without words": b"event: error\ndata: \n\n",
    "an error that is half": b'event: error\ndata: {"type": "error"\n\n',
    "bedrock": _sse(
        _start(),
        *_text(0, "a"),
        _end(),
        {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 25}},
        stop=False,
    ),
    "litellm": _sse(
        _start({"input_tokens": 0, "output_tokens": 0}), *_text(0, "a"), "data: [DONE]", _end(), end="\r\n\r\n"
    ),
    "vllm": _sse(_start(), *_text(0, "a"), _end(usage={"input_tokens": 5, "output_tokens": 9}), space=""),
    "deepseek": _sse(
        _start(),
        *_block(
            0, {"type": "thinking", "thinking": "", "signature": "u"}, {"type": "thinking_delta", "thinking": "Hm"}
        ),
        *_text(1, "Yes"),
        _end(),
    ),
    "ollama": _sse(_start(), *_text(0, "a"), _end(usage={"output_tokens": 3})),
    "kimi": _sse(": keep-alive", _start(), *_text(0, "a"), ": keep-alive\n: keep-alive", _end(usage={**_USED})),
    "what nobody knows": _sse(
        _start({**_USED, "mood": "good"}, own={"a": [1]}),
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "", "own": 1}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "a", "own": {"b": 2}},
            "p": 1,
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "poem_delta", "poem": "O!"}},
        *_block(1, {"type": "poem", "lines": ["O!"]}),
        {"type": "poem_started", "poem": 1},
        {"type": "message_delta", "delta": {"stop_reason": "bored", "own": 1}, "usage": {"output_tokens": 3, "own": 2}},
    ),
    "no message_stop": _sse(_start(), *_text(0, "a"), _end(), stop=False),
    "usage at the end": _sse(
        _start({"input_tokens": 1, "output_tokens": 1}), *_text(0, "a"), _end(usage={**_USED, "output_tokens": 15})
    ),
    "no usage": _sse(_start(None), *_text(0, "a"), {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
    "a last event that is not whole": _sse(_start(), *_text(0, "a"), stop=False)
    + b'event: message_stop\ndata: {"type": ',
    "carriage returns": _sse(_start(), *_text(0, "a"), _end(), end="\r\r"),
    "several lines of data": _sse(_start(), *_text(0, "a"), stop=False)
    + b'id: 7\r\ndata: {"type": "message_delta",\ndata:"delta": {"stop_reason": "max_tokens"},\nevent: message_delta\n'
    b'retry: 5\ndata: "usage": {"output_tokens": 1}}\n\n\n\n',
    "no names": b"data: " + json.dumps(_start()).encode() + b"\n\n",
    "no data": _sse("event: message_start", _start(), *_text(0, "a"), "event: message_delta", _end()),
    "NaN and half a pair": _sse(_start(), stop=False)
    + b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, "odd": NaN, '
    b'"delta": {"type": "text_delta", "text": "a\\ud83d"}}\n\n',
    "no JSON": b"event: message_start\ndata: {\n\n",
    "no UTF-8": b'event: message_start\ndata: {"id": "\xff"}\n\n',
    "no object": b"event: message_start\ndata: 7\n\n",
    "no events": b"<html></html>",
    "nothing": b"",
}


def _whole(*content: Any, reason: str | None = "end_turn", **more: Any) -> bytes:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content}
    usage = {**_USED, "output_tokens": 15}
    return json.dumps({**head, "stop_reason": reason, "stop_sequence": None, "usage": usage, **more}).encode()


_SAID = {"type": "text", "text": "Grüße 👋"}
_THINKING = {"type": "thinking", "thinking": "Let me see.", "signature": "EqQB"}


def _use(name: str, given: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": given, **more}


WHOLE: dict[str, bytes] = {
    "text": _whole(_SAID, {"type": "text", "text": " More."}),
    "calls": _whole(_SAID, _use("get", {"a": [1, {"b": "ü"}]}), _use("put.it", {}), reason="tool_use"),
    "a big number": _whole(_use("get", {"a": 10**30}), reason="tool_use"),
    "input in words": _whole(_use("get", "none"), reason="tool_use"),
    "thinking": _whole(_THINKING, {"type": "redacted_thinking", "data": "EmwK"}, _SAID),
    "thinking and a call": _whole(_THINKING, _SAID, _use("get", {}, caller={"type": "direct"}), reason="tool_use"),
    "citations": _whole({**_SAID, "citations": [_CITED, {"type": "web_search_result_location", "url": "u"}]}),
    "web search": _whole(
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "w"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [_FOUND]},
        _SAID,
        reason="pause_turn",
    ),
    "refusal": _whole(reason="refusal", stop_details={"type": "refusal", "category": None}),
    "length": _whole(_SAID, reason="max_tokens"),
    "what nobody knows": _whole({**_SAID, "own": {"a": 1}}, reason="bored", own=[2], container={"id": "c", "own": 1}),
    "a block that nobody knows": _whole(_SAID, {"type": "poem", "lines": []}),
    "null": _whole({**_SAID, "citations": None}, container=None, stop_details=None),
    "no usage": _whole(_SAID, usage=None),
    "no content": _whole(content=None),
    "NaN": _whole(_SAID, odd=float("nan")),
    "no JSON": b"{",
    "no object": b"[1]",
    "nothing": b"",
}  # fmt: skip
