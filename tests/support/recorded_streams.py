"""Streams of Chat Completions as ten kinds of endpoints send them, recorded or documented, shortened.

Each is what comes after the headers, byte for byte. `ANSWERS` are whole answers of the same endpoints.
"""

from __future__ import annotations

import json
from typing import Any


def _sse(*events: Any, end: str = "\n\n", done: bool = True, space: str = " ", pretty: bool = False) -> bytes:
    """Text is sent as it is, all else as the data of an event."""
    separators = (", ", ": ") if pretty else (",", ":")
    sent = [
        each if isinstance(each, str) else f"data:{space}{json.dumps(each, ensure_ascii=False, separators=separators)}"
        for each in events
    ]
    return "".join(each + end for each in [*sent, *([f"data:{space}[DONE]"] if done else [])]).encode()


def _head(**more: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1732400000, "model": "m", **more}


def _delta(head: dict[str, Any], delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more}]}


def _call(index: int, *, name: str | None = None, arguments: str | None = None, **more: Any) -> dict[str, Any]:
    function = {key: value for key, value in {"name": name, "arguments": arguments}.items() if value is not None}
    return {"tool_calls": [{"index": index, **more, "function": function}]}


_OPENAI = _head(service_tier="default", system_fingerprint="fp_a1", usage=None)
_USED = {
    "prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 4, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 1
    },
}  # fmt: skip
_LIKELY = {
    "content": [
        {
            "token": "Grüße", "logprob": -0.31725305, "bytes": [71, 114, 195, 188],
            "top_logprobs": [{"token": "Grüße", "logprob": -0.3, "bytes": [71]}, {"token": "Hi", "logprob": -9}],
        }
    ],
    "refusal": None,
}  # fmt: skip
_AZURE = _head(system_fingerprint="fp_az")
_SAFE = {"content_filter_results": {"hate": {"filtered": False, "severity": "safe"}}}
_OLLAMA = _head(model="qwen3:8b", system_fingerprint="fp_ollama")
_QWEN = _head(model="qwen-plus", system_fingerprint=None)
_GEMINI = _head(model="gemini-2.5-flash")
_MISTRAL = _head(model="mistral-small-latest")
_LITELLM = _head(model="gpt-4o", system_fingerprint="fp_l", stream_options={"include_usage": True})

