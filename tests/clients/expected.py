"""What each client is to see, case by case, and which cases wait for a part of the server."""

from __future__ import annotations

from typing import Any

_USAGE = [10, 5, 15]
_TWICE = [20, 10, 30]
_DIALOGUE = "**writer**\n\nA draft.\n\n**reviewer**\n\nGood."
_PERSON = {"name": "Ada", "age": 36}
_CALLS = [["get_weather", {"city": "Paris"}]]
_RESULT = "The tool said 21 degrees."
_TOOLS = {"finish": "tool_calls", "calls": _CALLS, "text": _RESULT}
_KNOWN = [
    ["user", "My name is Ada."],
    ["assistant", "Answer: My name is Ada."],
    ["user", "Which messages do you see?"],
]
_HISTORY = {"messages": _KNOWN, "system": ["You are solo.", "Be kind."]}
_CHAIN = {"messages": _KNOWN, "system": ["You are solo."]}
_ONCE = {"text": "Slow answer 1.", "asked": "1"}
_WORK = {"answer": "Done: OK", "passes": True, "note": "add() adds.\n"}
_IN_ONE_THREAD = {"results": [True] * 6, "runs of its threads": [2]}
_STREAM_TEXT = "Answer: Hello again, in pieces."


def _whole(text: str, usage: list[int] | None = _USAGE, **more: Any) -> dict[str, Any]:
    return {"text": text, "usage": usage, **more}


_OPENAI: dict[str, Any] = {
    "plain": _whole("Answer: Hello.", finish="stop"),
    "stream": _whole(_STREAM_TEXT, finish="stop", pieces=True),
    "async_plain": _whole("Answer: Hello.", finish="stop"),
    "async_stream": _whole(_STREAM_TEXT, finish="stop", pieces=True),
    "concurrent": [f"Answer: Number {number}." for number in range(8)],
    "group": _whole(_DIALOGUE, _TWICE, finish="stop"),
    "group_stream": _whole(_DIALOGUE, _TWICE, finish="stop", pieces=True),
    "stream_helper": {
        "text": _DIALOGUE,
        "role": "assistant",
        "name": None,
        "kinds": ["chunk", "content.delta", "content.done"],
    },
    "async_stream_helper": "Answer: Hello, helper.",
    "frames": {"first": {"role": "assistant", "content": "", "refusal": None}, "others": [], "fingerprint": True},
    "raw": {"status": 200, "text": "Answer: Hello, raw.", "headers": ["x-request-id", "x-thread-id", "x-run-id"]},
    "models": ["careful", "pair", "solo"],
    "history": _HISTORY,
    "history_thread": {"same": True},
    "regenerate": [["user", "First."], ["assistant", "Answer: First."], ["user", "Which messages do you see?"]],
    "approval": {"asked": True, "done": True},
    "tools": _TOOLS,
    "tools_stream": _TOOLS,
    "tools_parallel": {
        "finish": "tool_calls",
        "calls": [*_CALLS, ["get_time", {"zone": "CET"}]],
        "text": "The tool said 21 degrees and noon.",
    },
    "tools_missing_result": {"status": 400, "named": True},
    "tools_unused": _whole("Answer: Hello, tools.", finish="stop"),
    "functions": {"call": _CALLS[0], "text": _RESULT},
    "structured": _PERSON,
    "json_object": _PERSON,
    "parameters": {
        "temperature": 0.3,
        "top_p": 0.9,
        "max_completion_tokens": 99,
        "stop": ["END"],
        "seed": 7,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "logit_bias": {"50256": -100},
        "reasoning_effort": "low",
    },
    "cut_off": _whole("And so on", finish="length"),
    "unknown_key": {"class": "AuthenticationError", "status": 401, "param": None},
    "unknown_model": {"class": "NotFoundError", "status": 404, "param": "model"},
    "bad_value": {"class": "BadRequestError", "status": 400, "param": "temperature"},
    "not_possible": {name: [400, name] for name in ("n", "logprobs", "web_search_options", "modalities")},
    "timeout": _ONCE,
    "failing_model": {"raised": True, "asked": "1"},
    "failing_stream": {"code": True, "message": True},
    "completions": _whole("Answer: Hello, legacy.", finish="stop"),
    "embeddings": 2,
    "responses": _whole("Answer: Hello, responses.", status="completed"),
    "responses_stream": {
        "first": "response.created",
        "last": "response.completed",
        "text": "Answer: Hello, in events.",
        "ordered": True,
    },
    "responses_chain": {**_CHAIN, "retrieved": "Answer: My name is Ada."},
    "responses_tools": {"calls": _CALLS, "text": _RESULT},
    "responses_structured": _PERSON,
    "conversations": {**_CHAIN, "items": ["message"] * 4},
}

