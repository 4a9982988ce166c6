"""Templates are prompts with variables: `{{user_id}}` is filled in from the request when the agent is built.

A variable is a name and nothing else: no expressions, no code. `{{` that begins no variable stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from drsai_backend.definitions.schema import Example
from drsai_backend.teams.context import RunContext

VARIABLES: Final = {
    "user_id": "who asks",
    "tenant": "their tenant",
    "thread_id": "the conversation",
    "run_id": "the run",
    "date": "today, in UTC, as 2026-01-31; the day on which the run began",
}
"""What there is, beside `{{context.name}}`: the field `name` of the object `context` in the request."""
_VARIABLE: Final = re.compile(r"\{\{\s*([A-Za-z_][\w.]*)\s*\}\}")
_CONTEXT: Final = "context."


def unknown_variables(text: str) -> Iterator[str]:
    """The variables of a text that there are not."""
    known = set(variables_in(text))
    return (name for name in _VARIABLE.findall(text) if name not in known)


def variables_in(text: str) -> Iterator[str]:
    """The variables of a text that there are."""
    for name in _VARIABLE.findall(text):
        if name in VARIABLES or (name.startswith(_CONTEXT) and name.count(".") == 1):
            yield name


def prompt_of(text: str, examples: Sequence[Example], context: RunContext) -> str:
    """The system message: the text with its variables filled in, and the examples after it. What the request does not
    say of its context is an empty text."""
    extra: object = context.input_values.get("extra_requests")
    given: object = extra.get("context") if isinstance(extra, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    fields: dict[str, object] = given if isinstance(given, dict) else {}  # pyright: ignore[reportUnknownVariableType]
    values = {
        "user_id": context.user_id,
        "tenant": context.principal.tenant,
        "thread_id": context.thread_id,
        "run_id": context.run_id,
        "date": (context.began_at or datetime.now(UTC)).strftime("%Y-%m-%d"),
    }

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name.startswith(_CONTEXT):
            said = fields.get(name.removeprefix(_CONTEXT), "")
            return said if isinstance(said, str) else str(said)
        return values.get(name, found[0])

    parts = [_VARIABLE.sub(value, text).strip()] if text.strip() else []
    for example in examples:
        parts.append(f"Example:\nUser: {example.user}\nAssistant: {example.assistant}")
    return "\n\n".join(parts)