STREAMS: dict[str, bytes] = {
    "openai text": _sse(
        _delta(_OPENAI, {"role": "assistant", "content": "", "refusal": None}, logprobs=None, obfuscation="x1"),
        _delta(_OPENAI, {"content": "Grüße"}, logprobs=_LIKELY),
        _delta(_OPENAI, {"content": ", 世界 \u2028👋"}, logprobs=None),
        _delta(_OPENAI, {}, "stop", logprobs=_LIKELY),
        {**_OPENAI, "choices": [], "usage": _USED},
    ),
    "openai parallel calls": _sse(
        _delta(_OPENAI, {"role": "assistant", "content": None}),
        _delta(_OPENAI, _call(0, id="call_a", type="function", name="get", arguments="")),
        _delta(_OPENAI, _call(0, arguments='{"a": ')),
        _delta(_OPENAI, _call(1, id="call_b", type="function", name="put", arguments="")),
        _delta(_OPENAI, _call(1, arguments="{}")),
        _delta(_OPENAI, _call(0, arguments='"ü"}')),
        _delta(_OPENAI, {}, "tool_calls"),
        {**_OPENAI, "choices": [], "usage": _USED},
    ),
    "openai refusal": _sse(
        _delta(_OPENAI, {"role": "assistant", "content": None, "refusal": ""}),
        _delta(_OPENAI, {"refusal": "I'm sorry"}),
        _delta(_OPENAI, {}, "stop"),
    ),
    "azure": _sse(
        {**_head(id="", created=0, model="", object=""), "choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
        _delta(_AZURE, {"role": "assistant", "content": "", "refusal": None}, **_SAFE, logprobs=None),
        _delta(_AZURE, {"content": "Hi"}, **_SAFE, logprobs=None),
        _delta(_AZURE, {}, "content_filter", content_filter_offsets={"check_offset": 44}),
    ),
    "vllm": _sse(
        {**_delta(_head(model="Qwen/Qwen3-8B"), {"role": "assistant", "content": ""}), "prompt_token_ids": None},
        _delta(_head(), {"reasoning_content": "Let me"}, logprobs=None, token_ids=None),
        _delta(_head(), {"reasoning_content": " see."}, logprobs=None),
        _delta(_head(), {"content": "\n\n4"}, logprobs=None),
        _delta(_head(), {"content": ""}, "stop", logprobs=None, stop_reason=151645),
        {**_head(), "choices": [], "usage": {"prompt_tokens": 5, "total_tokens": 9, "completion_tokens": 4}},
    ),
    "vllm error": _sse(
        _delta(_head(), {"role": "assistant", "content": "It"}),
        {"error": {"object": "error", "message": "out of memory", "type": "InternalServerError", "code": 500}},
    ),
    "vllm old error": _sse(
        _delta(_head(), {"role": "assistant", "content": "It"}),
        {"object": "error", "message": "out of memory", "type": "InternalServerError", "param": None, "code": 500},
    ),
    "ollama": _sse(
        _delta(_OLLAMA, {"role": "assistant", "content": "", "reasoning": "Okay"}),
        _delta(_OLLAMA, {"role": "assistant", "content": "Four."}),
        _delta(_OLLAMA, {"role": "assistant", "content": ""}, "stop"),
    ),
    "ollama call": _sse(
        _delta(
            _OLLAMA,
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": "call_1", "index": 0, "type": "function", "function": {"name": "get", "arguments": "{}"}}
                ],
            },
        ),
        _delta(_OLLAMA, {"role": "assistant", "content": ""}, "tool_calls"),
    ),
    "llama.cpp": _sse(
        _delta(_head(), {"role": "assistant", "content": None}),
        _delta(_head(), {"content": "Hel"}),
        _delta(_head(), {"content": "lo"}),
        _delta(_head(), {}, "length"),
        {
            **_head(),
            "choices": [],
            "usage": {"completion_tokens": 2, "prompt_tokens": 1, "total_tokens": 3},
            "timings": {"predicted_per_second": 20.5},
        },
    ),
    "llama.cpp error": _sse(
        _delta(_head(), {"content": "Hel"}),
        {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}},
        done=False,
    ),
    "litellm": _sse(
        _delta(_LITELLM, {"content": "Hi", "role": "assistant"}, provider_specific_fields=None, citations=None),
        _delta(_LITELLM, {}, "stop"),
        _delta({**_LITELLM, "usage": _USED}, {}),
        pretty=True,
        end="\r\n\r\n",
    ),
    "deepseek": _sse(
        ": keep-alive",
        ": keep-alive\n: keep-alive",
        _delta(_head(), {"role": "assistant", "content": None, "reasoning_content": ""}, logprobs=None),
        _delta(_head(), {"content": None, "reasoning_content": "Hm"}, logprobs=None),
        ": keep-alive",
        _delta(_head(), {"content": "Yes", "reasoning_content": None}, logprobs=None),
        _delta(
            {**_head(), "usage": {**_USED, "prompt_cache_hit_tokens": 0, "prompt_cache_miss_tokens": 19}},
            {"content": "", "reasoning_content": None},
            "stop",
        ),
    ),
    "qwen": _sse(
        _delta(_QWEN, {"content": None, "reasoning_content": "", "role": "assistant"}),
        _delta(_QWEN, {"content": None, "reasoning_content": "好的"}),
        _delta(_QWEN, {**_call(0, id="call_q", type="function", name="get", arguments=""), "content": None}),
        _delta(_QWEN, {**_call(0, id="", type="function", arguments='{"a":1}'), "content": None}),
        _delta(_QWEN, {"content": "", "reasoning_content": None}, "tool_calls"),
        {**_QWEN, "choices": [], "usage": _USED},
        space="",
    ),
    "gemini": _sse(
        _delta(
            _GEMINI,
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "extra_content": {"google": {"thought_signature": "Cs4"}},
                        "function": {"arguments": "{}", "name": "get"},
                        "id": "f1",
                        "index": 0,
                        "type": "function",
                    }
                ],
            },
        ),
        _delta({**_GEMINI, "usage": _USED}, {"role": "assistant"}, "stop"),
    ),
    "mistral": _sse(
        _delta(_MISTRAL, {"role": "assistant", "content": ""}, logprobs=None),
        {**_delta(_MISTRAL, {"content": "Bon"}), "p": "abcdefgh"},
        _delta(_MISTRAL, {"content": "jour"}),
        {**_delta(_MISTRAL, {"content": ""}, "stop"), "usage": _USED},
    ),
    "mistral length": _sse(
        _delta(_MISTRAL, {"role": "assistant", "content": "Bon"}), _delta(_MISTRAL, {"content": ""}, "model_length")
    ),
    "openrouter": _sse(
        ": OPENROUTER PROCESSING",
        _delta(_head(provider="Together"), {"role": "assistant", "content": "a"}, native_finish_reason=None),
        _delta(
            _head(provider="Together", error={"code": "server_error", "message": "Provider disconnected"}),
            {"content": ""},
            "error",
        ),
    ),
    "an error in words": _sse({"error": "model not loaded"}),
    "no [DONE]": _sse(_delta(_head(), {"content": "a"}), _delta(_head(), {}, "stop"), done=False),
    "a last event that is not whole": _sse(_delta(_head(), {"content": "a"}), _delta(_head(), {}, "stop"), done=False)
    + b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "b"}}]',
    "carriage returns": _sse(_delta(_head(), {"content": "a"}), _delta(_head(), {}, "stop"), end="\r\r"),
    "several lines of data": b'event: x\ndata: {"id": "c", "model": "m",\r\ndata: "choices": [{"index": 0,\n'
    b'data:"delta": {"content": "a"}, "finish_reason": "stop"}]}\n\n\n\ndata: [DONE]\n\ndata: {"never": "read"}\n\n',
    "NaN and half a pair": _sse(
        'data: {"id": "c", "model": "m", "odd": NaN, "choices": [{"index": 0, "delta": {"content": "a\\ud83d"}}]}',
        _delta(_head(), {}, "stop"),
    ),
    "no JSON": b"data: {\n\n",
    "no UTF-8": b'data: {"id": "\xff"}\n\n',
    "no object": b"data: 7\n\n",
    "no events": b"<html></html>",
    "nothing": b"",
}