EXPECTED: dict[str, dict[str, Any]] = {
    "openai 3": _OPENAI,
    "openai 2": _OPENAI,
    "openai 1": _OPENAI,
    "langchain": {
        "plain": _whole("Answer: Hello."),
        "stream": _whole(_STREAM_TEXT, None, pieces=True),
        "stream_usage": _whole(_STREAM_TEXT),
        "async_plain": _whole("Answer: Hello."),
        "async_stream": _whole(_STREAM_TEXT, None, pieces=True),
        "batch": [f"Answer: Number {number}." for number in range(4)],
        "group": _whole(_DIALOGUE, _TWICE),
        "history": _HISTORY,
        "tools": _TOOLS,
        "structured": _PERSON,
        "structured_by_function": _PERSON,
        "parameters": {"limit": 99, "temperature": 0.3, "stop": ["END"], "seed": 7},
        "unknown_key": {"class": True, "status": 401},
        "unknown_model": {"class": True, "status": 404},
        "timeout": _ONCE,
        "completions": "Answer: Hello, legacy.",
        "responses": _whole("Answer: Hello, responses."),
        "embeddings": 2,
    },
    "openai-agents": {
        "chat_plain": _whole("Answer: Hello."),
        "chat_stream": {"text": _STREAM_TEXT, "pieces": True},
        "chat_group": _DIALOGUE,
        "chat_history": _HISTORY,
        "chat_tools": {"calls": ["get_weather"], "text": _RESULT},
        "chat_tools_stream": {"calls": ["get_weather"], "text": _RESULT},
        "chat_structured": _PERSON,
        "chat_handoff": "Answer: Hello, handoff.",
        "default_plain": _whole("Answer: Hello."),
        "default_stream": {"text": _STREAM_TEXT, "pieces": True},
        "default_history": _HISTORY,
        "default_tools": {"calls": ["get_weather"], "text": _RESULT},
        "default_tools_stream": {"calls": ["get_weather"], "text": _RESULT},
        "default_structured": _PERSON,
        "unknown_model": {"class": "NotFoundError", "status": 404},
    },
    "pydantic-ai": {
        "chat_plain": _whole("Answer: Hello.", [10, 5]),
        "chat_stream": _whole(_STREAM_TEXT, [10, 5], pieces=True),
        "chat_group": _DIALOGUE,
        "chat_history": _HISTORY,
        "chat_tools": {"text": _RESULT, "calls": _CALLS},
        "chat_structured": _PERSON,
        "chat_structured_native": _PERSON,
        "chat_parameters": {"limit": 99, "temperature": 0.3, "stop": ["END"], "seed": 7},
        "responses_plain": _whole("Answer: Hello.", [10, 5]),
        "responses_stream": _whole(_STREAM_TEXT, [10, 5], pieces=True),
        "responses_history": _HISTORY,
        "responses_tools": {"text": _RESULT, "calls": _CALLS},
        "responses_structured": _PERSON,
        "unknown_key": {"status": 401},
        "unknown_model": {"status": 404},
    },
    "litellm": {
        "plain": _whole("Answer: Hello.", finish="stop"),
        "stream": _whole(_STREAM_TEXT, finish="stop", pieces=True),
        "async_plain": _whole("Answer: Hello.", finish="stop"),
        "group": _whole(_DIALOGUE, _TWICE, finish="stop"),
        "history": _HISTORY,
        "tools": _TOOLS,
        "structured": _PERSON,
        "unknown_key": {"class": "AuthenticationError", "status": 401},
        "unknown_model": {"class": "NotFoundError", "status": 404},
        "bad_value": {"class": "BadRequestError", "status": 400},
        "responses": "Answer: Hello, responses.",
        "proxy_plain": _whole("Answer: Hello.", finish="stop"),
        "proxy_stream": _STREAM_TEXT,
        "proxy_group": _whole(_DIALOGUE, _TWICE, finish="stop"),
        "proxy_history": _HISTORY,
        "proxy_tools": _TOOLS,
        "proxy_structured": _PERSON,
        "proxy_unknown_model": 404,
        "proxy_failing_model": {"raised": True, "asked": "1"},
    },
    "anthropic": {
        "plain": _whole("Answer: Hello.", [10, 5], finish="end_turn"),
        "stream": _whole(_STREAM_TEXT, [10, 5], finish="end_turn", pieces=True),
        "async_plain": _whole("Answer: Hello.", [10, 5], finish="end_turn"),
        "async_stream": _whole(_STREAM_TEXT, [10, 5], finish="end_turn", pieces=True),
        "group": _whole(_DIALOGUE, [20, 10], finish="end_turn"),
        "history": _HISTORY,
        "tools": {"finish": "tool_use", "calls": _CALLS, "text": _RESULT},
        "cut_off": _whole("And so on", [10, 5], finish="max_tokens"),
        "unknown_key": {"class": "AuthenticationError", "status": 401, "type": "authentication_error"},
        "unknown_model": {"class": "NotFoundError", "status": 404, "type": "not_found_error"},
        "bad_value": {"class": "BadRequestError", "status": 400, "type": "invalid_request_error"},
        "timeout": _ONCE,
    },
    "llama-index": {
        "default_complete": "Answer: Hello, legacy.",
        "default_stream": "Answer: Hello, legacy, in pieces.",
        "default_chat": True,
        "plain": _whole("Answer: Hello."),
        "stream": {"text": _STREAM_TEXT, "pieces": True},
        "async_plain": "Answer: Hello.",
        "group": _DIALOGUE,
        "history": _HISTORY,
        "tools": [["get_weather", "21 degrees"]],
        "structured": _PERSON,
    },
    "openai node": {
        "plain": _whole("Answer: Hello.", finish="stop"),
        "stream": _whole(_STREAM_TEXT, finish="stop", pieces=True),
        "group": _whole(_DIALOGUE, _TWICE, finish="stop"),
        "stream_helper": {"text": _DIALOGUE, "role": "assistant", "name": None},
        "history": _HISTORY,
        "tools": _TOOLS,
        "run_tools": _RESULT,
        "structured": _PERSON,
        "models": ["careful", "pair", "solo"],
        "unknown_key": {"class": "AuthenticationError", "status": 401, "param": None},
        "unknown_model": {"class": "NotFoundError", "status": 404, "param": "model"},
        "bad_value": {"class": "BadRequestError", "status": 400, "param": "temperature"},
        "timeout": _ONCE,
        "responses": "Answer: Hello, responses.",
        "responses_stream": "Answer: Hello, in events.",
    },
    "ai sdk": {
        **{
            f"{way}_{name}": saw
            for way in ("compatible", "chat", "default")
            for name, saw in {
                "plain": _whole("Answer: Hello.", finish="stop"),
                "stream": _whole(_STREAM_TEXT, finish="stop", pieces=True),
                "group": _DIALOGUE,
                "history": _HISTORY,
                "tools": {"text": _RESULT, "calls": _CALLS},
                "structured": _PERSON,
            }.items()
        },
        "unknown_key": {"class": True, "status": 401},
        "unknown_model": {"class": True, "status": 404},
        "bad_value": {"class": True, "status": 400},
        "failing_model": {"raised": True, "asked": "1"},
    },
    "claude code": {
        "plain": True,
        "tools_parallel": _WORK,
        "tools_search": "The tool said Found the tool WebFetch..",
        "history": _IN_ONE_THREAD,
    },
    "claude-agent-sdk": {"plain": True, "tools_parallel": _WORK, "history": _IN_ONE_THREAD},
    # It asks that nothing be stored: each of its turns is on a thread of its own, which is gone with the turn.
    "codex": {"plain": True, "tools_parallel": _WORK, "history": {"results": [True] * 6}},
}


PENDING: dict[str, dict[str, str]] = {}
"""Which cases fail, and the part of the server that they wait for. When it is there, they pass, which the tests report
as an error until they are taken out here."""
