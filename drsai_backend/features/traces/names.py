"""Names of spans' attributes are those of OpenTelemetry's semantic conventions for generative AI and HTTP, and our own
for what these do not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

OPERATION: Final = "gen_ai.operation.name"
AGENT: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
MODEL: Final = "gen_ai.request.model"
TOOL: Final = "gen_ai.tool.name"
CALL_ID: Final = "gen_ai.tool.call.id"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
USAGE: Final[Mapping[str, str]] = {
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
"""By the names that tokens have in usage."""
INVOKE_AGENT, CHAT, EXECUTE_TOOL = "invoke_agent", "chat", "execute_tool"
"""Operations; they begin the names of spans, too."""

METHOD: Final = "http.request.method"
ROUTE: Final = "http.route"
STATUS: Final = "http.response.status_code"
ERROR: Final = "error.type"

REQUEST_ID: Final = "drsai.request.id"
RUN_ID: Final = "drsai.run.id"
ATTEMPT: Final = "drsai.run.attempt"
ENDED_AS: Final = "drsai.run.status"
STOPPED_BY: Final = "drsai.run.stop_code"
CALL: Final[Mapping[str, str]] = {
    "agent": AGENT,
    "model": MODEL,
    "profile": "drsai.model.profile",
    "attempts": "drsai.model.attempts",
    "cached": "drsai.model.cached",
    **USAGE,
}
"""By the names of fields of a `CallRecord`."""
WHOSE: Final[Mapping[str, str]] = {"tenant": "drsai.tenant", "user": "user.id"}
"""By the names of fields in lines of the log."""