def _answer(message: dict[str, Any], finish: str | None = "stop", *, logprobs: Any = None, **more: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, "logprobs": logprobs}
    head = {**_head(object="chat.completion"), "choices": [choice], "usage": _USED}
    return json.dumps(head | more, ensure_ascii=False).encode()


def _called(*calls: tuple[str, Any]) -> list[dict[str, Any]]:
    return [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]


ANSWERS: dict[str, bytes] = {
    "openai": _answer({"content": "Grüße 👋", "refusal": None, "annotations": []}, service_tier="default"),
    "openai calls": _answer({"content": None, "tool_calls": _called(("get", "{}"), ("put", '{"a": 1}'))}, "tool_calls"),
    "openai refusal": _answer({"content": None, "refusal": "I'm sorry"}),
    "openai logprobs": _answer({"content": "a"}, logprobs=_LIKELY),
    "openai custom tool": _answer({"tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "a"}}]}),
    "azure": _answer({"content": "Hi"}, prompt_filter_results=[{"prompt_index": 0, **_SAFE}]),
    "vllm": _answer({"content": "4", "reasoning_content": "Let me see.", "tool_calls": []}, prompt_logprobs=None),
    "vllm calls": _answer({"content": "", "tool_calls": _called(("get", "{}"))}, "stop"),
    "ollama": _answer({"content": "Four.", "reasoning": "Okay"}, system_fingerprint="fp_ollama"),
    "llama.cpp": _answer({"content": "<think>a</think>b"}, "length", timings={"predicted_ms": 5.1}),
    "litellm": _answer({"content": "Hi", "tool_calls": None, "function_call": None}, usage=None),
    "deepseek": _answer({"content": "Yes", "reasoning_content": "Hm"}),
    "qwen": _answer({"content": "", "reasoning_content": "好", "tool_calls": _called(("get", "{}"))}, "tool_calls"),
    "gemini": _answer({"content": "Hi", "extra_content": {"google": {"thought": True}}}),
    "mistral": _answer({"content": "", "tool_calls": _called(("get", {"a": 1}))}, "tool_calls"),
    "function_call": _answer({"content": None, "function_call": {"name": "a", "arguments": "{}"}}),
    "NaN": _answer({"content": "a"}, odd=float("nan")),
    "no finish": json.dumps({"choices": [{"message": {"content": "a"}}], "model": "m"}).encode(),
    "no JSON": b"{",
    "no object": b"[1]",
    "nothing": b"",
}  # fmt: skip
