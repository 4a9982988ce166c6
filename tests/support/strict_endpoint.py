"""What the strictest endpoints refuse: their rules of messages and parameters, put together."""

from __future__ import annotations

from typing import Any

_PARAMETERS = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "temperature", "top_p", "max_tokens", "seed", "stop", "n"),
        *("max_completion_tokens", "tools", "tool_choice", "parallel_tool_calls", "response_format", "user"),
        *("logprobs", "top_logprobs", "frequency_penalty", "presence_penalty", "logit_bias", "reasoning_effort"),
        *("verbosity", "service_tier", "prediction", "modalities"),
    }
)
_FIELDS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}


def refusal_of(body: dict[str, Any], continues: str | None = None, *, reasons: bool = False) -> str | None:
    """Why a strict endpoint does not take a request. `continues` and `reasons` as in `ModelServer`."""
    messages = body["messages"]
    if continues is not None and messages and messages[-1]["role"] == "assistant":
        *before, last = messages
        marked, rest = {**last}, {**body, "messages": before}
        given: Any = marked.pop("prefix", None) if continues == "prefix" else None
        if continues == "vllm":
            given = rest.pop("continue_final_message", None), rest.pop("add_generation_prompt", None)
        if given != {"plain": None, "prefix": True, "vllm": (True, False)}[continues]:
            return f"Expected last role User or Tool (or Assistant with {continues}) for serving but got assistant"
        if body.get("tools") or marked.keys() != {"role", "content"} or not str(marked["content"]).strip():
            return "an answer that is continued is a text, and no tools are called after it"
        return refusal_of(rest)
    unknown = sorted(body.keys() - _PARAMETERS)
    if unknown:
        return f"body.{unknown[0]}: Extra inputs are not permitted"
    if "parallel_tool_calls" in body and not body.get("tools"):
        return "'parallel_tool_calls' is only allowed when 'tools' are specified"
    if "max_tokens" in body and "max_completion_tokens" in body:
        return "'max_tokens' and 'max_completion_tokens' cannot be set at the same time"
    for index, message in enumerate(body["messages"]):
        fields = _FIELDS.get(message["role"])
        if fields is None:
            return f"body.messages.{index}: unexpected role {message['role']!r}"
        if reasons and message.get("tool_calls") and not message.get("reasoning_content"):
            return f"Missing `reasoning_content` field in the assistant message at message index {index}."
        if extra := sorted(message.keys() - fields - ({"reasoning_content"} if reasons else set())):
            return f"body.messages.{index}.{message['role']}.{extra[0]}: Extra inputs are not permitted"
        if not message.get("content") and not message.get("tool_calls") and message["role"] != "tool":
            return f"body.messages.{index}: a message must have content"
    return _refused_order(body["messages"])


def _refused_order(messages: list[dict[str, Any]]) -> str | None:
    rest = messages[1:] if messages and messages[0]["role"] == "system" else messages
    if any(message["role"] == "system" for message in rest):
        return "System message must be at the beginning."
    is_users, calls = True, list[str]()
    for message in rest:
        if message["role"] == "tool":
            if message["tool_call_id"] not in calls:
                return "tool call id has to be defined in the message before"
            calls.remove(message["tool_call_id"])
            continue
        if calls:
            return "Not the same number of function calls and responses"
        if message.get("tool_calls"):
            if is_users:
                return "a call of tools must follow a user message or a tool result"
            calls = [call["id"] for call in message["tool_calls"]]
            continue
        if (message["role"] == "user") != is_users:
            return (
                "After the optional system message, conversation roles must alternate user and assistant roles "
                "except for tool calls and results."
            )
        is_users = not is_users
    if calls:
        return "Not the same number of function calls and responses"
    if not rest or rest[-1]["role"] == "assistant":
        return "Expected last role User or Tool for serving but got assistant"
    return None
